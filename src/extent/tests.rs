//! What merging, clipping and counting promise: by example, and against a model that looks at
//! every block on its own.

use super::*;
use proptest::prelude::*;

const BLOCK: u64 = 4096;

fn record(logical: u64, physical: u64, length: u64, flags: ExtentFlags) -> Extent {
    Extent {
        logical: FileOffset(logical * BLOCK),
        physical: Physical(physical * BLOCK),
        length: Bytes(length * BLOCK),
        flags,
    }
}

/// The map of a file of `blocks` blocks with these records.
fn built(blocks: u64, records: &[Extent]) -> ExtentMap {
    built_with_size(blocks * BLOCK, records)
}

fn built_with_size(size: u64, records: &[Extent]) -> ExtentMap {
    let mut builder = MapBuilder::new(Bytes(size), Bytes(BLOCK));
    for record in records {
        builder.push(*record);
    }
    builder.finish()
}

const PLAIN: ExtentFlags = ExtentFlags::empty();
const SHARED: ExtentFlags = ExtentFlags::SHARED;
const LAST: ExtentFlags = ExtentFlags::LAST;

#[test]
fn neighbours_that_continue_each_other_are_one_extent() {
    let map = built(
        8,
        &[
            record(0, 100, 2, SHARED),
            record(2, 102, 2, SHARED),
            record(4, 104, 4, SHARED | LAST),
        ],
    );
    assert_eq!(map.extents(), [record(0, 100, 8, SHARED | LAST)]);
}

#[test]
fn what_differs_in_place_or_flags_stays_apart() {
    for (name, second) in [
        ("a hole between", record(3, 102, 2, PLAIN)),
        ("a jump on the device", record(2, 103, 2, PLAIN)),
        ("backwards on the device", record(2, 98, 2, PLAIN)),
        ("shared", record(2, 102, 2, SHARED)),
        ("unwritten", record(2, 102, 2, ExtentFlags::UNWRITTEN)),
        (
            "a flag that is not known here",
            record(2, 102, 2, ExtentFlags::from_bits_retain(1 << 20)),
        ),
    ] {
        let records = [record(0, 100, 2, PLAIN), second];
        assert_eq!(built(8, &records).extents(), records, "{name}");
    }
}

#[test]
fn records_without_an_address_never_merge() {
    for flags in [
        ExtentFlags::ENCODED,
        ExtentFlags::UNKNOWN,
        ExtentFlags::DELALLOC | ExtentFlags::UNKNOWN,
        ExtentFlags::DATA_ENCRYPTED | ExtentFlags::ENCODED,
        ExtentFlags::DATA_INLINE | ExtentFlags::NOT_ALIGNED,
        ExtentFlags::DATA_TAIL | ExtentFlags::NOT_ALIGNED,
    ] {
        // Even where the numbers would fit: keys of neighbouring items can.
        let records = [record(0, 100, 2, flags), record(2, 102, 2, flags)];
        assert_eq!(built(8, &records).extents(), records, "{flags:?}");
    }
}

#[test]
fn preallocation_past_the_end_of_file_is_left_out() {
    let unwritten = ExtentFlags::UNWRITTEN;
    // One byte into the fourth block.
    let map = built_with_size(
        3 * BLOCK + 1,
        &[
            record(0, 100, 4, PLAIN),
            record(4, 104, 1000, unwritten | LAST),
        ],
    );
    assert_eq!(map.extents(), [record(0, 100, 4, PLAIN)]);
    let crossing = [record(2, 100, 1000, unwritten | LAST)];
    assert_eq!(
        built(4, &crossing).extents(),
        [record(2, 100, 2, unwritten | LAST)]
    );
    assert_eq!(built(0, &crossing), ExtentMap::default());
}

#[test]
fn a_record_wholly_past_the_end_says_that_the_rest_does_not_matter() {
    let mut builder = MapBuilder::new(Bytes(4 * BLOCK), Bytes(BLOCK));
    assert!(builder.push(record(0, 100, 4, PLAIN)));
    assert!(!builder.push(record(4, 104, 1, PLAIN)));
    assert_eq!(builder.reached(), FileOffset(4 * BLOCK));
}

#[test]
fn records_that_reach_back_are_cut_to_what_is_new() {
    // The file changed between two calls: the second answer begins inside the first.
    let map = built(
        16,
        &[
            record(0, 100, 4, PLAIN),
            record(2, 200, 6, SHARED),
            record(3, 300, 2, PLAIN),
            record(8, 400, 1, LAST),
        ],
    );
    assert_eq!(
        map.extents(),
        [
            record(0, 100, 4, PLAIN),
            record(4, 202, 4, SHARED),
            record(8, 400, 1, LAST),
        ]
    );
    // A key stays what it is when its extent is cut.
    let encoded = ExtentFlags::ENCODED | SHARED;
    let map = built(16, &[record(0, 100, 4, PLAIN), record(2, 200, 6, encoded)]);
    assert_eq!(map.extents()[1], record(4, 200, 4, encoded));
}

#[test]
fn the_largest_file_overflows_nothing() {
    let size = i64::MAX as u64;
    let end = size / BLOCK;
    let records = [
        record(0, 1, 1, PLAIN),
        Extent {
            logical: FileOffset(end * BLOCK),
            physical: Physical(u64::MAX - 10),
            length: Bytes(u64::MAX),
            flags: SHARED,
        },
    ];
    let map = built_with_size(size, &records);
    assert_eq!(map.extents().len(), 2);
    assert_eq!(map.extents()[1].length, Bytes(BLOCK));
    let range = map.extents()[1].phys_range().unwrap();
    assert_eq!(range.end, Physical(u64::MAX));
    assert_eq!(Bytes(u64::MAX).round_up(Bytes(BLOCK)), Bytes(u64::MAX));
    assert_eq!(Bytes(5).round_up(Bytes(0)), Bytes(5));
}

#[test]
fn an_extent_occupies_a_range_a_key_or_nothing() {
    let range = |flags| record(0, 100, 2, flags).phys_range();
    let whole = PhysRange::new(Physical(100 * BLOCK), Bytes(2 * BLOCK));
    assert_eq!(range(PLAIN), Some(whole));
    assert_eq!(range(ExtentFlags::UNWRITTEN | SHARED), Some(whole));
    let key = range(ExtentFlags::ENCODED | SHARED).unwrap();
    assert_eq!((key.start, key.len()), (whole.start, Bytes(1)));
    for nothing in [
        ExtentFlags::DELALLOC | ExtentFlags::UNKNOWN,
        ExtentFlags::DATA_INLINE | ExtentFlags::NOT_ALIGNED,
        ExtentFlags::ENCODED | ExtentFlags::UNKNOWN,
    ] {
        assert_eq!(range(nothing), None, "{nothing:?}");
    }
}

#[test]
fn ranges_overlap_when_they_have_a_byte_in_common() {
    let range = |start, end| PhysRange {
        start: Physical(start),
        end: Physical(end),
    };
    assert!(range(0, 10).overlaps(&range(9, 10)));
    assert!(!range(0, 10).overlaps(&range(10, 20)));
    assert!(range(5, 6).overlaps(&range(0, 10)));
    assert_eq!(PhysRange::new(Physical(7), Bytes(0)).len(), Bytes(1));
}

#[test]
fn the_numbers_of_a_map() {
    let map = built(
        32,
        &[
            record(0, 100, 21, SHARED),
            record(21, 200, 1, PLAIN),
            record(22, 300, 2, ExtentFlags::UNWRITTEN),
            record(30, 400, 1, ExtentFlags::ENCODED | SHARED | LAST),
        ],
    );
    let numbers = ShareSummary::of(&map);
    assert_eq!(
        numbers,
        ShareSummary {
            bytes: Bytes(25 * BLOCK),
            shared_bytes: Bytes(22 * BLOCK),
            extents: 4,
            shared_extents: 2,
        }
    );
    assert_eq!(numbers.exclusive_bytes(), Bytes(3 * BLOCK));
    assert_eq!(numbers.may_share(), MayShare::Yes);
    assert_eq!(map.shared().count(), 2);
    assert_eq!(
        ShareSummary::of(&ExtentMap::default()).may_share(),
        MayShare::No
    );
}

/// A block of the file as the model sees it: which record it is from, its address and flags.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Block {
    record: usize,
    physical: u64,
    flags: ExtentFlags,
}

/// The map block by block, and joined by the rules of the contract.
fn model(blocks: u64, records: &[Extent]) -> Vec<Extent> {
    let mut seen: Vec<Option<Block>> = vec![None; blocks as usize];
    let mut reached = 0;
    for (number, record) in records.iter().enumerate() {
        let first = record.logical.0 / BLOCK;
        let length = record.length.0 / BLOCK;
        for offset in 0..length {
            let block = first + offset;
            if block >= reached && block < blocks {
                let moved = if record.is_addressed() { offset } else { 0 };
                seen[block as usize] = Some(Block {
                    record: number,
                    physical: record.physical.0 / BLOCK + moved,
                    flags: record.flags,
                });
            }
        }
        if first < blocks {
            reached = reached.max((first + length).min(blocks));
        }
    }
    let mut joined: Vec<Extent> = Vec::new();
    let mut before: Option<Block> = None;
    for (number, block) in seen.iter().enumerate() {
        if let Some(block) = block {
            let one = record(number as u64, block.physical, 1, block.flags);
            let continues = before.is_some_and(|before| {
                let same = before.flags.difference(LAST) == block.flags.difference(LAST);
                if one.is_addressed() {
                    same && before.physical + 1 == block.physical
                } else {
                    before.record == block.record
                }
            });
            match joined.last_mut() {
                Some(last) if continues => {
                    last.length += Bytes(BLOCK);
                    last.flags |= block.flags;
                }
                _ => joined.push(one),
            }
        }
        before = *block;
    }
    joined
}

fn any_record() -> impl Strategy<Value = Extent> {
    let flags = prop_oneof![
        4 => Just(PLAIN),
        4 => Just(SHARED),
        1 => Just(ExtentFlags::UNWRITTEN),
        1 => Just(ExtentFlags::ENCODED),
        1 => Just(ExtentFlags::ENCODED | SHARED),
        1 => Just(ExtentFlags::DELALLOC | ExtentFlags::UNKNOWN),
    ];
    (0..40_u64, 0..12_u64, 1..8_u64, flags, any::<bool>()).prop_map(
        |(logical, shift, length, flags, last)| {
            // Addresses often continue each other: they move with the offset in the file.
            let flags = if last { flags | LAST } else { flags };
            record(logical, 1000 + logical + shift / 4 * 50, length, flags)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn a_map_is_what_a_look_at_every_block_says(
        blocks in 0..48_u64,
        mut records in prop::collection::vec(any_record(), 0..24),
        sorted in prop::bool::weighted(0.7),
    ) {
        if sorted {
            records.sort_by_key(|record| record.logical);
        }
        let map = built(blocks, &records);
        prop_assert_eq!(map.extents(), model(blocks, &records));
    }

    #[test]
    fn a_map_is_normalised_and_its_numbers_add_up(
        size in 0..48 * BLOCK,
        records in prop::collection::vec(any_record(), 0..24),
    ) {
        let map = built_with_size(size, &records);
        let end = FileOffset(Bytes(size).round_up(Bytes(BLOCK)).0);
        for pair in map.extents().windows(2) {
            prop_assert!(pair[0].logical_end() <= pair[1].logical);
        }
        for extent in map.extents() {
            prop_assert!(extent.length > Bytes::ZERO && extent.logical_end() <= end);
        }
        let numbers = ShareSummary::of(&map);
        let shared: Bytes = map.shared().map(|extent| extent.length).sum();
        prop_assert_eq!(numbers.shared_bytes, shared);
        prop_assert!(numbers.shared_bytes <= numbers.bytes && numbers.bytes <= Bytes(end.0));
        prop_assert!(numbers.shared_extents <= numbers.extents);
        prop_assert_eq!(numbers.shared_bytes + numbers.exclusive_bytes(), numbers.bytes);
    }

    #[test]
    fn how_the_kernel_splits_an_extent_makes_no_difference(
        length in 1..64_u64,
        cuts in prop::collection::vec(1..64_u64, 0..8),
        flags in prop_oneof![Just(PLAIN), Just(SHARED), Just(ExtentFlags::UNWRITTEN)],
    ) {
        let mut cuts: Vec<u64> = cuts.into_iter().filter(|cut| *cut < length).collect();
        cuts.extend([0, length]);
        cuts.sort_unstable();
        cuts.dedup();
        let pieces: Vec<Extent> = cuts
            .windows(2)
            .map(|cut| record(cut[0], 500 + cut[0], cut[1] - cut[0], flags))
            .collect();
        prop_assert_eq!(built(64, &pieces), built(64, &[record(0, 500, length, flags)]));
    }
}
