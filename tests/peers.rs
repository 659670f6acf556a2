//! Who shares with a file: the number `peers`, alone and beside the other numbers, and the paths
//! that `sharelens show --peers` lists.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::actors::{User, code};
use common::files::{clone, content, number, text, write_at, write_synced};
use common::{Image, Kind, Mounted, Output, raw, run, sharelens, truth};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

fn images() -> Vec<Image> {
    [Image::xfs(), Image::btrfs()]
        .into_iter()
        .flatten()
        .collect()
}

fn mounted(image: &Image, tree: &Path) -> Mounted {
    Mounted::at(tree, &image.beside("mnt")).mount()
}

fn show(file: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(sharelens());
    common::output(command.args(["show", "--peers"]).args(more).arg(file))
}

/// The paths that are listed, relative to the root of the mount.
fn listed(mount: &Mounted, file: &str) -> Vec<String> {
    let said = show(&mount.path().join(file), &[]);
    assert!(said.ok() && said.stderr.is_empty(), "{said:?}");
    let below = |line: &str| {
        let path = Path::new(line).strip_prefix(mount.path()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    said.stdout.lines().map(below).collect()
}

/// The number of peers, the same wherever it stands.
fn counted(mount: &Mounted, file: &str) -> u64 {
    let path = mount.path().join(file);
    let json: Value = serde_json::from_str(&text(&path, "json").unwrap()).unwrap();
    let summary = text(&path, "summary").unwrap();
    let peers = number(&path, "peers").unwrap();
    assert_eq!(json["peers"], peers, "{file}");
    assert!(
        summary.ends_with(&format!(" peers={peers}")),
        "{file}: {summary}"
    );
    // Once more, from what is remembered.
    assert_eq!(text(&path, "summary").unwrap(), summary);
    peers
}

/// Copies within the mount, which clones.
fn copy(mount: &Mounted, from: &str, to: &str) {
    run("cp", [mount.path().join(from), mount.path().join(to)]);
}

fn overwrite(mount: &Mounted, file: &str, offset: u64, length: usize) {
    let path = mount.path().join(file);
    write_at(&path, offset, &content(offset + length as u64, length));
}

#[test]
fn peers_are_unknown_until_the_root_was_scanned() {
    for image in images() {
        let tree = image.tree();
        fs::create_dir(tree.join("sub")).unwrap();
        write_synced(&tree.join("sub/a"), 1, 40_000);
        clone(&tree.join("sub/a"), &tree.join("b"));
        let mount = mounted(&image, &tree);
        let a = mount.path().join("sub/a");
        let unknown = || {
            let error = number(&a, "peers").unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODATA));
            assert!(!text(&a, "summary").unwrap().contains("peers"));
            assert!(!text(&a, "json").unwrap().contains("peers"));
            let said = show(&a, &[]);
            assert_eq!(said.code, Some(1));
            let remedy = format!("`sharelens scan {}`", mount.path().display());
            assert!(said.stderr.contains(&remedy), "{said:?}");
        };
        unknown();
        // A part of the mount does not tell who else shares.
        assert_eq!(number(&mount.path().join("sub"), "files").unwrap(), 1);
        unknown();
        let scan = Command::new(sharelens())
            .arg("scan")
            .arg(mount.path())
            .output();
        assert!(scan.unwrap().status.success());
        assert_eq!(counted(&mount, "sub/a"), 1);
        assert_eq!(listed(&mount, "sub/a"), ["b"]);
        let refreshed = Command::new(sharelens())
            .arg("refresh")
            .arg(mount.path())
            .output();
        assert!(refreshed.unwrap().status.success());
        unknown();
    }
}

#[test]
fn peers_follow_what_is_done_through_the_mount() {
    for image in images() {
        let tree = image.tree();
        fs::create_dir_all(tree.join("one/two")).unwrap();
        fs::create_dir(tree.join("other")).unwrap();
        write_synced(&tree.join("one/a"), 1, 1 << 20);
        write_synced(&tree.join("alone"), 2, 40_000);
        let mount = mounted(&image, &tree);
        assert_eq!(number(mount.path(), "files").unwrap(), 2);
        assert_eq!(counted(&mount, "one/a"), 0);
        assert!(listed(&mount, "one/a").is_empty());

        // Cloned, across directories.
        copy(&mount, "one/a", "one/two/b");
        assert_eq!(counted(&mount, "one/a"), 1);
        copy(&mount, "one/two/b", "other/c");
        assert_eq!(counted(&mount, "one/a"), 2);
        assert_eq!(listed(&mount, "one/a"), ["one/two/b", "other/c"]);
        assert_eq!(listed(&mount, "other/c"), ["one/a", "one/two/b"]);
        assert_eq!(counted(&mount, "alone"), 0);

        // Every name of a hard link is listed, and it counts once.
        fs::hard_link(
            mount.path().join("other/c"),
            mount.path().join("one/two/again"),
        )
        .unwrap();
        fs::hard_link(mount.path().join("other/c"), mount.path().join("other/d")).unwrap();
        assert_eq!(counted(&mount, "one/a"), 2);
        let names = ["one/two/again", "one/two/b", "other/c", "other/d"];
        assert_eq!(listed(&mount, "one/a"), names);
        // A file is no peer of itself, under whichever name.
        fs::hard_link(mount.path().join("one/a"), mount.path().join("same")).unwrap();
        assert_eq!(listed(&mount, "same"), names);
        fs::remove_file(mount.path().join("other/c")).unwrap();
        fs::remove_file(mount.path().join("one/two/again")).unwrap();
        assert_eq!(listed(&mount, "one/a"), ["one/two/b", "other/d"]);

        // Moved, and the directory above it.
        fs::rename(mount.path().join("other"), mount.path().join("one/moved")).unwrap();
        assert_eq!(listed(&mount, "one/a"), ["one/moved/d", "one/two/b"]);

        // Overwritten in part, still a peer; in whole, none.
        overwrite(&mount, "one/moved/d", 0, 1 << 19);
        assert_eq!(counted(&mount, "one/a"), 2);
        overwrite(&mount, "one/moved/d", 1 << 19, 1 << 19);
        assert_eq!(counted(&mount, "one/a"), 1);
        assert_eq!(listed(&mount, "one/a"), ["one/two/b"]);
        assert_eq!(counted(&mount, "one/moved/d"), 0);

        // Truncated, and filled by a clone again.
        File::create(mount.path().join("one/two/b")).unwrap();
        assert_eq!(counted(&mount, "one/a"), 0);
        copy(&mount, "one/a", "one/moved/d");
        assert_eq!(listed(&mount, "one/a"), ["one/moved/d"]);

        // Removed while open: its blocks are still shared, by a file without a name.
        let open = File::open(mount.path().join("one/moved/d")).unwrap();
        fs::remove_file(mount.path().join("one/moved/d")).unwrap();
        assert!(listed(&mount, "one/a").is_empty());
        assert_eq!(
            number(&mount.path().join("one/a"), "shared_bytes").unwrap(),
            1 << 20
        );
        drop(open);
        assert_eq!(counted(&mount, "one/a"), 0);

        // Behind the mount.
        clone(&tree.join("one/a"), &tree.join("behind"));
        assert_eq!(counted(&mount, "one/a"), 1);
        assert_eq!(listed(&mount, "one/a"), ["behind"]);
        fs::rename(tree.join("behind"), tree.join("one/two/z")).unwrap();
        assert_eq!(listed(&mount, "one/a"), ["one/two/z"]);
        fs::remove_file(tree.join("one/two/z")).unwrap();
        assert_eq!(counted(&mount, "one/a"), 0);
    }
}

/// Two halves of one extent item are in two files: on btrfs each keeps the item shared, on XFS
/// nothing is.
#[test]
fn halves_of_one_extent_item_are_peers_where_items_are_shared() {
    for image in images() {
        let tree = image.tree();
        write_synced(&tree.join("a"), 1, 1 << 20);
        clone(&tree.join("a"), &tree.join("b"));
        let mount = mounted(&image, &tree);
        assert_eq!(number(mount.path(), "files").unwrap(), 2);
        overwrite(&mount, "a", 0, 1 << 19);
        overwrite(&mount, "b", 1 << 19, 1 << 19);
        let peers = u64::from(image.kind() == Kind::Btrfs);
        assert_eq!(counted(&mount, "a"), peers);
        assert_eq!(counted(&mount, "b"), peers);
        let shared = number(&mount.path().join("a"), "shared_bytes").unwrap();
        assert_eq!(shared, peers << 19);
    }
}

/// Whether the maps of two files have a byte in common.
fn meet(one: &Path, other: &Path) -> bool {
    let maps = [one, other].map(truth::map);
    maps[0].iter().any(|a| {
        maps[1]
            .iter()
            .any(|b| a.physical < b.physical + b.length && b.physical < a.physical + a.length)
    })
}

#[test]
fn peers_are_those_whose_maps_meet_in_random_histories() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    let mount = mounted(&image, &tree);
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut dirs = vec![PathBuf::new()];
    let mut files: Vec<PathBuf> = Vec::new();
    assert_eq!(number(mount.path(), "files").unwrap(), 0);
    for step in 0..150_u64 {
        let new = dirs[random.random_range(0..dirs.len())].join(format!("n{step}"));
        let any = (!files.is_empty()).then(|| random.random_range(0..files.len().max(1)));
        match (random.random_range(0..10), any) {
            (0, _) => {
                fs::create_dir(mount.path().join(&new)).unwrap();
                dirs.push(new);
            }
            (1..=3, Some(any)) => {
                run(
                    "cp",
                    [mount.path().join(&files[any]), mount.path().join(&new)],
                );
                files.push(new);
            }
            (4, Some(any)) => {
                let file = OpenOptions::new()
                    .write(true)
                    .open(mount.path().join(&files[any]))
                    .unwrap();
                let blocks = file.metadata().unwrap().len() / 4096;
                file.set_len(random.random_range(0..=blocks) * 4096)
                    .unwrap();
            }
            (5..=6, Some(any)) => {
                let at = random.random_range(0..8) * 4096;
                write_at(
                    &mount.path().join(&files[any]),
                    at,
                    &content(step, random.random_range(1..5) * 4096),
                );
            }
            (7, Some(any)) => {
                fs::rename(mount.path().join(&files[any]), mount.path().join(&new)).unwrap();
                files[any] = new;
            }
            (8, Some(any)) => {
                fs::remove_file(mount.path().join(files.swap_remove(any))).unwrap();
            }
            _ => {
                fs::write(
                    mount.path().join(&new),
                    content(step, random.random_range(1..10) * 4096),
                )
                .unwrap();
                files.push(new);
            }
        }
        if step % 10 != 9 {
            continue;
        }
        files.sort();
        let asked: Vec<Vec<String>> = files
            .iter()
            .map(|file| {
                let file = file.to_str().unwrap();
                let paths = listed(&mount, file);
                assert_eq!(counted(&mount, file), paths.len() as u64);
                paths
            })
            .collect();
        truth::settle(&tree);
        for (file, found) in files.iter().zip(asked) {
            let wanted: Vec<&str> = files
                .iter()
                .filter(|other| *other != file)
                .filter(|other| meet(&tree.join(file), &tree.join(other)))
                .map(|other| other.to_str().unwrap())
                .collect();
            assert_eq!(found, wanted, "seed {seed}, step {step}: {file:?}");
        }
    }
}

/// More paths than one answer of the mount holds.
#[test]
fn thousands_of_peers_come_in_pages() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("a"), 1, 8192);
    let mut wanted = Vec::new();
    for number in 0..1500 {
        let dir = format!("a directory with a long name of its own {}", number % 7);
        fs::create_dir_all(tree.join(&dir)).unwrap();
        let name = format!("{dir}/a name that is long as well, so that few fit {number}");
        clone(&tree.join("a"), &tree.join(&name));
        wanted.push(name);
    }
    wanted.sort();
    let mount = mounted(&image, &tree);
    assert_eq!(number(mount.path(), "files").unwrap(), 1501);
    assert_eq!(counted(&mount, "a"), 1500);
    assert_eq!(listed(&mount, "a"), wanted);
    let said = show(&mount.path().join("a"), &["--json"]);
    let value: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(value[0]["peers"].as_array().unwrap().len(), 1500);
    assert_eq!(value[0]["hidden"], 0);
}

/// Subvolumes have inode numbers of their own.
#[test]
fn peers_in_snapshots_are_listed() {
    let Some(image) = Image::btrfs() else { return };
    let tree = image.tree();
    let (from, to) = (tree.join("live"), tree.join("snap"));
    run("btrfs", ["subvolume", "create", from.to_str().unwrap()]);
    write_synced(&from.join("a"), 1, 40_000);
    run(
        "btrfs",
        [
            "subvolume",
            "snapshot",
            from.to_str().unwrap(),
            to.to_str().unwrap(),
        ],
    );
    let mount = mounted(&image, &tree);
    assert_eq!(number(mount.path(), "files").unwrap(), 2);
    assert_eq!(listed(&mount, "live/a"), ["snap/a"]);
    assert_eq!(listed(&mount, "snap/a"), ["live/a"]);
    let again = tree.join("again");
    run(
        "btrfs",
        [
            "subvolume",
            "snapshot",
            from.to_str().unwrap(),
            again.to_str().unwrap(),
        ],
    );
    assert_eq!(counted(&mount, "live/a"), 2);
    assert_eq!(listed(&mount, "live/a"), ["again/a", "snap/a"]);
}

#[test]
fn names_of_others_are_for_root_and_the_owner() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    let (owner, other) = (65_534, 65_533);
    for dir in ["open", "closed"] {
        fs::create_dir(tree.join(dir)).unwrap();
    }
    write_synced(&tree.join("mine"), 1, 8192);
    for name in ["open/mine", "open/theirs", "closed/mine"] {
        clone(&tree.join("mine"), &tree.join(name));
    }
    for name in ["mine", "open/mine", "closed/mine"] {
        chown(tree.join(name), Some(owner), Some(owner)).unwrap();
    }
    fs::set_permissions(tree.join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o755)).unwrap();
    let point = image.beside("mnt");
    let mount = Mounted::at(&tree, &point).options("allow_other").mount();
    assert_eq!(number(mount.path(), "files").unwrap(), 4);
    let ask = |uid: u32, file: &str| {
        let file = File::open(mount.path().join(file)).unwrap();
        User::new(uid).run(|| raw::peers(&file))
    };
    let paths = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect();
    let all: Vec<Vec<u8>> = paths(&["closed/mine", "open/mine", "open/theirs"]);
    assert_eq!(ask(0, "mine").unwrap(), (all, 0));
    assert_eq!(ask(owner, "mine").unwrap(), (paths(&["open/mine"]), 2));
    assert_eq!(
        ask(other, "mine").unwrap_err().raw_os_error(),
        Some(libc::EPERM)
    );
    // The number is for whoever may read the file.
    let asked = User::new(other).run(|| code(number(&mount.path().join("mine"), "peers")));
    assert_eq!(asked, 0);
}

#[test]
fn what_shares_with_nothing_is_refused_in_a_sentence() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("a"), 1, 8192);
    let mount = mounted(&image, &tree);
    let outside = show(&tree.join("a"), &[]);
    assert_eq!(outside.code, Some(1));
    assert!(
        outside.stderr.contains("not in a sharelens mount"),
        "{outside:?}"
    );
    let directory = show(mount.path(), &[]);
    assert_eq!(directory.code, Some(1));
    assert!(
        directory.stderr.contains("only regular files"),
        "{directory:?}"
    );
}
