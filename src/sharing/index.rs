//! The extent index: which files have a range of their cover in a given range.
//!
//! Ranges are kept by the class of their length (its logarithm, rounded up) and then by start, so
//! that a look-up visits, in each class that has any, only starts at most one class length before
//! the range in question: one huge range does not slow the look-up of small ones. Files with one
//! and the same cover of several ranges, as the clones of a fragmented file have, are in it as one
//! group, so that a look-up costs the ranges once and not once a clone.

use super::cover::Cover;
use super::table::Slot;
use crate::extent::PhysRange;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Whose a range is: a file's, or a group's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Owner(u32);

impl Owner {
    const FIRST: Self = Self(0);
    /// Set for groups. Slots stay below: a table of so many files does not fit in memory.
    const GROUP: u32 = 1 << 31;

    fn of_file(slot: Slot) -> Self {
        Self(slot.0 & !Self::GROUP)
    }

    fn of_group(group: u32) -> Self {
        Self(group | Self::GROUP)
    }

    fn group(self) -> Option<u32> {
        (self.0 & Self::GROUP != 0).then_some(self.0 & !Self::GROUP)
    }
}

/// Class, start and end of a range, and whose it is.
type Key = (u8, u64, u64, Owner);

/// How many owners of one and the same range that is not wanted are passed over one by one
/// before the rest is skipped.
const PATIENCE: u32 = 8;

/// Ranges of covers, found by overlap.
#[derive(Debug, Default)]
pub(crate) struct ExtentIndex {
    ranges: BTreeSet<Key>,
    classes: BTreeMap<u8, usize>,
    groups: HashMap<Arc<[PhysRange]>, u32>,
    members: BTreeMap<u32, Vec<Slot>>,
    next_group: u32,
}

impl ExtentIndex {
    /// What one range takes in memory, inner nodes and free room in nodes included.
    pub(crate) const BYTES_PER_RANGE: usize = 40;

    /// Adds every range of the file's cover.
    pub(crate) fn insert(&mut self, slot: Slot, cover: &Cover) {
        let ranges = match cover {
            Cover::Unknown | Cover::Empty => return,
            Cover::One(range) => return self.insert_range(range, Owner::of_file(slot)),
            Cover::Exact(ranges) | Cover::Hulls(ranges) => ranges,
        };
        if let Some(group) = self.groups.get(ranges) {
            let members = self.members.entry(*group).or_default();
            if let Err(at) = members.binary_search(&slot) {
                members.insert(at, slot);
            }
            return;
        }
        while self.members.contains_key(&self.next_group) {
            self.next_group = (self.next_group + 1) & !Owner::GROUP;
        }
        let group = self.next_group;
        self.next_group = (group + 1) & !Owner::GROUP;
        self.groups.insert(Arc::clone(ranges), group);
        self.members.insert(group, vec![slot]);
        for range in ranges.iter() {
            self.insert_range(range, Owner::of_group(group));
        }
    }

    /// Takes out every range of the file's cover.
    pub(crate) fn remove(&mut self, slot: Slot, cover: &Cover) {
        let ranges = match cover {
            Cover::Unknown | Cover::Empty => return,
            Cover::One(range) => return self.remove_range(range, Owner::of_file(slot)),
            Cover::Exact(ranges) | Cover::Hulls(ranges) => ranges,
        };
        let Some(group) = self.groups.get(ranges).copied() else {
            return;
        };
        if let Some(members) = self.members.get_mut(&group) {
            if let Ok(at) = members.binary_search(&slot) {
                members.remove(at);
            }
            if !members.is_empty() {
                return;
            }
        }
        self.members.remove(&group);
        self.groups.remove(ranges);
        for range in ranges.iter() {
            self.remove_range(range, Owner::of_group(group));
        }
    }

    fn insert_range(&mut self, range: &PhysRange, owner: Owner) {
        let class = class(range);
        if self
            .ranges
            .insert((class, range.start.0, range.end.0, owner))
        {
            *self.classes.entry(class).or_default() += 1;
        }
    }

    fn remove_range(&mut self, range: &PhysRange, owner: Owner) {
        let class = class(range);
        if self
            .ranges
            .remove(&(class, range.start.0, range.end.0, owner))
            && let Some(count) = self.classes.get_mut(&class)
        {
            *count -= 1;
            if *count == 0 {
                self.classes.remove(&class);
            }
        }
    }

    /// Number of ranges, those of a group counted once.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether any file but this one has a range that overlaps the cover.
    pub(crate) fn overlaps(&self, cover: &Cover, except: Option<Slot>) -> bool {
        self.visit(cover, |owner| {
            let other = match owner.group() {
                None => Some(Slot(owner.0)) != except,
                Some(group) => self
                    .members
                    .get(&group)
                    .is_some_and(|members| members.iter().any(|slot| Some(*slot) != except)),
            };
            if other {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .is_break()
    }

    /// The files whose covers overlap this one, each once.
    pub(crate) fn overlapping(&self, cover: &Cover) -> Vec<Slot> {
        let mut owners = Vec::new();
        if self.ranges.is_empty() {
            return Vec::new();
        }
        let _ = self.visit(cover, |owner| {
            owners.push(owner);
            ControlFlow::Continue(())
        });
        owners.sort_unstable();
        owners.dedup();
        let mut found = Vec::with_capacity(owners.len());
        for owner in owners {
            match owner.group() {
                None => found.push(Slot(owner.0)),
                Some(group) => found.extend(self.members.get(&group).into_iter().flatten()),
            }
        }
        found
    }

    /// Visits the owner of every range that overlaps the cover, one with several of them several
    /// times, until `visit` breaks.
    fn visit(
        &self,
        cover: &Cover,
        mut visit: impl FnMut(Owner) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        for wanted in cover.ranges() {
            for class in self.classes.keys() {
                self.visit_class(*class, wanted, &mut visit)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn visit_class(
        &self,
        class: u8,
        wanted: &PhysRange,
        visit: &mut impl FnMut(Owner) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let reach = 1u64.checked_shl(class.into()).unwrap_or(u64::MAX) - 1;
        let (mut first, past) = (wanted.start.0.saturating_sub(reach), wanted.end.0);
        let mut after = 0;
        'seek: loop {
            let from = (class, first, after, Owner::FIRST);
            let mut passed = 0;
            for (_, start, end, owner) in self.ranges.range(from..(class, past, 0, Owner::FIRST)) {
                if *end > wanted.start.0 {
                    visit(*owner)?;
                    continue;
                }
                passed += 1;
                if passed >= PATIENCE {
                    // Many clones have this range, or others before the wanted one.
                    (first, after) = (*start, *end + 1);
                    continue 'seek;
                }
            }
            return ControlFlow::Continue(());
        }
    }
}

/// The smallest n with a length of at most 2^n.
fn class(range: &PhysRange) -> u8 {
    let bits = u64::BITS - (range.len().0.max(1) - 1).leading_zeros();
    u8::try_from(bits).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::Physical;
    use proptest::prelude::*;

    fn one(start: u64, length: u64) -> Cover {
        Cover::One(PhysRange {
            start: Physical(start),
            end: Physical(start + length),
        })
    }

    proptest! {
        #[test]
        fn finds_exactly_what_overlaps(
            held in proptest::collection::vec((0u64..5000, prop_oneof![1u64..9, 100u64..4000]), 0..60),
            gone in proptest::collection::vec(any::<bool>(), 60),
            wanted in (0u64..6000, 1u64..500),
        ) {
            let mut index = ExtentIndex::default();
            for (at, (start, length)) in held.iter().enumerate() {
                index.insert(Slot(at as u32), &one(*start, *length));
            }
            for (at, (start, length)) in held.iter().enumerate() {
                if gone[at] {
                    index.remove(Slot(at as u32), &one(*start, *length));
                }
            }
            let wanted = one(wanted.0, wanted.1);
            let naive: Vec<_> = held
                .iter()
                .enumerate()
                .filter(|(at, (start, length))| !gone[*at] && one(*start, *length).overlaps(&wanted))
                .map(|(at, _)| Slot(at as u32))
                .collect();
            prop_assert_eq!(index.overlapping(&wanted), naive);
        }
    }

    #[test]
    fn the_files_of_one_range_are_found_whatever_lies_before_it() {
        let mut index = ExtentIndex::default();
        for slot in 0..1000 {
            index.insert(Slot(slot), &one(0, 100));
            index.insert(Slot(slot), &one(1000, 100));
            index.insert(Slot(slot), &one(1050 + u64::from(slot), 70));
        }
        let all: Vec<_> = (0..1000).map(Slot).collect();
        assert_eq!(index.overlapping(&one(1090, 5)), all);
        assert_eq!(index.overlapping(&one(120, 5)), []);
        assert_eq!(index.overlapping(&one(1105, 1)), all[..56]);
    }

    #[test]
    fn files_with_one_cover_are_a_group_and_leave_it_one_by_one() {
        let ranges = [(0u64, 10u64), (20, 30)].map(|(start, end)| PhysRange {
            start: Physical(start),
            end: Physical(end),
        });
        let cover = Cover::Exact(Arc::new(ranges));
        let mut index = ExtentIndex::default();
        for slot in 0..3 {
            index.insert(Slot(slot), &cover);
        }
        assert_eq!(index.len(), 2);
        assert_eq!(index.overlapping(&one(5, 100)), [Slot(0), Slot(1), Slot(2)]);
        index.remove(Slot(1), &cover);
        assert_eq!(index.overlapping(&one(25, 1)), [Slot(0), Slot(2)]);
        assert!(index.overlaps(&one(25, 1), Some(Slot(0))));
        index.remove(Slot(0), &cover);
        assert!(!index.overlaps(&one(25, 1), Some(Slot(2))));
        index.remove(Slot(2), &cover);
        assert!(index.ranges.is_empty() && index.groups.is_empty() && index.members.is_empty());
    }

    #[test]
    fn a_range_up_to_the_end_of_the_address_space_is_found() {
        let mut index = ExtentIndex::default();
        let all = one(0, u64::MAX);
        index.insert(Slot(7), &all);
        assert_eq!(index.overlapping(&one(u64::MAX - 8, 4)), [Slot(7)]);
        index.remove(Slot(7), &all);
        assert!(index.ranges.is_empty());
    }
}
