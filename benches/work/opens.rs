//! Opens for write that must not wait, against constant questions about the same files.

use super::{Workload, attribute};
use crate::harness::{
    Context, Image, Result, Settings, Side, Table, Tables, View, duration, interrupted, percentile,
};
use crate::raw::generate::{Tree, clone_tree};
use crate::raw::kernel::{Mapper, Writeback};
use crate::raw::scan;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) const WORKLOAD: Workload = Workload {
    name: "opens",
    about: "Opens for write with O_NONBLOCK, while the same files are asked about all the time: \
            none may fail with EAGAIN or take more than 10 ms.",
    run,
};

const FILES: usize = 64;
const LIMIT: Duration = Duration::from_millis(10);

fn run(settings: &Settings) -> Result<Tables> {
    let opens = settings.size(1_000_000, 2000);
    let sides = settings.chosen(vec![
        Side::native(),
        Side::sharelens("sharelens", "io=auto"),
        Side::sharelens("sharelens io=cached", "io=cached"),
    ]);
    let mut tables = Tables::new();
    for kind in settings.filesystems() {
        let image = Image::create(settings, kind, 4 << 30)?;
        let source = image.root().join("tree");
        Tree::of_small_files(FILES).write(&source)?;
        clone_tree(&source, &image.root().join("copy"))?;
        image.settle()?;
        let head = [
            "side",
            "opens",
            "EAGAIN",
            "over 10 ms",
            "median",
            "99.9th percentile",
            "longest",
            "questions meanwhile",
        ];
        let title = format!("Opens for write of {FILES} files, {}", kind.name());
        let mut table = Table::with_head(title, &head);
        for side in &sides {
            let mut view = side.open(settings, &source)?;
            let outcome = turn(&view, side.is_native(), opens).context(side.name())?;
            check_alive(&mut view)?;
            table.line(outcome.cells(side.name()));
            view.close()?;
        }
        table.remark(
            "One thread opens and closes, one asks (native: open, FIEMAP with writeback, close; \
             sharelens: getxattr); what is longest natively is the machine's. After it the daemon \
             was alive and answered.",
        );
        tables.push(table);
    }
    Ok(tables)
}

fn check_alive(view: &mut View) -> Result<()> {
    std::fs::metadata(view.root()).context(view.root())?;
    if view.daemon().is_some_and(|daemon| !daemon.is_alive()) {
        return Err("the daemon has ended".into());
    }
    Ok(())
}

struct Outcome {
    times: Vec<f64>,
    refused: u64,
    questions: u64,
}

fn turn(view: &View, native: bool, opens: usize) -> Result<Outcome> {
    let paths = Tree::of_small_files(FILES).paths(view.root())?;
    for path in &paths {
        question(&mut Mapper::new(), path, native)?;
    }
    let done = AtomicBool::new(false);
    let questions = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| {
            let mut mapper = Mapper::new();
            for path in paths.iter().cycle() {
                if done.load(Ordering::Acquire) {
                    break;
                }
                question(&mut mapper, path, native)?;
                questions.fetch_add(1, Ordering::Relaxed);
            }
            Result::Ok(())
        });
        let mut times = Vec::with_capacity(opens);
        let mut refused = 0;
        let mut open_all = || {
            let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            for (number, path) in paths.iter().cycle().take(opens).enumerate() {
                if number.is_multiple_of(1000) {
                    interrupted()?;
                }
                let begin = Instant::now();
                let opened = rustix::fs::open(path, flags, Mode::empty());
                times.push(begin.elapsed().as_secs_f64());
                match opened {
                    Ok(file) => drop(file),
                    Err(Errno::AGAIN) => refused += 1,
                    Err(error) => return Err(error).context(path.to_string_lossy()),
                }
            }
            Ok(())
        };
        let opened = open_all();
        done.store(true, Ordering::Release);
        asker.join().map_err(|_| "the asking thread panicked")??;
        opened?;
        Result::Ok(Outcome {
            times,
            refused,
            questions: questions.load(Ordering::Relaxed),
        })
    })
}

fn question(mapper: &mut Mapper, path: &CStr, native: bool) -> Result<()> {
    if native {
        return scan::ask(mapper, path, Writeback::First).map(drop);
    }
    let name = attribute("shared_bytes");
    match rustix::fs::getxattr(path, name.as_str(), &mut [0; 64][..]) {
        Ok(_) => Ok(()),
        Err(error) => Err(error).context(path.to_string_lossy()),
    }
}

impl Outcome {
    fn cells(&self, name: &str) -> Vec<String> {
        let time = |percent| percentile(&self.times, percent).map_or("-".to_owned(), duration);
        let limit = LIMIT.as_secs_f64();
        let slow = self.times.iter().filter(|&&time| time > limit).count();
        vec![
            name.to_owned(),
            self.times.len().to_string(),
            self.refused.to_string(),
            slow.to_string(),
            time(50.0),
            time(99.9),
            time(100.0),
            self.questions.to_string(),
        ]
    }
}
