//! Records in the state: when one is current, how changes end them, and who is told.
//!
//! A change whose file's cover is known ends the records that overlap it. One whose cover is not
//! known begins a new epoch: records of older ones that it can concern are no longer current.

use super::cover::Cover;
use super::evidence::Credible;
use super::faults::Fault;
use super::flight::Want;
use super::key::FileKey;
use super::space::SpaceId;
use super::state::State;
use super::table::{Record, Slot};
use crate::extent::ShareSummary;

impl State {
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
        if active || space.awaits_looks() {
            return false;
        }
        only_self || !space.hot.overlaps(&cover, None)
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
        if self.record(slot).is_none() && self.unstore(slot) {
            // Nobody was told yet that what an epoch ended is no longer right.
            self.enqueue(slot);
        }
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
            for spoiled in self.surveys.values_mut() {
                spoiled.push(file);
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
                for id in self.space_ids() {
                    let space = self.space(id);
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
                self.set_cover(slot, Cover::Unknown, Credible::NEVER);
            } else {
                self.forget(slot);
            }
        }
    }
}
