#!/bin/sh
# Installs what the demo and the tests need, on Debian and Ubuntu; elsewhere says what is missing.
# Does nothing when everything is there. Arguments: further program:package pairs.
set -eu

# program:package
needed="mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs mkfs.ext4:e2fsprogs fusermount3:fuse3
    getfattr:attr getfacl:acl losetup:mount findmnt:util-linux git:git sqlite3:sqlite3 rsync:rsync tar:tar
    setpriv:util-linux gio:libglib2.0-bin cc:gcc lsattr:e2fsprogs automount:autofs pg_ctlcluster:postgresql $*"

PATH="$PATH:/usr/sbin:/sbin"
packages=
for pair in $needed; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || packages="$packages ${pair##*:}"
done
[ -n "$packages" ] || exit 0

sudo=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 && sudo=sudo
fi
if ! command -v apt-get >/dev/null 2>&1 || { [ "$(id -u)" -ne 0 ] && [ -z "$sudo" ]; }; then
    echo "missing, please install:$packages" >&2
    [ "${CI:-}" != true ] || exit 1
    exit 0
fi
echo "installing:$packages"
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q
# shellcheck disable=SC2086 # a list of words
$sudo apt-get install -qy --no-install-recommends $packages
