//! The extent index: which files have a range of their cover in a given range.
//!
//! Ranges are kept by the class of their length (its logarithm, rounded up) and then by start, so
//! that a look-up visits, in each class that has any, only starts at most one class length before
//! the range in question: one huge range does not slow the look-up of small ones.

use super::cover::Cover;
use super::table::Slot;
use crate::extent::PhysRange;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Class, start and file of a range.
type Key = (u8, u64, Slot);

/// Ranges of covers, found by overlap.
#[derive(Debug, Default)]
pub(crate) struct ExtentIndex {
    ends: BTreeMap<Key, u64>,
    classes: BTreeMap<u8, usize>,
}

impl ExtentIndex {
    /// What one range takes in memory, inner nodes and free room in nodes included.
    pub(crate) const BYTES_PER_RANGE: usize = 40;

    /// Adds every range of the file's cover.
    pub(crate) fn insert(&mut self, slot: Slot, cover: &Cover) {
        for range in cover.ranges() {
            let class = class(range);
            if self
                .ends
                .insert((class, range.start.0, slot), range.end.0)
                .is_none()
            {
                *self.classes.entry(class).or_default() += 1;
            }
        }
    }

    /// Takes out every range of the file's cover.
    pub(crate) fn remove(&mut self, slot: Slot, cover: &Cover) {
        for range in cover.ranges() {
            let class = class(range);
            if self.ends.remove(&(class, range.start.0, slot)).is_some()
                && let Some(count) = self.classes.get_mut(&class)
            {
                *count -= 1;
                if *count == 0 {
                    self.classes.remove(&class);
                }
            }
        }
    }

    /// Whether it holds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Visits the file of every range that overlaps the cover, a file with several of them
    /// several times, until `visit` breaks.
    pub(crate) fn visit(&self, cover: &Cover, mut visit: impl FnMut(Slot) -> ControlFlow<()>) {
        for wanted in cover.ranges() {
            for class in self.classes.keys() {
                let reach = 1u64.checked_shl(u32::from(*class)).unwrap_or(u64::MAX) - 1;
                let first = (*class, wanted.start.0.saturating_sub(reach), Slot::FIRST);
                let past = (*class, wanted.end.0, Slot::FIRST);
                for ((_, _, slot), end) in self.ends.range(first..past) {
                    if *end > wanted.start.0 && visit(*slot).is_break() {
                        return;
                    }
                }
            }
        }
    }

    /// The files whose covers overlap this one, each once.
    pub(crate) fn overlapping(&self, cover: &Cover) -> Vec<Slot> {
        let mut found = Vec::new();
        if !self.is_empty() {
            self.visit(cover, |slot| {
                found.push(slot);
                ControlFlow::Continue(())
            });
            found.sort_unstable();
            found.dedup();
        }
        found
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
    fn a_range_up_to_the_end_of_the_address_space_is_found() {
        let mut index = ExtentIndex::default();
        let all = one(0, u64::MAX);
        index.insert(Slot(7), &all);
        assert_eq!(index.overlapping(&one(u64::MAX - 8, 4)), [Slot(7)]);
        index.remove(Slot(7), &all);
        assert!(index.is_empty());
    }
}
