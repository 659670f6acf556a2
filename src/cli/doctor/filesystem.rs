//! The filesystem below.

use super::Finding;
use crate::cli::{Failure, direct, named, output};
use crate::fs::device::DeviceTable;
use crate::mount::{ask, mountinfo};
use crate::sharing::DeviceIndex;
use crate::sys::statfs::{self, FilesystemKind};
use crate::sys::{reason, xfs};
use crate::vxattr::{Name, printable};
use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// How many entries to look through for a file to try FIEMAP on.
const TRIED: usize = 1000;

pub(super) fn findings(path: &Path) -> Result<Vec<Finding>, Failure> {
    let refused =
        |reason: &dyn Display| Failure::Sentence(format!("{}: {reason}", output::shown(path)));
    let fd: OwnedFd = match named::open_file_or_directory(path) {
        Ok(Ok(file)) => file.into(),
        Ok(Err(what)) => {
            return Err(refused(&format!(
                "is {what}; give a directory or a regular file"
            )));
        }
        Err(error) => return Err(refused(&reason(&error))),
    };
    let mount = mountinfo::holding(&fd)?;
    let kind = mount
        .as_ref()
        .map_or("unknown", |mount| mount.kind.as_str());
    let mut findings = Vec::new();
    if let Some(view) = mount.as_ref().filter(|mount| mount.is_sharelens()) {
        findings.push(Finding::good(
            "path",
            format!("in the sharelens mount {:?}", view.point),
            format!(
                "shows {}; `sharelens status` says what applies there",
                printable(view.source.as_bytes())
            ),
        ));
        if let Ok(stats) = ask::text(&view.point, Name::Stats) {
            findings.push(Finding::good("mount", stats, "its own account"));
        }
        return Ok(findings);
    }
    if let Some(finding) = without_disk(kind) {
        findings.push(finding);
        return Ok(findings);
    }
    findings.extend(sharing(&fd, kind)?);
    findings.push(fiemap(path));
    findings.push(watch(fd.as_fd()));
    Ok(findings)
}

/// Filesystems that keep nothing on a disk.
fn without_disk(kind: &str) -> Option<Finding> {
    let means = match kind {
        "tmpfs" | "ramfs" | "hugetlbfs" | "devtmpfs" => {
            "its files are in memory and share no blocks: a mount works, and every number is absent (ENODATA)"
        }
        "proc" | "sysfs" | "cgroup" | "cgroup2" | "debugfs" | "tracefs" | "securityfs"
        | "configfs" | "devpts" | "mqueue" | "bpf" | "pstore" | "efivarfs" | "fusectl"
        | "binfmt_misc" | "autofs" => "the kernel makes it up: there are no files with storage",
        _ => return None,
    };
    Some(Finding::missing(
        "filesystem",
        kind,
        means,
        "give a directory on a disk, of XFS or btrfs: `findmnt -t xfs,btrfs` shows where they are",
    ))
}

fn sharing(fd: &OwnedFd, kind: &str) -> Result<Vec<Finding>, Failure> {
    let what = "filesystem";
    let mut findings = Vec::new();
    match statfs::filesystem(fd.as_fd())?.kind {
        FilesystemKind::Xfs => {
            let geometry = xfs::geometry(fd.as_fd())?;
            findings.push(if geometry.reflink {
                Finding::good(what, "XFS with reflink", "files can share blocks")
            } else {
                Finding::limited(
                    what,
                    "XFS without reflink",
                    "its files cannot share blocks: of each, shared_bytes is 0 and exclusive_bytes all of it, which is right and stays so; `cp` copies, and `sharelens clone` fails",
                    "reflink cannot be switched on later: make a new filesystem (mkfs.xfs -m reflink=1, the default since xfsprogs 5.1) and move the files there",
                )
            });
            let groups = geometry.groups;
            let means = "a scan gives each worker groups of its own, since threads in one group wait for each other";
            findings.push(if groups > 1 {
                Finding::good("allocation groups", groups.to_string(), means)
            } else {
                Finding::limited(
                    "allocation groups",
                    groups.to_string(),
                    "a scan cannot run on more than one processor",
                    "make the filesystem with more groups (mkfs.xfs -d agcount=N)",
                )
            });
            findings.push(Finding::good(
                "rmapbt",
                if geometry.rmap { "on" } else { "off" },
                "not needed by sharelens",
            ));
        }
        FilesystemKind::Btrfs => {
            findings.push(Finding::good(
                what,
                "btrfs",
                "files share whole extent items (up to 128 MiB)",
            ));
            findings.push(if nix::unistd::geteuid().is_root() {
                Finding::good(
                    "extent items",
                    "can be read",
                    "a change invalidates exactly the files it affects",
                )
            } else {
                Finding::limited(
                    "extent items",
                    "need root",
                    "a change invalidates more files than it affects, so that more must be mapped again; answers stay exact",
                    "mount as root",
                )
            });
        }
        FilesystemKind::Other(_) => findings.push(Finding::limited(
            what,
            kind,
            "not known to share blocks between files: expect shared_bytes of 0, or no numbers at all",
            "to share blocks, use XFS with reflink=1, or btrfs",
        )),
    }
    Ok(findings)
}

fn fiemap(path: &Path) -> Finding {
    let what = "FIEMAP";
    let Some(file) = some_file(path) else {
        return Finding::limited(
            what,
            "not tried",
            "there is no regular file here that could be asked",
            "run `sharelens doctor FILE`",
        );
    };
    match direct::map(&file) {
        Ok(_) => Finding::good(what, "works", "every number can be known"),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Finding::missing(
            what,
            "this filesystem has none",
            "a mount works, but every number is absent (ENODATA)",
            "use XFS, btrfs, ext4 or another filesystem with FIEMAP",
        ),
        Err(error) => Finding::limited(
            what,
            format!("{}: {}", output::shown(&file), reason(&error)),
            "this file could not be asked",
            "run `sharelens doctor` on another file",
        ),
    }
}

fn some_file(path: &Path) -> Option<PathBuf> {
    if path.is_file() {
        return Some(path.to_owned());
    }
    std::fs::read_dir(path)
        .ok()?
        .take(TRIED)
        .flatten()
        .find(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .map(|entry| entry.path())
}

fn watch(fd: BorrowedFd<'_>) -> Finding {
    let what = "watching this filesystem";
    // As the mount does it: on btrfs the whole filesystem, whichever subvolume this is.
    let table = match DeviceTable::new(fd) {
        Ok(table) => table,
        Err(error) => return unwatched(what, reason(&error).to_string()),
    };
    match table.watch() {
        Ok(_) if table.is_watched(DeviceIndex(0)) => Finding::good(
            what,
            "possible",
            "changes behind the mount are in the answers at once and in names and attributes a millisecond later; the kernel is let to believe those for an hour. Not seen: deduplication and stores through mappings of files that others keep open, defragmentation and balance (`sharelens refresh`, max_trust=S)",
        ),
        Ok(_) => unwatched(what, "refused by the filesystem".to_owned()),
        Err(error) => unwatched(what, reason(error).to_string()),
    }
}

fn unwatched(what: &'static str, found: String) -> Finding {
    Finding::limited(
        what,
        found,
        "changes behind the mount are seen by ctime at the next question, those of sharing files not; names and attributes are asked for again after a second",
        "mount as root, or use max_trust=S and `sharelens refresh`",
    )
}
