//! The table of files: what is remembered of each, and which was used last.
//!
//! Files that are active are pinned: they are not in the order of use and are never evicted.

use super::cover::Cover;
use super::evidence::Credible;
use super::key::FileKey;
use crate::extent::{Bytes, ShareSummary};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Where a file is in the table. Reused after the file was removed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(pub(super) u32);

impl Slot {
    const NONE: Self = Self(u32::MAX);
}

/// The numbers of a file as they were found, and when. Kept small: a million files have one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    bytes: u64,
    shared_bytes: u64,
    extents: u32,
    shared_extents: u32,
    /// The epoch it was stored in.
    pub(crate) epoch: u32,
    /// Seconds since the engine was made, rounded down.
    pub(crate) at: u32,
}

impl Record {
    /// A record of these numbers; `None` when they do not fit.
    pub(crate) fn new(numbers: ShareSummary, epoch: u32, at: u32) -> Option<Self> {
        Some(Self {
            bytes: numbers.bytes.0,
            shared_bytes: numbers.shared_bytes.0,
            extents: numbers.extents.try_into().ok()?,
            shared_extents: numbers.shared_extents.try_into().ok()?,
            epoch,
            at,
        })
    }

    /// The numbers.
    pub(crate) fn numbers(&self) -> ShareSummary {
        ShareSummary {
            bytes: Bytes(self.bytes),
            shared_bytes: Bytes(self.shared_bytes),
            extents: self.extents.into(),
            shared_extents: self.shared_extents.into(),
        }
    }

    /// Whether any byte is shared.
    pub(crate) fn shares(&self) -> bool {
        self.shared_extents > 0
    }
}

/// What is remembered of one file.
#[derive(Debug)]
pub(crate) struct FileEntry {
    /// Which file.
    pub(crate) key: FileKey,
    /// Its numbers, where they are known.
    pub(crate) record: Option<Record>,
    /// What it shares.
    pub(crate) cover: Cover,
    /// From when on the cover is evidence of what it shared before a foreign change.
    pub(crate) credible: Credible,
    /// It is among the active files.
    pub(crate) active: bool,
    /// It waits in the queue of files whose numbers changed.
    pub(crate) queued: bool,
    newer: Slot,
    older: Slot,
}

impl FileEntry {
    /// What an entry takes in memory, its place in the map of keys included.
    pub(crate) const BYTES: usize = size_of::<Option<Self>>() + 40;
}

// A file of one shared extent takes at most 200 bytes.
const _: () = assert!(FileEntry::BYTES + super::index::ExtentIndex::BYTES_PER_RANGE <= 200);

/// Hashes the few integers of a key by multiplying and folding.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyHasher(u64);

impl KeyHasher {
    fn add(&mut self, value: u64) {
        let wide = u128::from(self.0 ^ value ^ 0x9e37_79b9_7f4a_7c15)
            .wrapping_mul(0xd6e8_feb8_6659_fd93_a076_1d64_78bd_642f);
        self.0 = (wide as u64) ^ ((wide >> 64) as u64);
    }
}

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.add(u64::from(*byte));
        }
    }
    fn write_u8(&mut self, value: u8) {
        self.add(value.into());
    }
    fn write_u16(&mut self, value: u16) {
        self.add(value.into());
    }
    fn write_u32(&mut self, value: u32) {
        self.add(value.into());
    }
    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }
    fn write_isize(&mut self, value: isize) {
        self.add(value as u64);
    }
}

/// A map with keys of a few integers.
pub(crate) type KeyMap<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;

/// Every file of which something is remembered.
#[derive(Debug)]
pub(crate) struct FileTable {
    slots: KeyMap<FileKey, Slot>,
    entries: Vec<Option<FileEntry>>,
    free: Vec<Slot>,
    newest: Slot,
    oldest: Slot,
}

impl Default for FileTable {
    fn default() -> Self {
        Self {
            slots: KeyMap::default(),
            entries: Vec::new(),
            free: Vec::new(),
            newest: Slot::NONE,
            oldest: Slot::NONE,
        }
    }
}

impl FileTable {
    /// Number of files.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The file's slot.
    pub(crate) fn find(&self, key: FileKey) -> Option<Slot> {
        self.slots.get(&key).copied()
    }

    /// The entry in a slot.
    pub(crate) fn get(&self, slot: Slot) -> Option<&FileEntry> {
        self.entries.get(slot.0 as usize)?.as_ref()
    }

    /// The entry in a slot.
    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut FileEntry> {
        self.entries.get_mut(slot.0 as usize)?.as_mut()
    }

    /// Adds a file of which nothing is known, as the one used last.
    pub(crate) fn insert(&mut self, key: FileKey) -> Slot {
        let entry = Some(FileEntry {
            key,
            record: None,
            cover: Cover::Unknown,
            credible: Credible::NEVER,
            active: false,
            queued: false,
            newer: Slot::NONE,
            older: Slot::NONE,
        });
        let slot = match self.free.pop() {
            Some(slot) => {
                if let Some(place) = self.entries.get_mut(slot.0 as usize) {
                    *place = entry;
                }
                slot
            }
            None => {
                self.entries.push(entry);
                Slot((self.entries.len() - 1) as u32)
            }
        };
        self.slots.insert(key, slot);
        self.link(slot);
        slot
    }

    /// Takes a file out.
    pub(crate) fn remove(&mut self, slot: Slot) -> Option<FileEntry> {
        if self.get(slot).is_some_and(|entry| !entry.active) {
            self.unlink(slot);
        }
        let entry = self.entries.get_mut(slot.0 as usize)?.take()?;
        self.slots.remove(&entry.key);
        self.free.push(slot);
        Some(entry)
    }

    /// Makes it the one used last.
    pub(crate) fn touch(&mut self, slot: Slot) {
        if self.newest != slot && self.get(slot).is_some_and(|entry| !entry.active) {
            self.unlink(slot);
            self.link(slot);
        }
    }

    /// Pins it (active) or gives it back to the order of use.
    pub(crate) fn set_active(&mut self, slot: Slot, active: bool) {
        if self.get(slot).is_none_or(|entry| entry.active == active) {
            return;
        }
        if active {
            self.unlink(slot);
        }
        if let Some(entry) = self.get_mut(slot) {
            entry.active = active;
        }
        if !active {
            self.link(slot);
        }
    }

    /// The file that was not used for the longest time.
    pub(crate) fn oldest(&self) -> Option<Slot> {
        (self.oldest != Slot::NONE).then_some(self.oldest)
    }

    /// Every slot in use.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        (0u32..)
            .zip(&self.entries)
            .filter(|(_, entry)| entry.is_some())
            .map(|(at, _)| Slot(at))
    }

    fn link(&mut self, slot: Slot) {
        let next = std::mem::replace(&mut self.newest, slot);
        if let Some(entry) = self.get_mut(slot) {
            entry.newer = Slot::NONE;
            entry.older = next;
        }
        match self.get_mut(next) {
            Some(entry) => entry.newer = slot,
            None => self.oldest = slot,
        }
    }

    fn unlink(&mut self, slot: Slot) {
        let Some((newer, older)) = self.get(slot).map(|entry| (entry.newer, entry.older)) else {
            return;
        };
        match self.get_mut(newer) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
        match self.get_mut(older) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sharing::key::DeviceIndex;

    fn key(ino: u64) -> FileKey {
        FileKey {
            ino,
            generation: 0,
            device: DeviceIndex(0),
        }
    }

    #[test]
    fn the_least_recently_used_is_found_first_and_active_files_never() {
        let mut table = FileTable::default();
        let slots: Vec<_> = (0..4).map(|ino| table.insert(key(ino))).collect();
        table.touch(slots[0]);
        table.set_active(slots[1], true);
        assert_eq!(table.oldest(), Some(slots[2]));
        table.remove(slots[2]);
        assert_eq!(table.oldest(), Some(slots[3]));
        table.remove(slots[3]);
        table.remove(slots[0]);
        assert_eq!(table.oldest(), None);
        table.set_active(slots[1], false);
        assert_eq!(table.oldest(), Some(slots[1]));
        assert_eq!(table.insert(key(9)), slots[0]);
        assert_eq!(table.len(), 2);
    }
}
