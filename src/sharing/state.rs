//! The state of the engine: pure bookkeeping, under one lock, without any I/O.
//!
//! Invariants:
//! - a file's cover is in the index of its address space; while the file is active it is in the
//!   index of active files too, or, when its cover is not known, among the wild files;
//! - a record is fresh only while neither its file nor any file whose cover overlaps is active:
//!   whatever such a file may do unseen, the record is settled again before it is believed;
//! - a record with shared bytes is stored only while no file of its address space is wild.

use super::active::Active;
use super::backing::Stamp;
use super::cover::Cover;
use super::evidence::Credible;
use super::faults::Faults;
use super::flight::{Flight, Want};
use super::index::ExtentIndex;
use super::journal::Moment;
use super::key::{DeviceIndex, FileKey};
use super::space::{Device, Space, SpaceId};
use super::stats::Stats;
use super::table::{FileEntry, FileTable, KeyMap, Slot};
use super::unsettled::Queue;
use crate::extent::Bytes;

/// See the module.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) table: FileTable,
    pub(crate) actives: KeyMap<u32, Active>,
    pub(crate) flights: KeyMap<(FileKey, Want), Flight>,
    /// Surveys that are reading, by number, with the files that changed since they began.
    pub(crate) surveys: KeyMap<u64, Vec<FileKey>>,
    /// Number of surveys so far.
    pub(crate) surveys_begun: u64,
    devices: Vec<Option<Device>>,
    spaces: Vec<Space>,
    pub(crate) epoch: u32,
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
            surveys: KeyMap::default(),
            surveys_begun: 0,
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

    /// Whether removals were seen that were not carried out yet: what a map shows as shared then
    /// may not be.
    pub(crate) fn awaits_removals(&self, space: SpaceId) -> bool {
        self.devices_of(space)
            .any(|(_, device)| device.removals > device.removed)
    }

    /// Maps of the space are about to be read.
    pub(crate) fn begin_reading(&mut self, id: SpaceId) -> Moment {
        let space = self.space(id);
        space.readers += 1;
        space.journal.now()
    }

    /// Ends it; whether what was read with this cover may be out of date.
    pub(crate) fn end_reading(
        &mut self,
        id: SpaceId,
        start: Moment,
        cover: Option<&Cover>,
    ) -> bool {
        let space = self.space(id);
        space.readers = space.readers.saturating_sub(1);
        cover.is_none_or(|cover| space.journal.concerns(start, cover))
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

    /// Whether the file may share within this cover: its own overlaps, or is not known.
    pub(crate) fn covers(&self, file: FileKey, cover: &Cover) -> bool {
        self.entry(file)
            .is_some_and(|entry| !entry.cover.is_known() || entry.cover.overlaps(cover))
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
        space.evidenced.remove(&slot);
        self.table.set_active(slot, false);
        let worthless = self
            .table
            .get(slot)
            .is_some_and(|entry| entry.record.is_none() && !entry.cover.is_known());
        if worthless {
            self.table.remove(slot);
        }
    }

    /// Replaces what is known of the file's shared space, which is evidence from `credible` on.
    /// Does not invalidate anything.
    pub(crate) fn set_cover(&mut self, slot: Slot, cover: Cover, credible: Credible) {
        let Some(entry) = self.table.get_mut(slot) else {
            return;
        };
        if entry.cover == cover {
            // What was known already is the better evidence, unless it was found to be none.
            if entry.credible == Credible::NEVER {
                entry.credible = credible;
            }
            return;
        }
        entry.credible = credible;
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
    pub(crate) fn learn_cover(&mut self, slot: Slot, cover: Cover, credible: Credible) {
        let old = self.cover(slot);
        let active = self.table.get(slot).is_some_and(|entry| entry.active);
        if active && old.is_known() && !cover.contains(&old) {
            self.lose(slot, &old);
        }
        self.set_cover(slot, cover, credible);
    }

    /// Forgets a file altogether, what keeps it active included.
    pub(crate) fn forget(&mut self, slot: Slot) {
        self.drop_record(slot);
        let cover = self.cover(slot);
        if let Some(file) = self.table.get(slot).map(|entry| entry.key) {
            self.stamps.remove(&file);
            self.set_cover(slot, Cover::Unknown, Credible::NEVER);
            self.actives.remove(&slot.0);
            let space = self.space_of(file);
            let space = self.space(space);
            space.hot.remove(slot, &cover);
            space.wild.remove(&slot);
            space.evidenced.remove(&slot);
            self.table.remove(slot);
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

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
