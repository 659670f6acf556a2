#!/bin/sh
# What removing a directory would free at least: what its files share with nothing, without those
# that have another name outside. Shared blocks whose every reference lies below come on top.
# usage: before-delete.sh DIRECTORY, below a sharelens mount
set -eu

number() {
    getfattr --absolute-names --only-values -n "user.reflink.$1" -- "$directory"
}

directory=${1:?usage: before-delete.sh DIRECTORY}
files=$(number files)
exclusive=$(number exclusive_bytes)
outside=$(number linked_outside_bytes)
footprint=$(number footprint_bytes)
least=$((exclusive > outside ? exclusive - outside : 0))
echo "$directory: $files files, $exclusive bytes exclusive, $outside bytes linked from outside"
echo "removing it frees at least $least bytes, and at most $footprint"
