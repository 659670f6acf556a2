//! Holes, preallocation, times, space: what is not content but must be carried all the same.

use crate::common::calls::{self, Time, errno, outcome, seek, set_times, space};
use crate::common::files::content;
use crate::common::venue::{Io, Venue, run_in};
use crate::common::{Image, Kind, run};
use crate::everywhere;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

everywhere!(
    holes_and_data_are_found,
    holes_are_found_as_on_the_filesystem_below,
    every_mode_of_fallocate_does_what_it_does_below,
    preallocated_space_reads_as_zeroes,
    sizes_up_to_the_largest,
    times_are_kept_to_the_nanosecond_and_before_1970,
    the_space_shown_is_that_of_the_filesystem_below,
);

const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

fn read_write(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap()
}

/// Data at 0, 1 MiB and 3 MiB, 64 KiB each; a hole at the end.
fn sparse(path: &Path) -> File {
    let file = read_write(path);
    for at in [0, 1 << 20, 3 << 20] {
        file.write_all_at(&content(at, 64 << 10), at).unwrap();
    }
    file.set_len(4 << 20).unwrap();
    file
}

fn holes_and_data_are_found(venue: &mut Venue) {
    let file = sparse(&venue.at("f"));
    for synced in [false, true] {
        if synced {
            file.sync_all().unwrap();
        }
        let data = |at| seek(&file, at, libc::SEEK_DATA);
        let hole = |at| seek(&file, at, libc::SEEK_HOLE);
        assert_eq!(data(0).unwrap(), 0);
        assert_eq!(data(10).unwrap(), 10);
        assert_eq!(hole(0).unwrap(), 64 << 10);
        assert_eq!(data(64 << 10).unwrap(), 1 << 20);
        assert_eq!(hole(1 << 20).unwrap(), (1 << 20) + (64 << 10));
        assert_eq!(data(2 << 20).unwrap(), 3 << 20);
        // The hole at the end is no data, and the end itself is a hole.
        assert_eq!(errno(data(3_300_000)), libc::ENXIO);
        assert_eq!(hole(3_300_000).unwrap(), 3_300_000);
        assert_eq!(errno(data(4 << 20)), libc::ENXIO);
        assert_eq!(errno(hole(4 << 20)), libc::ENXIO);
        assert_eq!(errno(hole(5 << 20)), libc::ENXIO);
    }
    let full = read_write(&venue.at("full"));
    full.write_all_at(&[1; 10_000], 0).unwrap();
    assert_eq!(seek(&full, 0, libc::SEEK_HOLE).unwrap(), 10_000);
    let empty = read_write(&venue.at("empty"));
    assert_eq!(errno(seek(&empty, 0, libc::SEEK_DATA)), libc::ENXIO);
    assert_eq!(errno(seek(&empty, 0, libc::SEEK_HOLE)), libc::ENXIO);
    // The file position follows, and the ordinary kinds of seek are the kernel's.
    assert_eq!(seek(&file, 70_000, libc::SEEK_DATA).unwrap(), 1 << 20);
    assert_eq!(seek(&file, 5, libc::SEEK_CUR).unwrap(), (1 << 20) + 5);
    assert_eq!(seek(&file, -5, libc::SEEK_END).unwrap(), (4 << 20) - 5);
    assert_eq!(errno(seek(&file, -1, libc::SEEK_SET)), libc::EINVAL);
}

/// The borders of data that a program finds by walking a file.
fn walk(file: &File) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        match seek(file, at, libc::SEEK_DATA) {
            Ok(start) => {
                at = seek(file, start, libc::SEEK_HOLE).unwrap();
                found.push((start, at));
            }
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENXIO));
                return found;
            }
        }
    }
}

fn holes_are_found_as_on_the_filesystem_below(venue: &mut Venue) {
    let steps = |file: &File| {
        file.set_len(8 << 20).unwrap();
        let mut walks = vec![walk(file)];
        file.write_all_at(&content(3, 300_000), 1_000_000).unwrap();
        walks.push(walk(file));
        calls::fallocate(file, 0, 3 << 20, 1 << 20).unwrap();
        walks.push(walk(file));
        file.write_all_at(b"inside the preallocated", 3_500_000)
            .unwrap();
        walks.push(walk(file));
        calls::fallocate(file, PUNCH, 1_100_000, 100_000).unwrap();
        walks.push(walk(file));
        calls::fallocate(file, libc::FALLOC_FL_KEEP_SIZE, 9 << 20, 1 << 20).unwrap();
        walks.push(walk(file));
        file.set_len(3_400_000).unwrap();
        walks.push(walk(file));
        file.sync_all().unwrap();
        walks.push(walk(file));
        walks
    };
    let shown = steps(&read_write(&venue.at("f")));
    let below = steps(&read_write(&venue.native().join("f")));
    assert_eq!(shown, below);
}

fn every_mode_of_fallocate_does_what_it_does_below(venue: &mut Venue) {
    let modes: [(&str, i32, i64, i64); 16] = [
        ("allocate inside", 0, 8192, 8192),
        ("allocate past the end", 0, 100_000, 50_000),
        ("keep size", libc::FALLOC_FL_KEEP_SIZE, 200_000, 50_000),
        ("punch", PUNCH, 4096, 8192),
        ("punch unaligned", PUNCH, 5000, 10_000),
        ("punch past the end", PUNCH, 90_000, 500_000),
        (
            "punch without keep size",
            libc::FALLOC_FL_PUNCH_HOLE,
            0,
            4096,
        ),
        ("zero", libc::FALLOC_FL_ZERO_RANGE, 3000, 20_000),
        (
            "zero, keep size",
            libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
            80_000,
            400_000,
        ),
        ("collapse", libc::FALLOC_FL_COLLAPSE_RANGE, 4096, 8192),
        (
            "collapse unaligned",
            libc::FALLOC_FL_COLLAPSE_RANGE,
            100,
            8192,
        ),
        ("insert", libc::FALLOC_FL_INSERT_RANGE, 8192, 4096),
        ("unshare", libc::FALLOC_FL_UNSHARE_RANGE, 0, 65536),
        ("nonsense mode", 0x4000, 0, 4096),
        ("empty", 0, 0, 0),
        ("negative", 0, -1, 4096),
    ];
    let (mount, native) = (venue.at("f"), venue.native().join("f"));
    for path in [&mount, &native] {
        fs::write(path, content(5, 120_000)).unwrap();
    }
    let (file, below) = (read_write(&mount), read_write(&native));
    // The kernel lets no other modes through to a FUSE filesystem, whatever is below.
    let passed =
        libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
    for (name, mode, offset, length) in modes {
        if !venue.is_native() && mode & !passed != 0 {
            let refused = calls::fallocate(&file, mode, offset, length);
            assert_eq!(outcome(refused), Err(libc::EOPNOTSUPP), "{name}");
            continue;
        }
        assert_eq!(
            outcome(calls::fallocate(&file, mode, offset, length)),
            outcome(calls::fallocate(&below, mode, offset, length)),
            "{name}"
        );
        assert_eq!(
            fs::read(&mount).unwrap(),
            fs::read(&native).unwrap(),
            "{name}"
        );
        let size = fs::metadata(&mount).unwrap().len();
        assert_eq!(size, fs::metadata(&native).unwrap().len(), "{name}");
        assert_eq!(walk(&file), walk(&below), "{name}");
    }
    let reader = File::open(&mount).unwrap();
    assert_eq!(errno(calls::fallocate(&reader, 0, 0, 4096)), libc::EBADF);
    let below = venue.backing().join("f");
    assert_eq!(fs::read(&mount).unwrap(), fs::read(below).unwrap());
}

fn preallocated_space_reads_as_zeroes(venue: &mut Venue) {
    let path = venue.at("f");
    let file = read_write(&path);
    calls::fallocate(&file, 0, 0, 1 << 20).unwrap();
    assert_eq!(fs::read(&path).unwrap(), vec![0; 1 << 20]);
    let blocks = fs::metadata(&path).unwrap().blocks();
    assert!(blocks >= 2048, "{blocks} blocks");
    file.write_all_at(b"in the middle", 500_000).unwrap();
    let mut expected = vec![0; 1 << 20];
    expected[500_000..500_013].copy_from_slice(b"in the middle");
    assert_eq!(fs::read(&path).unwrap(), expected);
}

fn sizes_up_to_the_largest(venue: &mut Venue) {
    let (mount, native) = (venue.at("f"), venue.native().join("f"));
    for size in [
        i64::MAX,
        i64::MAX - 1,
        i64::MAX - 4096,
        i64::MAX - (1 << 20),
        1 << 60,
        1 << 44,
        -1,
    ] {
        let (file, below) = (read_write(&mount), read_write(&native));
        let truncate =
            |file: &File| nix::unistd::ftruncate(file, size).map_err(std::io::Error::from);
        assert_eq!(
            outcome(truncate(&file)),
            outcome(truncate(&below)),
            "size {size}"
        );
        assert_eq!(
            fs::metadata(&mount).unwrap().len(),
            fs::metadata(&native).unwrap().len()
        );
        if let Ok(at) = u64::try_from(size) {
            // The last byte below the size; a byte at the limit does not fit.
            let write =
                |file: &File, at: u64| file.write_at(b"z", at).and_then(|_| file.sync_all());
            assert_eq!(
                outcome(write(&file, at - 1)),
                outcome(write(&below, at - 1)),
                "a byte below {size}"
            );
            let mut byte = [1];
            assert_eq!(
                outcome(
                    file.read_exact_at(&mut byte, at.saturating_sub(2))
                        .map_err(plain)
                ),
                outcome(
                    below
                        .read_exact_at(&mut byte, at.saturating_sub(2))
                        .map_err(plain)
                ),
            );
        }
        fs::remove_file(&mount).unwrap();
        fs::remove_file(&native).unwrap();
    }
}

/// An error of the library's own (a short read) as an errno.
fn plain(error: std::io::Error) -> std::io::Error {
    match error.raw_os_error() {
        Some(_) => error,
        None => std::io::Error::from_raw_os_error(libc::ENODATA),
    }
}

fn times_are_kept_to_the_nanosecond_and_before_1970(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, "x").unwrap();
    std::os::unix::fs::symlink("f", venue.at("s")).unwrap();
    fs::create_dir(venue.at("d")).unwrap();
    let native = venue.native().join("f");
    fs::write(&native, "x").unwrap();
    for (seconds, nanoseconds) in [
        (0, 0),
        (0, 1),
        (1_234_567_890, 123_456_789),
        (1_234_567_890, 999_999_999),
        (-1, 500_000_000),
        (-1_000_000_000, 1),
        (-2_147_483_648, 0),
        (2_147_483_648, 7),
        (4_294_967_296, 7),
        (16_000_000_000, 7),
        (100_000_000_000, 7),
        (-100_000_000_000, 7),
    ] {
        let at = Time::At(seconds, nanoseconds);
        let later = Time::At(seconds + 1, nanoseconds);
        set_times(&native, at, later).unwrap();
        let expected = fs::metadata(&native).unwrap();
        for name in ["f", "s", "d"] {
            set_times(&venue.at(name), at, later).unwrap();
            for path in [venue.at(name), venue.backing().join(name)] {
                let meta = fs::symlink_metadata(&path).unwrap();
                let shown = (
                    meta.atime(),
                    meta.atime_nsec(),
                    meta.mtime(),
                    meta.mtime_nsec(),
                );
                // Out of range, the filesystem below clamps; the mount as it does.
                let below = (
                    expected.atime(),
                    expected.atime_nsec(),
                    expected.mtime(),
                    expected.mtime_nsec(),
                );
                assert_eq!(shown, below, "{path:?} at {seconds}.{nanoseconds:09}");
            }
        }
        if (-2_000_000_000..4_000_000_000).contains(&seconds) {
            assert_eq!(
                (expected.atime(), expected.atime_nsec()),
                (seconds, nanoseconds)
            );
        }
    }
    assert_eq!(
        errno(set_times(&path, Time::At(0, 1_000_000_000), Time::Now)),
        libc::EINVAL
    );
}

fn the_space_shown_is_that_of_the_filesystem_below(venue: &mut Venue) {
    let file = File::create(venue.at("f")).unwrap();
    file.write_all_at(&vec![1; 5 << 20], 0).unwrap();
    file.sync_all().unwrap();
    nix::unistd::syncfs(File::open(venue.backing()).unwrap()).unwrap();
    for (shown, below) in [
        (venue.dir().to_owned(), venue.backing()),
        (venue.at("f"), venue.backing().join("f")),
    ] {
        assert_eq!(space(&shown).unwrap(), space(&below).unwrap());
    }
    let df = |path: PathBuf| {
        run(
            "df",
            [
                "--output=size,used,avail,itotal,iused",
                path.to_str().unwrap(),
            ],
        )
    };
    assert_eq!(df(venue.at("f")), df(venue.backing().join("f")));
}

/// atime by the rules of the backing mount.
fn access_times(kind: Kind, io: Io, options: &str, follows: impl Fn(bool) -> bool) {
    let Some(venue) = Venue::with(Image::of(kind).options(options), io, "") else {
        return;
    };
    run_in(venue, |venue| {
        let path = venue.at("f");
        fs::write(&path, content(1, 100_000)).unwrap();
        for stale in [true, false] {
            // Before the last change, or long after it.
            let (accessed, modified) = if stale {
                (Time::At(1_000_000, 0), Time::At(2_000_000, 0))
            } else {
                (Time::At(4_000_000_000, 0), Time::At(2_000_000, 0))
            };
            set_times(&path, accessed, modified).unwrap();
            let before = fs::metadata(&path).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            fs::read(&path).unwrap();
            let after = fs::metadata(&path).unwrap();
            let below = fs::metadata(venue.backing().join("f")).unwrap();
            let time = |meta: &fs::Metadata| (meta.atime(), meta.atime_nsec());
            assert_eq!(
                time(&below) != time(&before),
                follows(stale),
                "{options}, stale: {stale}"
            );
            assert_eq!(time(&after), time(&below), "shown, stale: {stale}");
            let quiet = calls::open(&path, libc::O_RDONLY | libc::O_NOATIME).unwrap();
            set_times(&path, Time::At(1_000_000, 0), Time::Omit).unwrap();
            quiet.read_exact_at(&mut [0; 10], 0).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().atime(), 1_000_000);
        }
    });
}

#[test]
fn access_times_follow_the_rules_of_the_backing_mount() {
    for io in [Io::Native, Io::Passthrough] {
        for kind in [Kind::Xfs, Kind::Btrfs] {
            access_times(kind, io, "relatime", |stale| stale);
            access_times(kind, io, "noatime", |_| false);
            access_times(kind, io, "strictatime", |_| true);
        }
    }
}

#[test]
fn access_times_of_cached_files_follow_the_rules_when_first_read() {
    for kind in [Kind::Xfs, Kind::Btrfs] {
        access_times(kind, Io::Cached, "noatime", |_| false);
    }
}
