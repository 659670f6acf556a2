//! What others change behind the mount, seen through it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::files::{asked, content, number, text, write_at, write_synced};
use common::{Image, Mounted, run, sharelens, truth, try_run};
use nix::sys::signal::Signal;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const BOTH: [&str; 2] = ["io=passthrough", "io=cached"];

/// Waits until the mount shows it: a notice is under way for a millisecond or two.
#[track_caller]
fn soon(what: &str, mut shown: impl FnMut() -> bool) {
    within(Duration::from_millis(500), what, &mut shown);
}

#[track_caller]
fn within(time: Duration, what: &str, shown: &mut dyn FnMut() -> bool) {
    let start = Instant::now();
    while !shown() {
        assert!(start.elapsed() < time, "not seen after {time:?}: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn images() -> Vec<Image> {
    Image::xfs().into_iter().chain(Image::btrfs()).collect()
}

fn following(mounted: &Mounted) -> bool {
    let stats: serde_json::Value =
        serde_json::from_str(&text(mounted.path(), "stats").unwrap()).unwrap();
    stats["following"].as_bool().unwrap()
}

#[test]
fn names_come_go_and_change_hands_at_once() {
    for (image, io) in images().iter().flat_map(|image| BOTH.map(|io| (image, io))) {
        let tree = image.tree();
        let mounted = Mounted::at(&tree, &image.beside("view"))
            .options(io)
            .mount();
        assert!(following(&mounted));
        let view = mounted.path();
        assert!(!view.join("new").exists(), "now it is known to be missing");
        fs::write(tree.join("new"), "one").unwrap();
        soon("a new file", || view.join("new").exists());
        assert_eq!(fs::read(view.join("new")).unwrap(), b"one");

        fs::rename(tree.join("new"), tree.join("moved")).unwrap();
        soon("renamed, the old name", || !view.join("new").exists());
        soon("renamed, the new name", || view.join("moved").exists());

        fs::write(tree.join("other"), "another").unwrap();
        soon("a second file", || view.join("other").exists());
        let number = fs::metadata(tree.join("other")).unwrap().ino();
        fs::rename(tree.join("other"), tree.join("moved")).unwrap();
        soon("replaced", || {
            fs::metadata(view.join("moved")).unwrap().ino() == number
        });
        assert_eq!(fs::read(view.join("moved")).unwrap(), b"another");

        fs::create_dir_all(tree.join("dir/below")).unwrap();
        soon("a directory", || view.join("dir/below").is_dir());
        fs::write(tree.join("dir/below/file"), "x").unwrap();
        soon("a file below", || view.join("dir/below/file").exists());
        fs::rename(tree.join("dir"), tree.join("away")).unwrap();
        soon("a directory that moved", || {
            !view.join("dir/below/file").exists() && view.join("away/below/file").exists()
        });
        fs::remove_dir_all(tree.join("away")).unwrap();
        soon("a removed directory", || !view.join("away").exists());

        symlink("moved", tree.join("link")).unwrap();
        soon("a symlink", || fs::read_link(view.join("link")).is_ok());
        symlink("new", tree.join("link2")).unwrap();
        fs::rename(tree.join("link2"), tree.join("link")).unwrap();
        soon("another symlink", || {
            fs::read_link(view.join("link")).unwrap() == Path::new("new")
        });
        fs::remove_file(tree.join("link")).unwrap();
        fs::remove_file(tree.join("moved")).unwrap();
        soon("an empty directory", || {
            fs::read_dir(view).unwrap().next().is_none()
        });
    }
}

#[test]
fn attributes_and_data_follow_at_once() {
    for (image, io) in images().iter().flat_map(|image| BOTH.map(|io| (image, io))) {
        let tree = image.tree();
        write_synced(&tree.join("file"), 1, 8192);
        let mounted = Mounted::at(&tree, &image.beside("view"))
            .options(io)
            .mount();
        let (behind, view) = (tree.join("file"), mounted.path().join("file"));
        let open = File::open(&view).unwrap();
        let look = || fs::metadata(&view).unwrap();
        assert_eq!(fs::read(&view).unwrap(), content(1, 8192));

        fs::set_permissions(&behind, Permissions::from_mode(0o640)).unwrap();
        soon("a mode", || look().mode() & 0o7777 == 0o640);
        std::os::unix::fs::chown(&behind, Some(4711), Some(4712)).unwrap();
        soon("an owner", || (look().uid(), look().gid()) == (4711, 4712));
        fs::hard_link(&behind, tree.join("second")).unwrap();
        soon("a link", || look().nlink() == 2);
        fs::remove_file(tree.join("second")).unwrap();
        soon("a link less", || look().nlink() == 1);

        write_at(&behind, 4096, &content(2, 8192));
        soon("a size", || look().len() == 12_288);
        let expected = fs::metadata(&behind).unwrap();
        soon("times", || {
            (look().mtime(), look().mtime_nsec(), look().ctime_nsec())
                == (
                    expected.mtime(),
                    expected.mtime_nsec(),
                    expected.ctime_nsec(),
                )
        });
        let data = fs::read(&behind).unwrap();
        soon("data, through a descriptor from before", || {
            let mut read = vec![0; 12_288];
            common::raw::read_at(&open, &mut read) == 12_288 && read == data
        });
        // Same size, other data.
        write_at(&behind, 0, &content(3, 4096));
        let data = fs::read(&behind).unwrap();
        soon("other data", || fs::read(&view).unwrap() == data);
        OpenOptions::new()
            .write(true)
            .open(&behind)
            .unwrap()
            .set_len(100)
            .unwrap();
        soon("a truncated file", || fs::read(&view).unwrap().len() == 100);
    }
}

/// What is watched need not be asked again: the answers come while the daemon stands still.
#[test]
fn what_is_watched_is_believed_for_long() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("file"), 1, 8192);
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let (file, none) = (mounted.path().join("file"), mounted.path().join("none"));
    let look = || {
        try_run("timeout", ["3".as_ref(), "stat".as_ref(), file.as_os_str()]).ok()
            && !try_run("timeout", ["3".as_ref(), "stat".as_ref(), none.as_os_str()])
                .stderr
                .is_empty()
    };
    assert!(look());
    std::thread::sleep(Duration::from_millis(2500));
    assert!(look());
    std::thread::sleep(Duration::from_millis(1200));
    mounted.signal(Signal::SIGSTOP);
    let start = Instant::now();
    let answered = look();
    let took = start.elapsed();
    mounted.signal(Signal::SIGCONT);
    assert!(answered && took < Duration::from_secs(2), "took {took:?}");
}

/// Everything about a name that stat(1) shows, access time aside.
fn seen(path: &Path) -> Option<[i64; 9]> {
    let meta = fs::symlink_metadata(path).ok()?;
    Some([
        meta.ino().cast_signed(),
        i64::from(meta.mode()),
        meta.nlink().cast_signed(),
        meta.len().cast_signed(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec(),
        meta.blocks().cast_signed(),
    ])
}

fn names(dir: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    names
}

/// What differs between the two sides.
fn differences(tree: &Path, view: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for dir in ["d0", "d1", "d2"] {
        let (a, b) = (names(&tree.join(dir)), names(&view.join(dir)));
        if a != b {
            found.push(format!("{dir} lists {b:?}, not {a:?}"));
        }
        for name in 0..NAMES {
            let name = format!("{dir}/f{name}");
            let (a, b) = (seen(&tree.join(&name)), seen(&view.join(&name)));
            if a != b {
                found.push(format!("{name} is {b:?}, not {a:?}"));
            }
        }
    }
    found
}

const NAMES: u64 = 12;

/// One random change of the kind that people make.
fn change(at: &Path, random: &mut impl FnMut(u64) -> u64) {
    let mut name = || at.join(format!("d{}/f{}", random(3), random(NAMES)));
    let (one, two) = (name(), name());
    // Most of these may fail, when there is no such file.
    let _ = match random(9) {
        0 | 1 => fs::write(&one, content(random(99), random(20_000) as usize)),
        2 => fs::rename(&one, &two),
        3 => fs::remove_file(&one),
        4 => fs::set_permissions(&one, Permissions::from_mode(0o600 + random(0o100) as u32)),
        5 => fs::hard_link(&one, &two),
        6 => OpenOptions::new()
            .append(true)
            .open(&one)
            .and_then(|mut file| file.write_all(b"more")),
        7 => symlink(format!("f{}", random(NAMES)), &one),
        _ => OpenOptions::new()
            .write(true)
            .open(&one)
            .and_then(|file| file.set_len(random(9000))),
    };
}

fn random_from(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    }
}

/// While some look through the mount and some change things on either side, nothing stale may
/// stay: when all have stopped, the mount shows the truth, for good.
fn nothing_stale_stays(image: &Image, io: &str, through: bool) {
    let tree = image.tree();
    for dir in ["d0", "d1", "d2"] {
        fs::create_dir_all(tree.join(dir)).unwrap();
    }
    let mounted = Mounted::at(&tree, &image.beside("view"))
        .options(io)
        .mount();
    let view = mounted.path();
    let looks = AtomicUsize::new(0);
    for round in 0..12 {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for looker in 0..3 {
                let (stop, looks) = (&stop, &looks);
                scope.spawn(move || {
                    let mut random = random_from(1000 + looker);
                    while !stop.load(Ordering::Relaxed) {
                        let dir = view.join(format!("d{}", random(3)));
                        if random(20) == 0 {
                            names(&dir);
                        }
                        let name = dir.join(format!("f{}", random(NAMES)));
                        seen(&name);
                        if random(10) == 0 {
                            let _ = fs::read(&name);
                        }
                        looks.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let mut random = random_from(round);
            let end = Instant::now() + Duration::from_millis(250);
            while Instant::now() < end {
                let side = if through && random(2) == 0 {
                    view
                } else {
                    &tree
                };
                change(side, &mut random);
            }
            stop.store(true, Ordering::Relaxed);
        });
        let mut first = None;
        let stopped = Instant::now();
        let after = loop {
            let found = differences(&tree, view);
            if found.is_empty() {
                break stopped.elapsed();
            }
            first.get_or_insert(found);
            assert!(
                stopped.elapsed() < Duration::from_millis(300),
                "round {round}, {io}: {:#?}, at first {first:#?}",
                differences(&tree, view)
            );
        };
        if let Some(first) = first {
            println!("round {round}: right after {after:?}; before: {first:?}");
        }
        std::thread::sleep(Duration::from_millis(if round % 4 == 3 {
            1500
        } else {
            30
        }));
        assert_eq!(
            differences(&tree, view),
            [""; 0],
            "later, round {round}, {io}"
        );
    }
    println!("{:?} {io}: {} looks", image.kind(), looks.into_inner());
}

#[test]
fn nothing_stale_stays_on_xfs() {
    let Some(image) = Image::xfs() else { return };
    nothing_stale_stays(&image, "io=passthrough", false);
}

#[test]
fn nothing_stale_stays_on_btrfs_with_changes_on_both_sides() {
    let Some(image) = Image::btrfs() else { return };
    nothing_stale_stays(&image, "io=passthrough", true);
}

#[test]
fn nothing_stale_stays_on_xfs_with_changes_on_both_sides_cached() {
    let Some(image) = Image::xfs() else { return };
    nothing_stale_stays(&image, "io=cached", true);
}

/// A file that is replaced over and over is never missing, and never mixes with another.
#[test]
fn a_replaced_file_is_the_old_or_the_new_one() {
    for (image, io) in images().iter().flat_map(|image| BOTH.map(|io| (image, io))) {
        let tree = image.tree();
        let versions: Vec<Vec<u8>> = (0..4).map(|seed| content(seed, 6000)).collect();
        fs::write(tree.join("file"), &versions[0]).unwrap();
        fs::write(tree.join("beside"), content(99, 6000)).unwrap();
        let mounted = Mounted::at(&tree, &image.beside("view"))
            .options(io)
            .mount();
        let view = mounted.path().join("file");
        let stop = AtomicBool::new(false);
        let turns = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    // Removing first frees the inode number for the next file to take.
                    let _ = fs::remove_file(tree.join("next"));
                    fs::write(tree.join("next"), &versions[turn % 4]).unwrap();
                    turns.fetch_add(1, Ordering::SeqCst);
                    fs::rename(tree.join("next"), tree.join("file")).unwrap();
                    turns.fetch_add(1, Ordering::SeqCst);
                }
            });
            let end = Instant::now() + Duration::from_millis(700);
            let (mut stale, mut stale_at) = (0, None);
            while Instant::now() < end {
                let turn = turns.load(Ordering::SeqCst);
                let read = File::open(&view).and_then(|mut file| {
                    let mut data = Vec::new();
                    file.read_to_end(&mut data).map(|_| data)
                });
                match read {
                    Ok(data) => {
                        assert!(versions.contains(&data), "another file's data");
                        stale_at = None;
                    }
                    Err(error) => {
                        assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{error}");
                        // Once for a replacement, and then it works.
                        let now = turns.load(Ordering::SeqCst);
                        assert_ne!(stale_at, Some(now), "ESTALE a second time");
                        stale_at = (turn == now).then_some(now);
                        stale += 1;
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
            println!("{:?} {io}: ESTALE {stale} times", image.kind());
        });
        // Whatever it was, it is over now.
        let truth = fs::read(tree.join("file")).unwrap();
        soon("the last version", || {
            fs::read(&view).is_ok_and(|data| data == truth)
        });
    }
}

/// A filesystem mounted below later is shown, and so is what it covered afterwards.
#[test]
fn what_is_mounted_below_later_is_shown_at_once() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    let covered = tree.join("dir");
    fs::create_dir(&covered).unwrap();
    fs::write(covered.join("below"), "covered").unwrap();
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let view = mounted.path().join("dir");
    assert!(view.join("below").exists());
    let covered_path = covered.as_os_str();
    run(
        "mount",
        [
            "-t".as_ref(),
            "tmpfs".as_ref(),
            "none".as_ref(),
            covered_path,
        ],
    );
    fs::write(covered.join("above"), "x").unwrap();
    soon("what covers", || {
        view.join("above").exists() && !view.join("below").exists()
    });
    run("umount", ["-l".as_ref(), covered_path]);
    soon("what was covered", || {
        view.join("below").exists() && !view.join("above").exists()
    });
}

/// Where nothing can be watched (bindfs has no events) everything is asked for often.
#[test]
fn where_nothing_is_watched_changes_are_seen_within_the_timeouts() {
    let Some(image) = Image::xfs() else { return };
    if !common::have("bindfs") {
        return;
    }
    let (tree, source) = (image.tree(), image.beside("bindfs"));
    fs::write(tree.join("file"), "one").unwrap();
    let no_cache = "attr_timeout=0,entry_timeout=0,negative_timeout=0";
    run(
        "bindfs",
        [
            "-o".as_ref(),
            no_cache.as_ref(),
            tree.as_os_str(),
            source.as_os_str(),
        ],
    );
    let mounted = Mounted::at(&source, &image.beside("view")).mount();
    assert!(!following(&mounted));
    let view = mounted.path().join("file");
    assert_eq!(fs::read(&view).unwrap(), b"one");
    assert!(!mounted.path().join("new").exists());
    fs::write(tree.join("next"), "other").unwrap();
    fs::rename(tree.join("next"), tree.join("file")).unwrap();
    fs::write(tree.join("new"), "new").unwrap();
    within(Duration::from_millis(2500), "replaced", &mut || {
        fs::read(&view).is_ok_and(|data| data == b"other")
    });
    assert_eq!(fs::read(mounted.path().join("new")).unwrap(), b"new");
    drop(mounted);
    run("umount", ["-l".as_ref(), source.as_os_str()]);
}

/// Who may not watch asks often: a second later everything is as it is.
#[test]
fn without_the_privilege_changes_are_seen_within_the_timeouts() {
    let open = fs::metadata("/dev/fuse").is_ok_and(|meta| meta.mode() & 0o006 == 0o006);
    if !open || !common::have("setpriv") || !common::have("fusermount3") {
        return;
    }
    let Some(image) = Image::xfs() else { return };
    let (tree, point) = (image.tree(), image.beside("view"));
    fs::set_permissions(&tree, Permissions::from_mode(0o777)).unwrap();
    fs::create_dir_all(&point).unwrap();
    std::os::unix::fs::chown(&point, Some(65534), Some(65534)).unwrap();
    fs::write(tree.join("file"), "one").unwrap();
    let user = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    let mounted = match Mounted::at(&tree, &point).under(&user).try_mount() {
        Ok(mounted) => mounted,
        Err(said) => return println!("not here: {said}"),
    };
    let view = mounted.path().join("file");
    fs::write(tree.join("next"), "other").unwrap();
    fs::rename(tree.join("next"), tree.join("file")).unwrap();
    within(Duration::from_millis(1600), "replaced", &mut || {
        fs::read(&view).is_ok_and(|data| data == b"other")
    });
}

#[test]
fn a_file_removed_behind_the_mount_while_it_is_open_stops_sharing_with_its_last_close() {
    for (image, io) in images().iter().flat_map(|image| BOTH.map(|io| (image, io))) {
        let tree = image.tree();
        write_synced(&tree.join("kept"), 1, 400_000);
        run(
            "cp",
            [
                "--reflink=always".as_ref(),
                tree.join("kept").as_os_str(),
                tree.join("goes").as_os_str(),
            ],
        );
        let mounted = Mounted::at(&tree, &image.beside("view"))
            .options(io)
            .mount();
        let kept = mounted.path().join("kept");
        let shared = || number(&kept, "shared_bytes").unwrap();
        assert!(shared() > 0);
        let open = File::open(mounted.path().join("goes")).unwrap();
        fs::remove_file(tree.join("goes")).unwrap();
        assert!(shared() > 0, "an open file keeps its blocks");
        drop(open);
        // What the kernel was lent for the next open is taken back after some seconds.
        within(Duration::from_secs(20), "the end of sharing", &mut || {
            shared() == 0
        });
        fs::remove_file(tree.join("kept")).unwrap();
    }
}

#[test]
fn refresh_forgets_what_no_event_tells_of() {
    let Some(image) = Image::xfs() else { return };
    if !common::have("xfs_io") {
        return;
    }
    let tree = image.tree();
    write_synced(&tree.join("a"), 1, 1 << 16);
    write_synced(&tree.join("b"), 1, 1 << 16);
    let mounted = Mounted::at(&tree, &image.beside("view"))
        .options("allow_other")
        .mount();
    let (a, b) = (mounted.path().join("a"), mounted.path().join("b"));
    assert_eq!(number(&a, "shared_bytes").unwrap(), 0);
    assert_eq!(number(&b, "shared_bytes").unwrap(), 0);
    // Deduplication tells nothing, as long as the file that it writes to stays open.
    let mut xfs_io = Command::new("xfs_io")
        .arg(tree.join("b"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = xfs_io.stdin.take().unwrap();
    writeln!(input, "dedupe {} 0 0 65536", tree.join("a").display()).unwrap();
    input.flush().unwrap();
    within(Duration::from_secs(10), "the deduplication", &mut || {
        truth::numbers(&tree.join("a")).shared_bytes == 1 << 16
    });
    let refresh = |path: &Path| common::output(Command::new(sharelens()).arg("refresh").arg(path));
    assert!(refresh(&a).ok());
    assert_eq!(asked(&a).unwrap(), truth::numbers(&tree.join("a")));
    assert!(refresh(mounted.path()).ok());
    assert_eq!(asked(&b).unwrap(), truth::numbers(&tree.join("b")));
    assert_eq!(number(&b, "shared_bytes").unwrap(), 1 << 16);
    drop(input);
    xfs_io.wait().unwrap();

    let outside = refresh(&tree);
    assert_eq!(outside.code, Some(1));
    assert!(
        outside
            .stderr
            .contains("not a file or directory in a sharelens mount")
    );
    if common::have("setpriv") {
        let refused = common::output(
            Command::new("setpriv")
                .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
                .arg(sharelens())
                .arg("refresh")
                .arg(mounted.path()),
        );
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("only root"), "{refused:?}");
    }
}

/// A snapshot shares everything at once, and removing it gives it back when the cleaner has done
/// its work, which the question waits for.
#[test]
fn snapshots_behind_the_mount_share_at_once() {
    let Some(image) = Image::btrfs() else { return };
    let volume = image.path().join("volume");
    run(
        "btrfs",
        ["subvolume".as_ref(), "create".as_ref(), volume.as_os_str()],
    );
    for file in 0..20 {
        write_synced(&volume.join(format!("f{file}")), file, 1 << 16);
    }
    let mounted = Mounted::at(&volume, &image.beside("view")).mount();
    assert!(following(&mounted));
    let check = |shared: u64| {
        for file in 0..20 {
            let name = format!("f{file}");
            let said = asked(&mounted.path().join(&name)).unwrap();
            assert_eq!(said.shared_bytes, shared, "{name}");
            assert_eq!(said, truth::numbers(&volume.join(&name)), "{name}");
        }
    };
    check(0);
    let snapshot = image.path().join("snapshot");
    for options in [&["-r"][..], &[]] {
        let mut command = Command::new("btrfs");
        command.args(["subvolume", "snapshot"]).args(options);
        assert!(common::output(command.args([&volume, &snapshot])).ok());
        check(1 << 16);
        run(
            "btrfs",
            [
                "subvolume".as_ref(),
                "delete".as_ref(),
                snapshot.as_os_str(),
            ],
        );
        for file in 0..20 {
            let said = asked(&mounted.path().join(format!("f{file}"))).unwrap();
            assert_eq!(
                said.shared_bytes, 0,
                "f{file} after the snapshot was removed"
            );
        }
    }
}

/// In place: who was there before is named, and what they do is a change behind the mount.
#[test]
fn who_stays_below_a_cover_is_counted_and_followed() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("a"), 1, 1 << 16);
    let mut shell = Command::new("sh")
        .current_dir(&tree)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let before = File::open(&tree).unwrap();
    let mounted = Mounted::in_place(&tree).mount();
    let said = mounted.said();
    assert!(said.contains("2 processes"), "{said}");
    assert!(said.contains(&format!("sh ({})", shell.id())), "{said}");
    assert!(said.contains("cd ."), "{said}");
    assert_eq!(number(&tree.join("a"), "shared_bytes").unwrap(), 0);
    let mut input = shell.stdin.take().unwrap();
    writeln!(input, "cp --reflink=always a b").unwrap();
    soon("a clone made below", || tree.join("b").exists());
    drop(input);
    assert!(shell.wait().unwrap().success());
    assert_eq!(number(&tree.join("b"), "shared_bytes").unwrap(), 1 << 16);
    assert_eq!(number(&tree.join("a"), "shared_bytes").unwrap(), 1 << 16);
    drop(before);
}
