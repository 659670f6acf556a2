//! Options of a mount that is there: remounting, the kernel's flags, the log; and reasons in words.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::{Image, Mounted, Output, Scratch, mount_type, sharelens};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn call(arguments: &[&str]) -> Output {
    common::output(Command::new(sharelens()).args(arguments))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn refused(arguments: &[&str], sentence: &str) {
    let said = call(arguments);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains(sentence), "{said:?}");
    assert_eq!(said.stderr.lines().count(), 1, "{said:?}");
}

#[test]
fn a_remount_by_the_command_changes_what_is_named_and_nothing_else() {
    let Some(image) = Image::xfs() else { return };
    let mounted = Mounted::at(&image.tree(), &image.beside("view"))
        .options("ro,nosuid,wait=5")
        .mount();
    let point = mounted.path();
    let remount = |options: &str| call(&["mount", "-o", options, text(point)]);
    assert!(remount("remount,rw").ok());
    fs::write(point.join("new"), "x").unwrap();
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table
        .lines()
        .find(|line| line.contains(text(point)))
        .unwrap();
    assert!(line.contains("rw,nosuid"), "{line}");
    refused(
        &["mount", "-o", "remount,wait=6", text(point)],
        "wait=6 can only be set when mounting",
    );
    refused(
        &["mount", "-o", "remount,ro", "/proc"],
        "\"/proc\" cannot be remounted: it is not a sharelens mount",
    );
}

#[test]
fn generic_flags_are_those_of_the_kernel_and_what_cannot_be_had_is_refused() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    fs::write(tree.join("file"), "x").unwrap();
    std::os::unix::fs::symlink("file", tree.join("link")).unwrap();
    let mounted = Mounted::at(&tree, &image.beside("view"))
        .options(
            "nosymfollow,strictatime,nodiratime,lazytime,silent,iversion,nomand,norelatime,dirsync",
        )
        .mount();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table
        .lines()
        .find(|line| line.contains(text(mounted.path())))
        .unwrap();
    for flag in ["nosymfollow", "nodiratime", "lazytime", "dirsync"] {
        assert!(line.contains(flag), "{flag} is not in {line}");
    }
    // strictatime shows as neither of the others.
    assert!(
        !line.contains("relatime") && !line.contains("noatime"),
        "{line}"
    );
    let link = mounted.path().join("link");
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("file"));
    let error = fs::read(&link).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
    let said = call(&["mount", "-o", "mand", text(&tree), "/mnt"]);
    assert_eq!(said.code, Some(2));
    assert_eq!(
        said.stderr,
        "sharelens: the mount option mand is not possible here: there are no mandatory locks on FUSE (nor anywhere since Linux 5.15)\n"
    );
}

#[test]
fn a_daemon_in_the_background_logs_to_the_file_it_is_given() {
    let Some(image) = Image::xfs() else { return };
    let (tree, point, logs) = (image.tree(), image.beside("view"), image.beside("logs"));
    fs::write(logs.join("log"), "before\n").unwrap();
    let said = common::output(
        Command::new(sharelens())
            .args(["mount", "-o", "log_file=log", text(&tree), text(&point)])
            .current_dir(&logs),
    );
    assert!(said.ok() && said.stderr.is_empty(), "{said:?}");
    assert!(call(&["umount", text(&point)]).ok());
    let started = Instant::now();
    let log = loop {
        let log = fs::read_to_string(logs.join("log")).unwrap();
        if log.contains("unmounted") || started.elapsed() > Duration::from_secs(20) {
            break log;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(log.starts_with("before\n"), "is appended to: {log}");
    for message in [
        format!("mounted {tree:?} on {point:?}"),
        format!("unmounted {point:?}"),
    ] {
        assert!(log.contains(&message), "{message} is not in {log}");
    }
    refused(
        &[
            "mount",
            "-o",
            "log_file=/nowhere/log",
            text(&tree),
            text(&point),
        ],
        "opening the log file \"/nowhere/log\": No such file or directory",
    );
    assert_eq!(mount_type(&point), None);
}

#[test]
fn reasons_are_words_without_numbers() {
    let Some(image) = Image::xfs() else { return };
    let (tree, none) = (image.tree(), image.path().join("none"));
    let scratch = Scratch::new("words");
    let under_file = scratch.path().join("file/below");
    fs::write(scratch.path().join("file"), "x").unwrap();
    for arguments in [
        &["show", text(&none)][..],
        &["du", text(&none)],
        &["scan", text(&none)],
        &["refresh", text(&none)],
        &["doctor", text(&none)],
        &["status", text(&none)],
        &["clone", text(&none), text(&tree)],
        &["clone", "/etc/passwd", text(&none.join("x"))],
        &["manual", text(&none)],
        &["mount", text(&tree), text(&under_file)],
        &["umount", text(&none)],
    ] {
        let said = call(arguments);
        assert_eq!(said.code, Some(1), "{arguments:?}: {said:?}");
        assert!(!said.stderr.contains("os error"), "{arguments:?}: {said:?}");
        assert!(said.stderr.starts_with("sharelens: "), "{said:?}");
    }
    let status = call(&["status", text(&none)]);
    assert_eq!(
        status.stderr,
        format!("sharelens: {none:?} does not exist\n")
    );
}
