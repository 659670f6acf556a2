//! Looking at many files at once, for scans: two short stays under the lock for a whole batch,
//! where a question takes several for one file.
//!
//! Only what needs nothing else is looked at here: files that are active, or share with active
//! ones, or change meanwhile, are left to [`Engine::look`].

use super::backing::{Backing, SharingUnit};
use super::cover::Cover;
use super::distinct::SharedParts;
use super::engine::{AskError, Engine};
use super::flight::{Found, Want};
use super::journal::Moment;
use super::key::{DeviceIndex, FileKey};
use super::settle::{BATCH, Reading};
use super::walk::Opened;
use crate::extent::{Extent, ExtentMap, FileOffset, MapBuilder, ShareSummary};
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
}

impl From<Found> for Look {
    fn from(found: Found) -> Self {
        let parts = found.map.as_deref().map(SharedParts::of);
        Self {
            numbers: found.answer.numbers,
            parts: parts.unwrap_or_default(),
            links: found.links,
            settled: found.answer.settled,
        }
    }
}

/// A map that was read, with what goes with it.
struct Read {
    map: ExtentMap,
    cover: Cover,
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

    /// Opens those of the files that are not active, so that they can be surveyed.
    pub(crate) fn open_idle(&self, files: &[FileKey]) -> Vec<Opened<B::File>> {
        let Some(first) = files.first() else {
            return Vec::new();
        };
        let mut state = self.lock_for(first.device);
        let idle: Vec<FileKey> = files
            .iter()
            .copied()
            .filter(|&file| file.device == first.device && state.active(file).is_none())
            .collect();
        drop(state);
        idle.into_iter()
            .filter_map(|key| {
                let file = self.backing.open(key).ok()?;
                let stamp = self.backing.stamp(&file).ok()?;
                Some(Opened { key, file, stamp })
            })
            .collect()
    }

    /// Looks at open files of one device. Each gets its answer, or `None` where that takes more
    /// than reading its map.
    pub fn survey(&self, files: &[Opened<B::File>]) -> Vec<Option<Look>> {
        let looks = match files.first() {
            Some(first) => self.try_survey(first.key.device, files),
            None => Ok(Vec::new()),
        };
        looks.unwrap_or_else(|error| {
            log::debug!("looking at {} files at once: {error}", files.len());
            files.iter().map(|_| None).collect()
        })
    }

    fn try_survey(
        &self,
        device: DeviceIndex,
        files: &[Opened<B::File>],
    ) -> io::Result<Vec<Option<Look>>> {
        self.make_ready(device)?;
        self.drain();
        self.look_at_foreign(device)?;
        self.flush_removals(device)?;
        let doubt = self.in_doubt(device);
        let (start, unit, taken) = self.begin_survey(device, files);
        let mut records = Vec::new();
        let read: Vec<Option<Read>> = files
            .iter()
            .zip(&taken)
            .map(|(file, &taken)| {
                let read = || self.read_for_survey(unit, file, &mut records);
                taken.then(read)?.ok().flatten()
            })
            .collect();
        Ok(self.end_survey(device, files, &taken, read, start, doubt))
    }

    /// Notes what is being read, so that a change of it is noticed; which files may be.
    fn begin_survey(
        &self,
        device: DeviceIndex,
        files: &[Opened<B::File>],
    ) -> (Moment, SharingUnit, Vec<bool>) {
        let mut state = self.lock_for(device);
        let unit = state
            .device(device)
            .map_or(SharingUnit::None, |device| device.unit);
        let taken = files
            .iter()
            .map(|file| {
                let free = file.key.device == device
                    && state.active(file.key).is_none()
                    && !state.surveyed.contains_key(&file.key);
                if free {
                    state.surveyed.insert(file.key, false);
                }
                free
            })
            .collect();
        let id = state.device(device).map_or(0, |device| device.space);
        let space = state.space(id);
        space.readers += 1;
        (space.journal.now(), unit, taken)
    }

    /// The map of a file and its cover; `None` when it changed between two batches.
    fn read_for_survey(
        &self,
        unit: SharingUnit,
        file: &Opened<B::File>,
        records: &mut Vec<Extent>,
    ) -> io::Result<Option<Read>> {
        if !self.watches {
            self.backing.write_back(&file.file)?;
        }
        records.clear();
        let last = self
            .backing
            .map(&file.file, FileOffset(0), BATCH, records)?;
        let map = if last {
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
        Ok(Some(Read { map, cover }))
    }

    /// Stores what nothing happened to meanwhile.
    fn end_survey(
        &self,
        device: DeviceIndex,
        files: &[Opened<B::File>],
        taken: &[bool],
        read: Vec<Option<Read>>,
        start: Moment,
        doubt: bool,
    ) -> Vec<Option<Look>> {
        // Parts and numbers are made before the lock is taken.
        let ready: Vec<_> = read
            .into_iter()
            .map(|read| {
                let Read { map, cover } = read?;
                Some((ShareSummary::of(&map), SharedParts::of(&map), cover))
            })
            .collect();
        let now = self.seconds();
        let mut state = self.lock_for(device);
        let id = state.device(device).map_or(0, |device| device.space);
        state.stats.fiemap_calls += ready.len() as u64;
        let compares = self.compares_stamps();
        let looks = ready
            .into_iter()
            .zip(files)
            .zip(taken)
            .map(|((ready, file), &taken)| {
                let spoiled = taken && state.surveyed.remove(&file.key).unwrap_or(true);
                let (numbers, parts, cover) = ready?;
                let space = state.space(id);
                let quiet = !spoiled
                    && space.foreign.is_empty()
                    && !space.journal.concerns(start, &cover)
                    && (cover.is_empty() || (space.wild.is_empty() && !doubt))
                    && state.active(file.key).is_none()
                    && state.hot(id, &cover, true).is_empty();
                if !quiet {
                    return None;
                }
                let slot = state.ensure(file.key);
                state.learn_cover(slot, cover);
                if compares {
                    state.stamps.insert(file.key, file.stamp);
                }
                state.store(slot, numbers, now);
                Some(Look {
                    numbers,
                    parts,
                    links: file.stamp.links,
                    settled: true,
                })
            })
            .collect();
        let space = state.space(id);
        space.readers = space.readers.saturating_sub(1);
        looks
    }
}
