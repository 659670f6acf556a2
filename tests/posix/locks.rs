//! Locks: right between processes on one mount, dropped on close, waiting and waking as on any
//! filesystem; and on the mount alone.

use crate::common::calls::{
    self, Child, Owner, blocking_lock, code, errno, flock, in_child, record_lock,
};
use crate::common::venue::Venue;
use crate::{everywhere, on_mounts};
use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::time::Duration;

everywhere!(
    flock_excludes_other_opens_and_other_processes,
    flock_goes_with_the_last_descriptor,
    flock_wakes_who_waits,
    flock_is_upgraded_and_downgraded,
    record_locks_exclude_other_processes_by_range,
    record_locks_go_with_the_first_close,
    record_locks_wake_who_waits,
    record_locks_go_with_their_process,
    record_locks_find_deadlocks,
    description_locks_exclude_within_one_process,
    the_two_kinds_of_lock_do_not_meet,
    locks_stay_with_the_file_through_renames,
    the_flock_program_serialises,
);
on_mounts!(locks_are_not_seen_behind_the_mount);

const AGAIN: u8 = libc::EAGAIN as u8;

/// A short wait; never the answer.
fn pause() -> bool {
    std::thread::sleep(Duration::from_millis(20));
    false
}

fn open(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap()
}

fn flock_excludes_other_opens_and_other_processes(venue: &mut Venue) {
    let path = venue.at("f");
    let (a, b) = (open(&path), open(&path));
    flock(&a, libc::LOCK_EX).unwrap();
    assert_eq!(
        errno(flock(&b, libc::LOCK_EX | libc::LOCK_NB)),
        libc::EWOULDBLOCK
    );
    assert_eq!(
        errno(flock(&b, libc::LOCK_SH | libc::LOCK_NB)),
        libc::EWOULDBLOCK
    );
    let other = || in_child(|| code(flock(&open(&path), libc::LOCK_SH | libc::LOCK_NB)));
    assert_eq!(other(), AGAIN);
    flock(&a, libc::LOCK_UN).unwrap();
    assert_eq!(other(), 0);
    flock(&a, libc::LOCK_SH).unwrap();
    flock(&b, libc::LOCK_SH | libc::LOCK_NB).unwrap();
    assert_eq!(other(), 0);
    // A lock on a directory and through a descriptor that only reads.
    fs::create_dir(venue.at("d")).unwrap();
    let (c, d) = (
        File::open(venue.at("d")).unwrap(),
        File::open(venue.at("d")).unwrap(),
    );
    flock(&c, libc::LOCK_EX).unwrap();
    assert_eq!(
        errno(flock(&d, libc::LOCK_EX | libc::LOCK_NB)),
        libc::EWOULDBLOCK
    );
}

fn flock_goes_with_the_last_descriptor(venue: &mut Venue) {
    let path = venue.at("f");
    let a = open(&path);
    let copy = a.try_clone().unwrap();
    flock(&a, libc::LOCK_EX).unwrap();
    let free = || in_child(|| code(flock(&open(&path), libc::LOCK_EX | libc::LOCK_NB))) == 0;
    drop(a);
    assert!(!free(), "the copy still holds it");
    drop(copy);
    // A program that another test is just starting may have a copy for a moment.
    assert!((0..100).any(|_| free() || pause()));
}

fn flock_wakes_who_waits(venue: &mut Venue) {
    let path = venue.at("f");
    let a = open(&path);
    flock(&a, libc::LOCK_EX).unwrap();
    let child = Child::start(&[], || {
        let own = open(&path);
        code(flock(&own, libc::LOCK_EX))
    });
    std::thread::sleep(Duration::from_millis(150));
    assert!(!child.ended());
    flock(&a, libc::LOCK_UN).unwrap();
    assert_eq!(child.wait(), 0);
}

fn flock_is_upgraded_and_downgraded(venue: &mut Venue) {
    let path = venue.at("f");
    let (a, b) = (open(&path), open(&path));
    flock(&a, libc::LOCK_SH).unwrap();
    flock(&a, libc::LOCK_EX | libc::LOCK_NB).unwrap();
    assert_eq!(
        errno(flock(&b, libc::LOCK_SH | libc::LOCK_NB)),
        libc::EWOULDBLOCK
    );
    flock(&a, libc::LOCK_SH | libc::LOCK_NB).unwrap();
    flock(&b, libc::LOCK_SH | libc::LOCK_NB).unwrap();
    assert_eq!(
        errno(flock(&a, libc::LOCK_EX | libc::LOCK_NB)),
        libc::EWOULDBLOCK
    );
}

fn record_locks_exclude_other_processes_by_range(venue: &mut Venue) {
    let path = venue.at("f");
    let a = open(&path);
    record_lock(&a, Owner::Process, libc::F_WRLCK, 100..200, false).unwrap();
    record_lock(&a, Owner::Process, libc::F_RDLCK, 300..400, false).unwrap();
    let other = |kind, range: std::ops::Range<i64>| {
        in_child(|| {
            code(record_lock(
                &open(&path),
                Owner::Process,
                kind,
                range,
                false,
            ))
        })
    };
    assert_eq!(other(libc::F_WRLCK, 150..160), AGAIN);
    assert_eq!(other(libc::F_RDLCK, 199..300), AGAIN);
    assert_eq!(other(libc::F_WRLCK, 200..300), 0);
    assert_eq!(other(libc::F_RDLCK, 300..400), 0);
    assert_eq!(other(libc::F_WRLCK, 399..500), AGAIN);
    let me = std::process::id() as u8;
    let holder =
        in_child(
            || match blocking_lock(&open(&path), Owner::Process, libc::F_WRLCK, 0..1000) {
                Ok(Some((libc::F_WRLCK, 100, pid))) => pid as u8,
                _ => 0,
            },
        );
    assert_eq!(holder, me, "F_GETLK names the process that holds it");
    record_lock(&a, Owner::Process, libc::F_UNLCK, 120..130, false).unwrap();
    assert_eq!(other(libc::F_WRLCK, 120..130), 0);
    assert_eq!(other(libc::F_WRLCK, 119..130), AGAIN);
    // A lock for writing needs a descriptor for writing.
    let reader = File::open(&path).unwrap();
    assert_eq!(
        errno(record_lock(
            &reader,
            Owner::Process,
            libc::F_WRLCK,
            0..1,
            false
        )),
        libc::EBADF
    );
}

fn record_locks_go_with_the_first_close(venue: &mut Venue) {
    let path = venue.at("f");
    let a = open(&path);
    record_lock(&a, Owner::Process, libc::F_WRLCK, 0..10, false).unwrap();
    let free = || {
        in_child(|| {
            code(record_lock(
                &open(&path),
                Owner::Process,
                libc::F_WRLCK,
                0..10,
                false,
            ))
        }) == 0
    };
    assert!(!free());
    // Any descriptor of the file will do, as POSIX has it.
    drop(File::open(&path).unwrap());
    assert!(free());
}

fn record_locks_wake_who_waits(venue: &mut Venue) {
    let path = venue.at("f");
    let a = open(&path);
    record_lock(&a, Owner::Process, libc::F_WRLCK, 0..10, false).unwrap();
    let child = Child::start(&[], || {
        code(record_lock(
            &open(&path),
            Owner::Process,
            libc::F_WRLCK,
            5..20,
            true,
        ))
    });
    std::thread::sleep(Duration::from_millis(150));
    assert!(!child.ended());
    record_lock(&a, Owner::Process, libc::F_UNLCK, 0..10, false).unwrap();
    assert_eq!(child.wait(), 0);
}

fn record_locks_go_with_their_process(venue: &mut Venue) {
    let path = venue.at("f");
    let (ready, signal) = std::io::pipe().unwrap();
    let child = Child::start(&[&signal], || {
        let own = open(&path);
        let got = record_lock(&own, Owner::Process, libc::F_WRLCK, 0..10, false);
        let _ = std::io::Write::write_all(&mut (&signal), &[code(got)]);
        std::thread::sleep(Duration::from_secs(60));
        0
    });
    let mut byte = [9];
    std::io::Read::read_exact(&mut (&ready), &mut byte).unwrap();
    assert_eq!(byte, [0]);
    let a = open(&path);
    let mine = || record_lock(&a, Owner::Process, libc::F_WRLCK, 0..10, false);
    assert_eq!(errno(mine()), libc::EAGAIN);
    let found = blocking_lock(&a, Owner::Process, libc::F_WRLCK, 0..10).unwrap();
    assert_eq!(found, Some((libc::F_WRLCK, 0, child.pid())));
    child.kill();
    mine().unwrap();
}

fn record_locks_find_deadlocks(venue: &mut Venue) {
    let path = venue.at("f");
    let a = open(&path);
    record_lock(&a, Owner::Process, libc::F_WRLCK, 0..10, false).unwrap();
    let (ready, signal) = std::io::pipe().unwrap();
    let child = Child::start(&[&signal], || {
        let own = open(&path);
        let got = record_lock(&own, Owner::Process, libc::F_WRLCK, 10..20, false);
        let _ = std::io::Write::write_all(&mut (&signal), &[code(got)]);
        code(record_lock(
            &own,
            Owner::Process,
            libc::F_WRLCK,
            0..10,
            true,
        ))
    });
    let mut byte = [9];
    std::io::Read::read_exact(&mut (&ready), &mut byte).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(
        errno(record_lock(&a, Owner::Process, libc::F_WRLCK, 10..20, true)),
        libc::EDEADLK
    );
    record_lock(&a, Owner::Process, libc::F_UNLCK, 0..10, false).unwrap();
    assert_eq!(child.wait(), 0);
}

fn description_locks_exclude_within_one_process(venue: &mut Venue) {
    let path = venue.at("f");
    let (a, b) = (open(&path), open(&path));
    record_lock(&a, Owner::Description, libc::F_WRLCK, 0..100, false).unwrap();
    assert_eq!(
        errno(record_lock(
            &b,
            Owner::Description,
            libc::F_RDLCK,
            50..60,
            false
        )),
        libc::EAGAIN
    );
    record_lock(&b, Owner::Description, libc::F_WRLCK, 100..200, false).unwrap();
    let found = blocking_lock(&b, Owner::Description, libc::F_WRLCK, 0..50).unwrap();
    assert_eq!(found, Some((libc::F_WRLCK, 0, -1)));
    // It blocks a lock of a process too, and another close does not drop it.
    assert_eq!(
        errno(record_lock(&b, Owner::Process, libc::F_WRLCK, 0..10, false)),
        libc::EAGAIN
    );
    drop(File::open(&path).unwrap());
    assert_eq!(
        errno(record_lock(
            &b,
            Owner::Description,
            libc::F_RDLCK,
            50..60,
            false
        )),
        libc::EAGAIN
    );
    drop(a);
    let mine = || record_lock(&b, Owner::Description, libc::F_RDLCK, 50..60, false).is_ok();
    assert!((0..100).any(|_| mine() || pause()));
}

fn the_two_kinds_of_lock_do_not_meet(venue: &mut Venue) {
    let path = venue.at("f");
    let (a, b) = (open(&path), open(&path));
    flock(&a, libc::LOCK_EX).unwrap();
    record_lock(&b, Owner::Description, libc::F_WRLCK, 0..10, false).unwrap();
    let child = in_child(|| {
        let own = open(&path);
        match (
            flock(&own, libc::LOCK_EX | libc::LOCK_NB),
            record_lock(&own, Owner::Process, libc::F_WRLCK, 0..10, false),
        ) {
            (Err(_), Err(_)) => 0,
            _ => 1,
        }
    });
    assert_eq!(child, 0);
}

fn locks_stay_with_the_file_through_renames(venue: &mut Venue) {
    let path = venue.at("f");
    let a = open(&path);
    flock(&a, libc::LOCK_EX).unwrap();
    record_lock(&a, Owner::Description, libc::F_WRLCK, 0..10, false).unwrap();
    fs::rename(&path, venue.at("g")).unwrap();
    fs::hard_link(venue.at("g"), venue.at("h")).unwrap();
    calls::drop_caches();
    for name in ["g", "h"] {
        let other = open(&venue.at(name));
        assert_eq!(
            errno(flock(&other, libc::LOCK_EX | libc::LOCK_NB)),
            libc::EWOULDBLOCK
        );
        assert_eq!(
            errno(record_lock(
                &other,
                Owner::Description,
                libc::F_WRLCK,
                0..10,
                false
            )),
            libc::EAGAIN
        );
    }
    // A new file of the old name is free.
    flock(&open(&path), libc::LOCK_EX | libc::LOCK_NB).unwrap();
}

fn the_flock_program_serialises(venue: &mut Venue) {
    let counter = venue.at("counter");
    fs::write(&counter, "0").unwrap();
    let script = format!(
        "cd {} && for i in $(seq 20); do \
         flock lock sh -c 'n=$(cat counter); echo $((n + 1)) > counter'; done",
        venue.dir().display()
    );
    let children: Vec<_> = (0..4)
        .map(|_| {
            std::process::Command::new("sh")
                .args(["-c", &script])
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(fs::read_to_string(&counter).unwrap().trim(), "80");
}

fn locks_are_not_seen_behind_the_mount(venue: &mut Venue) {
    let a = open(&venue.at("f"));
    flock(&a, libc::LOCK_EX).unwrap();
    record_lock(&a, Owner::Description, libc::F_WRLCK, 0..10, false).unwrap();
    let below = open(&venue.backing().join("f"));
    flock(&below, libc::LOCK_EX | libc::LOCK_NB).unwrap();
    record_lock(&below, Owner::Description, libc::F_WRLCK, 0..10, false).unwrap();
}
