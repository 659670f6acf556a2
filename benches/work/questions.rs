//! One question after the other about many files: getxattr and lstat by 1, 2 and 8 threads.

use super::{Workload, attribute};
use crate::constant::ANSWER;
use crate::harness::{
    Context, FsKind, Image, Result, Samples, Settings, Side, Tables, View, duration, pin, ratio,
};
use crate::raw::generate::{Tree, clone_tree};
use crate::raw::kernel::Writeback;
use crate::raw::scan::scan;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use rustix::fs::XattrFlags;
use std::ffi::{CStr, CString};
use std::time::{Duration, Instant};

pub(super) const WORKLOAD: Workload = Workload {
    name: "questions",
    about: "getxattr and lstat over many files, beside a constant answer over the same transport.",
    run,
};

const THREADS: [usize; 3] = [1, 2, 8];
const REAL_ATTRIBUTE: &str = "user.bench";
const CONSTANT: &str = "constant answer";

fn run(settings: &Settings) -> Result<Tables> {
    let tree = Tree {
        files: settings.size(100_000, 2000),
        largest: 4,
    };
    let rounds = settings.rounds_or(5);
    let mut sides = vec![
        Side::native(),
        Side::constant(tree.files),
        Side::sharelens("sharelens", "io=auto"),
        Side::bindfs(),
    ];
    sides.extend(Side::others(settings));
    let sides = settings.chosen(sides);
    let mut tables = Tables::new();
    for kind in settings.filesystems() {
        let image = Image::create(settings, kind, 12 << 30)?;
        let source = image.root().join("tree");
        tree.write(&source)?;
        clone_tree(&source, &image.root().join("copy"))?;
        for path in tree.paths(&source)? {
            rustix::fs::setxattr(&path, REAL_ATTRIBUTE, ANSWER, XattrFlags::empty())
                .context(path.to_string_lossy())?;
        }
        image.settle()?;
        let mut samples = Samples::default();
        for _ in 0..rounds {
            for side in &sides {
                let mut view = side.open(settings, &source)?;
                turn(side, &mut view, &tree, &mut samples).context(side.name())?;
                view.close()?;
            }
        }
        tables.push(table(&samples, kind, &tree, rounds));
    }
    Ok(tables)
}

/// One side's turn: everything once to warm up, then timed.
fn turn(side: &Side, view: &mut View, tree: &Tree, samples: &mut Samples) -> Result<()> {
    let paths = tree.paths(view.root())?;
    let mut add = |line: String, time: Duration| {
        samples.add(&line, side.name(), time.as_secs_f64() / paths.len() as f64);
    };
    if side.is_native() {
        for threads in THREADS {
            scan(&paths, threads, Writeback::Leave)?;
            let scan = scan(&paths, threads, Writeback::Leave)?;
            add(line("sharing of a file", threads), scan.time);
        }
    }
    let shared_bytes = attribute("shared_bytes");
    let names = [
        ("sharing of a file", shared_bytes.as_str(), side.answers()),
        ("getxattr of a real attribute", REAL_ATTRIBUTE, true),
    ];
    for (what, name, _) in names.into_iter().filter(|&(.., applies)| applies) {
        let question = |path: &CStr| {
            let mut buffer = [0; 64];
            rustix::fs::getxattr(path, name, &mut buffer[..]).map(drop)
        };
        ask_all(&paths, 1, question)?;
        for threads in THREADS {
            add(line(what, threads), ask_all(&paths, threads, question)?);
        }
        if let Some(time) = on_one_processor(view, || ask_all(&paths, 1, question))? {
            add(format!("{what}, 1 thread on the daemon's processor"), time);
        }
    }
    let question = |path: &CStr| rustix::fs::lstat(path).map(drop);
    ask_all(&paths, 1, question)?;
    for threads in THREADS {
        add(line("lstat", threads), ask_all(&paths, threads, question)?);
    }
    Ok(())
}

fn line(what: &str, threads: usize) -> String {
    format!(
        "{what}, {threads} thread{}",
        if threads == 1 { "" } else { "s" }
    )
}

/// Time for `question` about each of `paths`, in equal parts by `threads` threads.
fn ask_all(
    paths: &[CString],
    threads: usize,
    question: impl Fn(&CStr) -> rustix::io::Result<()> + Sync,
) -> Result<Duration> {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let question = &question;
        let workers: Vec<_> = paths
            .chunks(paths.len().div_ceil(threads))
            .map(|part| {
                scope.spawn(move || {
                    part.iter()
                        .try_for_each(|path| question(path).context(path.to_string_lossy()))
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "an asking thread panicked")?)
    })?;
    Ok(begin.elapsed())
}

/// `work` with this thread and the daemon bound to one processor; `None` without a daemon.
fn on_one_processor(
    view: &mut View,
    work: impl FnOnce() -> Result<Duration>,
) -> Result<Option<Duration>> {
    let Some(daemon) = view.daemon() else {
        return Ok(None);
    };
    let this = Pid::from_raw(0);
    let before: CpuSet = sched_getaffinity(this)?;
    let first = (0..CpuSet::count()).find(|&place| before.is_set(place) == Ok(true));
    daemon.pin(&[first.ok_or("no processor is permitted")?])?;
    pin(this, &[first.unwrap_or_default()])?;
    let time = work();
    sched_setaffinity(this, &before)?;
    let all: Vec<_> = (0..CpuSet::count())
        .filter(|&place| before.is_set(place) == Ok(true))
        .collect();
    daemon.pin(&all)?;
    time.map(Some)
}

fn table(samples: &Samples, kind: FsKind, tree: &Tree, rounds: usize) -> crate::harness::Table {
    let title = format!("Time a question, {} files, {}", tree.files, kind.name());
    let mut table = samples.table(title, "question");
    table.remark(format!(
        "Medians of {rounds}, everything asked once before; in parentheses the ratio to native. \
         \"Sharing of a file\" is open, FIEMAP and close natively, user.reflink.shared_bytes on \
         sharelens, and an answer of the same length that needs no work from a filesystem with \
         as many threads as processors and device descriptors of their own (constant answer)."
    ));
    for line in samples.lines() {
        if let (Some(ours), Some(constant)) = (
            samples.median(line, "sharelens"),
            samples.median(line, CONSTANT),
        ) && line.starts_with("sharing")
        {
            table.remark(format!(
                "{line}: sharelens {} of the constant answer ({:+.2} us), {} a call.",
                ratio(ours / constant),
                (ours - constant) * 1e6,
                duration(ours),
            ));
        }
    }
    table
}
