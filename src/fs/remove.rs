//! Removing and renaming.
//!
//! A name that goes may be the last one of a file that shares blocks: the engine is told before,
//! and whatever holds the inode open for no reason lets go of it.

use super::Passthrough;
use super::error::{Doing, Result};
use super::names::child_of;
use super::types::{Name, NodeId};
use crate::sharing::tree::Child;
use crate::sharing::{Change, FileKey};
use crate::sys::at::{self, Status};
use std::os::fd::{AsFd, BorrowedFd};

impl Passthrough {
    /// Removes a name of something that is not a directory.
    ///
    /// # Errors
    /// As unlink(2) says.
    pub fn unlink(&self, parent: NodeId, name: &Name) -> Result<()> {
        self.remove(parent, name, false)
    }

    /// Removes a directory.
    ///
    /// # Errors
    /// As rmdir(2) says.
    pub fn rmdir(&self, parent: NodeId, name: &Name) -> Result<()> {
        self.remove(parent, name, true)
    }

    fn remove(&self, parent: NodeId, name: &Name, directory: bool) -> Result<()> {
        let dir = self.inodes.fd(parent)?;
        let names = self.naming(parent)?;
        let removed = self.without_name(parent, dir.as_fd(), name, || {
            at::unlink(dir.as_fd(), name.as_c_str(), directory).doing("remove a name")
        });
        match removed {
            Ok(Some(child)) => names.removed(child),
            // Something was removed that was not seen before.
            Ok(None) => drop(names),
            Err(error) => {
                names.failed();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Renames, with the flags of renameat2(2).
    ///
    /// # Errors
    /// As renameat2(2) says.
    pub fn rename(&self, from: (NodeId, &Name), to: (NodeId, &Name), flags: u32) -> Result<()> {
        let from_dir = self.inodes.fd(from.0)?;
        let to_dir = self.inodes.fd(to.0)?;
        // What moves must be known only where it is found by name alone, or counted in totals.
        let by_name = !self.inodes.by_handle(self.inodes.key(from.0)?);
        let wanted = by_name || self.directories.in_use();
        let moved = wanted
            .then(|| self.inodes.identify(from_dir.as_fd(), from.1.as_c_str()))
            .transpose()?;
        let rename = || {
            at::rename(
                (from_dir.as_fd(), from.1.as_c_str()),
                (to_dir.as_fd(), to.1.as_c_str()),
                flags,
            )
            .doing("rename")
        };
        if flags & libc::RENAME_EXCHANGE != 0 {
            let other = wanted
                .then(|| self.inodes.identify(to_dir.as_fd(), to.1.as_c_str()))
                .transpose()?;
            let names = self.renaming(from.0, to.0)?;
            if let Err(error) = rename() {
                names.failed();
                return Err(error);
            }
            if let Some((_, other)) = other {
                self.inodes.moved(from.0, from.1.as_c_str(), other);
            }
            if let (Some(moved), Some(other)) = (&moved, &other) {
                names.exchanged(child_of(moved), child_of(other));
            }
        } else {
            let names = self.renaming(from.0, to.0)?;
            let renamed = if flags & libc::RENAME_NOREPLACE != 0 {
                rename().map(|()| None)
            } else {
                self.without_name(to.0, to_dir.as_fd(), to.1, rename)
            };
            match renamed {
                Ok(replaced) => {
                    if let Some(moved) = &moved {
                        names.moved(child_of(moved), replaced);
                    }
                }
                Err(error) => {
                    names.failed();
                    return Err(error);
                }
            }
        }
        if let Some((_, moved)) = moved {
            self.inodes.moved(to.0, to.1.as_c_str(), moved);
        }
        Ok(())
    }

    /// Does what takes `name` from its inode, if there is one; which that was.
    fn without_name(
        &self,
        parent: NodeId,
        dir: BorrowedFd<'_>,
        name: &Name,
        act: impl FnOnce() -> Result<()>,
    ) -> Result<Option<Child>> {
        let (status, key) = match self.inodes.identify(dir, name.as_c_str()) {
            Ok(found) => found,
            Err(error) if error.errno() == libc::ENOENT => return act().map(|()| None),
            Err(error) => return Err(error),
        };
        let last = status.is_dir() || status.links <= 1;
        let change = status
            .is_file()
            .then(|| self.engine.begin(Change::Unname { file: key, last }));
        self.inodes.losing_name(parent, name.as_c_str(), key);
        if last {
            self.unpin(self.inodes.node_of(key));
        }
        if let Err(error) = act() {
            self.inodes.kept_name(key);
            return Err(error);
        }
        self.inodes.lost_name(parent, name.as_c_str(), key);
        let lives_on = last && self.mark_unnamed(&status, key);
        drop(change);
        if last && status.is_file() && !lives_on {
            // Other requests may have it open at this very moment.
            self.engine.await_end(key);
        }
        Ok(Some(child_of(&(status, key))))
    }

    /// Notes that the inode lives only as long as it is open; whether it is.
    fn mark_unnamed(&self, status: &Status, key: FileKey) -> bool {
        if !status.is_file() {
            return false;
        }
        let node = self.inodes.node_of(key);
        let open =
            self.inodes.nodes.get(node).is_ok_and(|known| {
                known.key == key && known.open.is_some_and(|open| open.opens > 0)
            });
        if open {
            self.inodes
                .nodes
                .with_open(node, key, |open| open.unnamed = true);
        }
        open
    }
}
