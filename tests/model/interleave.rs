//! Questions with changes in their middle: at every pair of calls that a question makes to the
//! disk, a change each. What is stored by the question must not outlive them.

use crate::histories::abilities;
use crate::sim::{Abilities, Sim};
use crate::world::World;
use sharelens::extent::Bytes;
use sharelens::sharing::{Change, Engine, Event, FileKey, Limits};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Files on the stage: 0 is cloned by all others.
const FILES: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Act {
    Unlink(usize),
    Truncate(usize),
    Clone(usize, usize),
    ForeignUnlink(usize),
    ForeignClone(usize, usize),
}

const ACTS: [Act; 9] = [
    Act::Unlink(1),
    Act::Unlink(2),
    Act::Truncate(1),
    Act::Truncate(0),
    Act::Clone(0, 3),
    Act::Clone(3, 0),
    Act::ForeignUnlink(1),
    Act::ForeignClone(0, 3),
    Act::ForeignClone(3, 0),
];

struct Stage {
    engine: Arc<Engine<Sim>>,
    keys: [FileKey; FILES],
}

impl Stage {
    fn new(abilities: Abilities) -> Self {
        let sim = Sim::new(abilities);
        let files = sim.call(|world| {
            let files = [(); FILES + 1].map(|()| world.create());
            world.write(files[0], 0, 8);
            world.clone_range(files[0], files[1], 0, 0, 4);
            world.clone_range(files[0], files[2], 2, 2, 6);
            world.write(files[3], 0, 4);
            world.clone_range(files[0], files[4], 0, 0, 8);
            files
        });
        let [keys @ .., removed] = files.map(|ino| sim.look().key(ino));
        let limits = Limits {
            wait: Duration::from_secs(60),
            ..Limits::default()
        };
        let engine = Engine::new(sim, limits);
        engine.start().unwrap();
        let stage = Self { engine, keys };
        // A removal is still to be carried out.
        let change = Change::Unname {
            file: removed,
            last: true,
        };
        stage.change(change, |world| {
            world.unlink(removed.ino);
        });
        stage
    }

    fn alive(&self, file: usize) -> bool {
        self.engine.backing().look().find(self.keys[file]).is_some()
    }

    fn act(&self, act: Act) {
        let (changed, other) = match act {
            Act::Unlink(file) | Act::Truncate(file) | Act::ForeignUnlink(file) => (file, file),
            Act::Clone(from, to) | Act::ForeignClone(from, to) => (to, from),
        };
        if !self.alive(changed) || !self.alive(other) {
            return;
        }
        let (file, ino) = (self.keys[changed], self.keys[changed].ino);
        let from = self.keys[other].ino;
        match act {
            Act::Unlink(_) => self.change(Change::Unname { file, last: true }, |world| {
                world.unlink(ino);
            }),
            Act::Truncate(_) => self.change(Change::Truncate(file), |world| {
                world.truncate(ino, 5000);
            }),
            Act::Clone(..) => self.change(
                Change::Copy {
                    from: self.keys[other],
                    to: file,
                },
                |world| world.clone_range(from, ino, 0, 1, 3),
            ),
            Act::ForeignUnlink(_) => {
                let gone = self.engine.backing().call(|world| world.unlink(ino));
                self.engine.backing().report(Event::Attributes(file));
                // What ends it later is one of the engine's own descriptors, which is not reported.
                if gone {
                    self.engine.backing().report(Event::Removed(file));
                }
            }
            Act::ForeignClone(..) => {
                self.engine
                    .backing()
                    .call(|world| world.clone_range(from, ino, 0, 1, 3));
                self.engine.backing().report(Event::Modified(file));
            }
        }
    }

    fn change(&self, change: Change, call: impl FnOnce(&mut World)) {
        let guard = self.engine.begin(change);
        self.engine.backing().call(call);
        drop(guard);
    }
}

/// A question about file 0 with two changes at these calls; whether the question came that far.
/// Where a change had to wait, the threads' schedule decides what happens: such a run is wrong when
/// it is wrong three times.
fn run(abilities: Abilities, known: bool, at: [usize; 2], acts: [Act; 2]) -> bool {
    let mut wrong = String::new();
    for _ in 0..3 {
        match run_once(abilities, known, at, acts) {
            Ok(reached) => return reached,
            Err((late, why)) => {
                assert!(late, "{why}");
                println!("once, with a change that came late: {why}");
                wrong = why;
            }
        }
    }
    panic!("{wrong}");
}

/// An answer that is not the truth, and whether a change had to wait.
type Wrong = (bool, String);

fn run_once(
    abilities: Abilities,
    known: bool,
    at: [usize; 2],
    acts: [Act; 2],
) -> Result<bool, Wrong> {
    let stage = Arc::new(Stage::new(abilities));
    if known {
        (1..FILES).for_each(|file| drop(stage.engine.map(stage.keys[file])));
    }
    let done = Arc::new(AtomicUsize::new(0));
    let (changer, count) = (Arc::clone(&stage), Arc::clone(&done));
    let late = Arc::new(AtomicBool::new(false));
    let waited = Arc::clone(&late);
    let acts_begun = Arc::new(Mutex::new(Vec::new()));
    let acting = Arc::clone(&acts_begun);
    stage.engine.backing().meanwhile(Some(Box::new(move |call| {
        for (at, act) in at.into_iter().zip(acts) {
            if call == at {
                count.fetch_add(1, Ordering::SeqCst);
                let (changer, (done, ended)) = (Arc::clone(&changer), channel());
                acting.lock().unwrap().push(thread::spawn(move || {
                    changer.act(act);
                    let _ = done.send(());
                }));
                // A change may have to wait for the question: then it comes a little later.
                if ended.recv_timeout(Duration::from_millis(20)).is_err() {
                    waited.store(true, Ordering::SeqCst);
                }
            }
        }
    })));
    let answered = stage.engine.summary(stage.keys[0]);
    stage.engine.backing().meanwhile(None);
    for act in acts_begun.lock().unwrap().drain(..) {
        act.join().unwrap();
    }
    if let Err(error) = answered {
        panic!("{at:?} {acts:?}: {error}");
    }
    for file in 0..FILES {
        if !stage.alive(file) {
            continue;
        }
        let answer = stage.engine.summary(stage.keys[file]).unwrap();
        let truth = stage.engine.backing().look().truth(stage.keys[file].ino);
        if answer != truth {
            let why = format!(
                "file {file} after {acts:?} at calls {at:?}, known {known}, {abilities:?}: \
                 answer {answer:?}, truth {truth:?}"
            );
            return Err((late.load(Ordering::SeqCst), why));
        }
    }
    assert_ne!(truth_of_source(&stage).bytes, Bytes(0));
    Ok(done.load(Ordering::SeqCst) == 2)
}

fn truth_of_source(stage: &Stage) -> sharelens::extent::ShareSummary {
    stage.engine.backing().look().truth(stage.keys[0].ino)
}

#[test]
fn two_changes_at_any_two_calls_of_a_question() {
    let mut runs = 0;
    for by_item in [false, true] {
        let abilities = Abilities {
            by_item,
            ..abilities()
        };
        for known in [false, true] {
            for first in ACTS {
                for second in ACTS {
                    for earlier in 0.. {
                        let mut reached = false;
                        for later in earlier + 1.. {
                            runs += 1;
                            if !run(abilities, known, [earlier, later], [first, second]) {
                                break;
                            }
                            reached = true;
                        }
                        if !reached {
                            break;
                        }
                    }
                }
            }
        }
    }
    println!("{runs} questions");
}
