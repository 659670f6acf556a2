//! Numbers of files: taking them in, and the distinct shared bytes of directories.

use super::node::{DirSlot, FileFlags, FileSlot, Tick};
use super::{Step, Tree};
use crate::extent::{Bytes, ShareSummary};
use crate::sharing::distinct::{Coverage, SharedParts};
use crate::sharing::key::FileKey;
use hashbrown::HashSet;

/// How many entries (of up to 32 bytes) all coverages may hold together before the least recently
/// used ones go. One directory's always stays.
const COVERAGE_LIMIT: usize = 1 << 20;

/// What was learnt of a file in one look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Its numbers.
    pub numbers: ShareSummary,
    /// Its shared parts.
    pub parts: SharedParts,
    /// Number of its names on disk.
    pub links: u32,
    /// It could not be looked at: counted with no bytes, and as left out.
    pub unreadable: bool,
}

impl Measured {
    /// A file that could not be looked at.
    #[must_use]
    pub fn unreadable() -> Self {
        Self {
            links: 1,
            unreadable: true,
            ..Self::default()
        }
    }
}

/// Whether numbers hold until the file is marked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// They do.
    Settled,
    /// They may change without a mark (the file or a sharer is open for write): they answer the
    /// question they were obtained for, the next one must look again.
    Once,
    /// As [`Trust::Once`], and nobody else knows them, so nobody can confirm them.
    Unkept,
}

impl Tree {
    /// Takes in what work begun at `began` learnt of a file. Nothing happens when the file is not
    /// known any more or later work was faster.
    pub fn settle(&mut self, key: FileKey, began: Tick, measured: Measured, trust: Trust) {
        if let Some(slot) = self.find_file(key) {
            self.settle_slot(slot, began, measured, trust);
        }
    }

    pub(super) fn settle_slot(
        &mut self,
        slot: FileSlot,
        began: Tick,
        measured: Measured,
        trust: Trust,
    ) {
        let Some(node) = self.files.get(slot) else {
            return;
        };
        if began < node.settled {
            return;
        }
        // More extents than FIEMAP can count in one file (32 bits) do not occur.
        let (Ok(extents), Ok(shared_extents)) = (
            u32::try_from(measured.numbers.extents),
            u32::try_from(measured.numbers.shared_extents),
        ) else {
            return;
        };
        let parts_differ = node.parts != measured.parts;
        if node.parts != SharedParts::None || measured.parts != SharedParts::None {
            self.sharing += 1;
        }
        let numbers_differ = node.numbers() != measured.numbers
            || node.links != measured.links
            || node.flags.contains(FileFlags::UNREADABLE) != measured.unreadable
            || !node.flags.contains(FileFlags::KNOWN);
        let below = if parts_differ || numbers_differ {
            self.names_below(slot)
        } else {
            smallvec::SmallVec::new()
        };
        if parts_differ {
            for &(dir, _) in &below {
                self.note_parts(dir, slot, Step::Leave);
            }
        }
        let Some(node) = self.files.get_mut(slot) else {
            return;
        };
        let before: smallvec::SmallVec<[_; 24]> =
            below.iter().map(|&(_, names)| node.share(names)).collect();
        node.bytes = measured.numbers.bytes.0;
        node.shared_bytes = measured.numbers.shared_bytes.0;
        node.extents = extents;
        node.shared_extents = shared_extents;
        node.links = measured.links;
        node.flags.insert(FileFlags::KNOWN);
        node.flags.set(FileFlags::UNREADABLE, measured.unreadable);
        node.settled = began;
        if trust == Trust::Settled && node.marked < began {
            node.flags.remove(FileFlags::UNSETTLED);
        }
        if parts_differ {
            self.parts_heap += measured.parts.heap_bytes();
            self.parts_heap -= node.parts.heap_bytes();
            node.parts = measured.parts;
        }
        for (&(dir, names), before) in below.iter().zip(before) {
            let after = node.share(names);
            if let Some(dir) = self.dirs.get_mut(dir) {
                dir.sums = dir.sums.plus(after).minus(before);
            }
        }
        if parts_differ {
            for &(dir, _) in &below {
                self.note_parts(dir, slot, Step::Enter);
            }
        }
        self.distrust(slot, began, trust);
    }

    /// Has numbers that are not settled looked at again by the next question.
    pub(super) fn distrust(&mut self, slot: FileSlot, began: Tick, trust: Trust) {
        match trust {
            Trust::Settled => {}
            Trust::Once => self.unsettle(slot),
            Trust::Unkept => self.mark_at(slot, began),
        }
    }

    /// Whether a file is unsettled only because it may change without a mark: no mark came since
    /// its numbers were obtained.
    #[must_use]
    pub fn is_only_watched(&self, key: FileKey) -> bool {
        self.find_file(key)
            .and_then(|slot| self.files.get(slot))
            .is_some_and(|node| {
                node.flags.contains(FileFlags::UNSETTLED | FileFlags::KNOWN)
                    && node.marked < node.settled
            })
    }

    /// Takes in that work begun at `began` found the numbers of a file as they were. Nothing
    /// happens, and `false` comes back, when it was marked meanwhile.
    pub fn confirm(&mut self, key: FileKey, began: Tick, trust: Trust) -> bool {
        if !self.is_only_watched(key) {
            return false;
        }
        let slot = self.find_file(key);
        if let Some(node) = slot.and_then(|slot| self.files.get_mut(slot)) {
            node.settled = node.settled.max(began);
            node.flags
                .set(FileFlags::UNSETTLED, trust != Trust::Settled);
        }
        true
    }

    /// The numbers of a file as they stand, if they were ever learnt.
    #[must_use]
    pub fn numbers(&self, key: FileKey) -> Option<ShareSummary> {
        let node = self.files.get(self.find_file(key)?)?;
        node.flags
            .contains(FileFlags::KNOWN)
            .then(|| node.numbers())
    }

    /// Notes that the shared parts of a file enter or leave what is below a directory.
    pub(super) fn note_parts(&mut self, dir: DirSlot, slot: FileSlot, step: Step) {
        let (Some(file), Some(node)) = (self.files.get(slot), self.dirs.get_mut(dir)) else {
            return;
        };
        if file.parts == SharedParts::None {
            return;
        }
        self.sharing += 1;
        node.distinct = None;
        let space = self.spaces.get(&file.device).copied();
        let Some(coverage) = &mut node.coverage else {
            return;
        };
        coverage.note(space.unwrap_or(file.device.0), &file.parts, step);
        if coverage.is_overdue() {
            node.coverage = None;
            self.covered.retain(|&known| known != dir);
        }
    }

    /// Forgets the distinct bytes of a directory and what they were made from.
    pub(super) fn drop_distinct(&mut self, dir: DirSlot) {
        self.sharing += 1;
        let Some(node) = self.dirs.get_mut(dir) else {
            return;
        };
        node.distinct = None;
        if node.coverage.take().is_some() {
            self.covered.retain(|&known| known != dir);
        }
    }

    /// Distinct physical bytes among the shared extents below.
    pub(super) fn distinct(&mut self, dir: DirSlot) -> Bytes {
        let now = self.tick;
        let Some(node) = self.dirs.get_mut(dir) else {
            return Bytes::ZERO;
        };
        if node.sums.shared_extents == 0 {
            return Bytes::ZERO;
        }
        if let Some(known) = node.distinct {
            return known;
        }
        let mut coverage = match node.coverage.take() {
            Some(coverage) => coverage,
            None => {
                self.covered.push(dir);
                Box::new(self.build_coverage(dir))
            }
        };
        let distinct = coverage.distinct();
        if let Some(node) = self.dirs.get_mut(dir) {
            node.distinct = Some(distinct);
            node.coverage = Some(coverage);
            node.used = now;
        }
        self.shed_coverages(dir);
        distinct
    }

    /// Everything shared below, each file once.
    fn build_coverage(&self, dir: DirSlot) -> Coverage {
        let mut coverage = Coverage::default();
        let mut seen = HashSet::new();
        for below in self.dirs_below(dir) {
            let Some(node) = self.dirs.get(below) else {
                continue;
            };
            for &slot in &node.files {
                let Some(file) = self.files.get(slot) else {
                    continue;
                };
                let first = !file.flags.contains(FileFlags::SEVERAL) || seen.insert(slot);
                if first && file.shared_extents > 0 {
                    coverage.note(self.space(file.device), &file.parts, Step::Enter);
                }
            }
        }
        coverage
    }

    /// Keeps the coverages within their limit; their results stay.
    fn shed_coverages(&mut self, keep: DirSlot) {
        let size = |tree: &Self, dir: DirSlot| {
            tree.dirs
                .get(dir)
                .and_then(|node| node.coverage.as_ref())
                .map_or(0, |coverage| coverage.len())
        };
        let mut total: usize = self.covered.iter().map(|&dir| size(self, dir)).sum();
        while total > COVERAGE_LIMIT {
            let oldest = self
                .covered
                .iter()
                .copied()
                .filter(|&dir| dir != keep)
                .min_by_key(|&dir| self.dirs.get(dir).map(|node| node.used));
            let Some(oldest) = oldest else { break };
            total -= size(self, oldest);
            if let Some(node) = self.dirs.get_mut(oldest) {
                node.coverage = None;
            }
            self.covered.retain(|&known| known != oldest);
        }
    }
}
