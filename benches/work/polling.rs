//! A base image with clones that are being written, polled each second: what the polling costs
//! the writers and the device.

use super::{Workload, stats};
use crate::harness::{
    Context, Image, Result, Settings, Side, Table, Tables, bytes, duration, interrupted, percentile,
};
use crate::raw::generate::{BLOCK, c_path, clone_file, write_solid};
use crate::raw::kernel::{Mapper, Writeback};
use crate::raw::scan;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(super) const WORKLOAD: Workload = Workload {
    name: "polling",
    about: "A base image with 50 clones open for write and written, every file asked about each \
            second.",
    run,
};

const CLONES: usize = 50;
const INTERVAL: Duration = Duration::from_secs(1);
/// Pause between two writes: the writers of a busy host, not the most that the disk takes.
const BETWEEN_WRITES: Duration = Duration::from_micros(500);

fn run(settings: &Settings) -> Result<Tables> {
    let size = settings.size(256 << 20, 4 << 20);
    let seconds = Duration::from_secs(settings.size(30, 2));
    let cases = [
        (Side::native(), Poll::No, "native"),
        (
            Side::native(),
            Poll::Raw,
            "native, FIEMAP with writeback of each",
        ),
        (Side::sharelens("sharelens", ""), Poll::No, "sharelens"),
        (
            Side::sharelens("sharelens", ""),
            Poll::Attribute,
            "sharelens, asked",
        ),
        (
            Side::sharelens("sharelens", "max_age=5"),
            Poll::Attribute,
            "sharelens max_age=5, asked",
        ),
    ];
    let mut tables = Tables::new();
    for kind in settings.filesystems() {
        let image = Image::create(settings, kind, 16 << 30)?;
        let head = [
            "side",
            "writes",
            "median write",
            "99th percentile",
            "longest",
            "to the device",
            "a poll of all files",
        ];
        let title = format!(
            "{CLONES} clones of {} written, {}",
            bytes(size as f64),
            kind.name()
        );
        let mut table = Table::with_head(title, &head);
        for (side, poll, name) in &cases {
            if settings.chosen(vec![side.clone()]).is_empty() {
                continue;
            }
            let directory = image.root().join("work");
            fs::create_dir(&directory)?;
            prepare(&directory, size)?;
            image.settle()?;
            let view = side.open(settings, &directory)?;
            let case = Case {
                root: view.root(),
                size,
                seconds,
            };
            let written = image.device_written()?;
            let outcome = case.run(*poll).context(*name)?;
            // What is still dirty belongs to it, whoever writes it.
            image.settle()?;
            let written = image.device_written()? - written;
            table.line(outcome.cells(name, written));
            if *poll == Poll::Attribute {
                table.remark(case.unchanged(name)?);
            }
            view.close()?;
            fs::remove_dir_all(&directory)?;
            image.settle()?;
        }
        table.remark(format!(
            "{} s each: one program holds all clones open for write and overwrites 4 KiB at random \
             places every {} us; a second asks about the base image and every clone once a second.",
            seconds.as_secs(),
            BETWEEN_WRITES.as_micros()
        ));
        tables.push(table);
    }
    Ok(tables)
}

/// How the files are polled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Poll {
    No,
    /// Writeback and FIEMAP of every file, then FIEMAP of every file again: what an exact answer
    /// takes without sharelens.
    Raw,
    Attribute,
}

fn paths(root: &Path) -> Vec<PathBuf> {
    let clones = (0..CLONES).map(|number| root.join(format!("clone{number}")));
    std::iter::once(root.join("base")).chain(clones).collect()
}

fn prepare(directory: &Path, size: u64) -> Result<()> {
    let paths = paths(directory);
    let (base, clones) = paths.split_first().ok_or("no files")?;
    write_solid(base, size)?.sync_all()?;
    clones.iter().try_for_each(|clone| clone_file(base, clone))
}

struct Case<'a> {
    root: &'a Path,
    size: u64,
    seconds: Duration,
}

/// What writers and the poller saw, in seconds.
struct Outcome {
    writes: Vec<f64>,
    polls: Vec<f64>,
}

impl Case<'_> {
    fn run(&self, poll: Poll) -> Result<Outcome> {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let poller = scope.spawn(|| self.poll(poll, &done));
            let writes = self.write();
            done.store(true, Ordering::Release);
            let polls = poller.join().map_err(|_| "the poller panicked")??;
            Result::Ok(Outcome {
                writes: writes?,
                polls,
            })
        })
    }

    fn write(&self) -> Result<Vec<f64>> {
        let files = self.open_clones()?;
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let mut writes = Vec::new();
        let begin = Instant::now();
        while begin.elapsed() < self.seconds {
            interrupted()?;
            let place = random.random_range(0..self.size / BLOCK) * BLOCK;
            let number = random.random_range(0..files.len());
            let file = files.get(number).ok_or("no such clone")?;
            let start = Instant::now();
            file.write_all_at(&[number as u8; BLOCK as usize], place)?;
            writes.push(start.elapsed().as_secs_f64());
            std::thread::sleep(BETWEEN_WRITES);
        }
        Ok(writes)
    }

    fn open_clones(&self) -> Result<Vec<File>> {
        paths(self.root)
            .iter()
            .skip(1)
            .map(|path| OpenOptions::new().write(true).open(path).context(path))
            .collect()
    }

    fn poll(&self, poll: Poll, done: &AtomicBool) -> Result<Vec<f64>> {
        let mut times = Vec::new();
        let mut next = Instant::now() + INTERVAL;
        while poll != Poll::No && !done.load(Ordering::Acquire) {
            if Instant::now() < next {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
            next += INTERVAL;
            let begin = Instant::now();
            self.ask_all(poll)?;
            times.push(begin.elapsed().as_secs_f64());
        }
        Ok(times)
    }

    fn ask_all(&self, poll: Poll) -> Result<()> {
        let mut mapper = Mapper::new();
        let passes: &[_] = match poll {
            Poll::No => &[],
            Poll::Raw => &[Writeback::First, Writeback::Leave],
            Poll::Attribute => {
                return paths(self.root)
                    .iter()
                    .try_for_each(|path| stats::ask(path, "summary").map(drop));
            }
        };
        for &writeback in passes {
            for path in paths(self.root) {
                scan::ask(&mut mapper, &c_path(&path)?, writeback)?;
            }
        }
        Ok(())
    }

    /// Polls files that are open for write but not written: how many of them were mapped again.
    fn unchanged(&self, name: &str) -> Result<String> {
        let _open = self.open_clones()?;
        // Their last changes come of age: a change time of just now proves nothing yet.
        std::thread::sleep(Duration::from_secs(2));
        for _ in 0..2 {
            self.ask_all(Poll::Attribute)?;
        }
        let before = stats::counter(self.root, "fiemap_calls")?;
        let polls = 5;
        for _ in 0..polls {
            self.ask_all(Poll::Attribute)?;
        }
        let calls = stats::counter(self.root, "fiemap_calls")? - before;
        Ok(format!(
            "{name}: {polls} polls of all {} files, open for write but unchanged, took {calls} \
             FIEMAP calls.",
            CLONES + 1
        ))
    }
}

impl Outcome {
    fn cells(&self, name: &str, to_device: u64) -> Vec<String> {
        let write = |percent| percentile(&self.writes, percent).map_or("-".to_owned(), duration);
        vec![
            name.to_owned(),
            self.writes.len().to_string(),
            write(50.0),
            write(99.0),
            write(100.0),
            bytes(to_device as f64),
            percentile(&self.polls, 50.0).map_or("-".to_owned(), duration),
        ]
    }
}
