//! Names: how files and directories are found, renamed, linked and removed.

use crate::common::calls::{self, drop_caches, errno, outcome};
use crate::common::run;
use crate::common::venue::Venue;
use crate::everywhere;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

everywhere!(
    exchange_swaps_two_names,
    rename_refuses_what_the_kernel_refuses,
    a_name_in_the_way_stops_a_noreplace_rename,
    hard_links_are_one_inode,
    names_of_every_kind_of_byte,
    names_too_long_are_refused,
    deep_trees,
    symlinks_are_shown_as_they_are,
    one_creator_wins,
    a_subtree_can_be_removed_and_made_again,
    a_tree_copied_and_moved_is_the_same_tree,
);

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn ino(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

fn exchange_swaps_two_names(venue: &mut Venue) {
    let (a, b) = (venue.at("a"), venue.at("b"));
    write(&a, "first");
    write(&b, "second");
    let (ino_a, ino_b) = (ino(&a), ino(&b));
    let open = File::open(&a).unwrap();
    calls::rename2(&a, &b, libc::RENAME_EXCHANGE).unwrap();
    assert_eq!((read(&a), read(&b)), ("second".into(), "first".into()));
    assert_eq!((ino(&a), ino(&b)), (ino_b, ino_a));
    assert_eq!(open.metadata().unwrap().ino(), ino_a);
    // A file and a directory with something in it, in different directories.
    let dir = venue.at("dir");
    fs::create_dir_all(dir.join("sub")).unwrap();
    write(&dir.join("sub/inner"), "deep");
    calls::rename2(&a, &dir.join("sub"), libc::RENAME_EXCHANGE).unwrap();
    assert_eq!(read(&venue.at("a/inner")), "deep");
    assert_eq!(read(&dir.join("sub")), "second");
    let parent = fs::metadata(venue.at("a/..")).unwrap();
    assert_eq!(parent.ino(), fs::metadata(venue.dir()).unwrap().ino());
    assert_eq!(
        errno(calls::rename2(
            &a,
            &venue.at("missing"),
            libc::RENAME_EXCHANGE
        )),
        libc::ENOENT
    );
}

fn rename_refuses_what_the_kernel_refuses(venue: &mut Venue) {
    let (dir, file) = (venue.at("dir"), venue.at("file"));
    fs::create_dir_all(dir.join("sub/subsub")).unwrap();
    write(&file, "x");
    write(&dir.join("inner"), "y");
    fs::create_dir(venue.at("empty")).unwrap();
    let rename = |from: &str, to: &str| fs::rename(venue.at(from), venue.at(to));
    assert_eq!(errno(rename("dir", "dir/sub/subsub/x")), libc::EINVAL);
    assert_eq!(errno(rename("file", "dir")), libc::EISDIR);
    assert_eq!(errno(rename("dir", "file")), libc::ENOTDIR);
    // ENOTEMPTY on btrfs, EEXIST on XFS.
    let native = venue.native();
    fs::create_dir_all(native.join("dir/sub")).unwrap();
    fs::create_dir(native.join("empty")).unwrap();
    assert_eq!(
        outcome(rename("empty", "dir")),
        outcome(fs::rename(native.join("empty"), native.join("dir")))
    );
    assert_eq!(errno(rename("missing", "other")), libc::ENOENT);
    assert_eq!(errno(rename("file", "missing/other")), libc::ENOENT);
    assert_eq!(errno(rename("file", "file/other")), libc::ENOTDIR);
    assert_eq!(errno(fs::remove_dir(&dir)), libc::ENOTEMPTY);
    assert_eq!(errno(fs::remove_dir(&file)), libc::ENOTDIR);
    assert_eq!(errno(fs::remove_file(&dir)), libc::EISDIR);
    rename("dir", "empty").unwrap();
    assert_eq!(read(&venue.at("empty/inner")), "y");
    assert!(!dir.exists());
    // Two names of one inode: rename does nothing, and both stay.
    fs::hard_link(&file, venue.at("other")).unwrap();
    rename("file", "other").unwrap();
    assert!(file.exists() && venue.at("other").exists());
}

fn a_name_in_the_way_stops_a_noreplace_rename(venue: &mut Venue) {
    let (a, b) = (venue.at("a"), venue.at("b"));
    write(&a, "a");
    write(&b, "b");
    assert_eq!(
        errno(calls::rename2(&a, &b, libc::RENAME_NOREPLACE)),
        libc::EEXIST
    );
    assert_eq!((read(&a), read(&b)), ("a".into(), "b".into()));
    fs::remove_file(&b).unwrap();
    calls::rename2(&a, &b, libc::RENAME_NOREPLACE).unwrap();
    assert_eq!(read(&b), "a");
    assert_eq!(errno(fs::metadata(&a)), libc::ENOENT);
    // A whiteout leaves a device in place of the name; where the mount cannot, it says so.
    let made = outcome(calls::rename2(&b, &a, libc::RENAME_WHITEOUT));
    if venue.is_native() {
        assert_eq!(made, Ok(()));
    } else {
        assert!(matches!(made, Ok(()) | Err(libc::EINVAL)), "{made:?}");
    }
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

fn hard_links_are_one_inode(venue: &mut Venue) {
    let dir = venue.at("d");
    fs::create_dir(&dir).unwrap();
    let (a, b) = (venue.at("a"), dir.join("b"));
    write(&a, "one");
    fs::hard_link(&a, &b).unwrap();
    assert_eq!(ino(&a), ino(&b));
    assert_eq!(fs::metadata(&a).unwrap().nlink(), 2);
    OpenOptions::new()
        .append(true)
        .open(&b)
        .unwrap()
        .write_all(b" and two")
        .unwrap();
    assert_eq!(read(&a), "one and two");
    assert_eq!(fs::metadata(&a).unwrap().len(), 11);
    calls::chmod(&b, 0o600).unwrap();
    assert_eq!(fs::metadata(&a).unwrap().mode() & 0o777, 0o600);
    drop_caches();
    assert_eq!(ino(&a), ino(&b));
    fs::hard_link(&b, venue.at("c")).unwrap();
    assert_eq!(fs::metadata(&a).unwrap().nlink(), 3);
    fs::remove_file(&b).unwrap();
    assert_eq!(fs::metadata(&a).unwrap().nlink(), 2);
    write(&venue.at("e"), "other");
    fs::rename(venue.at("e"), venue.at("c")).unwrap();
    assert_eq!(fs::metadata(&a).unwrap().nlink(), 1);
    assert_eq!(read(&a), "one and two");
    assert_eq!(errno(fs::hard_link(&dir, venue.at("dirlink"))), libc::EPERM);
    assert_eq!(errno(fs::hard_link(&a, venue.at("c"))), libc::EEXIST);
    let link = venue.at("symlink");
    symlink("a", &link).unwrap();
    fs::hard_link(&link, venue.at("symlink2")).unwrap();
    assert_eq!(ino(&link), ino(&venue.at("symlink2")));
}

fn names_of_every_kind_of_byte(venue: &mut Venue) {
    let dir = venue.at("d");
    fs::create_dir(&dir).unwrap();
    let mut expected: Vec<Vec<u8>> = vec![
        b"\xff\xfe not utf-8".to_vec(),
        b"line\nbreak".to_vec(),
        b" leading and trailing ".to_vec(),
        "h\u{e9}llo \u{1f600}".as_bytes().to_vec(),
        b"-rf".to_vec(),
        b"back\\slash".to_vec(),
        b"...".to_vec(),
        vec![b'n'; 255],
        vec![0xe9; 255],
    ];
    expected.extend(
        (1u8..=255)
            .filter(|b| *b != b'/' && *b != b'.')
            .map(|b| vec![b]),
    );
    for (number, name) in expected.iter().enumerate() {
        write(&dir.join(OsStr::from_bytes(name)), &number.to_string());
    }
    for (number, name) in expected.iter().enumerate() {
        assert_eq!(read(&dir.join(OsStr::from_bytes(name))), number.to_string());
    }
    expected.sort();
    assert_eq!(calls::names(&dir).unwrap(), expected);
    assert_eq!(calls::names(&venue.backing().join("d")).unwrap(), expected);
    for name in &expected {
        fs::remove_file(dir.join(OsStr::from_bytes(name))).unwrap();
    }
    fs::remove_dir(&dir).unwrap();
}

fn names_too_long_are_refused(venue: &mut Venue) {
    let long = venue.at("n".repeat(256));
    assert_eq!(errno(File::create(&long)), libc::ENAMETOOLONG);
    assert_eq!(errno(fs::metadata(&long)), libc::ENAMETOOLONG);
    assert_eq!(errno(fs::create_dir(&long)), libc::ENAMETOOLONG);
    write(&venue.at("short"), "x");
    assert_eq!(
        errno(fs::rename(venue.at("short"), &long)),
        libc::ENAMETOOLONG
    );
    assert_eq!(errno(symlink("x", &long)), libc::ENAMETOOLONG);
    let path = venue.at("a/".repeat(2100));
    assert_eq!(errno(fs::metadata(path)), libc::ENAMETOOLONG);
    // The longest symlink that the filesystem below takes, and one byte more.
    let native = venue.native();
    for length in [1023, 1024, 4094, 4095] {
        let target = "t".repeat(length);
        let shown = outcome(symlink(&target, venue.at(format!("s{length}"))));
        let below = outcome(symlink(&target, native.join(format!("s{length}"))));
        assert_eq!(shown, below, "symlink of {length} bytes");
    }
}

fn deep_trees(venue: &mut Venue) {
    // 400 levels of 30 bytes: three times what one path can say.
    let name = "directory-of-thirty-characters";
    let mut at = File::open(venue.dir()).unwrap();
    for _ in 0..400 {
        calls::mkdir_at(&at, name).unwrap();
        at = calls::open_at(&at, name, libc::O_RDONLY | libc::O_DIRECTORY).unwrap();
    }
    let mut file = calls::open_at(&at, "leaf", libc::O_CREAT | libc::O_RDWR).unwrap();
    file.write_all(b"deep").unwrap();
    drop(file);
    drop(at);
    drop_caches();
    let mut at = File::open(venue.dir()).unwrap();
    for _ in 0..400 {
        at = calls::open_at(&at, name, libc::O_RDONLY | libc::O_DIRECTORY).unwrap();
    }
    let mut text = String::new();
    calls::open_at(&at, "leaf", libc::O_RDONLY)
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "deep");
    // And up again, every step by `..`.
    for _ in 0..400 {
        at = calls::open_at(&at, "..", libc::O_RDONLY | libc::O_DIRECTORY).unwrap();
    }
    assert_eq!(at.metadata().unwrap().ino(), ino(venue.dir()));
    drop(at);
    run("rm", ["-r", venue.at(name).to_str().unwrap()]);
    assert!(calls::names(venue.dir()).unwrap().is_empty());
}

fn symlinks_are_shown_as_they_are(venue: &mut Venue) {
    write(&venue.at("file"), "content");
    for (name, target) in [
        ("relative", "file"),
        ("dangling", "missing"),
        ("absolute", "/etc/hostname"),
        ("up", "../tree/file"),
        ("trailing", "file/"),
        ("loop1", "loop2"),
        ("loop2", "loop1"),
        ("self", "self"),
    ] {
        symlink(target, venue.at(name)).unwrap();
        assert_eq!(fs::read_link(venue.at(name)).unwrap(), Path::new(target));
        let meta = fs::symlink_metadata(venue.at(name)).unwrap();
        assert!(meta.file_type().is_symlink());
        assert_eq!(meta.size(), target.len() as u64);
    }
    let odd = OsStr::from_bytes(b"\xff\n\x01");
    symlink(odd, venue.at("odd")).unwrap();
    assert_eq!(fs::read_link(venue.at("odd")).unwrap().as_os_str(), odd);
    assert_eq!(read(&venue.at("relative")), "content");
    assert_eq!(errno(fs::metadata(venue.at("dangling"))), libc::ENOENT);
    assert_eq!(errno(fs::metadata(venue.at("loop1"))), libc::ELOOP);
    assert_eq!(errno(File::open(venue.at("self"))), libc::ELOOP);
    assert_eq!(errno(fs::metadata(venue.at("trailing"))), libc::ENOTDIR);
    assert_eq!(
        errno(calls::open(
            &venue.at("relative"),
            libc::O_RDONLY | libc::O_NOFOLLOW
        )),
        libc::ELOOP
    );
    assert_eq!(errno(fs::read_link(venue.at("file"))), libc::EINVAL);
    // Created through a dangling link.
    write(&venue.at("dangling"), "made");
    assert_eq!(read(&venue.at("missing")), "made");
    fs::rename(venue.at("relative"), venue.at("moved")).unwrap();
    assert_eq!(read(&venue.at("moved")), "content");
}

fn one_creator_wins(venue: &mut Venue) {
    for round in 0..60 {
        let file = venue.at(format!("f{round}"));
        let dir = venue.at(format!("d{round}"));
        let link = venue.at(format!("l{round}"));
        let wins: Vec<[bool; 3]> = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        [
                            OpenOptions::new()
                                .write(true)
                                .create_new(true)
                                .open(&file)
                                .is_ok(),
                            fs::create_dir(&dir).is_ok(),
                            symlink("x", &link).is_ok(),
                        ]
                    })
                })
                .collect();
            racers
                .into_iter()
                .map(|racer| racer.join().unwrap())
                .collect()
        });
        for what in 0..3 {
            assert_eq!(wins.iter().filter(|win| win[what]).count(), 1);
        }
    }
}

fn a_subtree_can_be_removed_and_made_again(venue: &mut Venue) {
    for round in 0..20 {
        let top = venue.at("top");
        for a in 0..5 {
            for b in 0..5 {
                let dir = top.join(format!("{a}/{b}"));
                fs::create_dir_all(&dir).unwrap();
                write(&dir.join("f"), &format!("{round} {a} {b}"));
            }
        }
        for a in 0..5 {
            for b in 0..5 {
                assert_eq!(
                    read(&top.join(format!("{a}/{b}/f"))),
                    format!("{round} {a} {b}")
                );
            }
        }
        fs::remove_dir_all(&top).unwrap();
        assert_eq!(errno(fs::metadata(&top)), libc::ENOENT);
    }
}

fn a_tree_copied_and_moved_is_the_same_tree(venue: &mut Venue) {
    let zoo = zoo(venue);
    calls::set_times(
        &zoo.join("file"),
        calls::Time::At(1, 2),
        calls::Time::At(3, 400_000_005),
    )
    .unwrap();
    let (copy, moved) = (venue.at("copy"), venue.at("moved"));
    run("cp", ["-a", zoo.to_str().unwrap(), copy.to_str().unwrap()]);
    fs::rename(&copy, &moved).unwrap();
    drop_caches();
    let listing = |path: &Path| {
        run(
            "find",
            [
                path.to_str().unwrap(),
                "-mindepth",
                "1",
                "-printf",
                "%P %y %m %u %g %n %s %T@ %l\n",
            ],
        )
        .lines()
        .map(str::to_owned)
        .collect::<BTreeSet<_>>()
    };
    assert_eq!(listing(&zoo), listing(&moved));
    assert_eq!(listing(&moved), listing(&venue.backing().join("moved")));
    assert_eq!(listing(&zoo).len(), 8);
}
