//! Clone of a big file that is dirty or being written (W3): what else waits for it.

use super::Workload;
use super::attribute;
use crate::harness::{
    Context, Image, Result, Settings, Side, Table, Tables, bytes, duration, median,
};
use crate::raw::generate::{BLOCK, c_path, write_solid};
use crate::raw::kernel::{Mapper, Writeback};
use crate::raw::scan;
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

pub(super) const WORKLOAD: Workload = Workload {
    name: "busy_clone",
    about: "Cloning a big file just written and still dirty: how long its readers, other files \
            and questions wait, and what the device writes.",
    run,
};

const SOURCE: &str = "source";
const CLONE: &str = "clone";
const OTHER: &str = "other";
/// The watchers begin this long after the clone.
const HEAD_START: Duration = Duration::from_millis(100);
/// Pause between two looks of a watcher.
const PAUSE: Duration = Duration::from_millis(5);

fn run(settings: &Settings) -> Result<Tables> {
    let size = settings.size(4 << 30, 64 << 20);
    let rounds = settings.rounds_or(3);
    let sides = settings.chosen(vec![Side::native(), Side::sharelens("sharelens", "")]);
    let mut tables = Tables::new();
    for kind in settings.filesystems() {
        let image = Image::create(settings, kind, 3 * size + (2 << 30))?;
        let directory = image.root().join("work");
        fs::create_dir(&directory)?;
        let mut table = Table::with_head(
            format!(
                "Clone of a dirty file of {}, {}",
                bytes(size as f64),
                kind.name()
            ),
            &[
                "side",
                "writer",
                "clone",
                "direct read of it, longest",
                "read of another, longest",
                "question about it, longest",
                "question about the clone, longest",
                "question about another, longest",
                "device writes",
            ],
        );
        for with_writer in [false, true] {
            for side in &sides {
                let mut outcomes = Vec::new();
                for _ in 0..rounds {
                    let view = side.open(settings, &directory)?;
                    let outcome = Case {
                        image: &image,
                        root: view.root(),
                        native: side.is_native(),
                        size,
                        with_writer,
                    }
                    .run()
                    .context(side.name())?;
                    outcomes.push(outcome);
                    view.close()?;
                    for name in [SOURCE, CLONE, OTHER] {
                        fs::remove_file(directory.join(name)).context(name)?;
                    }
                    image.settle()?;
                }
                let writer = if with_writer { "yes" } else { "no" };
                let mut cells = vec![side.name().to_owned(), writer.to_owned()];
                for part in 0..outcomes.first().map_or(0, Vec::len) {
                    let values: Vec<_> = outcomes
                        .iter()
                        .filter_map(|o| o.get(part).copied())
                        .collect();
                    let value = median(&values).unwrap_or_default();
                    let is_last = part + 1 == outcomes.first().map_or(0, Vec::len);
                    cells.push(if is_last {
                        bytes(value)
                    } else {
                        duration(value)
                    });
                }
                table.line(cells);
            }
        }
        table.remark(format!(
            "Medians of {rounds}. The file is written, then cloned at once (native: FICLONE, \
             sharelens: copy_file_range); {} ms later each kind of request is made again and \
             again until the clone is done, at least once. The writer overwrites blocks of the \
             file all the time. A question is open, FIEMAP with writeback and close natively, \
             getxattr on sharelens. Device writes count until everything is on disk, the writing \
             of the file itself included.",
            HEAD_START.as_millis()
        ));
        tables.push(table);
    }
    Ok(tables)
}

struct Case<'a> {
    image: &'a Image,
    root: &'a Path,
    native: bool,
    size: u64,
    with_writer: bool,
}

impl Case<'_> {
    /// Seconds of each column, then the bytes written to the device.
    fn run(&self) -> Result<Vec<f64>> {
        let other = self.root.join(OTHER);
        write_solid(&other, 1 << 20)?.sync_all()?;
        self.image.settle()?;
        let written = self.image.device_written()?;
        drop(write_solid(&self.root.join(SOURCE), self.size)?);
        let done = AtomicBool::new(false);
        let source = self.root.join(SOURCE);
        let copy = self.root.join(CLONE);
        File::create(&copy).context(&copy)?;
        let mut outcome = std::thread::scope(|scope| {
            let writer = self
                .with_writer
                .then(|| scope.spawn(|| self.keep_dirty(&done)));
            let watchers = [
                watch(scope, &done, || read_direct(&source)),
                watch(scope, &done, || read_some(&other)),
                watch(scope, &done, || self.question(&source)),
                watch(scope, &done, || self.question(&copy)),
                watch(scope, &done, || self.question(&other)),
            ];
            let begin = Instant::now();
            let cloned = self.clone(&source, &copy);
            let mut outcome = vec![begin.elapsed().as_secs_f64()];
            done.store(true, Ordering::Release);
            for watcher in watchers {
                outcome.push(watcher.join().map_err(|_| "a watcher panicked")??);
            }
            if let Some(writer) = writer {
                writer.join().map_err(|_| "the writer panicked")??;
            }
            cloned?;
            Result::Ok(outcome)
        })?;
        self.image.settle()?;
        outcome.push((self.image.device_written()? - written) as f64);
        Ok(outcome)
    }

    fn clone(&self, source: &Path, copy: &Path) -> Result<()> {
        let from = File::open(source).context(source)?;
        let to = OpenOptions::new().write(true).open(copy).context(copy)?;
        if self.native {
            return rustix::fs::ioctl_ficlone(&to, &from).context(copy);
        }
        let (mut read, mut written) = (0, 0);
        while written < self.size {
            let left = (self.size - written) as usize;
            let step =
                rustix::fs::copy_file_range(&from, Some(&mut read), &to, Some(&mut written), left)
                    .context(copy)?;
            if step == 0 {
                return Err("the source ended early".into());
            }
        }
        Ok(())
    }

    /// Overwrites block after block of the source until the clone is done.
    fn keep_dirty(&self, done: &AtomicBool) -> Result<()> {
        let path = self.root.join(SOURCE);
        let file = OpenOptions::new().write(true).open(&path).context(&path)?;
        let blocks = self.size / BLOCK;
        let mut block = 0;
        while !done.load(Ordering::Acquire) {
            // A stride without a common factor with a power of two reaches every block.
            block = (block + 7919) % blocks;
            file.write_all_at(&[1; BLOCK as usize], block * BLOCK)
                .context(&path)?;
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    fn question(&self, path: &Path) -> Result<()> {
        let path = c_path(path)?;
        if self.native {
            return scan::ask(&mut Mapper::new(), &path, Writeback::First).map(drop);
        }
        let name = attribute("shared_bytes");
        match rustix::fs::getxattr(&path, name.as_str(), &mut [0; 64][..]) {
            // The bound on waiting is an answer too, and its time is what was waited.
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(error) => Err(error).context(path.to_string_lossy()),
        }
    }
}

/// Starts a thread that makes `request` until `done`, at least once; the longest time it took.
fn watch<'scope, 'env, F>(
    scope: &'scope Scope<'scope, 'env>,
    done: &'scope AtomicBool,
    request: F,
) -> ScopedJoinHandle<'scope, Result<f64>>
where
    F: Fn() -> Result<()> + Send + 'scope,
{
    scope.spawn(move || {
        std::thread::sleep(HEAD_START);
        let mut longest = Duration::ZERO;
        loop {
            let begin = Instant::now();
            request()?;
            longest = longest.max(begin.elapsed());
            if done.load(Ordering::Acquire) {
                return Ok(longest.as_secs_f64());
            }
            std::thread::sleep(PAUSE);
        }
    })
}

/// Reads a block past the page cache.
fn read_direct(path: &Path) -> Result<()> {
    /// Direct reads want memory aligned to the block.
    #[repr(align(4096))]
    struct Aligned([u8; BLOCK as usize]);
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).context(path)?;
    let mut block = Aligned([0; BLOCK as usize]);
    File::from(file).read_exact(&mut block.0).context(path)
}

fn read_some(path: &Path) -> Result<()> {
    let file = File::open(path).context(path)?;
    let mut limited = file.take(BLOCK);
    io::copy(&mut limited, &mut io::sink()).context(path)?;
    Ok(())
}
