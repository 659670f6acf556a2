#!/bin/sh
# The files of a tree that would free the most if they were removed, largest first: those with the
# most bytes that no other file shares.
# usage: top-exclusive.sh [DIRECTORY [COUNT]], DIRECTORY below a sharelens mount
set -eu

directory=${1:-.}
count=${2:-10}

# getfattr writes newlines and backslashes in names as \ooo, so that a file stays one line.
find "$directory" -xdev -type f \
    -exec getfattr --absolute-names -n user.reflink.exclusive_bytes -- {} + |
    awk -F '"' '
        /^# file: /   { name = substr($0, 9); next }
        /^user\./     { printf "%s\t%s\n", $2, name }' |
    sort -k1,1nr -k2 |
    head -n "$count"
