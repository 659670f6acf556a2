//! Finding names, and forgetting what was found.

use super::Passthrough;
use super::error::Result;
use super::nodes::Known;
use super::types::{Attr, Entry, Name, NodeId};
use crate::sharing::{Backing, FileKey, WriteHold};
use crate::sys::at::Status;
use std::ffi::CStr;
use std::os::fd::AsFd;
use std::time::Duration;

impl Passthrough {
    /// Finds `name` in `parent`. The result counts as looked up once.
    ///
    /// # Errors
    /// `ENOENT`, or as stat(2) says.
    pub fn lookup(&self, parent: NodeId, name: &Name) -> Result<Entry> {
        let dir = self.inodes.fd(parent)?;
        let (status, key) = self.inodes.identify(dir.as_fd(), name.as_c_str())?;
        Ok(self.entry(parent, name.as_c_str(), &status, key))
    }

    /// The kernel takes back `count` look-ups.
    pub fn forget(&self, node: NodeId, count: u64) {
        self.inodes.forget(node, count);
    }

    /// What the kernel is told of an inode found as `name` in `parent`, counted as looked up.
    pub(crate) fn entry(
        &self,
        parent: NodeId,
        name: &CStr,
        status: &Status,
        key: FileKey,
    ) -> Entry {
        let (node, known) = self.inodes.remember(parent, name, status, key);
        Entry {
            attr: self.attr(node, &known, *status),
            generation: u64::from(key.generation),
            ttl: self.entry_timeout(parent, key),
        }
    }

    /// Attributes with the time for which they hold.
    pub(crate) fn attr(&self, node: NodeId, known: &Known, status: Status) -> Attr {
        // A store through a mapping moves the times, and a write takes set-id bits away, without
        // the kernel's cached attributes showing it.
        let set_id = status.mode & (libc::S_ISUID | libc::S_ISGID) != 0;
        // What others do to a file's sharers changes the blocks that it has alone.
        let blocks_move = self.options.exclusive_blocks && status.is_file();
        let silent = blocks_move
            || known.open.is_some_and(|open| {
                open.silent > 0
                    || set_id && open.writers > 0
                    || open.mapped && self.still_mapped(node, known)
            });
        Attr {
            node,
            status,
            ttl: if silent {
                Duration::ZERO
            } else if self.follows(known.key.device) && self.settles_by_events(&status) {
                self.options.attr_timeout.watched
            } else {
                self.options.attr_timeout.unwatched
            },
        }
    }

    /// How long the kernel may believe that a name in `parent` leads to `key`.
    pub(crate) fn entry_timeout(&self, parent: NodeId, key: FileKey) -> Duration {
        let times = &self.options.entry_timeout;
        let watched = self.follows(key.device)
            && self
                .inodes
                .key(parent)
                .is_ok_and(|parent| parent.device == key.device || self.follows(parent.device));
        if watched {
            times.watched
        } else {
            times.unwatched
        }
    }

    /// How long the kernel may believe that `parent` does not have a name.
    pub fn negative_timeout(&self, parent: NodeId) -> Duration {
        let watched = self
            .inodes
            .key(parent)
            .is_ok_and(|parent| self.follows(parent.device));
        let times = &self.options.negative_timeout;
        if watched {
            times.watched
        } else {
            times.unwatched
        }
    }

    /// Whether a mapping that outlived its descriptor may still be written through. Nothing of
    /// ours has the file open for write, and nothing opens it while this looks: the gate of the
    /// node is held, and every open for write counts itself first.
    fn still_mapped(&self, node: NodeId, known: &Known) -> bool {
        let _gate = self.gate(node).lock();
        let writers = self
            .inodes
            .nodes
            .with_open(node, known.key, |open| open.writers);
        if writers != Some(0) {
            return true;
        }
        let backing = self.engine.backing();
        let free = backing
            .open(known.key)
            .and_then(|file| backing.write_hold(&file))
            .is_ok_and(|hold| hold == WriteHold::Free);
        if free {
            self.inodes
                .nodes
                .with_open(node, known.key, |open| open.mapped = false);
        }
        !free
    }
}
