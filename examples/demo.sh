#!/bin/sh
# sharelens at work: a small XFS filesystem in a file, a tree with a reflinked copy, a mount over
# it, the numbers as a table and as attributes. Cleans up behind itself, also when it fails.
# usage: demo.sh PROGRAM (as root)
set -eu

program=$(realpath "${1:-target/release/sharelens}")
if [ "$(id -u)" -ne 0 ]; then
    echo "this demo makes a filesystem and mounts it: run it as root (sudo make demo)" >&2
    exit 1
fi

work=$(mktemp -d /tmp/sharelens-demo.XXXXXX)
cleanup() {
    status=$?
    trap - EXIT INT TERM
    cd /
    "$program" umount --lazy "$work/view" 2>/dev/null || true
    umount "$work/disk" 2>/dev/null || umount -l "$work/disk" 2>/dev/null || true
    rm -rf "$work"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() { printf '$ %s\n' "$*"; "$@"; }

say "A small XFS filesystem in a file, with a tree and a reflinked copy of it"
mkdir "$work/disk" "$work/view"
truncate -s 512M "$work/disk.img"
mkfs.xfs -q -m reflink=1 "$work/disk.img"
mount -o loop "$work/disk.img" "$work/disk"
mkdir -p "$work/disk/project/original"
for name in alpha beta gamma; do
    head -c 1048576 /dev/urandom > "$work/disk/project/original/$name"
done
head -c 300000 /dev/urandom > "$work/disk/project/original/delta"
show cp -r --reflink=always "$work/disk/project/original" "$work/disk/project/copy"

say "sharelens shows it at another place"
show "$program" mount "$work/disk/project" "$work/view"
cd "$work/view"

say "Every file shares all of its blocks with its copy"
show "$program" show original/* copy/*

say "Work in the mount: overwrite a part of one copy, remove another, clone a third"
show dd if=/dev/urandom of=copy/alpha bs=64K count=4 conv=notrunc status=none
show rm copy/beta
show cp --reflink=auto original/gamma copy/gamma-again
show "$program" show original/* copy/*

say "The same numbers for any program that reads attributes"
show getfattr -n user.reflink.summary original/alpha
show getfattr --only-values -n user.reflink.exclusive_bytes copy/alpha
printf '\n'
show getfattr --only-values -n user.reflink.map copy/alpha

say "Unmount"
cd /
show "$program" umount "$work/view"
