//! Directories: listed whole while they change, with positions that can be returned to, and with
//! numbers, counts and times that agree with stat.

use crate::common::calls::{self, Directory, drop_caches, errno};
use crate::common::run;
use crate::common::venue::Venue;
use crate::everywhere;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

everywhere!(
    a_directory_read_while_entries_go_shows_each_once,
    a_directory_read_while_entries_come_shows_the_old_ones_once,
    every_position_of_a_directory_can_be_returned_to,
    a_rewound_directory_shows_what_is_there_now,
    a_hundred_thousand_entries,
    listed_inode_numbers_are_those_of_stat,
    inode_numbers_are_those_of_the_backing_filesystem,
    inode_numbers_outlive_forgetting,
    link_counts_of_directories_are_current,
    a_removed_working_directory,
);

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

fn ino(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

fn many(venue: &Venue, name: &str, count: usize) -> PathBuf {
    let dir = venue.at(name);
    fs::create_dir(&dir).unwrap();
    for number in 0..count {
        File::create(dir.join(format!("entry-{number:06}"))).unwrap();
    }
    dir
}

fn a_directory_read_while_entries_go_shows_each_once(venue: &mut Venue) {
    let dir = many(venue, "d", 3000);
    // What rm does: remove each entry as it is read.
    let mut stream = Directory::open(&dir).unwrap();
    let mut seen = HashSet::new();
    while let Some(entry) = stream.next().unwrap() {
        if entry.name == "." || entry.name == ".." {
            continue;
        }
        fs::remove_file(dir.join(&entry.name)).unwrap();
        assert!(
            seen.insert(entry.name.clone()),
            "{:?} came twice",
            entry.name
        );
    }
    assert_eq!(seen.len(), 3000);
    fs::remove_dir(&dir).unwrap();
    // Others remove every second entry while one reads: the remaining ones come exactly once.
    let dir = many(venue, "e", 3000);
    let mut stream = Directory::open(&dir).unwrap();
    let mut seen = HashMap::new();
    for _ in 0..10 {
        let entry = stream.next().unwrap().unwrap();
        *seen.entry(entry.name).or_insert(0) += 1;
    }
    for number in (0..3000).step_by(2) {
        fs::remove_file(dir.join(format!("entry-{number:06}"))).unwrap();
    }
    for entry in stream.rest().unwrap() {
        *seen.entry(entry.name).or_insert(0) += 1;
    }
    for number in (1..3000).step_by(2) {
        let name = format!("entry-{number:06}");
        assert_eq!(seen.get(OsStr::new(&name)), Some(&1), "{name}");
    }
}

fn a_directory_read_while_entries_come_shows_the_old_ones_once(venue: &mut Venue) {
    let dir = many(venue, "d", 2000);
    let mut stream = Directory::open(&dir).unwrap();
    let mut seen: HashMap<_, u32> = HashMap::new();
    let mut added = 0;
    while let Some(entry) = stream.next().unwrap() {
        *seen.entry(entry.name).or_default() += 1;
        if added < 1500 {
            write(&dir.join(format!("new-{added}")), "x");
            added += 1;
        }
    }
    for number in 0..2000 {
        let name = format!("entry-{number:06}");
        assert_eq!(seen.get(OsStr::new(&name)), Some(&1), "{name}");
    }
    assert!(seen.values().all(|count| *count == 1));
    assert_eq!(calls::names(&dir).unwrap().len(), 2000 + added);
}

fn every_position_of_a_directory_can_be_returned_to(venue: &mut Venue) {
    let dir = many(venue, "d", 700);
    let mut stream = Directory::open(&dir).unwrap();
    let start = stream.tell();
    let mut entries = Vec::new();
    while let Some(entry) = stream.next().unwrap() {
        entries.push(entry);
    }
    assert_eq!(entries.len(), 702);
    for (index, entry) in entries.iter().enumerate().rev() {
        stream.seek(entry.next);
        let after = stream.next().unwrap();
        assert_eq!(
            after.map(|entry| entry.name),
            entries.get(index + 1).map(|entry| entry.name.clone()),
            "after {:?}",
            entry.name
        );
    }
    stream.seek(start);
    assert_eq!(stream.next().unwrap().unwrap().name, entries[0].name);
    // A position stays good when the entry before it has gone, as in a removal in batches.
    stream.seek(entries[300].next);
    let expected = stream.next().unwrap().unwrap().name;
    if entries[300].name != "." && entries[300].name != ".." {
        fs::remove_file(dir.join(&entries[300].name)).unwrap();
    }
    stream.seek(entries[300].next);
    assert_eq!(stream.next().unwrap().unwrap().name, expected);
}

fn a_rewound_directory_shows_what_is_there_now(venue: &mut Venue) {
    let dir = many(venue, "d", 10);
    let mut stream = Directory::open(&dir).unwrap();
    assert_eq!(stream.rest().unwrap().len(), 10);
    assert!(stream.next().unwrap().is_none());
    write(&dir.join("late"), "x");
    fs::remove_file(dir.join("entry-000003")).unwrap();
    stream.rewind();
    let names: BTreeSet<_> = stream
        .rest()
        .unwrap()
        .into_iter()
        .map(|entry| entry.name.into_string().unwrap())
        .collect();
    assert_eq!(names.len(), 10);
    assert!(names.contains("late") && !names.contains("entry-000003"));
}

fn a_hundred_thousand_entries(venue: &mut Venue) {
    let below = venue.backing().join("big");
    fs::create_dir(&below).unwrap();
    for number in 0..100_000 {
        File::create(below.join(format!("{number}"))).unwrap();
    }
    let dir = venue.at("big");
    let mut stream = Directory::open(&dir).unwrap();
    let entries = stream.rest().unwrap();
    assert_eq!(entries.len(), 100_000);
    let names: HashSet<&OsStr> = entries.iter().map(|entry| entry.name.as_os_str()).collect();
    assert_eq!(names.len(), 100_000);
    for entry in entries.iter().step_by(997) {
        assert_eq!(ino(&dir.join(&entry.name)), entry.ino);
    }
    for number in (0..100_000).step_by(10) {
        fs::remove_file(dir.join(format!("{number}"))).unwrap();
    }
    assert_eq!(
        run("find", [dir.to_str().unwrap(), "-type", "f"])
            .lines()
            .count(),
        90_000
    );
    run("rm", ["-r", dir.to_str().unwrap()]);
    assert!(!below.exists());
}

/// One entry of every kind.
fn zoo(venue: &Venue) -> PathBuf {
    let dir = venue.at("zoo");
    fs::create_dir_all(dir.join("dir")).unwrap();
    write(&dir.join("file"), "x");
    fs::hard_link(dir.join("file"), dir.join("link")).unwrap();
    symlink("file", dir.join("symlink")).unwrap();
    calls::mknod(&dir.join("fifo"), libc::S_IFIFO | 0o600, 0).unwrap();
    calls::mknod(&dir.join("socket"), libc::S_IFSOCK | 0o600, 0).unwrap();
    calls::mknod(
        &dir.join("char"),
        libc::S_IFCHR | 0o600,
        libc::makedev(1, 3),
    )
    .unwrap();
    calls::mknod(
        &dir.join("block"),
        libc::S_IFBLK | 0o600,
        libc::makedev(7, 200),
    )
    .unwrap();
    dir
}

fn listed_inode_numbers_are_those_of_stat(venue: &mut Venue) {
    let dir = zoo(venue);
    for forget in [false, true] {
        if forget {
            drop_caches();
        }
        let mut stream = Directory::open(&dir).unwrap();
        while let Some(entry) = stream.next().unwrap() {
            let path = dir.join(&entry.name);
            let meta = fs::symlink_metadata(&path).unwrap();
            assert_eq!(meta.ino(), entry.ino, "{:?}", entry.name);
            let kind = ((meta.mode() & libc::S_IFMT) >> 12) as u8;
            assert_eq!(kind, entry.kind, "{:?}", entry.name);
        }
    }
    // `..` of the root of a mount is another filesystem; its entry is the kernel's to answer.
    let mut root = Directory::open(venue.dir()).unwrap();
    let names: Vec<_> = root.rest().unwrap();
    assert_eq!(names.len(), 1);
}

fn inode_numbers_are_those_of_the_backing_filesystem(venue: &mut Venue) {
    let dir = zoo(venue);
    for name in calls::names(&dir).unwrap() {
        let name = OsStr::from_bytes(&name);
        let shown = fs::symlink_metadata(dir.join(name)).unwrap();
        let below = fs::symlink_metadata(venue.backing().join("zoo").join(name)).unwrap();
        let facts = |meta: &fs::Metadata| {
            (
                meta.ino(),
                meta.mode(),
                meta.nlink(),
                (meta.uid(), meta.gid()),
                meta.rdev(),
                meta.size(),
                meta.blocks(),
                (meta.mtime(), meta.mtime_nsec()),
                (meta.ctime(), meta.ctime_nsec()),
                (meta.atime(), meta.atime_nsec()),
            )
        };
        assert_eq!(facts(&shown), facts(&below), "{name:?}");
    }
    // The root of a mount is number 1, which no file of these filesystems has: one number is both
    // the node and what stat shows.
    let root = ino(venue.dir());
    if venue.is_native() {
        assert_eq!(root, ino(&venue.backing()));
    } else {
        assert_eq!(root, 1);
    }
}

fn inode_numbers_outlive_forgetting(venue: &mut Venue) {
    let dir = many(venue, "d", 500);
    let before: Vec<u64> = (0..500)
        .map(|number| ino(&dir.join(format!("entry-{number:06}"))))
        .collect();
    let open = File::open(dir.join("entry-000007")).unwrap();
    for _ in 0..3 {
        drop_caches();
        let after: Vec<u64> = (0..500)
            .map(|number| ino(&dir.join(format!("entry-{number:06}"))))
            .collect();
        assert_eq!(before, after);
        assert_eq!(open.metadata().unwrap().ino(), before[7]);
    }
}

fn link_counts_of_directories_are_current(venue: &mut Venue) {
    let below = venue.backing();
    let same = |name: &str| {
        let shown = fs::metadata(venue.at(name)).unwrap();
        let real = fs::metadata(below.join(name)).unwrap();
        assert_eq!(
            (
                shown.nlink(),
                shown.size(),
                shown.mtime(),
                shown.mtime_nsec()
            ),
            (real.nlink(), real.size(), real.mtime(), real.mtime_nsec()),
            "{name}"
        );
        assert_eq!(
            (shown.ctime(), shown.ctime_nsec()),
            (real.ctime(), real.ctime_nsec()),
            "{name}"
        );
    };
    fs::create_dir_all(venue.at("a")).unwrap();
    fs::create_dir_all(venue.at("b")).unwrap();
    for step in 0..4 {
        same("a");
        same("b");
        match step {
            0 => fs::create_dir(venue.at("a/sub")).unwrap(),
            1 => fs::rename(venue.at("a/sub"), venue.at("b/sub")).unwrap(),
            2 => fs::remove_dir(venue.at("b/sub")).unwrap(),
            _ => {}
        }
    }
    write(&venue.at("a/f"), "x");
    same("a");
    fs::rename(venue.at("a/f"), venue.at("b/f")).unwrap();
    same("a");
    same("b");
    symlink("x", venue.at("a/s")).unwrap();
    same("a");
    fs::hard_link(venue.at("b/f"), venue.at("a/h")).unwrap();
    same("a");
    same("b/f");
    fs::remove_file(venue.at("a/h")).unwrap();
    same("b/f");
    fs::rename(venue.at("b/f"), venue.at("b/g")).unwrap();
    same("b/g");
    same("b");
}

fn a_removed_working_directory(venue: &mut Venue) {
    let dir = venue.at("gone");
    fs::create_dir(&dir).unwrap();
    let open = File::open(&dir).unwrap();
    let mut stream = Directory::open(&dir).unwrap();
    fs::remove_dir(&dir).unwrap();
    assert_eq!(
        errno(calls::open_at(&open, "new", libc::O_CREAT | libc::O_WRONLY)),
        libc::ENOENT
    );
    assert_eq!(errno(calls::mkdir_at(&open, "new")), libc::ENOENT);
    assert_eq!(
        errno(calls::open_at(&open, "x", libc::O_RDONLY)),
        libc::ENOENT
    );
    assert_eq!(open.metadata().unwrap().nlink(), fs_nlink_of_removed(venue));
    assert!(stream.rest().unwrap().is_empty());
    fs::create_dir(&dir).unwrap();
    write(&dir.join("other"), "x");
    assert_eq!(
        errno(calls::open_at(&open, "other", libc::O_RDONLY)),
        libc::ENOENT
    );
}

/// The link count that the filesystem below gives a removed directory that is still open.
fn fs_nlink_of_removed(venue: &Venue) -> u64 {
    let dir = venue.native().join("removed");
    fs::create_dir(&dir).unwrap();
    let open = File::open(&dir).unwrap();
    fs::remove_dir(&dir).unwrap();
    open.metadata().unwrap().nlink()
}
