//! Exact results of workloads from the field, through the mount.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::files::{asked, clone, content, number, text, write_at, write_synced};
use common::{Image, Mounted, Numbers, run, truth};
use std::fs::{self, File, OpenOptions};
use std::path::Path;

const BLOCK: u64 = 4096;

/// Clones a range through the mount as an archiver does; `length` is rounded to blocks already.
fn clone_range(from: &Path, from_offset: u64, to: &Path, to_offset: u64, length: u64) {
    let source = File::open(from).unwrap();
    let target = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(to)
        .unwrap();
    let mut done = 0;
    while done < length {
        let left = usize::try_from(length - done).unwrap();
        let copied =
            common::raw::copy_range(&source, from_offset + done, &target, to_offset + done, left)
                .unwrap();
        assert!(copied > 0, "the copy stopped after {done} bytes");
        done += copied as u64;
    }
}

fn check(mounted: &Mounted, image: &Image, name: &str, expected: Numbers) {
    let said = asked(&mounted.path().join(name)).unwrap();
    assert_eq!(said, expected, "{name} through the mount");
    let true_numbers = truth::numbers(&image.tree().join(name));
    assert_eq!(true_numbers, expected, "{name} on the backing filesystem");
}

/// Extracting a member of an archive: clone rounded up to the block, then truncate to the size.
#[test]
fn clone_a_range_then_truncate_into_its_last_block() {
    for io in ["io=passthrough", "io=cached"] {
        let Some(image) = Image::xfs() else { return };
        let tree = image.tree();
        write_synced(&tree.join("source"), 1, 1 << 20);
        let mounted = Mounted::at(&tree, &image.beside("view"))
            .options(io)
            .mount();
        let (source, member) = (mounted.path().join("source"), mounted.path().join("member"));
        clone_range(&source, 0, &member, 0, 90_112);
        OpenOptions::new()
            .write(true)
            .open(&member)
            .unwrap()
            .set_len(90_000)
            .unwrap();
        let expected = Numbers {
            bytes: 90_112,
            shared_bytes: 86_016,
            extents: 2,
            shared_extents: 1,
        };
        check(&mounted, &image, "member", expected);
        assert_eq!(number(&member, "exclusive_bytes").unwrap(), BLOCK);
        let map = text(&member, "map").unwrap();
        let rows: Vec<Vec<&str>> = map.lines().map(|row| row.split(' ').collect()).collect();
        assert_eq!(rows.len(), 2, "{map}");
        assert_eq!((rows[0][0], rows[0][2]), ("0", "86016"), "{map}");
        assert!(rows[0][3].split(',').any(|flag| flag == "shared"), "{map}");
        assert_eq!((rows[1][0], rows[1][2]), ("86016", "4096"), "{map}");
        assert!(!rows[1][3].split(',').any(|flag| flag == "shared"), "{map}");
        let bytes = fs::read(&member).unwrap();
        assert!(bytes == content(1, 1 << 20)[..90_000], "the data are right");
    }
}

/// Cloning only the last, partial block of a file of 90,000 bytes.
#[test]
fn clone_the_last_partial_block_alone() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("source"), 1, 90_000);
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let (source, tail) = (mounted.path().join("source"), mounted.path().join("tail"));
    clone_range(&source, 86_016, &tail, 86_016, 90_000 - 86_016);
    assert_eq!(fs::metadata(&tail).unwrap().len(), 90_000);
    let expected = Numbers {
        bytes: BLOCK,
        shared_bytes: BLOCK,
        extents: 1,
        shared_extents: 1,
    };
    check(&mounted, &image, "tail", expected);
    let map = text(&tail, "map").unwrap();
    assert!(
        map.starts_with("86016 ") && map.lines().count() == 1,
        "{map}"
    );
}

fn row(path: &Path, bytes: u64, exclusive: u64) {
    let numbers = asked(path).unwrap();
    assert_eq!(
        (numbers.bytes, numbers.exclusive_bytes()),
        (bytes, exclusive),
        "{path:?}"
    );
}

const MIB: u64 = 1 << 20;

/// btrfs: the second half of a file that has two clones is overwritten.
#[test]
fn overwriting_half_of_a_file_with_two_clones_on_btrfs() {
    for io in ["io=passthrough", "io=cached"] {
        let Some(image) = Image::btrfs() else { return };
        let tree = image.tree();
        let mounted = Mounted::at(&tree, &image.beside("view"))
            .options(io)
            .mount();
        let (foo, bar, baz) = (
            mounted.path().join("foo"),
            mounted.path().join("bar"),
            mounted.path().join("baz"),
        );
        write_synced(&foo, 1, 2 << 20);
        for copy in [&bar, &baz] {
            run(
                "cp",
                ["--reflink=auto".as_ref(), foo.as_os_str(), copy.as_os_str()],
            );
        }
        for file in [&foo, &bar, &baz] {
            row(file, 2 * MIB, 0);
        }
        write_at(&foo, MIB, &content(2, 1 << 20));
        row(&foo, 2 * MIB, MIB);
        row(&bar, 2 * MIB, 0);
        row(&baz, 2 * MIB, 0);
        for name in ["foo", "bar", "baz"] {
            let said = asked(&mounted.path().join(name)).unwrap();
            assert_eq!(said, truth::numbers(&tree.join(name)), "{name}");
        }
    }
}

/// Where the copies lost part of their sharing, and after a good copy.
#[test]
fn a_copy_that_cloned_badly_is_told_from_a_good_one_on_btrfs() {
    let Some(image) = Image::btrfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("foo"), 1, 2 << 20);
    for name in ["bar", "baz"] {
        clone(&tree.join("foo"), &tree.join(name));
    }
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    for name in ["foo", "bar", "baz"] {
        row(&mounted.path().join(name), 2 * MIB, 0);
    }
    // Two of the three go their own way in the second half.
    write_at(&mounted.path().join("bar"), MIB, &content(3, 1 << 20));
    write_at(&mounted.path().join("baz"), MIB, &content(4, 1 << 20));
    row(&mounted.path().join("foo"), 2 * MIB, 0);
    row(&mounted.path().join("bar"), 2 * MIB, MIB);
    row(&mounted.path().join("baz"), 2 * MIB, MIB);
}

/// `cp` clones through the mount, and both files say so.
#[test]
fn a_clone_made_with_cp_is_seen_in_both_files() {
    for (image, io) in [
        (Image::xfs(), "io=passthrough"),
        (Image::xfs(), "io=cached"),
        (Image::btrfs(), "io=passthrough"),
        (Image::btrfs(), "io=cached"),
    ] {
        let Some(image) = image else { return };
        let tree = image.tree();
        let mounted = Mounted::in_place(&tree).options(io).mount();
        let (a, b) = (tree.join("a"), tree.join("b"));
        fs::write(&a, content(1, 1_000_000)).unwrap();
        let bytes = 1_000_000u64.next_multiple_of(BLOCK);
        assert_eq!(number(&a, "shared_bytes").unwrap(), 0);
        assert_eq!(text(&a, "may_share").unwrap(), "0");
        run("cp", [&a, &b]);
        for file in [&a, &b] {
            assert_eq!(number(file, "bytes").unwrap(), bytes);
            assert_eq!(number(file, "shared_bytes").unwrap(), bytes);
            assert_eq!(number(file, "exclusive_bytes").unwrap(), 0);
            assert_eq!(text(file, "may_share").unwrap(), "1");
        }
        fs::remove_file(&b).unwrap();
        assert_eq!(number(&a, "shared_bytes").unwrap(), 0);
        drop(mounted);
    }
}
