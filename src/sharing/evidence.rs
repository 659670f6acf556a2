//! What a file was known to share before somebody else changed it.
//!
//! When a file's map shows something as shared after a foreign change, either that was shared
//! before, or the change made the file a clone of others, which nobody names and whose records
//! are wrong from then on. Evidence tells the two apart.
//!
//! Invariant: no current record of another file counts a block as exclusive that credible evidence
//! holds. Therefore
//! - a record that is stored takes what it found to be exclusive out of all evidence;
//! - what a map shows counts only once every change visible in it is known to have been reported,
//!   since who has to be told of a clone is told when it is reported, and it is seen in the map
//!   before: the reading must be older than the last look at the reports by [`CTIME_LEAD`], or the
//!   file's ctime older than the reading.

use super::active::CTIME_LEAD;
use super::backing::Stamp;
use super::cover::{Cover, contains, without};
use super::space::SpaceId;
use super::state::State;
use super::table::Slot;
use crate::extent::{ExtentMap, PhysRange};
use std::sync::Arc;
use std::time::Duration;

/// From which look at the reports on something that was read counts as evidence: seconds of the
/// filesystem's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credible(u32);

impl Credible {
    /// At once.
    pub(crate) const ALWAYS: Self = Self(0);
    /// Not at all.
    pub(crate) const NEVER: Self = Self(u32::MAX);

    /// What was read by `now`.
    pub(crate) fn read_at(now: Duration) -> Self {
        // Rounded up.
        let seconds = (now + CTIME_LEAD).as_secs() + 1;
        Self(u32::try_from(seconds).unwrap_or(u32::MAX))
    }

    /// What was read between `before` and `stamp`.
    pub(crate) fn stamped(before: Duration, stamp: &Stamp) -> Self {
        if stamp.is_older(before) {
            Self::ALWAYS
        } else {
            Self::read_at(before)
        }
    }

    /// Whether it counts for a change that was reported after `looked`.
    fn counts(self, looked: Duration) -> bool {
        looked.as_secs() >= self.0.into()
    }
}

/// What is known of an active file that others change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    /// What counts for the change whose map is to be looked at next.
    before: Option<Arc<[PhysRange]>>,
    /// What the last look after a foreign change showed: it was shared before, or everything was
    /// forgotten then.
    shown: Option<Arc<[PhysRange]>>,
}

impl Evidence {
    /// Takes these ranges out.
    fn withdraw(&mut self, exclusive: &[PhysRange]) {
        for list in self.before.iter_mut().chain(&mut self.shown) {
            if let Some(rest) = without(list, exclusive) {
                *list = rest.into();
            }
        }
    }
}

impl State {
    /// Keeps what counts for a foreign change of the file that was reported after `looked`.
    pub(super) fn keep_evidence(&mut self, slot: Slot, looked: Duration) {
        let cover = self
            .table
            .get(slot)
            .filter(|entry| entry.credible.counts(looked))
            .map(|entry| entry.cover.clone());
        let known = match cover {
            Some(Cover::Unknown | Cover::Hulls(_)) | None => None,
            Some(cover) => Some(cover.ranges().into()),
        };
        let Some(active) = self.actives.get_mut(&slot.0) else {
            return;
        };
        let before = active.evidence.shown.clone().or(known);
        let holds_any = before.as_ref().is_some_and(|ranges| !ranges.is_empty());
        active.evidence.before = before;
        if holds_any {
            self.note_evidence(slot);
        }
    }

    /// Whether everything that the file's map shows as shared after a foreign change was shared
    /// before; `None` stands for a file that is gone.
    pub(super) fn explains(&self, slot: Slot, ranges: Option<&[PhysRange]>) -> bool {
        let before = self
            .actives
            .get(&slot.0)
            .and_then(|active| active.evidence.before.as_deref())
            .unwrap_or_default();
        ranges.is_none_or(|ranges| contains(before, ranges))
    }

    /// Takes in what the file's map showed as shared, of which everybody was told who had to be.
    pub(super) fn add_evidence(&mut self, slot: Slot, ranges: Arc<[PhysRange]>) {
        let holds_any = !ranges.is_empty();
        if let Some(active) = self.actives.get_mut(&slot.0) {
            active.evidence.shown = Some(ranges);
            if holds_any {
                self.note_evidence(slot);
            }
        }
    }

    fn note_evidence(&mut self, slot: Slot) {
        if let Some(file) = self.table.get(slot).map(|entry| entry.key) {
            let space = self.space_of(file);
            self.space(space).evidenced.insert(slot);
        }
    }

    /// A record of this map is stored: what is exclusive in it is no evidence for others.
    pub(crate) fn contradict(&mut self, slot: Slot, map: &ExtentMap) {
        let Some(file) = self.table.get(slot).map(|entry| entry.key) else {
            return;
        };
        if !self.watches {
            return;
        }
        let id = self.space_of(file);
        let space = self.space(id);
        if space.index.len() == 0 && space.evidenced.is_empty() {
            return;
        }
        let exclusive = super::cover::exclusive_ranges(map);
        if exclusive.is_empty() {
            return;
        }
        self.withdraw_in(id, slot, &exclusive);
    }

    fn withdraw_in(&mut self, id: SpaceId, slot: Slot, exclusive: &[PhysRange]) {
        let space = self.space(id);
        let hulls = Cover::around(exclusive);
        let doubtful = space.index.overlapping(&hulls);
        let evidenced: Vec<_> = space.evidenced.iter().copied().collect();
        for other in doubtful.into_iter().filter(|other| *other != slot) {
            if let Some(entry) = self.table.get_mut(other)
                && entry.credible != Credible::NEVER
                && entry.cover.overlaps_any(exclusive)
            {
                entry.credible = Credible::NEVER;
            }
        }
        for other in evidenced.into_iter().filter(|other| *other != slot) {
            match self.actives.get_mut(&other.0) {
                Some(active) => active.evidence.withdraw(exclusive),
                None => {
                    self.space(id).evidenced.remove(&other);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::extent::{Bytes, Physical};

    fn ranges(list: &[(u64, u64)]) -> Arc<[PhysRange]> {
        list.iter()
            .map(|(start, end)| PhysRange {
                start: Physical(*start),
                end: Physical(*end),
            })
            .collect()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_old_ctime_counts_at_once() {
        let stamp = Stamp {
            ctime: (100, 0),
            size: Bytes(0),
            block: Bytes(4096),
            links: 1,
        };
        assert_eq!(Credible::stamped(at(101), &stamp), Credible::ALWAYS);
        assert_ne!(Credible::stamped(at(100), &stamp), Credible::ALWAYS);
        assert!(!Credible::NEVER.counts(at(1 << 31)));
    }

    #[test]
    fn what_a_record_shows_to_be_exclusive_is_withdrawn() {
        let mut evidence = Evidence {
            shown: Some(ranges(&[(0, 8), (16, 24)])),
            before: Some(ranges(&[(6, 7)])),
        };
        evidence.withdraw(&ranges(&[(4, 20)]));
        assert_eq!(evidence.shown.unwrap(), ranges(&[(0, 4), (20, 24)]));
        assert_eq!(evidence.before.unwrap(), ranges(&[]));
    }
}
