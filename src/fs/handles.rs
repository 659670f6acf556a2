//! Open files and open directories.
//!
//! A file that is open with kernel passthrough needs no descriptor here: the kernel opened the
//! backing file itself. What an operation on such a handle needs is opened for its duration, so
//! that nothing of ours keeps the file open for write after the last release.

use super::dir::Stream;
use super::error::{Error, Result};
use super::inodes::Inodes;
use super::types::{HandleId, NodeId};
use crate::sharing::FileKey;
use crate::sys::at::Time;
use dashmap::DashMap;
use parking_lot::Mutex;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) node: NodeId,
    pub(crate) key: FileKey,
    /// As the caller opened it.
    pub(crate) flags: i32,
    /// Present when the I/O goes through the daemon.
    pub(crate) fd: Option<OwnedFd>,
    /// It counts among those that change attributes silently.
    pub(crate) silent: bool,
    /// It had set-id bits when it was opened.
    pub(crate) set_id: bool,
}

/// A descriptor for one operation.
#[derive(Debug)]
pub(crate) enum Lent<'a> {
    Kept(BorrowedFd<'a>),
    Opened(OwnedFd),
}

impl AsFd for Lent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Kept(fd) => fd.as_fd(),
            Self::Opened(fd) => fd.as_fd(),
        }
    }
}

impl OpenFile {
    pub(crate) fn writes(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY
    }

    pub(crate) fn direct(&self) -> bool {
        self.flags & libc::O_DIRECT != 0
    }

    /// A descriptor that can do what the caller's can.
    pub(crate) fn lend(&self, inodes: &Inodes) -> io::Result<Lent<'_>> {
        match &self.fd {
            Some(fd) => Ok(Lent::Kept(fd.as_fd())),
            None => inodes
                .open(self.node, self.key, self.flags & libc::O_ACCMODE)
                .map(Lent::Opened),
        }
    }
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct OpenDir {
    pub(crate) node: NodeId,
    pub(crate) key: FileKey,
    pub(crate) fd: OwnedFd,
    /// The directory's when it was opened.
    pub(crate) ctime: Time,
    pub(crate) stream: Mutex<Stream>,
}

/// Everything open.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    next: AtomicU64,
    files: DashMap<u64, Arc<OpenFile>>,
    dirs: DashMap<u64, Arc<OpenDir>>,
}

impl Handles {
    fn number(&self) -> HandleId {
        HandleId(self.next.fetch_add(1, Ordering::Relaxed).wrapping_add(1))
    }

    pub(crate) fn add_file(&self, file: OpenFile) -> HandleId {
        let id = self.number();
        self.files.insert(id.0, Arc::new(file));
        id
    }

    pub(crate) fn file(&self, id: HandleId) -> Result<Arc<OpenFile>> {
        self.files
            .get(&id.0)
            .map(|file| Arc::clone(&file))
            .ok_or(Error::new(libc::EBADF, "find an open file"))
    }

    pub(crate) fn replace_file(&self, id: HandleId, file: OpenFile) {
        self.files.insert(id.0, Arc::new(file));
    }

    pub(crate) fn remove_file(&self, id: HandleId) -> Option<Arc<OpenFile>> {
        self.files.remove(&id.0).map(|(_, file)| file)
    }

    pub(crate) fn add_dir(&self, dir: OpenDir) -> HandleId {
        let id = self.number();
        self.dirs.insert(id.0, Arc::new(dir));
        id
    }

    pub(crate) fn dir(&self, id: HandleId) -> Result<Arc<OpenDir>> {
        self.dirs
            .get(&id.0)
            .map(|dir| Arc::clone(&dir))
            .ok_or(Error::new(libc::EBADF, "find an open directory"))
    }

    /// Whether a directory is open that had another change time when it was opened.
    pub(crate) fn is_open_otherwise(&self, node: NodeId, ctime: Time) -> bool {
        self.dirs
            .iter()
            .any(|open| open.node == node && open.ctime != ctime)
    }

    pub(crate) fn remove_dir(&self, id: HandleId) {
        self.dirs.remove(&id.0);
    }
}
