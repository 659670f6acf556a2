//! The one door for changes: what is announced before its system call, and ended after it.

use super::active::Baseline;
use super::backing::{Backing, Liveness, SharingUnit};
use super::change::Change;
use super::cover::Cover;
use super::engine::Engine;
use super::evidence::Credible;
use super::faults::Fault;
use super::key::FileKey;
use super::state::State;
use super::sync::MutexGuard;
use std::time::Duration;

/// How many records a map may have to be read before a change of its file; larger ones are left
/// to the next question.
const READ_AHEAD: usize = 1000;

/// How many extents a file must have for its record to be worth a `statx` at its opening.
const WORTH_A_STAMP: u64 = 16;

/// A change that is under way. Dropped when its system call has returned: from then on what it
/// may have altered is known to be invalid, and while it lives nothing about that is stored.
#[must_use = "the change ends when the guard is dropped"]
pub struct ChangeGuard<'a, B: Backing> {
    engine: &'a Engine<B>,
    change: Change,
    failed: bool,
}

impl<B: Backing> ChangeGuard<'_, B> {
    /// The system call failed and changed nothing. Only an optimisation, except that a failed
    /// open leaves no writer behind.
    pub fn failed(mut self) {
        self.failed = true;
    }

    /// The open failed: there is no writer. The same as [`ChangeGuard::failed`].
    pub fn abandon(self) {
        self.failed();
    }
}

impl<B: Backing> Drop for ChangeGuard<'_, B> {
    fn drop(&mut self) {
        self.engine.leave(self.change, self.failed);
    }
}

impl<B: Backing> Engine<B> {
    /// Announces a change. Waits only for a lease test of the file (microseconds), and reads the
    /// map of a file that is not known yet if others could be affected.
    pub fn begin(&self, change: Change) -> ChangeGuard<'_, B> {
        match change {
            Change::Write(file) | Change::Truncate(file) | Change::Allocate(file) => {
                self.enter(file);
            }
            Change::OpenForWrite { file, direct } => self.enter_open(file, direct),
            Change::CloseForWrite { .. } => {}
            Change::Copy { from, to } => {
                if from != to && !self.faults.has(Fault::CloneSourceForgotten) {
                    self.enter_source(from);
                }
                self.enter(to);
                if let Some(active) = self.lock_for(to.device).active(to) {
                    active.copies += 1;
                }
            }
            Change::Unname { file, last } => self.enter_unname(file, last),
            Change::LastClose(file) => self.enter(file),
        }
        ChangeGuard {
            engine: self,
            change,
            failed: false,
        }
    }

    /// The file was just created through the mount: it has no extents, so nothing to lose.
    pub fn created(&self, file: FileKey) {
        let mut state = self.lock_for(file.device);
        let slot = state.ensure(file);
        if !state.cover(slot).is_known() {
            state.set_cover(slot, Cover::Empty, Credible::ALWAYS);
        }
        state.evict();
    }

    /// The state, once nobody tests the lease of the file.
    fn lock_untested(&self, file: FileKey) -> MutexGuard<'_, State> {
        let mut state = self.lock_for(file.device);
        while state.active(file).is_some_and(|active| active.testing) {
            self.changed.wait(&mut state);
        }
        state
    }

    /// A change of the file's map begins.
    fn enter(&self, file: FileKey) {
        let mut state = self.lock_untested(file);
        let slot = state.ensure(file);
        let active = state.activate(slot);
        active.changing += 1;
        active.touches += 1;
        state.drop_record(slot);
        let state = self.know_cover(state, file);
        lose_once(state, file);
    }

    /// The file is about to be read by a copy that may share its blocks. Nobody else is
    /// affected: what a third file shares with it stays shared.
    fn enter_source(&self, file: FileKey) {
        let mut state = self.lock_untested(file);
        let slot = state.ensure(file);
        let active = state.activate(slot);
        active.changing += 1;
        active.touches += 1;
        active.copies += 1;
        state.drop_record(slot);
    }

    /// The file is about to be opened for write. The writer counts from here on, so that no
    /// lease test can come between.
    fn enter_open(&self, file: FileKey, direct: bool) {
        let mut state = self.lock_untested(file);
        let slot = state.ensure(file);
        let was_calm = state.table.get(slot).is_some_and(|entry| !entry.active);
        let active = state.activate(slot);
        active.writers += 1;
        active.direct += u32::from(direct);
        active.touches += 1;
        let touches = active.touches;
        let mut state = self.know_cover(state, file);
        if !was_calm || !worth_a_stamp(&mut state, file) {
            return;
        }
        // Nobody could change it until now: its stamp tells whether anybody did from now on.
        drop(state);
        let stamp = self
            .open(file)
            .and_then(|opened| self.backing.stamp(&opened));
        let mut state = self.lock_for(file.device);
        if let (Ok(stamp), Some(active)) = (stamp, state.active(file))
            && active.touches == touches
        {
            active.baseline = Some(Baseline {
                stamp,
                trusted: true,
            });
        }
    }

    fn enter_unname(&self, file: FileKey, last: bool) {
        let now = self.backing.now();
        let mut state = self.lock_untested(file);
        let slot = state.ensure(file);
        let active = state.activate(slot);
        // Two removals at once may each have seen the other's name.
        let last = last || active.unnaming > 0 || active.dying.is_some();
        active.unnaming += 1;
        active.touches += 1;
        if !last {
            return;
        }
        active.dying = Some(now);
        state.drop_record(slot);
        let mut state = self.know_cover(state, file);
        let cover = state.entry(file).map(|entry| entry.cover.clone());
        let by_item = matches!(
            state.device(file.device).map(|device| device.unit),
            Some(SharingUnit::Item { .. })
        );
        let dirty = state
            .active(file)
            .is_some_and(|active| active.dirty || active.released || active.writers > 0);
        let shares = !cover.is_some_and(|cover| cover.is_empty());
        lose_once(state, file);
        if by_item && dirty && shares {
            // What is in writeback when the last name goes would keep its references for a while
            // after the file is gone.
            let _ = self
                .open(file)
                .and_then(|opened| self.backing.write_back(&opened));
        }
    }

    /// Makes the file's cover known before it changes, where others could be affected: reads its
    /// map, or, where that is too large, gives up everything shared.
    fn know_cover<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        file: FileKey,
    ) -> MutexGuard<'a, State> {
        let space = state.space_of(file);
        for _ in 0..2 {
            let Some(slot) = state.table.find(file) else {
                return state;
            };
            if state.cover(slot).is_known() {
                return state;
            }
            if state.device(file.device).map(|device| device.unit) == Some(SharingUnit::None) {
                state.set_cover(slot, Cover::Empty, Credible::ALWAYS);
                return state;
            }
            if state.space(space).shared_records == 0 {
                break;
            }
            let copies = state.active(file).map(|active| active.copies);
            let start = state.begin_reading(space);
            drop(state);
            let cover = self.read_small_cover(file, READ_AHEAD);
            // What others did before it was read must count while the cover is still unknown.
            self.drain();
            state = self.lock_for(file.device);
            let moved = state.end_reading(space, start, cover.as_ref().map(|(cover, _)| cover));
            let Some((cover, credible)) = cover else {
                break;
            };
            let credible = if moved { Credible::NEVER } else { credible };
            if state.active(file).map(|active| active.copies) != copies {
                continue;
            }
            if let Some(slot) = state.table.find(file)
                && !state.cover(slot).is_known()
            {
                // Read before this change, so it holds all that the change can end.
                state.set_cover(slot, cover, credible);
            }
        }
        if state
            .entry(file)
            .is_none_or(|entry| !entry.cover.is_known())
        {
            state.lose_all_shared(space);
        }
        state
    }

    /// The end of a change.
    fn leave(&self, change: Change, failed: bool) {
        match change {
            Change::Write(file) | Change::Truncate(file) | Change::Allocate(file) => {
                self.leave_changed(file, failed, false);
            }
            Change::OpenForWrite { file, direct } => {
                if failed {
                    self.drop_writer(file, direct, false);
                }
            }
            Change::CloseForWrite { file, direct } => self.drop_writer(file, direct, true),
            Change::Copy { from, to } => {
                if from != to && !self.faults.has(Fault::CloneSourceForgotten) {
                    let mut state = self.lock_for(from.device);
                    if let Some(active) = state.active(from) {
                        active.changing = active.changing.saturating_sub(1);
                        active.touches += 1;
                        active.copies += 1;
                    }
                    if let Some(slot) = state.table.find(from) {
                        state.drop_record(slot);
                        let cover = state.cover(slot);
                        if !failed && cover.is_known() {
                            // Its unseen writes until now go with the old cover.
                            if state.active(from).is_some_and(|active| !active.is_idle()) {
                                state.lose(slot, &cover);
                            }
                            state.set_cover(slot, Cover::Unknown, Credible::NEVER);
                        }
                    }
                    state.calm(from);
                }
                self.leave_changed(to, failed, true);
            }
            Change::Unname { file, .. } => self.leave_unname(file, failed),
            Change::LastClose(file) => {
                let mut state = self.lock_for(file.device);
                if let Some(active) = state.active(file) {
                    active.changing = active.changing.saturating_sub(1);
                    active.touches += 1;
                    active.last_closed |= !failed;
                    if active.dying.is_none() && !failed {
                        active.dying = Some(Duration::ZERO);
                    }
                }
                drop(state);
                self.end_if_gone(file);
            }
        }
        self.changed.notify_all();
        self.sweep();
    }

    fn leave_changed(&self, file: FileKey, failed: bool, copied: bool) {
        let mut state = self.lock_for(file.device);
        let space = state.space_of(file);
        let Some(slot) = state.table.find(file) else {
            state.lose_all_shared(space);
            return;
        };
        let cover = state.cover(slot);
        if let Some(active) = state.active(file) {
            active.changing = active.changing.saturating_sub(1);
            active.touches += 1;
            active.copies += u32::from(copied);
            if !failed {
                active.touched = true;
                active.dirty = true;
            }
        }
        state.drop_record(slot);
        let space = state.space(space);
        let readers = space.readers > 0;
        space.journal.note(&cover, readers);
        if copied && !failed {
            state.set_cover(slot, Cover::Unknown, Credible::NEVER);
        }
        state.calm(file);
    }

    fn drop_writer(&self, file: FileKey, direct: bool, was_open: bool) {
        let mut state = self.lock_for(file.device);
        if let Some(active) = state.active(file) {
            active.writers = active.writers.saturating_sub(1);
            active.direct = active.direct.saturating_sub(u32::from(direct));
            active.touches += 1;
            active.released |= was_open;
            active.touched |= was_open && direct;
        }
        state.calm(file);
    }

    fn leave_unname(&self, file: FileKey, failed: bool) {
        let mut state = self.lock_for(file.device);
        let mut dying = false;
        if let Some(active) = state.active(file) {
            active.unnaming = active.unnaming.saturating_sub(1);
            active.touches += 1;
            if failed && active.unnaming == 0 && !active.last_closed {
                active.dying = None;
            }
            dying = active.dying.is_some();
            active.touched |= dying;
        }
        state.calm(file);
        drop(state);
        if dying && !failed {
            self.end_if_gone(file);
        }
    }

    /// After a removal has ended: waits a moment for a file that no user has open to be gone. Others
    /// of our own threads may hold it for as long as one request takes; what holds it longer is
    /// waited for by the next question.
    pub fn await_end(&self, file: FileKey) {
        const TIMES: u32 = 20;
        const PAUSE: Duration = Duration::from_micros(100);
        for _ in 0..TIMES {
            let mut state = self.lock_for(file.device);
            let lingers = state
                .active(file)
                .is_some_and(|active| active.dying.is_some());
            drop(state);
            if !lingers {
                break;
            }
            super::sync::sleep(PAUSE);
            self.end_if_gone(file);
        }
    }

    /// Lets go of a file without names as soon as it is gone.
    fn end_if_gone(&self, file: FileKey) {
        let liveness = self.backing.liveness(file);
        let now = self.backing.now();
        let mut state = self.lock_for(file.device);
        let Some(active) = state.active(file) else {
            return;
        };
        let gone = match liveness {
            Liveness::Gone => true,
            Liveness::Alive => false,
            Liveness::Unknown => active.last_closed,
        };
        if active.dying == Some(Duration::ZERO) {
            active.dying = Some(now);
        }
        if gone && !active.is_held() {
            let space = state.space_of(file);
            if let Some(slot) = state.table.find(file) {
                state.end_file(slot, space, now);
            }
        }
    }
}

/// Whoever shares with the file loses its record, unless that was done already and none was
/// stored since.
fn lose_once(mut state: MutexGuard<'_, State>, file: FileKey) {
    let Some(slot) = state.table.find(file) else {
        return;
    };
    let cover = state.cover(slot);
    if cover.is_known()
        && state
            .active(file)
            .is_some_and(|active| !active.sharers_invalid)
    {
        state.lose(slot, &cover);
    }
}

/// Whether knowing that the file did not change would spare reading a map again.
fn worth_a_stamp(state: &mut State, file: FileKey) -> bool {
    let Some(slot) = state.table.find(file) else {
        return false;
    };
    if state
        .record(slot)
        .is_some_and(|record| record.numbers().extents >= WORTH_A_STAMP)
    {
        return true;
    }
    let cover = state.cover(slot);
    let space = state.space_of(file);
    state.space(space).index.overlaps(&cover, Some(slot))
}
