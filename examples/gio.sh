#!/bin/sh
# The numbers of a file as desktop programs see them: GIO shows user.NAME as xattr::NAME. For all of
# them the mount needs the option list_xattrs; one by its name can be asked for on any mount.
# usage: gio.sh FILE..., below a sharelens mount
set -eu

for file; do
    gio info -a 'xattr::*' "$file" | sed -n 's/^ *xattr::\(reflink\.[a-z_]*\): \(.*\)$/\1 \2/p'
done
