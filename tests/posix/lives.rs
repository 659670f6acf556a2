//! Lives of inodes: what an open descriptor or directory still reaches when names move, go and come
//! back, and which inode a recycled number is.

use crate::common::calls::{self, Time, drop_caches, errno};
use crate::common::files::content;
use crate::common::venue::Venue;
use crate::common::{Kind, raw};
use crate::everywhere;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

everywhere!(
    rename_over_an_open_file_leaves_its_reader_the_old_content,
    an_unlinked_file_lives_as_long_as_it_is_open,
    an_unlinked_file_is_opened_again_through_proc,
    an_open_file_gets_another_name_through_proc,
    an_unnamed_file_is_made_or_refused,
    a_parent_is_renamed_while_a_child_is_open,
    a_directory_is_read_on_after_its_rename,
    a_recycled_number_is_a_new_inode,
    recycled_numbers_survive_concurrent_forgetting,
    a_program_that_runs_is_busy,
    a_replaced_program_runs_on,
    a_chmod_does_not_touch_open_descriptors,
);

fn read_all(file: &mut File) -> String {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

fn read_write(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

fn rename_over_an_open_file_leaves_its_reader_the_old_content(venue: &mut Venue) {
    let (old, new) = (venue.at("old"), venue.at("new"));
    for round in 0..30 {
        fs::write(&old, format!("old {round}")).unwrap();
        fs::write(&new, format!("new {round}")).unwrap();
        let mut reader = File::open(&old).unwrap();
        let writer = read_write(&old);
        let ino = reader.metadata().unwrap().ino();
        fs::rename(&new, &old).unwrap();
        assert_eq!(read_all(&mut reader), format!("old {round}"));
        writer.write_all_at(b"OLD", 0).unwrap();
        assert_eq!(read_all(&mut reader), format!("OLD {round}"));
        let meta = reader.metadata().unwrap();
        assert_eq!((meta.nlink(), meta.ino()), (0, ino));
        assert_eq!(fs::read_to_string(&old).unwrap(), format!("new {round}"));
        assert_ne!(fs::metadata(&old).unwrap().ino(), ino);
        assert_eq!(errno(fs::metadata(&new)), libc::ENOENT);
    }
}

fn an_unlinked_file_lives_as_long_as_it_is_open(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, "living").unwrap();
    let mut file = read_write(&path);
    fs::remove_file(&path).unwrap();
    assert_eq!(errno(File::open(&path)), libc::ENOENT);
    drop_caches();
    assert_eq!(read_all(&mut file), "living");
    file.write_all_at(&content(1, 200_000), 0).unwrap();
    file.sync_all().unwrap();
    file.set_len(150_000).unwrap();
    calls::fallocate(&file, 0, 0, 180_000).unwrap();
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o640))
        .unwrap();
    calls::set_file_times(&file, Time::At(5, 6), Time::At(7, 8)).unwrap();
    calls::fsetxattr(&file, "user.note", b"still here").unwrap();
    assert_eq!(calls::fgetxattr(&file, "user.note").unwrap(), b"still here");
    std::os::unix::fs::fchown(&file, Some(33), Some(44)).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!(meta.nlink(), 0);
    assert_eq!(meta.len(), 180_000);
    assert_eq!(meta.mode() & 0o777, 0o640);
    assert_eq!((meta.uid(), meta.gid()), (33, 44));
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (7, 8));
    assert_eq!(calls::seek(&file, 0, libc::SEEK_DATA).unwrap(), 0);
    let mut back = vec![0; 150_000];
    file.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(back, content(1, 200_000)[..150_000]);
    // A new file of the same name is another one.
    fs::write(&path, "successor").unwrap();
    file.write_all_at(b"ghost", 0).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "successor");
    // A copy from the ghost to the living.
    let copy = File::create(venue.at("copy")).unwrap();
    let copied = raw::copy_range(&file, 0, &copy, 0, 180_000).unwrap();
    assert!(copied > 0);
    assert_eq!(&fs::read(venue.at("copy")).unwrap()[..5], b"ghost");
}

fn an_unlinked_file_is_opened_again_through_proc(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, "hidden").unwrap();
    let file = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let again = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    assert_eq!(fs::read_to_string(&again).unwrap(), "hidden");
    read_write(&again).write_all_at(b"H", 0).unwrap();
    assert_eq!(fs::read_to_string(&again).unwrap(), "Hidden");
    assert_eq!(fs::metadata(&again).unwrap().len(), 6);
    nix::unistd::truncate(&again, 3).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 3);
    let held = calls::open_path(&again);
    assert!(held.is_ok());
}

fn an_open_file_gets_another_name_through_proc(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, "named").unwrap();
    let file = File::open(&path).unwrap();
    calls::link_descriptor(&file, &venue.at("second")).unwrap();
    assert_eq!(fs::read_to_string(venue.at("second")).unwrap(), "named");
    assert_eq!(file.metadata().unwrap().nlink(), 2);
    // With a name left it is linked even when the one it was opened by has gone.
    fs::remove_file(&path).unwrap();
    calls::link_descriptor(&file, &venue.at("third")).unwrap();
    assert_eq!(
        fs::metadata(venue.at("third")).unwrap().ino(),
        file.metadata().unwrap().ino()
    );
    // Without a name the kernel refuses.
    fs::remove_file(venue.at("second")).unwrap();
    fs::remove_file(venue.at("third")).unwrap();
    assert_eq!(
        errno(calls::link_descriptor(&file, &venue.at("fourth"))),
        libc::ENOENT
    );
}

fn an_unnamed_file_is_made_or_refused(venue: &mut Venue) {
    let made = calls::open(venue.dir(), libc::O_TMPFILE | libc::O_RDWR);
    match made {
        Ok(mut file) => {
            file.write_all(b"unnamed").unwrap();
            calls::link_descriptor(&file, &venue.at("named")).unwrap();
            assert_eq!(fs::read_to_string(venue.at("named")).unwrap(), "unnamed");
        }
        // Programs fall back to a temporary name on this errno, and only on this.
        Err(error) => {
            assert!(!venue.is_native(), "{error}");
            assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
            assert!(calls::names(venue.dir()).unwrap().is_empty());
        }
    }
}

fn a_parent_is_renamed_while_a_child_is_open(venue: &mut Venue) {
    fs::create_dir_all(venue.at("a/b/c")).unwrap();
    let path = venue.at("a/b/c/file");
    fs::write(&path, "kept").unwrap();
    let mut file = read_write(&path);
    let dir = File::open(venue.at("a/b/c")).unwrap();
    fs::create_dir(venue.at("other")).unwrap();
    fs::rename(venue.at("a/b"), venue.at("other/moved")).unwrap();
    fs::create_dir(venue.at("a/b")).unwrap();
    assert_eq!(read_all(&mut file), "kept");
    file.write_all_at(b"K", 0).unwrap();
    assert_eq!(
        fs::read_to_string(venue.at("other/moved/c/file")).unwrap(),
        "Kept"
    );
    // The open directory goes on at its new place.
    let mut new = calls::open_at(&dir, "new", libc::O_CREAT | libc::O_RDWR).unwrap();
    new.write_all(b"x").unwrap();
    assert!(venue.at("other/moved/c/new").exists());
    let up = calls::open_at(&dir, "../../..", libc::O_RDONLY | libc::O_DIRECTORY).unwrap();
    assert_eq!(
        up.metadata().unwrap().ino(),
        fs::metadata(venue.dir()).unwrap().ino()
    );
    assert_eq!(errno(fs::metadata(&path)), libc::ENOENT);
    let shown = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    assert_eq!(shown, venue.at("other/moved/c/file"));
}

fn a_directory_is_read_on_after_its_rename(venue: &mut Venue) {
    let dir = venue.at("d");
    fs::create_dir(&dir).unwrap();
    for number in 0..1000 {
        File::create(dir.join(number.to_string())).unwrap();
    }
    let mut stream = calls::Directory::open(&dir).unwrap();
    let mut seen = 0;
    for _ in 0..20 {
        let entry = stream.next().unwrap().unwrap();
        seen += usize::from(entry.name != "." && entry.name != "..");
    }
    fs::create_dir(venue.at("e")).unwrap();
    fs::rename(&dir, venue.at("e/moved")).unwrap();
    seen += stream.rest().unwrap().len();
    assert_eq!(seen, 1000);
}

fn a_recycled_number_is_a_new_inode(venue: &mut Venue) {
    let mut recycled = 0;
    let mut seen: HashMap<u64, usize> = HashMap::new();
    for round in 0..400usize {
        let path = venue.at(format!("name-{}", round % 7));
        if round % 3 == 0 {
            fs::create_dir(&path).unwrap();
            fs::write(path.join("inner"), round.to_string()).unwrap();
            assert_eq!(
                fs::read_to_string(path.join("inner")).unwrap(),
                round.to_string()
            );
        } else {
            fs::write(&path, vec![round as u8; round]).unwrap();
            assert_eq!(fs::read(&path).unwrap(), vec![round as u8; round]);
            raw::setxattr(&path, "user.round", round.to_string().as_bytes()).unwrap();
        }
        let meta = fs::metadata(&path).unwrap();
        assert_eq!(meta.is_dir(), round % 3 == 0);
        let below = fs::metadata(venue.backing().join(path.file_name().unwrap())).unwrap();
        assert_eq!(meta.ino(), below.ino());
        assert_eq!(meta.len(), below.len());
        if seen.insert(meta.ino(), round).is_some() {
            recycled += 1;
        }
        if round % 3 == 0 {
            fs::remove_dir_all(&path).unwrap();
        } else {
            assert_eq!(
                raw::getxattr(&path, "user.round").unwrap(),
                round.to_string().as_bytes()
            );
            fs::remove_file(&path).unwrap();
        }
    }
    if venue.kind() == Kind::Xfs {
        assert!(recycled > 50, "only {recycled} numbers came again");
    }
}

fn recycled_numbers_survive_concurrent_forgetting(venue: &mut Venue) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let forgetter = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                drop_caches();
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let dir = venue.at(format!("w{worker}"));
                scope.spawn(move || {
                    fs::create_dir(&dir).unwrap();
                    let mut ghosts: Vec<(File, String)> = Vec::new();
                    for round in 0..500 {
                        let path = dir.join(format!("f{}", round % 5));
                        let text = format!("{worker} {round} {}", "x".repeat(round % 50));
                        fs::write(&path, &text).unwrap();
                        let mut open = File::open(&path).unwrap();
                        let meta = fs::metadata(&path).unwrap();
                        assert_eq!(meta.len(), text.len() as u64, "{path:?}");
                        assert_eq!(meta.ino(), open.metadata().unwrap().ino());
                        assert_eq!(read_all(&mut open), text);
                        fs::remove_file(&path).unwrap();
                        assert_eq!(errno(fs::metadata(&path)), libc::ENOENT);
                        ghosts.push((open, text));
                        if ghosts.len() > 6 {
                            let (mut ghost, text) = ghosts.remove(0);
                            assert_eq!(read_all(&mut ghost), text);
                            assert_eq!(ghost.metadata().unwrap().nlink(), 0);
                        }
                    }
                })
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Ordering::Relaxed);
        forgetter.join().unwrap();
        for result in results {
            result.unwrap();
        }
    });
}

fn sleeper(venue: &Venue) -> PathBuf {
    let program = venue.at("sleeper");
    fs::copy("/usr/bin/sleep", &program).unwrap();
    calls::chmod(&program, 0o755).unwrap();
    program
}

fn a_program_that_runs_is_busy(venue: &mut Venue) {
    let program = sleeper(venue);
    let mut child = std::process::Command::new(&program)
        .arg("30")
        .spawn()
        .unwrap();
    wait_until(|| {
        fs::read_link(format!("/proc/{}/exe", child.id())).is_ok_and(|exe| exe == program)
    });
    let write = errno(OpenOptions::new().write(true).open(&program));
    let truncate = errno(nix::unistd::truncate(&program, 0).map_err(Into::into));
    // Not opened for write at all, and yet to be emptied: refused before anything is.
    let emptied = errno(calls::open(&program, libc::O_RDONLY | libc::O_TRUNC));
    let content = fs::read(venue.backing().join("sleeper")).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(
        (write, truncate, emptied),
        (libc::ETXTBSY, libc::ETXTBSY, libc::ETXTBSY)
    );
    assert!(
        content == fs::read("/usr/bin/sleep").unwrap(),
        "the program was harmed"
    );
    wait_until(|| OpenOptions::new().write(true).open(&program).is_ok());
    // And the other way round: a program open for write does not start.
    let open = OpenOptions::new().write(true).open(&program).unwrap();
    let started = std::process::Command::new(&program).arg("0").status();
    assert_eq!(errno(started), libc::ETXTBSY);
    drop(open);
    assert!(
        std::process::Command::new(&program)
            .arg("0")
            .status()
            .unwrap()
            .success()
    );
}

fn a_replaced_program_runs_on(venue: &mut Venue) {
    let program = sleeper(venue);
    let mut child = std::process::Command::new(&program)
        .arg("1")
        .spawn()
        .unwrap();
    fs::write(venue.at("new"), "#!/bin/sh\nexit 7\n").unwrap();
    calls::chmod(&venue.at("new"), 0o755).unwrap();
    fs::rename(venue.at("new"), &program).unwrap();
    drop_caches();
    let status = std::process::Command::new(&program).status().unwrap();
    assert_eq!(status.code(), Some(7));
    assert!(child.wait().unwrap().success());
}

#[track_caller]
fn wait_until(mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "waited in vain"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn a_chmod_does_not_touch_open_descriptors(venue: &mut Venue) {
    let path = venue.at("f");
    fs::write(&path, "text").unwrap();
    calls::chown(&path, Some(12001), Some(12001)).unwrap();
    calls::User::new(12001).run(|| {
        let mut file = read_write(&path);
        calls::chmod(&path, 0).unwrap();
        assert_eq!(errno(File::open(&path)), libc::EACCES);
        file.write_all_at(b"T", 0).unwrap();
        assert_eq!(read_all(&mut file), "Text");
        file.set_len(2).unwrap();
        file.sync_all().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 2);
    });
}
