//! What `docs/semantics.md` says about operations, section by section.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::files::{asked, clone, content, number, write_at, write_synced};
use common::{Image, Mounted, have, output, raw, sharelens, truth, try_run};
use nix::fcntl::{FallocateFlags, Flock, FlockArg, OFlag, fallocate, open};
use nix::sys::stat::Mode;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn as_user(script: &str, file: &Path) {
    let said = output(Command::new("setpriv").args([
        "--reuid=1000",
        "--regid=1000",
        "--clear-groups",
        "sh",
        "-ec",
        script,
        "sh",
        text(file),
    ]));
    assert!(said.ok(), "{script}: {said:?}");
}

#[test]
fn cloning_is_refused_by_the_kernel_and_done_by_copying() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("a"), 1, 40_000);
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let view = mounted.path();
    let source = File::open(view.join("a")).unwrap();
    let target = File::create(view.join("b")).unwrap();
    assert_eq!(errno(raw::clone_file(&source, &target)), libc::EOPNOTSUPP);
    assert_eq!(errno(raw::fiemap(&source, false)), libc::EOPNOTSUPP);
    let (a, b) = (view.join("a"), view.join("b"));
    let said = try_run("cp", ["--reflink=always", text(&a), text(&b)]);
    assert_eq!(said.code, Some(1), "{said:?}");
    for arguments in [
        vec![text(&a), text(&b)],
        vec!["--reflink=auto", text(&a), text(&b)],
    ] {
        fs::remove_file(&b).unwrap();
        assert!(try_run("cp", arguments).ok());
        assert_eq!(number(&b, "exclusive_bytes").unwrap(), 0);
    }
    fs::remove_file(&b).unwrap();
    let said = output(Command::new(sharelens()).args(["clone", text(&a), text(&b)]));
    assert!(said.ok(), "{said:?}");
    assert_eq!(number(&b, "exclusive_bytes").unwrap(), 0);
    let part = File::create(view.join("part")).unwrap();
    assert_eq!(
        raw::copy_range(&source, 8192, &part, 0, 16384).unwrap(),
        16384
    );
    assert_eq!(number(&view.join("part"), "shared_bytes").unwrap(), 16384);
}

#[test]
fn what_the_kernel_refuses_on_fuse_is_refused_and_the_rest_works() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("a"), 1, 65536);
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let view = mounted.path();
    let unnamed = open(view, OFlag::O_TMPFILE | OFlag::O_RDWR, Mode::S_IRUSR);
    assert_eq!(unnamed.unwrap_err(), nix::Error::EOPNOTSUPP);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(view.join("a"))
        .unwrap();
    let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
    for refused in [
        FallocateFlags::FALLOC_FL_COLLAPSE_RANGE,
        FallocateFlags::FALLOC_FL_INSERT_RANGE,
        FallocateFlags::FALLOC_FL_UNSHARE_RANGE,
    ] {
        assert_eq!(
            fallocate(&file, refused, 0, 4096),
            Err(nix::Error::EOPNOTSUPP)
        );
    }
    for works in [
        FallocateFlags::empty(),
        keep,
        FallocateFlags::FALLOC_FL_ZERO_RANGE,
        FallocateFlags::FALLOC_FL_PUNCH_HOLE | keep,
    ] {
        fallocate(&file, works, 0, 4096).unwrap();
    }
    assert_eq!(
        asked(&view.join("a")).unwrap(),
        truth::numbers(&tree.join("a"))
    );
    assert!(file.metadata().unwrap().created().is_err());
    if have("lsattr") {
        let a = view.join("a");
        assert!(try_run("lsattr", [text(&a)]).ok());
        assert!(try_run("chattr", ["+A", text(&a)]).ok());
        let said = try_run("lsattr", [text(&tree.join("a"))]);
        assert!(
            said.stdout.split(' ').next().unwrap().contains('A'),
            "{said:?}"
        );
        let said = try_run("lsattr", ["-v", text(&a)]);
        assert!(said.stderr.contains("Inappropriate ioctl"), "{said:?}");
    }
}

#[test]
fn locks_are_right_on_the_mount_and_not_seen_below() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    fs::write(tree.join("a"), "x").unwrap();
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let lock =
        |path: &Path| Flock::lock(File::open(path).unwrap(), FlockArg::LockExclusiveNonblock);
    let above = mounted.path().join("a");
    let held = lock(&above).unwrap();
    assert_eq!(
        lock(&above).map(drop).map_err(|(_, errno)| errno),
        Err(nix::Error::EWOULDBLOCK)
    );
    drop(lock(&tree.join("a")).unwrap());
    drop(held);
    drop(lock(&above).unwrap());
}

#[test]
fn with_passthrough_every_write_takes_set_id_bits_off() {
    if !have("setpriv") {
        return;
    }
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    for (options, after_root) in [
        ("io=passthrough,allow_other", 0o777),
        ("io=cached,allow_other", 0o6777),
    ] {
        let mounted = Mounted::at(&tree, &image.beside("view"))
            .options(options)
            .mount();
        let file = mounted.path().join("a");
        let set = || {
            fs::write(&file, "xxxx").unwrap();
            chown(&file, Some(1000), Some(1000)).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o6777)).unwrap();
        };
        let mode = || {
            let below = fs::metadata(tree.join("a")).unwrap().mode() & 0o7777;
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, below);
            below
        };
        set();
        OpenOptions::new()
            .write(true)
            .open(&file)
            .unwrap()
            .write_all_at(b"y", 0)
            .unwrap();
        assert_eq!(mode(), after_root, "{options}");
        set();
        as_user("printf z >> \"$1\"", &file);
        assert_eq!(mode(), 0o777, "{options}: by an ordinary user");
        drop(mounted);
    }
}

#[test]
fn inodes_have_their_numbers_from_below() {
    let Some(image) = Image::btrfs() else { return };
    if !have("btrfs") {
        return;
    }
    let tree = image.tree();
    fs::write(tree.join("a"), "x").unwrap();
    common::run(
        "btrfs",
        ["-q", "subvolume", "create", text(&tree.join("sub"))],
    );
    fs::write(tree.join("sub/b"), "x").unwrap();
    let (before, after) = (tree.join("before"), tree.join("after"));
    for point in [&before, &after] {
        fs::create_dir(point).unwrap();
    }
    common::run("mount", ["-t", "tmpfs", "none", text(&before)]);
    fs::write(before.join("f"), "below").unwrap();
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let view = mounted.path();
    let number = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_eq!(number(&view.join("a")), number(&tree.join("a")));
    let (b, sub) = (number(&view.join("sub/b")), number(&view.join("sub")));
    assert!(
        b != number(&view.join("a")) && sub != number(view),
        "{b} {sub}"
    );
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    assert_eq!(device(&view.join("sub/b")), device(view));
    assert_eq!(fs::read(view.join("before/f")).unwrap(), b"below");
    // One that is made afterwards shows once the kernel asks for the name again.
    assert!(fs::read_dir(view.join("after")).unwrap().next().is_none());
    common::run("mount", ["-t", "tmpfs", "none", text(&after)]);
    fs::write(after.join("f"), "later").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(fs::read(view.join("after/f")).unwrap(), b"later");
}

#[test]
fn real_attributes_below_the_prefix_are_hidden_and_left_alone() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    let below = tree.join("a");
    write_synced(&below, 1, 10_000);
    raw::setxattr(&below, "user.reflink.bytes", b"stale").unwrap();
    for (options, refused) in [("", Some(libc::EPERM)), ("list_xattrs", None)] {
        let mounted = Mounted::at(&tree, &image.beside("view"))
            .options(options)
            .mount();
        let file = mounted.path().join("a");
        assert_eq!(number(&file, "bytes").unwrap(), 12_288);
        let set = raw::setxattr(&file, "user.reflink.bytes", b"7");
        let removed = raw::removexattr(&file, "user.reflink.bytes");
        for result in [set, removed] {
            assert_eq!(result.err().and_then(|error| error.raw_os_error()), refused);
        }
        assert_eq!(
            raw::getxattr(&below, "user.reflink.bytes").unwrap(),
            b"stale"
        );
        drop(mounted);
    }
}

#[test]
fn without_allow_other_only_who_mounted_may_enter() {
    if !have("setpriv") {
        return;
    }
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    fs::write(tree.join("a"), "x").unwrap();
    let closed = Mounted::at(&tree, &image.beside("closed")).mount();
    as_user("! cat \"$1\" 2>/dev/null", &closed.path().join("a"));
    drop(closed);
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o777)).unwrap();
    let mounted = Mounted::at(&tree, &image.beside("view"))
        .options("allow_other")
        .mount();
    as_user(
        "cat \"$1\" > /dev/null; echo new > \"$1.new\"",
        &mounted.path().join("a"),
    );
    let made = fs::metadata(tree.join("a.new")).unwrap();
    assert_eq!((made.uid(), made.gid()), (1000, 1000));
    fs::set_permissions(tree.join("a"), fs::Permissions::from_mode(0o600)).unwrap();
    as_user("! cat \"$1\" 2>/dev/null", &tree.join("a"));
    as_user(
        "! getfattr -n user.reflink.bytes \"$1\" 2>/dev/null",
        &mounted.path().join("a"),
    );
}

#[test]
fn changes_behind_the_mount_that_are_reported_count_at_once() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    write_synced(&tree.join("a"), 1, 65536);
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let (a, b) = (tree.join("a"), tree.join("b"));
    let check = |shared: u64| {
        assert_eq!(
            number(&mounted.path().join("a"), "shared_bytes").unwrap(),
            shared
        );
    };
    check(0);
    clone(&a, &b);
    check(65536);
    write_at(&b, 0, &content(3, 4096));
    check(65536 - 4096);
    fs::remove_file(&b).unwrap();
    check(0);
}
