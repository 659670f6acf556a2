//! How a question travels: answered from a record if that is fresh, otherwise by one flight for
//! all who ask at the same time.
//!
//! A flight settles what is active around the file, reads its map if no record survived that,
//! settles what the map shows to be around it, and stores the numbers if nothing happened
//! meanwhile. What it read while something changed is answered, since it was right at a moment of
//! the question, but not stored.

use super::backing::{Backing, SharingUnit, Stamp};
use super::cover::Cover;
use super::engine::{AskError, Engine};
use super::evidence::Credible;
use super::faults::Fault;
use super::key::FileKey;
use super::settle::{BATCH, Reading, WHOLE, Wild};
use super::state::State;
use super::table::{Record, Slot};
use crate::extent::{ExtentMap, ShareSummary};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Readings before a flight gives up on a file that never comes to rest.
const ATTEMPTS: usize = 64;

/// From which attempt on a map is read in one call, at one moment.
const AT_ONCE_FROM: usize = 2;

/// The numbers of a file at a moment of the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The numbers.
    pub numbers: ShareSummary,
    /// They stay right until [`Engine::take_unsettled`] names the file; otherwise something
    /// around it may change unseen, and the next question has to look again.
    pub settled: bool,
}

/// What a question is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Want {
    Numbers,
    Map,
}

impl Want {
    pub(crate) const ALL: [Self; 2] = [Self::Numbers, Self::Map];
}

/// What a flight found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) answer: Answer,
    /// Number of the file's names; `None` where its map was not read, but its record confirmed.
    pub(crate) links: Option<u32>,
    /// The numbers are in the file's record.
    pub(crate) stored: bool,
    /// Present when it was asked for.
    pub(crate) map: Option<Arc<ExtentMap>>,
}

/// Why a flight found nothing, for everybody who waits for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    Again,
    CannotSay,
    Gone,
    Errno(i32),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ESTALE) => Self::Gone,
            Some(libc::EOPNOTSUPP | libc::ENOTTY) => Self::CannotSay,
            Some(errno) => Self::Errno(errno),
            None => Self::Errno(libc::EIO),
        }
    }
}

impl From<Failure> for AskError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Again => Self::Again,
            Failure::CannotSay => Self::CannotSay,
            Failure::Gone => Self::Gone,
            Failure::Errno(errno) => Self::Io(io::Error::from_raw_os_error(errno)),
        }
    }
}

type Outcome = Result<Found, Failure>;

/// The questions about one file: at most one works, the others wait.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    askers: u32,
    running: bool,
    started: u64,
    finished: u64,
    /// The file itself changed since its map was begun to be read.
    pub(crate) spoiled: bool,
    outcome: Option<Outcome>,
}

impl<B: Backing> Engine<B> {
    /// The answer without slow work.
    pub(crate) fn peek_answer(&self, file: FileKey) -> Option<Answer> {
        self.drain();
        let mut state = self.lock_for(file.device);
        let slot = state.table.find(file)?;
        let record = self.trusted_record(&mut state, slot)?;
        let numbers = record.numbers();
        if !state.is_calm(slot) {
            let age = u64::from(self.seconds().saturating_sub(record.at));
            return (age < self.limits.max_age.as_secs()).then_some(Answer {
                numbers,
                settled: false,
            });
        }
        state.table.touch(slot);
        if self.compares_stamps() {
            let expected = state.stamps.get(&file).copied();
            drop(state);
            let found = self
                .open(file)
                .and_then(|opened| self.backing.stamp(&opened));
            state = self.lock_for(file.device);
            if found.ok().is_none_or(|found| Some(found) != expected) {
                if self.has(Fault::CtimeOnly) {
                    state.drop_record(slot);
                } else {
                    state.foreign_change(file, Duration::ZERO);
                }
                return None;
            }
        }
        state.stats.hits += 1;
        Some(Answer {
            numbers,
            settled: true,
        })
    }

    /// Whether nothing speaks against the numbers of a file that has this stamp now. Where it was
    /// changed by others, that is taken in.
    pub(crate) fn stands(&self, file: FileKey, stamp: &Stamp) -> bool {
        if !self.compares_stamps() {
            return true;
        }
        let mut state = self.lock_for(file.device);
        let Some(slot) = state.table.find(file) else {
            return false;
        };
        if self.trusted_record(&mut state, slot).is_none() {
            return false;
        }
        let same = state.stamps.get(&file) == Some(stamp);
        // Active ones are looked at by every question anyway.
        if !same && state.is_calm(slot) {
            state.foreign_change(file, Duration::ZERO);
            return false;
        }
        true
    }

    /// Answers a question that needs work. One asker leads; others wait for a flight that starts
    /// after they asked, so that it has seen every change that had returned by then.
    pub(crate) fn ask(&self, file: FileKey, want: Want) -> Result<Found, AskError> {
        self.ask_as(file, want, Some(Instant::now() + self.limits.wait))
    }

    /// The same until `deadline`; without one the asker does itself whatever takes long.
    pub(crate) fn ask_as(
        &self,
        file: FileKey,
        want: Want,
        deadline: Option<Instant>,
    ) -> Result<Found, AskError> {
        let id = (file, want);
        let mut state = self.lock_for(file.device);
        state.stats.misses += 1;
        let space = state.space_of(file);
        let flight = state.flights.entry(id).or_default();
        flight.askers += 1;
        let need = flight.started + 1;
        let outcome = loop {
            let flight = state.flights.entry(id).or_default();
            if flight.finished >= need
                && let Some(outcome) = flight.outcome.clone()
            {
                break outcome;
            }
            if flight.running {
                match deadline {
                    None => self.changed.wait(&mut state),
                    Some(deadline) => {
                        if !self.changed.wait_until(&mut state, deadline) {
                            state.stats.timeouts += 1;
                            break Err(Failure::Again);
                        }
                    }
                }
                continue;
            }
            flight.running = true;
            flight.started += 1;
            state.space(space).readers += 1;
            drop(state);
            match self.fly(file, want, deadline) {
                Some(outcome) => self.land(file, want, outcome),
                None => self.in_background(move |engine| {
                    let outcome = engine.fly(file, want, None).unwrap_or(Err(Failure::Again));
                    engine.land(file, want, outcome);
                }),
            }
            state = self.lock_for(file.device);
        };
        let flight = state.flights.entry(id).or_default();
        flight.askers -= 1;
        if flight.askers == 0 && !flight.running {
            state.flights.remove(&id);
        }
        drop(state);
        outcome.map_err(AskError::from)
    }

    /// The end of a flight.
    fn land(&self, file: FileKey, want: Want, outcome: Outcome) {
        let mut state = self.lock_for(file.device);
        let space = state.space_of(file);
        let space = state.space(space);
        space.readers = space.readers.saturating_sub(1);
        if let Some(flight) = state.flights.get_mut(&(file, want)) {
            flight.running = false;
            flight.finished = flight.started;
            flight.outcome = Some(outcome);
            if flight.askers == 0 {
                state.flights.remove(&(file, want));
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// A flight. In the asker's own thread it has a deadline, and stops with `None` before
    /// anything that could take long: then one of the engine's threads has to fly.
    fn fly(&self, file: FileKey, want: Want, deadline: Option<Instant>) -> Option<Outcome> {
        match self.try_fly(file, want, deadline) {
            Ok(found) => found.map(Ok),
            Err(error) => Some(Err(error.into())),
        }
    }

    fn try_fly(
        &self,
        file: FileKey,
        want: Want,
        deadline: Option<Instant>,
    ) -> io::Result<Option<Found>> {
        let device = file.device;
        let hasty = deadline.is_some();
        let mut settled: Vec<FileKey> = Vec::new();
        for attempt in 0..ATTEMPTS {
            if hasty && (attempt > 0 || self.has_chores(file)) {
                return Ok(None);
            }
            self.make_ready(device)?;
            self.drain();
            self.look_at_foreign(device)?;
            let under_way = self.flush_removals(device)?;
            let doubt = self.in_doubt(device) || under_way;

            // What is known to be around it.
            let around = self.around(file, want, &settled);
            if hasty && !around.is_empty() {
                return Ok(None);
            }
            for other in around {
                if other == file {
                    self.settle_own(file)?;
                } else if self.learn_wild(other)? == Wild::Not || self.overlap(file, other) {
                    self.tame(other)?;
                } else {
                    // It has nothing to do with the file, as far as is known by now.
                    continue;
                }
                settled.push(other);
            }
            // Settling may have found files that are gone.
            let doubt = self.flush_removals(device)? || doubt;
            let mut state = self.lock_for(device);
            let space = state.space_of(file);
            if want == Want::Numbers
                && let Some(slot) = state.table.find(file)
                && let Some(record) = self.trusted_record(&mut state, slot)
            {
                state.stats.confirmed += 1;
                let settled = state.is_calm(slot);
                return Ok(Some(Found {
                    answer: Answer {
                        numbers: record.numbers(),
                        settled,
                    },
                    links: None,
                    stored: true,
                    map: None,
                }));
            }
            if state.awaits_removals(space) && !doubt && !self.has(Fault::NoRemovalFlush) {
                // Removed since they were carried out.
                continue;
            }
            let start = state.space(space).journal.now();
            if let Some(flight) = state.flights.get_mut(&(file, want)) {
                flight.spoiled = false;
            }
            let careful = state.active(file).is_some();
            drop(state);

            // Its map.
            let opened = match self.open(file) {
                Err(error) if error.raw_os_error() == Some(libc::ESTALE) => {
                    self.bury(file);
                    return Err(error);
                }
                opened => opened?,
            };
            if !self.watches && !settled.contains(&file) {
                self.backing.write_back(&opened)?;
            }
            let at_once = attempt >= AT_ONCE_FROM;
            let batch = if at_once { WHOLE } else { BATCH };
            let (map, stamp, batches) = match self.read_map(&opened, batch, careful, deadline)? {
                Reading::Whole(map, stamp, batches) => (map, stamp, batches),
                Reading::Torn => continue,
                Reading::TooLong => return Ok(None),
            };
            let cover = self.cover_of(device, &opened, &map)?;
            drop(opened);
            let credible = Credible::read_at(self.backing.now());
            // What others did before it was read belongs to the old cover.
            self.drain();

            // What the map shows to be around it.
            let mut around = self.lock_for(device).hot(space, &cover, true);
            around.retain(|other| *other != file && !settled.contains(other));
            if hasty && !around.is_empty() {
                return Ok(None);
            }
            let mut outdated = false;
            let mut learned = false;
            for other in around {
                // What was not known to share with the file may have done so until now.
                learned |= self.learn_wild(other)? != Wild::Not;
                if self.lock_for(device).covers(other, &cover) {
                    outdated |= self.tame(other)?;
                    settled.push(other);
                }
            }

            let numbers = ShareSummary::of(&map);
            let mut state = self.lock_for(device);
            let moved = learned || state.moved_since(file, want, start, &cover);
            let storable = !(moved || doubt && !cover.is_empty());
            if moved && (outdated || attempt == 0 || batches > 1) {
                continue;
            }
            let mut calm = false;
            if storable {
                let slot = state.ensure(file);
                state.learn_cover(slot, cover, credible);
                state.contradict(slot, &map);
                calm = state.is_calm(slot);
                if self.compares_stamps() {
                    state.stamps.insert(file, stamp);
                }
                state.store(slot, numbers, self.seconds());
            } else {
                state.stats.unstored += 1;
                state.stats.unsettled += u64::from(!moved);
            }
            return Ok(Some(Found {
                answer: Answer {
                    numbers,
                    settled: calm,
                },
                links: Some(stamp.links),
                stored: storable,
                map: (want == Want::Map).then(|| Arc::new(map)),
            }));
        }
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }

    /// Whether there is work to do before the file that may take long.
    fn has_chores(&self, file: FileKey) -> bool {
        let mut state = self.lock_for(file.device);
        let space = state.space_of(file);
        let ready = state.device(file.device).is_some_and(|device| {
            // Carrying out removals is quick but for whole subvolumes.
            let removed = match device.unit {
                SharingUnit::Item { .. } => device.removed >= device.removals,
                SharingUnit::Block | SharingUnit::None => true,
            };
            removed && device.barriers_done >= device.barriers_due
        });
        !ready || state.space(space).awaits_looks() || state.active(file).is_some()
    }

    /// The active files that have to be settled before the record of the file can be believed,
    /// or, where there is none, before its map is worth reading.
    fn around(&self, file: FileKey, want: Want, settled: &[FileKey]) -> Vec<FileKey> {
        let mut state = self.lock_for(file.device);
        let Some(slot) = state.table.find(file) else {
            return Vec::new();
        };
        let known = want == Want::Numbers && self.trusted_record(&mut state, slot).is_some();
        let space = state.space_of(file);
        let cover = state.cover(slot);
        let mut around = state.hot(space, &cover, cover.is_known() && !known);
        if state.active(file).is_some() && !around.contains(&file) {
            around.push(file);
        }
        around.retain(|other| !settled.contains(other));
        around
    }

    /// Whether two files may share, as far as their covers are known.
    fn overlap(&self, file: FileKey, other: FileKey) -> bool {
        let state = self.lock_for(file.device);
        match state.entry(file) {
            Some(entry) if entry.cover.is_known() => state.covers(other, &entry.cover),
            _ => true,
        }
    }

    /// The file's record, unless a change that was seen made it invalid or it is older than it
    /// may be.
    pub(crate) fn trusted_record(&self, state: &mut State, slot: Slot) -> Option<Record> {
        let record = state.record(slot)?;
        let age = u64::from(self.seconds().saturating_sub(record.at));
        self.limits
            .max_trust
            .is_none_or(|most| age < most.as_secs())
            .then_some(record)
    }

    /// Whether a record is compared with the file's own stamp at each question.
    pub(crate) fn compares_stamps(&self) -> bool {
        !self.watches || self.has(Fault::CtimeOnly)
    }
}

impl State {
    /// Whether a map read from `start` on may be out of date.
    fn moved_since(
        &mut self,
        file: FileKey,
        want: Want,
        start: super::journal::Moment,
        cover: &Cover,
    ) -> bool {
        let spoiled = self
            .flights
            .get(&(file, want))
            .is_some_and(|flight| flight.spoiled);
        let own = self.table.find(file);
        let own_changing = self.active(file).is_some_and(|active| active.changing > 0);
        let id = self.space_of(file);
        let space = self.space(id);
        if spoiled || own_changing || space.journal.concerns(start, cover) {
            return true;
        }
        if cover.is_empty() {
            return false;
        }
        let wild = space.wild.iter().any(|slot| Some(*slot) != own);
        let hot = space.hot.overlapping(cover);
        wild || hot.iter().any(|slot| {
            self.actives
                .get(&slot.0)
                .is_some_and(|active| active.changing > 0)
        })
    }
}
