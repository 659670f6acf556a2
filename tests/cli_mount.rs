//! `sharelens mount` and `umount`: readiness, refusals, signals, in place, dead mounts.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::files::write_synced;
use common::{Image, Mounted, Output, Scratch, can_mount, mount_type, mounts_below, sharelens};
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;
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
    assert!(
        said.stderr.contains(sentence),
        "{sentence:?} is not in {:?}",
        said.stderr
    );
    assert_eq!(
        said.stderr.lines().count(),
        1,
        "one sentence: {}",
        said.stderr
    );
}

#[test]
fn in_the_background_success_means_that_the_root_answers() {
    let Some(image) = Image::xfs() else { return };
    let (tree, point) = (image.tree(), image.beside("view"));
    write_synced(&tree.join("file"), 1, 5000);
    let device = fs::metadata(&point).unwrap().dev();
    let started = Instant::now();
    let said = call(&["mount", text(&tree), text(&point)]);
    assert!(said.ok(), "{said:?}");
    assert!(said.stderr.is_empty(), "{said:?}");
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!(mount_type(&point).as_deref(), Some("fuse.sharelens"));
    assert_ne!(fs::metadata(&point).unwrap().dev(), device);
    assert_eq!(
        fs::read(point.join("file")).unwrap(),
        fs::read(tree.join("file")).unwrap()
    );
    let said = call(&["umount", text(&point)]);
    assert!(said.ok(), "{said:?}");
    assert_eq!(mount_type(&point), None);
    assert_eq!(fs::metadata(&point).unwrap().dev(), device);
}

#[test]
fn when_umount_returns_the_source_is_free() {
    let Some(image) = Image::xfs() else { return };
    let (tree, point) = (image.tree(), image.beside("view"));
    // The kernel tells which process serves a mount since Linux 6.13.
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let version: Vec<u32> = release
        .split(['.', '-'])
        .filter_map(|number| number.parse().ok())
        .take(2)
        .collect();
    if version < vec![6, 13] {
        return;
    }
    let elsewhere = image.beside("bind");
    for _ in 0..5 {
        common::run("mount", ["--bind", text(&tree), text(&elsewhere)]);
        assert!(call(&["mount", text(&elsewhere), text(&point)]).ok());
        assert!(call(&["umount", text(&point)]).ok());
        common::run("umount", [text(&elsewhere)]);
    }
}

#[test]
fn in_place_the_view_covers_its_source_and_uncovers_it_again() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("file"), 1, 5000);
    let before = fs::metadata(&tree).unwrap().dev();
    assert!(call(&["mount", text(&tree)]).ok());
    assert_ne!(fs::metadata(&tree).unwrap().dev(), before);
    write_synced(&tree.join("through"), 2, 100);
    let again = call(&["mount", text(&tree)]);
    assert_eq!(again.code, Some(1));
    assert!(
        again.stderr.contains("is already mounted by sharelens"),
        "{again:?}"
    );
    assert_eq!(mounts_below(&tree).len(), 1, "not stacked");
    assert!(call(&["umount", text(&tree)]).ok());
    assert_eq!(fs::metadata(&tree).unwrap().dev(), before);
    assert_eq!(fs::read(tree.join("through")).unwrap().len(), 100);
}

#[test]
fn each_wrong_source_and_mount_point_is_refused_with_its_reason() {
    let Some(image) = Image::xfs() else { return };
    let (tree, point) = (image.tree(), image.beside("view"));
    let (inner, file, none) = (tree.join("inner"), tree.join("file"), tree.join("none"));
    fs::create_dir(&inner).unwrap();
    fs::write(&file, "x").unwrap();
    refused(
        &["mount", text(&none), text(&point)],
        &format!("the source {none:?} does not exist"),
    );
    refused(
        &["mount", text(&file), text(&point)],
        &format!("the source {file:?} is not a directory"),
    );
    refused(
        &["mount", text(&tree), text(&none)],
        &format!("the mount point {none:?} does not exist: make it first"),
    );
    refused(
        &["mount", text(&tree), text(&file)],
        &format!("the mount point {file:?} is not a directory"),
    );
    refused(
        &["mount", text(&tree), text(&inner)],
        &format!("the mount point {inner:?} lies inside the source {tree:?}"),
    );
    refused(
        &["mount", text(&inner), text(&tree)],
        &format!("the source {inner:?} lies inside the mount point {tree:?}"),
    );
    assert!(mounts_below(&tree).is_empty() && mounts_below(&point).is_empty());
}

#[test]
fn a_mount_point_inside_the_source_is_seen_through_a_bind_mount() {
    let Some(image) = Image::xfs() else { return };
    let (tree, elsewhere) = (image.tree(), image.beside("bind"));
    let inner = tree.join("inner");
    fs::create_dir(&inner).unwrap();
    common::run("mount", ["--bind", text(&tree), text(&elsewhere)]);
    refused(
        &["mount", text(&elsewhere), text(&inner)],
        "lies inside the source",
    );
    refused(
        &["mount", text(&tree), text(&elsewhere.join("inner"))],
        "lies inside the source",
    );
}

#[test]
fn a_second_mount_at_the_same_place_or_of_a_view_is_refused() {
    let Some(image) = Image::xfs() else { return };
    let (tree, point, other) = (image.tree(), image.beside("view"), image.beside("other"));
    let mounted = Mounted::at(&tree, &point).mount();
    refused(
        &["mount", text(&tree), text(&point)],
        &format!(
            "{point:?} is already mounted by sharelens (showing {})",
            text(&tree)
        ),
    );
    refused(
        &["mount", text(&point), text(&other)],
        &format!("the source {point:?} lies in a sharelens mount"),
    );
    drop(mounted);
}

#[test]
fn two_views_of_one_source_are_no_trouble() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("file"), 1, 5000);
    let first = Mounted::at(&tree, &image.beside("one")).mount();
    let second = Mounted::at(&tree, &image.beside("two")).mount();
    assert_eq!(fs::read(first.path().join("file")).unwrap().len(), 5000);
    assert_eq!(fs::read(second.path().join("file")).unwrap().len(), 5000);
}

#[test]
fn wrong_options_are_wrong_usage() {
    let said = call(&["mount", "-o", "wiat=3", "/", "/mnt"]);
    assert_eq!(said.code, Some(2));
    assert_eq!(
        said.stderr,
        "sharelens: there is no mount option \"wiat\"; did you mean wait?\n"
    );
    assert_eq!(call(&["mount"]).code, Some(2));
    assert_eq!(call(&["fly"]).code, Some(2));
}

#[test]
fn terminating_the_daemon_unmounts() {
    let Some(image) = Image::xfs() else { return };
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let mut mounted = Mounted::at(&image.tree(), &image.beside("view")).mount();
        mounted.signal(signal);
        let status = mounted.wait();
        assert_eq!(status.code(), Some(0), "{signal}: {}", mounted.said());
        assert_eq!(mount_type(mounted.path()), None, "{signal}");
    }
}

#[test]
fn sigio_does_not_end_the_daemon() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("file"), 1, 100);
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    mounted.signal(Signal::SIGIO);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(fs::read(mounted.path().join("file")).unwrap().len(), 100);
}

#[test]
fn terminating_while_files_are_open_ends_within_seconds_with_nothing_mounted() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("file"), 1, 100);
    let mut mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let open = fs::File::open(mounted.path().join("file")).unwrap();
    let started = Instant::now();
    mounted.signal(Signal::SIGTERM);
    let gone = || mount_type(mounted.path()).is_none();
    while !gone() {
        assert!(started.elapsed() < Duration::from_secs(2), "leaves at once");
        std::thread::sleep(Duration::from_millis(5));
    }
    let status = mounted.wait();
    assert_eq!(status.code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(10));
    drop(open);
}

#[test]
fn a_busy_mount_is_not_unmounted_and_its_users_are_named() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("file"), 1, 100);
    let mut mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let file = mounted.path().join("file");
    let mut user = Command::new("tail")
        .args(["-f", text(&file)])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while !fs::read_link(format!("/proc/{}/exe", user.id())).is_ok_and(|exe| exe.ends_with("tail"))
        || common::try_run("fuser", ["-s", text(&file)]).code != Some(0) && !opens(user.id(), &file)
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    let said = call(&["umount", text(mounted.path())]);
    assert_eq!(said.code, Some(1));
    assert!(
        said.stderr
            .contains(&format!("is in use by tail ({})", user.id())),
        "{said:?}"
    );
    assert!(call(&["umount", "--lazy", text(mounted.path())]).ok());
    assert_eq!(mount_type(mounted.path()), None);
    user.kill().unwrap();
    user.wait().unwrap();
    assert_eq!(mounted.wait().code(), Some(0), "ends with its last user");
}

fn opens(pid: u32, file: &Path) -> bool {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
        .any(|entry| fs::read_link(entry.path()).is_ok_and(|target| target == file))
}

#[test]
fn unmounting_what_is_no_view_is_refused() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("nothing");
    let said = call(&["umount", text(scratch.path())]);
    assert_eq!(said.code, Some(1));
    assert!(
        said.stderr
            .contains("is not a sharelens mount: nothing is mounted there"),
        "{said:?}"
    );
    let said = call(&["umount", "/proc"]);
    assert!(
        said.stderr
            .contains("is not a sharelens mount: proc is mounted there"),
        "{said:?}"
    );
    assert!(Path::new("/proc/self").exists());
}

#[test]
fn a_mount_whose_daemon_was_killed_is_replaced_by_a_new_one() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("file"), 1, 100);
    let mut dead = Mounted::in_place(&tree).mount();
    dead.kill();
    let error = fs::read_dir(&tree).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
    let said = call(&["mount", text(&tree)]);
    assert!(said.ok(), "{said:?}");
    assert!(
        said.stderr.contains("removed a dead sharelens mount"),
        "{said:?}"
    );
    assert_eq!(mounts_below(&tree).len(), 1);
    assert_eq!(fs::read(tree.join("file")).unwrap().len(), 100);
    assert!(call(&["umount", text(&tree)]).ok());
}

#[test]
fn who_stays_below_an_in_place_mount_is_said() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    let mut inside = Command::new("sleep")
        .arg("60")
        .current_dir(&tree)
        .spawn()
        .unwrap();
    let said = call(&["mount", text(&tree)]);
    inside.kill().unwrap();
    inside.wait().unwrap();
    assert!(said.ok(), "{said:?}");
    assert!(
        said.stderr.contains(&format!("sleep ({})", inside.id()))
            && said.stderr.contains("`cd .` enters the mount"),
        "{said:?}"
    );
    assert!(call(&["umount", text(&tree)]).ok());
}

#[test]
fn generic_options_show_in_the_mount_table() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    let mounted = Mounted::at(&tree, &image.beside("view"))
        .options("ro,nosuid,nodev,noexec,noatime,fsname=data,subtype=lens,allow_other")
        .mount();
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table
        .lines()
        .find(|line| line.contains(text(mounted.path())))
        .unwrap();
    assert!(line.starts_with("data "), "{line}");
    for part in [
        " fuse.lens ",
        "ro,",
        "nosuid",
        "nodev",
        "noexec",
        "noatime",
        "allow_other",
        "default_permissions",
    ] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    let error = fs::write(mounted.path().join("new"), "x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
}

#[test]
fn a_source_with_blanks_and_commas_in_its_name_mounts() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.path().join("a, b\\c ä");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "x").unwrap();
    let mounted = Mounted::at(&tree, &image.beside("a view")).mount();
    assert_eq!(fs::read(mounted.path().join("file")).unwrap(), b"x");
    let said = call(&["umount", text(mounted.path())]);
    assert!(said.ok(), "{said:?}");
}

#[test]
fn systemd_is_told_when_the_mount_is_ready() {
    let Some(image) = Image::xfs() else { return };
    let scratch = Scratch::new("notify");
    let socket_path = scratch.path().join("socket");
    let socket = std::os::unix::net::UnixDatagram::bind(&socket_path).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mounted = Mounted::at(&image.tree(), &image.beside("view"))
        .env("NOTIFY_SOCKET", text(&socket_path))
        .mount();
    let mut buffer = [0; 64];
    let length = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"READY=1");
    mounted.unmount();
    let length = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"STOPPING=1");
}

#[test]
fn an_ordinary_user_is_told_what_is_missing() {
    let Some(image) = Image::xfs() else { return };
    if !common::have("setpriv") {
        return;
    }
    let (tree, point) = (image.tree(), image.beside("view"));
    let as_nobody = |options: &str| {
        common::output(
            Command::new("setpriv")
                .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
                .arg(sharelens())
                .args(["mount", "-o", options, text(&tree), text(&point)]),
        )
    };
    // Where the device is closed to users, that is what they learn first.
    let open = fs::metadata("/dev/fuse").unwrap().mode() & 0o006 == 0o006;
    for (options, sentence) in [
        (
            "io=passthrough",
            "io=passthrough is not possible here: it needs root",
        ),
        (
            "allow_other",
            "allow_other is for root alone here: add the line user_allow_other",
        ),
        ("ro", "is not permitted"),
    ] {
        let said = as_nobody(options);
        assert_eq!(said.code, Some(1), "{said:?}");
        let expected = if open {
            sentence
        } else {
            "/dev/fuse cannot be opened by this user"
        };
        assert!(said.stderr.contains(expected), "{options}: {said:?}");
        assert_eq!(said.stderr.lines().count(), 1, "{said:?}");
    }
    assert_eq!(mount_type(&point), None);
}
