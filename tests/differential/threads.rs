//! Through a real mount: several threads at work on the same files, and every answer compared at
//! barriers, when nobody changes anything.

use crate::answer::{Mount, Teller, judge};
use crate::contents;
use crate::generate::{Generator, Style};
use crate::history::prepare;
use crate::images::{Kind, Source, image};
use crate::kernel::Of;
use crate::mounted::{Io, Mounting};
use crate::op::{About, FILES, Step, What, Who};
use crate::settings::Settings;
use crate::truth::{Oracle, Which};
use crate::watchdog::Watchdog;
use crate::world::{Tally, World};
use std::io;
use std::path::Path;
use std::sync::{Barrier, Mutex};

const THREADS: usize = 4;
/// Steps of each thread between two barriers.
const ROUND: usize = 25;

/// What all threads share.
struct Shared<'a> {
    front: &'a Path,
    back: &'a Path,
    io: Io,
    barrier: Barrier,
    watchdog: Watchdog,
    /// The first thing that went wrong.
    failure: Mutex<Option<String>>,
}

impl Shared<'_> {
    fn fail(&self, reason: String) {
        self.failure.lock().unwrap().get_or_insert(reason);
    }

    fn failed(&self) -> bool {
        self.failure.lock().unwrap().is_some()
    }
}

/// One history of `rounds` rounds; returns what was done and how many answers were compared.
fn run(kind: Kind, io: Io, seed: u64, rounds: usize) -> (Tally, u64) {
    let Some(image) = image(kind) else {
        return Default::default();
    };
    let source = Source::on(&image);
    let point = tempfile::tempdir().unwrap();
    let (back, front) = (source.path(), point.path());
    let mut generator = Generator::new(seed, style(seed));
    prepare(back, &generator.beginning(), seed).unwrap();
    let mounted = Mounting::drawn(io, seed).mount(back, front);
    let shared = Shared {
        front,
        back,
        io,
        barrier: Barrier::new(THREADS),
        watchdog: Watchdog::of(front),
        failure: Mutex::new(None),
    };
    let mut tally = Tally::default();
    let mut checked = 0;
    std::thread::scope(|scope| {
        let shared = &shared;
        let workers = (0..THREADS as u64)
            .map(|number| scope.spawn(move || work(shared, seed, number, rounds)));
        for worker in workers.collect::<Vec<_>>() {
            let (done, compared) = worker.join().unwrap();
            tally.add(&done);
            checked += compared;
        }
    });
    let failure = shared.failure.into_inner().unwrap();
    let end = failure.map_or_else(|| contents::compare(front, back), Err);
    if let Err(reason) = end {
        panic!("{kind:?} {io:?} seed {seed}: {reason}");
    }
    assert!(mounted.unmount().success());
    (tally, checked)
}

fn style(seed: u64) -> Style {
    Style {
        questions: [10, 30, 60][(seed % 3) as usize],
        checked: 0,
        behind: 0,
        handles: true,
        trees: false,
        snapshots: false,
        untold: 0,
    }
}

/// What one thread does.
fn work(shared: &Shared<'_>, seed: u64, number: u64, rounds: usize) -> (Tally, u64) {
    let seed = seed * 100 + number;
    let mut generator = Generator::new(seed, style(seed));
    let sync_stores = shared.io == Io::Cached;
    let mut world = World::new(shared.front, shared.back, sync_stores, seed);
    let mut checked = 0;
    for round in 0..rounds {
        let mut past = Vec::new();
        for _ in 0..ROUND {
            let step = generator.step();
            past.push(step);
            if let Err(reason) = act(&mut world, &step) {
                shared.fail(format!("thread {number}, round {round}: {reason}"));
            }
            shared.watchdog.moved();
        }
        if let Err(reason) = world.sync_mappings() {
            shared.fail(reason);
        }
        shared.barrier.wait();
        if number == 0 && !shared.failed() {
            match compare(shared, &world) {
                Ok(compared) => checked += compared,
                Err(reason) => shared.fail(format!("round {round}: {reason}")),
            }
            shared.watchdog.moved();
        }
        shared.barrier.wait();
        if shared.failed() {
            println!("thread {number}, the steps of round {round}: {past:#?}");
            break;
        }
    }
    world.close_all();
    (world.tally, checked)
}

fn act(world: &mut World, step: &Step) -> Result<(), String> {
    let (path, what, handle) = match *step {
        Step::Act(Who::Mount | Who::Behind, op) => return world.act(&op),
        Step::Ask {
            about: About::Handle(handle),
            what,
            ..
        } => (None, what, Some(handle)),
        Step::Ask {
            about: About::File(file),
            what,
            ..
        } => (Some(world.path(file)), what, None),
        Step::Ask {
            about: About::All | About::Tree(_),
            what,
            ..
        } => (Some(world.path(0)), what, None),
    };
    let ask = || match (&path, handle.and_then(|handle| world.open(handle))) {
        (Some(path), _) => Mount.tell(&Of::Path(path), Which::Name(path), what),
        (None, Some(open)) => Mount.tell(&Of::File(&open.file), Which::Handle(&open.handle), what),
        (None, None) => Err(io::Error::from_raw_os_error(libc::ENOENT)),
    };
    let mut answer = ask();
    // The file that a name led to may be gone before it is asked. The kernel tries the name once
    // more by itself; with others at work the second file may be gone as well.
    for _ in 0..3 {
        if path.is_none() || !is_stale_handle(&answer) {
            break;
        }
        answer = ask();
    }
    match answer {
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => {
            Err(format!("{step:?}: {error}"))
        }
        _ => Ok(()),
    }
}

fn is_stale_handle(answer: &io::Result<Vec<u8>>) -> bool {
    matches!(answer, Err(error) if error.raw_os_error() == Some(libc::ESTALE))
}

/// Asks about every file, then settles and compares, while the other threads wait.
fn compare(shared: &Shared<'_>, world: &World) -> Result<u64, String> {
    let oracle = Oracle::new(shared.back).map_err(|error| error.to_string())?;
    let answers: Vec<_> = (0..FILES)
        .map(|file| {
            let name = World::name(file);
            let path = world.path(file);
            let answer = Mount.tell(&Of::Path(&path), Which::Name(&name), What::Text);
            (name, answer)
        })
        .collect();
    oracle.settle();
    let mut compared = 0;
    for (name, answer) in answers {
        let truth = oracle.look(Which::Name(&name));
        compared += u64::from(truth.is_ok());
        judge(What::Text, false, &answer, &truth)
            .map_err(|reason| format!("{}: {reason}", name.display()))?;
    }
    Ok(compared)
}

fn exact(kind: Kind, io: Io) {
    let (mut tally, mut checked) = (Tally::default(), 0);
    for seed in 0..3 {
        let (done, compared) = run(kind, io, seed, 30);
        tally.add(&done);
        checked += compared;
    }
    println!(
        "{kind:?} {io:?}, {THREADS} threads: {} operations, {checked} answers compared, none stale",
        tally.operations()
    );
}

#[test]
fn threads_on_xfs_with_passthrough() {
    exact(Kind::Xfs, Io::Passthrough);
}

#[test]
fn threads_on_xfs_cached() {
    exact(Kind::Xfs, Io::Cached);
}

#[test]
fn threads_on_btrfs_with_passthrough() {
    exact(Kind::Btrfs, Io::Passthrough);
}

#[test]
fn threads_on_btrfs_cached() {
    exact(Kind::Btrfs, Io::Cached);
}

/// Fresh seeds on every filesystem and in both I/O modes, for SECONDS.
#[test]
#[ignore = "runs for SECONDS (default 60)"]
fn soak_threads() {
    let settings = Settings::get();
    let mut seed = settings.seed;
    while settings.started.elapsed() < settings.seconds {
        for kind in &settings.kinds {
            for io in &settings.ios {
                println!("{kind:?} {io:?} SEED={seed}");
                run(*kind, *io, seed, settings.steps.div_ceil(ROUND));
            }
        }
        seed += 1;
    }
}
