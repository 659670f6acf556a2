//! Totals and listings of directories through a real mount.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::files::{self, clone, content, number, write_synced};
use common::{Image, Mounted, run, truth};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

fn images() -> Vec<Image> {
    [Image::xfs(), Image::btrfs()]
        .into_iter()
        .flatten()
        .collect()
}

fn mounted(image: &Image, tree: &Path) -> Mounted {
    Mounted::at(tree, &image.beside("mnt")).mount()
}

fn numbers<const N: usize>(path: &Path, names: [&str; N]) -> [u64; N] {
    names.map(|name| number(path, name).unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// W4's first example, through the mount, with its directory row.
#[test]
fn the_directory_row_of_a_rewritten_half() {
    for image in images() {
        let tree = image.tree();
        write_synced(&tree.join("foo"), 1, 2 << 20);
        clone(&tree.join("foo"), &tree.join("bar"));
        clone(&tree.join("foo"), &tree.join("baz"));
        truth::settle(&tree);
        let mount = mounted(&image, &tree);
        let top = mount.path();
        let columns = [
            "bytes",
            "exclusive_bytes",
            "set_shared_bytes",
            "footprint_bytes",
        ];
        let mib = |values: [u64; 4]| values.map(|value| value << 20);
        assert_eq!(numbers(top, columns), mib([6, 0, 2, 2]));
        OpenOptions::new()
            .write(true)
            .open(top.join("foo"))
            .unwrap()
            .write_all_at(&content(2, 1 << 20), 1 << 20)
            .unwrap();
        assert_eq!(numbers(top, columns), mib([6, 1, 2, 3]));
    }
}

#[test]
fn totals_follow_what_is_done_through_the_mount() {
    for image in images() {
        let tree = image.tree();
        let mount = mounted(&image, &tree);
        let top = mount.path();
        let counts = || numbers(top, ["files", "dirs", "bytes"]);
        assert_eq!(counts(), [0, 0, 0]);
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::write(top.join("a/b/x"), content(1, 40_000)).unwrap();
        assert_eq!(counts(), [1, 2, 40_960]);
        fs::hard_link(top.join("a/b/x"), top.join("y")).unwrap();
        assert_eq!(counts(), [1, 2, 40_960]);
        assert_eq!(
            number(&top.join("a"), "linked_outside_bytes").unwrap(),
            40_960
        );
        fs::rename(top.join("a/b"), top.join("c")).unwrap();
        assert_eq!(number(&top.join("a"), "files").unwrap(), 0);
        assert_eq!(number(&top.join("c"), "files").unwrap(), 1);
        run("cp", [top.join("y"), top.join("c/z")]);
        assert_eq!(counts(), [2, 2, 81_920]);
        assert_eq!(number(top, "shared_bytes").unwrap(), 81_920);
        assert_eq!(number(top, "set_shared_bytes").unwrap(), 40_960);
        fs::remove_file(top.join("y")).unwrap();
        assert_eq!(number(&top.join("c"), "linked_outside_bytes").unwrap(), 0);
        fs::remove_dir_all(top.join("c")).unwrap();
        assert_eq!(counts(), [0, 1, 0]);
        // Behind the mount.
        fs::create_dir(tree.join("behind")).unwrap();
        run(
            "sh",
            [
                "-c",
                &format!(
                    "head -c 50000 /dev/urandom > {}",
                    tree.join("behind/w").display()
                ),
            ],
        );
        run("sync", [] as [&str; 0]);
        assert_eq!(counts(), [1, 2, 53_248]);
    }
}

#[test]
fn a_listing_has_a_row_for_every_child() {
    for image in images() {
        let tree = image.tree();
        fs::create_dir(tree.join("dir")).unwrap();
        write_synced(&tree.join("dir/in"), 1, 10_000);
        write_synced(&tree.join("with space"), 2, 20_000);
        clone(&tree.join("with space"), &tree.join("clone"));
        std::os::unix::fs::symlink("x", tree.join("link")).unwrap();
        let mount = mounted(&image, &tree);
        let text = files::text(mount.path(), "children").unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            [
                "- - - - - - link",
                "d 12288 0 12288 1 0 dir",
                "f 20480 20480 0 1 1 clone",
                "f 20480 20480 0 1 1 with space",
            ]
        );
    }
}

#[test]
fn peers_are_known_once_the_tree_was_scanned() {
    for image in images() {
        let tree = image.tree();
        write_synced(&tree.join("a"), 1, 40_000);
        clone(&tree.join("a"), &tree.join("b"));
        clone(&tree.join("a"), &image.path().join("outside"));
        write_synced(&tree.join("alone"), 2, 40_000);
        let mount = mounted(&image, &tree);
        let a = mount.path().join("a");
        assert!(number(&a, "peers").is_err());
        assert_eq!(number(mount.path(), "files").unwrap(), 3);
        assert_eq!(number(&a, "peers").unwrap(), 1);
        assert_eq!(number(&mount.path().join("alone"), "peers").unwrap(), 0);
        fs::remove_file(mount.path().join("b")).unwrap();
        assert_eq!(number(&a, "peers").unwrap(), 0);
        assert_eq!(number(&a, "shared_bytes").unwrap(), 40_960);
    }
}
