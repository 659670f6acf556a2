//! `mount.sharelens` under the real mount(8): `mount -t`, `mount -a` on an fstab of the test's own,
//! findmnt, umount, remount, exit codes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

#[path = "../../tests/common/mod.rs"]
mod common;

use common::files::write_synced;
use common::{Image, Output, mount_type, run, try_run};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const HELPER: &str = env!("CARGO_BIN_EXE_mount-sharelens");
const NAMES: [&str; 2] = ["/sbin/mount.sharelens", "/sbin/mount.fuse.sharelens"];

/// The helper where mount(8) looks for it, unless an installed one is there already.
struct Installed {
    links: Vec<PathBuf>,
    _only_one: nix::fcntl::Flock<fs::File>,
}

impl Installed {
    fn new() -> Self {
        let lock = fs::File::create("/tmp/sharelens-test-helper.lock").unwrap();
        let only_one = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive).unwrap();
        let mut links = Vec::new();
        for name in NAMES {
            let link = PathBuf::from(name);
            // One that a test left behind when it was killed points nowhere, or to an old build.
            if fs::read_link(&link).is_ok_and(|to| to.ends_with("mount-sharelens")) {
                fs::remove_file(&link).unwrap();
            }
            if symlink(HELPER, &link).is_ok() {
                links.push(link);
            }
        }
        Self {
            links,
            _only_one: only_one,
        }
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        for link in &self.links {
            let _ = fs::remove_file(link);
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn helper(arguments: &[&str]) -> Output {
    common::output(Command::new(HELPER).args(arguments))
}

#[test]
fn mount_t_mounts_and_umount_unmounts() {
    let Some(image) = Image::xfs() else { return };
    let _installed = Installed::new();
    let (tree, point) = (image.tree(), image.beside("view"));
    write_synced(&tree.join("file"), 1, 5000);
    for kind in ["sharelens", "fuse.sharelens"] {
        run(
            "mount",
            ["-t", kind, text(&tree), text(&point), "-o", "nosuid,wait=5"],
        );
        assert_eq!(mount_type(&point).as_deref(), Some("fuse.sharelens"));
        assert_eq!(fs::read(point.join("file")).unwrap().len(), 5000);
        let found = run("findmnt", ["-no", "SOURCE,FSTYPE,OPTIONS", text(&point)]);
        assert!(
            found.starts_with(text(&tree))
                && found.contains("fuse.sharelens")
                && found.contains("nosuid"),
            "{found}"
        );
        run("umount", [text(&point)]);
        assert_eq!(mount_type(&point), None);
    }
}

#[test]
fn mount_a_mounts_a_line_of_fstab_with_options_of_every_kind() {
    let Some(image) = Image::xfs() else { return };
    let _installed = Installed::new();
    let (tree, point) = (image.tree(), image.beside("view"));
    let manual = image.beside("manual");
    let table = image.beside("etc").join("fstab");
    fs::write(
        &table,
        format!(
            "{tree} {point} sharelens defaults,nofail,_netdev,x-systemd.automount,allow_other,list_xattrs 0 0\n\
             {tree} {manual} sharelens noauto,ro 0 0\n",
            tree = text(&tree),
            point = text(&point),
            manual = text(&manual),
        ),
    )
    .unwrap();
    run("mount", ["-a", "-T", text(&table)]);
    assert_eq!(mount_type(&point).as_deref(), Some("fuse.sharelens"));
    assert_eq!(mount_type(&manual), None);
    run("mount", ["-a", "-T", text(&table)]);
    assert_eq!(
        common::mounts_below(&point).len(),
        1,
        "a second mount -a changes nothing"
    );
    run("umount", [text(&point)]);
    run("mount", ["-T", text(&table), text(&manual)]);
    let error = fs::write(manual.join("new"), "x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    run("umount", [text(&manual)]);
}

#[test]
fn a_line_of_fstab_can_cover_a_directory_in_place() {
    let Some(image) = Image::xfs() else { return };
    let _installed = Installed::new();
    let tree = image.tree();
    write_synced(&tree.join("file"), 1, 5000);
    run("mount", ["-t", "sharelens", text(&tree), text(&tree)]);
    assert_eq!(mount_type(&tree).as_deref(), Some("fuse.sharelens"));
    let numbers = common::files::asked(&tree.join("file")).unwrap();
    assert_eq!(numbers.bytes, 8192);
    run("umount", [text(&tree)]);
    assert_eq!(mount_type(&tree), None);
}

#[test]
fn failures_have_the_exit_codes_of_mount_8_and_a_reason() {
    let Some(image) = Image::xfs() else { return };
    let (tree, point) = (image.tree(), image.beside("view"));
    let said = helper(&["/nowhere", text(&point)]);
    assert_eq!(said.code, Some(32));
    assert!(
        said.stderr
            .contains("the source \"/nowhere\" does not exist"),
        "{said:?}"
    );
    let said = helper(&[text(&tree), text(&point), "-o", "wiat=3"]);
    assert_eq!(said.code, Some(1));
    assert!(said.stderr.contains("did you mean wait?"), "{said:?}");
    assert_eq!(helper(&[]).code, Some(1));
    assert_eq!(helper(&["--help"]).code, Some(0));
    assert_eq!(mount_type(&point), None);
    let _installed = Installed::new();
    let said = try_run("mount", ["-t", "sharelens", "/nowhere", text(&point)]);
    assert_eq!(said.code, Some(32), "{said:?}");
}

#[test]
fn sloppy_fake_and_verbose_are_understood() {
    let Some(image) = Image::xfs() else { return };
    let (tree, point) = (image.tree(), image.beside("view"));
    let said = helper(&[text(&tree), text(&point), "-sfnv", "-o", "rw,compress=zstd"]);
    assert!(said.ok(), "{said:?}");
    assert!(said.stderr.contains("would mount"), "{said:?}");
    assert_eq!(mount_type(&point), None);
    let said = helper(&[
        text(&tree),
        text(&point),
        "-n",
        "-o",
        "rw",
        "-t",
        "fuse.sharelens",
    ]);
    assert!(said.ok() && said.stderr.is_empty(), "{said:?}");
    assert_eq!(mount_type(&point).as_deref(), Some("fuse.sharelens"));
    run("umount", [text(&point)]);
}

#[test]
fn remounting_changes_the_generic_options() {
    let Some(image) = Image::xfs() else { return };
    let _installed = Installed::new();
    let (tree, point) = (image.tree(), image.beside("view"));
    run("mount", ["-t", "sharelens", text(&tree), text(&point)]);
    fs::write(point.join("a"), "x").unwrap();
    run("mount", ["-o", "remount,ro", text(&point)]);
    let error = fs::write(point.join("b"), "x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    run("mount", ["-o", "remount,rw", text(&point)]);
    fs::write(point.join("b"), "x").unwrap();
    run("umount", [text(&point)]);
}

/// The flags of the mount and the options of its filesystem.
fn flags(point: &Path) -> (String, String) {
    let said = run(
        "findmnt",
        ["-no", "VFS-OPTIONS,FS-OPTIONS", "--raw", text(point)],
    );
    let (mount, filesystem) = said.trim().split_once(' ').unwrap();
    (mount.to_owned(), filesystem.to_owned())
}

fn has(list: &str, item: &str) -> bool {
    list.split(',').any(|one| one == item)
}

#[test]
fn a_mount_made_read_only_can_be_made_writable() {
    let Some(image) = Image::xfs() else { return };
    let _installed = Installed::new();
    let (tree, point) = (image.tree(), image.beside("view"));
    run(
        "mount",
        [
            "-t",
            "sharelens",
            text(&tree),
            text(&point),
            "-o",
            "ro,nosuid",
        ],
    );
    run("mount", ["-o", "remount,rw", text(&point)]);
    fs::write(point.join("a"), "x").unwrap();
    let (mount, filesystem) = flags(&point);
    assert!(has(&mount, "rw") && has(&mount, "nosuid"), "{mount}");
    assert!(has(&filesystem, "rw"), "{filesystem}");
    let open = fs::File::create(point.join("open")).unwrap();
    let said = try_run("mount", ["-o", "remount,ro", text(&point)]);
    assert_eq!(said.code, Some(32), "{said:?}");
    assert!(
        said.stderr.contains("files are open for writing"),
        "{said:?}"
    );
    fs::write(point.join("b"), "still writable").unwrap();
    drop(open);
    run("mount", ["-o", "remount,ro", text(&point)]);
    assert!(has(&flags(&point).1, "ro"));
    run("umount", [text(&point)]);
}

#[test]
fn generic_flags_change_with_a_remount_and_those_not_named_stay() {
    let Some(image) = Image::xfs() else { return };
    let _installed = Installed::new();
    let (tree, point) = (image.tree(), image.beside("view"));
    run(
        "mount",
        [
            "-t",
            "sharelens",
            text(&tree),
            text(&point),
            "-o",
            "nodev,noatime",
        ],
    );
    for (option, mount_flag, filesystem_flag) in [
        ("noexec", Some("noexec"), None),
        ("nosymfollow", Some("nosymfollow"), None),
        ("nodiratime", Some("nodiratime"), None),
        ("sync", None, Some("sync")),
        ("lazytime", None, Some("lazytime")),
    ] {
        run("mount", ["-o", &format!("remount,{option}"), text(&point)]);
        let (mount, filesystem) = flags(&point);
        assert!(has(&mount, "nodev") && has(&mount, "noatime"), "{mount}");
        assert!(mount_flag.is_none_or(|flag| has(&mount, flag)), "{mount}");
        assert!(
            filesystem_flag.is_none_or(|flag| has(&filesystem, flag)),
            "{filesystem}"
        );
    }
    run("mount", ["-o", "remount,atime,dev,exec", text(&point)]);
    let (mount, _) = flags(&point);
    for gone in ["noatime", "nodev", "noexec"] {
        assert!(!has(&mount, gone), "{mount}");
    }
    assert!(has(&mount, "nosymfollow"), "{mount}");
    run("umount", [text(&point)]);
}

#[test]
fn what_a_remount_cannot_change_is_refused_and_what_holds_already_is_no_change() {
    let Some(image) = Image::xfs() else { return };
    let _installed = Installed::new();
    let (tree, point) = (image.tree(), image.beside("view"));
    let table = image.beside("etc").join("fstab");
    let line = format!(
        "{} {} sharelens wait=5,list_xattrs,allow_other,noauto 0 0\n",
        text(&tree),
        text(&point)
    );
    fs::write(&table, line).unwrap();
    run("mount", ["-T", text(&table), text(&point)]);
    for (option, named) in [
        ("wait=7", "wait=7"),
        ("io=cached", "io=cached"),
        ("log_file=/dev/null", "log_file=/dev/null"),
        ("ro,blocks=exclusive", "blocks=exclusive"),
        ("fsname=other", "fsname=other"),
        ("dirsync", "dirsync"),
    ] {
        let list = format!("remount,{option}");
        let said = try_run("mount", ["-o", &list, text(&point)]);
        assert_eq!(said.code, Some(32), "{option}: {said:?}");
        let sentence = format!("cannot be remounted: {named} can only be set when mounting");
        assert!(said.stderr.contains(&sentence), "{option}: {said:?}");
        assert!(has(&flags(&point).0, "rw"), "{option}: nothing was changed");
    }
    run(
        "mount",
        ["-T", text(&table), "-o", "remount,ro", text(&point)],
    );
    assert!(has(&flags(&point).0, "ro"));
    run(
        "mount",
        ["-o", "remount,rw,wait=5.0,list_xattrs", text(&point)],
    );
    assert!(has(&flags(&point).0, "rw"));
    run("umount", [text(&point)]);
}

/// automount in the foreground, ended on drop.
struct Automount(std::process::Child);

impl Drop for Automount {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.0.id().try_into().unwrap());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let begun = Instant::now();
        while self.0.try_wait().unwrap().is_none() {
            if begun.elapsed() > Duration::from_secs(20) {
                let _ = self.0.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "not {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn autofs_mounts_at_first_use_and_unmounts_what_nobody_uses() {
    let Some(image) = Image::xfs() else { return };
    let device = Path::new("/dev/autofs").exists();
    if !common::have("automount") || !common::need(device, "/dev/autofs") {
        return;
    }
    let _installed = Installed::new();
    let (tree, etc) = (image.tree(), image.beside("etc"));
    write_synced(&tree.join("file"), 1, 5000);
    let (views, direct) = (image.beside("views"), image.beside("direct"));
    let write = |name: &str, line: String| fs::write(etc.join(name), line + "\n").unwrap();
    write(
        "master",
        format!(
            "{} file:{etc}/views --timeout=2\n/- file:{etc}/direct --timeout=2",
            text(&views),
            etc = text(&etc)
        ),
    );
    let entry = format!("-fstype=sharelens,wait=5 :{}", text(&tree));
    write("views", format!("view {entry}"));
    write("direct", format!("{} {entry}", text(&direct)));
    let automount = Command::new("automount")
        .args(["--foreground", "--dont-check-daemon"])
        .args([
            "--pid-file",
            text(&etc.join("pid")),
            text(&etc.join("master")),
        ])
        .stderr(fs::File::create(etc.join("log")).unwrap())
        .spawn()
        .unwrap();
    let _automount = Automount(automount);
    wait_until("started", || {
        [&views, &direct].map(|place| mount_type(place))
            == [Some("autofs".into()), Some("autofs".into())]
    });
    for (place, covers) in [(views.join("view"), None), (direct, Some("autofs"))] {
        for _ in 0..2 {
            let said = try_run("timeout", ["20", "cat", text(&place.join("file"))]);
            assert!(said.ok() && said.stdout.len() > 1000, "{place:?}: {said:?}");
            assert_eq!(mount_type(&place).as_deref(), Some("fuse.sharelens"));
            let bytes = try_run(
                "timeout",
                [
                    "20",
                    "getfattr",
                    "--only-values",
                    "-n",
                    "user.reflink.bytes",
                    text(&place.join("file")),
                ],
            );
            assert_eq!(bytes.stdout, "8192", "{bytes:?}");
            wait_until("unmounted", || mount_type(&place).as_deref() == covers);
        }
    }
}
