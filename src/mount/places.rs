//! The source and the mount point: opened and checked before anything is mounted.
//!
//! What is found here stays true however the paths change afterwards, because the session works
//! from the descriptor alone.

use super::mountinfo::{self, MountEntry};
use super::refusal::Refusal;
use super::umount;
use crate::sys::fiemap;
use crate::sys::statfs::{self, FilesystemKind};
use crate::vxattr::printable;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, fstat};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A source and a mount point that fit together.
#[derive(Debug)]
pub struct Places {
    /// The source directory, open for reading.
    pub source: OwnedFd,
    /// Its absolute path, for display.
    pub source_path: PathBuf,
    /// The absolute path of the mount point.
    pub point: PathBuf,
    /// Whether the mount covers its own source.
    pub in_place: bool,
    /// Mode of the source, for the root of the mount.
    pub mode: u32,
    /// What a person should know: dead mounts removed, numbers that cannot be had.
    pub notices: Vec<String>,
}

/// Opens and checks. With no mount point the source is covered by its own view. A dead sharelens
/// mount (its daemon was killed) at the mount point is removed first.
///
/// # Errors
/// The first reason why these two cannot be used.
pub fn open_places(source: &Path, point: Option<&Path>) -> Result<Places, Refusal> {
    let mut notices = clear_dead(&resolve(point.unwrap_or(source)))?;
    let fd = open_source(source)?;
    let source_path = resolve(source);
    let point_given = point.unwrap_or(source);
    let point = resolve(point_given);
    let point_fd = open_point(point_given)?;

    if let Some(mount) = mount_at(&point)? {
        return Err(Refusal::AlreadyMounted {
            point,
            shown: printable(mount.source.as_bytes()),
        });
    }
    let holder = mountinfo::holding(&fd).map_err(Refusal::system("reading the mount table"))?;
    if let Some(view) = holder.filter(MountEntry::is_sharelens) {
        return Err(Refusal::SourceIsView {
            source_path,
            point: view.point,
            shown: printable(view.source.as_bytes()),
        });
    }
    let source_stat = stat(fd.as_fd(), &source_path)?;
    let point_stat = stat(point_fd.as_fd(), &point)?;
    let same = identity(&source_stat) == identity(&point_stat);
    if !same {
        if lies_below(&point_fd, identity(&source_stat))? {
            return Err(Refusal::PointInsideSource { point, source_path });
        }
        if lies_below(&fd, identity(&point_stat))? {
            return Err(Refusal::SourceInsidePoint { source_path, point });
        }
    }
    if lacks_fiemap(&fd) {
        notices.push(format!(
            "the filesystem of {source_path:?} has no FIEMAP and cannot say what is shared: the virtual attributes will be absent (ENODATA)"
        ));
    }
    Ok(Places {
        source: fd,
        in_place: same && source_path == point,
        mode: source_stat.st_mode,
        source_path,
        point,
        notices,
    })
}

/// The absolute path without symbolic links, as far as it can be had (the last component of a
/// dead mount cannot be looked at).
#[must_use]
pub fn resolve(path: &Path) -> PathBuf {
    if let Ok(resolved) = path.canonicalize() {
        return resolved;
    }
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => parent
            .canonicalize()
            .unwrap_or_else(|_| parent.to_owned())
            .join(name),
        _ => absolute,
    }
}

fn open_source(path: &Path) -> Result<OwnedFd, Refusal> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty()).map_err(|errno| {
        let source_path = path.to_owned();
        match errno {
            nix::Error::ENOENT => Refusal::SourceMissing { source_path },
            nix::Error::ENOTDIR => Refusal::SourceNotDirectory { source_path },
            errno => Refusal::SourceUnreadable {
                source_path,
                error: errno.into(),
            },
        }
    })
}

fn open_point(path: &Path) -> Result<OwnedFd, Refusal> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty()).map_err(|errno| {
        let point = path.to_owned();
        match errno {
            nix::Error::ENOENT => Refusal::PointMissing { point },
            nix::Error::ENOTDIR => Refusal::PointNotDirectory { point },
            errno => Refusal::PointUnreadable {
                point,
                error: errno.into(),
            },
        }
    })
}

/// A sharelens mount whose root is exactly here and on top.
fn mount_at(point: &Path) -> Result<Option<MountEntry>, Refusal> {
    let top = mountinfo::topmost(point).map_err(Refusal::system("reading the mount table"))?;
    Ok(top.filter(MountEntry::is_sharelens))
}

/// Detaches sharelens mounts at `point` whose daemon is gone.
fn clear_dead(point: &Path) -> Result<Vec<String>, Refusal> {
    let mut notices = Vec::new();
    // Each turn takes one mount away, and nobody stacks this many.
    for _ in 0..16 {
        let top = mountinfo::topmost(point).map_err(Refusal::system("reading the mount table"))?;
        let Some(top) = top.filter(|top| top.kind.starts_with("fuse") && is_dead(point)) else {
            break;
        };
        if !top.is_sharelens() {
            return Err(Refusal::DeadMount {
                point: point.to_owned(),
                kind: top.kind,
            });
        }
        umount::detach(point)?;
        notices.push(format!(
            "removed a dead sharelens mount from {point:?} (its daemon was killed)"
        ));
    }
    Ok(notices)
}

/// Whether the mount at `point` has lost its daemon. statfs always asks the daemon.
#[must_use]
pub fn is_dead(point: &Path) -> bool {
    matches!(
        nix::sys::statvfs::statvfs(point),
        Err(nix::Error::ENOTCONN | nix::Error::ECONNABORTED)
    )
}

/// Whether the filesystem cannot map files, as far as it can be tried: on a file without a name,
/// which is gone when it is closed. XFS and btrfs need no trying.
fn lacks_fiemap(source: &OwnedFd) -> bool {
    let known = statfs::filesystem(source.as_fd())
        .is_ok_and(|info| !matches!(info.kind, FilesystemKind::Other(_)));
    if known {
        return false;
    }
    let flags = OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC;
    let Ok(file) = openat(source, ".", flags, Mode::S_IRUSR | Mode::S_IWUSR) else {
        return false;
    };
    fiemap::Batch::new(1)
        .read(file.as_fd(), 0, |_| {})
        .is_err_and(|error| matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOTTY)))
}

fn stat(fd: std::os::fd::BorrowedFd<'_>, path: &Path) -> Result<FileStat, Refusal> {
    fstat(fd).map_err(Refusal::system(format!("looking at {path:?}")))
}

fn identity(stat: &FileStat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Whether a proper ancestor of the directory is the one with this identity. By identity and not
/// by path, so that bind mounts do not hide it.
fn lies_below(start: &OwnedFd, wanted: (u64, u64)) -> Result<bool, Refusal> {
    let ancestors = || -> io::Result<bool> {
        let mut below = start.try_clone()?;
        loop {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            let above = openat(&below, "..", flags, Mode::empty())?;
            let (here, up) = (fstat(&below)?, fstat(&above)?);
            let same_mount = mountinfo::holding(&below)?.map(|entry| entry.id)
                == mountinfo::holding(&above)?.map(|entry| entry.id);
            if identity(&here) == identity(&up) && same_mount {
                return Ok(false);
            }
            if identity(&up) == wanted {
                return Ok(true);
            }
            below = above;
        }
    };
    ancestors().map_err(Refusal::system("looking at the parent directories"))
}
