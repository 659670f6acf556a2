//! The scripts in `examples/` do what they say.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::files::{clone, content, write_at, write_synced};
use common::{Image, Mounted, have, run, truth};
use std::fs;
use std::path::{Path, PathBuf};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(name)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_largest_exclusive_files_are_listed_largest_first() {
    if !have("getfattr") {
        return;
    }
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    fs::create_dir(tree.join("sub dir")).unwrap();
    for step in 1..=12u64 {
        write_synced(
            &tree.join(format!("sub dir/own {step:02}")),
            step,
            step as usize * 8192,
        );
    }
    write_synced(&tree.join("big"), 50, 400_000);
    clone(&tree.join("big"), &tree.join("clone"));
    write_at(&tree.join("clone"), 0, &content(51, 94_208));
    write_synced(&tree.join("back\\slash\nand line"), 52, 200_000);
    fs::write(tree.join("empty"), "").unwrap();
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let view = text(mounted.path());
    let shown = run(example("top-exclusive.sh"), [view]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 10, "{shown}");
    assert_eq!(
        lines[0],
        format!("200704\t{view}/back\\134slash\\012and line")
    );
    assert_eq!(lines[1], format!("98304\t{view}/sub dir/own 12"));
    // Both sides of a clone lose what one of them overwrote.
    assert_eq!(lines[2], format!("94208\t{view}/big"));
    assert_eq!(lines[3], format!("94208\t{view}/clone"));
    assert_eq!(lines[9], format!("49152\t{view}/sub dir/own 06"));
    let few = run(
        example("top-exclusive.sh"),
        [&format!("{view}/sub dir"), "2"],
    );
    assert_eq!(few.lines().count(), 2);
    assert!(few.starts_with("98304\t"), "{few}");
}

#[test]
fn before_a_deletion_it_is_known_what_that_frees_at_least() {
    if !have("getfattr") {
        return;
    }
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    let directory = tree.join("old");
    fs::create_dir_all(directory.join("sub")).unwrap();
    write_synced(&directory.join("own"), 1, 400_000);
    write_synced(&directory.join("sub/linked"), 2, 8192);
    fs::hard_link(directory.join("sub/linked"), tree.join("other name")).unwrap();
    write_synced(&tree.join("kept"), 3, 200_000);
    clone(&tree.join("kept"), &directory.join("sub/clone"));
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let view = mounted.path().join("old");
    let shown = run(example("before-delete.sh"), [text(&view)]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(
        lines,
        [
            format!(
                "{}: 3 files, 409600 bytes exclusive, 8192 bytes linked from outside",
                text(&view)
            ),
            "removing it frees at least 401408 bytes, and at most 610304".to_owned(),
        ]
    );
    let free = || {
        truth::settle(&tree);
        let space = nix::sys::statvfs::statvfs(&tree).unwrap();
        space.blocks_free() * space.fragment_size()
    };
    let before = free();
    fs::remove_dir_all(&view).unwrap();
    let freed = free() - before;
    assert!((401_408..=610_304).contains(&freed), "{freed}");
}

#[test]
fn gio_shows_the_numbers_as_desktop_programs_see_them() {
    if !have("gio") {
        return;
    }
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("a"), 1, 40_000);
    clone(&tree.join("a"), &tree.join("b"));
    let mounted = Mounted::at(&tree, &image.beside("view"))
        .options("list_xattrs")
        .mount();
    let file = mounted.path().join("a");
    let shown = run(example("gio.sh"), [text(&file)]);
    for line in [
        "reflink.bytes 40960",
        "reflink.shared_bytes 40960",
        "reflink.exclusive_bytes 0",
        "reflink.shared_extents 1",
    ] {
        assert!(
            shown.lines().any(|shown| shown == line),
            "{line} is not in {shown}"
        );
    }
    drop(mounted);
    // By its name, on any mount.
    let mounted = Mounted::at(&tree, &image.beside("plain")).mount();
    let file = mounted.path().join("b");
    assert_eq!(run(example("gio.sh"), [text(&file)]), "");
    let one = run(
        "gio",
        ["info", "-a", "xattr::reflink.shared_bytes", text(&file)],
    );
    assert!(one.contains("xattr::reflink.shared_bytes: 40960"), "{one}");
}
