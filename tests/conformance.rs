//! Public conformance programs, natively and through the mount: what fails or is skipped through
//! the mount must fail or be skipped natively too, or stand in `tests/conformance/exceptions.toml`
//! with its reason. `make tools` installs the programs.
//!
//! `pjdfstest` is the Rust suite of that name: 398 tests that hold what the older one in C spreads
//! over 8,798 checks. `fsx` does 100,000 operations of every kind it knows in each I/O mode on XFS, and
//! half as many on btrfs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod common;

use common::venue::{Io, Venue, run_in};
use common::{Kind, Scratch, built, need, output};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that `make tools` puts into `target/tools`, or one from `PATH`.
fn tool(name: &str) -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/bin");
    let found = std::iter::once(own)
        .chain(std::env::split_paths(
            &std::env::var_os("PATH").unwrap_or_default(),
        ))
        .map(|dir| dir.join(name))
        .find(|path| path.exists());
    need(found.is_some(), &format!("{name} (make tools)")).then_some(found)?
}

/// How one run of pjdfstest went, by test.
#[derive(Debug, Default)]
struct Outcome {
    passed: BTreeSet<String>,
    failed: BTreeMap<String, String>,
    skipped: BTreeMap<String, String>,
}

impl Outcome {
    /// Takes in what a run printed: a line a test, with a reason indented below.
    fn read(&mut self, text: &str) {
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let mut words = line.split_whitespace();
            let (Some(name), Some(result), None) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let mut reason = || {
                let mut reason = String::new();
                while let Some(more) =
                    lines.next_if(|line| !line.contains("::") || line.starts_with('\t'))
                {
                    if more.starts_with("Backtrace") || reason.len() > 300 {
                        break;
                    }
                    reason.push_str(more.trim());
                    reason.push(' ');
                }
                reason
            };
            match result {
                "ok" => {
                    self.passed.insert(name.to_owned());
                }
                "FAILED" => {
                    self.failed.insert(name.to_owned(), reason());
                }
                "skipped" => {
                    self.skipped.insert(name.to_owned(), reason());
                }
                _ => {}
            }
        }
    }

    fn counts(&self) -> String {
        format!(
            "{} passed, {} failed, {} skipped",
            self.passed.len(),
            self.failed.len(),
            self.skipped.len()
        )
    }
}

/// Runs the whole suite in a directory of the venue.
fn pjdfstest(program: &Path, venue: &Venue) -> Outcome {
    let scratch = Scratch::new("pjdfstest");
    let group = nix::unistd::Group::from_gid(nix::unistd::Gid::from_raw(65534))
        .unwrap()
        .map_or("nogroup".to_owned(), |group| group.name);
    let configuration = |remount: bool| {
        let path = scratch.path().join(format!("{remount}.toml"));
        fs::write(
            &path,
            format!(
                "[features]\nfile_flags = []\nposix_fallocate = {{}}\nrename_ctime = {{}}\n\
                 stat_st_birthtime = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
                 [settings]\nnaptime = 0.02\nallow_remount = {remount}\n\
                 [dummy_auth]\nentries = [[\"nobody\", \"{group}\"], [\"daemon\", \"daemon\"]]\n"
            ),
        )
        .unwrap();
        path
    };
    let run = |remount: bool, patterns: &[&str]| {
        let mut command = Command::new(program);
        if remount && !venue.is_native() {
            command = with_helper(program);
        }
        command
            .arg("-c")
            .arg(configuration(remount))
            .arg("-p")
            .arg(venue.dir())
            .arg("-s")
            .arg(scratch.path())
            .args(patterns)
            .env("NO_COLOR", "1")
            .env("RUST_BACKTRACE", "0")
            .current_dir("/");
        output(&mut command).stdout
    };
    let mut outcome = Outcome::default();
    outcome.read(&run(false, &[]));
    // The remounting tests find the filesystem busy after the others: they come by themselves.
    outcome.skipped.retain(|name, _| !name.contains("::erofs"));
    outcome.read(&run(true, &["::erofs"]));
    assert!(
        outcome.passed.len() > 300,
        "hardly anything ran: {}",
        outcome.counts()
    );
    outcome
}

/// The program in a mount namespace of its own, where mount(8) finds sharelens's helper in the place
/// of FUSE's: a remount goes through it, as on a machine where it is installed.
fn with_helper(program: &Path) -> Command {
    let helper = built("mount-sharelens");
    assert!(
        helper.exists(),
        "{helper:?} is missing: cargo build --workspace"
    );
    let script = "mount --bind \"$0\" \"$(readlink -f /sbin/mount.fuse3)\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .arg(helper)
        .arg(program);
    command
}

/// The exceptions by test, with the reason.
fn exceptions() -> BTreeMap<String, String> {
    include_str!("conformance/exceptions.toml")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| {
            let (name, reason) = line.split_once(" = ").expect("name = \"reason\"");
            let (name, reason) = (name.trim_matches('"'), reason.trim_matches('"'));
            assert!(reason.len() > 20, "{name} has no reason");
            (name.to_owned(), reason.to_owned())
        })
        .collect()
}

fn conforms(kind: Kind) {
    let Some(program) = tool("pjdfstest") else {
        return;
    };
    let excepted = exceptions();
    let Some(venue) = Venue::new(kind, Io::Native) else {
        return;
    };
    let native = pjdfstest(&program, &venue);
    drop(venue);
    println!("pjdfstest, {kind:?} native: {}", native.counts());
    for (name, reason) in native.failed.iter().chain(&native.skipped) {
        println!("    {name}: {reason}");
    }
    let mut wrong = Vec::new();
    for io in [Io::Passthrough, Io::Cached] {
        let Some(venue) = Venue::new(kind, io) else {
            return;
        };
        let mut shown = Outcome::default();
        run_in(venue, |venue| shown = pjdfstest(&program, venue));
        println!("pjdfstest, {kind:?} {io:?}: {}", shown.counts());
        for (name, reason) in shown.failed.iter().chain(&shown.skipped) {
            if native.failed.contains_key(name) || native.skipped.contains_key(name) {
                continue;
            }
            match excepted.get(name) {
                Some(why) => println!("    {name}: excepted: {why}"),
                None => wrong.push(format!("{io:?}: {name}: {reason}")),
            }
        }
        for name in excepted.keys().filter(|name| shown.passed.contains(*name)) {
            wrong.push(format!("{io:?}: {name} passes, but is an exception"));
        }
        for name in &native.passed {
            let seen = shown.passed.contains(name)
                || shown.failed.contains_key(name)
                || shown.skipped.contains_key(name);
            if !seen {
                wrong.push(format!("{io:?}: {name} did not run"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn pjdfstest_on_xfs_is_as_natively() {
    conforms(Kind::Xfs);
}

#[test]
fn pjdfstest_on_btrfs_is_as_natively() {
    conforms(Kind::Btrfs);
}

/// Every operation on; those that wait for the disk seldom, since each costs a thousand others.
const FSX: &str = "
flen = 524288
[opsize]
max = 65536
[weights]
close_open = 2
read = 10
write = 10
mapread = 10
mapwrite = 2
invalidate = 0.5
truncate = 5
fsync = 0.1
fdatasync = 0.1
posix_fallocate = 3
punch_hole = 3
sendfile = 5
posix_fadvise = 1
copy_file_range = 3
";

fn exercise(kind: Kind, io: Io, seeds: &[u64]) {
    let Some(program) = tool("fsx") else { return };
    let Some(venue) = Venue::new(kind, io) else {
        return;
    };
    run_in(venue, |venue| {
        let scratch = Scratch::new("fsx");
        let configuration = scratch.path().join("fsx.toml");
        fs::write(&configuration, FSX).unwrap();
        // Files of 50,000 operations, each within the time limit of one program.
        for seed in seeds {
            let mut command = Command::new(&program);
            command
                .args(["-N", "50000", "-S", &seed.to_string(), "-P"])
                .arg(scratch.path())
                .arg("-f")
                .arg(&configuration)
                .arg(venue.at(format!("file-{seed}")));
            let said = output(&mut command);
            let from = said.stdout.len().saturating_sub(3000);
            assert!(
                said.ok(),
                "fsx, seed {seed}: {}{}",
                said.stdout.get(from..).unwrap_or_default(),
                said.stderr
            );
            println!("fsx, {kind:?} {io:?}, seed {seed}: 50,000 operations");
        }
    });
}

#[test]
fn fsx_on_xfs_with_passthrough() {
    exercise(Kind::Xfs, Io::Passthrough, &[1, 2]);
}

#[test]
fn fsx_on_xfs_cached() {
    exercise(Kind::Xfs, Io::Cached, &[11, 12]);
}

#[test]
fn fsx_on_btrfs_with_passthrough() {
    exercise(Kind::Btrfs, Io::Passthrough, &[3]);
}

#[test]
fn fsx_on_btrfs_cached() {
    exercise(Kind::Btrfs, Io::Cached, &[13]);
}
