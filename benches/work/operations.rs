//! Single operations, one after the other: where the time of ordinary work goes.

use super::{Workload, stats};
use crate::harness::{
    Context, FsKind, Image, Result, Samples, Settings, Side, Table, Tables, View, interrupted,
};
use crate::raw::generate::clone_file;
use rustix::fs::{AtFlags, Timespec, Timestamps};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

pub(super) const WORKLOAD: Workload = Workload {
    name: "operations",
    about: "Single operations on small files, and the FIEMAP calls that each of them causes.",
    run,
};

fn run(settings: &Settings) -> Result<Tables> {
    let times = settings.size(5000, 100);
    let rounds = settings.rounds_or(5);
    let mut tables = Tables::new();
    for kind in settings.filesystems() {
        let image = Image::create(settings, kind, 8 << 30)?;
        let directory = image.root().join("work");
        let mut bench = Bench {
            image: &image,
            directory: &directory,
            times,
            samples: Samples::default(),
            calls: Vec::new(),
        };
        for round in 0..rounds {
            for side in &Side::all(settings) {
                fs::create_dir(&directory)?;
                write_files(&directory, times)?;
                let shared = directory.join(SHARED);
                fs::write(&shared, [b's'; 5000])?;
                clone_file(&shared, &directory.join("clone"))?;
                image.settle()?;
                let view = side.open(settings, &directory)?;
                if side.answers() {
                    // With a shared file known, every change has something to lose.
                    stats::ask_number(&view.root().join(SHARED), "shared_bytes")?;
                }
                let counted = round == 0 && side.name() == "sharelens";
                bench.turn(side, &view, counted).context(side.name())?;
                view.close()?;
                fs::remove_dir_all(&directory)?;
                image.settle()?;
            }
        }
        tables.push(bench.table(kind, rounds));
    }
    Ok(tables)
}

/// A file with a clone, about which sharelens was asked.
const SHARED: &str = "shared";

fn file(root: &Path, number: usize) -> PathBuf {
    root.join(format!("f{number}"))
}

fn write_files(root: &Path, count: usize) -> Result<()> {
    (0..count).try_for_each(|number| {
        let path = file(root, number);
        fs::write(&path, [b'x'; 5000]).context(&path)
    })
}

struct Bench<'a> {
    image: &'a Image,
    directory: &'a Path,
    times: usize,
    samples: Samples,
    /// FIEMAP calls of sharelens for each kind of operation.
    calls: Vec<(&'static str, u64)>,
}

/// One kind of operation on the file of this number below a root.
type Operation<'a> = (
    &'static str,
    Box<dyn FnMut(&Path, usize) -> io::Result<()> + 'a>,
);

impl Bench<'_> {
    fn turn(&mut self, side: &Side, view: &View, counted: bool) -> Result<()> {
        let root = view.root();
        let log = root.join("log");
        fs::write(&log, "x")?;
        let open = OpenOptions::new().read(true).write(true).open(&log)?;
        for (name, mut operation) in operations(&open) {
            interrupted()?;
            self.image.settle()?;
            let before = if counted {
                stats::counter(root, "fiemap_calls")?
            } else {
                0
            };
            let begin = Instant::now();
            for number in 0..self.times {
                operation(root, number).context(format!("{name}, file {number}"))?;
            }
            let time = begin.elapsed().as_secs_f64() / self.times as f64;
            self.samples.add(name, side.name(), time);
            if counted {
                let calls = stats::counter(root, "fiemap_calls")?.saturating_sub(before);
                self.calls.push((name, calls));
            }
        }
        self.behind(side)
    }

    /// A write on the backing path while the side is mounted: what being watched costs.
    fn behind(&mut self, side: &Side) -> Result<()> {
        let path = self.directory.join("behind");
        let backing = File::create(&path).context(&path)?;
        let begin = Instant::now();
        for _ in 0..self.times {
            backing.write_all_at(b"x", 0)?;
        }
        let time = begin.elapsed().as_secs_f64() / self.times as f64;
        self.samples
            .add("write a byte behind the mount", side.name(), time);
        Ok(())
    }

    fn table(&self, kind: FsKind, rounds: usize) -> Table {
        let title = format!("Time an operation, {} files, {}", self.times, kind.name());
        let mut table = self.samples.table(title, "operation");
        table.remark(format!(
            "Medians of {rounds}; files of 5,000 bytes on disk, mount fresh, a shared file known; in \
             parentheses the ratio to native. What opens also closes."
        ));
        let calls: Vec<_> = self
            .calls
            .iter()
            .map(|(name, calls)| format!("{name} {calls}"))
            .collect();
        if !calls.is_empty() {
            table.remark(format!(
                "FIEMAP calls of sharelens for {} operations each: {}.",
                self.times,
                calls.join(", ")
            ));
        }
        table
    }
}

/// The operations, in an order that leaves to each what it needs; `open` is a
/// file of one byte, open to read and to write.
fn operations(open: &File) -> Vec<Operation<'_>> {
    let made = |root: &Path, number: usize| root.join(format!("made{number}"));
    let moved = |root: &Path, number: usize| root.join(format!("moved{number}"));
    let folder = |root: &Path, number: usize| root.join(format!("folder{number}"));
    vec![
        (
            "lstat, first",
            Box::new(|root, n| fs::symlink_metadata(file(root, n)).map(drop)),
        ),
        (
            "lstat, again",
            Box::new(|root, n| fs::symlink_metadata(file(root, n)).map(drop)),
        ),
        (
            "lstat of a missing name",
            Box::new(move |root, n| match fs::symlink_metadata(made(root, n)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                _ => Err(io::ErrorKind::AlreadyExists.into()),
            }),
        ),
        (
            "open to read, first",
            Box::new(|root, n| File::open(file(root, n)).map(drop)),
        ),
        (
            "open to read, again",
            Box::new(|root, n| File::open(file(root, n)).map(drop)),
        ),
        (
            "read a whole file",
            Box::new(|root, n| fs::read(file(root, n)).map(drop)),
        ),
        (
            "open to write, first",
            Box::new(|root, n| write_only(&file(root, n)).map(drop)),
        ),
        (
            "open to write, again",
            Box::new(|root, n| write_only(&file(root, n)).map(drop)),
        ),
        (
            "write a byte to an open file",
            Box::new(|_, _| open.write_all_at(b"x", 0)),
        ),
        (
            "read a byte of an open file",
            Box::new(|_, _| open.read_exact_at(&mut [0], 0)),
        ),
        (
            "overwrite a block of a file",
            Box::new(|root, n| write_only(&file(root, n))?.write_all_at(&[b'y'; 4096], 0)),
        ),
        (
            "truncate",
            Box::new(|root, n| write_only(&file(root, n))?.set_len(4096)),
        ),
        (
            "chmod",
            Box::new(|root, n| {
                fs::set_permissions(file(root, n), fs::Permissions::from_mode(0o600))
            }),
        ),
        (
            "set times",
            Box::new(|root, n| {
                let time = Timespec {
                    tv_sec: 1,
                    tv_nsec: 1,
                };
                let times = Timestamps {
                    last_access: time,
                    last_modification: time,
                };
                rustix::fs::utimensat(rustix::fs::CWD, file(root, n), &times, AtFlags::empty())
                    .map_err(io::Error::from)
            }),
        ),
        (
            "create an empty file",
            Box::new(move |root, n| File::create_new(made(root, n)).map(drop)),
        ),
        (
            "rename",
            Box::new(move |root, n| fs::rename(made(root, n), moved(root, n))),
        ),
        (
            "hard link",
            Box::new(move |root, n| fs::hard_link(moved(root, n), made(root, n))),
        ),
        (
            "unlink one of two names",
            Box::new(move |root, n| fs::remove_file(made(root, n))),
        ),
        (
            "unlink an empty file",
            Box::new(move |root, n| fs::remove_file(moved(root, n))),
        ),
        (
            "create and write a file",
            Box::new(move |root, n| File::create_new(made(root, n))?.write_all(&[b'z'; 5000])),
        ),
        (
            "unlink a file",
            Box::new(move |root, n| fs::remove_file(made(root, n))),
        ),
        (
            "mkdir",
            Box::new(move |root, n| fs::create_dir(folder(root, n))),
        ),
        (
            "list an empty directory",
            Box::new(move |root, n| {
                fs::read_dir(folder(root, n)).map(|entries| entries.for_each(drop))
            }),
        ),
        (
            "rmdir",
            Box::new(move |root, n| fs::remove_dir(folder(root, n))),
        ),
        (
            "symlink",
            Box::new(move |root, n| std::os::unix::fs::symlink("target", made(root, n))),
        ),
        (
            "readlink",
            Box::new(move |root, n| fs::read_link(made(root, n)).map(drop)),
        ),
    ]
}

fn write_only(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}
