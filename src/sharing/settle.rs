//! Settling: bringing what was already done to a file into its map, and telling whether it
//! changed since the last time.
//!
//! The order is what makes it exact: the lease test first (from a grant on nobody can write), then
//! writeback, then a look at the event queue, then the stamp. A file stays active unless the test
//! was granted and nothing happened to it since.

use super::active::Baseline;
use super::backing::{Backing, Liveness, Removals, SharingUnit, Stamp, WriteHold};
use super::cover::{Cover, shared_ranges};
use super::engine::Engine;
use super::evidence::Credible;
use super::faults::Fault;
use super::key::{DeviceIndex, FileKey};
use super::state::State;
use crate::extent::{Extent, ExtentMap, FileOffset, MapBuilder, PhysRange};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long after its removal a file's blocks may be shown as shared where removals can neither
/// be carried out nor awaited.
pub(crate) const DOUBT: Duration = Duration::from_secs(5);

/// Records a FIEMAP call: writers of the file wait while one runs.
pub(crate) const BATCH: usize = 1000;

/// Records of the one call that reads a map whole when batches do not come to rest.
pub(crate) const WHOLE: usize = 1 << 20;

/// How a map was read.
pub(crate) enum Reading {
    /// Without a sign of change, in so many batches: in one, at one moment.
    Whole(ExtentMap, Stamp, u64),
    /// The file changed between two batches.
    Torn,
    /// The time was up.
    TooLong,
}

/// An active file whose cover was to be learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wild {
    /// It was known.
    Not,
    /// It was read.
    Learned,
    /// The file is gone.
    Gone,
}

/// What a file shares, as its map stands.
pub(crate) struct Shared {
    pub(crate) cover: Cover,
    /// Everything that is flagged shared, sorted and merged.
    pub(crate) ranges: Arc<[PhysRange]>,
    /// From when on that is evidence.
    pub(crate) credible: Credible,
}

/// The state of a file when its settling began.
struct Begun {
    touched: bool,
    touches: u64,
    unseen: bool,
    direct: bool,
    test: bool,
    dying: Option<Duration>,
    last_closed: bool,
}

impl<B: Backing> Engine<B> {
    /// Writes the file back if it is active and tells whether its map may have changed since it
    /// was last settled; then all who share with it were invalidated.
    pub(crate) fn settle(&self, file: FileKey) -> io::Result<bool> {
        self.settle_as(file, false)
    }

    /// Settles the file that a question is about.
    pub(crate) fn settle_own(&self, file: FileKey) -> io::Result<bool> {
        self.settle_as(file, true)
    }

    fn settle_as(&self, file: FileKey, own: bool) -> io::Result<bool> {
        let Some(begun) = self.begin_settling(file) else {
            return Ok(false);
        };
        let changed = self.settle_now(file, &begun, own);
        let mut state = self.lock_for(file.device);
        if let Some(active) = state.active(file) {
            active.settling = false;
            active.testing = false;
            if changed.is_err() {
                active.touched |= begun.touched;
            }
        }
        state.calm(file);
        drop(state);
        self.changed.notify_all();
        changed
    }

    fn begin_settling(&self, file: FileKey) -> Option<Begun> {
        let mut state = self.lock_for(file.device);
        loop {
            let active = state.active(file)?;
            if !active.settling {
                break;
            }
            self.changed.wait(&mut state);
        }
        let test_skipped = self.has(Fault::ReleaseEndsWriting);
        let active = state.active(file)?;
        active.settling = true;
        active.testing = active.writers == 0 && active.released && !test_skipped;
        Some(Begun {
            touched: std::mem::take(&mut active.touched),
            touches: active.touches,
            unseen: active.writers > 0 || active.released,
            direct: active.direct > 0,
            test: active.writers == 0 && active.released,
            dying: active.dying,
            last_closed: active.last_closed,
        })
    }

    fn settle_now(&self, file: FileKey, begun: &Begun, own: bool) -> io::Result<bool> {
        let mut unsure = false;
        if let Some(since) = begun.dying {
            let gone = match self.liveness(file) {
                Liveness::Gone => true,
                Liveness::Alive => false,
                Liveness::Unknown => {
                    unsure = true;
                    begun.last_closed || self.backing.now().saturating_sub(since) >= DOUBT
                }
            };
            if gone {
                self.bury(file);
                return Ok(true);
            }
        }
        let opened = match self.open(file) {
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) => {
                self.bury(file);
                return Ok(true);
            }
            opened => opened?,
        };
        let hold = self.test_lease(file, &opened, begun);
        let before = self.backing.now();
        if own || !self.has(Fault::NoSharerWriteback) {
            self.backing.write_back(&opened)?;
        }
        self.drain();
        let stamp = self.backing.stamp(&opened)?;
        drop(opened);

        let mut state = self.lock_for(file.device);
        state.stats.write_backs += 1;
        state.stats.lease_tests += u64::from(begun.test);
        let Some(slot) = state.table.find(file) else {
            return Ok(true);
        };
        let Some(active) = state.active(file) else {
            return Ok(true);
        };
        let same = active
            .baseline
            .is_some_and(|baseline| baseline.trusted && baseline.stamp == stamp);
        let changed =
            begun.touched || (begun.unseen && (!same || begun.direct || !self.watches)) || unsure;
        active.baseline = Some(Baseline::new(stamp, before));
        if active.touches == begun.touches {
            active.dirty = false;
            if hold == WriteHold::Free {
                active.released = false;
                active.baseline = None;
            }
        }
        if changed {
            let cover = state.cover(slot);
            state.drop_record(slot);
            if cover.is_known() {
                state.lose(slot, &cover);
            } else {
                // Nothing shared was stored since it is wild, but may be being read.
                let space = state.space_of(file);
                let space = state.space(space);
                let readers = space.readers > 0;
                space.journal.note(&cover, readers);
            }
        }
        Ok(changed)
    }

    /// Whether a file without names is gone, as far as others are concerned: what of ours holds
    /// it is waited for.
    fn liveness(&self, file: FileKey) -> Liveness {
        /// One of ours may come again, but not for long: nobody begins anything with a file that
        /// is known to be dying before it was settled.
        const TIMES: usize = 4;
        let mut liveness = self.backing.liveness(file);
        for _ in 0..TIMES {
            if liveness != Liveness::Alive {
                break;
            }
            self.holds.wait_for(file);
            liveness = self.backing.liveness(file);
        }
        liveness
    }

    /// Whether anything holds the file open for write, when no writer is known. Nobody opens it
    /// through the mount meanwhile.
    fn test_lease(&self, file: FileKey, opened: &B::File, begun: &Begun) -> WriteHold {
        if !begun.test {
            return WriteHold::Held;
        }
        if self.has(Fault::ReleaseEndsWriting) {
            return WriteHold::Free;
        }
        let hold = self
            .backing
            .write_hold(opened)
            .unwrap_or(WriteHold::Unknown);
        let mut state = self.lock_for(file.device);
        if let Some(active) = state.active(file) {
            active.testing = false;
        }
        drop(state);
        self.changed.notify_all();
        hold
    }

    /// The file is gone: what it shared, others no longer share with it.
    pub(crate) fn bury(&self, file: FileKey) {
        let now = self.backing.now();
        let mut state = self.lock_for(file.device);
        let space = state.space_of(file);
        let slot = state.ensure(file);
        state.end_file(slot, space, now);
    }

    /// Settles a file and makes sure that its cover is known if it stays active.
    pub(crate) fn tame(&self, file: FileKey) -> io::Result<bool> {
        let changed = self.settle(file)?;
        Ok(self.learn_wild(file)? == Wild::Gone || changed)
    }

    /// Makes sure that the cover of an active file is known, without settling it: what it shares
    /// can only become less unseen.
    pub(crate) fn learn_wild(&self, file: FileKey) -> io::Result<Wild> {
        let mut state = self.lock_for(file.device);
        let wild = state
            .entry(file)
            .is_some_and(|entry| entry.active && !entry.cover.is_known());
        let copies = state.active(file).map(|active| active.copies);
        if !wild {
            return Ok(Wild::Not);
        }
        let space = state.space_of(file);
        let start = state.begin_reading(space);
        drop(state);
        let found = self.read_shared(file);
        self.drain();
        let mut state = self.lock_for(file.device);
        let cover = found.as_ref().ok().and_then(Option::as_ref);
        let moved = state.end_reading(space, start, cover.map(|found| &found.cover));
        let Some(Shared {
            cover, credible, ..
        }) = found?
        else {
            drop(state);
            self.bury(file);
            return Ok(Wild::Gone);
        };
        let credible = if moved { Credible::NEVER } else { credible };
        if state.active(file).map(|active| active.copies) == copies
            && let Some(slot) = state.table.find(file)
            && !state.cover(slot).is_known()
        {
            state.set_cover(slot, cover, credible);
        }
        Ok(Wild::Learned)
    }

    /// Carries out removals that wait in the background, in the whole address space. True when
    /// one is still under way: then what is shared may not be stored, and this is tried again
    /// before the next answer.
    pub(crate) fn flush_removals(&self, device: DeviceIndex) -> io::Result<bool> {
        let state = self.lock_for(device);
        let space = state.device(device).map_or(0, |device| device.space);
        let pending: Vec<_> = state
            .devices_of(space)
            .filter(|(_, device)| device.removals > device.removed)
            .map(|(index, device)| {
                let files = device.removed_files.iter().map(|(_, file)| *file);
                (index, device.removals, files.collect::<Vec<_>>())
            })
            .collect();
        drop(state);
        if self.has(Fault::NoRemovalFlush) {
            return Ok(false);
        }
        let mut under_way = false;
        for (index, removals, files) in pending {
            let outcome = self.backing.flush_removals(index, &files)?;
            let now = self.backing.now();
            let mut state = self.lock_for(index);
            state.stats.removal_flushes += 1;
            under_way |= outcome == Removals::UnderWay;
            if let Some(device) = state.device_mut(index) {
                device.can_flush = outcome != Removals::Unknown;
                if outcome != Removals::UnderWay {
                    device.carried_out(removals);
                }
            }
            let space = state.space(space);
            if outcome == Removals::Unknown && space.doubt.is_none() {
                space.doubt = Some(now);
            }
        }
        Ok(under_way)
    }

    /// Settles everything on a device, once, and again after foreign changes were lost.
    pub(crate) fn make_ready(&self, index: DeviceIndex) -> io::Result<()> {
        let state = self.lock_for(index);
        let Some(device) = state.device(index) else {
            return Ok(());
        };
        let (due, done) = (device.barriers_due, device.barriers_done);
        let (space, unit) = (device.space, device.unit);
        drop(state);
        if done >= due {
            return Ok(());
        }
        let mut outcome = Removals::Done;
        if unit != SharingUnit::None && !self.has(Fault::NoBarrier) {
            self.backing.write_back_all(index)?;
            outcome = self.backing.flush_removals(index, &[])?;
        }
        let now = self.backing.now();
        let mut state = self.lock_for(index);
        if let Some(device) = state.device_mut(index) {
            // As many as were due at the beginning; one that fell due meanwhile is still to come.
            device.barriers_done = device.barriers_done.max(due);
            device.can_flush = outcome != Removals::Unknown;
            // One that is under way is asked about again.
            device.removals += u64::from(outcome == Removals::UnderWay);
        }
        if outcome == Removals::Unknown {
            state.space(space).doubt = Some(now);
        }
        Ok(())
    }

    /// In doubt about removals: waits a moment for those of small files, and tells whether what
    /// is shared may not be stored.
    pub(crate) fn in_doubt(&self, device: DeviceIndex) -> bool {
        const MOMENT: Duration = Duration::from_millis(20);
        let mut state = self.lock_for(device);
        let space = state.device(device).map_or(0, |device| device.space);
        let Some(since) = state.space(space).doubt else {
            return false;
        };
        drop(state);
        let age = self.backing.now().saturating_sub(since);
        if age < MOMENT {
            super::sync::sleep(MOMENT - age);
        }
        if age < DOUBT {
            return true;
        }
        let mut state = self.lock_for(device);
        let space_state = state.space(space);
        if space_state.doubt == Some(since) {
            space_state.doubt = None;
            // What was answered meanwhile was not stored; what is being read may be old.
            let readers = space_state.readers > 0;
            space_state.journal.note(&Cover::Unknown, readers);
        }
        false
    }

    // Reading maps.

    /// Reads the map in batches. `careful`: the file may change unseen meanwhile.
    pub(crate) fn read_map(
        &self,
        opened: &B::File,
        batch: usize,
        careful: bool,
        deadline: Option<Instant>,
    ) -> io::Result<Reading> {
        let stamp = self.backing.stamp(opened)?;
        let mut builder = MapBuilder::new(stamp.size, stamp.block);
        let mut records = Vec::new();
        let mut from = FileOffset(0);
        let mut batches = 0;
        loop {
            records.clear();
            let last = self.backing.map(opened, from, batch, &mut records)?;
            batches += 1;
            let end = records.last().map(Extent::logical_end);
            let inside = records.drain(..).all(|record| builder.push(record));
            match end {
                Some(end) if end > from && !last && inside => from = end,
                _ => break,
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Reading::TooLong);
            }
        }
        self.state.lock().stats.fiemap_calls += batches;
        let after = if careful || batches > 1 {
            self.backing.stamp(opened)?
        } else {
            stamp
        };
        if after.size != stamp.size || (batches > 1 && after.ctime != stamp.ctime) {
            return Ok(Reading::Torn);
        }
        Ok(Reading::Whole(builder.finish(), stamp, batches))
    }

    /// The cover that goes with a map.
    pub(crate) fn cover_of(
        &self,
        device: DeviceIndex,
        opened: &B::File,
        map: &ExtentMap,
    ) -> io::Result<Cover> {
        let unit = self
            .lock_for(device)
            .device(device)
            .map(|device| device.unit);
        Ok(match unit {
            None | Some(SharingUnit::None) => Cover::Empty,
            Some(SharingUnit::Block) => Cover::of_blocks(map),
            Some(SharingUnit::Item { .. }) if map.shared().next().is_none() => Cover::Empty,
            Some(SharingUnit::Item { largest }) => {
                Cover::of_items(map, self.backing.items(opened)?, largest)
            }
        })
    }

    /// What a file shares as its map stands, nothing written back; `None` when it is gone. A
    /// map that does not come to rest is read at one moment in the end.
    pub(crate) fn read_shared(&self, file: FileKey) -> io::Result<Option<Shared>> {
        let opened = match self.open(file) {
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) => return Ok(None),
            opened => opened?,
        };
        for batch in [BATCH, WHOLE] {
            let before = self.backing.now();
            if let Reading::Whole(map, _, _) = self.read_map(&opened, batch, false, None)? {
                let stamp = self.backing.stamp(&opened)?;
                return Ok(Some(Shared {
                    cover: self.cover_of(file.device, &opened, &map)?,
                    ranges: shared_ranges(&map).into(),
                    credible: Credible::stamped(before, &stamp),
                }));
            }
        }
        // It changes all the time: everything that it may share.
        let cover = Cover::of_everything();
        let ranges = cover.ranges().into();
        Ok(Some(Shared {
            cover,
            ranges,
            credible: Credible::NEVER,
        }))
    }

    /// The cover of a file with at most `most` records, and from when on it is evidence; `None` for larger ones and where it
    /// cannot be read.
    pub(crate) fn read_small_cover(&self, file: FileKey, most: usize) -> Option<(Cover, Credible)> {
        let before = self.backing.now();
        let opened = self.open(file).ok()?;
        let stamp = self.backing.stamp(&opened).ok()?;
        let mut records = Vec::new();
        let last = self
            .backing
            .map(&opened, FileOffset(0), most, &mut records)
            .ok()?;
        let mut builder = MapBuilder::new(stamp.size, stamp.block);
        let whole = records.into_iter().all(|record| builder.push(record));
        self.state.lock().stats.fiemap_calls += 1;
        if whole && !last {
            return None;
        }
        let cover = self
            .cover_of(file.device, &opened, &builder.finish())
            .ok()?;
        let stamp = self.backing.stamp(&opened).ok()?;
        Some((cover, Credible::stamped(before, &stamp)))
    }
}

impl State {
    /// Everything has to be settled once more.
    pub(crate) fn due_barriers(&mut self) {
        for id in self.space_ids() {
            let devices: Vec<_> = self.devices_of(id).map(|(index, _)| index).collect();
            for index in devices {
                if let Some(device) = self.device_mut(index) {
                    device.barriers_due += 1;
                }
            }
        }
    }
}
