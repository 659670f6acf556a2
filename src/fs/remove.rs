//! Removing and renaming.
//!
//! A name that goes may be the last one of a file that shares blocks: the engine is told before,
//! and whatever holds the inode open for no reason lets go of it.

use super::Passthrough;
use super::error::{Doing, Result};
use super::types::{Name, NodeId};
use crate::sharing::{Change, FileKey};
use crate::sys::at::{self, Status};
use std::os::fd::{AsFd, BorrowedFd};

impl Passthrough {
    /// Removes a name of something that is not a directory.
    ///
    /// # Errors
    /// As unlink(2) says.
    pub fn unlink(&self, parent: NodeId, name: &Name) -> Result<()> {
        let dir = self.inodes.fd(parent)?;
        self.without_name(parent, dir.as_fd(), name, || {
            at::unlink(dir.as_fd(), name.as_c_str(), false).doing("remove a file")
        })
    }

    /// Removes a directory.
    ///
    /// # Errors
    /// As rmdir(2) says.
    pub fn rmdir(&self, parent: NodeId, name: &Name) -> Result<()> {
        let dir = self.inodes.fd(parent)?;
        self.without_name(parent, dir.as_fd(), name, || {
            at::unlink(dir.as_fd(), name.as_c_str(), true).doing("remove a directory")
        })
    }

    /// Renames, with the flags of renameat2(2).
    ///
    /// # Errors
    /// As renameat2(2) says.
    pub fn rename(&self, from: (NodeId, &Name), to: (NodeId, &Name), flags: u32) -> Result<()> {
        let from_dir = self.inodes.fd(from.0)?;
        let to_dir = self.inodes.fd(to.0)?;
        // Only what can be found by name alone must be known by its new name.
        let by_name = !self.inodes.by_handle(self.inodes.key(from.0)?);
        let moved = by_name
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
            let other = by_name
                .then(|| self.inodes.identify(to_dir.as_fd(), to.1.as_c_str()))
                .transpose()?;
            rename()?;
            if let Some((_, other)) = other {
                self.inodes.moved(from.0, from.1.as_c_str(), other);
            }
        } else if flags & libc::RENAME_NOREPLACE != 0 {
            rename()?;
        } else {
            self.without_name(to.0, to_dir.as_fd(), to.1, rename)?;
        }
        if let Some((_, moved)) = moved {
            self.inodes.moved(to.0, to.1.as_c_str(), moved);
        }
        Ok(())
    }

    /// Does what takes `name` from its inode, if there is one.
    fn without_name(
        &self,
        parent: NodeId,
        dir: BorrowedFd<'_>,
        name: &Name,
        act: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let (status, key) = match self.inodes.identify(dir, name.as_c_str()) {
            Ok(found) => found,
            Err(error) if error.errno() == libc::ENOENT => return act(),
            Err(error) => return Err(error),
        };
        let last = status.is_dir() || status.links <= 1;
        let _change = status
            .is_file()
            .then(|| self.engine.begin(Change::Unname { file: key, last }));
        self.inodes.losing_name(parent, name.as_c_str(), key);
        if last {
            self.unpin(self.inodes.node_of(key));
        }
        act()?;
        self.inodes.lost_name(parent, name.as_c_str(), key);
        if last {
            self.mark_unnamed(&status, key);
        }
        Ok(())
    }

    /// Notes that the inode lives only as long as it is open.
    fn mark_unnamed(&self, status: &Status, key: FileKey) {
        if !status.is_file() {
            return;
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
    }
}
