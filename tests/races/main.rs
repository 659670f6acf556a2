//! Questions against changes, with the schedule of the threads varied by a concurrency checker:
//! every lock, every wait and every call to the simulated disk is a point where another thread
//! may go on. An answer has to be the truth of a moment between question and answer.
#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

#[path = "../model/sim.rs"]
mod sim;
#[path = "../model/world.rs"]
mod world;

use sharelens::extent::Bytes;
use sharelens::sharing::{AskError, Change, Engine, Event, FileKey, Limits};
use sim::{Abilities, Sim};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use world::World;

/// Schedules tried for each race; `RACES` sets another number.
fn schedules() -> usize {
    std::env::var("RACES")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(100)
}

/// A source `a` of eight blocks, its clones `b` and `c`, and `d` that shares nothing.
struct Stage {
    engine: Arc<Engine<Sim>>,
    files: [u64; 4],
    keys: [FileKey; 4],
    /// Up to when changes have returned to their callers.
    returned: AtomicU64,
}

impl Stage {
    fn new(cache_size: u64, by_item: bool) -> Arc<Self> {
        let abilities = Abilities {
            by_item,
            items_readable: true,
            watches: true,
            may_flush: true,
            may_test_leases: true,
        };
        let sim = Sim::recording(abilities, shuttle::thread::yield_now);
        let files = sim.call(|world| {
            let [a, b, c, d] = [(); 4].map(|()| world.create());
            world.write(a, 0, 8);
            world.clone_range(a, b, 0, 0, 4);
            world.clone_range(a, c, 2, 2, 6);
            world.write(d, 0, 4);
            [a, b, c, d]
        });
        let keys = files.map(|ino| sim.look().key(ino));
        let limits = Limits {
            cache_size: Bytes(cache_size),
            ..Limits::default()
        };
        let engine = Engine::new(sim, limits);
        engine.start().unwrap();
        Arc::new(Self {
            engine,
            files,
            keys,
            returned: AtomicU64::new(0),
        })
    }

    fn sim(&self) -> &Sim {
        self.engine.backing()
    }

    fn key(&self, file: usize) -> FileKey {
        self.keys[file]
    }

    fn has_returned(&self) {
        let clock = self.sim().look().clock;
        self.returned.store(clock, Ordering::SeqCst);
    }

    fn change(&self, change: Change, call: impl FnOnce(&mut World)) {
        let guard = self.engine.begin(change);
        self.sim().call(call);
        drop(guard);
        self.has_returned();
    }

    /// What a program does through kernel passthrough.
    fn unseen(&self, file: usize, call: impl FnOnce(&mut World)) {
        self.sim().call(call);
        self.sim().report(Event::Modified(self.key(file)));
        self.has_returned();
    }

    fn open(&self, file: usize) {
        let ino = self.files[file];
        let change = Change::OpenForWrite {
            file: self.key(file),
            direct: false,
        };
        self.change(change, |world| world.open_for_write(ino));
    }

    fn close(&self, file: usize) {
        let ino = self.files[file];
        let change = Change::CloseForWrite {
            file: self.key(file),
            direct: false,
        };
        self.change(change, |world| {
            world.close_for_write(ino);
        });
    }

    fn unlink(&self, file: usize) {
        let ino = self.files[file];
        let change = Change::Unname {
            file: self.key(file),
            last: true,
        };
        self.change(change, |world| {
            world.unlink(ino);
        });
    }

    fn truncate(&self, file: usize, size: u64) {
        let ino = self.files[file];
        self.change(Change::Truncate(self.key(file)), |world| {
            world.truncate(ino, size);
        });
    }

    /// Asks and compares with every moment of the question.
    fn ask(&self, file: usize) {
        let returned = self.returned.load(Ordering::SeqCst);
        let moment = self.sim().moment();
        let answer = match self.engine.summary(self.key(file)) {
            Ok(answer) => answer,
            Err(AskError::Gone) => {
                assert!(self.sim().look().find(self.key(file)).is_none());
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let ino = self.files[file];
        let right = self.sim().states_since(moment).into_iter().any(|state| {
            let mut settled = state.clone();
            settled.settle_since(returned);
            settled.numbers(ino) == answer || state.truth(ino) == answer
        });
        assert!(right, "file {file}: {answer:?} was never true");
    }

    fn ask_all(&self) {
        for _ in 0..2 {
            for file in 0..4 {
                self.ask(file);
            }
        }
    }
}

/// Runs the changes beside two askers who ask `asked` again and again, in many schedules, and
/// asks about everything in the end.
fn race(cache_size: u64, asked: &'static [usize], prepare: fn(&Stage), changes: fn(&Stage)) {
    for by_item in [false, true] {
        let test = move || {
            let stage = Stage::new(cache_size, by_item);
            prepare(&stage);
            stage.has_returned();
            let mut threads = Vec::new();
            for _ in 0..2 {
                let stage = Arc::clone(&stage);
                threads.push(shuttle::thread::spawn(move || {
                    for file in asked {
                        stage.ask(*file);
                    }
                }));
            }
            let changer = Arc::clone(&stage);
            threads.push(shuttle::thread::spawn(move || changes(&changer)));
            for thread in threads {
                thread.join().unwrap();
            }
            stage.ask_all();
        };
        shuttle::check_random(test, schedules());
        shuttle::check_pct(test, schedules(), 3);
    }
}

const LARGE: u64 = 1 << 20;
const TINY: u64 = 500;

#[test]
fn open_and_write_against_question() {
    race(LARGE, &[0, 1, 0], Stage::ask_all, |stage| {
        stage.open(1);
        let ino = stage.files[1];
        stage.unseen(1, |world| world.write(ino, 1, 2));
        stage.close(1);
    });
}

#[test]
fn unlink_against_question() {
    race(LARGE, &[0, 2, 0], Stage::ask_all, |stage| {
        stage.unlink(1);
        stage.unlink(2);
    });
}

#[test]
fn unlink_against_question_about_the_file_itself() {
    race(LARGE, &[1, 0, 1], Stage::ask_all, |stage| {
        stage.unlink(1);
        stage.ask(0);
        stage.ask(0);
    });
}

#[test]
fn clone_against_question() {
    race(LARGE, &[3, 0, 3], Stage::ask_all, |stage| {
        stage.open(0);
        let (from, to) = (stage.files[3], stage.files[0]);
        let change = Change::Copy {
            from: stage.key(3),
            to: stage.key(0),
        };
        stage.change(change, |world| world.clone_range(from, to, 0, 1, 3));
        stage.close(0);
    });
}

#[test]
fn truncate_against_question() {
    race(LARGE, &[0, 2, 0], Stage::ask_all, |stage| {
        stage.truncate(1, 2 * world::BLOCK + 100);
        stage.truncate(2, 0);
    });
}

#[test]
fn changes_of_files_not_yet_known_against_question() {
    race(
        LARGE,
        &[0, 0],
        |_| {},
        |stage| {
            stage.truncate(1, 100);
            stage.unlink(2);
        },
    );
}

#[test]
fn eviction_against_question() {
    race(TINY, &[0, 1, 2, 0], Stage::ask_all, |stage| {
        stage.truncate(1, 100);
        stage.unlink(2);
    });
}

#[test]
fn lease_test_against_open() {
    race(
        LARGE,
        &[0, 1, 0],
        |stage| {
            stage.ask_all();
            stage.open(1);
            stage.close(1);
        },
        |stage| {
            stage.open(1);
            let ino = stage.files[1];
            stage.unseen(1, |world| world.write(ino, 0, 1));
            stage.close(1);
            stage.open(1);
            stage.close(1);
        },
    );
}

#[test]
fn mapping_that_outlives_its_close_against_question() {
    race(LARGE, &[0, 1, 0], Stage::ask_all, |stage| {
        let ino = stage.files[1];
        stage.open(1);
        stage
            .sim()
            .call(|world| world.inodes.get_mut(&ino).unwrap().mappings += 1);
        stage.close(1);
        stage.sim().call(|world| world.store(ino, 1));
        stage.has_returned();
        stage.sim().call(|world| {
            world.unmap(ino);
        });
    });
}

#[test]
fn foreign_clone_against_question() {
    race(LARGE, &[3, 0, 3], Stage::ask_all, |stage| {
        let (from, to) = (stage.files[3], stage.files[0]);
        stage.unseen(0, |world| world.clone_range(from, to, 0, 1, 3));
        stage.truncate(3, 100);
    });
}
