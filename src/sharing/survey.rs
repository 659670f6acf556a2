//! Looking at many files at once, for scans: two short stays under the lock for a whole batch,
//! where a question takes several for one file.
//!
//! Only what needs nothing else is looked at here: files that are active, or share with active
//! ones, or change meanwhile, are left to [`Engine::look`].

use super::backing::{Backing, SharingUnit};
use super::cover::Cover;
use super::distinct::SharedParts;
use super::engine::{AskError, Engine};
use super::evidence::Credible;
use super::flight::{Found, Want};
use super::journal::Moment;
use super::key::{DeviceIndex, FileKey};
use super::settle::{BATCH, Reading};
use super::state::State;
use super::sync::Mutex;
use super::walk::Opened;
use crate::extent::{Extent, ExtentMap, FileOffset, MapBuilder, ShareSummary};
use crate::sys::reason;
use hashbrown::HashSet;
use std::collections::BTreeSet;
use std::io;
use std::time::Instant;

/// Everything that one look at a file tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Its numbers.
    pub numbers: ShareSummary,
    /// Its shared parts.
    pub parts: SharedParts,
    /// Number of its names.
    pub links: u32,
    /// They stay right until [`Engine::take_unsettled`] names the file; otherwise something
    /// around it may change unseen, and the next question has to look again.
    pub settled: bool,
    /// They are in the file's record, so that [`Engine::confirm`] speaks of them.
    pub(crate) stored: bool,
}

impl From<Found> for Look {
    fn from(found: Found) -> Self {
        let parts = found.map.as_deref().map(SharedParts::of);
        Self {
            numbers: found.answer.numbers,
            parts: parts.unwrap_or_default(),
            links: found.links.unwrap_or(1),
            settled: found.answer.settled,
            stored: found.stored,
        }
    }
}

/// What a look at one of many files found.
pub(crate) enum Seen {
    /// The record stands as it was stored; whether it stays right until
    /// [`Engine::take_unsettled`] names the file.
    Confirmed(bool),
    /// Its map.
    Looked(Look),
}

/// Files whose maps are being read.
struct Survey<'a, B: Backing> {
    device: DeviceIndex,
    files: &'a [Opened<B::File>],
    /// Active files that were settled just before.
    settled: &'a HashSet<FileKey>,
    /// Which of the files are read; the others are in other hands.
    taken: Vec<bool>,
    unit: SharingUnit,
    /// Under which changes of its files are noted.
    number: u64,
    start: Moment,
}

/// A map that was read, with what goes with it.
struct Read {
    map: ExtentMap,
    cover: Cover,
    credible: Credible,
}

impl<B: Backing> Engine<B> {
    /// Looks at a file whose numbers are not known, whatever it takes until `deadline`.
    ///
    /// # Errors
    /// See [`AskError`].
    pub fn look(&self, file: FileKey, deadline: Instant) -> Result<Look, AskError> {
        self.drain();
        self.ask_as(file, Want::Map, Some(deadline)).map(Look::from)
    }

    /// The same, however long it takes. For threads that nobody waits for with a deadline.
    ///
    /// # Errors
    /// See [`AskError`].
    pub(crate) fn look_patiently(&self, file: FileKey) -> Result<Look, AskError> {
        self.drain();
        self.ask_as(file, Want::Map, None).map(Look::from)
    }

    /// Settles what is around a file that has a record, and tells whether the record stands as it
    /// was stored, and if so whether it stays right until [`Engine::take_unsettled`] names the
    /// file.
    ///
    /// # Errors
    /// See [`AskError`].
    pub(crate) fn confirm(
        &self,
        file: FileKey,
        deadline: Instant,
    ) -> Result<Option<bool>, AskError> {
        if let Some(answer) = self.peek_answer(file) {
            return Ok(Some(answer.settled));
        }
        let found = self.ask_as(file, Want::Numbers, Some(deadline))?;
        Ok(found.links.is_none().then_some(found.answer.settled))
    }

    /// Settles once for all whatever is active among files of one device, or known to share with
    /// one of them. What could be is to be given to [`Engine::look_at_all`].
    pub(crate) fn settle_around(&self, files: &[FileKey]) -> HashSet<FileKey> {
        let mut settled = HashSet::new();
        let Some(first) = files.first() else {
            return settled;
        };
        let device = first.device;
        let ready = self.make_ready(device).and_then(|()| {
            self.drain();
            self.look_at_foreign(device)
        });
        if let Err(error) = ready {
            log::debug!("settling {} files at once: {}", files.len(), reason(&error));
            return settled;
        }
        for other in self.around_all(device, files) {
            // What cannot be settled is left for the questions about those that share with it.
            let done = if files.contains(&other) {
                self.settle_own(other)
            } else {
                self.tame(other)
            };
            if done.is_ok() {
                settled.insert(other);
            }
        }
        settled
    }

    /// Looks at files of one device around which everything was settled. Each gets what was found,
    /// or `None` where that takes more. With `known`, a record that stands is confirmed instead of
    /// mapped again.
    pub(crate) fn look_at_all(
        &self,
        files: &[FileKey],
        known: &[bool],
        settled: &HashSet<FileKey>,
    ) -> Vec<Option<Seen>> {
        let seen = match files.first() {
            Some(first) => self.try_look_at_all(first.device, files, known, settled),
            None => Ok(Vec::new()),
        };
        seen.unwrap_or_else(|error| unlooked(files.len(), &error))
    }

    fn try_look_at_all(
        &self,
        device: DeviceIndex,
        files: &[FileKey],
        known: &[bool],
        settled: &HashSet<FileKey>,
    ) -> io::Result<Vec<Option<Seen>>> {
        self.flush_removals(device)?;
        let mut state = self.lock_for(device);
        let mut seen: Vec<Option<Seen>> = files
            .iter()
            .zip(known)
            .map(|(&file, &known)| {
                let slot = state.table.find(file).filter(|_| known)?;
                self.trusted_record(&mut state, slot)?;
                let around = state.cover(slot);
                let id = state.device(device).map_or(0, |device| device.space);
                let around = state.hot(id, &around, false);
                state.stats.confirmed += 1;
                around
                    .iter()
                    .all(|other| settled.contains(other))
                    .then(|| Seen::Confirmed(state.is_calm(slot)))
            })
            .collect();
        drop(state);
        let held = self.holds.walk();
        let (places, opened): (Vec<usize>, Vec<_>) = files
            .iter()
            .enumerate()
            .filter(|(at, file)| file.device == device && matches!(seen.get(*at), Some(None)))
            .filter_map(|(at, &key)| {
                let file = self.backing.open(key).ok()?;
                let stamp = self.backing.stamp(&file).ok()?;
                Some((at, Opened { key, file, stamp }))
            })
            .unzip();
        let looks = self.try_survey(device, &opened, settled, None);
        drop(opened);
        drop(held);
        let looks = looks?;
        for (at, look) in places.into_iter().zip(looks) {
            if let Some(place) = seen.get_mut(at) {
                *place = look.map(Seen::Looked);
            }
        }
        Ok(seen)
    }

    /// Active files among these, and those that are known to share with one of them.
    fn around_all(&self, device: DeviceIndex, files: &[FileKey]) -> BTreeSet<FileKey> {
        let mut state = self.lock_for(device);
        let id = state.device(device).map_or(0, |device| device.space);
        let mut around = BTreeSet::new();
        for &file in files {
            let Some(slot) = state.table.find(file).filter(|_| file.device == device) else {
                continue;
            };
            if state.active(file).is_some() {
                around.insert(file);
            }
            let cover = state.cover(slot);
            around.extend(state.hot(id, &cover, false));
        }
        around
    }

    /// Looks at open files of one device. Each gets its answer, or `None` where that takes more
    /// than reading its map. The maps are read with `lane` held.
    pub(crate) fn survey(
        &self,
        files: &[Opened<B::File>],
        lane: Option<&Mutex<()>>,
    ) -> Vec<Option<Look>> {
        let looks = match files.first() {
            Some(first) => self.try_survey(first.key.device, files, &HashSet::new(), lane),
            None => Ok(Vec::new()),
        };
        looks.unwrap_or_else(|error| unlooked(files.len(), &error))
    }

    /// Reads the maps of files. `settled` are active ones that were settled just before.
    fn try_survey(
        &self,
        device: DeviceIndex,
        files: &[Opened<B::File>],
        settled: &HashSet<FileKey>,
        lane: Option<&Mutex<()>>,
    ) -> io::Result<Vec<Option<Look>>> {
        self.make_ready(device)?;
        self.drain();
        self.look_at_foreign(device)?;
        self.flush_removals(device)?;
        let doubt = self.in_doubt(device);
        let (survey, awaits_removals) = self.begin_survey(device, files, settled);
        let doubt = doubt || awaits_removals;
        let mut records = Vec::new();
        let held = lane.map(|lane| lane.lock());
        let read: Vec<Option<Read>> = files
            .iter()
            .zip(&survey.taken)
            .map(|(file, &taken)| {
                let careful = settled.contains(&file.key);
                let read = || self.read_for_survey(survey.unit, file, careful, &mut records);
                taken.then(read)?.ok().flatten()
            })
            .collect();
        drop(held);
        Ok(self.end_survey(&survey, read, doubt))
    }

    /// Notes what is being read, so that a change of it is noticed; which files may be, and whether
    /// something was removed that still may be shown as shared.
    fn begin_survey<'a>(
        &self,
        device: DeviceIndex,
        files: &'a [Opened<B::File>],
        settled: &'a HashSet<FileKey>,
    ) -> (Survey<'a, B>, bool) {
        let mut state = self.lock_for(device);
        let unit = state
            .device(device)
            .map_or(SharingUnit::None, |device| device.unit);
        let taken = files
            .iter()
            .map(|file| file.key.device == device && state.is_settled(file.key, settled))
            .collect();
        state.surveys_begun += 1;
        let number = state.surveys_begun;
        state.surveys.insert(number, Vec::new());
        let id = state.device(device).map_or(0, |device| device.space);
        let awaits_removals = state.awaits_removals(id);
        let space = state.space(id);
        space.readers += 1;
        let survey = Survey {
            device,
            files,
            settled,
            taken,
            unit,
            number,
            start: space.journal.now(),
        };
        (survey, awaits_removals)
    }

    /// The map of a file and its cover; `None` when it changed between two batches.
    fn read_for_survey(
        &self,
        unit: SharingUnit,
        file: &Opened<B::File>,
        careful: bool,
        records: &mut Vec<Extent>,
    ) -> io::Result<Option<Read>> {
        if !self.watches {
            self.backing.write_back(&file.file)?;
        }
        records.clear();
        let before = self.backing.now();
        let last = self
            .backing
            .map(&file.file, FileOffset(0), BATCH, records)?;
        let map = if last && !careful {
            let mut builder = MapBuilder::new(file.stamp.size, file.stamp.block);
            for record in records.drain(..) {
                if !builder.push(record) {
                    break;
                }
            }
            builder.finish()
        } else {
            match self.read_map(&file.file, BATCH, true, None)? {
                Reading::Whole(map, ..) => map,
                Reading::Torn | Reading::TooLong => return Ok(None),
            }
        };
        let cover = match unit {
            SharingUnit::None => Cover::Empty,
            SharingUnit::Block => Cover::of_blocks(&map),
            SharingUnit::Item { .. } if map.shared().next().is_none() => Cover::Empty,
            SharingUnit::Item { largest } => {
                Cover::of_items(&map, self.backing.items(&file.file)?, largest)
            }
        };
        // Only what shares is worth asking for its stamp, which has to be one of after the reading.
        let credible = if cover.is_empty() {
            Credible::ALWAYS
        } else {
            Credible::stamped(before, &self.backing.stamp(&file.file)?)
        };
        Ok(Some(Read {
            map,
            cover,
            credible,
        }))
    }

    /// Stores what nothing happened to meanwhile.
    fn end_survey(
        &self,
        survey: &Survey<'_, B>,
        read: Vec<Option<Read>>,
        doubt: bool,
    ) -> Vec<Option<Look>> {
        let &Survey {
            device,
            files,
            settled,
            start,
            ..
        } = survey;
        // Parts and numbers are made before the lock is taken.
        let ready: Vec<_> = read
            .into_iter()
            .map(|read| {
                let Read {
                    map,
                    cover,
                    credible,
                } = read?;
                let parts = SharedParts::of(&map);
                Some((map, parts, credible, cover))
            })
            .collect();
        let now = self.seconds();
        let mut state = self.lock_for(device);
        let id = state.device(device).map_or(0, |device| device.space);
        state.stats.fiemap_calls += ready.len() as u64;
        let spoiled = state.surveys.remove(&survey.number).unwrap_or_default();
        let quiet: Vec<_> = ready
            .into_iter()
            .zip(files)
            .map(|(ready, file)| {
                let (map, parts, credible, cover) = ready?;
                let space = state.space(id);
                let moved = space.awaits_looks()
                    || space.journal.concerns(start, &cover)
                    || spoiled.contains(&file.key);
                let calm = state.is_settled(file.key, settled)
                    && state
                        .hot(id, &cover, false)
                        .into_iter()
                        .all(|other| state.is_settled(other, settled));
                let known = !moved && calm && (cover.is_empty() || !doubt);
                known.then(|| (state.ensure(file.key), map, parts, credible, cover))
            })
            .collect();
        // Covers first: nothing shared is stored while the cover of an active file is not known.
        for (slot, .., credible, cover) in quiet.iter().flatten() {
            state.learn_cover(*slot, cover.clone(), *credible);
        }
        let compares = self.compares_stamps();
        let wild = !state.space(id).wild.is_empty();
        let looks = quiet
            .into_iter()
            .zip(files)
            .map(|(quiet, file)| {
                let (slot, map, parts, ..) =
                    quiet.filter(|(.., cover)| cover.is_empty() || !wild)?;
                if compares {
                    state.stamps.insert(file.key, file.stamp);
                }
                let numbers = ShareSummary::of(&map);
                state.contradict(slot, &map);
                state.store(slot, numbers, now);
                Some(Look {
                    numbers,
                    parts,
                    links: file.stamp.links,
                    settled: state.is_calm(slot),
                    stored: true,
                })
            })
            .collect();
        let space = state.space(id);
        space.readers = space.readers.saturating_sub(1);
        looks
    }
}

impl State {
    /// Whether a file is not active, or was just settled and is not changing.
    fn is_settled(&mut self, file: FileKey, settled: &HashSet<FileKey>) -> bool {
        self.actives.is_empty()
            || self
                .active(file)
                .is_none_or(|active| active.changing == 0 && settled.contains(&file))
    }
}

/// Nothing was found because something failed that has nothing to do with a single file.
fn unlooked<T>(files: usize, error: &io::Error) -> Vec<Option<T>> {
    log::debug!("looking at {files} files at once: {}", reason(error));
    (0..files).map(|_| None).collect()
}
