//! Changes that others made behind the mount: what they make invalid.
//!
//! They are told after the fact. A changed file whose cover was known is treated like one that is
//! open for write unseen; one whose cover was not known may have ended sharing anywhere. And it
//! may have become a clone: then its source, which nobody names, is shared from now on, so the
//! maps of changed files are looked at before the next answer ([`Engine::look_at_foreign`]).

use super::backing::{Backing, Event};
use super::cover::Cover;
use super::engine::Engine;
use super::evidence::Credible;
use super::key::{DeviceIndex, FileKey};
use super::state::State;
use std::io;
use std::time::Duration;

/// Foreign changes on their way into the state.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    events: Vec<Event>,
    /// When it was looked at last, by the filesystem's clock: what was reported before is in the
    /// state.
    looked: Duration,
}

impl<B: Backing> Engine<B> {
    /// Takes in every foreign change reported so far. When it returns, those of changes that had
    /// returned to their callers before it was called are in effect.
    pub fn drain(&self) {
        if !self.watches {
            return;
        }
        // Held over the application of the events too: whoever comes later must not overtake.
        let mut inbox = self.inbox.lock();
        let now = self.backing.now();
        let before = std::mem::replace(&mut inbox.looked, now);
        self.backing
            .take_events(&mut |event| inbox.events.push(event));
        if inbox.events.is_empty() {
            return;
        }
        for event in &inbox.events {
            if let Some(device) = device_of(event) {
                drop(self.lock_for(device));
            }
        }
        let mut state = self.state.lock();
        for event in inbox.events.drain(..) {
            state.foreign_event(&event, before, now);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Looks at the maps of files that others changed, without writing anything back: sharing
    /// that was not there before may be with anybody.
    pub(crate) fn look_at_foreign(&self, device: DeviceIndex) -> io::Result<()> {
        self.look_at_renamed(device)?;
        loop {
            let mut state = self.lock_for(device);
            let id = state.device(device).map_or(0, |device| device.space);
            let Some(file) = state.space(id).foreign.last().copied() else {
                return Ok(());
            };
            let before = state.active(file).map(|active| active.touches);
            let start = state.begin_reading(id);
            drop(state);

            let found = self.read_shared(file);

            let mut state = self.lock_for(device);
            let cover = found.as_ref().ok().and_then(Option::as_ref);
            let moved = state.end_reading(id, start, cover.map(|found| &found.cover));
            let found = found?;
            let touched = state.active(file).map(|active| active.touches) != before;
            if touched && found.is_some() {
                // It changed again meanwhile: look again.
                continue;
            }
            let foreign = &mut state.space(id).foreign;
            if foreign.last() == Some(&file) {
                foreign.pop();
            } else {
                foreign.retain(|other| *other != file);
            }
            let Some(slot) = state.table.find(file) else {
                continue;
            };
            let old = state.cover(slot);
            let (cover, ranges) = match found {
                Some(found) => (found.cover, Some(found.ranges)),
                None => (Cover::Unknown, None),
            };
            if !state.explains(slot, ranges.as_deref()) {
                // It may have become a clone of any file, which then shares more than is known.
                state.forget_space(id);
            }
            state.drop_record(slot);
            if old.is_known() && !cover.contains(&old) {
                state.lose(slot, &old);
            }
            let credible = if moved {
                Credible::NEVER
            } else {
                Credible::ALWAYS
            };
            state.set_cover(slot, cover, credible);
            if let Some(active) = state.active(file) {
                active.foreign = false;
            }
            if let Some(ranges) = ranges.filter(|_| !moved) {
                state.add_evidence(slot, ranges);
            }
            state.calm(file);
        }
    }
}

impl<B: Backing> Engine<B> {
    /// Looks whether files that may have lost their last name did so.
    fn look_at_renamed(&self, device: DeviceIndex) -> io::Result<()> {
        loop {
            let mut state = self.lock_for(device);
            let id = state.device(device).map_or(0, |device| device.space);
            let renamed = &state.space(id).renamed;
            let Some((file, times)) = renamed.iter().next().map(|(file, times)| (*file, *times))
            else {
                return Ok(());
            };
            drop(state);
            let named = match self
                .open(file)
                .and_then(|opened| self.backing.stamp(&opened))
            {
                Ok(stamp) => Some(stamp.links > 0),
                Err(error) if error.raw_os_error() == Some(libc::ESTALE) => None,
                Err(error) => return Err(error),
            };
            let now = self.backing.now();
            let mut state = self.lock_for(device);
            match named {
                Some(true) => {}
                Some(false) => state.nameless(file, now),
                None => {
                    let slot = state.ensure(file);
                    state.end_file(slot, id, now);
                }
            }
            let renamed = &mut state.space(id).renamed;
            if renamed.get(&file) == Some(&times) {
                renamed.remove(&file);
            }
        }
    }
}

impl State {
    /// The file has no name any more, and lives only for as long as it is open somewhere.
    fn nameless(&mut self, file: FileKey, now: Duration) {
        let slot = self.ensure(file);
        let active = self.activate(slot);
        active.touches += 1;
        active.touched = true;
        active.dying.get_or_insert(now);
    }

    /// Takes in an event that was taken out `now`, and not yet `before`.
    fn foreign_event(&mut self, event: &Event, before: Duration, now: Duration) {
        self.stats.events += 1;
        match event {
            Event::Modified(file) => self.foreign_change(*file, before),
            Event::Closed(file) => {
                // One that is or was open for write through the mount is settled anyway, and it
                // is its own users who close it.
                let ours = self
                    .active(*file)
                    .is_some_and(|active| active.writers > 0 || active.released);
                if !ours {
                    self.foreign_change(*file, before);
                }
            }
            // It may have lost its last name. What ends it then is not reported if it is one of our
            // own descriptors that is the last.
            Event::Attributes(file) => {
                self.enqueue_named(*file, false);
                let id = self.space_of(*file);
                *self.space(id).renamed.entry(*file).or_default() += 1;
            }
            // Sharing has nothing to do with these, but listings have.
            Event::Entry {
                directory,
                subvolume: false,
                ..
            } => self.enqueue_named(*directory, true),
            Event::Removed(file) => {
                let id = self.space_of(*file);
                self.space(id).renamed.remove(file);
                self.foreign_removal(*file, now);
                self.enqueue_named(*file, true);
            }
            Event::Entry {
                directory,
                subvolume: true,
                ..
            } => {
                // A snapshot shares every extent of its source at once; a removed one ends
                // sharing in the background.
                let id = self.space_of(*directory);
                self.forget_space(id);
                self.enqueue_named(*directory, true);
                self.note_removal(directory.device, None, now);
            }
            Event::Overflow => {
                self.stats.overflows += 1;
                for id in self.space_ids() {
                    self.forget_space(id);
                }
                self.due_barriers();
                self.enqueue_everything();
            }
        }
    }

    /// Somebody else changed the file, or may have, which was not known yet at `looked`.
    pub(crate) fn foreign_change(&mut self, file: FileKey, looked: Duration) {
        let slot = self.ensure(file);
        let space = self.space_of(file);
        let active = self.activate(slot);
        active.touches += 1;
        active.touched = true;
        let listed = std::mem::replace(&mut active.foreign, true);
        if active.writers == 0 {
            active.dirty = true;
            active.released = true;
        }
        if !listed {
            self.keep_evidence(slot, looked);
            self.space(space).foreign.push(file);
        }
        if !self.cover(slot).is_known() {
            self.lose_all_shared(space);
        }
    }

    fn foreign_removal(&mut self, file: FileKey, now: Duration) {
        let space = self.space_of(file);
        let slot = self.ensure(file);
        self.end_file(slot, space, now);
    }

    /// The file is gone, and its sharing with it.
    pub(crate) fn end_file(&mut self, slot: super::table::Slot, space: u16, now: Duration) {
        let Some(entry) = self.table.get(slot) else {
            return;
        };
        let (file, cover, active) = (entry.key, entry.cover.clone(), entry.active);
        if cover.is_known() {
            self.lose(slot, &cover);
        } else if active {
            // Since it is wild nothing shared was stored.
            let space = self.space(space);
            let readers = space.readers > 0;
            space.journal.note(&cover, readers);
        } else {
            self.lose_all_shared(space);
        }
        // A clone of it that others made may not have been taken in yet: then it shared all the
        // same.
        if !cover.is_empty() || self.watches {
            self.note_removal(file.device, Some(file), now);
        }
        self.forget(slot);
    }

    /// Blocks may wait to be given back in the background.
    pub(crate) fn note_removal(
        &mut self,
        index: DeviceIndex,
        file: Option<FileKey>,
        now: Duration,
    ) {
        let Some(device) = self.device_mut(index) else {
            return;
        };
        device.removals += 1;
        if let Some(file) = file {
            device.note_removed(file);
        }
        let (space, can_flush) = (device.space, device.can_flush);
        if !can_flush {
            self.space(space).doubt = Some(now);
        }
    }
}

fn device_of(event: &Event) -> Option<DeviceIndex> {
    match event {
        Event::Modified(file)
        | Event::Closed(file)
        | Event::Attributes(file)
        | Event::Removed(file) => Some(file.device),
        Event::Entry { directory, .. } => Some(directory.device),
        Event::Overflow => None,
    }
}
