//! The daemon as a process: killed in the middle, ended while busy, worked for long, notified while
//! it serves, left by its clients, and covered by its own mount.

use crate::common::calls::{self, chmod, errno};
use crate::common::files::content;
use crate::common::venue::Venue;
use crate::common::{Image, Kind, Mounted, files, mount_type, raw, run, try_run};
use crate::on_mounts;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

on_mounts!(
    a_killed_daemon_loses_no_returned_write,
    an_end_while_busy_comes_within_seconds,
    many_rounds_leave_nothing_behind,
    notices_to_the_kernel_do_not_deadlock,
    a_killed_client_goes_away,
);

fn a_killed_daemon_loses_no_returned_write(venue: &mut Venue) {
    let record = |number: u64| content(number, 3000);
    let mut mount = venue.take_mount().unwrap();
    let point = mount.path().to_owned();
    let (appended, created) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = File::create(venue.at("appended")).unwrap();
            // With passthrough an open file outlives the daemon: the kernel writes on.
            while !stop.load(Ordering::SeqCst) {
                let number = appended.load(Ordering::SeqCst);
                if file.write_all(&record(number)).is_err() {
                    return;
                }
                appended.store(number + 1, Ordering::SeqCst);
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let number = created.load(Ordering::SeqCst);
                if fs::write(venue.at(format!("small-{number}")), record(number)).is_err() {
                    return;
                }
                created.store(number + 1, Ordering::SeqCst);
            }
        });
        let started = Instant::now();
        while appended.load(Ordering::SeqCst) < 400 || created.load(Ordering::SeqCst) < 100 {
            assert!(
                started.elapsed() < Duration::from_secs(30),
                "the writers do not get on"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        mount.kill();
        assert_eq!(errno(fs::metadata(point.join("new"))), libc::ENOTCONN);
        assert_eq!(errno(fs::read_dir(&point)), libc::ENOTCONN);
        stop.store(true, Ordering::SeqCst);
    });
    let check = |dir: &Path| {
        let all = fs::read(dir.join("appended")).unwrap();
        for number in 0..appended.load(Ordering::SeqCst) {
            let at = usize::try_from(number).unwrap() * 3000;
            assert_eq!(
                all.get(at..at + 3000),
                Some(&record(number)[..]),
                "record {number}"
            );
        }
        for number in 0..created.load(Ordering::SeqCst) {
            let got = fs::read(dir.join(format!("small-{number}"))).unwrap();
            assert_eq!(got, record(number), "file {number}");
        }
    };
    check(&venue.backing());
    run("umount", ["-l".as_ref(), point.as_os_str()]);
    venue.mount("");
    check(venue.dir());
    fs::write(venue.at("after"), "works").unwrap();
    assert_eq!(
        files::number(&venue.at("after"), "shared_bytes").unwrap(),
        0
    );
}

fn an_end_while_busy_comes_within_seconds(venue: &mut Venue) {
    let mount = venue.take_mount().unwrap();
    let point = mount.path().to_owned();
    let mut open = File::create(point.join("open")).unwrap();
    open.write_all(b"before").unwrap();
    let mut inside = std::process::Command::new("sleep")
        .arg("60")
        .current_dir(&point)
        .spawn()
        .unwrap();
    let started = Instant::now();
    let status = mount.unmount();
    let took = started.elapsed();
    let _ = inside.kill();
    inside.wait().unwrap();
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(status.code().is_some(), "{status}");
    assert_ne!(mount_type(&point).as_deref(), Some("fuse.sharelens"));
    assert_eq!(
        fs::read_to_string(venue.backing().join("open")).unwrap(),
        "before"
    );
    // What is there now is what the mount had covered.
    let uncovered = calls::names(&point).unwrap();
    assert_eq!(uncovered.is_empty(), point != venue.image().tree());
    drop(open);
    venue.mount("");
    assert_eq!(fs::read_to_string(venue.at("open")).unwrap(), "before");
}

/// Descriptors and resident memory (KiB) of a process.
fn usage(pid: i32) -> (usize, u64) {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap();
    (descriptors, resident)
}

fn many_rounds_leave_nothing_behind(venue: &mut Venue) {
    let pid = venue.mounted().unwrap().pid();
    let round = |round: usize| {
        let dir = venue.at(format!("d{}", round % 3));
        fs::create_dir(&dir).unwrap();
        for number in 0..40 {
            let path = dir.join(format!("f{number}"));
            fs::write(&path, content(number, 5000)).unwrap();
            let held = File::open(&path).unwrap();
            let from = File::open(&path).unwrap();
            let to = File::create(dir.join(format!("c{number}"))).unwrap();
            assert!(raw::copy_range(&from, 0, &to, 0, 8192).unwrap() > 0);
            assert!(files::number(&path, "bytes").unwrap() > 0);
            fs::rename(&path, dir.join(format!("r{number}"))).unwrap();
            if number % 2 == 0 {
                fs::remove_file(dir.join(format!("r{number}"))).unwrap();
            }
            let mut text = [0; 10];
            held.read_exact_at(&mut text, 0).unwrap();
        }
        assert!(calls::names(&dir).unwrap().len() == 60);
        fs::remove_dir_all(&dir).unwrap();
    };
    let settle = || {
        calls::drop_caches();
        std::thread::sleep(Duration::from_millis(700));
        usage(pid)
    };
    for number in 0..60 {
        round(number);
    }
    let (descriptors, resident) = settle();
    for number in 0..180 {
        round(number);
    }
    let (after, grown) = settle();
    assert!(
        after <= descriptors + 8,
        "descriptors: {descriptors}, then {after}"
    );
    assert!(
        grown < resident + 12 * 1024,
        "memory: {resident} KiB, then {grown}"
    );
}

/// Requests and notices about the same inodes at once: files change through the mount and behind
/// it while others ask, list, map and remove.
fn notices_to_the_kernel_do_not_deadlock(venue: &mut Venue) {
    let below = venue.backing();
    for number in 0..20 {
        fs::write(below.join(format!("f{number}")), content(number, 20_000)).unwrap();
    }
    let stop = AtomicBool::new(false);
    let steps: [AtomicU64; 5] = Default::default();
    let (dir, steps, stop) = (venue.dir(), &steps, &stop);
    std::thread::scope(|scope| {
        let run = |slot: usize, step: Box<dyn Fn(u64) + Send>| {
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    step(steps[slot].fetch_add(1, Ordering::Relaxed));
                }
            });
        };
        let name = |number: u64| format!("f{}", number % 20);
        let path = dir.to_owned();
        run(
            0,
            Box::new(move |n| {
                let _ = OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(path.join(name(n)))
                    .and_then(|file| file.write_all_at(b"mount", n % 9000));
            }),
        );
        let path = below.clone();
        run(
            1,
            Box::new(move |n| match n % 5 {
                0 => {
                    let _ = fs::remove_file(path.join(name(n)));
                }
                1 => {
                    let _ = fs::rename(path.join(name(n)), path.join(name(n + 7)));
                }
                2 => {
                    let _ = fs::write(path.join(name(n)), content(n, 10_000));
                }
                3 => {
                    let _ = chmod(&path.join(name(n)), 0o600 | (n % 64) as u32);
                }
                _ => files_clone(&path.join(name(n)), &path.join(name(n + 3))),
            }),
        );
        let path = dir.to_owned();
        run(
            2,
            Box::new(move |n| {
                let _ = files::number(&path.join(name(n)), "shared_bytes");
                let _ = fs::metadata(path.join(name(n + 1)));
            }),
        );
        let path = dir.to_owned();
        run(
            3,
            Box::new(move |n| {
                let _ = calls::names(&path);
                let _ = fs::rename(path.join(name(n)), path.join(name(n + 5)));
                let _ = fs::remove_file(path.join(name(n + 9)));
            }),
        );
        let path = dir.to_owned();
        run(
            4,
            Box::new(move |n| {
                let opened = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(path.join(name(n)));
                if let Ok(file) = opened {
                    let _ = file.read_at(&mut [0; 4096], 0);
                    let _ = file.sync_data();
                    let _ = file.set_len(n % 30_000);
                }
            }),
        );
        let started = Instant::now();
        let mut last = [0u64; 5];
        while started.elapsed() < Duration::from_secs(6) {
            std::thread::sleep(Duration::from_secs(2));
            let now: Vec<u64> = steps
                .iter()
                .map(|step| step.load(Ordering::Relaxed))
                .collect();
            for slot in 0..5 {
                assert!(now[slot] > last[slot], "actor {slot} stands still: {now:?}");
                last[slot] = now[slot];
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    // Afterwards both sides agree. What changed behind the mount shows at once where it is watched,
    // within the timeouts elsewhere.
    let started = Instant::now();
    let listing = |dir: &Path| -> HashMap<Vec<u8>, Option<Vec<u8>>> {
        calls::names(dir)
            .unwrap()
            .into_iter()
            .map(|name| {
                let path = dir.join(String::from_utf8(name.clone()).unwrap());
                (name, fs::read(path).ok())
            })
            .collect()
    };
    while listing(dir) != listing(&below) {
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "the two sides differ"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A clone behind the mount; the names may be gone by the time.
fn files_clone(from: &Path, to: &Path) {
    if let (Ok(source), Ok(target)) = (File::open(from), File::create(to)) {
        let _ = raw::clone_file(&source, &target);
    }
}

fn a_killed_client_goes_away(venue: &mut Venue) {
    for number in 0..300 {
        fs::write(venue.at(format!("f{number}")), content(number, 9000)).unwrap();
    }
    for _ in 0..10 {
        let script = "while :; do cat f* > out; getfattr -n user.reflink.bytes f* ; done";
        let mut client = std::process::Command::new("sh")
            .args(["-c", script])
            .current_dir(venue.dir())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(80));
        let started = Instant::now();
        client.kill().unwrap();
        client.wait().unwrap();
        assert!(started.elapsed() < Duration::from_secs(5));
    }
    assert_eq!(fs::read(venue.at("f7")).unwrap(), content(7, 9000));
}

/// A daemon that cannot be reached from below: in place, everything it holds is below its own
/// mount, and it must not go through it.
#[test]
fn in_place_the_daemon_does_not_touch_its_own_mount() {
    for kind in [Kind::Xfs, Kind::Btrfs] {
        let Some(image) = Image::of(kind).make() else {
            return;
        };
        let tree = image.tree();
        fs::create_dir(tree.join("d")).unwrap();
        fs::write(tree.join("d/f"), content(1, 50_000)).unwrap();
        let mount = Mounted::in_place(&tree).options("allow_other").mount();
        let limited = |program: &str, arguments: &[&str]| {
            let mut all = vec!["30", program];
            all.extend(arguments);
            let said = try_run("timeout", &all);
            assert!(said.ok(), "{program}: {said:?}");
            said.stdout
        };
        let text = tree.to_str().unwrap();
        limited("find", &[text]);
        limited("cp", &["-a", &format!("{text}/d"), &format!("{text}/e")]);
        limited("mv", &[&format!("{text}/e"), &format!("{text}/g")]);
        limited("sync", &["-f", text]);
        limited("df", &[text]);
        limited("rm", &["-r", &format!("{text}/g")]);
        let asked = limited(
            "getfattr",
            &[
                "--only-values",
                "-n",
                "user.reflink.bytes",
                &format!("{text}/d/f"),
            ],
        );
        assert_eq!(asked, (50_000u64.div_ceil(4096) * 4096).to_string());
        let status = mount.unmount();
        assert!(status.success(), "{status}");
        assert_eq!(calls::names(&tree).unwrap(), [b"d".to_vec()]);
        assert_eq!(fs::read(tree.join("d/f")).unwrap(), content(1, 50_000));
    }
}
