//! What could wait for ever does not: daemons that are stopped, FIFOs, long scans interrupted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::files::{clone, content, number, write_synced};
use common::{Image, Kind, Mounted, Output, mount_type, output_within, run, sharelens};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Far more than what any of it may take, far less than for ever.
const SOON: Duration = Duration::from_secs(30);

fn call(arguments: &[&str]) -> Output {
    output_within(Command::new(sharelens()).args(arguments), SOON)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn refused(arguments: &[&str], sentence: &str) {
    let said = call(arguments);
    assert_eq!(said.code, Some(1), "{arguments:?}: {said:?}");
    assert!(said.stderr.contains(sentence), "{arguments:?}: {said:?}");
    assert_eq!(said.stderr.lines().count(), 1, "{arguments:?}: {said:?}");
}

/// A daemon that does nothing until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(mounted: &Mounted) -> Self {
        mounted.signal(Signal::SIGSTOP);
        Self(Pid::from_raw(mounted.pid()))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

#[test]
fn a_daemon_that_is_stopped_is_said_not_to_answer() {
    let Some(image) = Image::xfs() else { return };
    let (tree, other) = (image.tree(), image.beside("other"));
    fs::create_dir(tree.join("dir")).unwrap();
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let point = mounted.path();
    let stopped = Stopped::new(&mounted);
    let sentence = format!("{point:?} does not answer");
    let inside = point.join("dir/file");
    let inside = text(&inside);
    let commands: [&[&str]; 10] = [
        &["show", "/etc/passwd", inside],
        &["refresh", inside],
        &["clone", "/etc/passwd", inside],
        &["status", text(point)],
        &["mount", text(&tree), text(point)],
        &["mount", text(point), text(&other)],
        &["mount", "-o", "remount,ro", text(point)],
        &["du", text(point)],
        &["scan", text(point)],
        &["doctor", text(point)],
    ];
    std::thread::scope(|scope| {
        for command in commands {
            scope.spawn(|| refused(command, &sentence));
        }
    });
    // Of several, it does not hide the others. Other tests have mounts as well.
    let all = call(&["status"]);
    assert!(
        all.ok() && all.stdout.contains("does not answer"),
        "{all:?}"
    );
    drop(stopped);
    assert!(call(&["status", text(point)]).ok());
    assert_eq!(number(point, "dirs").unwrap(), 1, "it goes on as before");
}

#[test]
fn a_mount_whose_daemon_is_stopped_can_be_taken_away() {
    let Some(image) = Image::xfs() else { return };
    for lazily in [&["--lazy"][..], &[]] {
        let mounted = Mounted::at(&image.tree(), &image.beside("view")).mount();
        let _stopped = Stopped::new(&mounted);
        let said = call(&[&["umount"], lazily, &[text(mounted.path())]].concat());
        assert!(said.ok(), "{said:?}");
        assert_eq!(mount_type(mounted.path()), None);
    }
}

#[test]
fn who_uses_a_mount_is_found_out_without_asking_others() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    let other = Mounted::at(&tree, &image.beside("other"))
        .options("attr_timeout=0,entry_timeout=0,subtype=other")
        .mount();
    let busy = Mounted::at(&tree, &image.beside("busy")).mount();
    let mut users = [other.path(), busy.path()].map(|path| {
        Command::new("sleep")
            .arg("600")
            .current_dir(path)
            .spawn()
            .unwrap()
    });
    let stopped = Stopped::new(&other);
    let sentence = format!("is in use by sleep ({})", users[1].id());
    let done = std::panic::catch_unwind(|| {
        refused(&["umount", text(busy.path())], &sentence);
        refused(&["umount", text(other.path())], "does not answer");
    });
    drop(stopped);
    for user in &mut users {
        user.kill().unwrap();
        user.wait().unwrap();
    }
    done.unwrap();
}

#[test]
fn nothing_waits_for_the_other_end_of_a_fifo() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    run("mkfifo", [text(&tree.join("fifo"))]);
    symlink("fifo", tree.join("link")).unwrap();
    write_synced(&tree.join("file"), 1, 5000);
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let point = image.beside("point");
    for base in [tree.as_path(), mounted.path()] {
        let [fifo, link, file, new] = ["fifo", "link", "file", "new"].map(|name| base.join(name));
        for path in [&fifo, &link] {
            let path = text(path);
            let clone = ["clone", path, text(&new)];
            refused(&clone, "is a FIFO; only a regular file can be cloned");
            assert!(!new.exists());
            for command in ["show", "refresh"] {
                refused(
                    &[command, path],
                    "is a FIFO; only regular files and directories have numbers",
                );
            }
            refused(&["doctor", path], "is a FIFO; give a directory");
            for command in ["du", "scan"] {
                refused(&[command, path], "not a directory");
            }
            refused(&["mount", path, text(&point)], "is not a directory");
            refused(&["status", path], "is not the root of a sharelens mount");
            refused(&["umount", path], "is not a sharelens mount");
        }
        // As a destination it stays what it is.
        for force in [&["--force"][..], &[]] {
            let said = [&["clone"], force, &[text(&file), text(&fifo)]].concat();
            refused(&said, "is a FIFO, which is not replaced");
            let said = [&["clone"], force, &[text(&file), text(&link)]].concat();
            refused(&said, "is a symbolic link, which is not replaced");
        }
        assert_eq!(run("stat", ["-c", "%F", text(&fifo)]), "fifo\n");
    }
}

/// A tree that takes a moment to read: many files, each with two extents.
fn large(tree: &Path) -> u64 {
    let (dirs, files) = (150, 100);
    let first = tree.join("first");
    write_synced(&first, 1, 20_000);
    for dir in 0..dirs {
        let dir = tree.join(format!("d{dir}"));
        fs::create_dir(&dir).unwrap();
        for file in 0..files {
            let file = dir.join(file.to_string());
            clone(&first, &file);
            common::files::write_at(&file, 4096, &content(2, 4096));
        }
    }
    common::truth::settle(tree);
    dirs * files + 1
}

/// Starts the command and interrupts it after `pause`; whether it was still at work then.
fn interrupted(arguments: &[&str], pause: Duration) -> bool {
    let mut child = Command::new(sharelens())
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(pause);
    kill(
        Pid::from_raw(child.id().try_into().unwrap()),
        Signal::SIGINT,
    )
    .unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > Duration::from_secs(2) {
            let waits = fs::read_to_string(format!("/proc/{}/stack", child.id()));
            child.kill().unwrap();
            panic!("{arguments:?} goes on after an interrupt: {waits:?}");
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    status.code().is_none()
}

/// Interrupts the command earlier and earlier until it was at work.
fn interrupt(arguments: &[&str], before: impl Fn()) {
    let mut pause = Duration::from_millis(200);
    loop {
        before();
        if interrupted(arguments, pause) {
            return;
        }
        pause /= 2;
        assert!(
            pause > Duration::from_micros(100),
            "{arguments:?} is never at work"
        );
    }
}

#[test]
fn a_scan_that_is_interrupted_ends_at_once_and_breaks_nothing() {
    let Some(image) = Image::of(Kind::Xfs).in_memory().make() else {
        return;
    };
    let tree = image.tree();
    let files = large(&tree);
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let point = text(mounted.path());
    for command in ["scan", "du", "show"] {
        interrupt(&[command, point], || {
            assert!(call(&["refresh", point]).ok());
        });
        let said = call(&["scan", "--json", point]);
        assert!(said.ok(), "{said:?}");
        let said: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
        assert_eq!(said["files"], files, "after an interrupted {command}");
        assert_eq!(number(mounted.path(), "files").unwrap(), files);
    }
    interrupt(&["du", text(&tree)], || {});
    let said = mounted.said();
    assert!(
        !said.contains("panicked") && !said.contains("ERROR"),
        "{said}"
    );
    assert_eq!(mounted.unmount().code(), Some(0));
}
