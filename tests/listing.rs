//! Programs that read, list and copy attributes, in and out of a mount, in both listing modes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::files::{clone, write_synced};
use common::{Image, Mounted, Output, have, output, raw};
use std::fs;
use std::path::Path;
use std::process::Command;

/// What `list_xattrs` lists of a file.
const LISTED: [&str; 8] = [
    "bytes",
    "shared_bytes",
    "exclusive_bytes",
    "extents",
    "shared_extents",
    "may_share",
    "summary",
    "json",
];

/// Each way of copying a tree with its attributes: from `$1` to `$2`, which is made.
const COPIES: [(&str, &str); 4] = [
    ("cp", "cp -a \"$1\" \"$2\""),
    ("rsync", "rsync -aX \"$1/\" \"$2\""),
    (
        "tar",
        "mkdir \"$2\"; tar --xattrs -C \"$1\" -cf - . | tar --xattrs -C \"$2\" -xpf -",
    ),
    // Across filesystems, where mv copies.
    ("mv", "cp -a \"$1\" \"$1.moved\"; mv \"$1.moved\" \"$2\""),
];

fn sh(script: &str, arguments: &[&Path]) -> Output {
    output(
        Command::new("sh")
            .args(["-ec", script, "sh"])
            .args(arguments),
    )
}

fn programs() -> bool {
    ["getfattr", "rsync", "tar"]
        .iter()
        .all(|program| have(program))
}

/// A filesystem with a tree: two clones, one of them with an attribute of its own.
fn prepared() -> Option<Image> {
    if !programs() {
        return None;
    }
    let image = Image::xfs()?;
    let tree = image.tree();
    fs::create_dir_all(tree.join("in/sub")).unwrap();
    write_synced(&tree.join("in/a"), 1, 40_000);
    clone(&tree.join("in/a"), &tree.join("in/sub/b"));
    raw::setxattr(&tree.join("in/a"), "user.mine", b"mine").unwrap();
    Some(image)
}

fn names(path: &Path) -> Vec<String> {
    let mut names = raw::listxattr(path).unwrap();
    names.retain(|name| name != "security.selinux");
    names
}

/// Nothing of ours in the copy's real attributes, everything else is there.
fn check_copied(copy: &Path, how: &str) {
    assert_eq!(names(&copy.join("a")), ["user.mine"], "{how}");
    assert_eq!(
        raw::getxattr(&copy.join("a"), "user.mine").unwrap(),
        b"mine",
        "{how}"
    );
    for plain in ["", "sub", "sub/b"] {
        assert!(names(&copy.join(plain)).is_empty(), "{how}: {plain}");
    }
}

fn silent(said: &Output, how: &str) {
    assert!(said.ok() && said.stderr.is_empty(), "{how}: {said:?}");
}

#[test]
fn by_default_nothing_of_ours_is_listed_or_copied() {
    let Some(image) = prepared() else { return };
    let tree = image.tree();
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let view = mounted.path();
    let said = sh("getfattr -d --absolute-names -R \"$1\"", &[view]);
    silent(&said, "getfattr -d");
    assert_eq!(
        said.stdout.matches("user.mine=\"mine\"").count(),
        1,
        "{said:?}"
    );
    assert!(!said.stdout.contains("reflink"), "{said:?}");
    let out = image.beside("out");
    for (how, script) in COPIES {
        let inside = view.join(format!("in-{how}"));
        silent(&sh(script, &[&view.join("in"), &inside]), how);
        check_copied(&tree.join(format!("in-{how}")), how);
        let outside = out.join(how);
        silent(&sh(script, &[&view.join("in"), &outside]), how);
        check_copied(&outside, how);
        let back = view.join(format!("back-{how}"));
        silent(&sh(script, &[&outside, &back]), how);
        check_copied(&tree.join(format!("back-{how}")), how);
        let same = sh(
            "diff -r \"$1\" \"$2\"; diff -r \"$1\" \"$3\"",
            &[&view.join("in"), &inside, &back],
        );
        silent(&same, how);
    }
}

#[test]
fn with_list_xattrs_every_number_is_listed_and_copying_into_the_mount_stores_none() {
    let Some(image) = prepared() else { return };
    let tree = image.tree();
    let mounted = Mounted::at(&tree, &image.beside("view"))
        .options("list_xattrs")
        .mount();
    let view = mounted.path();
    let file = view.join("in/a");
    let mut expected: Vec<String> = LISTED
        .iter()
        .map(|name| format!("user.reflink.{name}"))
        .collect();
    expected.push("user.mine".to_owned());
    expected.sort();
    assert_eq!(names(&file), expected);
    let said = sh("getfattr -d --absolute-names \"$1\"", &[&file]);
    silent(&said, "getfattr -d");
    for line in [
        "user.mine=\"mine\"",
        "user.reflink.bytes=\"40960\"",
        "user.reflink.shared_bytes=\"40960\"",
        "user.reflink.exclusive_bytes=\"0\"",
        "user.reflink.may_share=\"1\"",
    ] {
        assert!(
            said.stdout.lines().any(|shown| shown == line),
            "{line}: {said:?}"
        );
    }
    for (how, script) in COPIES {
        let inside = view.join(format!("in-{how}"));
        silent(&sh(script, &[&view.join("in"), &inside]), how);
        check_copied(&tree.join(format!("in-{how}")), how);
        silent(
            &sh("diff -r \"$1\" \"$2\"", &[&view.join("in"), &inside]),
            how,
        );
    }
}

/// The reason why listing is off by default: other disks would keep the numbers of this moment.
/// A mount over such a copy shows its own numbers instead of them, and lets them be carried back
/// in without storing them.
#[test]
fn copies_that_took_the_numbers_along_are_no_trouble_below_a_mount() {
    let Some(image) = prepared() else { return };
    let tree = image.tree();
    let mounted = Mounted::at(&tree, &image.beside("view"))
        .options("list_xattrs")
        .mount();
    let view = mounted.path();
    for (how, script) in COPIES {
        let stale = image.path().join(format!("stale-{how}"));
        silent(&sh(script, &[&view.join("in"), &stale]), how);
        let kept = raw::getxattr(&stale.join("a"), "user.reflink.shared_bytes").unwrap();
        assert_eq!(kept, b"40960", "{how} copies what is listed");
        let back = view.join(format!("back-{how}"));
        silent(&sh(script, &[&stale, &back]), how);
        check_copied(&tree.join(format!("back-{how}")), how);

        common::files::write_at(&stale.join("a"), 0, &common::files::content(9, 40_000));
        for options in ["", "list_xattrs"] {
            let over = Mounted::at(&stale, &image.beside("over"))
                .options(options)
                .mount();
            let numbers = common::files::asked(&over.path().join("a")).unwrap();
            assert_eq!(
                numbers.shared_bytes, 0,
                "{how}: the mount's own number is shown"
            );
            assert!(names(&over.path().join("a")).contains(&"user.mine".to_owned()));
            drop(over);
        }
    }
}

/// Where nothing is listed, setting one of our names is refused: cp says nothing, since it copies
/// attributes as far as it can, rsync and tar name the attribute, and none of them loses data.
#[test]
fn by_default_a_stale_number_is_refused_and_the_data_arrive_all_the_same() {
    let Some(image) = prepared() else { return };
    let tree = image.tree();
    let stale = image.path().join("stale");
    fs::create_dir(&stale).unwrap();
    write_synced(&stale.join("a"), 5, 10_000);
    raw::setxattr(&stale.join("a"), "user.reflink.bytes", b"1").unwrap();
    raw::setxattr(&stale.join("a"), "user.mine", b"mine").unwrap();
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    for (how, script) in &COPIES[..3] {
        let copy = mounted.path().join(format!("copy-{how}"));
        let said = sh(script, &[&stale, &copy]);
        if *how == "cp" {
            assert!(said.ok(), "{said:?}");
        } else {
            assert!(
                said.stderr.contains("user.reflink.bytes"),
                "{how}: {said:?}"
            );
        }
        let below = tree.join(format!("copy-{how}/a"));
        assert_eq!(
            fs::read(&below).unwrap(),
            fs::read(stale.join("a")).unwrap(),
            "{how}"
        );
        assert!(
            !names(&below).iter().any(|name| name.contains("reflink")),
            "{how}"
        );
        assert_eq!(
            common::files::number(&copy.join("a"), "bytes").unwrap(),
            12_288
        );
    }
}

/// A symbolic link, a FIFO, a socket and a device have none, and nothing may list what nobody can
/// read: rsync would fail.
#[test]
fn with_list_xattrs_what_has_no_numbers_lists_none_and_is_copied() {
    let Some(image) = prepared() else { return };
    let tree = image.tree();
    let special = tree.join("in");
    std::os::unix::fs::symlink("a", special.join("link")).unwrap();
    std::os::unix::net::UnixListener::bind(special.join("socket")).unwrap();
    let made = sh(
        "cd \"$1\"; mkfifo fifo; mknod null c 1 3; mknod loop b 7 0",
        &[&special],
    );
    silent(&made, "mknod");
    let mounted = Mounted::at(&tree, &image.beside("view"))
        .options("list_xattrs")
        .mount();
    let view = mounted.path().join("in");
    for name in ["link", "fifo", "socket", "null", "loop"] {
        let path = view.join(name);
        let listed = sh("getfattr -h -m - --absolute-names \"$1\"", &[&path]);
        silent(&listed, name);
        assert!(!listed.stdout.contains("reflink"), "{name}: {listed:?}");
    }
    assert_eq!(names(&view.join("a")).len(), LISTED.len() + 1);
    assert!(names(&view).len() > LISTED.len());
    for (how, script) in COPIES {
        // Sockets are not for tar.
        let script = script.replace("-cf - .", "--exclude=./socket -cf - .");
        let copy = mounted.path().join(format!("special-{how}"));
        silent(&sh(&script, &[&view, &copy]), how);
        let outside = image.beside("out").join(how);
        silent(&sh(&script, &[&view, &outside]), how);
        let kinds = sh("stat -c %F \"$1\"/fifo \"$1\"/link", &[&outside]);
        assert_eq!(kinds.stdout, "fifo\nsymbolic link\n", "{how}");
    }
}
