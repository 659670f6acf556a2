//! What happens when the filesystem below is full, read-only or dead, descriptors run out, or the
//! tree below moves under a lookup: the errno of the filesystem below, no hang, no way outside.

use crate::common::calls::{self, User, chmod, errno};
use crate::common::files::content;
use crate::common::venue::{Io, Venue, run_in};
use crate::common::{Image, Kind, files, raw, run, try_run};
use crate::everywhere;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

everywhere!(
    a_read_only_remount_below_is_erofs,
    too_many_open_files_is_emfile,
    renames_against_lookups_never_lead_outside,
    odd_names_never_lead_outside,
);

/// Every combination of one filesystem below and a way to reach it.
fn venues(make: impl Fn(Kind, Io) -> Option<Venue>, body: impl Fn(&mut Venue)) {
    for kind in [Kind::Xfs, Kind::Btrfs] {
        for io in [Io::Native, Io::Passthrough, Io::Cached] {
            eprintln!("{kind:?}, {io:?}");
            let Some(venue) = make(kind, io) else { return };
            run_in(venue, &body);
        }
    }
}

#[test]
fn a_full_filesystem_is_enospc() {
    venues(
        |kind, io| {
            let mebibytes = if kind == Kind::Xfs { 320 } else { 160 };
            Venue::with(Image::of(kind).size_mib(mebibytes), io, "")
        },
        |venue| {
            let kept = venue.at("kept");
            fs::write(&kept, content(7, 1 << 20)).unwrap();
            File::open(&kept).unwrap().sync_all().unwrap();
            let full = File::create(venue.at("full")).unwrap();
            let chunk = content(1, 1 << 20);
            let mut written = 0u64;
            let error = loop {
                match full.write_at(&chunk, written) {
                    Ok(got) => written += got as u64,
                    Err(error) => break error,
                }
                assert!(written < 400 << 20, "never full");
            };
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
            assert!(written > 20 << 20, "{written}");
            let most = 1 << 30;
            assert_eq!(
                errno(calls::fallocate(&full, 0, 0, most)),
                libc::ENOSPC,
                "fallocate"
            );
            // What was there stays readable and unharmed.
            assert_eq!(fs::read(&kept).unwrap(), content(7, 1 << 20));
            assert!(fs::metadata(venue.at("full")).unwrap().len() >= written);
            if !venue.is_native() {
                assert_eq!(files::number(&kept, "bytes").unwrap(), 1 << 20);
            }
            // Room again, and writing works again.
            drop(full);
            fs::remove_file(venue.at("full")).unwrap();
            let started = Instant::now();
            while fs::write(venue.at("after"), content(2, 8 << 20)).is_err() {
                assert!(
                    started.elapsed() < Duration::from_secs(20),
                    "no room after removal"
                );
                std::thread::sleep(Duration::from_millis(50));
            }
            assert_eq!(fs::read(venue.at("after")).unwrap(), content(2, 8 << 20));
        },
    );
}

fn a_read_only_remount_below_is_erofs(venue: &mut Venue) {
    let file = venue.at("f");
    fs::write(&file, "text").unwrap();
    fs::create_dir(venue.at("d")).unwrap();
    let point = venue.image().path().to_str().unwrap().to_owned();
    nix::unistd::syncfs(File::open(venue.backing()).unwrap()).unwrap();
    // Closed files are let go of in the background.
    let started = Instant::now();
    while !try_run("mount", ["-o", "remount,ro", &point]).ok() {
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "the filesystem below stays busy"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(errno(File::create(venue.at("new"))), libc::EROFS);
    assert_eq!(
        errno(OpenOptions::new().write(true).open(&file)),
        libc::EROFS
    );
    assert_eq!(errno(fs::create_dir(venue.at("e"))), libc::EROFS);
    assert_eq!(errno(fs::remove_file(&file)), libc::EROFS);
    assert_eq!(errno(fs::remove_dir(venue.at("d"))), libc::EROFS);
    assert_eq!(errno(fs::rename(&file, venue.at("g"))), libc::EROFS);
    assert_eq!(errno(fs::hard_link(&file, venue.at("g"))), libc::EROFS);
    assert_eq!(errno(symlink("x", venue.at("s"))), libc::EROFS);
    assert_eq!(errno(chmod(&file, 0o600)), libc::EROFS);
    assert_eq!(errno(calls::chown(&file, Some(1), None)), libc::EROFS);
    assert_eq!(
        errno(nix::unistd::truncate(&file, 0).map_err(Into::into)),
        libc::EROFS
    );
    assert_eq!(errno(raw::setxattr(&file, "user.x", b"1")), libc::EROFS);
    assert_eq!(
        errno(calls::set_times(&file, calls::Time::Now, calls::Time::Now)),
        libc::EROFS
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    assert_eq!(calls::names(venue.dir()).unwrap().len(), 2);
    if !venue.is_native() {
        assert_eq!(files::number(&file, "shared_bytes").unwrap(), 0);
    }
    run("mount", ["-o", "remount,rw", &point]);
    fs::write(&file, "again").unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "again");
}

#[test]
fn a_filesystem_shut_down_below_gives_errors_and_no_hangs() {
    for io in [Io::Native, Io::Passthrough, Io::Cached] {
        let Some(venue) = Venue::new(Kind::Xfs, io) else {
            return;
        };
        run_in(venue, |venue| {
            let file = venue.at("f");
            fs::write(&file, content(1, 100_000)).unwrap();
            let open = OpenOptions::new()
                .read(true)
                .write(true)
                .open(&file)
                .unwrap();
            open.sync_all().unwrap();
            for number in 0..50 {
                fs::write(venue.at(format!("n{number}")), "x").unwrap();
            }
            calls::shut_down_xfs(&File::open(venue.image().path()).unwrap()).unwrap();
            let started = Instant::now();
            let failed = |what: &str, error: i32| {
                assert!(
                    matches!(error, libc::EIO | libc::ESHUTDOWN),
                    "{what}: errno {error}"
                );
            };
            failed("create", errno(File::create(venue.at("new"))));
            failed("mkdir", errno(fs::create_dir(venue.at("d"))));
            failed("unlink", errno(fs::remove_file(venue.at("n1"))));
            failed("rename", errno(fs::rename(venue.at("n2"), venue.at("m2"))));
            failed("chmod", errno(chmod(&file, 0o600)));
            failed(
                "fsync",
                errno(open.write_at(b"x", 0).and_then(|_| open.sync_all())),
            );
            failed("lookup", errno(fs::metadata(venue.at("never looked up"))));
            if !venue.is_native() {
                // A question about it fails or is answered; it does not hang.
                let _ = files::number(&venue.at("n3"), "bytes");
            }
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "{:?}",
                started.elapsed()
            );
            drop(open);
            if let Some(mount) = venue.take_mount() {
                let started = Instant::now();
                mount.unmount();
                assert!(started.elapsed() < Duration::from_secs(10));
            }
        });
    }
}

#[test]
fn a_full_quota_is_edquot() {
    for io in [Io::Native, Io::Passthrough, Io::Cached] {
        let Some(venue) = Venue::new(Kind::Btrfs, io) else {
            return;
        };
        run_in(venue, |venue| {
            let point = venue.image().path().to_str().unwrap();
            run("btrfs", ["quota", "enable", point]);
            run("btrfs", ["qgroup", "limit", "24M", point]);
            chmod(venue.dir(), 0o777).unwrap();
            User::new(12001).run(|| {
                let file = File::create(venue.at("f")).unwrap();
                let chunk = content(5, 1 << 20);
                let mut at = 0;
                let error = loop {
                    match file.write_at(&chunk, at) {
                        Ok(got) => at += got as u64,
                        Err(error) => break error,
                    }
                    assert!(at < 64 << 20, "no limit");
                };
                assert_eq!(error.raw_os_error(), Some(libc::EDQUOT));
                assert_eq!(
                    errno(calls::fallocate(&file, 0, 0, 100 << 20)),
                    libc::EDQUOT
                );
                assert!(at > 4 << 20, "{at}");
            });
            run("btrfs", ["qgroup", "limit", "none", point]);
            fs::write(venue.at("after"), content(1, 4 << 20)).unwrap();
        });
    }
}

fn too_many_open_files_is_emfile(venue: &mut Venue) {
    fs::write(venue.at("f"), "x").unwrap();
    let path = venue.at("f");
    let code = calls::in_child(|| {
        let limit = libc::rlimit {
            rlim_cur: 64,
            rlim_max: 64,
        };
        // SAFETY: the limit is whole and lives through the call; this process is the child.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
        let mut held = Vec::with_capacity(100);
        loop {
            match calls::open(&path, libc::O_RDONLY) {
                Ok(file) => held.push(file),
                Err(error) => return calls::code::<()>(Err(error)),
            }
        }
    });
    assert_eq!(i32::from(code), libc::EMFILE);
    assert_eq!(fs::read_to_string(&path).unwrap(), "x");
}

/// Two thousand files open at once, with a daemon that may have 512 descriptors: each open works
/// or says EMFILE or ENFILE, and after closing everything works.
#[test]
fn a_daemon_out_of_descriptors_says_so_and_recovers() {
    for io in [Io::Passthrough, Io::Cached] {
        let Some(mut venue) = Venue::new(Kind::Xfs, io) else {
            return;
        };
        for number in 0..2000 {
            fs::write(venue.backing().join(number.to_string()), number.to_string()).unwrap();
        }
        let builder = venue.builder("").unwrap();
        drop(venue.take_mount());
        // Root could raise the limit: not without CAP_SYS_RESOURCE.
        let mount = builder
            .under(&[
                "prlimit",
                "--nofile=512:512",
                "setpriv",
                "--bounding-set=-sys_resource",
            ])
            .mount();
        let mut held = Vec::new();
        for number in 0..2000 {
            match File::open(mount.path().join(number.to_string())) {
                Ok(file) => held.push((number, file)),
                Err(error) => assert!(
                    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)),
                    "{error}"
                ),
            }
        }
        assert!(held.len() > 200, "only {} opened", held.len());
        for (number, file) in &mut held {
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, number.to_string());
        }
        drop(held);
        let started = Instant::now();
        for number in 0..2000 {
            let path = mount.path().join(number.to_string());
            // Releases arrive in the background.
            while fs::read_to_string(&path).is_err() {
                assert!(
                    started.elapsed() < Duration::from_secs(10),
                    "does not recover"
                );
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), number.to_string());
        }
        assert!(!mount.said().contains("panicked"), "{}", mount.said());
    }
}

/// While a name below flips between a directory and a symlink to the outside, a walk that itself
/// follows no link never reads what lies outside.
fn renames_against_lookups_never_lead_outside(venue: &mut Venue) {
    let below = venue.backing();
    let outside = below.with_file_name("outside");
    fs::create_dir_all(outside.join("sub")).unwrap();
    fs::write(outside.join("sub/secret"), "outside").unwrap();
    fs::write(outside.join("secret"), "outside").unwrap();
    fs::create_dir_all(below.join("real/sub")).unwrap();
    fs::write(below.join("real/sub/secret"), "inside").unwrap();
    fs::write(below.join("real/secret"), "inside").unwrap();
    symlink(&outside, below.join("link")).unwrap();
    symlink("../outside", below.join("relative")).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) {
                let other = if rounds % 2 == 0 { "link" } else { "relative" };
                let (a, b) = (below.join("real"), below.join(other));
                calls::rename2(&a, &b, libc::RENAME_EXCHANGE).unwrap();
                calls::rename2(&a, &b, libc::RENAME_EXCHANGE).unwrap();
                // The directory moves outside and comes back while lookups in it are under way.
                fs::rename(&a, outside.join("moved")).unwrap();
                fs::rename(outside.join("moved"), &a).unwrap();
                rounds += 1;
            }
            rounds
        });
        let root = File::open(venue.dir()).unwrap();
        let started = Instant::now();
        let (mut reads, mut refused) = (0, 0);
        while started.elapsed() < Duration::from_secs(2) {
            for name in [
                "real/secret",
                "real/sub/secret",
                "link/secret",
                "real/../secret",
            ] {
                match calls::open_beneath(&root, name) {
                    Ok(mut file) => {
                        let mut text = String::new();
                        if file.read_to_string(&mut text).is_ok() {
                            assert_eq!(text, "inside", "{name} was read outside");
                            reads += 1;
                        }
                    }
                    Err(_) => refused += 1,
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(swapper.join().unwrap() > 10);
        assert!(reads > 0 && refused > 0, "{reads} reads, {refused} refused");
    });
}

fn odd_names_never_lead_outside(venue: &mut Venue) {
    fs::write(venue.image().path().join("outside"), "outside").unwrap();
    let root = File::open(venue.dir()).unwrap();
    for name in ["../outside", "a/../../outside", "./../outside"] {
        fs::create_dir_all(venue.at("a")).unwrap();
        assert!(calls::open_beneath(&root, name).is_err(), "{name}");
    }
    // `..` of the root of a mount is what the mount point lies in, as for any mount.
    let up = fs::metadata(venue.at("..")).unwrap();
    let parent = fs::metadata(venue.dir().parent().unwrap()).unwrap();
    assert_eq!((up.dev(), up.ino()), (parent.dev(), parent.ino()));
    symlink("/", venue.at("absolute")).unwrap();
    symlink("../..", venue.at("up")).unwrap();
    for name in ["absolute/etc/passwd", "up/tree"] {
        assert_eq!(
            errno(calls::open_beneath(&root, name)),
            libc::ELOOP,
            "{name}"
        );
    }
    // A link into another filesystem is followed by the kernel, not by the daemon.
    let shown = fs::metadata(venue.at("absolute/etc")).unwrap();
    assert_eq!(shown.dev(), fs::metadata("/etc").unwrap().dev());
}
