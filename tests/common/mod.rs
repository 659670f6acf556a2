//! Fixtures of the integration tests: filesystems on loop devices ([`Image`]), sharelens mounts
//! ([`Mounted`]), the truth about sharing taken from the backing filesystem ([`truth`]) and small
//! file helpers ([`files`]).
//!
//! Invariants:
//! - everything is made below `/tmp/sharelens-test-PID-*` and removed by name when its fixture is
//!   dropped, also on a panic; what a killed test process left is removed by the next one;
//! - what a machine lacks (root, loop devices, FUSE, a program) skips a test with a line that says
//!   so; with `CI=true` it fails the test instead.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

pub mod actors;
pub mod calls;
pub mod directory;
pub mod files;
mod image;
pub mod locking;
mod mounted;
pub mod raw;
pub mod run;
pub mod truth;
pub mod venue;

pub use image::{Image, ImageBuilder, Kind, MountedTmpfs};
pub use mounted::{Mounted, MountedBuilder};
pub use run::{Output, output, output_within, run, try_run};
pub use truth::{Numbers, Piece};

use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Whether missing prerequisites must fail a test instead of skipping it.
pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}

/// Skips (prints and returns false) or, in CI, fails when `available` is false.
pub fn need(available: bool, what: &str) -> bool {
    if available {
        return true;
    }
    assert!(!in_ci(), "CI=true, but this test needs {what}");
    eprintln!("SKIPPED: needs {what}");
    false
}

/// Whether this test can make mounts here; says why not.
pub fn can_mount() -> bool {
    need(nix::unistd::geteuid().is_root(), "root")
        && need(Path::new("/dev/fuse").exists(), "/dev/fuse")
        && need(
            Path::new("/dev/loop-control").exists(),
            "loop devices (/dev/loop-control)",
        )
}

/// Whether a program is installed; says so when not.
pub fn have(program: &str) -> bool {
    let found =
        std::env::split_paths("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .chain(std::env::split_paths(
                &std::env::var_os("PATH").unwrap_or_default(),
            ))
            .any(|dir| dir.join(program).exists());
    need(found, program)
}

/// The program under test: as cargo says, or beside this test's own executable.
pub fn sharelens() -> PathBuf {
    match option_env!("CARGO_BIN_EXE_sharelens") {
        Some(path) => PathBuf::from(path),
        None => built("sharelens"),
    }
}

/// A program built into the directory above this test's own executable.
pub fn built(program: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join(program)
}

/// A directory of this test's own under /tmp, removed on drop.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub fn new(name: &str) -> Self {
        static SWEEP: Once = Once::new();
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        SWEEP.call_once(sweep);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!(
            "/tmp/sharelens-test-{}-{count}-{name}",
            std::process::id()
        ));
        std::fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.path.join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Never into something that is still mounted below.
        if mounts_below(&self.path).is_empty() {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Mount points at or below `path`, the last mounted first.
pub fn mounts_below(path: &Path) -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut points: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|point| PathBuf::from(point.replace("\\040", " ")))
        .filter(|point| point.starts_with(path))
        .collect();
    points.reverse();
    points
}

/// The filesystem type of the topmost mount at exactly `path`, from the kernel's table.
pub fn mount_type(path: &Path) -> Option<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    table
        .lines()
        .filter(|line| {
            line.split(' ')
                .nth(4)
                .is_some_and(|point| Path::new(&point.replace("\\040", " ")) == path)
        })
        .filter_map(|line| {
            let (_, after) = line.split_once(" - ")?;
            after.split(' ').next().map(str::to_owned)
        })
        .next_back()
}

/// Removes what test processes that no longer exist have left behind.
fn sweep() {
    let Ok(entries) = std::fs::read_dir("/tmp") else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name
            .strip_prefix("sharelens-test-")
            .and_then(|rest| rest.split('-').next())
            .and_then(|pid| pid.parse::<u32>().ok())
        else {
            continue;
        };
        if Path::new(&format!("/proc/{pid}")).exists() {
            continue;
        }
        for point in mounts_below(&entry.path()) {
            let _ = try_run("umount", ["-l".as_ref(), point.as_os_str()]);
        }
        if mounts_below(&entry.path()).is_empty() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
