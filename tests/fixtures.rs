//! The fixtures themselves: the truth that the other tests compare with is right.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::files::{clone, content, write_at, write_synced};
use common::raw::Record;
use common::{Image, mounts_below, truth};

fn check_clone_and_write(image: &Image) {
    let tree = image.tree();
    let (a, b) = (tree.join("a"), tree.join("b"));
    write_synced(&a, 1, 16 * 4096);
    assert_eq!(truth::numbers(&a).shared_bytes, 0);
    clone(&a, &b);
    assert_eq!(truth::numbers(&a).shared_bytes, 16 * 4096);
    write_at(&b, 8 * 4096, &content(2, 4096));
    let numbers = truth::numbers(&b);
    assert_eq!(numbers.bytes, 16 * 4096);
    assert_eq!(numbers.shared_bytes, 15 * 4096);
    assert_eq!((numbers.extents, numbers.shared_extents), (3, 2));
    std::fs::remove_file(&b).unwrap();
    assert_eq!(truth::numbers(&a).shared_bytes, 0);
}

#[test]
fn the_truth_follows_a_clone_a_write_and_a_removal_on_xfs() {
    let Some(image) = Image::xfs() else { return };
    check_clone_and_write(&image);
    let point = image.path().to_owned();
    drop(image);
    assert!(mounts_below(&point).is_empty());
}

#[test]
fn the_truth_follows_a_clone_a_write_and_a_removal_on_btrfs() {
    let Some(image) = Image::btrfs() else { return };
    check_clone_and_write(&image);
}

#[test]
fn records_are_joined_and_cut_at_the_end_of_file() {
    let record = |logical, physical, length, flags| Record {
        logical,
        physical,
        length,
        flags,
    };
    let records = [
        record(0, 1 << 20, 4096, 0),
        record(4096, (1 << 20) + 4096, 4096, 0),
        record(8192, (1 << 20) + 8192, 4096, truth::SHARED),
        record(12288, (1 << 20) + 12288, 65536, 0x801),
    ];
    assert_eq!(
        truth::normalise(&records, 13000, 4096),
        [
            record(0, 1 << 20, 8192, 0),
            record(8192, (1 << 20) + 8192, 4096, truth::SHARED),
            record(12288, (1 << 20) + 12288, 4096, 0x800),
        ]
    );
    assert_eq!(truth::normalise(&records, 8192, 4096).len(), 1);
}
