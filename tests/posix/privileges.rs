//! Set-id bits and file capabilities: taken away when those write who may not keep them, shown at
//! once, and in force.

use crate::common::calls::{self, User, chmod, chown, errno};
use crate::common::venue::Venue;
use crate::common::{raw, run};
use crate::everywhere;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

everywhere!(
    a_users_write_clears_set_id_bits,
    a_users_write_through_a_descriptor_of_before_clears_set_id_bits,
    a_users_truncate_clears_set_id_bits,
    a_users_fallocate_clears_set_id_bits,
    chown_clears_set_id_bits,
    writing_clears_file_capabilities,
    only_members_keep_a_setgid_bit,
    a_setuid_program_runs_as_its_owner,
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

/// A file of root with set-id bits that everyone may write and execute.
fn set_id_file(venue: &Venue, name: &str) -> PathBuf {
    let file = venue.at(name);
    fs::write(&file, vec![7; 10_000]).unwrap();
    chmod(&file, 0o6777).unwrap();
    assert_eq!(mode(venue, name), 0o6777);
    file
}

fn a_users_write_clears_set_id_bits(venue: &mut Venue) {
    let file = set_id_file(venue, "f");
    User::new(ALICE).run(|| {
        OpenOptions::new()
            .write(true)
            .open(&file)
            .unwrap()
            .write_all(b"x")
            .unwrap();
    });
    assert_eq!(mode(venue, "f"), 0o777);
    // Reading or opening alone takes nothing away.
    let file = set_id_file(venue, "g");
    User::new(ALICE).run(|| {
        fs::read(&file).unwrap();
        OpenOptions::new().write(true).open(&file).unwrap();
    });
    assert_eq!(mode(venue, "g"), 0o6777);
    // Without the group's execute bit, set-group-id means something else to a non-member's write
    // on every kernel alike: as on the filesystem below.
    let file = set_id_file(venue, "h");
    chmod(&file, 0o4766).unwrap();
    User::new(ALICE).run(|| {
        OpenOptions::new()
            .append(true)
            .open(&file)
            .unwrap()
            .write_all(b"x")
            .unwrap();
    });
    assert_eq!(mode(venue, "h"), 0o766);
}

fn a_users_write_through_a_descriptor_of_before_clears_set_id_bits(venue: &mut Venue) {
    let file = venue.at("f");
    fs::write(&file, vec![7; 10_000]).unwrap();
    chmod(&file, 0o777).unwrap();
    let (ready, go) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            User::new(ALICE).run(|| {
                let open = OpenOptions::new().write(true).open(&file).unwrap();
                ready.wait();
                go.wait();
                open.write_all_at(b"first", 0).unwrap();
                ready.wait();
                go.wait();
                open.write_all_at(b"second", 0).unwrap();
            });
        });
        ready.wait();
        chmod(&file, 0o6777).unwrap();
        assert_eq!(mode(venue, "f"), 0o6777);
        go.wait();
        ready.wait();
        assert_eq!(mode(venue, "f"), 0o777);
        chmod(&file, 0o4777).unwrap();
        assert_eq!(mode(venue, "f"), 0o4777);
        go.wait();
    });
    assert_eq!(mode(venue, "f"), 0o777);
}

fn a_users_truncate_clears_set_id_bits(venue: &mut Venue) {
    let file = set_id_file(venue, "path");
    User::new(ALICE).run(|| nix::unistd::truncate(&file, 5000).unwrap());
    assert_eq!(mode(venue, "path"), 0o777);
    let file = set_id_file(venue, "descriptor");
    User::new(ALICE).run(|| {
        let open = OpenOptions::new().write(true).open(&file).unwrap();
        open.set_len(5000).unwrap();
    });
    assert_eq!(mode(venue, "descriptor"), 0o777);
    let file = set_id_file(venue, "open");
    User::new(ALICE).run(|| {
        OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&file)
            .unwrap();
    });
    assert_eq!(mode(venue, "open"), 0o777);
}

fn a_users_fallocate_clears_set_id_bits(venue: &mut Venue) {
    let file = set_id_file(venue, "f");
    User::new(ALICE).run(|| {
        let open = OpenOptions::new().write(true).open(&file).unwrap();
        calls::fallocate(&open, 0, 0, 20_000).unwrap();
    });
    assert_eq!(mode(venue, "f"), 0o777);
}

fn chown_clears_set_id_bits(venue: &mut Venue) {
    let file = set_id_file(venue, "by-root");
    chown(&file, Some(ALICE), None).unwrap();
    assert_eq!(mode(venue, "by-root"), 0o777);
    let file = set_id_file(venue, "by-owner");
    chown(&file, Some(ALICE), Some(ALICE)).unwrap();
    chmod(&file, 0o6777).unwrap();
    User::new(ALICE)
        .groups(&[TEAM])
        .run(|| chown(&file, None, Some(TEAM)).unwrap());
    assert_eq!(mode(venue, "by-owner"), 0o777);
    assert_owner(&file, ALICE, TEAM);
    // A directory keeps its bits.
    let dir = open_to_all(venue, "dir");
    chmod(&dir, 0o2777).unwrap();
    chown(&dir, Some(ALICE), Some(ALICE)).unwrap();
    assert_eq!(mode(venue, "dir"), 0o2777);
}

const CAPABILITY: &str = "security.capability";

/// `cap_net_raw+ep` as the kernel stores it.
fn give_capability(path: &Path) {
    let mut value = vec![1, 0, 0, 2];
    value.extend_from_slice(&(1u32 << 13).to_le_bytes());
    value.extend_from_slice(&[0; 12]);
    raw::setxattr(path, CAPABILITY, &value).unwrap();
    assert_eq!(raw::getxattr(path, CAPABILITY).unwrap(), value);
}

#[track_caller]
fn assert_no_capability(venue: &Venue, name: &str) {
    for path in [venue.at(name), venue.backing().join(name)] {
        assert_eq!(errno(raw::getxattr(&path, CAPABILITY)), libc::ENODATA);
    }
}

fn writing_clears_file_capabilities(venue: &mut Venue) {
    let new = |name: &str| {
        let file = venue.at(name);
        fs::write(&file, vec![7; 10_000]).unwrap();
        chmod(&file, 0o777).unwrap();
        give_capability(&file);
        file
    };
    let file = new("written");
    User::new(ALICE).run(|| {
        let open = OpenOptions::new().write(true).open(&file).unwrap();
        open.write_all_at(b"x", 0).unwrap();
    });
    assert_no_capability(venue, "written");
    let file = new("by-root");
    let open = OpenOptions::new().write(true).open(&file).unwrap();
    open.write_all_at(b"x", 0).unwrap();
    assert_no_capability(venue, "by-root");
    let file = new("truncated");
    User::new(ALICE).run(|| nix::unistd::truncate(&file, 5000).unwrap());
    assert_no_capability(venue, "truncated");
    let file = new("given-away");
    chown(&file, Some(ALICE), None).unwrap();
    assert_no_capability(venue, "given-away");
    let file = new("read");
    User::new(ALICE).run(|| fs::read(&file).unwrap());
    assert!(raw::getxattr(&file, CAPABILITY).is_ok());
}

fn only_members_keep_a_setgid_bit(venue: &mut Venue) {
    let dir = open_to_all(venue, "d");
    chown(&dir, Some(0), Some(TEAM)).unwrap();
    chmod(&dir, 0o2777).unwrap();
    // Not a member: the bit is stripped from an executable of the directory's group.
    User::new(ALICE).umask(0).run(|| {
        calls::open_mode(&dir.join("foreign"), libc::O_CREAT | libc::O_WRONLY, 0o2775).unwrap();
        calls::mknod(&dir.join("node"), libc::S_IFREG | 0o2775, 0).unwrap();
    });
    assert_eq!(mode(venue, "d/foreign"), 0o775);
    assert_eq!(mode(venue, "d/node"), 0o775);
    assert_owner(&dir.join("foreign"), ALICE, TEAM);
    User::new(ALICE).groups(&[TEAM]).umask(0).run(|| {
        calls::open_mode(&dir.join("own"), libc::O_CREAT | libc::O_WRONLY, 0o2775).unwrap();
    });
    assert_eq!(mode(venue, "d/own"), 0o2775);
    // chmod by an owner who is not in the file's group.
    User::new(ALICE).run(|| chmod(&dir.join("foreign"), 0o2775).unwrap());
    assert_eq!(mode(venue, "d/foreign"), 0o775);
    User::new(ALICE)
        .groups(&[TEAM])
        .run(|| chmod(&dir.join("foreign"), 0o2775).unwrap());
    assert_eq!(mode(venue, "d/foreign"), 0o2775);
}

fn a_setuid_program_runs_as_its_owner(venue: &mut Venue) {
    let program = venue.at("id");
    fs::copy("/usr/bin/id", &program).unwrap();
    chown(&program, Some(BOB), Some(BOB)).unwrap();
    chmod(&program, 0o4755).unwrap();
    let said = User::new(ALICE).run(|| run(&program, ["-u"]));
    assert_eq!(said.trim(), BOB.to_string());
    chmod(&program, 0o744).unwrap();
    let refused = User::new(ALICE).run(|| std::process::Command::new(&program).output());
    assert_eq!(errno(refused), libc::EACCES);
}
