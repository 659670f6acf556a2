//! Who owns what is made and who may do what: as on the filesystem below, for every user.

use crate::common::calls::{self, Time, User, chmod, chown, errno, may, with_umask};
use crate::common::venue::Venue;
use crate::common::{raw, run};
use crate::everywhere;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

everywhere!(
    what_a_user_makes_belongs_to_that_user,
    a_setgid_directory_hands_on_its_group,
    the_umask_applies_where_there_is_no_default_acl,
    a_default_acl_replaces_the_umask_and_is_inherited,
    an_access_acl_is_enforced,
    chmod_moves_the_mask_of_an_acl,
    a_sticky_directory_protects_the_files_of_others,
    supplementary_groups_count,
    identities_do_not_leak_between_requests,
    a_file_created_read_only_is_written_by_its_creator,
    times_are_set_by_those_who_may,
    others_may_not_change_modes_owners_or_attributes,
    search_permission_is_needed_on_the_way,
    a_hard_link_is_to_the_same_owner,
);

const ALICE: u32 = 12001;

const BOB: u32 = 12002;

const TEAM: u32 = 12100;

/// The mode with the set-id bits, as the mount and the filesystem below both have it at once.
#[track_caller]
fn mode(venue: &Venue, name: &str) -> u32 {
    let shown = fs::symlink_metadata(venue.at(name)).unwrap().mode() & 0o7777;
    let below = fs::symlink_metadata(venue.backing().join(name))
        .unwrap()
        .mode()
        & 0o7777;
    assert_eq!(
        format!("{shown:o}"),
        format!("{below:o}"),
        "the mount shows another mode of {name} than the filesystem below"
    );
    shown
}

#[track_caller]
fn assert_owner(path: &Path, uid: u32, gid: u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (uid, gid), "owner of {path:?}");
}

/// A directory that everyone may write.
fn open_to_all(venue: &Venue, name: &str) -> PathBuf {
    let path = venue.at(name);
    fs::create_dir(&path).unwrap();
    chmod(&path, 0o777).unwrap();
    path
}

fn set_acl(what: &str, path: &Path) {
    run("setfacl", ["-m", what, path.to_str().unwrap()]);
}

fn acl(path: &Path) -> Vec<String> {
    let text = run("getfacl", ["-cnp", path.to_str().unwrap()]);
    text.lines()
        .map(|line| {
            line.split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .filter(|line| !line.is_empty())
        .collect()
}

fn what_a_user_makes_belongs_to_that_user(venue: &mut Venue) {
    let dir = open_to_all(venue, "d");
    User::new(ALICE).run(|| {
        fs::write(dir.join("file"), "x").unwrap();
        fs::create_dir(dir.join("dir")).unwrap();
        symlink("target", dir.join("symlink")).unwrap();
        calls::mknod(&dir.join("fifo"), libc::S_IFIFO | 0o600, 0).unwrap();
        calls::mknod(&dir.join("socket"), libc::S_IFSOCK | 0o600, 0).unwrap();
        calls::mknod(&dir.join("node"), libc::S_IFREG | 0o600, 0).unwrap();
        assert_eq!(
            errno(calls::mknod(
                &dir.join("device"),
                libc::S_IFCHR | 0o600,
                libc::makedev(1, 3)
            )),
            libc::EPERM
        );
    });
    for name in ["file", "dir", "symlink", "fifo", "socket", "node"] {
        assert_owner(&dir.join(name), ALICE, ALICE);
        assert_owner(&venue.backing().join("d").join(name), ALICE, ALICE);
    }
    calls::mknod(
        &dir.join("device"),
        libc::S_IFCHR | 0o600,
        libc::makedev(1, 3),
    )
    .unwrap();
    assert_owner(&dir.join("device"), 0, 0);
    let device = fs::symlink_metadata(dir.join("device")).unwrap();
    assert!(device.file_type().is_char_device());
    assert_eq!(device.rdev(), libc::makedev(1, 3));
}

fn a_setgid_directory_hands_on_its_group(venue: &mut Venue) {
    let dir = open_to_all(venue, "d");
    chown(&dir, Some(0), Some(TEAM)).unwrap();
    chmod(&dir, 0o2777).unwrap();
    User::new(ALICE).groups(&[TEAM]).run(|| {
        fs::write(dir.join("file"), "x").unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
        fs::write(dir.join("sub/inner"), "x").unwrap();
    });
    assert_owner(&dir.join("file"), ALICE, TEAM);
    assert_owner(&dir.join("sub"), ALICE, TEAM);
    assert_owner(&dir.join("sub/inner"), ALICE, TEAM);
    assert_eq!(mode(venue, "d/file"), 0o644);
    assert_eq!(mode(venue, "d/sub"), 0o2755);
}

fn the_umask_applies_where_there_is_no_default_acl(venue: &mut Venue) {
    let dir = open_to_all(venue, "d");
    for (umask, file, directory) in [
        (0o000, 0o666, 0o777),
        (0o022, 0o644, 0o755),
        (0o077, 0o600, 0o700),
        (0o137, 0o640, 0o640),
    ] {
        let (f, d, n) = (
            format!("f{umask:o}"),
            format!("d{umask:o}"),
            format!("n{umask:o}"),
        );
        User::new(ALICE).umask(umask).run(|| {
            calls::open_mode(&dir.join(&f), libc::O_CREAT | libc::O_WRONLY, 0o666).unwrap();
            fs::create_dir(dir.join(&d)).unwrap();
            calls::mknod(&dir.join(&n), libc::S_IFIFO | 0o666, 0).unwrap();
        });
        assert_eq!(mode(venue, &format!("d/{f}")), file);
        assert_eq!(mode(venue, &format!("d/{d}")), directory);
        assert_eq!(mode(venue, &format!("d/{n}")), file);
    }
}

fn a_default_acl_replaces_the_umask_and_is_inherited(venue: &mut Venue) {
    let dir = open_to_all(venue, "d");
    let user = format!("d:u::rwx,d:u:{BOB}:rwx,d:g::r-x,d:o::---");
    set_acl(&user, &dir);
    User::new(ALICE).umask(0o077).run(|| {
        calls::open_mode(&dir.join("file"), libc::O_CREAT | libc::O_WRONLY, 0o666)
            .unwrap()
            .write_all(b"shared")
            .unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
        calls::mknod(&dir.join("fifo"), libc::S_IFIFO | 0o666, 0).unwrap();
    });
    // The group bits of the mode are the mask: the umask has taken nothing from them.
    assert_eq!(mode(venue, "d/file"), 0o660);
    assert_eq!(mode(venue, "d/fifo"), 0o660);
    assert_eq!(mode(venue, "d/sub"), 0o770);
    let named = format!("user:{BOB}:rwx");
    assert_eq!(
        acl(&dir.join("file")),
        ["user::rw-", &named, "group::r-x", "mask::rw-", "other::---"]
    );
    assert_eq!(acl(&dir.join("file")), acl(&venue.backing().join("d/file")));
    let below = acl(&dir.join("sub"));
    assert!(
        below.contains(&format!("default:user:{BOB}:rwx")),
        "{below:?}"
    );
    assert_eq!(below, acl(&venue.backing().join("d/sub")));
    User::new(BOB).run(|| {
        assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "shared");
        fs::write(dir.join("sub/by-bob"), "x").unwrap();
    });
    assert_owner(&dir.join("sub/by-bob"), BOB, BOB);
}

fn an_access_acl_is_enforced(venue: &mut Venue) {
    let file = venue.at("f");
    fs::write(&file, "secret").unwrap();
    chmod(&file, 0o600).unwrap();
    let alice = User::new(ALICE);
    let bob = User::new(BOB);
    assert_eq!(alice.run(|| errno(File::open(&file))), libc::EACCES);
    set_acl(&format!("u:{ALICE}:r"), &file);
    assert_eq!(alice.run(|| fs::read_to_string(&file)).unwrap(), "secret");
    assert_eq!(
        alice.run(|| errno(OpenOptions::new().append(true).open(&file))),
        libc::EACCES
    );
    assert_eq!(bob.run(|| errno(File::open(&file))), libc::EACCES);
    assert!(alice.run(|| may(&file, libc::R_OK)));
    assert!(!alice.run(|| may(&file, libc::W_OK)));
    assert!(!bob.run(|| may(&file, libc::R_OK)));
    set_acl(&format!("g:{TEAM}:rw"), &file);
    let member = User::new(BOB).groups(&[TEAM]);
    member.run(|| fs::write(&file, "by the team").unwrap());
    assert_eq!(bob.run(|| errno(File::open(&file))), libc::EACCES);
    run("setfacl", ["-b", file.to_str().unwrap()]);
    assert_eq!(alice.run(|| errno(File::open(&file))), libc::EACCES);
    assert_eq!(member.run(|| errno(File::open(&file))), libc::EACCES);
    assert_eq!(
        errno(raw::getxattr(&file, "system.posix_acl_access")),
        libc::ENODATA
    );
    // A directory, too: search permission for one user.
    let dir = venue.at("closed");
    fs::create_dir(&dir).unwrap();
    chmod(&dir, 0o700).unwrap();
    fs::write(dir.join("inside"), "y").unwrap();
    chmod(&dir.join("inside"), 0o644).unwrap();
    assert_eq!(
        alice.run(|| errno(File::open(dir.join("inside")))),
        libc::EACCES
    );
    set_acl(&format!("u:{ALICE}:x"), &dir);
    alice.run(|| assert_eq!(fs::read_to_string(dir.join("inside")).unwrap(), "y"));
    assert_eq!(alice.run(|| errno(fs::read_dir(&dir))), libc::EACCES);
    assert_eq!(
        bob.run(|| errno(File::open(dir.join("inside")))),
        libc::EACCES
    );
}

fn chmod_moves_the_mask_of_an_acl(venue: &mut Venue) {
    let file = venue.at("f");
    fs::write(&file, "x").unwrap();
    chmod(&file, 0o640).unwrap();
    set_acl(&format!("u:{ALICE}:rw"), &file);
    assert_eq!(mode(venue, "f"), 0o660);
    User::new(ALICE).run(|| assert!(may(&file, libc::W_OK)));
    chmod(&file, 0o640).unwrap();
    assert!(acl(&file).contains(&"mask::r--".to_owned()));
    User::new(ALICE).run(|| {
        assert!(may(&file, libc::R_OK));
        assert!(!may(&file, libc::W_OK));
        assert_eq!(
            errno(OpenOptions::new().append(true).open(&file)),
            libc::EACCES
        );
    });
    // An ACL that says no more than a mode becomes the mode.
    run("setfacl", ["-b", file.to_str().unwrap()]);
    run(
        "setfacl",
        ["--set", "u::rwx,g::r-x,o::-", file.to_str().unwrap()],
    );
    assert_eq!(mode(venue, "f"), 0o750);
    assert_eq!(acl(&file), ["user::rwx", "group::r-x", "other::---"]);
}

fn a_sticky_directory_protects_the_files_of_others(venue: &mut Venue) {
    let dir = open_to_all(venue, "d");
    chmod(&dir, 0o1777).unwrap();
    User::new(ALICE).run(|| {
        fs::write(dir.join("hers"), "x").unwrap();
        fs::create_dir(dir.join("her-dir")).unwrap();
    });
    User::new(BOB).run(|| {
        fs::write(dir.join("his"), "x").unwrap();
        assert_eq!(errno(fs::remove_file(dir.join("hers"))), libc::EPERM);
        assert_eq!(errno(fs::remove_dir(dir.join("her-dir"))), libc::EPERM);
        assert_eq!(
            errno(fs::rename(dir.join("hers"), dir.join("x"))),
            libc::EPERM
        );
        assert_eq!(
            errno(fs::rename(dir.join("his"), dir.join("hers"))),
            libc::EPERM
        );
        fs::rename(dir.join("his"), dir.join("still-his")).unwrap();
    });
    User::new(ALICE).run(|| fs::remove_file(dir.join("hers")).unwrap());
    chmod(&dir, 0o777).unwrap();
    User::new(BOB).run(|| fs::remove_dir(dir.join("her-dir")).unwrap());
}

fn supplementary_groups_count(venue: &mut Venue) {
    let dir = venue.at("d");
    fs::create_dir(&dir).unwrap();
    chown(&dir, Some(0), Some(TEAM)).unwrap();
    chmod(&dir, 0o770).unwrap();
    let many: Vec<u32> = (0..100).map(|n| 13_000 + n).chain([TEAM]).collect();
    User::new(ALICE).run(|| assert_eq!(errno(fs::write(dir.join("f"), "x")), libc::EACCES));
    User::new(ALICE).groups(&many).run(|| {
        fs::write(dir.join("f"), "x").unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
        fs::rename(dir.join("f"), dir.join("sub/f")).unwrap();
        // The owner may give the file to a group of theirs, to no other.
        chown(&dir.join("sub/f"), None, Some(13_050)).unwrap();
        assert_eq!(
            errno(chown(&dir.join("sub/f"), None, Some(14_000))),
            libc::EPERM
        );
        assert_eq!(
            errno(chown(&dir.join("sub/f"), Some(BOB), None)),
            libc::EPERM
        );
        fs::remove_file(dir.join("sub/f")).unwrap();
    });
    assert_owner(&dir.join("sub"), ALICE, ALICE);
}

fn identities_do_not_leak_between_requests(venue: &mut Venue) {
    let dir = open_to_all(venue, "d");
    let private = venue.at("private");
    fs::create_dir(&private).unwrap();
    chmod(&private, 0o700).unwrap();
    fs::write(private.join("secret"), "x").unwrap();
    std::thread::scope(|scope| {
        for id in 0..6u32 {
            let (dir, private) = (&dir, &private);
            scope.spawn(move || {
                let uid = if id == 0 { 0 } else { 12_200 + id };
                let user = User::new(uid).groups(&[13_000 + id]);
                user.run(|| {
                    for round in 0..150 {
                        let file = dir.join(format!("{uid}-{round}"));
                        fs::write(&file, "x").unwrap();
                        assert_owner(&file, uid, uid);
                        let sub = dir.join(format!("{uid}-{round}.d"));
                        fs::create_dir(&sub).unwrap();
                        assert_owner(&sub, uid, uid);
                        assert_eq!(File::open(private.join("secret")).is_ok(), uid == 0);
                        if uid != 0 {
                            let neighbour = dir.join(format!("{}-{round}", 12_200 + id % 5 + 1));
                            if id != id % 5 + 1 && neighbour.exists() {
                                assert_eq!(errno(fs::write(&neighbour, "y")), libc::EACCES);
                            }
                        }
                    }
                });
            });
        }
    });
    for entry in fs::read_dir(&dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let uid: u32 = name.split('-').next().unwrap().parse().unwrap();
        assert_owner(&entry.path(), uid, uid);
    }
}

fn a_file_created_read_only_is_written_by_its_creator(venue: &mut Venue) {
    let dir = open_to_all(venue, "d");
    let file = dir.join("f");
    User::new(ALICE).run(|| {
        let mut open =
            calls::open_mode(&file, libc::O_CREAT | libc::O_EXCL | libc::O_RDWR, 0o444).unwrap();
        open.write_all(&[9; 100_000]).unwrap();
        open.sync_all().unwrap();
        open.set_len(70_000).unwrap();
        assert_eq!(
            errno(OpenOptions::new().write(true).open(&file)),
            libc::EACCES
        );
        let mut none =
            calls::open_mode(&dir.join("none"), libc::O_CREAT | libc::O_WRONLY, 0).unwrap();
        none.write_all(b"written").unwrap();
        assert_eq!(errno(File::open(dir.join("none"))), libc::EACCES);
    });
    assert_eq!(fs::read(&file).unwrap(), vec![9; 70_000]);
    assert_eq!(fs::read(dir.join("none")).unwrap(), b"written");
    assert_eq!(mode(venue, "d/f"), 0o444);
    assert_eq!(mode(venue, "d/none"), 0);
}

fn times_are_set_by_those_who_may(venue: &mut Venue) {
    let file = venue.at("f");
    fs::write(&file, "x").unwrap();
    chmod(&file, 0o666).unwrap();
    let past = Time::At(1_000_000_000, 5);
    User::new(ALICE).run(|| {
        // Whoever may write may set the present, not another time.
        calls::set_times(&file, Time::Now, Time::Now).unwrap();
        assert_eq!(errno(calls::set_times(&file, past, past)), libc::EPERM);
        assert_eq!(
            errno(calls::set_times(&file, Time::Omit, past)),
            libc::EPERM
        );
    });
    chmod(&file, 0o644).unwrap();
    User::new(ALICE).run(|| {
        assert_eq!(
            errno(calls::set_times(&file, Time::Now, Time::Now)),
            libc::EACCES
        );
        calls::set_times(&file, Time::Omit, Time::Omit).unwrap();
    });
    chown(&file, Some(ALICE), None).unwrap();
    User::new(ALICE).run(|| calls::set_times(&file, past, past).unwrap());
    assert_eq!(fs::metadata(&file).unwrap().mtime(), 1_000_000_000);
}

fn others_may_not_change_modes_owners_or_attributes(venue: &mut Venue) {
    let file = venue.at("f");
    fs::write(&file, "x").unwrap();
    chmod(&file, 0o644).unwrap();
    let below = venue.backing().join("f");
    raw::setxattr(&file, "user.comment", b"hello").unwrap();
    raw::setxattr(&file, "trusted.comment", b"roots own").unwrap();
    User::new(ALICE).run(|| {
        assert_eq!(errno(chmod(&file, 0o777)), libc::EPERM);
        assert_eq!(errno(chown(&file, Some(ALICE), None)), libc::EPERM);
        assert_eq!(raw::getxattr(&file, "user.comment").unwrap(), b"hello");
        assert_eq!(
            errno(raw::setxattr(&file, "user.comment", b"x")),
            libc::EACCES
        );
        assert_eq!(errno(raw::removexattr(&file, "user.comment")), libc::EACCES);
        assert_eq!(
            errno(raw::getxattr(&file, "trusted.comment")),
            libc::ENODATA
        );
        assert_eq!(errno(raw::setxattr(&file, "trusted.x", b"x")), libc::EPERM);
        let listed = raw::listxattr(&file).unwrap();
        // btrfs itself lists `trusted.` names to those who may not read them; the mount does not.
        let mut expected = raw::listxattr(&below).unwrap();
        if !venue.is_native() {
            expected.retain(|name| !name.starts_with("trusted."));
        }
        assert_eq!(listed, expected);
        assert_eq!(
            errno(nix::unistd::truncate(&file, 0).map_err(Into::into)),
            libc::EACCES
        );
    });
    chmod(&file, 0o600).unwrap();
    User::new(ALICE).run(|| {
        assert_eq!(errno(raw::getxattr(&file, "user.comment")), libc::EACCES);
    });
    assert!(
        raw::listxattr(&file)
            .unwrap()
            .contains(&"trusted.comment".to_owned())
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "x");
}

fn search_permission_is_needed_on_the_way(venue: &mut Venue) {
    let outer = venue.at("outer");
    let inner = outer.join("inner");
    fs::create_dir_all(&inner).unwrap();
    for dir in [&outer, &inner] {
        chmod(dir, 0o755).unwrap();
    }
    fs::write(inner.join("f"), "x").unwrap();
    chmod(&inner.join("f"), 0o644).unwrap();
    let alice = User::new(ALICE);
    alice.run(|| assert_eq!(fs::read_to_string(inner.join("f")).unwrap(), "x"));
    chmod(&outer, 0o700).unwrap();
    alice.run(|| {
        assert_eq!(errno(fs::metadata(inner.join("f"))), libc::EACCES);
        assert_eq!(errno(fs::metadata(inner.join("missing"))), libc::EACCES);
    });
    chmod(&outer, 0o744).unwrap();
    alice.run(|| {
        assert_eq!(calls::names(&outer).unwrap(), [b"inner".to_vec()]);
        assert_eq!(errno(fs::metadata(&inner)), libc::EACCES);
    });
    chmod(&outer, 0o711).unwrap();
    alice.run(|| {
        assert_eq!(errno(fs::read_dir(&outer)), libc::EACCES);
        assert_eq!(fs::read_to_string(inner.join("f")).unwrap(), "x");
        assert_eq!(errno(fs::write(inner.join("new"), "x")), libc::EACCES);
        assert_eq!(errno(fs::remove_file(inner.join("f"))), libc::EACCES);
    });
}

fn a_hard_link_is_to_the_same_owner(venue: &mut Venue) {
    let dir = open_to_all(venue, "d");
    with_umask(0, || {
        let mut file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o666)
            .open(dir.join("roots"))
            .unwrap();
        file.write_all(b"x").unwrap();
    });
    // `protected_hardlinks` may forbid a link to what one does not own; never to one's own.
    User::new(ALICE).run(|| {
        fs::write(dir.join("hers"), "x").unwrap();
        fs::hard_link(dir.join("hers"), dir.join("also-hers")).unwrap();
    });
    assert_owner(&dir.join("also-hers"), ALICE, ALICE);
    fs::hard_link(dir.join("hers"), dir.join("linked-by-root")).unwrap();
    assert_owner(&dir.join("linked-by-root"), ALICE, ALICE);
    assert_eq!(fs::metadata(dir.join("hers")).unwrap().nlink(), 3);
}
