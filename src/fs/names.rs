//! Telling the totals of directories of changes of names.
//!
//! Between the two words of a guard a reading of the directory counts for nothing. The second one
//! is said before the reply: the kernel lets one change of a directory begin only when the one
//! before was answered, so changes are told in their order.

use super::Passthrough;
use super::backing::DiskBacking;
use super::error::Result;
use super::types::NodeId;
use crate::sharing::tree::{Child, NameChange};
use crate::sharing::{FileKey, NamesGuard};
use crate::sys::at::Status;
use std::io;

/// What an inode with this status and identity is to the totals.
pub(super) fn child_of(&(ref status, key): &(Status, FileKey)) -> Child {
    if status.is_file() {
        Child::File(key)
    } else if status.is_dir() {
        Child::Directory(key)
    } else {
        Child::Other
    }
}

/// A change of names under way in one directory or two.
pub(super) struct Naming<'a> {
    guard: NamesGuard<'a, DiskBacking>,
    from: FileKey,
    to: FileKey,
}

impl Passthrough {
    /// Names are about to change in a directory.
    pub(super) fn naming(&self, parent: NodeId) -> Result<Naming<'_>> {
        self.renaming(parent, parent)
    }

    /// Names are about to go from one directory to another.
    pub(super) fn renaming(&self, from: NodeId, to: NodeId) -> Result<Naming<'_>> {
        let (from, to) = (self.inodes.key(from)?, self.inodes.key(to)?);
        let guard = if from == to {
            self.directories.begin_names(&[from])
        } else {
            self.directories.begin_names(&[from, to])
        };
        Ok(Naming { guard, from, to })
    }
}

impl Naming<'_> {
    /// A name appeared.
    pub(super) fn added(self, child: Child) {
        let directory = self.to;
        self.guard.done(&[NameChange::Added { directory, child }]);
    }

    /// A name went.
    pub(super) fn removed(self, child: Child) {
        let directory = self.from;
        self.guard.done(&[NameChange::Removed { directory, child }]);
    }

    /// A name moved, perhaps in the place of another.
    pub(super) fn moved(self, child: Child, replaced: Option<Child>) {
        let (from, to) = (self.from, self.to);
        let moved = NameChange::Moved { from, to, child };
        match replaced {
            // Two names of one file: rename does nothing then. Or something became another thing
            // meanwhile. Better look.
            Some(other) if other == child => drop(self.guard),
            Some(other) => self.guard.done(&[
                NameChange::Removed {
                    directory: to,
                    child: other,
                },
                moved,
            ]),
            None => self.guard.done(&[moved]),
        }
    }

    /// Two names took each other's place.
    pub(super) fn exchanged(self, child: Child, other: Child) {
        let (from, to) = (self.from, self.to);
        self.guard.done(&[
            NameChange::Moved { from, to, child },
            NameChange::Moved {
                from: to,
                to: from,
                child: other,
            },
        ]);
    }

    /// Itself, unless the system call failed: then nothing changed.
    pub(super) fn unless_failed<T>(self, result: &io::Result<T>) -> Option<Self> {
        if result.is_ok() {
            return Some(self);
        }
        self.failed();
        None
    }

    /// The system call failed.
    pub(super) fn failed(self) {
        self.guard.failed();
    }
}
