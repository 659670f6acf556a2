//! The journal of an address space: where changes happened while maps were being read.
//!
//! A map that was read is stored only if nothing in the journal since before the reading
//! concerns it. Kept only while anybody reads.

use super::cover::Cover;

/// A moment in the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

/// Changes to sharing, in their order.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    now: Moment,
    entries: Vec<(Moment, Cover)>,
    unknown: Moment,
    everything: Moment,
}

impl Journal {
    const LIMIT: usize = 1024;

    /// The moment to compare with later.
    pub(crate) fn now(&self) -> Moment {
        self.now
    }

    /// What lies in this cover may have lost sharing; with an unknown cover, anything shared.
    pub(crate) fn note(&mut self, cover: &Cover, anybody_reads: bool) {
        if cover.is_empty() {
            return;
        }
        self.now.0 += 1;
        if !anybody_reads {
            self.entries.clear();
        } else if !cover.is_known() || self.entries.len() >= Self::LIMIT {
            self.unknown = self.now;
            self.entries.clear();
        } else {
            self.entries.push((self.now, cover.clone()));
        }
    }

    /// Anything may have changed, also from exclusive to shared.
    pub(crate) fn note_everything(&mut self) {
        self.now.0 += 1;
        self.everything = self.now;
        self.entries.clear();
    }

    /// Whether a map with this cover, read from `start` on, may be out of date.
    pub(crate) fn concerns(&self, start: Moment, cover: &Cover) -> bool {
        self.everything > start
            || (!cover.is_empty()
                && (self.unknown > start
                    || self
                        .entries
                        .iter()
                        .rev()
                        .take_while(|(moment, _)| *moment > start)
                        .any(|(_, changed)| changed.overlaps(cover))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::{PhysRange, Physical};

    fn cover(start: u64, end: u64) -> Cover {
        Cover::One(PhysRange {
            start: Physical(start),
            end: Physical(end),
        })
    }

    #[test]
    fn only_later_changes_to_the_same_space_concern_a_map() {
        let mut journal = Journal::default();
        journal.note(&cover(0, 10), true);
        let start = journal.now();
        journal.note(&cover(20, 30), true);
        assert!(!journal.concerns(start, &cover(0, 20)));
        assert!(journal.concerns(start, &cover(25, 40)));
        assert!(!journal.concerns(journal.now(), &cover(25, 40)));
        journal.note(&Cover::Unknown, true);
        assert!(journal.concerns(start, &cover(0, 20)));
        assert!(!journal.concerns(start, &Cover::Empty));
        journal.note_everything();
        assert!(journal.concerns(start, &Cover::Empty));
    }

    #[test]
    fn a_full_journal_errs_towards_change() {
        let mut journal = Journal::default();
        let start = journal.now();
        for at in 0..2000 {
            journal.note(&cover(at * 10, at * 10 + 5), true);
        }
        assert!(journal.concerns(start, &cover(1_000_000, 1_000_001)));
    }
}
