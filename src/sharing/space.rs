//! What the state holds of a device and of an address space.

use super::backing::SharingUnit;
use super::index::ExtentIndex;
use super::journal::Journal;
use super::key::FileKey;
use super::table::{KeyMap, Slot};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Which address space.
pub(crate) type SpaceId = u16;

/// What is known of a device.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    /// Its address space.
    pub(crate) space: SpaceId,
    /// What sharing is a property of.
    pub(crate) unit: SharingUnit,
    /// How often what was dirty or half removed before had to be settled, and how often it was.
    pub(crate) barriers_due: u64,
    pub(crate) barriers_done: u64,
    /// Removals can be carried out at will.
    pub(crate) can_flush: bool,
    /// Removals seen, and of these carried out.
    pub(crate) removals: u64,
    pub(crate) removed: u64,
    /// The files of those that were not, with their numbers.
    pub(crate) removed_files: VecDeque<(u64, FileKey)>,
}

impl Device {
    /// Of more than so many only the last are looked at one by one: by then the others have had
    /// more time than any removal waits.
    const LOOKED_AT: usize = 1 << 16;

    /// The removal seen last was that of a file.
    pub(crate) fn note_removed(&mut self, file: FileKey) {
        if self.removed_files.len() >= Self::LOOKED_AT {
            self.removed_files.pop_front();
        }
        self.removed_files.push_back((self.removals, file));
    }

    /// Removals up to this number were carried out.
    pub(crate) fn carried_out(&mut self, number: u64) {
        self.removed = self.removed.max(number);
        while self
            .removed_files
            .front()
            .is_some_and(|(removal, _)| *removal <= number)
        {
            self.removed_files.pop_front();
        }
    }
}

/// An address space: files in different ones cannot share.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// The covers of all files.
    pub(crate) index: ExtentIndex,
    /// The covers of active files.
    pub(crate) hot: ExtentIndex,
    /// Active files with unknown covers.
    pub(crate) wild: BTreeSet<Slot>,
    /// Records with shared bytes are valid from this epoch on.
    pub(crate) shared_epoch: u32,
    /// Records are valid from this epoch on.
    pub(crate) whole_epoch: u32,
    /// Valid records with shared bytes.
    pub(crate) shared_records: usize,
    /// Valid records.
    pub(crate) records: usize,
    pub(crate) journal: Journal,
    /// Questions being worked on.
    pub(crate) readers: usize,
    /// Files that somebody else changed, whose maps were not looked at since.
    pub(crate) foreign: Vec<FileKey>,
    /// Files of which somebody else changed attributes, the number of names perhaps, and how often
    /// since they were looked at.
    pub(crate) renamed: KeyMap<FileKey, u32>,
    /// Files with evidence of what they shared.
    pub(crate) evidenced: BTreeSet<Slot>,
    /// When a file was removed last whose removal can neither be awaited nor carried out.
    pub(crate) doubt: Option<Duration>,
}

impl Space {
    /// Whether somebody else changed files that were not looked at since.
    pub(crate) fn awaits_looks(&self) -> bool {
        !(self.foreign.is_empty() && self.renamed.is_empty())
    }
}
