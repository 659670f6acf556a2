//! Eviction, counts and costs of the state, without any disk.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use crate::extent::ShareSummary;
use crate::extent::{Extent, ExtentFlags, FileOffset, MapBuilder};
use crate::sharing::backing::SharingUnit;
use crate::sharing::unsettled::Unsettled;
use std::time::Instant;

fn state(cache_size: u64) -> State {
    let mut state = State::new(Bytes(cache_size), true, Faults::default());
    state.add_device(
        DeviceIndex(0),
        Device {
            space: 0,
            unit: SharingUnit::Block,
            barriers_due: 0,
            barriers_done: 0,
            can_flush: true,
            removals: 0,
            removed: 0,
            removed_files: std::collections::VecDeque::new(),
        },
    );
    state
}

fn key(ino: u64) -> FileKey {
    FileKey {
        ino,
        generation: 0,
        device: DeviceIndex(0),
    }
}

/// The cover of a file of so many separate shared extents.
fn cover(extents: u64) -> Cover {
    let mut builder = MapBuilder::new(Bytes(1 << 50), Bytes(4096));
    for at in 0..extents {
        builder.push(Extent {
            logical: FileOffset(at * 4096),
            physical: crate::extent::Physical((1 << 30) + at * 8192),
            length: Bytes(4096),
            flags: ExtentFlags::SHARED,
        });
    }
    Cover::of_blocks(&builder.finish())
}

fn remember(state: &mut State, ino: u64, cover: &Cover) -> Slot {
    let slot = state.ensure(key(ino));
    state.set_cover(slot, cover.clone(), Credible::ALWAYS);
    let numbers = ShareSummary {
        bytes: Bytes(4096),
        shared_bytes: Bytes(4096),
        extents: 1,
        shared_extents: 1,
    };
    state.store(slot, numbers, 0);
    slot
}

#[test]
fn memory_stays_within_the_limit_and_active_files_stay() {
    let mut state = state(100_000);
    let pinned = remember(&mut state, 1, &cover(1));
    state.activate(pinned).writers = 1;
    for ino in 2..5_000 {
        remember(&mut state, ino, &cover(1));
        assert!(state.memory() <= 100_000);
    }
    assert!(state.table.find(key(1)).is_some());
    assert!(state.table.find(key(2)).is_none());
    assert!(state.table.find(key(4_999)).is_some());
    assert_eq!(state.stats.evictions, 4_999 - state.table.len() as u64);
    let files = state.table.len();
    assert_eq!(state.space(0).index.len(), files);
    assert_eq!(state.space(0).shared_records, files);
}

#[test]
fn a_million_files_of_one_shared_extent_take_less_than_200_bytes_each() {
    let mut state = state(u64::MAX);
    for ino in 0..10_000 {
        remember(&mut state, ino, &cover(1));
    }
    assert!(state.memory() <= 10_000 * 200, "{}", state.memory());
}

#[test]
fn losing_ends_every_record_that_overlaps_and_no_other() {
    let mut state = state(u64::MAX);
    let changed = remember(&mut state, 1, &cover(40));
    let sharer = remember(&mut state, 2, &cover(1));
    let other = state.ensure(key(3));
    state.store(other, ShareSummary::default(), 0);
    state.lose(changed, &cover(40));
    assert!(state.record(sharer).is_none());
    assert!(state.record(other).is_some());
    state.lose_all(0);
    assert!(state.record(other).is_none());
}

#[test]
fn the_queue_names_each_changed_file_once_and_everything_after_an_epoch() {
    let mut state = state(u64::MAX);
    assert!(state.take_unsettled().is_empty());
    let one = remember(&mut state, 1, &cover(1));
    remember(&mut state, 2, &cover(1));
    state.lose(one, &cover(1));
    state.lose(one, &cover(1));
    let mut named = state.take_unsettled();
    named.sort_unstable_by_key(|unsettled| match unsettled {
        Unsettled::File(key) | Unsettled::Listing(key) => key.ino,
        Unsettled::Everything => 0,
    });
    assert_eq!(named, [Unsettled::File(key(1)), Unsettled::File(key(2))]);
    assert!(state.take_unsettled().is_empty());
    remember(&mut state, 2, &cover(1));
    state.lose_all_shared(0);
    assert_eq!(state.take_unsettled(), [Unsettled::File(key(2))]);
}

#[test]
fn a_change_to_one_of_a_thousand_clones_costs_little() {
    let mut state = state(u64::MAX);
    let fragmented = cover(32_000);
    for ino in 0..1_000 {
        remember(&mut state, ino, &fragmented);
    }
    let changed = state.table.find(key(500)).unwrap();
    let before = Instant::now();
    state.lose(changed, &fragmented);
    let took = before.elapsed();
    println!("invalidating 1,000 clones of 32,000 extents took {took:?}");
    assert_eq!(state.space(0).shared_records, 0);
    assert!(took.as_millis() < 50, "{took:?}");
}
