//! Histories: operations on a few files that share a lot, through the engine's door as a
//! filesystem would make them, interleaved with questions, each compared with the truth.

use crate::sim::{Abilities, Sim};
use crate::world::{BLOCK, World};
use proptest::prelude::*;
use sharelens::extent::{Bytes, ShareSummary};
use sharelens::sharing::{AskError, Change, Engine, Event, FileKey, Limits};
use std::sync::Arc;
use std::time::Duration;

/// Places for files.
pub const SLOTS: usize = 6;
const BLOCKS: u64 = 12;

#[derive(Clone, Debug)]
pub enum Op {
    Ask(usize),
    AskMap(usize),
    Peek(usize),
    Create(usize),
    Open {
        slot: usize,
        direct: bool,
    },
    Close(usize),
    Write {
        slot: usize,
        offset: u64,
        length: u64,
    },
    BeginDirect {
        slot: usize,
        offset: u64,
        length: u64,
    },
    EndDirect(usize),
    Map(usize),
    /// As programs mostly do: mapped, and the descriptor closed.
    MapAndClose(usize),
    Store {
        slot: usize,
        block: u64,
    },
    BeginFault {
        slot: usize,
        block: u64,
    },
    EndFaults(usize),
    Unmap(usize),
    Truncate {
        slot: usize,
        size: u64,
    },
    Punch {
        slot: usize,
        offset: u64,
        length: u64,
    },
    Clone {
        from: usize,
        to: usize,
        source: u64,
        target: u64,
        length: u64,
    },
    CloneWhole {
        from: usize,
        to: usize,
    },
    Link(usize),
    Unlink(usize),
    HoldOpen(usize),
    LetGo(usize),
    KernelWritesBack(usize),
    KernelReaps,
    TimePasses(u64),
    Refresh(Option<usize>),
    ForeignWrite {
        slot: usize,
        offset: u64,
        length: u64,
    },
    ForeignTruncate {
        slot: usize,
        size: u64,
    },
    ForeignClone {
        from: usize,
        to: usize,
        source: u64,
        target: u64,
        length: u64,
    },
    ForeignRemoval(usize),
    EventsLost,
    /// Ask this while the next change is between its beginning and its end.
    AskDuring(usize),
}

/// How the mount and the filesystem are.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub abilities: Abilities,
    /// Writes do not go through the daemon.
    pub passthrough: bool,
    pub cache_size: u64,
}

pub fn slot() -> impl Strategy<Value = usize> {
    0..SLOTS
}

pub fn operation(foreign: bool) -> impl Strategy<Value = Op> {
    let span = || (0..BLOCKS, 1..5u64);
    let own = prop_oneof![
        24 => slot().prop_map(Op::Ask),
        2 => slot().prop_map(Op::AskMap),
        4 => slot().prop_map(Op::Peek),
        4 => slot().prop_map(Op::Create),
        6 => (slot(), prop::bool::weighted(0.2)).prop_map(|(slot, direct)| Op::Open { slot, direct }),
        6 => slot().prop_map(Op::Close),
        10 => (slot(), span()).prop_map(|(slot, (offset, length))| Op::Write { slot, offset, length }),
        1 => (slot(), span()).prop_map(|(slot, (offset, length))| Op::BeginDirect { slot, offset, length }),
        2 => slot().prop_map(Op::EndDirect),
        2 => slot().prop_map(Op::Map),
        4 => slot().prop_map(Op::MapAndClose),
        5 => (slot(), 0..BLOCKS).prop_map(|(slot, block)| Op::Store { slot, block }),
        1 => (slot(), 0..BLOCKS).prop_map(|(slot, block)| Op::BeginFault { slot, block }),
        2 => slot().prop_map(Op::EndFaults),
        2 => slot().prop_map(Op::Unmap),
        3 => (slot(), 0..BLOCKS * BLOCK).prop_map(|(slot, size)| Op::Truncate { slot, size }),
        2 => (slot(), span()).prop_map(|(slot, (offset, length))| Op::Punch { slot, offset, length }),
    ];
    let sharing = prop_oneof![
        4 => (slot(), slot(), 0..BLOCKS, 0..BLOCKS, 1..8u64)
            .prop_map(|(from, to, source, target, length)| Op::Clone { from, to, source, target, length }),
        4 => (slot(), slot()).prop_map(|(from, to)| Op::CloneWhole { from, to }),
        1 => slot().prop_map(Op::Link),
        4 => slot().prop_map(Op::Unlink),
        1 => slot().prop_map(Op::HoldOpen),
        1 => slot().prop_map(Op::LetGo),
        3 => slot().prop_map(Op::KernelWritesBack),
        2 => Just(Op::KernelReaps),
        3 => (0..2_500_000_000u64).prop_map(Op::TimePasses),
        1 => prop::option::of(slot()).prop_map(Op::Refresh),
        4 => slot().prop_map(Op::AskDuring),
    ];
    let others = prop_oneof![
        3 => (slot(), span()).prop_map(|(slot, (offset, length))| Op::ForeignWrite { slot, offset, length }),
        2 => (slot(), 0..BLOCKS * BLOCK).prop_map(|(slot, size)| Op::ForeignTruncate { slot, size }),
        4 => (slot(), slot(), 0..BLOCKS, 0..BLOCKS, 1..8u64)
            .prop_map(|(from, to, source, target, length)| Op::ForeignClone { from, to, source, target, length }),
        2 => slot().prop_map(Op::ForeignRemoval),
        1 => Just(Op::EventsLost),
    ];
    if foreign {
        prop_oneof![60 => own, 24 => sharing, 12 => others].boxed()
    } else {
        prop_oneof![60 => own, 26 => sharing].boxed()
    }
}

/// A file as the mount has it.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    ino: u64,
    /// Open for write through the mount, and whether with `O_DIRECT`.
    open: Option<bool>,
    mappings: u32,
    /// Open for reading.
    held: bool,
    direct_in_flight: bool,
}

pub struct History {
    setting: Setting,
    pub engine: Arc<Engine<Sim>>,
    slots: [Option<Held>; SLOTS],
    /// Files without names that are still in use.
    orphans: Vec<Held>,
    ask_during: Option<usize>,
    /// When the change under way was made.
    changing_since: Option<u64>,
    /// How it was before a foreign change that has not returned yet.
    before: Option<World>,
    pub questions: usize,
}

/// An answer that is not the truth.
#[derive(Debug)]
pub struct Wrong {
    pub ino: u64,
    pub answer: ShareSummary,
    pub truth: ShareSummary,
}

type Checked = Result<(), Wrong>;

impl History {
    /// A filesystem on which things happened before the mount, and an engine over it.
    pub fn new(setting: Setting, build: impl FnOnce(Sim, Limits) -> Arc<Engine<Sim>>) -> Self {
        let sim = Sim::new(setting.abilities);
        let mut slots = [None; SLOTS];
        sim.call(|world| {
            for (at, place) in slots.iter_mut().take(4).enumerate() {
                let ino = world.create();
                if at % 2 == 0 {
                    world.write(ino, 0, 8);
                } else {
                    world.clone_range(ino - 1, ino, 0, 0, 8);
                    world.write(ino, 2, 2);
                }
                *place = Some(Held {
                    ino,
                    ..Held::default()
                });
            }
            let gone = world.create();
            world.clone_range(slots[2].unwrap().ino, gone, 0, 0, 6);
            world.unlink(gone);
        });
        let limits = Limits {
            cache_size: Bytes(setting.cache_size),
            wait: Duration::from_secs(60),
            ..Limits::default()
        };
        let engine = build(sim, limits);
        engine.start().expect("the barrier");
        Self {
            setting,
            engine,
            slots,
            orphans: Vec::new(),
            ask_during: None,
            changing_since: None,
            before: None,
            questions: 0,
        }
    }

    fn sim(&self) -> &Sim {
        self.engine.backing()
    }

    fn key(&self, ino: u64) -> FileKey {
        self.sim().look().key(ino)
    }

    fn modified(&self, ino: u64) {
        self.sim().report(Event::Modified(self.key(ino)));
    }

    fn check(&mut self, ino: u64, answer: ShareSummary) -> Checked {
        self.questions += 1;
        let world = self.sim().look();
        // Without the privilege the blocks of a removed file are free in a bounded time only.
        if !self.setting.abilities.may_flush && world.has_zombies() {
            return Ok(());
        }
        let truth = world.truth(ino);
        let moment_ago = self.changing_since.map(|moment| {
            // The change under way has not returned: it may or may not have taken effect.
            let mut world = world.clone();
            world.settle_since(moment);
            world.numbers(ino)
        });
        let unchanged = self.before.as_ref().map(|world| world.truth(ino));
        if answer == truth || moment_ago == Some(answer) || unchanged == Some(answer) {
            Ok(())
        } else {
            Err(Wrong { ino, answer, truth })
        }
    }

    fn ask(&mut self, ino: u64) -> Checked {
        let key = self.key(ino);
        match self.engine.summary(key) {
            Ok(answer) => self.check(ino, answer),
            Err(AskError::Gone) if self.sim().look().find(key).is_none() => Ok(()),
            Err(error) => panic!("a question about inode {ino} failed: {error}"),
        }
    }

    /// A change as the filesystem makes it: announced, done, ended, with a question in between
    /// where one is due.
    fn change(&mut self, change: Change, call: impl FnOnce(&mut World)) -> Checked {
        let engine = Arc::clone(&self.engine);
        let guard = engine.begin(change);
        let during = self.ask_during.take().and_then(|slot| self.slots[slot]);
        if let Some(file) = during {
            self.ask(file.ino)?;
        }
        self.changing_since = Some(engine.backing().look().clock);
        engine.backing().call(call);
        let asked = during.map_or(Ok(()), |file| self.ask(file.ino));
        self.changing_since = None;
        drop(guard);
        asked
    }

    pub fn apply(&mut self, op: &Op) -> Checked {
        match *op {
            Op::Ask(slot) => match self.slots[slot] {
                Some(file) => self.ask(file.ino),
                None => Ok(()),
            },
            Op::AskMap(slot) => {
                let Some(file) = self.slots[slot] else {
                    return Ok(());
                };
                let map = self.engine.map(self.key(file.ino)).expect("a map");
                self.check(file.ino, ShareSummary::of(&map))
            }
            Op::Peek(slot) => {
                let Some(file) = self.slots[slot] else {
                    return Ok(());
                };
                match self.engine.peek(self.key(file.ino)) {
                    Some(answer) => self.check(file.ino, answer),
                    None => Ok(()),
                }
            }
            Op::AskDuring(slot) => {
                self.ask_during = Some(slot);
                Ok(())
            }
            Op::Create(slot) => {
                if self.slots[slot].is_none() {
                    let ino = self.sim().call(World::create);
                    self.engine.created(self.key(ino));
                    self.slots[slot] = Some(Held {
                        ino,
                        ..Held::default()
                    });
                }
                Ok(())
            }
            Op::Open { slot, direct } => self.open(slot, direct),
            Op::Close(slot) => self.close(slot),
            Op::Write {
                slot,
                offset,
                length,
            } => self.write(slot, offset, length),
            Op::BeginDirect {
                slot,
                offset,
                length,
            } => {
                let Some(file) = &mut self.slots[slot] else {
                    return Ok(());
                };
                if file.open == Some(true) && !file.direct_in_flight && self.setting.passthrough {
                    file.direct_in_flight = true;
                    let ino = file.ino;
                    self.sim()
                        .call(|world| world.begin_direct(ino, offset, length));
                }
                Ok(())
            }
            Op::EndDirect(slot) => {
                self.end_direct(slot);
                Ok(())
            }
            Op::Map(slot) => {
                let passthrough = self.setting.passthrough;
                if let Some(file) = &mut self.slots[slot]
                    && file.open.is_some()
                    && file.mappings < 2
                    && passthrough
                {
                    file.mappings += 1;
                    let ino = file.ino;
                    self.sim()
                        .call(|world| world.inodes.get_mut(&ino).unwrap().mappings += 1);
                }
                Ok(())
            }
            Op::MapAndClose(slot) => {
                self.open(slot, false)?;
                self.apply(&Op::Map(slot))?;
                self.close(slot)
            }
            Op::Store { slot, block } => {
                if let Some(file) = self.mapped_from(slot) {
                    self.sim().call(|world| world.store(file.ino, block));
                }
                Ok(())
            }
            Op::BeginFault { slot, block } => {
                if let Some(file) = self.mapped(slot) {
                    self.sim().call(|world| world.begin_fault(file.ino, block));
                }
                Ok(())
            }
            Op::EndFaults(slot) => {
                if let Some(file) = self.mapped(slot) {
                    self.sim().call(|world| world.end_faults(file.ino));
                }
                Ok(())
            }
            Op::Unmap(slot) => {
                if self.mapped(slot).is_some()
                    && let Some(file) = &mut self.slots[slot]
                {
                    file.mappings -= 1;
                    let ino = file.ino;
                    self.sim().call(|world| world.unmap(ino));
                }
                Ok(())
            }
            Op::Truncate { slot, size } => match self.slots[slot] {
                Some(file) => self.change(Change::Truncate(self.key(file.ino)), |world| {
                    world.truncate(file.ino, size);
                }),
                None => Ok(()),
            },
            Op::Punch {
                slot,
                offset,
                length,
            } => match self.slots[slot] {
                Some(file) => self.change(Change::Allocate(self.key(file.ino)), |world| {
                    world.punch(file.ino, offset, length);
                }),
                None => Ok(()),
            },
            Op::Clone {
                from,
                to,
                source,
                target,
                length,
            } => self.clone(from, to, source, target, length),
            Op::CloneWhole { from, to } => {
                if from == to {
                    return Ok(());
                }
                self.apply(&Op::Create(to))?;
                self.clone(from, to, 0, 0, BLOCKS)
            }
            Op::Link(slot) => {
                if let Some(file) = self.slots[slot]
                    && let Some(free) = self.slots.iter().position(Option::is_none)
                    && file.open.is_none()
                    && file.mappings == 0
                    && !file.held
                {
                    self.sim()
                        .call(|world| world.inodes.get_mut(&file.ino).unwrap().links += 1);
                    self.slots[free] = Some(file);
                }
                Ok(())
            }
            Op::Unlink(slot) => self.unlink(slot),
            Op::HoldOpen(slot) => {
                if self.is_alone(slot)
                    && let Some(file) = &mut self.slots[slot]
                    && !file.held
                {
                    file.held = true;
                    let ino = file.ino;
                    self.sim().call(|world| world.open(ino));
                }
                Ok(())
            }
            Op::LetGo(slot) => {
                if let Some(file) = &mut self.slots[slot]
                    && file.held
                {
                    file.held = false;
                    let ino = file.ino;
                    self.sim().call(|world| world.close(ino));
                } else if let Some(file) = self.orphans.pop() {
                    return self.end_orphan(file);
                }
                Ok(())
            }
            Op::KernelWritesBack(slot) => {
                if let Some(file) = self.slots[slot] {
                    self.sim().call(|world| world.write_back(file.ino));
                }
                Ok(())
            }
            Op::KernelReaps => {
                self.sim().call(World::reap);
                Ok(())
            }
            Op::TimePasses(nanos) => {
                let may_flush = self.setting.abilities.may_flush;
                self.sim().call(|world| {
                    world.clock += nanos;
                    if !may_flush && nanos > 100_000_000 {
                        // The background removal is done within the time that is allowed it.
                        world.reap();
                    }
                });
                Ok(())
            }
            Op::Refresh(slot) => {
                let file = slot.and_then(|slot| self.slots[slot]);
                self.engine.refresh(file.map(|file| self.key(file.ino)));
                Ok(())
            }
            Op::ForeignWrite {
                slot,
                offset,
                length,
            } => {
                if let Some(file) = self.slots[slot] {
                    self.sim()
                        .call(|world| world.write(file.ino, offset, length));
                    self.modified(file.ino);
                }
                Ok(())
            }
            Op::ForeignTruncate { slot, size } => {
                if let Some(file) = self.slots[slot] {
                    self.sim().call(|world| world.truncate(file.ino, size));
                    self.modified(file.ino);
                }
                Ok(())
            }
            Op::ForeignClone {
                from,
                to,
                source,
                target,
                length,
            } => {
                if let (Some(source_file), Some(file)) = (self.slots[from], self.slots[to])
                    && (source_file.ino != file.ino
                        || source + length <= target
                        || target + length <= source)
                {
                    let before = self.sim().look().clone();
                    self.sim().call(|world| {
                        world.clone_range(source_file.ino, file.ino, source, target, length);
                    });
                    // Reported when it returns, which may be later than it is seen in the map.
                    let during = self.ask_during.take().and_then(|slot| self.slots[slot]);
                    self.before = Some(before);
                    let asked = during.map_or(Ok(()), |file| self.ask(file.ino));
                    self.before = None;
                    self.modified(file.ino);
                    return asked;
                }
                Ok(())
            }
            Op::ForeignRemoval(slot) => {
                if self.is_alone(slot)
                    && let Some(file) = self.slots[slot]
                    && file.open.is_none()
                    && file.mappings == 0
                    && !file.held
                {
                    let key = self.key(file.ino);
                    self.slots[slot] = None;
                    self.sim().report(Event::Attributes(key));
                    if self.sim().call(|world| world.unlink(file.ino)) {
                        self.sim().report(Event::Removed(key));
                    }
                }
                Ok(())
            }
            Op::EventsLost => {
                self.sim().report(Event::Overflow);
                Ok(())
            }
        }
    }

    /// The file, if it is mapped and this is its only place.
    fn mapped(&self, slot: usize) -> Option<Held> {
        self.slots[slot].filter(|file| file.mappings > 0)
    }

    /// The first mapped file from this place on.
    fn mapped_from(&self, slot: usize) -> Option<Held> {
        (slot..slot + SLOTS).find_map(|at| self.mapped(at % SLOTS))
    }

    /// Whether the file in this place has no other name in another place.
    fn is_alone(&self, slot: usize) -> bool {
        self.slots[slot].is_some_and(|file| {
            self.slots
                .iter()
                .flatten()
                .filter(|other| other.ino == file.ino)
                .count()
                == 1
        })
    }

    fn open(&mut self, slot: usize, direct: bool) -> Checked {
        let Some(file) = self.slots[slot] else {
            return Ok(());
        };
        if file.open.is_some() || !self.is_alone(slot) {
            return Ok(());
        }
        self.change(
            Change::OpenForWrite {
                file: self.key(file.ino),
                direct,
            },
            |world| world.open_for_write(file.ino),
        )?;
        if let Some(file) = &mut self.slots[slot] {
            file.open = Some(direct);
        }
        Ok(())
    }

    fn end_direct(&mut self, slot: usize) {
        if let Some(file) = &mut self.slots[slot]
            && std::mem::take(&mut file.direct_in_flight)
        {
            let ino = file.ino;
            self.sim().call(|world| world.end_direct(ino));
            self.modified(ino);
        }
    }

    fn close(&mut self, slot: usize) -> Checked {
        self.end_direct(slot);
        let Some(file) = &mut self.slots[slot] else {
            return Ok(());
        };
        let Some(direct) = file.open.take() else {
            return Ok(());
        };
        let ino = file.ino;
        self.change(
            Change::CloseForWrite {
                file: self.key(ino),
                direct,
            },
            |world| {
                world.close_for_write(ino);
            },
        )
    }

    fn write(&mut self, slot: usize, offset: u64, length: u64) -> Checked {
        let Some(file) = self.slots[slot] else {
            return Ok(());
        };
        if file.open.is_none() {
            return Ok(());
        }
        if self.setting.passthrough {
            self.sim()
                .call(|world| world.write(file.ino, offset, length));
            self.modified(file.ino);
            return Ok(());
        }
        self.change(Change::Write(self.key(file.ino)), |world| {
            world.write(file.ino, offset, length);
        })
    }

    fn clone(&mut self, from: usize, to: usize, source: u64, target: u64, length: u64) -> Checked {
        let (Some(source_file), Some(file)) = (self.slots[from], self.slots[to]) else {
            return Ok(());
        };
        let apart = source + length <= target || target + length <= source;
        if source_file.ino == file.ino && !apart {
            return Ok(());
        }
        // As cp does: open, copy, and often close.
        self.open(to, false)?;
        self.change(
            Change::Copy {
                from: self.key(source_file.ino),
                to: self.key(file.ino),
            },
            |world| world.clone_range(source_file.ino, file.ino, source, target, length),
        )?;
        if length.is_multiple_of(2) {
            self.close(to)
        } else {
            Ok(())
        }
    }

    fn unlink(&mut self, slot: usize) -> Checked {
        self.end_direct(slot);
        let Some(file) = self.slots[slot] else {
            return Ok(());
        };
        let last = self.is_alone(slot);
        if !last && file.open.is_some() {
            return Ok(());
        }
        self.slots[slot] = None;
        self.change(
            Change::Unname {
                file: self.key(file.ino),
                last,
            },
            |world| {
                world.unlink(file.ino);
            },
        )?;
        if last && (file.open.is_some() || file.mappings > 0 || file.held) {
            self.orphans.push(file);
        }
        Ok(())
    }

    /// Everything that still uses a file without names ends.
    fn end_orphan(&mut self, file: Held) -> Checked {
        let key = self.key(file.ino);
        for _ in 0..file.mappings {
            self.sim().call(|world| world.unmap(file.ino));
        }
        if let Some(direct) = file.open {
            self.change(Change::CloseForWrite { file: key, direct }, |world| {
                world.inodes.get_mut(&file.ino).unwrap().writers -= 1;
                if file.held {
                    world.close(file.ino);
                }
            })?;
        }
        if file.open.is_some() || file.held {
            self.change(Change::LastClose(key), |world| {
                world.close(file.ino);
            })?;
        }
        Ok(())
    }

    /// Every file is asked about, twice.
    pub fn ask_all(&mut self) -> Checked {
        for _ in 0..2 {
            for file in self.slots.into_iter().flatten() {
                self.ask(file.ino)?;
            }
        }
        Ok(())
    }

    /// Runs a whole history; at which operation it went wrong.
    pub fn run(&mut self, ops: &[Op]) -> Result<(), (usize, Wrong)> {
        for (at, op) in ops.iter().enumerate() {
            self.apply(op).map_err(|wrong| (at, wrong))?;
        }
        self.ask_all().map_err(|wrong| (ops.len(), wrong))
    }
}
