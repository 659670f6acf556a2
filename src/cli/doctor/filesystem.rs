//! The filesystem below.

use super::Finding;
use crate::cli::{Failure, direct};
use crate::fs::device::DeviceTable;
use crate::mount::{ask, mountinfo};
use crate::sharing::DeviceIndex;
use crate::sys::statfs::{self, FilesystemKind};
use crate::sys::xfs;
use crate::vxattr::Name;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// How many entries to look through for a file to try FIEMAP on.
const TRIED: usize = 1000;

pub(super) fn findings(path: &Path) -> Result<Vec<Finding>, Failure> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let fd = open(path, flags, Mode::empty())
        .map_err(|errno| Failure::Sentence(format!("{}: {}", path.display(), errno.desc())))?;
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
                view.source
            ),
        ));
        if let Ok(stats) = ask::text(&view.point, Name::Stats) {
            findings.push(Finding::good("mount", stats, "its own account"));
        }
        return Ok(findings);
    }
    findings.extend(sharing(&fd, kind)?);
    findings.push(fiemap(path));
    findings.push(watch(fd.as_fd()));
    Ok(findings)
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
                    "nothing can be shared: every answer is 0",
                    "make the filesystem with mkfs.xfs -m reflink=1",
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
            "not known to share blocks between files: expect answers of 0, or none at all",
            "use XFS with reflink=1, or btrfs",
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
            format!("{}: {error}", file.display()),
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
        Err(error) => return unwatched(what, error.to_string()),
    };
    match table.watch() {
        Ok(_) if table.is_watched(DeviceIndex(0)) => Finding::good(
            what,
            "possible",
            "changes behind the mount are in the answers at once and in names and attributes a millisecond later; the kernel is let to believe those for an hour. Not seen: deduplication and stores through mappings of files that others keep open, defragmentation and balance (`sharelens refresh`, max_trust=S)",
        ),
        Ok(_) => unwatched(what, "refused by the filesystem".to_owned()),
        Err(error) => unwatched(what, error.to_string()),
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
