//! The simulated filesystem behind the engine's trait, with a switch for each thing that real
//! ones may lack.

use crate::world::World;
use sharelens::extent::{Bytes, Extent, FileOffset, PhysRange};
use sharelens::sharing::{
    Backing, DeviceIndex, Event, FileKey, Liveness, Removals, SharingUnit, Stamp, WriteHold,
};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    pub by_item: bool,
    pub items_readable: bool,
    pub watches: bool,
    pub may_flush: bool,
    pub may_test_leases: bool,
}

pub struct Sim {
    pub abilities: Abilities,
    world: Arc<Mutex<World>>,
    events: Mutex<Vec<Event>>,
    /// Every state the world was in, for the oracle of concurrent tests.
    history: Option<Arc<Mutex<Vec<World>>>>,
    pause: fn(),
    stall: Mutex<Stall>,
    stall_ended: Condvar,
    meanwhile: Mutex<(usize, Option<Meanwhile>)>,
}

/// What happens at a call of the engine, by its number.
pub type Meanwhile = Box<dyn FnMut(usize) + Send>;

/// Reading the map of a file that takes as long as a test wants.
#[derive(Default)]
struct Stall {
    ino: Option<u64>,
    calls: usize,
}

/// An open descriptor of the engine's.
pub struct SimFile {
    ino: u64,
    world: Arc<Mutex<World>>,
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut world = self.world.lock().unwrap();
        world.inodes.get_mut(&self.ino).unwrap().own -= 1;
        world.close(self.ino);
    }
}

impl Sim {
    pub fn new(abilities: Abilities) -> Self {
        Self {
            abilities,
            world: Arc::new(Mutex::new(World::new(abilities.by_item))),
            events: Mutex::default(),
            history: None,
            pause: || {},
            stall: Mutex::default(),
            stall_ended: Condvar::new(),
            meanwhile: Mutex::default(),
        }
    }

    /// Records every state, and calls `pause` before each call of the engine.
    #[allow(dead_code)]
    pub fn recording(abilities: Abilities, pause: fn()) -> Self {
        Self {
            history: Some(Arc::default()),
            pause,
            ..Self::new(abilities)
        }
    }

    pub fn look(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// A system call, or something the kernel does by itself.
    pub fn call<T>(&self, what: impl FnOnce(&mut World) -> T) -> T {
        (self.pause)();
        self.interrupt();
        let mut world = self.world.lock().unwrap();
        if let Some(history) = &self.history {
            let mut history = history.lock().unwrap();
            if history.is_empty() {
                history.push(world.clone());
            }
        }
        let result = what(&mut world);
        world.clock += 10;
        if let Some(history) = &self.history {
            history.lock().unwrap().push(world.clone());
        }
        result
    }

    /// From now on reading the map of this file does not end.
    #[allow(dead_code)]
    pub fn stall(&self, ino: Option<u64>) {
        self.stall.lock().unwrap().ino = ino;
        self.stall_ended.notify_all();
    }

    /// From now on this happens before each call, those that it makes itself excepted.
    #[allow(dead_code)]
    pub fn meanwhile(&self, what: Option<Meanwhile>) {
        *self.meanwhile.lock().unwrap() = (0, what);
    }

    fn interrupt(&self) {
        let (number, what) = {
            let mut meanwhile = self.meanwhile.lock().unwrap();
            let what = meanwhile.1.take();
            meanwhile.0 += usize::from(what.is_some());
            (meanwhile.0, what)
        };
        if let Some(mut what) = what {
            what(number - 1);
            self.meanwhile.lock().unwrap().1 = Some(what);
        }
    }

    /// How many readings were stalled so far.
    #[allow(dead_code)]
    pub fn stalled_calls(&self) -> usize {
        self.stall.lock().unwrap().calls
    }

    /// How many states were recorded so far.
    #[allow(dead_code)]
    pub fn moment(&self) -> usize {
        self.history
            .as_ref()
            .map_or(0, |history| history.lock().unwrap().len())
    }

    /// The states from one moment to now.
    #[allow(dead_code)]
    pub fn states_since(&self, moment: usize) -> Vec<World> {
        self.history.as_ref().map_or_else(Vec::new, |history| {
            history.lock().unwrap()[moment.saturating_sub(1)..].to_vec()
        })
    }

    pub fn report(&self, event: Event) {
        if self.abilities.watches {
            self.events.lock().unwrap().push(event);
        }
    }
}

fn stale() -> io::Error {
    io::Error::from_raw_os_error(libc::ESTALE)
}

impl Backing for Sim {
    type File = SimFile;

    fn open(&self, file: FileKey) -> io::Result<SimFile> {
        self.call(|world| {
            world.find(file).ok_or_else(stale)?;
            world.open(file.ino);
            world.inodes.get_mut(&file.ino).unwrap().own += 1;
            Ok(SimFile {
                ino: file.ino,
                world: Arc::clone(&self.world),
            })
        })
    }

    fn stamp(&self, file: &SimFile) -> io::Result<Stamp> {
        self.call(|world| world.stamp(file.ino).ok_or_else(stale))
    }

    fn map(
        &self,
        file: &SimFile,
        from: FileOffset,
        batch: usize,
        out: &mut Vec<Extent>,
    ) -> io::Result<bool> {
        let mut stall = self.stall.lock().unwrap();
        stall.calls += usize::from(stall.ino == Some(file.ino));
        while stall.ino == Some(file.ino) {
            stall = self.stall_ended.wait(stall).unwrap();
        }
        drop(stall);
        self.call(|world| {
            let records: Vec<_> = world
                .records(file.ino)
                .into_iter()
                .filter(|record| record.logical >= from)
                .collect();
            out.extend(records.iter().take(batch));
            Ok(records.len() <= batch)
        })
    }

    fn write_back(&self, file: &SimFile) -> io::Result<()> {
        self.call(|world| world.write_back(file.ino));
        Ok(())
    }

    fn items(&self, file: &SimFile) -> io::Result<Option<Vec<PhysRange>>> {
        Ok(self.call(|world| {
            (self.abilities.by_item && self.abilities.items_readable)
                .then(|| world.item_ranges(file.ino))
        }))
    }

    fn flush_removals(&self, _: DeviceIndex, _: &[FileKey]) -> io::Result<Removals> {
        if !self.abilities.may_flush {
            return Ok(Removals::Unknown);
        }
        self.call(World::reap);
        // A removal may come just after.
        self.interrupt();
        Ok(Removals::Done)
    }

    fn write_back_all(&self, _: DeviceIndex) -> io::Result<()> {
        self.call(|world| {
            for ino in world.inodes.keys().copied().collect::<Vec<_>>() {
                world.write_back(ino);
            }
        });
        Ok(())
    }

    fn write_hold(&self, file: &SimFile) -> io::Result<WriteHold> {
        let hold = self.call(|world| {
            let inode = world.inodes.get_mut(&file.ino).unwrap();
            let hold = match inode.writers + inode.mappings {
                _ if !self.abilities.may_test_leases => WriteHold::Unknown,
                0 => WriteHold::Free,
                _ => WriteHold::Held,
            };
            inode.leased = hold == WriteHold::Free;
            hold
        });
        // The lease is given back.
        self.call(|world| world.inodes.get_mut(&file.ino).unwrap().leased = false);
        Ok(hold)
    }

    fn liveness(&self, file: FileKey) -> Liveness {
        self.call(|world| match world.find(file) {
            Some(_) => Liveness::Alive,
            None => Liveness::Gone,
        })
    }

    fn sharing_unit(&self, _: DeviceIndex) -> SharingUnit {
        if self.abilities.by_item {
            SharingUnit::Item {
                largest: Bytes(64 * crate::world::BLOCK),
            }
        } else {
            SharingUnit::Block
        }
    }

    fn address_space(&self, _: DeviceIndex) -> u16 {
        0
    }

    fn devices(&self) -> Vec<DeviceIndex> {
        vec![DeviceIndex(0)]
    }

    fn watches(&self) -> bool {
        self.abilities.watches
    }

    fn take_events(&self, sink: &mut dyn FnMut(Event)) {
        (self.pause)();
        let events = std::mem::take(&mut *self.events.lock().unwrap());
        events.into_iter().for_each(sink);
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.look().clock)
    }
}
