//! `blocks=exclusive`: `st_blocks` is what a file alone occupies.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::files::{clone, content, number, write_at, write_synced};
use common::{Image, Mounted, Scratch, have, run, truth};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn images() -> Vec<Image> {
    [Image::xfs(), Image::btrfs()]
        .into_iter()
        .flatten()
        .collect()
}

fn mounted(image: &Image) -> Mounted {
    Mounted::at(&image.tree(), &image.beside("view"))
        .options("blocks=exclusive")
        .mount()
}

fn blocks(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().blocks()
}

#[test]
fn blocks_are_the_exclusive_ones_and_follow_every_change_of_the_sharers() {
    for image in images() {
        let tree = image.tree();
        // Two extents, so that on btrfs too half of the file can become its own.
        write_synced(&tree.join("a"), 1, 1 << 20);
        write_at(&tree.join("a"), 1 << 20, &content(2, 1 << 20));
        truth::settle(&tree);
        write_synced(&tree.join("alone"), 3, 40_000);
        let mount = mounted(&image);
        let (a, b) = (mount.path().join("a"), mount.path().join("b"));
        assert_eq!(blocks(&a), 4096);
        assert_eq!(blocks(&mount.path().join("alone")), 80);
        run("cp", [&a, &b]);
        // Never 0: that would be one hole to an archiver.
        assert_eq!((blocks(&a), blocks(&b)), (8, 8));
        write_at(&b, 1 << 20, &content(4, 1 << 20));
        assert_eq!((blocks(&a), blocks(&b)), (2048, 2048));
        let sum: u64 = run("du", ["-s".as_ref(), "-B1".as_ref(), a.as_os_str()])
            .split_whitespace()
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(sum, number(&a, "exclusive_bytes").unwrap());
        fs::remove_file(&b).unwrap();
        assert_eq!(blocks(&a), 4096);
        // Behind the mount, seen through the watch.
        clone(&tree.join("a"), &tree.join("c"));
        assert_eq!(blocks(&mount.path().join("c")), 8);
        assert_eq!(blocks(&a), 8);
        // A listing with attributes says the same as a question about one file.
        let listed = run(
            "ls",
            [
                "-s1".as_ref(),
                "--block-size=512".as_ref(),
                mount.path().as_os_str(),
            ],
        );
        assert!(
            listed.contains("8 a") && listed.contains("80 alone"),
            "{listed}"
        );
        assert_eq!(
            blocks(&tree.join("c")),
            4096,
            "the backing file is as it was"
        );
    }
}

#[test]
fn sparse_files_and_empty_ones_have_the_blocks_of_their_data() {
    for image in images() {
        let tree = image.tree();
        let mount = mounted(&image);
        let sparse = mount.path().join("sparse");
        fs::File::create(&sparse).unwrap().set_len(1 << 20).unwrap();
        assert_eq!(blocks(&sparse), 0);
        write_at(&sparse, 64 << 10, &content(1, 8192));
        assert_eq!(blocks(&sparse), 16);
        fs::write(mount.path().join("empty"), "").unwrap();
        assert_eq!(blocks(&mount.path().join("empty")), 0);
        assert_eq!(blocks(mount.path()), blocks(&tree));
    }
}

/// Programs that look for holes by comparing blocks and size keep every byte of shared files.
#[test]
fn tar_cp_and_rsync_keep_every_byte_of_fully_shared_files() {
    if !have("tar") || !have("cp") {
        return;
    }
    for image in images() {
        let tree = image.tree();
        for (number, length) in [1, 5000, 100_000, 3_000_001].into_iter().enumerate() {
            let file = tree.join(format!("f{number}"));
            write_synced(&file, number as u64, length);
            clone(&file, &tree.join(format!("g{number}")));
        }
        // A hole in the middle too.
        let file = tree.join("holes");
        write_synced(&file, 9, 100_000);
        write_at(&file, 1 << 20, &content(10, 100_000));
        clone(&file, &tree.join("holes2"));
        truth::settle(&tree);
        let mount = mounted(&image);
        let from = text(mount.path());
        let scratch = Scratch::new("sparse");
        let to = |name: &str| scratch.dir(name);
        let archive = scratch.path().join("a.tar");
        run("tar", ["-C", from, "-S", "-cf", text(&archive), "."]);
        run("tar", ["-C", text(&to("tar")), "-xf", text(&archive)]);
        run(
            "cp",
            [
                "-r",
                "--sparse=always",
                &format!("{from}/."),
                text(&to("cp")),
            ],
        );
        let mut copies = vec![to("tar"), to("cp")];
        if have("rsync") {
            run("rsync", ["-rS", &format!("{from}/"), text(&to("rsync"))]);
            copies.push(to("rsync"));
        }
        for copy in copies {
            let mut names = 0;
            for entry in fs::read_dir(&tree).unwrap() {
                let entry = entry.unwrap();
                let whole = fs::read(entry.path()).unwrap();
                let copied = fs::read(copy.join(entry.file_name())).unwrap();
                assert!(whole == copied, "{:?} in {copy:?}", entry.file_name());
                names += 1;
            }
            assert_eq!(names, 10);
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
