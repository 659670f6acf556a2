//! Opening and closing files.
//!
//! With kernel passthrough the kernel opens the backing file itself after our reply, and whatever
//! goes wrong there reaches the caller as EIO. So what can go wrong for a reason that the caller
//! should learn (a file that must not be written, a filesystem that is read-only) is tried here
//! first.
//!
//! Invariants: all opens of an inode at one time are in one mode; an open for write is counted,
//! here and in the engine, before anything is opened, and counted off after the release.

use super::Passthrough;
use super::error::{Doing, Error, Result};
use super::handles::OpenFile;
use super::nodes::OpenState;
use super::types::{Caller, HandleId, IoMode, NodeId, Opened};
use crate::sharing::{Backing, Change, FileKey, Liveness};
use crate::sys::at;
use crate::sys::cred::KeepSetId;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Flags of an open that say how the backing file is opened on trial, beside the access mode.
const TRIED: i32 = libc::O_APPEND | libc::O_TRUNC | libc::O_DIRECT;
/// Flags that say how to wait.
const WAITS: i32 = libc::O_NONBLOCK;

/// What opening the backing file gave.
#[derive(Default)]
struct Tried {
    /// Kept when the I/O goes through the daemon.
    fd: Option<OwnedFd>,
    /// The file has set-id bits.
    set_id: bool,
    /// What the kernel has cached of its data is still right.
    keep: bool,
}

/// How one open counts.
#[derive(Clone, Copy)]
struct Counted {
    writes: bool,
    silent: bool,
}

impl Counted {
    fn on(self, open: &mut OpenState) {
        open.opens += 1;
        open.writers += u32::from(self.writes);
        open.silent += u32::from(self.silent);
    }

    fn off(self, open: &mut OpenState) {
        open.opens = open.opens.saturating_sub(1);
        open.writers = open.writers.saturating_sub(u32::from(self.writes));
        open.silent = open.silent.saturating_sub(u32::from(self.silent));
        if open.opens == 0 {
            open.passthrough = false;
        }
    }
}

/// A writer for the time of one operation.
pub(crate) struct Writer<'a> {
    fs: &'a Passthrough,
    node: NodeId,
    key: FileKey,
    counted: bool,
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        if self.counted {
            self.fs.inodes.nodes.with_open(self.node, self.key, |open| {
                open.writers = open.writers.saturating_sub(1);
            });
        }
    }
}

impl Passthrough {
    pub(crate) fn wants_passthrough(&self) -> bool {
        self.passthrough.load(Ordering::Relaxed)
    }

    /// Kernel passthrough was found impossible: it is not tried again.
    pub fn give_up_passthrough(&self) {
        self.passthrough.store(false, Ordering::Relaxed);
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As open(2) says.
    pub fn open(&self, caller: Caller, node: NodeId, flags: i32) -> Result<Opened> {
        let key = self.inodes.key(node)?;
        let access = flags & libc::O_ACCMODE;
        let writes = access != libc::O_RDONLY;
        let direct = flags & libc::O_DIRECT != 0;
        // A mapping can be stored through only when the file is open for read and write.
        let counted = Counted {
            writes,
            silent: access == libc::O_RDWR,
        };
        let guard = writes.then(|| {
            self.engine
                .begin(Change::OpenForWrite { file: key, direct })
        });
        let (passthrough, first) = self.count_open(node, key, counted)?;
        let tried = match self.open_backing(caller, node, key, flags, passthrough) {
            Ok(tried) => tried,
            Err(error) => {
                self.count_off(node, key, counted);
                if let Some(guard) = guard {
                    guard.abandon();
                }
                return Err(error);
            }
        };
        drop(guard);
        let handle = self.handles.add_file(OpenFile {
            node,
            key,
            flags,
            fd: tried.fd,
            silent: counted.silent,
            set_id: tried.set_id,
        });
        Ok(Opened {
            handle,
            node,
            key,
            io: if passthrough {
                IoMode::Passthrough
            } else {
                IoMode::Cached { keep: tried.keep }
            },
            // A write takes set-id bits away, which the kernel's cached mode does not show.
            drop_attributes: passthrough && (first || writes && tried.set_id),
        })
    }

    /// A handle for a file that was just created through `fd`.
    pub(crate) fn opened_new(
        &self,
        node: NodeId,
        key: FileKey,
        flags: i32,
        passthrough: bool,
        fd: OwnedFd,
    ) -> (Opened, Option<OwnedFd>) {
        let access = flags & libc::O_ACCMODE;
        let counted = Counted {
            writes: access != libc::O_RDONLY,
            silent: access == libc::O_RDWR,
        };
        let direct = flags & libc::O_DIRECT != 0;
        if counted.writes {
            drop(
                self.engine
                    .begin(Change::OpenForWrite { file: key, direct }),
            );
        }
        let _gate = self.gate(node).lock();
        self.inodes.nodes.with_open(node, key, |open| {
            counted.on(open);
            open.passthrough = passthrough;
        });
        let (kept, lent) = if passthrough {
            (None, Some(fd))
        } else {
            (Some(fd), None)
        };
        let handle = self.handles.add_file(OpenFile {
            node,
            key,
            flags,
            fd: kept,
            silent: counted.silent,
            set_id: false,
        });
        let opened = Opened {
            handle,
            node,
            key,
            io: if passthrough {
                IoMode::Passthrough
            } else {
                IoMode::Cached { keep: false }
            },
            drop_attributes: false,
        };
        (opened, lent)
    }

    /// A descriptor by which the kernel can be told the backing file of an opened node: `created`,
    /// if it was created by that. It is kept until [`Inodes::unregistered`].
    ///
    /// # Errors
    /// `ESTALE` when it is gone.
    ///
    /// [`Inodes::unregistered`]: super::Inodes::unregistered
    pub fn backing_file(&self, opened: &Opened, created: Option<OwnedFd>) -> Result<Arc<OwnedFd>> {
        let Some(fd) = created else {
            return self.inodes.registered(opened.node, opened.key);
        };
        let fd = Arc::new(fd);
        self.inodes.keep_registered(opened.node, opened.key, &fd);
        Ok(fd)
    }

    /// The kernel could not be told the backing file: opens it here instead. Fails when the inode
    /// is open with kernel passthrough elsewhere.
    ///
    /// # Errors
    /// As open(2) says.
    pub fn fall_back(&self, handle: HandleId) -> Result<()> {
        let open = self.handles.file(handle)?;
        let alone = self
            .inodes
            .nodes
            .with_open(open.node, open.key, |state| {
                if state.opens == 1 || !state.passthrough {
                    state.passthrough = false;
                    true
                } else {
                    false
                }
            })
            .unwrap_or(false);
        if !alone {
            return Err(Error::new(libc::EIO, "open a file in two modes"));
        }
        let fd = self
            .inodes
            .open(open.node, open.key, open.flags & (libc::O_ACCMODE | WAITS))
            .doing("open a file")?;
        self.handles.replace_file(
            handle,
            OpenFile {
                fd: Some(fd),
                ..*open
            },
        );
        Ok(())
    }

    /// Nothing of ours holds this inode any more. If it lost its last name behind the mount while
    /// we did, it went just now, unseen: what our own process brings about is not reported.
    pub fn let_go(&self, key: FileKey) {
        if self.engine.backing().liveness(key) == Liveness::Gone {
            drop(self.engine.begin(Change::LastClose(key)));
        }
    }

    /// Closes a file. `registered` says that the kernel was told its backing file.
    pub fn release(&self, handle: HandleId, registered: bool) {
        let Some(open) = self.handles.remove_file(handle) else {
            return;
        };
        let (node, key) = (open.node, open.key);
        let counted = Counted {
            writes: open.writes(),
            silent: open.silent,
        };
        let registered = registered && open.fd.is_none();
        let mapped = registered && open.flags & libc::O_ACCMODE == libc::O_RDWR;
        let direct = open.direct();
        let cached = open.fd.is_some();
        // It may have lost its last name behind the mount.
        let nameless = open
            .fd
            .as_ref()
            .is_some_and(|fd| at::status(fd.as_fd(), c"").is_ok_and(|now| now.links == 0));
        // Closed before the engine looks whether anything holds the file open.
        drop(open);
        if registered {
            self.pin_closed(node);
        }
        let gone = self
            .inodes
            .nodes
            .with_open(node, key, |state| {
                counted.off(state);
                state.mapped |= mapped;
                (state.unnamed || nameless) && state.opens == 0
            })
            .unwrap_or(false);
        if counted.writes {
            drop(
                self.engine
                    .begin(Change::CloseForWrite { file: key, direct }),
            );
        }
        if gone {
            let _change = self.engine.begin(Change::LastClose(key));
            self.unpin(node);
        } else if cached {
            self.let_go(key);
        }
    }

    /// Whether this is kernel passthrough, and whether cached attributes become unreliable by it.
    fn count_open(&self, node: NodeId, key: FileKey, counted: Counted) -> Result<(bool, bool)> {
        let wanted = self.wants_passthrough();
        let _gate = counted.writes.then(|| self.gate(node).lock());
        self.inodes
            .nodes
            .with_open(node, key, |open| {
                if open.opens == 0 {
                    open.passthrough = wanted;
                }
                let first = counted.silent && open.silent == 0;
                counted.on(open);
                (open.passthrough, first)
            })
            .ok_or(Error::new(libc::ESTALE, "open a file"))
    }

    /// Counts as a writer until the guard is dropped, for what opens a file for write without
    /// there being an open file of the caller's.
    pub(crate) fn as_writer(&self, node: NodeId, key: FileKey) -> Writer<'_> {
        let _gate = self.gate(node).lock();
        let counted = self
            .inodes
            .nodes
            .with_open(node, key, |open| open.writers += 1)
            .is_some();
        Writer {
            fs: self,
            node,
            key,
            counted,
        }
    }

    fn count_off(&self, node: NodeId, key: FileKey, counted: Counted) {
        self.inodes
            .nodes
            .with_open(node, key, |open| counted.off(open));
    }

    /// Opens the backing file, on trial or to keep it.
    fn open_backing(
        &self,
        caller: Caller,
        node: NodeId,
        key: FileKey,
        flags: i32,
        passthrough: bool,
    ) -> Result<Tried> {
        let access = flags & libc::O_ACCMODE;
        let truncates = flags & libc::O_TRUNC != 0;
        if passthrough && access == libc::O_RDONLY && flags & TRIED == 0 {
            return Ok(Tried::default());
        }
        let _truncate = truncates.then(|| self.engine.begin(Change::Truncate(key)));
        let _writer = truncates.then(|| self.as_writer(node, key));
        let _keep = KeepSetId::new(truncates && caller.is_root());
        let fd = if passthrough {
            self.inodes
                .open(node, key, access | flags & (TRIED | WAITS))
        } else {
            self.open_cached(node, key, access | flags & (libc::O_TRUNC | WAITS))
        }
        .doing("open a file")?;
        let status = at::status(fd.as_fd(), c"").doing("open a file")?;
        Ok(Tried {
            set_id: status.mode & (libc::S_ISUID | libc::S_ISGID) != 0,
            keep: !passthrough && self.unchanged.confirm(node, key, &status),
            fd: (!passthrough).then_some(fd),
        })
    }

    /// Opens for I/O through the daemon. Without `O_APPEND`, since the writeback of a mapping has
    /// offsets of its own; with it only where the inode can be opened for append alone.
    fn open_cached(&self, node: NodeId, key: FileKey, flags: i32) -> std::io::Result<OwnedFd> {
        match self.inodes.open(node, key, flags) {
            Err(error)
                if error.raw_os_error() == Some(libc::EPERM)
                    && flags & libc::O_ACCMODE != libc::O_RDONLY
                    && flags & libc::O_TRUNC == 0 =>
            {
                self.inodes.open(node, key, flags | libc::O_APPEND)
            }
            other => other,
        }
    }
}
