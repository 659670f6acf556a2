//! The cover of a file: a few physical ranges that contain everything it shares.
//!
//! Invariants:
//! - a known cover is a superset of the space through which the file can affect others or be
//!   affected by them: its shared blocks, or the extent items behind its shared extents;
//! - it stays one for as long as no copy names the file, because other changes only end sharing;
//! - its ranges are sorted and do not touch, and are at most [`Cover::LIMIT`].

use crate::extent::{Bytes, Extent, ExtentMap, PhysRange, Physical};
use std::sync::Arc;

/// What is known of the space that a file shares with others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cover {
    /// Nothing.
    #[default]
    Unknown,
    /// It shares nothing.
    Empty,
    /// It shares exactly within this range.
    One(PhysRange),
    /// It shares exactly within these ranges.
    Exact(Arc<[PhysRange]>),
    /// What it shares lies within these ranges, which hold other space too.
    Hulls(Arc<[PhysRange]>),
}

impl Cover {
    /// The most ranges a cover has.
    pub(crate) const LIMIT: usize = 32;

    /// The cover of a file on a filesystem that shares by block.
    pub(crate) fn of_blocks(map: &ExtentMap) -> Self {
        Self::of_ranges(map.shared().filter_map(Extent::phys_range), true)
    }

    /// The cover of a file on a filesystem that shares by extent item, of which `items` are those
    /// that the file references, where they could be read, and none is larger than `largest`.
    pub(crate) fn of_items(map: &ExtentMap, items: Option<Vec<PhysRange>>, largest: Bytes) -> Self {
        let mut items = items.unwrap_or_default();
        items.sort_unstable();
        let mut all_found = true;
        let ranges: Vec<_> = map
            .shared()
            .filter_map(|extent| {
                let range = extent.phys_range()?;
                let before = items.partition_point(|item| item.start <= range.start);
                let item = before.checked_sub(1).and_then(|at| items.get(at));
                Some(match item {
                    Some(item) if range.end <= item.end => *item,
                    _ if extent.is_addressed() => {
                        all_found = false;
                        widened(range, largest)
                    }
                    // The key of an encoded extent is the address of its item.
                    _ => range,
                })
            })
            .collect();
        Self::of_ranges(ranges, all_found)
    }

    /// The smallest cover of these ranges; `exact` when they hold nothing else.
    fn of_ranges(ranges: impl IntoIterator<Item = PhysRange>, exact: bool) -> Self {
        let mut merged = merged(ranges);
        let fits = merged.len() <= Self::LIMIT;
        if !fits {
            merged = hulls(&merged);
        }
        match (merged.as_slice(), exact && fits) {
            ([], _) => Self::Empty,
            ([range], true) => Self::One(*range),
            (_, true) => Self::Exact(merged.into()),
            (_, false) => Self::Hulls(merged.into()),
        }
    }

    /// A few ranges that contain all of these.
    pub(crate) fn around(ranges: &[PhysRange]) -> Self {
        Self::of_ranges(ranges.iter().copied(), false)
    }

    /// Whether it has a byte in common with any of these sorted ranges.
    pub(crate) fn overlaps_any(&self, others: &[PhysRange]) -> bool {
        self.ranges().iter().any(|range| {
            let next = others.partition_point(|other| other.end <= range.start);
            others
                .get(next)
                .is_some_and(|other| other.start < range.end)
        })
    }

    /// The whole address space.
    pub(crate) fn of_everything() -> Self {
        Self::Hulls(Arc::new([PhysRange::new(Physical(0), Bytes(u64::MAX))]))
    }

    /// The ranges; none when unknown or empty.
    pub(crate) fn ranges(&self) -> &[PhysRange] {
        match self {
            Self::Unknown | Self::Empty => &[],
            Self::One(range) => std::slice::from_ref(range),
            Self::Exact(ranges) | Self::Hulls(ranges) => ranges,
        }
    }

    /// Whether it is known.
    pub(crate) fn is_known(&self) -> bool {
        *self != Self::Unknown
    }

    /// Whether it is known that nothing is shared.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::Empty
    }

    /// Whether the two have a byte in common. An unknown cover has none.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let (mut ours, mut theirs) = (self.ranges(), other.ranges());
        while let ([a, a_rest @ ..], [b, b_rest @ ..]) = (ours, theirs) {
            if a.overlaps(b) {
                return true;
            }
            if a.end <= b.end {
                ours = a_rest;
            } else {
                theirs = b_rest;
            }
        }
        false
    }

    /// Whether every range of `other` lies within one of this one's.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        contains(self.ranges(), other.ranges())
    }

    /// Bytes it takes beside its own size.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Unknown | Self::Empty | Self::One(_) => 0,
            Self::Exact(ranges) | Self::Hulls(ranges) => size_of_val::<[PhysRange]>(ranges) + 24,
        }
    }
}

/// Whether every range of `inner` lies within one of `outer`; both are merged and sorted.
pub(crate) fn contains(outer: &[PhysRange], inner: &[PhysRange]) -> bool {
    inner.iter().all(|range| {
        let before = outer.partition_point(|own| own.start <= range.start);
        before
            .checked_sub(1)
            .and_then(|at| outer.get(at))
            .is_some_and(|own| range.end <= own.end)
    })
}

/// The first list without what is in the second, both sorted and merged; `None` when that is all
/// of it.
pub(crate) fn without(list: &[PhysRange], taken: &[PhysRange]) -> Option<Vec<PhysRange>> {
    let mut rest = Vec::new();
    let mut any = false;
    for range in list {
        let mut start = range.start;
        let first = taken.partition_point(|other| other.end <= range.start);
        for other in taken.iter().skip(first) {
            if other.start >= range.end {
                break;
            }
            any = true;
            if other.start > start {
                rest.push(PhysRange {
                    start,
                    end: other.start,
                });
            }
            start = start.max(other.end);
        }
        if start < range.end {
            rest.push(PhysRange {
                start,
                end: range.end,
            });
        }
    }
    any.then_some(rest)
}

/// The ranges sorted, and merged where they touch.
fn merged(ranges: impl IntoIterator<Item = PhysRange>) -> Vec<PhysRange> {
    let mut ranges: Vec<_> = ranges.into_iter().collect();
    ranges.sort_unstable();
    let mut merged: Vec<PhysRange> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Everything on disk that a map shows as not shared, sorted and merged.
pub(crate) fn exclusive_ranges(map: &ExtentMap) -> Vec<PhysRange> {
    let exclusive = map.extents().iter().filter(|extent| !extent.is_shared());
    merged(exclusive.filter_map(Extent::phys_range))
}

/// Everything that a map shows as shared, sorted and merged.
pub(crate) fn shared_ranges(map: &ExtentMap) -> Vec<PhysRange> {
    merged(map.shared().filter_map(Extent::phys_range))
}

pub(super) fn widened(range: PhysRange, by: Bytes) -> PhysRange {
    PhysRange {
        start: Physical(range.start.0.saturating_sub(by.0)),
        end: range.end.plus(by),
    }
}

/// Joins the closest of sorted ranges until [`Cover::LIMIT`] are left.
fn hulls(ranges: &[PhysRange]) -> Vec<PhysRange> {
    let gap = |at: usize| match (ranges.get(at), ranges.get(at + 1)) {
        (Some(left), Some(right)) => right.start.0 - left.end.0,
        _ => 0,
    };
    let mut splits: Vec<usize> = (0..ranges.len().saturating_sub(1)).collect();
    let kept = (Cover::LIMIT - 1).min(splits.len());
    if kept < splits.len() {
        splits.select_nth_unstable_by_key(kept, |at| std::cmp::Reverse(gap(*at)));
        splits.truncate(kept);
    }
    splits.sort_unstable();
    let mut hulls: Vec<PhysRange> = Vec::with_capacity(kept + 1);
    let mut open: Option<PhysRange> = None;
    let mut splits = splits.into_iter().peekable();
    for (at, range) in ranges.iter().enumerate() {
        let hull = open.map_or(*range, |hull| PhysRange {
            start: hull.start,
            end: range.end,
        });
        if splits.next_if_eq(&at).is_some() {
            hulls.push(hull);
            open = None;
        } else {
            open = Some(hull);
        }
    }
    hulls.extend(open);
    hulls
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::extent::{Extent, ExtentFlags, FileOffset, MapBuilder};
    use proptest::prelude::*;

    fn range(start: u64, end: u64) -> PhysRange {
        PhysRange {
            start: Physical(start),
            end: Physical(end),
        }
    }

    fn cover(ranges: &[(u64, u64)]) -> Cover {
        Cover::of_ranges(ranges.iter().map(|(start, end)| range(*start, *end)), true)
    }

    fn map(extents: &[(u64, u64, ExtentFlags)]) -> ExtentMap {
        let mut builder = MapBuilder::new(Bytes(1 << 40), Bytes(4096));
        let mut logical = 0;
        for (physical, length, flags) in extents {
            builder.push(Extent {
                logical: FileOffset(logical),
                physical: Physical(*physical),
                length: Bytes(*length),
                flags: *flags,
            });
            logical += length + 4096;
        }
        builder.finish()
    }

    #[test]
    fn what_is_taken_out_leaves_the_rest() {
        let list = [range(0, 10), range(20, 30), range(40, 50)];
        let taken = [range(2, 4), range(8, 25), range(39, 51)];
        let rest = without(&list, &taken).unwrap();
        assert_eq!(rest, [range(0, 2), range(4, 8), range(25, 30)]);
        assert_eq!(without(&list, &[range(10, 20), range(60, 70)]), None);
        assert!(Cover::around(&list).overlaps_any(&[range(0, 1)]));
        assert!(!Cover::around(&list).overlaps_any(&[range(10, 20), range(30, 40)]));
    }

    #[test]
    fn only_shared_extents_are_covered() {
        let map = map(&[
            (0x1000, 0x1000, ExtentFlags::empty()),
            (0x8000, 0x2000, ExtentFlags::SHARED),
        ]);
        assert_eq!(Cover::of_blocks(&map), cover(&[(0x8000, 0xa000)]));
        assert!(cover(&[]).is_empty());
    }

    #[test]
    fn an_item_covers_more_than_its_referenced_part() {
        let map = map(&[(0x8000, 0x1000, ExtentFlags::SHARED)]);
        let items = Some(vec![range(0x4000, 0x10000), range(0x20000, 0x30000)]);
        assert_eq!(
            Cover::of_items(&map, items, Bytes(0x100000)),
            cover(&[(0x4000, 0x10000)])
        );
    }

    #[test]
    fn without_items_a_cover_reaches_as_far_as_the_largest_item() {
        let map = map(&[(0x80000, 0x1000, ExtentFlags::SHARED)]);
        let widened = Cover::of_items(&map, None, Bytes(0x1000));
        assert_eq!(widened.ranges(), [range(0x7f000, 0x82000)]);
        assert!(matches!(widened, Cover::Hulls(_)));
    }

    #[test]
    fn encoded_extents_are_keys() {
        let map = map(&[(0x80000, 0x20000, ExtentFlags::SHARED | ExtentFlags::ENCODED)]);
        assert_eq!(
            Cover::of_items(&map, None, Bytes(0x1000)),
            cover(&[(0x80000, 0x80001)])
        );
    }

    proptest! {
        #[test]
        fn hulls_contain_what_they_join(starts in proptest::collection::btree_set(0u64..100_000, 0..200)) {
            let ranges: Vec<_> = starts.iter().map(|start| range(start * 8, start * 8 + 4)).collect();
            let joined = Cover::of_ranges(ranges.iter().copied(), true);
            prop_assert!(joined.ranges().len() <= Cover::LIMIT);
            for own in &ranges {
                prop_assert!(joined.contains(&Cover::One(*own)));
            }
            prop_assert_eq!(matches!(joined, Cover::Hulls(_)), ranges.len() > Cover::LIMIT);
            prop_assert!(joined.ranges().windows(2).all(|pair| pair[0].end < pair[1].start));
        }

        #[test]
        fn overlap_is_symmetric_and_equals_the_naive_one(
            left in proptest::collection::vec((0u64..400, 1u64..20), 0..12),
            right in proptest::collection::vec((0u64..400, 1u64..20), 0..12),
        ) {
            let as_ranges = |list: &[(u64, u64)]| list.iter().map(|(start, len)| range(*start, start + len)).collect::<Vec<_>>();
            let (a, b) = (as_ranges(&left), as_ranges(&right));
            let naive = a.iter().any(|x| b.iter().any(|y| x.overlaps(y)));
            let (a, b) = (Cover::of_ranges(a, true), Cover::of_ranges(b, true));
            prop_assert_eq!(a.overlaps(&b), naive);
            prop_assert_eq!(b.overlaps(&a), naive);
        }
    }
}
