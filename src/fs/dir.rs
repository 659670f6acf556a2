//! Reading directories.
//!
//! The position that the kernel and programs see is the backing directory's own (`d_off`), so
//! telldir and seekdir work as natively, also after entries were removed or added. An entry is
//! never lost because something about it could not be found out: the batch ends before it, and
//! the kernel asks on from there.

use super::Passthrough;
use super::error::{Doing, Error, Result};
use super::handles::OpenDir;
use super::types::{Attr, Entry, HandleId, NodeId};
use crate::sharing::FileKey;
use crate::sys::at::{Status, Time};
use crate::sys::dir;
use crate::sys::{self, statfs::FilesystemKind};
use parking_lot::Mutex;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Room for entries read at once.
const BUFFER: usize = 32 * 1024;

/// Where an open directory stands.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    buffer: Vec<u8>,
    /// The part of the buffer that was not handed over yet.
    start: usize,
    end: usize,
    /// The position of the entry at `start`.
    position: u64,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// What `d_ino` shows: equal to `st_ino`.
    pub node: NodeId,
    /// Type bits as in `st_mode`; 0 where not known.
    pub kind: u32,
    /// The position after it.
    pub next: u64,
    /// Its name.
    pub name: &'a CStr,
}

impl Stream {
    /// Calls `each` for the entries from `position` on until it returns false, which leaves that
    /// entry to the next call, or the directory ends. Whether it ended before any entry.
    fn read(
        &mut self,
        open: &OpenDir,
        position: u64,
        mut each: impl FnMut(&dir::Entry<'_>) -> Result<bool>,
    ) -> Result<bool> {
        let mut none = true;
        if position != self.position {
            let to = i64::try_from(position)
                .map_err(|_| Error::new(libc::EINVAL, "seek a directory"))?;
            sys::data::seek(open.fd.as_fd(), to, libc::SEEK_SET).doing("seek a directory")?;
            (self.start, self.end, self.position) = (0, 0, position);
        }
        loop {
            let rest = self.buffer.get(self.start..self.end).unwrap_or_default();
            let Some((entry, length)) = dir::entry(rest) else {
                self.buffer.resize(BUFFER, 0);
                self.start = 0;
                self.end = 0;
                self.end =
                    dir::read(open.fd.as_fd(), &mut self.buffer).doing("read a directory")?;
                if self.end == 0 {
                    return Ok(none);
                }
                continue;
            };
            if !each(&entry)? {
                return Ok(false);
            }
            none = false;
            self.position = entry.next;
            self.start += length;
        }
    }
}

impl Passthrough {
    /// Whether the kernel need not tell of opening and closing directories: it keeps listings by
    /// itself, and is told when others change a directory.
    #[must_use]
    pub fn opens_directories_itself(&self) -> bool {
        self.inodes
            .key(NodeId::ROOT)
            .is_ok_and(|root| self.follows(root.device) && self.inodes.by_handle(root))
    }

    /// Opens a directory. The second value says that what the kernel has cached of its entries is
    /// still right.
    ///
    /// # Errors
    /// As open(2) says.
    pub fn open_dir(&self, node: NodeId) -> Result<(HandleId, bool)> {
        let key = self.inodes.key(node)?;
        let fd = self.open_dir_now(node, key)?;
        let status = sys::at::status(fd.as_fd(), c"").doing("open a directory")?;
        let mut keep = self.unchanged.confirm(node, key, &status);
        if self.handles.is_open_otherwise(node, status.ctime) {
            // A listing from before the change may still be on its way into the kernel's cache,
            // after what is there was dropped: it is not to be believed at the next open either.
            self.unchanged.forget(node);
            keep = false;
        }
        let handle = self.handles.add_dir(OpenDir {
            node,
            key,
            fd,
            ctime: status.ctime,
            stream: Mutex::default(),
        });
        Ok((handle, keep))
    }

    /// Closes a directory.
    pub fn release_dir(&self, handle: HandleId) {
        self.handles.remove_dir(handle);
    }

    /// Calls `read` with an open directory, which for [`HandleId::NONE`] is one that was left at
    /// `position` by the reading before, or is opened now.
    pub(crate) fn with_dir(
        &self,
        node: NodeId,
        handle: HandleId,
        position: u64,
        read: impl FnOnce(&OpenDir, &mut Stream) -> Result<bool>,
    ) -> Result<()> {
        if handle != HandleId::NONE {
            let open = self.handles.dir(handle)?;
            return read(&open, &mut open.stream.lock()).map(drop);
        }
        let key = self.inodes.key(node)?;
        let open = match self.readings.take(node, key, position) {
            Some(open) => open,
            None => OpenDir {
                node,
                key,
                fd: self.open_dir_now(node, key)?,
                ctime: Time::default(),
                stream: Mutex::default(),
            },
        };
        let mut stream = open.stream.lock();
        let over = read(&open, &mut stream)?;
        let position = stream.position;
        drop(stream);
        if !over {
            self.readings.leave(position, open);
        }
        Ok(())
    }

    pub(crate) fn open_dir_now(&self, node: NodeId, key: FileKey) -> Result<OwnedFd> {
        let opened = self
            .inodes
            .open(node, key, libc::O_RDONLY | libc::O_DIRECTORY);
        opened.doing("open a directory")
    }

    /// Closes directories that were read in part and not since.
    pub fn expire_readings(&self) {
        self.readings.expire();
    }

    /// Reads entries of a directory from `position` on, until `each` returns false. `handle` is
    /// [`HandleId::NONE`] where the kernel does not tell of opening directories.
    ///
    /// # Errors
    /// As getdents64(2) says.
    pub fn read_dir(
        &self,
        node: NodeId,
        handle: HandleId,
        position: u64,
        mut each: impl FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.with_dir(node, handle, position, |open, stream| {
            stream.read(open, position, |entry| {
                Ok(each(DirEntry {
                    node: self.entry_node(open, entry),
                    kind: u32::from(entry.kind) << 12,
                    next: entry.next,
                    name: entry.name,
                }))
            })
        })
    }

    /// Reads entries with their attributes; each that `each` takes counts as looked up, `.` and
    /// `..` apart.
    ///
    /// # Errors
    /// As getdents64(2) says, or of the look-up of the first entry.
    pub fn read_dir_plus(
        &self,
        node: NodeId,
        handle: HandleId,
        position: u64,
        each: impl FnMut(DirEntry<'_>, &Entry) -> bool,
    ) -> Result<()> {
        self.with_dir(node, handle, position, |open, stream| {
            self.read_stream_plus(open, stream, position, each)
        })
    }

    fn read_stream_plus(
        &self,
        open: &OpenDir,
        stream: &mut Stream,
        position: u64,
        mut each: impl FnMut(DirEntry<'_>, &Entry) -> bool,
    ) -> Result<bool> {
        let mut any = false;
        stream.read(open, position, |entry| {
            let mut shown = DirEntry {
                node: NodeId(entry.ino),
                kind: u32::from(entry.kind) << 12,
                next: entry.next,
                name: entry.name,
            };
            if is_dot(entry.name) {
                shown.node = self.entry_node(open, entry);
                any = true;
                return Ok(each(shown, &bare_directory(shown.node)));
            }
            let found = self.inodes.identify(open.fd.as_fd(), entry.name);
            let (status, key) = match found {
                Ok(found) => found,
                // Removed since it was read: it is right to leave it out.
                Err(error) if error.errno() == libc::ENOENT => return Ok(true),
                Err(_) if any => return Ok(false),
                Err(error) => return Err(error),
            };
            let looked_up = self.entry(open.node, entry.name, &status, key);
            shown.node = looked_up.attr.node;
            shown.kind = status.kind();
            let taken = each(shown, &looked_up);
            if !taken {
                self.forget(shown.node, 1);
            }
            any = true;
            Ok(taken)
        })
    }

    /// Writes a directory to the device.
    ///
    /// # Errors
    /// As fsync(2) says.
    pub fn sync_dir(&self, node: NodeId, handle: HandleId, data_only: bool) -> Result<()> {
        if handle != HandleId::NONE {
            let open = self.handles.dir(handle)?;
            return sys::data::sync(open.fd.as_fd(), data_only).doing("sync a directory");
        }
        let fd = self.open_dir_now(node, self.inodes.key(node)?)?;
        sys::data::sync(fd.as_fd(), data_only).doing("sync a directory")
    }

    /// The number that stat would show for an entry.
    fn entry_node(&self, open: &OpenDir, entry: &dir::Entry<'_>) -> NodeId {
        // On btrfs a subvolume is listed with a number that is not its root's.
        let may_be_subvolume = entry.kind == libc::DT_DIR
            && !is_dot(entry.name)
            && self
                .inodes
                .devices()
                .get(open.key.device)
                .is_some_and(|device| device.space.kind == FilesystemKind::Btrfs);
        if may_be_subvolume
            && let Ok((status, key)) = self.inodes.identify(open.fd.as_fd(), entry.name)
        {
            return self.inodes.node(key.device, status.ino);
        }
        if open.node == NodeId::ROOT && entry.name == c".." {
            return NodeId::ROOT;
        }
        self.inodes.node(open.key.device, entry.ino)
    }
}

fn is_dot(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// What stands for `.` and `..` in a listing with attributes: the kernel takes only number and
/// type from it.
fn bare_directory(node: NodeId) -> Entry {
    Entry {
        attr: Attr {
            node,
            status: Status {
                mode: libc::S_IFDIR,
                ..Status::default()
            },
            ttl: Duration::ZERO,
        },
        generation: 0,
        ttl: Duration::ZERO,
    }
}
