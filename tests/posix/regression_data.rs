//! As `regression.rs`, for faults of data, times, extended attributes and inode flags.

use crate::common::calls::{self, Mapping, Time, chmod, errno, set_times};
use crate::common::files::content;
use crate::common::venue::{Io, Venue, run_in};
use crate::common::{Kind, have, raw, run};
use crate::everywhere;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};

everywhere!(
    a_short_buffer_is_erange,
    a_missing_attribute_is_enodata_by_path_and_by_descriptor,
    attributes_of_every_length_pass,
    seek_data_at_the_end_is_enxio,
    an_omitted_time_stays,
    a_touch_without_times_is_now,
    a_directory_is_synced,
    a_file_opened_direct_is_mapped,
    copies_over_four_gibibytes_are_whole,
    flags_of_inodes_are_read_and_set,
    an_empty_read_is_not_remembered,
    set_id_bits_set_after_a_write_stay,
);

/// jacobsa/fuse 72, crfs 29: a buffer that is too short gave EIO instead of ERANGE.
fn a_short_buffer_is_erange(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, "x").unwrap();
    raw::setxattr(&path, "user.long", &[7; 300]).unwrap();
    assert_eq!(raw::getxattr_sized(&path, "user.long", 0).unwrap(), 300);
    assert_eq!(
        errno(raw::getxattr_sized(&path, "user.long", 1)),
        libc::ERANGE
    );
    assert_eq!(
        errno(raw::getxattr_sized(&path, "user.long", 299)),
        libc::ERANGE
    );
    assert_eq!(raw::getxattr_sized(&path, "user.long", 300).unwrap(), 300);
    let name = calls::c_path(&path);
    let mut short = [0u8; 4];
    // SAFETY: the path ends with NUL and the buffer is as long as is said.
    let got = unsafe { libc::llistxattr(name.as_ptr(), short.as_mut_ptr().cast(), short.len()) };
    assert_eq!(got, -1);
    assert_eq!(
        std::io::Error::last_os_error().raw_os_error(),
        Some(libc::ERANGE)
    );
}

/// sandboxfs 100: ENOENT by path, ENODATA by descriptor; curvine 531: EOPNOTSUPP for system names.
fn a_missing_attribute_is_enodata_by_path_and_by_descriptor(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, "x").unwrap();
    fs::create_dir(venue.at("d")).unwrap();
    for (path, name) in [
        (venue.at("f"), "user.missing"),
        (venue.at("f"), "security.capability"),
        (venue.at("f"), "system.posix_acl_access"),
        (venue.at("d"), "user.missing"),
        (venue.at("d"), "system.posix_acl_default"),
        (venue.dir().to_owned(), "user.missing"),
    ] {
        assert_eq!(errno(raw::getxattr(&path, name)), libc::ENODATA, "{name}");
        let open = File::open(&path).unwrap();
        assert_eq!(
            errno(calls::fgetxattr(&open, name)),
            libc::ENODATA,
            "{name}"
        );
        if name.starts_with("user.") {
            assert_eq!(
                errno(raw::removexattr(&path, name)),
                libc::ENODATA,
                "{name}"
            );
        }
    }
    assert_eq!(
        errno(raw::getxattr(&venue.at("no"), "user.x")),
        libc::ENOENT
    );
    assert_eq!(errno(raw::getxattr(&path, "unknown.x")), libc::EOPNOTSUPP);
    symlink("f", venue.at("s")).unwrap();
    assert_eq!(
        errno(raw::setxattr(&venue.at("s"), "user.x", b"1")),
        libc::EPERM
    );
}

/// fuse-overlayfs 286: values over 256 bytes failed.
fn attributes_of_every_length_pass(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, "x").unwrap();
    for length in [0, 1, 255, 256, 257, 4000, 10_000] {
        let value = content(length, length as usize);
        raw::setxattr(&path, "user.v", &value).unwrap();
        assert_eq!(raw::getxattr(&path, "user.v").unwrap(), value);
        let below = venue.backing().join("f");
        assert_eq!(raw::getxattr(&below, "user.v").unwrap(), value);
    }
    let native = venue.native().join("f");
    fs::write(&native, "x").unwrap();
    let most = vec![1; 65536];
    assert_eq!(
        calls::outcome(raw::setxattr(&path, "user.w", &most)),
        calls::outcome(raw::setxattr(&native, "user.w", &most))
    );
    let name = format!("user.{}", "n".repeat(250));
    raw::setxattr(&path, &name, b"long name").unwrap();
    assert!(raw::listxattr(&path).unwrap().contains(&name));
    let longer = format!("user.{}", "n".repeat(251));
    assert_eq!(errno(raw::setxattr(&path, &longer, b"x")), libc::ERANGE);
}

/// go-fuse 487: SEEK_DATA at the end gave the end, and cp went round for ever; 417: SEEK_HOLE gave
/// the position it was asked for, and grep took text for binary.
fn seek_data_at_the_end_is_enxio(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, "plain text\n").unwrap();
    let file = File::open(&path).unwrap();
    assert_eq!(errno(calls::seek(&file, 11, libc::SEEK_DATA)), libc::ENXIO);
    assert_eq!(calls::seek(&file, 0, libc::SEEK_HOLE).unwrap(), 11);
    let sparse = File::create(venue.at("sparse")).unwrap();
    sparse.write_all_at(b"x", 5 << 20).unwrap();
    sparse.set_len(20 << 20).unwrap();
    let (from, to) = (venue.at("sparse"), venue.at("copy"));
    run(
        "timeout",
        ["60", "cp", from.to_str().unwrap(), to.to_str().unwrap()],
    );
    assert_eq!(fs::metadata(&to).unwrap().len(), 20 << 20);
    let found = run("grep", ["-c", "plain", path.to_str().unwrap()]);
    assert_eq!(found.trim(), "1");
}

/// fuse-overlayfs 288, sshfs 386, cryfs 567: an omitted time became 2004, now, or 1970.
fn an_omitted_time_stays(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, "x").unwrap();
    set_times(&path, Time::At(100, 1), Time::At(200, 2)).unwrap();
    set_times(&path, Time::At(300, 3), Time::Omit).unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.atime(), meta.atime_nsec()), (300, 3));
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (200, 2));
    set_times(&path, Time::Omit, Time::At(400, 4)).unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert_eq!(
        (meta.atime(), meta.mtime(), meta.mtime_nsec()),
        (300, 400, 4)
    );
    set_times(&path, Time::Omit, Time::Omit).unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.atime(), meta.mtime()), (300, 400));
    set_times(&path, Time::Now, Time::Omit).unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert!(meta.atime() > 1_700_000_000);
    assert_eq!(meta.mtime(), 400);
}

/// libfuse 603, cryfs 379: `touch -m` did nothing; `touch` gave 1970.
fn a_touch_without_times_is_now(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, "x").unwrap();
    set_times(&path, Time::At(100, 0), Time::At(200, 0)).unwrap();
    run(
        "touch",
        ["-m", "-d", "2020-01-01 UTC", path.to_str().unwrap()],
    );
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.atime(), meta.mtime()), (100, 1_577_836_800));
    run("touch", [&path]);
    let meta = fs::metadata(&path).unwrap();
    assert!(meta.atime() > 1_700_000_000 && meta.mtime() > 1_700_000_000);
    run(
        "touch",
        ["-h", "-d", "2020-01-01 UTC", path.to_str().unwrap()],
    );
    assert_eq!(fs::metadata(&path).unwrap().mtime(), 1_577_836_800);
}

/// gocryptfs 587, fuse-backend-rs 205: fsync of a directory was not supported.
fn a_directory_is_synced(venue: &mut Venue) {
    fs::create_dir(venue.at("d")).unwrap();
    File::create(venue.at("d/f")).unwrap();
    for path in [venue.at("d"), venue.dir().to_owned()] {
        let dir = File::open(path).unwrap();
        dir.sync_all().unwrap();
        dir.sync_data().unwrap();
        nix::unistd::syncfs(&dir).unwrap();
    }
    run("sync", [venue.at("d/f")]);
    run("sync", ["-f".as_ref(), venue.at("d").as_os_str()]);
}

/// fuser 375, libfuse 1027: a file opened with O_DIRECT could not be mapped, or not be read.
fn a_file_opened_direct_is_mapped(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, content(3, 64 << 10)).unwrap();
    let direct = calls::open(&path, libc::O_RDWR | libc::O_DIRECT).unwrap();
    let mut mapping = Mapping::new(&direct, 64 << 10).unwrap();
    assert_eq!(mapping.load(0, 64 << 10), content(3, 64 << 10));
    mapping.store(5, b"stored");
    mapping.sync().unwrap();
    assert_eq!(&fs::read(&path).unwrap()[5..11], b"stored");
    let cached = File::open(&path).unwrap();
    let shown = Mapping::read_only(&cached, 64 << 10).unwrap();
    assert_eq!(shown.load(5, 6), b"stored");
}

/// libfuse 1331: the number of bytes copied was cut to 32 bits.
fn copies_over_four_gibibytes_are_whole(venue: &mut Venue) {
    let size: u64 = (5 << 30) + 12_288;
    let from = File::create_new(venue.at("from")).unwrap();
    from.write_all_at(b"first", 0).unwrap();
    from.write_all_at(b"past 4 GiB", (4 << 30) + 100).unwrap();
    from.write_all_at(b"last", size - 4).unwrap();
    from.sync_all().unwrap();
    let from = File::open(venue.at("from")).unwrap();
    let to = File::create_new(venue.at("to")).unwrap();
    let mut done = 0;
    while done < size {
        let most = usize::try_from(size - done).unwrap();
        let copied = raw::copy_range(&from, done, &to, done, most).unwrap() as u64;
        assert!(
            copied > 0 && copied <= size - done,
            "{copied} of {}",
            size - done
        );
        done += copied;
        assert!(to.metadata().unwrap().len() >= done);
    }
    assert_eq!(to.metadata().unwrap().len(), size);
    let to = File::open(venue.at("to")).unwrap();
    let mut text = [0; 10];
    to.read_exact_at(&mut text, (4 << 30) + 100).unwrap();
    assert_eq!(&text, b"past 4 GiB");
    to.read_exact_at(&mut text[..4], size - 4).unwrap();
    assert_eq!(&text[..4], b"last");
    // As cp does it, whole.
    let copy = venue.at("copy");
    run("cp", [venue.at("from"), copy.clone()]);
    assert_eq!(fs::metadata(&copy).unwrap().len(), size);
}

/// fuse-overlayfs 330: lsattr gave EIO.
fn flags_of_inodes_are_read_and_set(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, "x").unwrap();
    fs::create_dir(venue.at("d")).unwrap();
    let flags = calls::inode_flags(&File::open(&path).unwrap()).unwrap();
    let below = calls::inode_flags(&File::open(venue.backing().join("f")).unwrap()).unwrap();
    assert_eq!(flags, below);
    if !have("lsattr") {
        return;
    }
    let path_text = path.to_str().unwrap();
    run("lsattr", ["-d", venue.at("d").to_str().unwrap()]);
    run("chattr", ["+i", path_text]);
    assert!(
        run("lsattr", [path_text])
            .split(' ')
            .next()
            .unwrap()
            .contains('i')
    );
    assert_eq!(errno(fs::write(&path, "y")), libc::EPERM);
    assert_eq!(errno(fs::remove_file(&path)), libc::EPERM);
    run("chattr", ["-i", path_text]);
    fs::write(&path, "y").unwrap();
    run("chattr", ["+a", path_text]);
    assert_eq!(errno(fs::write(&path, "z")), libc::EPERM);
    OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap()
        .write_all(b"z")
        .unwrap();
    run("chattr", ["-a", path_text]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "yz");
    if have("xfs_io") && venue.kind() == Kind::Xfs {
        let said = run("xfs_io", ["-r", "-c", "lsattr", path_text]);
        assert!(said.contains(path_text), "{said}");
    }
}

/// fuse-rs 168: after an empty read, bytes written by another descriptor came back as zeroes.
fn an_empty_read_is_not_remembered(venue: &mut Venue) {
    let path = venue.at("f");
    let writer = File::create(&path).unwrap();
    let mut reader = File::open(&path).unwrap();
    let mut text = String::new();
    assert_eq!(reader.read_to_string(&mut text).unwrap(), 0);
    writer.write_all_at(b"written later", 0).unwrap();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "written later");
    writer.write_all_at(b"!", 4095).unwrap();
    let mut tail = [9; 3];
    reader.read_exact_at(&mut tail, 4093).unwrap();
    assert_eq!(tail, [0, 0, b'!']);
}

/// fuse-overlayfs 127: a write that arrived after chmod took the set-id bits away (pacman).
fn set_id_bits_set_after_a_write_stay(venue: &mut Venue) {
    let path = venue.at("f");
    let file = File::create(&path).unwrap();
    file.write_all_at(&[1; 10_000], 0).unwrap();
    calls::chown(&path, Some(0), Some(0)).unwrap();
    chmod(&path, 0o4755).unwrap();
    drop(file);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4755);
    nix::unistd::syncfs(File::open(venue.backing()).unwrap()).unwrap();
    let below = fs::metadata(venue.backing().join("f")).unwrap();
    assert_eq!(below.mode() & 0o7777, 0o4755);
}

/// trapexit/mergerfs 1487: with passthrough, ordinary reads gave EIO now and then, when opens of
/// one inode were in two modes.
#[test]
fn reads_never_give_eio_when_opens_race() {
    for kind in [Kind::Xfs, Kind::Btrfs] {
        let Some(venue) = Venue::new(kind, Io::Passthrough) else {
            return;
        };
        run_in(venue, |venue| {
            let path = venue.at("f");
            fs::write(&path, content(1, 100_000)).unwrap();
            std::thread::scope(|scope| {
                for reader in 0..4 {
                    let path = &path;
                    scope.spawn(move || {
                        for round in 0..2000 {
                            let flags = if (reader + round) % 3 == 0 {
                                libc::O_RDWR
                            } else {
                                libc::O_RDONLY
                            };
                            let file = calls::open(path, flags).unwrap();
                            let mut bytes = [0; 100];
                            file.read_exact_at(&mut bytes, (round * 40) as u64).unwrap();
                        }
                    });
                }
            });
        });
    }
}
