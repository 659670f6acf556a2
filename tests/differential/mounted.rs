//! Through a real mount: one thread, every answer's truth taken after it.

use crate::answer::Mount;
use crate::common::{Image, Mounted};
use crate::generate::Style;
use crate::history::{Failure, History, Report, Runner, prepare};
use crate::images::{Kind, Source, image};
use crate::settings::Settings;
use crate::shrink::shrink;
use crate::truth::Oracle;
use crate::watchdog::Watchdog;
use crate::world::World;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How the mount does its I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    Passthrough,
    Cached,
}

impl Io {
    pub fn option(self) -> &'static str {
        match self {
            Self::Passthrough => "io=passthrough",
            Self::Cached => "io=cached",
        }
    }
}

/// How a history is mounted.
#[derive(Clone, Debug)]
pub struct Mounting {
    pub io: Io,
    /// Mount options beside the I/O mode.
    pub options: String,
    /// A deliberate fault of the engine (cargo feature `faults`).
    pub fault: &'static str,
}

impl Mounting {
    /// Now and then with hardly any room for what was learnt.
    pub fn drawn(io: Io, seed: u64) -> Self {
        let options = match seed % 3 {
            0 => "cache_size=4096".to_owned(),
            _ => String::new(),
        };
        Self {
            io,
            options,
            fault: "",
        }
    }

    pub fn mount(&self, back: &Path, front: &Path) -> Mounted {
        Mounted::at(back, front)
            .options(self.io.option())
            .options(&self.options)
            .env("SHARELENS_FAULT", self.fault)
            .mount()
    }
}

/// Runs one history through a mount of its own, in a fresh directory of the image.
pub fn run(
    image: &Image,
    mounting: &Mounting,
    seed: u64,
    history: &History,
) -> (Report, Result<(), Failure>) {
    let source = Source::on(image);
    let point = tempfile::tempdir().unwrap();
    let (back, front) = (source.path(), point.path());
    prepare(back, &history.before, seed).unwrap();
    let mounted = mounting.mount(back, front);
    let watchdog = Arc::new(Watchdog::of(front));
    let sync_stores = mounting.io == Io::Cached;
    let mut runner = Runner {
        mount: World::new(front, back, sync_stores, seed + 1),
        behind: World::new(back, back, false, seed + 2),
        oracle: Oracle::new(back).unwrap(),
        teller: &mut Mount,
        watchdog: Some(watchdog),
        shared_names: history.works_behind(),
        report: Report::default(),
    };
    let mut result = runner.run(&history.steps);
    if result.is_ok() {
        result = runner
            .finish(front, back)
            .map_err(|reason| Failure::at_end(&history.steps, reason));
    }
    let report = std::mem::take(&mut runner.report);
    drop(runner);
    let status = mounted.unmount();
    assert!(status.success(), "the daemon ended with {status}");
    (report, result)
}

/// Runs a history and, when it fails, says all that is needed to see it again.
pub fn check(image: &Image, kind: Kind, io: Io, seed: u64, style: Style, steps: usize) -> Report {
    let history = History::drawn(seed, style, steps);
    let mounting = Mounting::drawn(io, seed);
    let (report, result) = run(image, &mounting, seed, &history);
    if let Err(failure) = result {
        let time = Settings::get().shrink;
        let shrunk = time.map(|time| smaller(image, &mounting, seed, &history, time));
        panic!(
            "{failure}\n{}\nagain: FS={kind:?} IO={io:?} SEED={seed} STEPS={steps} BEHIND={} TREES={} SHRINK=60 \
             cargo test --test differential -- --ignored --nocapture replay",
            shrunk.unwrap_or_default(),
            style.behind,
            u8::from(style.trees),
        );
    }
    report
}

fn smaller(
    image: &Image,
    mounting: &Mounting,
    seed: u64,
    history: &History,
    time: Duration,
) -> String {
    // A race may need a second try to show again.
    let fails = |history: &History| (0..2).any(|_| run(image, mounting, seed, history).1.is_err());
    let history = shrink(history, time, fails);
    let (_, result) = run(image, mounting, seed, &history);
    let before = &history.before;
    match result {
        Err(failure) => format!("\nshrunk to, before the mount {before:#?}\nand then {failure}"),
        Ok(()) => "\nthe shrunk history does not fail any more".to_owned(),
    }
}

/// At least 5,000 operations on one filesystem in one I/O mode.
fn exact(kind: Kind, io: Io) {
    let Some(image) = image(kind) else {
        return;
    };
    let mut total = Report::default();
    for seed in 0..10 {
        let style = Style {
            trees: seed % 2 == 0,
            ..Style::drawn(seed)
        };
        total.add(&check(&image, kind, io, seed, style, 600));
    }
    println!("{kind:?} {io:?}: {total}, none stale");
    total.tally.assert_all_worked();
    assert!(total.sharing * 3 > total.checked, "few files share");
}

#[test]
fn exact_on_xfs_with_passthrough() {
    exact(Kind::Xfs, Io::Passthrough);
}

#[test]
fn exact_on_xfs_cached() {
    exact(Kind::Xfs, Io::Cached);
}

#[test]
fn exact_on_btrfs_with_passthrough() {
    exact(Kind::Btrfs, Io::Passthrough);
}

#[test]
fn exact_on_btrfs_cached() {
    exact(Kind::Btrfs, Io::Cached);
}

#[test]
fn exact_on_compressed_btrfs_with_passthrough() {
    exact(Kind::BtrfsCompressed, Io::Passthrough);
}

#[test]
fn exact_on_compressed_btrfs_cached() {
    exact(Kind::BtrfsCompressed, Io::Cached);
}

/// One history, chosen by the environment.
#[test]
#[ignore = "runs the history named by FS, IO, SEED and STEPS"]
fn replay() {
    let settings = Settings::get();
    let image = image(settings.kind()).unwrap();
    let style = settings.style(settings.seed);
    let (kind, io) = (settings.kind(), settings.io());
    let report = check(&image, kind, io, settings.seed, style, settings.steps);
    println!("{report}, none stale");
}

/// Fresh seeds on every filesystem and in both I/O modes, for SECONDS.
#[test]
#[ignore = "runs for SECONDS (default 60)"]
fn soak() {
    let settings = Settings::get();
    let kinds = settings.kinds.clone();
    let images: Vec<_> = kinds
        .iter()
        .map(|kind| (*kind, image(*kind).unwrap()))
        .collect();
    let mut seed = settings.seed;
    let mut total = Report::default();
    while settings.started.elapsed() < settings.seconds {
        for (kind, image) in &images {
            for io in &settings.ios {
                let style = settings.style(seed);
                println!("{kind:?} {io:?} SEED={seed} STEPS={}", settings.steps);
                total.add(&check(image, *kind, *io, seed, style, settings.steps));
            }
        }
        seed += 1;
    }
    println!("{total}, none stale");
}
