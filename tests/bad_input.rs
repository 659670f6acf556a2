//! Sources and names that are out of the ordinary work, or fail as the backing filesystem does.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::files::{asked, number, text, write_synced};
use common::{Image, Mounted, MountedTmpfs, Numbers, raw};
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

#[test]
fn a_filesystem_without_fiemap_mounts_with_a_warning_and_knows_no_number() {
    let Some(tmpfs) = MountedTmpfs::new() else {
        return;
    };
    let tree = tmpfs.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let mounted = Mounted::at(&tree, &tmpfs.beside("view")).mount();
    let file = mounted.path().join("file");
    fs::write(&file, "some data").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"some data");
    for name in [
        "bytes",
        "shared_bytes",
        "may_share",
        "summary",
        "json",
        "map",
    ] {
        assert_eq!(errno(text(&file, name)), libc::ENODATA, "{name}");
    }
    assert!(
        mounted.said().contains("cannot say what is shared"),
        "{}",
        mounted.said()
    );
}

#[test]
fn ext4_shares_nothing() {
    let Some(image) = Image::ext4() else { return };
    let tree = image.tree();
    write_synced(&tree.join("file"), 1, 5000);
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let file = mounted.path().join("file");
    assert_eq!(
        asked(&file).unwrap(),
        Numbers {
            bytes: 8192,
            shared_bytes: 0,
            extents: 1,
            shared_extents: 0
        }
    );
    assert_eq!(text(&file, "may_share").unwrap(), "0");
}

#[test]
fn xfs_without_reflink_shares_nothing() {
    let Some(image) = Image::of(common::Kind::Xfs).without_reflink().make() else {
        return;
    };
    let tree = image.tree();
    write_synced(&tree.join("file"), 1, 5000);
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    assert_eq!(
        number(&mounted.path().join("file"), "shared_bytes").unwrap(),
        0
    );
}

#[test]
fn names_of_every_kind_work() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let longest = "x".repeat(255);
    let names: [&[u8]; 8] = [
        b"not utf-8 \xff\xfe",
        b"new\nline",
        b"tab\tand\\backslash",
        "umlaut ä 漢字".as_bytes(),
        b" ",
        b"-rf",
        b"user.reflink.bytes",
        longest.as_bytes(),
    ];
    for name in names {
        let name = OsStr::from_bytes(name);
        let path = mounted.path().join(name);
        fs::write(&path, vec![7; 5000]).unwrap();
        assert_eq!(number(&path, "bytes").unwrap(), 8192, "{name:?}");
        assert_eq!(fs::read(tree.join(name)).unwrap().len(), 5000, "{name:?}");
    }
    let listed = fs::read_dir(mounted.path()).unwrap().count();
    assert_eq!(listed, names.len());
}

#[test]
fn a_name_too_long_fails_as_below() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let name = "x".repeat(256);
    for base in [tree.as_path(), mounted.path()] {
        assert_eq!(errno(fs::write(base.join(&name), "")), libc::ENAMETOOLONG);
        assert_eq!(errno(fs::metadata(base.join(&name))), libc::ENAMETOOLONG);
    }
}

#[test]
fn the_largest_possible_file_is_answered() {
    for image in [Image::xfs(), Image::btrfs()] {
        let Some(image) = image else { return };
        let tree = image.tree();
        let mounted = Mounted::at(&tree, &image.beside("view")).mount();
        let largest = u64::try_from(i64::MAX).unwrap();
        let below = File::create(tree.join("native"))
            .unwrap()
            .set_len(largest)
            .map_err(|error| error.raw_os_error());
        let file = mounted.path().join("huge");
        let through = File::create(&file)
            .unwrap()
            .set_len(largest)
            .map_err(|error| error.raw_os_error());
        assert_eq!(through, below);
        assert_eq!(
            fs::metadata(&file).unwrap().len(),
            fs::metadata(tree.join("native")).unwrap().len()
        );
        assert_eq!(asked(&file).unwrap(), Numbers::default(), "all hole");
        let open = fs::OpenOptions::new().write(true).open(&file).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&open, b"end", largest - 4096).unwrap();
        let numbers = asked(&file).unwrap();
        assert!(
            (4096..=8192).contains(&numbers.bytes) && numbers.shared_bytes == 0,
            "{numbers:?}"
        );
    }
}

#[test]
fn a_deep_tree_works_to_its_end() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    // By relative steps, since the whole path is longer than any path may be.
    let mut here = std::os::fd::OwnedFd::from(File::open(mounted.path()).unwrap());
    for _ in 0..2000 {
        mkdirat(&here, "deeper", Mode::S_IRWXU).unwrap();
        here = openat(&here, "deeper", OFlag::O_DIRECTORY, Mode::empty()).unwrap();
    }
    let flags = OFlag::O_CREAT | OFlag::O_RDWR;
    let mut file = File::from(openat(&here, "file", flags, Mode::S_IRWXU).unwrap());
    file.write_all(b"data").unwrap();
    let path = format!("/proc/self/fd/{}/file", here.as_raw_fd());
    assert_eq!(number(Path::new(&path), "bytes").unwrap(), 4096);
    assert_eq!(fs::read(&path).unwrap(), b"data");
}

#[test]
fn what_has_no_numbers_says_so() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let at = |name: &str| mounted.path().join(name);
    std::os::unix::fs::symlink("file", at("link")).unwrap();
    common::run("mkfifo", [at("fifo")]);
    write_synced(&at("file"), 1, 100);
    let ask = |path: &Path, name: &str| raw::getxattr(path, name);
    assert_eq!(
        errno(ask(&at("file"), "user.reflink.nonsense")),
        libc::ENODATA
    );
    assert_eq!(errno(ask(&at("file"), "user.reflink.")), libc::ENODATA);
    assert_eq!(errno(ask(&at("file"), "user.other")), libc::ENODATA);
    assert_eq!(errno(ask(&at("none"), "user.reflink.bytes")), libc::ENOENT);
    for name in ["link", "fifo"] {
        let native = errno(ask(&tree.join(name), "user.reflink.bytes"));
        assert_eq!(
            errno(ask(&at(name), "user.reflink.bytes")),
            native,
            "{name}"
        );
    }
}

#[test]
fn sizes_are_asked_and_short_buffers_refused_as_for_any_attribute() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    let mounted = Mounted::at(&tree, &image.beside("view")).mount();
    let file = mounted.path().join("file");
    write_synced(&file, 1, 5000);
    let name = "user.reflink.bytes";
    assert_eq!(raw::getxattr_sized(&file, name, 0).unwrap(), 4);
    assert_eq!(errno(raw::getxattr_sized(&file, name, 3)), libc::ERANGE);
    assert_eq!(raw::getxattr_sized(&file, name, 4).unwrap(), 4);
}

#[test]
fn virtual_attributes_cannot_be_set_and_are_listed_only_when_wanted() {
    let Some(image) = Image::xfs() else { return };
    let tree = image.tree();
    let below = tree.join("file");
    write_synced(&below, 1, 5000);
    raw::setxattr(&below, "user.mine", b"1").unwrap();
    raw::setxattr(&below, "user.reflink.bytes", b"a real one").unwrap();
    for (options, listed) in [("", false), ("list_xattrs", true)] {
        let mounted = Mounted::at(&tree, &image.beside("view"))
            .options(options)
            .mount();
        let file = mounted.path().join("file");
        assert_eq!(
            number(&file, "bytes").unwrap(),
            8192,
            "the real one is hidden"
        );
        let names = raw::listxattr(&file).unwrap();
        assert!(names.contains(&"user.mine".to_owned()));
        assert_eq!(
            names.iter().any(|name| name.starts_with("user.reflink.")),
            listed,
            "{names:?}"
        );
        let set = raw::setxattr(&file, "user.reflink.bytes", b"7");
        let removed = raw::removexattr(&file, "user.reflink.bytes");
        if listed {
            set.unwrap();
            removed.unwrap();
        } else {
            assert_eq!((errno(set), errno(removed)), (libc::EPERM, libc::EPERM));
        }
        assert_eq!(
            raw::getxattr(&below, "user.reflink.bytes").unwrap(),
            b"a real one",
            "nothing is stored below"
        );
        raw::setxattr(&file, "user.new", b"2").unwrap();
        assert_eq!(raw::getxattr(&below, "user.new").unwrap(), b"2");
        raw::removexattr(&file, "user.new").unwrap();
    }
}
