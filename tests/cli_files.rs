//! `show`, `clone`, `status`, `doctor`, `completions` and `manual`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::files::{clone, content, number, write_synced};
use common::{Image, Mounted, Output, Scratch, sharelens};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

fn call(arguments: &[&str]) -> Output {
    common::output(Command::new(sharelens()).args(arguments))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn show_gives_the_same_numbers_in_and_outside_a_mount() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("a"), 1, 40_000);
    clone(&tree.join("a"), &tree.join("b"));
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    for (base, by) in [(tree.as_path(), "fiemap"), (mounted.path(), "mount")] {
        let (a, b) = (base.join("a"), base.join("b"));
        let said = call(&["show", "--json", text(&a), text(&b)]);
        assert!(said.ok(), "{said:?}");
        let rows: Value = serde_json::from_str(&said.stdout).unwrap();
        for (row, path) in rows.as_array().unwrap().iter().zip([&a, &b]) {
            assert_eq!(row["path"], text(path));
            assert_eq!(row["by"], by);
            assert_eq!(row["bytes"], 40_960);
            assert_eq!(row["shared_bytes"], 40_960);
            assert_eq!(row["exclusive_bytes"], 0);
            assert_eq!(
                (&row["extents"], &row["shared_extents"]),
                (&1.into(), &1.into())
            );
        }
        let table = call(&["show", text(&a)]);
        let words: Vec<&str> = table
            .stdout
            .lines()
            .nth(1)
            .unwrap()
            .split_whitespace()
            .collect();
        assert_eq!(words, ["40960", "40960", "0", "1", "1", text(&a)]);
        let human = call(&["show", "--human", text(&a)]);
        assert!(human.stdout.contains(" 40.0K"), "{human:?}");
    }
    let missing = call(&["show", text(&tree.join("none")), text(&tree.join("a"))]);
    assert_eq!(missing.code, Some(1));
    assert!(
        missing.stdout.contains("40960"),
        "the others are shown: {missing:?}"
    );
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = Command::new(sharelens())
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
}

#[test]
fn clone_shares_everything_through_the_mount_and_outside() {
    for image in [Image::xfs(), Image::btrfs()] {
        let Some(image) = image else { return };
        let tree = image.tree();
        let mounted = Mounted::at(&tree, &image.beside("view")).mount();
        for base in [tree.as_path(), mounted.path()] {
            let (a, b) = (base.join("a"), base.join("b"));
            fs::write(&a, content(1, 3_000_001)).unwrap();
            let said = call(&["clone", text(&a), text(&b)]);
            assert!(said.ok(), "{said:?}");
            assert_eq!(fs::read(&b).unwrap(), content(1, 3_000_001));
            let view = mounted.path().join("b");
            assert_eq!(number(&view, "exclusive_bytes").unwrap(), 0);
            let again = call(&["clone", text(&a), text(&b)]);
            assert_eq!(again.code, Some(1));
            assert!(
                again.stderr.contains("exists already; --force"),
                "{again:?}"
            );
            assert!(call(&["clone", "--force", text(&a), text(&b)]).ok());
            fs::remove_file(&b).unwrap();
            fs::create_dir(&b).unwrap();
            assert!(call(&["clone", text(&a), text(&b)]).ok());
            assert_eq!(fs::read(b.join("a")).unwrap().len(), 3_000_001);
            fs::remove_dir_all(&b).unwrap();
            assert_eq!(entries(base), 1, "nothing else is left");
            fs::write(base.join("empty"), "").unwrap();
            let empty = base.join("empty");
            assert!(call(&["clone", text(&empty), text(&b)]).ok());
            assert_eq!(fs::metadata(&b).unwrap().len(), 0);
            fs::remove_file(&b).unwrap();
            fs::remove_file(&empty).unwrap();
        }
    }
}

#[test]
fn where_nothing_can_be_cloned_clone_leaves_nothing_behind() {
    let Some(image) = Image::ext4() else { return };
    let tree = image.tree();
    write_synced(&tree.join("a"), 1, 3_000_000);
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    for base in [tree.as_path(), mounted.path()] {
        let said = call(&["clone", text(&base.join("a")), text(&base.join("b"))]);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.stderr.contains("not cloned"), "{said:?}");
        assert_eq!(said.stderr.lines().count(), 1, "{said:?}");
        assert_eq!(entries(base), 1, "no half-made file: {said:?}");
    }
}

#[test]
fn status_tells_of_one_mount_and_of_all() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("a"), 1, 5000);
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let view = mounted.path().join("a");
    number(&view, "bytes").unwrap();
    number(&view, "bytes").unwrap();
    let said = call(&["status", "--json", text(mounted.path())]);
    assert!(said.ok(), "{said:?}");
    let status: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(status["source"], text(&tree));
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert!(status["stats"]["hits"].as_u64().unwrap() >= 1, "{status}");
    assert!(
        status["stats"]["fiemap_calls"].as_u64().unwrap() >= 1,
        "{status}"
    );
    let all = call(&["status"]);
    assert!(
        all.ok() && all.stdout.contains(text(mounted.path())),
        "{all:?}"
    );
    let none = call(&["status", text(&tree)]);
    assert_eq!(none.code, Some(1));
    assert!(
        none.stderr.contains("is not the root of a sharelens mount"),
        "{none:?}"
    );
}

#[test]
fn doctor_knows_the_filesystem_and_what_every_limit_means() {
    let Some(image) = Image::of(common::Kind::Xfs).groups(3).make() else {
        return;
    };
    let tree = image.tree();
    write_synced(&tree.join("a"), 1, 5000);
    let said = call(&["doctor", "--json", text(&tree)]);
    assert!(said.ok(), "{said:?}");
    let findings: Value = serde_json::from_str(&said.stdout).unwrap();
    let of = |what: &str| {
        findings
            .as_array()
            .unwrap()
            .iter()
            .find(|finding| finding["what"] == what)
            .unwrap_or_else(|| panic!("nothing about {what}"))
    };
    assert_eq!(of("filesystem")["found"], "XFS with reflink");
    assert_eq!(of("allocation groups")["found"], "3");
    assert_eq!(of("FIEMAP")["verdict"], "good");
    for finding in findings.as_array().unwrap() {
        assert!(!finding["means"].as_str().unwrap().is_empty());
        let limited = finding["verdict"] != "good";
        assert_eq!(finding.get("remedy").is_some(), limited, "{finding}");
    }
    let none = call(&["doctor", "/nowhere"]);
    assert_eq!(none.code, Some(1));
}

#[test]
fn man_pages_and_completions_come_from_the_same_definitions() {
    let scratch = Scratch::new("man");
    assert!(call(&["manual", text(scratch.path())]).ok());
    for page in ["sharelens.1", "sharelens-mount.1", "mount.sharelens.8"] {
        let page = fs::read_to_string(scratch.path().join(page)).unwrap();
        assert!(page.contains(".TH ") && page.contains("NAME"), "{page}");
    }
    let page = fs::read_to_string(scratch.path().join("mount.sharelens.8")).unwrap();
    assert!(
        page.contains("list_xattrs") && page.contains("max_trust"),
        "{page}"
    );
    for shell in ["bash", "zsh", "fish"] {
        let said = call(&["completions", shell]);
        assert!(said.ok() && said.stdout.contains("umount"), "{shell}");
    }
}

#[test]
fn a_file_is_never_replaced_by_its_own_clone() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    for base in [tree.as_path(), mounted.path()] {
        let [a, hard, other, old] = ["a", "hard", "other", "old"].map(|name| base.join(name));
        fs::write(&a, content(1, 100_000)).unwrap();
        fs::hard_link(&a, &hard).unwrap();
        for to in [&a, &hard] {
            for force in [&["--force"][..], &[]] {
                let said = call(&[&["clone"], force, &[text(&a), text(to)]].concat());
                assert_eq!(said.code, Some(1), "{said:?}");
                assert!(
                    said.stderr
                        .contains("source and destination are the same file"),
                    "{said:?}"
                );
            }
        }
        // Of a file with several names, only the one that is given gets the clone.
        fs::write(&other, "other").unwrap();
        fs::hard_link(&other, &old).unwrap();
        assert!(call(&["clone", "--force", text(&a), text(&other)]).ok());
        assert_eq!(fs::read(&other).unwrap(), content(1, 100_000));
        assert_eq!(fs::read(&old).unwrap(), b"other");
        assert_eq!(entries(base), 4, "nothing else is left");
        for path in [&a, &hard, &other, &old] {
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn names_are_shown_on_one_line_and_play_no_tricks() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    let name = "new\nline\x1b[31m\\";
    let shown = r"new\012line\033[31m\134";
    let dir = tree.join(name);
    fs::create_dir(&dir).unwrap();
    write_synced(&dir.join(name), 1, 5000);
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    for base in [tree.as_path(), mounted.path()] {
        let (dir, file) = (base.join(name), base.join(name).join(name));
        let file_shown = format!("{}/{shown}/{shown}", text(base));
        let none = base.join(name).join("none\n");
        for (arguments, lines) in [
            (&["show", text(&file)][..], 2),
            (&["du", "--all", text(&dir)], 3),
        ] {
            let said = call(arguments);
            assert!(said.ok(), "{said:?}");
            assert_eq!(said.stdout.lines().count(), lines, "{said:?}");
            assert!(
                said.stdout.lines().any(|line| line.ends_with(&file_shown)),
                "{said:?}"
            );
        }
        for arguments in [
            &["show", text(&none)][..],
            &["du", text(&none)],
            &["scan", text(&none)],
            &["refresh", text(&none)],
            &["clone", text(&none), text(&tree)],
            &["clone", text(&file), text(&file)],
            &["status", text(&none)],
            &["doctor", text(&none)],
        ] {
            let said = call(arguments);
            assert_eq!(said.code, Some(1), "{said:?}");
            assert_eq!(said.stderr.lines().count(), 1, "{said:?}");
            assert!(!said.stderr.contains('\x1b'), "{said:?}");
        }
    }
    let scanned = call(&["scan", text(&mounted.path().join(name))]);
    assert!(scanned.ok(), "{scanned:?}");
    assert_eq!(scanned.stdout.lines().count(), 1, "{scanned:?}");
    assert!(scanned.stdout.contains(shown), "{scanned:?}");
    drop(mounted);
    let point = image.beside(name);
    assert!(call(&["mount", text(&dir), text(&point)]).ok());
    let said = call(&["status", text(&point)]);
    let gone = call(&["umount", text(&point)]);
    assert!(gone.ok(), "{gone:?}");
    assert!(said.ok() && !said.stdout.contains('\x1b'), "{said:?}");
    assert!(said.stdout.contains(shown), "{said:?}");
}

#[test]
fn a_symbolic_link_is_asked_about_what_it_leads_to() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("a"), 1, 40_000);
    std::os::unix::fs::symlink("a", tree.join("link")).unwrap();
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    for base in [tree.as_path(), mounted.path()] {
        let said = call(&["show", "--json", text(&base.join("link"))]);
        assert!(said.ok(), "{said:?}");
        let rows: Value = serde_json::from_str(&said.stdout).unwrap();
        assert_eq!(rows[0]["bytes"], 40_960, "{rows}");
    }
}

#[test]
fn doctor_says_what_is_right_for_each_filesystem() {
    let of = |path: &str, what: &str| -> Value {
        let said = call(&["doctor", "--json", path]);
        assert!(said.ok(), "{said:?}");
        let findings: Value = serde_json::from_str(&said.stdout).unwrap();
        let found = findings
            .as_array()
            .unwrap()
            .iter()
            .find(|finding| finding["what"] == what);
        found.unwrap_or(&Value::Null).clone()
    };
    for (path, kind) in [("/proc", "proc"), ("/dev/shm", "tmpfs")] {
        let finding = of(path, "filesystem");
        assert_eq!(
            (&finding["found"], &finding["verdict"]),
            (&kind.into(), &"missing".into())
        );
        let remedy = finding["remedy"].as_str().unwrap();
        assert!(remedy.contains("give a directory on a disk"), "{remedy}");
        assert_eq!(of(path, "FIEMAP"), Value::Null, "nothing to be tried there");
    }
    let Some(image) = Image::of(common::Kind::Xfs).without_reflink().make() else {
        return;
    };
    let tree = image.tree();
    write_synced(&tree.join("a"), 1, 5000);
    let finding = of(text(&tree), "filesystem");
    assert_eq!(finding["found"], "XFS without reflink");
    let means = finding["means"].as_str().unwrap();
    assert!(
        means.contains("shared_bytes is 0 and exclusive_bytes all of it"),
        "{means}"
    );
    // And so it is.
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let view = mounted.path().join("a");
    assert_eq!(number(&view, "shared_bytes").unwrap(), 0);
    assert_eq!(number(&view, "exclusive_bytes").unwrap(), 8192);
}
