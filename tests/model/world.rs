//! A simulated reflink-capable filesystem, as pure data that can be copied and settled.
//!
//! What is modelled is what makes exactness hard: written data reach the map only at writeback;
//! a removed file gives its blocks back in the background; a copy moves the ctime of its
//! destination only; the ctime is stamped before the map changes; `O_DIRECT` writes and faults
//! of mappings take time; sharing is a property of blocks or of whole extent items.

use sharelens::extent::{Bytes, Extent, ExtentFlags, FileOffset, MapBuilder, PhysRange, Physical};
use sharelens::sharing::{DeviceIndex, FileKey, Stamp};
use std::collections::{BTreeMap, BTreeSet};

pub const BLOCK: u64 = 4096;

/// Where one block of a file lies: in which item, and at which block of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    item: u64,
    at: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Inode {
    pub ino: u64,
    pub generation: u32,
    pub links: u32,
    /// Open descriptors of any kind, the engine's too.
    pub opens: u32,
    /// Of these, the engine's own.
    pub own: u32,
    /// Of these, open for write.
    pub writers: u32,
    /// Writable mappings; each holds the file open for write.
    pub mappings: u32,
    /// A lease test holds it: an open for write would have to wait for it.
    pub leased: bool,
    pub size: u64,
    ctime: u64,
    blocks: BTreeMap<u64, Place>,
    /// Blocks with data in memory only, and since when.
    dirty: BTreeMap<u64, u64>,
    /// Direct writes in flight.
    direct: Vec<(u64, u64)>,
    /// Faults of mappings that stamped the ctime and did not dirty their page yet.
    faults: Vec<u64>,
    /// Without names; since when.
    nameless: Option<u64>,
    /// Evicted, its blocks not given back yet; since when.
    zombie: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct World {
    pub by_item: bool,
    pub inodes: BTreeMap<u64, Inode>,
    items: BTreeMap<u64, (u64, u64)>,
    next_block: u64,
    next_ino: u64,
    next_generation: u32,
    /// Nanoseconds since the epoch; every stamp is a new one.
    pub clock: u64,
    /// Counts changes of any kind.
    pub version: u64,
}

impl World {
    pub fn new(by_item: bool) -> Self {
        Self {
            by_item,
            inodes: BTreeMap::new(),
            items: BTreeMap::new(),
            next_block: 16,
            next_ino: 100,
            next_generation: 1,
            clock: 1_000_000_000_000,
            version: 0,
        }
    }

    pub fn key(&self, ino: u64) -> FileKey {
        FileKey {
            ino,
            generation: self.inodes.get(&ino).map_or(0, |inode| inode.generation),
            device: DeviceIndex(0),
        }
    }

    /// The living inode of a key.
    pub fn find(&self, key: FileKey) -> Option<&Inode> {
        self.inodes
            .get(&key.ino)
            .filter(|inode| inode.generation == key.generation && inode.zombie.is_none())
    }

    fn stamp_ctime(&mut self, ino: u64) {
        self.clock += 1_000;
        let clock = self.clock;
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.ctime = clock;
        }
    }

    fn inode(&mut self, ino: u64) -> &mut Inode {
        self.version += 1;
        self.inodes.get_mut(&ino).expect("a living inode")
    }

    pub fn create(&mut self) -> u64 {
        let ino = self.next_ino;
        self.next_ino += 1;
        self.next_generation += 1;
        self.inodes.insert(
            ino,
            Inode {
                ino,
                generation: self.next_generation,
                links: 1,
                ..Inode::default()
            },
        );
        self.stamp_ctime(ino);
        self.version += 1;
        ino
    }

    /// New space for `length` blocks as one item.
    fn allocate(&mut self, length: u64) -> u64 {
        // A gap now and then, so that neighbours are not always merged.
        let start = self.next_block + length % 2;
        self.next_block = start + length;
        self.items.insert(start, (start, length));
        start
    }

    /// How many references keep a block (or its item) shared.
    fn is_shared(&self, place: Place) -> bool {
        let mut holders = BTreeSet::new();
        let mut references = 0;
        for inode in self.inodes.values() {
            for (offset, other) in &inode.blocks {
                if self.by_item && other.item == place.item {
                    holders.insert((inode.ino, *offset as i64 - other.at as i64));
                } else if !self.by_item && *other == place {
                    references += 1;
                }
            }
        }
        holders.len() > 1 || references > 1
    }

    pub fn write(&mut self, ino: u64, offset: u64, length: u64) {
        self.stamp_ctime(ino);
        let inode = self.inode(ino);
        let version = inode.ctime;
        for block in offset..offset + length {
            inode.dirty.entry(block).or_insert(version);
        }
        inode.size = inode.size.max((offset + length) * BLOCK);
    }

    /// A store through a mapping: the ctime moves only if the page was clean.
    pub fn store(&mut self, ino: u64, block: u64) {
        let clean = !self.inode(ino).dirty.contains_key(&block);
        if clean {
            self.stamp_ctime(ino);
        }
        let clock = self.clock;
        let inode = self.inode(ino);
        if block * BLOCK < inode.size {
            inode.dirty.entry(block).or_insert(clock);
        }
    }

    /// The first half of a fault: the ctime.
    pub fn begin_fault(&mut self, ino: u64, block: u64) {
        self.stamp_ctime(ino);
        let inode = self.inode(ino);
        if block * BLOCK < inode.size {
            inode.faults.push(block);
        }
    }

    pub fn end_faults(&mut self, ino: u64) {
        let clock = self.clock;
        let inode = self.inode(ino);
        for block in std::mem::take(&mut inode.faults) {
            if block * BLOCK < inode.size {
                inode.dirty.entry(block).or_insert(clock);
            }
        }
    }

    pub fn begin_direct(&mut self, ino: u64, offset: u64, length: u64) {
        self.stamp_ctime(ino);
        self.inode(ino).direct.push((offset, length));
    }

    pub fn end_direct(&mut self, ino: u64) {
        for (offset, length) in std::mem::take(&mut self.inode(ino).direct) {
            self.replace(ino, offset, length);
            let inode = self.inode(ino);
            inode.size = inode.size.max((offset + length) * BLOCK);
        }
    }

    /// The blocks get new data on disk: in place where only this file has them.
    fn replace(&mut self, ino: u64, offset: u64, length: u64) {
        let mut run: Vec<u64> = Vec::new();
        for block in offset..=offset + length {
            let place = self
                .inodes
                .get(&ino)
                .and_then(|inode| inode.blocks.get(&block).copied());
            let moves = block < offset + length
                && place.is_none_or(|place| self.by_item || self.is_shared(place));
            if moves {
                run.push(block);
                continue;
            }
            if let Some(first) = run.first().copied() {
                let item = self.allocate(run.len() as u64);
                for (at, block) in (0u64..).zip(run.drain(..)) {
                    debug_assert_eq!(block, first + at);
                    self.inode(ino).blocks.insert(block, Place { item, at });
                }
            }
        }
    }

    pub fn write_back(&mut self, ino: u64) {
        let dirty = std::mem::take(&mut self.inode(ino).dirty);
        self.write_back_blocks(ino, dirty.into_keys().collect());
    }

    fn write_back_blocks(&mut self, ino: u64, blocks: Vec<u64>) {
        let mut blocks = blocks.into_iter().peekable();
        while let Some(first) = blocks.next() {
            let mut length = 1;
            while blocks.next_if_eq(&(first + length)).is_some() {
                length += 1;
            }
            self.replace(ino, first, length);
        }
    }

    /// Cuts or extends to `size` bytes; an unaligned cut leaves the last block dirty.
    pub fn truncate(&mut self, ino: u64, size: u64) {
        self.stamp_ctime(ino);
        let clock = self.clock;
        let inode = self.inode(ino);
        let old = inode.size;
        inode.size = size;
        let keep = size.div_ceil(BLOCK);
        inode.blocks.retain(|block, _| *block < keep);
        inode.dirty.retain(|block, _| *block < keep);
        inode.faults.retain(|block| *block < keep);
        if size < old && !size.is_multiple_of(BLOCK) && inode.blocks.contains_key(&(size / BLOCK)) {
            inode.dirty.entry(size / BLOCK).or_insert(clock);
        }
    }

    pub fn punch(&mut self, ino: u64, offset: u64, length: u64) {
        self.stamp_ctime(ino);
        let inode = self.inode(ino);
        inode
            .blocks
            .retain(|block, _| *block < offset || *block >= offset + length);
        inode
            .dirty
            .retain(|block, _| *block < offset || *block >= offset + length);
    }

    /// Clones blocks: both are flushed first, only the destination's ctime moves.
    pub fn clone_range(&mut self, from: u64, to: u64, source: u64, target: u64, length: u64) {
        self.write_back(from);
        if from != to {
            self.write_back(to);
        }
        self.stamp_ctime(to);
        let taken: Vec<_> = (0..length)
            .map(|at| self.inodes[&from].blocks.get(&(source + at)).copied())
            .collect();
        let inode = self.inode(to);
        for (at, place) in (0u64..).zip(taken) {
            match place {
                Some(place) => inode.blocks.insert(target + at, place),
                None => inode.blocks.remove(&(target + at)),
            };
        }
        inode.size = inode.size.max((target + length) * BLOCK);
    }

    pub fn open(&mut self, ino: u64) {
        self.inode(ino).opens += 1;
    }

    pub fn open_for_write(&mut self, ino: u64) {
        let inode = self.inode(ino);
        assert!(
            !inode.leased,
            "opened for write in the middle of a lease test"
        );
        inode.opens += 1;
        inode.writers += 1;
    }

    pub fn close_for_write(&mut self, ino: u64) -> bool {
        self.inode(ino).writers -= 1;
        self.close(ino)
    }

    /// A descriptor is closed; whether the file went with it.
    pub fn close(&mut self, ino: u64) -> bool {
        self.inode(ino).opens -= 1;
        self.evict(ino)
    }

    /// A name goes; whether the file went with it.
    pub fn unlink(&mut self, ino: u64) -> bool {
        self.stamp_ctime(ino);
        let now = self.clock;
        let inode = self.inode(ino);
        inode.links -= 1;
        if inode.links == 0 {
            inode.nameless = Some(now);
        }
        self.evict(ino)
    }

    pub fn unmap(&mut self, ino: u64) -> bool {
        self.end_faults(ino);
        self.inode(ino).mappings -= 1;
        self.evict(ino)
    }

    fn evict(&mut self, ino: u64) -> bool {
        let inode = &self.inodes[&ino];
        if inode.links > 0 || inode.opens > 0 || inode.mappings > 0 {
            return false;
        }
        let now = self.clock;
        if self.by_item {
            self.inodes.remove(&ino);
        } else {
            self.inode(ino).zombie = Some(now);
        }
        self.version += 1;
        true
    }

    pub fn has_zombies(&self) -> bool {
        self.inodes.values().any(|inode| inode.zombie.is_some())
    }

    pub fn reap(&mut self) {
        self.version += 1;
        self.inodes.retain(|_, inode| inode.zombie.is_none());
    }

    /// Does everything that still has to be done for changes made up to `moment`.
    pub fn settle_since(&mut self, moment: u64) {
        for ino in self.inodes.keys().copied().collect::<Vec<_>>() {
            let inode = self.inode(ino);
            if inode.zombie.is_some() {
                continue;
            }
            let due: Vec<_> = inode
                .dirty
                .iter()
                .filter(|(_, since)| **since <= moment)
                .map(|(block, _)| *block)
                .collect();
            inode.dirty.retain(|_, since| *since > moment);
            self.write_back_blocks(ino, due);
        }
        self.inodes.retain(|_, inode| {
            // What only the engine itself holds is gone for everybody else.
            let forgotten = inode.opens == inode.own && inode.mappings == 0;
            let since = inode.nameless.filter(|_| forgotten).or(inode.zombie);
            since.is_none_or(|since| since > moment)
        });
    }

    pub fn stamp(&self, ino: u64) -> Option<Stamp> {
        let inode = self.inodes.get(&ino)?;
        Some(Stamp {
            ctime: (
                (inode.ctime / 1_000_000_000) as i64,
                (inode.ctime % 1_000_000_000) as u32,
            ),
            size: Bytes(inode.size),
            block: Bytes(BLOCK),
            links: inode.links,
        })
    }

    /// What FIEMAP would report: one record a block, or a hole.
    pub fn records(&self, ino: u64) -> Vec<Extent> {
        let Some(inode) = self.inodes.get(&ino) else {
            return Vec::new();
        };
        let blocks: BTreeSet<_> = inode
            .blocks
            .keys()
            .chain(inode.dirty.keys())
            .copied()
            .collect();
        blocks
            .into_iter()
            .map(|block| {
                let (physical, flags) = match inode.blocks.get(&block) {
                    Some(place) if self.is_shared(*place) => {
                        (place.item + place.at, ExtentFlags::SHARED)
                    }
                    Some(place) => (place.item + place.at, ExtentFlags::empty()),
                    None => (0, ExtentFlags::DELALLOC | ExtentFlags::UNKNOWN),
                };
                Extent {
                    logical: FileOffset(block * BLOCK),
                    physical: Physical(physical * BLOCK),
                    length: Bytes(BLOCK),
                    flags,
                }
            })
            .collect()
    }

    pub fn item_ranges(&self, ino: u64) -> Vec<PhysRange> {
        self.inodes.get(&ino).map_or_else(Vec::new, |inode| {
            inode
                .blocks
                .values()
                .filter_map(|place| self.items.get(&place.item))
                .map(|(start, length)| {
                    PhysRange::new(Physical(start * BLOCK), Bytes(length * BLOCK))
                })
                .collect()
        })
    }

    /// The numbers as the map stands.
    pub fn numbers(&self, ino: u64) -> sharelens::extent::ShareSummary {
        let Some(inode) = self.inodes.get(&ino) else {
            return Default::default();
        };
        let mut builder = MapBuilder::new(Bytes(inode.size), Bytes(BLOCK));
        for record in self.records(ino) {
            builder.push(record);
        }
        sharelens::extent::ShareSummary::of(&builder.finish())
    }

    /// The numbers once everything is settled.
    pub fn truth(&self, ino: u64) -> sharelens::extent::ShareSummary {
        let mut settled = self.clone();
        settled.settle_since(u64::MAX);
        settled.numbers(ino)
    }
}
