//! `sharelens du` and `sharelens scan`, and listings too long for an attribute.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::files::{clone, content, number, write_at, write_synced};
use common::{Image, Kind, Mounted, Output, have, run, sharelens, truth};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn call(arguments: &[&str]) -> Output {
    common::output(Command::new(sharelens()).args(arguments))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The rows of `du --json`, with their paths relative to the directory asked about.
fn rows(path: &Path, more: &[&str]) -> Vec<(String, Value)> {
    let said = call(&[&["du", "--json"], more, &[text(path)]].concat());
    assert!(said.ok(), "{said:?}");
    let rows: Vec<Value> = serde_json::from_str(&said.stdout).unwrap();
    rows.into_iter()
        .map(|mut row| {
            let whole = row["path"].take();
            let relative = Path::new(whole.as_str().unwrap())
                .strip_prefix(path)
                .unwrap();
            (relative.to_str().unwrap().to_owned(), row)
        })
        .collect()
}

fn images() -> Vec<Image> {
    [Image::xfs(), Image::btrfs()]
        .into_iter()
        .flatten()
        .collect()
}

/// W4's first example: foo, 2 MiB, cloned to bar and baz, then its second half written anew.
#[test]
fn the_directory_row_of_a_rewritten_half() {
    for image in images() {
        let tree = image.tree();
        write_synced(&tree.join("foo"), 1, 2 << 20);
        clone(&tree.join("foo"), &tree.join("bar"));
        clone(&tree.join("foo"), &tree.join("baz"));
        truth::settle(&tree);
        write_at(&tree.join("foo"), 1 << 20, &content(2, 1 << 20));
        truth::settle(&tree);
        let mounted = Mounted::at(&tree, &image.beside("view")).mount();
        for base in [tree.as_path(), mounted.path()] {
            let said = call(&["du", "--all", text(base)]);
            let table: Vec<Vec<&str>> = said
                .stdout
                .lines()
                .skip(1)
                .map(|line| line.split_whitespace().collect())
                .collect();
            let path = |name: &str| text(base).to_owned() + name;
            assert_eq!(
                table,
                [
                    ["6.0M", "1.0M", "2.0M", "3.0M", &path("")],
                    ["2.0M", "1.0M", "-", "-", &path("/foo")],
                    ["2.0M", "0", "-", "-", &path("/bar")],
                    ["2.0M", "0", "-", "-", &path("/baz")],
                ],
                "{said:?}"
            );
            let exact = call(&["du", "--bytes", "--depth", "0", text(base)]);
            let words: Vec<&str> = exact
                .stdout
                .lines()
                .nth(1)
                .unwrap()
                .split_whitespace()
                .collect();
            assert_eq!(words[..4], ["6291456", "1048576", "2097152", "3145728"]);
            assert_eq!(exact.stdout.lines().count(), 2);
        }
    }
}

/// Clones a range on backing paths.
fn clone_range(from: &Path, offset: u64, to: &Path, to_offset: u64, length: usize) {
    let source = File::open(from).unwrap();
    let target = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(to)
        .unwrap();
    let copied = common::raw::copy_range(&source, offset, &target, to_offset, length).unwrap();
    assert_eq!(copied, length);
}

/// W4's second example: a copy that lost a part of its sharing, and one in which everything is
/// shared, a part with each of two others.
#[test]
fn rows_tell_a_bad_copy_from_a_good_one() {
    const MIB: u64 = 1 << 20;
    for image in images() {
        let tree = image.tree();
        for dir in ["bad", "good"] {
            fs::create_dir(tree.join(dir)).unwrap();
            write_synced(&tree.join(dir).join("foo"), 1, 2 << 20);
        }
        for (name, seed) in [("bar", 3), ("baz", 4)] {
            clone(&tree.join("bad/foo"), &tree.join("bad").join(name));
            write_at(&tree.join("bad").join(name), MIB, &content(seed, 1 << 20));
        }
        let good = |name: &str| tree.join("good").join(name);
        clone_range(&good("foo"), 0, &good("bar"), 0, 1 << 20);
        write_at(&good("bar"), MIB, &content(5, 1 << 20));
        truth::settle(&tree);
        clone_range(&good("foo"), MIB, &good("baz"), 0, 1 << 20);
        clone_range(&good("bar"), MIB, &good("baz"), MIB, 1 << 20);
        truth::settle(&tree);
        // What the others wrote anew keeps the whole extent item shared on btrfs, nothing on XFS.
        let bad = match image.kind() {
            Kind::Btrfs => [[6, 2, 2], [2, 0, 0], [2, 1, 0], [2, 1, 0]],
            _ => [[6, 3, 1], [2, 1, 0], [2, 1, 0], [2, 1, 0]],
        };
        let mounted = Mounted::at(&tree, &image.beside("view")).mount();
        for base in [tree.as_path(), mounted.path()] {
            for (dir, wanted) in [
                ("bad", bad),
                ("good", [[6, 0, 3], [2, 0, 0], [2, 0, 0], [2, 0, 0]]),
            ] {
                let mut found = rows(&base.join(dir), &["--all", "--sort", "name"]);
                found.sort_by_key(|(path, _)| match path.as_str() {
                    "" => 0,
                    "foo" => 1,
                    "bar" => 2,
                    _ => 3,
                });
                let found: Vec<[u64; 3]> = found
                    .iter()
                    .map(|(_, row)| {
                        ["bytes", "exclusive_bytes", "set_shared_bytes"]
                            .map(|name| row[name].as_u64().unwrap_or_default() / MIB)
                    })
                    .collect();
                assert_eq!(found, wanted, "{dir} in {base:?}");
            }
        }
    }
}

/// A tree of files without inline data, with whole and partial clones, also within one file, hard
/// links, and parts written anew.
fn random_tree(top: &Path, seed: u64) -> Vec<PathBuf> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut dirs = vec![top.to_owned()];
    let mut files: Vec<PathBuf> = Vec::new();
    for step in 0..90 {
        let dir = dirs[random.random_range(0..dirs.len())].clone();
        let path = dir.join(format!("n{step}"));
        let any = |random: &mut ChaCha8Rng| files[random.random_range(0..files.len())].clone();
        match random.random_range(0..9) {
            0 => {
                fs::create_dir(&path).unwrap();
                dirs.push(path);
            }
            1 | 2 if !files.is_empty() => {
                clone(&any(&mut random), &path);
                files.push(path);
            }
            6 | 7 if !files.is_empty() => {
                // Where it lies in the other, it overlaps what that shares already, or is a hole.
                let (from, to) = (any(&mut random), any(&mut random));
                let blocks = fs::metadata(&from).unwrap().len() / 4096;
                let first = random.random_range(0..blocks);
                let length = random.random_range(1..=blocks - first);
                let mut at = random.random_range(0..60);
                if from == to && at < first + length && first < at + length {
                    at = first + length;
                }
                clone_range(
                    &from,
                    first * 4096,
                    &to,
                    at * 4096,
                    (length * 4096) as usize,
                );
            }
            8 if !files.is_empty() => {
                fs::hard_link(any(&mut random), &path).unwrap();
            }
            3 if !files.is_empty() => {
                let file = &any(&mut random);
                let blocks = fs::metadata(file).unwrap().len() / 4096;
                let at = random.random_range(0..blocks) * 4096;
                write_at(file, at, &content(step, 4096));
                truth::settle(top);
            }
            _ => {
                write_synced(&path, step, random.random_range(1..40) * 4096);
                files.push(path);
            }
        }
    }
    truth::settle(top);
    dirs
}

#[test]
fn every_row_agrees_with_btrfs_filesystem_du() {
    if !have("btrfs") {
        return;
    }
    let Some(image) = Image::of(Kind::Btrfs).make() else {
        return;
    };
    let top = image.tree();
    let seed = rand::random();
    println!("seed {seed}");
    let dirs = random_tree(&top, seed);
    let mut arguments = vec!["filesystem", "du", "--raw", "-s"];
    arguments.extend(dirs.iter().map(|dir| text(dir)));
    let table = run("btrfs", &arguments);
    let wanted: BTreeMap<String, [u64; 3]> = table
        .lines()
        .skip(1)
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let path = Path::new(words[3]).strip_prefix(&top).unwrap();
            let numbers = [words[0], words[1], words[2]].map(|word| word.parse().unwrap());
            (path.to_str().unwrap().to_owned(), numbers)
        })
        .collect();
    assert_eq!(wanted.len(), dirs.len());
    let mounted = Mounted::at(&top, &image.beside("view")).mount();
    for base in [top.as_path(), mounted.path()] {
        let found: BTreeMap<String, [u64; 3]> = rows(base, &[])
            .into_iter()
            .map(|(path, row)| {
                let columns = ["bytes", "exclusive_bytes", "set_shared_bytes"];
                (path, columns.map(|name| row[name].as_u64().unwrap()))
            })
            .collect();
        assert_eq!(found, wanted, "seed {seed}, {base:?}");
    }
}

#[test]
fn a_mount_and_a_plain_directory_give_the_same_rows_in_the_same_order() {
    for image in images() {
        let top = image.tree();
        random_tree(&top, 11);
        let mounted = Mounted::at(&top, &image.beside("view")).mount();
        for more in [
            &["--all"][..],
            &["--sort", "total"],
            &["--sort", "name", "--all"],
            &["--depth", "1"],
        ] {
            let plain = rows(&top, more);
            assert_eq!(rows(mounted.path(), more), plain, "{more:?}");
            let key = |row: &Value| match more.contains(&"total") {
                true => row["bytes"].as_u64(),
                false => row["exclusive_bytes"].as_u64(),
            };
            let below: Vec<&(String, Value)> =
                plain.iter().filter(|(_, row)| row["depth"] == 1).collect();
            assert!(below.len() > 1);
            for pair in below.windows(2) {
                if more.contains(&"name") {
                    assert!(pair[0].0 < pair[1].0);
                } else {
                    assert!(key(&pair[0].1) >= key(&pair[1].1));
                }
            }
        }
    }
}

/// 3,000 long names take more than 64 KiB: no attribute holds them.
#[test]
fn a_listing_too_long_for_an_attribute_comes_in_pages() {
    let Some(image) = Image::xfs() else { return };
    let top = image.tree();
    fs::create_dir(top.join("many")).unwrap();
    write_synced(&top.join("first"), 1, 8192);
    for number in 0..3000 {
        let name = format!("many/a name with\nbreaks and blanks {number}");
        if number % 100 == 0 {
            clone(&top.join("first"), &top.join(name));
        } else {
            fs::write(top.join(name), content(number, 5000)).unwrap();
        }
    }
    let mounted = Mounted::at(&top, &image.beside("view")).mount();
    let many = mounted.path().join("many");
    assert!(common::files::text(&many, "children").is_err());
    let found = rows(&many, &["--all"]);
    assert_eq!(found.len(), 3001);
    assert_eq!(found, rows(&top.join("many"), &["--all"]));
    let shared = |row: &&(String, Value)| row.1["shared_bytes"] == 8192 && !row.0.is_empty();
    assert_eq!(found.iter().filter(shared).count(), 30);
    for (path, row) in found.iter().skip(1).step_by(500) {
        let asked = number(&many.join(path), "bytes").unwrap();
        assert_eq!(row["bytes"].as_u64().unwrap(), asked);
    }
    // What was removed is not listed, what changed is seen.
    fs::remove_file(many.join(&found[1].0)).unwrap();
    write_at(&many.join(&found[2].0), 0, &content(7, 20_000));
    let again = rows(&many, &["--all"]);
    assert_eq!(again.len(), 3000);
    let grown = again.iter().find(|(path, _)| *path == found[2].0).unwrap();
    assert_eq!(grown.1["bytes"], 20_480);
}

/// As an ordinary user: neither file handles nor events, files are opened by name.
#[test]
fn an_ordinary_user_sees_what_may_be_read_and_is_told_of_the_rest() {
    for image in images() {
        let top = image.tree();
        random_tree(&top, 3);
        let whole = rows(&top, &[]);
        for point in [image.path(), &top] {
            fs::set_permissions(point, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let program = image.beside("bin").join("sharelens");
        fs::copy(sharelens(), &program).unwrap();
        let user = |path: &Path| {
            common::output(Command::new("setpriv").args([
                "--reuid",
                "65534",
                "--regid",
                "65534",
                "--clear-groups",
                text(&program),
                "du",
                "--json",
                text(path),
            ]))
        };
        let said = user(&top);
        assert!(said.ok() && said.stderr.is_empty(), "{said:?}");
        let found: Vec<Value> = serde_json::from_str(&said.stdout).unwrap();
        let bytes = |row: &Value| {
            ["bytes", "exclusive_bytes", "set_shared_bytes"].map(|name| row[name].as_u64().unwrap())
        };
        assert_eq!(
            found.iter().map(bytes).collect::<Vec<_>>(),
            whole.iter().map(|(_, row)| bytes(row)).collect::<Vec<_>>()
        );
        fs::create_dir(top.join("closed")).unwrap();
        write_synced(&top.join("closed/in"), 1, 8192);
        fs::set_permissions(top.join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
        let said = user(&top);
        let found: Vec<Value> = serde_json::from_str(&said.stdout).unwrap();
        assert_eq!(bytes(&found[0]), bytes(&whole[0].1));
        assert!(
            said.stderr.contains("1 directories may not be read"),
            "{said:?}"
        );
    }
}

#[test]
fn scan_reads_everything_once_and_tells_what_was_left_out() {
    let Some(image) = Image::xfs() else { return };
    let top = image.tree();
    fs::create_dir_all(top.join("a/b")).unwrap();
    fs::create_dir(top.join("other")).unwrap();
    write_synced(&top.join("a/x"), 1, 40_000);
    clone(&top.join("a/x"), &top.join("a/b/y"));
    run("mount", ["-t", "tmpfs", "none", text(&top.join("other"))]);
    let mounted = Mounted::at(&top, &image.beside("view")).mount();
    let said = call(&["scan", text(mounted.path())]);
    assert!(said.ok(), "{said:?}");
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!(
        lines[0],
        format!("{}: 2 files in 3 directories, 80.0K", text(mounted.path())),
        "{said:?}"
    );
    assert!(lines[2].contains("1 things are mounted below"), "{said:?}");
    // Known now: a file's peers are there without another question about the directory.
    assert_eq!(number(&mounted.path().join("a/x"), "peers").unwrap(), 1);
    let json = call(&["scan", "--json", text(&mounted.path().join("a"))]);
    let value: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&value["files"], &value["dirs"]), (&2.into(), &1.into()));
    let outside = call(&["scan", text(&top)]);
    assert_eq!(outside.code, Some(1));
    assert!(
        outside.stderr.contains("not in a sharelens mount"),
        "{outside:?}"
    );
    let file = call(&["scan", text(&mounted.path().join("a/x"))]);
    assert!(file.stderr.contains("not a directory"), "{file:?}");
    run("umount", [text(&top.join("other"))]);
}
