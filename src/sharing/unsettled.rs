//! What can no longer be trusted of what was given out: collected for whoever keeps sums of it.
//!
//! Invariant: from the first time on that it was asked for, whatever a record given out as settled
//! (or a listing read) may no longer be is named here before the change that makes it so returns,
//! or, for changes behind the mount, before the next question.

use super::backing::Backing;
use super::cover::Cover;
use super::engine::Engine;
use super::key::FileKey;
use super::space::SpaceId;
use super::state::State;
use super::table::{KeyMap, Slot};

/// Something that has to be looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsettled {
    /// The numbers of a file, or of its names.
    File(FileKey),
    /// The entries of a directory.
    Listing(FileKey),
    /// Everything.
    Everything,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    files: Vec<FileKey>,
    /// Files and directories that events named; they need not be in the table.
    named: KeyMap<FileKey, bool>,
    /// An epoch ended: look through the whole table.
    pub(crate) epoch_ended: bool,
    everything: bool,
}

impl Queue {
    /// More than this waiting is the same as everything: nobody has asked for a long time.
    const LIMIT: usize = 1 << 20;

    fn is_full(&mut self) -> bool {
        if self.files.len() + self.named.len() >= Self::LIMIT {
            self.files = Vec::new();
            self.named = KeyMap::default();
            self.everything = true;
        }
        self.everything
    }
}

impl<B: Backing> Engine<B> {
    /// Hands over everything that can no longer be trusted since the last call. From the first
    /// call on it is collected.
    pub fn take_unsettled(&self, sink: &mut dyn FnMut(Unsettled)) {
        self.drain();
        let unsettled = self.state.lock().take_unsettled();
        unsettled.into_iter().for_each(sink);
    }
}

impl State {
    /// The file's numbers are no longer known, or may change unseen.
    pub(crate) fn enqueue(&mut self, slot: Slot) {
        if let Some(queue) = &mut self.queue
            && let Some(entry) = self.table.get_mut(slot)
            && !entry.queued
            && !queue.is_full()
        {
            entry.queued = true;
            queue.files.push(entry.key);
        }
    }

    /// The same of every file whose cover overlaps.
    pub(crate) fn enqueue_sharers(&mut self, space: SpaceId, cover: &Cover) {
        for sharer in self.space(space).index.overlapping(cover) {
            self.enqueue(sharer);
        }
    }

    /// Somebody else changed a file's names (or removed it), or a directory's entries.
    pub(crate) fn enqueue_named(&mut self, key: FileKey, is_listing: bool) {
        if let Some(queue) = &mut self.queue
            && !queue.is_full()
        {
            *queue.named.entry(key).or_default() |= is_listing;
        }
    }

    /// Anything may have changed.
    pub(crate) fn enqueue_everything(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.everything = true;
        }
    }

    pub(crate) fn take_unsettled(&mut self) -> Vec<Unsettled> {
        if self.queue.is_none() {
            self.queue = Some(Queue::default());
            return Vec::new();
        }
        if self.queue.as_ref().is_some_and(|queue| queue.epoch_ended) {
            for slot in self.table.slots().collect::<Vec<_>>() {
                let stored = self
                    .table
                    .get(slot)
                    .is_some_and(|entry| entry.record.is_some());
                if stored && self.record(slot).is_none() {
                    self.drop_record(slot);
                }
            }
        }
        let Some(queue) = self.queue.replace(Queue::default()) else {
            return Vec::new();
        };
        if queue.everything {
            for slot in self.table.slots().collect::<Vec<_>>() {
                self.unqueue(slot);
            }
            return vec![Unsettled::Everything];
        }
        for file in &queue.files {
            if let Some(slot) = self.table.find(*file) {
                self.unqueue(slot);
            }
        }
        let named = queue.named.into_iter().map(|(key, is_listing)| {
            if is_listing {
                Unsettled::Listing(key)
            } else {
                Unsettled::File(key)
            }
        });
        named
            .chain(queue.files.into_iter().map(Unsettled::File))
            .collect()
    }

    fn unqueue(&mut self, slot: Slot) {
        if let Some(entry) = self.table.get_mut(slot) {
            entry.queued = false;
        }
    }
}
