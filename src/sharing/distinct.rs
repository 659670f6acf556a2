//! Distinct bytes among shared extents: what many files occupy together, each block counted once.
//!
//! A [`Coverage`] is a multiset of the shared parts of many files. Parts with an address are kept
//! as steps: at each address, by how much the number of references changes; so clones of one file
//! cost nothing more than the first. Encoded extents are kept by their key, since ranges of
//! compressed extents overlap without sharing a byte.
//!
//! Invariants:
//! - the steps of a space are sorted, none is zero, every prefix sum is >= 0, the last one is 0;
//! - taking a part out takes out what was put in, no more: callers remove the value they added.
//!
//! What counts for a key that several records reference: FIEMAP says how much of the extent item
//! each record references, not which part, so the union of the parts cannot be had. The largest
//! length referenced by one record is taken: never more than the item holds, exact when the item
//! is referenced whole.

use crate::extent::{Bytes, Extent, ExtentFlags, ExtentMap};

/// A shared part of a file, as a physical range or as the key of an encoded extent item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SharedPart {
    /// `start` is a key that stands for one extent item, not an address.
    pub encoded: bool,
    /// Physical address of the first byte, or the key.
    pub start: u64,
    /// Length in bytes (encoded: uncompressed). Never 0.
    pub length: u64,
}

/// The shared parts of one file, normalised: sorted; ranges neither overlap nor touch (a block
/// that a file shares with itself is there once); each key once, with its largest length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SharedParts {
    /// No shared extents.
    #[default]
    None,
    /// One part, kept without an allocation: most files have at most one.
    One(SharedPart),
    /// Several.
    Many(Box<[SharedPart]>),
}

impl SharedParts {
    /// The shared parts of a map. Shared extents without an address or a key (inline ones are
    /// never shared) are left out.
    #[must_use]
    pub fn of(map: &ExtentMap) -> Self {
        Self::normalise(map.shared().filter_map(part).collect())
    }

    /// Sorts and merges.
    #[must_use]
    pub fn normalise(mut parts: Vec<SharedPart>) -> Self {
        parts.retain(|part| part.length > 0);
        if let [only] = parts.as_slice() {
            return Self::One(*only);
        }
        parts.sort_unstable();
        let mut merged: Vec<SharedPart> = Vec::with_capacity(parts.len());
        for part in parts {
            match merged.last_mut() {
                Some(last) if last.encoded && part.encoded && last.start == part.start => {
                    last.length = last.length.max(part.length);
                }
                Some(last)
                    if !last.encoded
                        && !part.encoded
                        && part.start <= end(last.start, last.length) =>
                {
                    let reach = end(last.start, last.length).max(end(part.start, part.length));
                    last.length = reach - last.start;
                }
                _ => merged.push(part),
            }
        }
        match merged.as_slice() {
            [] => Self::None,
            [only] => Self::One(*only),
            _ => Self::Many(merged.into_boxed_slice()),
        }
    }

    /// The parts, sorted.
    #[must_use]
    pub fn as_slice(&self) -> &[SharedPart] {
        match self {
            Self::None => &[],
            Self::One(part) => std::slice::from_ref(part),
            Self::Many(parts) => parts,
        }
    }

    /// Whether the two have a physical byte or a key in common.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        let (mut left, mut right) = (self.as_slice(), other.as_slice());
        while let ([a, after_a @ ..], [b, after_b @ ..]) = (left, right) {
            if a.encoded == b.encoded {
                let common = if a.encoded {
                    a.start == b.start
                } else {
                    a.start < end(b.start, b.length) && b.start < end(a.start, a.length)
                };
                if common {
                    return true;
                }
            }
            let a_first =
                (a.encoded, end(a.start, a.length)) <= (b.encoded, end(b.start, b.length));
            let a_first = if a.encoded && b.encoded {
                a.start <= b.start
            } else {
                a_first
            };
            if a_first {
                left = after_a;
            } else {
                right = after_b;
            }
        }
        false
    }

    /// Bytes of memory beyond the value itself.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Many(parts) => size_of_val::<[SharedPart]>(parts),
            Self::None | Self::One(_) => 0,
        }
    }
}

/// The part that an extent holds.
fn part(extent: &Extent) -> Option<SharedPart> {
    let range = extent.phys_range()?;
    Some(SharedPart {
        encoded: extent.flags.contains(ExtentFlags::ENCODED),
        start: range.start.0,
        length: extent.length.0,
    })
}

/// One past the last byte; saturates.
fn end(start: u64, length: u64) -> u64 {
    start.saturating_add(length)
}

/// Whether parts enter or leave a [`Coverage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The file is below, or the part is new.
    Enter,
    /// The file has gone, or the part has.
    Leave,
}

/// The distinct bytes of a changing multiset of shared parts, see the module's text.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    spaces: Vec<(u16, Space)>,
    waiting: Vec<Waiting>,
}

/// A part that has not been merged yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    space: u16,
    part: SharedPart,
    by: i64,
}

/// One physical address space.
#[derive(Clone, Debug, Default)]
struct Space {
    steps: Counted<u64>,
    keys: Counted<(u64, u64)>,
    distinct: u64,
}

impl Coverage {
    /// Notes that the parts of a file in this address space enter or leave. Cheap: they are
    /// merged in when the total is asked for.
    pub fn note(&mut self, space: u16, parts: &SharedParts, step: Step) {
        let by = match step {
            Step::Enter => 1,
            Step::Leave => -1,
        };
        self.waiting.extend(
            parts
                .as_slice()
                .iter()
                .map(|&part| Waiting { space, part, by }),
        );
    }

    /// Distinct physical bytes. Costs nothing when nothing was noted since the last time, else
    /// one pass over the steps.
    pub fn distinct(&mut self) -> Bytes {
        let waiting = std::mem::take(&mut self.waiting);
        for Waiting { space, .. } in &waiting {
            if !self.spaces.iter().any(|(known, _)| known == space) {
                self.spaces.push((*space, Space::default()));
            }
        }
        for (space, known) in &mut self.spaces {
            let changes = waiting.iter().filter(|change| change.space == *space);
            known.take_in(changes);
        }
        Bytes(self.spaces.iter().map(|(_, space)| space.distinct).sum())
    }

    /// How many entries it holds; each is at most 32 bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
            + self
                .spaces
                .iter()
                .map(|(_, space)| space.steps.0.len() + space.keys.0.len())
                .sum::<usize>()
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether so much waits to be merged that building it anew costs no more.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        self.waiting.len() > 4096 && self.waiting.len() * 2 > self.len()
    }
}

impl Space {
    /// Merges changes in and counts anew.
    fn take_in<'a>(&mut self, changes: impl Iterator<Item = &'a Waiting>) {
        let (mut steps, mut keys) = (Vec::new(), Vec::new());
        for &Waiting { part, by, .. } in changes {
            if part.encoded {
                keys.push(((part.start, part.length), by));
            } else {
                steps.push((part.start, by));
                steps.push((end(part.start, part.length), -by));
            }
        }
        if steps.is_empty() && keys.is_empty() {
            return;
        }
        self.steps.merge(steps);
        self.keys.merge(keys);
        let (mut distinct, mut covered, mut since) = (0_u64, 0_i64, 0_u64);
        for &(at, by) in &self.steps.0 {
            if covered > 0 {
                distinct += at - since;
            }
            covered += by;
            since = at;
        }
        let mut largest: Option<(u64, u64)> = None;
        for &((key, length), _) in &self.keys.0 {
            match largest {
                Some((known, _)) if known == key => {}
                Some((_, before)) => distinct += before,
                None => {}
            }
            // Sorted by key, then length: the last one of a key is its largest.
            largest = Some((key, length));
        }
        self.distinct = distinct + largest.map_or(0, |(_, length)| length);
    }
}

/// A sorted multiset: how often each value counts, never 0 times.
#[derive(Clone, Debug)]
struct Counted<T>(Vec<(T, i64)>);

impl<T> Default for Counted<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Ord + Copy> Counted<T> {
    /// Adds the counts of `changes`, in any order.
    fn merge(&mut self, mut changes: Vec<(T, i64)>) {
        if changes.is_empty() {
            return;
        }
        changes.sort_unstable_by_key(|&(value, _)| value);
        let before = std::mem::take(&mut self.0);
        let mut merged = Vec::with_capacity(before.len() + changes.len());
        let mut left = before.into_iter().peekable();
        let mut right = changes.into_iter().peekable();
        loop {
            let next = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) if a.0 <= b.0 => left.next(),
                (Some(_), None) => left.next(),
                (_, Some(_)) => right.next(),
                (None, None) => break,
            };
            let Some((value, count)) = next else { break };
            match merged.last_mut() {
                Some((last, sum)) if *last == value => *sum += count,
                _ => {
                    if let Some((_, 0)) = merged.last() {
                        merged.pop();
                    }
                    merged.push((value, count));
                }
            }
        }
        if let Some((_, 0)) = merged.last() {
            merged.pop();
        }
        merged.shrink_to_fit();
        self.0 = merged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn range(start: u64, length: u64) -> SharedPart {
        SharedPart {
            encoded: false,
            start,
            length,
        }
    }

    fn key(start: u64, length: u64) -> SharedPart {
        SharedPart {
            encoded: true,
            start,
            length,
        }
    }

    #[test]
    fn overlapping_ranges_count_once() {
        let mut coverage = Coverage::default();
        coverage.note(0, &SharedParts::One(range(100, 50)), Step::Enter);
        coverage.note(0, &SharedParts::One(range(120, 50)), Step::Enter);
        assert_eq!(coverage.distinct(), Bytes(70));
        coverage.note(0, &SharedParts::One(range(100, 50)), Step::Leave);
        assert_eq!(coverage.distinct(), Bytes(50));
    }

    #[test]
    fn equal_addresses_in_two_spaces_are_distinct() {
        let mut coverage = Coverage::default();
        coverage.note(0, &SharedParts::One(range(0, 10)), Step::Enter);
        coverage.note(1, &SharedParts::One(range(0, 10)), Step::Enter);
        assert_eq!(coverage.distinct(), Bytes(20));
    }

    #[test]
    fn keys_are_not_ranges() {
        let mut coverage = Coverage::default();
        // Two compressed extents 16 KiB apart that hold 128 KiB each: their ranges would overlap.
        coverage.note(0, &SharedParts::One(key(0, 131_072)), Step::Enter);
        coverage.note(0, &SharedParts::One(key(16_384, 131_072)), Step::Enter);
        assert_eq!(coverage.distinct(), Bytes(262_144));
        // Another file references a part of the first.
        coverage.note(0, &SharedParts::One(key(0, 32_768)), Step::Enter);
        assert_eq!(coverage.distinct(), Bytes(262_144));
        coverage.note(0, &SharedParts::One(key(0, 131_072)), Step::Leave);
        assert_eq!(coverage.distinct(), Bytes(131_072 + 32_768));
    }

    #[test]
    fn a_file_that_shares_with_itself_counts_once() {
        let parts =
            SharedParts::normalise(vec![range(0, 65_536), range(0, 65_536), range(0, 4096)]);
        assert_eq!(parts, SharedParts::One(range(0, 65_536)));
    }

    #[test]
    fn clones_of_one_file_cost_no_more_than_the_first() {
        let parts = SharedParts::normalise((0..1000).map(|n| range(n * 100, 50)).collect());
        let mut coverage = Coverage::default();
        for _ in 0..50 {
            coverage.note(0, &parts, Step::Enter);
        }
        assert_eq!(coverage.distinct(), Bytes(50_000));
        assert_eq!(coverage.len(), 2000);
    }

    fn parts_strategy() -> impl Strategy<Value = Vec<SharedPart>> {
        prop::collection::vec(
            (any::<bool>(), 0..60_u64, 1..20_u64).prop_map(|(encoded, start, length)| SharedPart {
                encoded,
                start,
                length,
            }),
            0..6,
        )
    }

    proptest! {
        #[test]
        fn distinct_equals_counting_bytes(files in prop::collection::vec((0..2_u16, parts_strategy(), any::<bool>()), 0..12)) {
            let mut coverage = Coverage::default();
            let mut bytes: BTreeSet<(u16, u64)> = BTreeSet::new();
            let mut keys: BTreeMap<(u16, u64), u64> = BTreeMap::new();
            for (space, parts, stays) in files {
                let normal = SharedParts::normalise(parts.clone());
                coverage.note(space, &normal, Step::Enter);
                coverage.distinct();
                if !stays {
                    coverage.note(space, &normal, Step::Leave);
                    continue;
                }
                for part in parts {
                    if part.encoded {
                        let largest = keys.entry((space, part.start)).or_default();
                        *largest = part.length.max(*largest);
                    } else {
                        bytes.extend((part.start..part.start + part.length).map(|at| (space, at)));
                    }
                }
            }
            let expected = bytes.len() as u64 + keys.values().sum::<u64>();
            prop_assert_eq!(coverage.distinct(), Bytes(expected));
        }

        #[test]
        fn files_meet_when_they_have_a_byte_or_key_in_common(left in parts_strategy(), right in parts_strategy()) {
            let expected = left.iter().any(|a| right.iter().any(|b| {
                a.encoded == b.encoded
                    && if a.encoded { a.start == b.start }
                       else { a.start < b.start + b.length && b.start < a.start + a.length }
            }));
            let (left, right) = (SharedParts::normalise(left), SharedParts::normalise(right));
            prop_assert_eq!(left.meets(&right), expected);
            prop_assert_eq!(right.meets(&left), expected);
        }
    }
}
