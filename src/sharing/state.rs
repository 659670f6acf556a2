//! The state of the engine: pure bookkeeping, under one lock, without any I/O.
//!
//! Invariants:
//! - a file's cover is in the index of its address space; while the file is active it is in the
//!   index of active files too, or, when its cover is not known, among the wild files;
//! - a record is fresh only while neither its file nor any file whose cover overlaps is active:
//!   whatever such a file may do unseen, the record is settled again before it is believed;
//! - a record with shared bytes is stored only while no file of its address space is wild.

use super::active::Active;
use super::backing::{SharingUnit, Stamp};
use super::cover::Cover;
use super::faults::{Fault, Faults};
use super::flight::{Flight, Want};
use super::index::ExtentIndex;
use super::journal::Journal;
use super::key::{DeviceIndex, FileKey};
use super::stats::Stats;
use super::table::{FileEntry, FileTable, KeyMap, Record, Slot};
use super::unsettled::Queue;
use crate::extent::{Bytes, ShareSummary};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

/// Which address space.
pub(crate) type SpaceId = u16;

/// What is known of a device.
#[derive(Clone, Copy, Debug)]
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
    shared_epoch: u32,
    /// Records are valid from this epoch on.
    whole_epoch: u32,
    /// Valid records with shared bytes.
    pub(crate) shared_records: usize,
    /// Valid records.
    records: usize,
    pub(crate) journal: Journal,
    /// Questions being worked on.
    pub(crate) readers: usize,
    /// Files that somebody else changed, whose maps were not looked at since.
    pub(crate) foreign: Vec<FileKey>,
    /// When a file was removed last whose removal can neither be awaited nor carried out.
    pub(crate) doubt: Option<Duration>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) table: FileTable,
    pub(crate) actives: KeyMap<u32, Active>,
    pub(crate) flights: KeyMap<(FileKey, Want), Flight>,
    /// Files that a survey is reading, and whether they changed since.
    pub(crate) surveyed: KeyMap<FileKey, bool>,
    devices: Vec<Option<Device>>,
    spaces: Vec<Space>,
    epoch: u32,
    cover_bytes: usize,
    cache_size: Bytes,
    /// Stamps of records, where foreign changes are not reported.
    pub(crate) stamps: KeyMap<FileKey, Stamp>,
    pub(crate) queue: Option<Queue>,
    pub(crate) stats: Stats,
    /// A sweep over the active files is under way.
    pub(crate) sweeping: bool,
    /// Foreign changes are reported.
    pub(crate) watches: bool,
    pub(crate) faults: Faults,
}

impl State {
    pub(crate) fn new(cache_size: Bytes, watches: bool, faults: Faults) -> Self {
        Self {
            table: FileTable::default(),
            actives: KeyMap::default(),
            flights: KeyMap::default(),
            surveyed: KeyMap::default(),
            devices: Vec::new(),
            spaces: Vec::new(),
            epoch: 0,
            cover_bytes: 0,
            cache_size,
            stamps: KeyMap::default(),
            queue: None,
            stats: Stats::default(),
            sweeping: false,
            watches,
            faults,
        }
    }

    // Devices and address spaces.

    pub(crate) fn device(&self, device: DeviceIndex) -> Option<&Device> {
        self.devices.get(usize::from(device.0))?.as_ref()
    }

    pub(crate) fn device_mut(&mut self, device: DeviceIndex) -> Option<&mut Device> {
        self.devices.get_mut(usize::from(device.0))?.as_mut()
    }

    pub(crate) fn add_device(&mut self, index: DeviceIndex, device: Device) {
        let at = usize::from(index.0);
        if self.devices.len() <= at {
            self.devices.resize(at + 1, None);
        }
        if let Some(place @ None) = self.devices.get_mut(at) {
            *place = Some(device);
        }
    }

    /// The devices of an address space.
    pub(crate) fn devices_of(
        &self,
        space: SpaceId,
    ) -> impl Iterator<Item = (DeviceIndex, &Device)> {
        (0u16..)
            .zip(&self.devices)
            .filter_map(|(at, device)| Some((DeviceIndex(at), device.as_ref()?)))
            .filter(move |(_, device)| device.space == space)
    }

    pub(crate) fn space_of(&self, file: FileKey) -> SpaceId {
        self.device(file.device).map_or(0, |device| device.space)
    }

    pub(crate) fn space(&mut self, id: SpaceId) -> &mut Space {
        let at = usize::from(id);
        if self.spaces.len() <= at {
            self.spaces.resize_with(at + 1, Space::default);
        }
        // The line above made room for it; the first space exists at least.
        let at = at.min(self.spaces.len() - 1);
        #[allow(clippy::indexing_slicing)]
        &mut self.spaces[at]
    }

    pub(crate) fn space_ids(&self) -> impl Iterator<Item = SpaceId> + use<> {
        (0u16..).take(self.spaces.len())
    }

    // Files.

    /// The file's slot; makes one where there is none.
    pub(crate) fn ensure(&mut self, file: FileKey) -> Slot {
        match self.table.find(file) {
            Some(slot) => slot,
            None => self.table.insert(file),
        }
    }

    pub(crate) fn entry(&self, file: FileKey) -> Option<&FileEntry> {
        self.table.get(self.table.find(file)?)
    }

    pub(crate) fn cover(&self, slot: Slot) -> Cover {
        self.table
            .get(slot)
            .map_or(Cover::Unknown, |entry| entry.cover.clone())
    }

    pub(crate) fn active(&mut self, file: FileKey) -> Option<&mut Active> {
        let slot = self.table.find(file)?;
        self.actives.get_mut(&slot.0)
    }

    /// The file as an active one.
    pub(crate) fn activate(&mut self, slot: Slot) -> &mut Active {
        if let Some(entry) = self.table.get(slot)
            && !entry.active
        {
            let cover = entry.cover.clone();
            let space = self.space_of(entry.key);
            self.table.set_active(slot, true);
            let space_state = self.space(space);
            if cover.is_known() {
                space_state.hot.insert(slot, &cover);
            } else {
                space_state.wild.insert(slot);
            }
            if self.queue.is_some() {
                self.enqueue(slot);
                self.enqueue_sharers(space, &cover);
            }
        }
        self.actives.entry(slot.0).or_default()
    }

    /// Makes an active file an ordinary one if nothing keeps it active.
    pub(crate) fn calm(&mut self, file: FileKey) {
        let Some(slot) = self.table.find(file) else {
            return;
        };
        if !self.actives.get(&slot.0).is_some_and(Active::is_idle) {
            return;
        }
        self.actives.remove(&slot.0);
        let cover = self.cover(slot);
        let space = self.space_of(file);
        let space = self.space(space);
        space.hot.remove(slot, &cover);
        space.wild.remove(&slot);
        self.table.set_active(slot, false);
        let worthless = self
            .table
            .get(slot)
            .is_some_and(|entry| entry.record.is_none() && !entry.cover.is_known());
        if worthless {
            self.table.remove(slot);
        }
    }

    /// Replaces what is known of the file's shared space. Does not invalidate anything.
    pub(crate) fn set_cover(&mut self, slot: Slot, cover: Cover) {
        let Some(entry) = self.table.get_mut(slot) else {
            return;
        };
        if entry.cover == cover {
            return;
        }
        let (key, active) = (entry.key, entry.active);
        let old = std::mem::replace(&mut entry.cover, cover.clone());
        self.cover_bytes = (self.cover_bytes + cover.heap_bytes()).saturating_sub(old.heap_bytes());
        let id = self.space_of(key);
        let space = self.space(id);
        space.index.remove(slot, &old);
        space.index.insert(slot, &cover);
        if active {
            if self.queue.is_some() {
                // From now on their records are not believed without settling this one.
                self.enqueue_sharers(id, &cover);
            }
            let space = self.space(id);
            space.hot.remove(slot, &old);
            space.hot.insert(slot, &cover);
            if cover.is_known() {
                space.wild.remove(&slot);
            } else {
                space.wild.insert(slot);
            }
        }
    }

    /// Takes in a cover that was read from a map of the file. What an active file no longer
    /// covers it may have lost unseen since it was last settled, and others with it.
    pub(crate) fn learn_cover(&mut self, slot: Slot, cover: Cover) {
        let old = self.cover(slot);
        let active = self.table.get(slot).is_some_and(|entry| entry.active);
        if active && old.is_known() && !cover.contains(&old) {
            self.lose(slot, &old);
        }
        self.set_cover(slot, cover);
    }

    /// Forgets a file altogether, what keeps it active included.
    pub(crate) fn forget(&mut self, slot: Slot) {
        self.drop_record(slot);
        let cover = self.cover(slot);
        if let Some(file) = self.table.get(slot).map(|entry| entry.key) {
            self.stamps.remove(&file);
            self.set_cover(slot, Cover::Unknown);
            self.actives.remove(&slot.0);
            let space = self.space_of(file);
            let space = self.space(space);
            space.hot.remove(slot, &cover);
            space.wild.remove(&slot);
            self.table.remove(slot);
        }
    }

    // Records.

    fn is_current(&mut self, file: FileKey, record: &Record) -> bool {
        let space = self.space_of(file);
        let space = self.space(space);
        record.epoch >= space.whole_epoch
            && (!record.shares() || record.epoch >= space.shared_epoch)
    }

    /// The file's record, if no change that was seen made it invalid. Files that are active may
    /// have done so unseen.
    pub(crate) fn record(&mut self, slot: Slot) -> Option<Record> {
        let entry = self.table.get(slot)?;
        let (file, record) = (entry.key, entry.record?);
        self.is_current(file, &record).then_some(record)
    }

    /// Whether nothing active can have changed the file's map since it was last settled.
    pub(crate) fn is_calm(&mut self, slot: Slot) -> bool {
        let Some(entry) = self.table.get(slot) else {
            return false;
        };
        if self.faults.has(Fault::CtimeOnly) {
            return true;
        }
        let only_self = self.faults.has(Fault::NoSharerInvalidation);
        let (file, active, cover) = (entry.key, entry.active, entry.cover.clone());
        let space = self.space_of(file);
        let space = self.space(space);
        if active || !space.foreign.is_empty() {
            return false;
        }
        let mut calm = true;
        if !space.hot.is_empty() && !only_self {
            space.hot.visit(&cover, |_| {
                calm = false;
                ControlFlow::Break(())
            });
        }
        calm
    }

    /// Active files whose covers overlap this one, and, where asked for, the wild ones.
    pub(crate) fn hot(&mut self, space: SpaceId, cover: &Cover, wild: bool) -> Vec<FileKey> {
        if cover.is_empty() {
            return Vec::new();
        }
        let space = self.space(space);
        let mut slots = space.hot.overlapping(cover);
        if wild {
            slots.extend(&space.wild);
        }
        slots
            .into_iter()
            .filter_map(|slot| Some(self.table.get(slot)?.key))
            .collect()
    }

    /// Stores the numbers of a file.
    pub(crate) fn store(&mut self, slot: Slot, numbers: ShareSummary, at: u32) {
        self.unstore(slot);
        let Some(record) = Record::new(numbers, self.epoch, at) else {
            return;
        };
        let Some(entry) = self.table.get_mut(slot) else {
            return;
        };
        entry.record = Some(record);
        let (file, cover) = (entry.key, entry.cover.clone());
        self.stats.records += 1;
        let space = self.space_of(file);
        let space = self.space(space);
        space.records += 1;
        space.shared_records += usize::from(record.shares());
        for sharer in space.hot.overlapping(&cover) {
            if let Some(active) = self.actives.get_mut(&sharer.0) {
                active.sharers_invalid = false;
            }
        }
        self.table.touch(slot);
        self.evict();
    }

    /// Takes the record out and the counts right; whether there was one.
    fn unstore(&mut self, slot: Slot) -> bool {
        let Some(entry) = self.table.get_mut(slot) else {
            return false;
        };
        let (file, Some(record)) = (entry.key, entry.record.take()) else {
            return false;
        };
        self.stats.records = self.stats.records.saturating_sub(1);
        if self.is_current(file, &record) {
            let space = self.space_of(file);
            let space = self.space(space);
            space.records = space.records.saturating_sub(1);
            if record.shares() {
                space.shared_records = space.shared_records.saturating_sub(1);
            }
        }
        true
    }

    /// The file's numbers are no longer known; a question being worked on starts anew.
    pub(crate) fn drop_record(&mut self, slot: Slot) {
        if let Some(file) = self.table.get(slot).map(|entry| entry.key) {
            if let Some(spoiled) = self.surveyed.get_mut(&file) {
                *spoiled = true;
            }
            for want in Want::ALL {
                if self.flights.is_empty() {
                    break;
                }
                if let Some(flight) = self.flights.get_mut(&(file, want)) {
                    flight.spoiled = true;
                }
            }
        }
        if self.unstore(slot) {
            self.stats.invalidations += 1;
            self.enqueue(slot);
        }
    }

    /// Sharing may have ended anywhere within `cover`, which is the file's: every other file
    /// that shares there has to be mapped again.
    pub(crate) fn lose(&mut self, slot: Slot, cover: &Cover) {
        let Some(file) = self.table.get(slot).map(|entry| entry.key) else {
            return;
        };
        self.lose_in(self.space_of(file), cover);
        if let Some(active) = self.actives.get_mut(&slot.0) {
            active.sharers_invalid = true;
        }
    }

    /// Like [`State::lose`], of whichever file.
    pub(crate) fn lose_in(&mut self, space: SpaceId, cover: &Cover) {
        if self.faults.has(Fault::NoSharerInvalidation) || self.faults.has(Fault::CtimeOnly) {
            return;
        }
        let space = self.space(space);
        let readers = space.readers > 0;
        space.journal.note(cover, readers);
        for sharer in space.index.overlapping(cover) {
            self.drop_record(sharer);
        }
    }

    // Epochs.

    fn next_epoch(&mut self) -> u32 {
        self.stats.epochs += 1;
        match self.epoch.checked_add(1) {
            Some(epoch) => self.epoch = epoch,
            None => {
                // The count starts again: no record of the old count may be left.
                for slot in self.table.slots().collect::<Vec<_>>() {
                    self.drop_record(slot);
                }
                for space in &mut self.spaces {
                    (space.shared_epoch, space.whole_epoch) = (0, 0);
                }
                self.epoch = 0;
            }
        }
        if let Some(queue) = &mut self.queue {
            queue.epoch_ended = true;
        }
        self.epoch
    }

    /// Sharing may have ended anywhere: a file changed whose cover from before is not known.
    pub(crate) fn lose_all_shared(&mut self, id: SpaceId) {
        if self.faults.has(Fault::NoSharerInvalidation) || self.faults.has(Fault::CtimeOnly) {
            return;
        }
        let space = self.space(id);
        let readers = space.readers > 0;
        space.journal.note(&Cover::Unknown, readers);
        if space.shared_records > 0 {
            let epoch = self.next_epoch();
            let space = self.space(id);
            space.records -= space.shared_records.min(space.records);
            space.shared_records = 0;
            space.shared_epoch = epoch;
        }
    }

    /// Sharing may have begun anywhere: what was exclusive may be shared now.
    pub(crate) fn lose_all(&mut self, id: SpaceId) {
        let space = self.space(id);
        space.journal.note_everything();
        if space.records > 0 {
            let epoch = self.next_epoch();
            let space = self.space(id);
            (space.records, space.shared_records) = (0, 0);
            (space.whole_epoch, space.shared_epoch) = (epoch, epoch);
        }
    }

    /// Nothing is known any more of the files of a space, covers included.
    pub(crate) fn forget_space(&mut self, id: SpaceId) {
        self.lose_all(id);
        for slot in self.table.slots().collect::<Vec<_>>() {
            let Some(entry) = self.table.get(slot) else {
                continue;
            };
            let (file, active) = (entry.key, entry.active);
            if self.space_of(file) != id {
                continue;
            }
            if active {
                self.drop_record(slot);
                self.set_cover(slot, Cover::Unknown);
            } else {
                self.forget(slot);
            }
        }
    }

    // Memory.

    /// Bytes that the engine holds.
    pub(crate) fn memory(&self) -> usize {
        let ranges: usize = self
            .spaces
            .iter()
            .map(|space| space.index.len() + space.hot.len())
            .sum();
        self.table.len() * FileEntry::BYTES
            + ranges * ExtentIndex::BYTES_PER_RANGE
            + self.cover_bytes
            + self.actives.len() * size_of::<(u32, Active)>()
            + self.stamps.len() * size_of::<(FileKey, Stamp)>()
    }

    /// Drops what was not used for the longest time until the limit is kept. What is active
    /// stays.
    pub(crate) fn evict(&mut self) {
        let limit = usize::try_from(self.cache_size.0).unwrap_or(usize::MAX);
        while self.memory() > limit
            && let Some(slot) = self.table.oldest()
        {
            self.stats.evictions += 1;
            self.forget(slot);
        }
    }

    /// The counters, with present sizes.
    pub(crate) fn stats(&self) -> Stats {
        Stats {
            files: self.table.len() as u64,
            index_entries: self
                .spaces
                .iter()
                .map(|space| space.index.len() as u64)
                .sum(),
            active_files: self.actives.len() as u64,
            flights: self.spaces.iter().map(|space| space.readers as u64).sum(),
            memory_bytes: self.memory() as u64,
            ..self.stats
        }
    }
}
