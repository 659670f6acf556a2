//! The namespace as the engine sees it: directories, the regular files in them, and sums that are
//! kept, not computed. Pure data: no I/O, no locks, no names (only which directory holds which
//! inode how often).
//!
//! Invariants:
//! - the sums of a directory are those of the files that have a name at or below it, each file
//!   once, and of the directories below; every change of a file is added to its ancestors at once;
//! - a file or listing that is unsettled stands in a list of its directory, and that directory in a
//!   list of its parent, up to the root: a visit from any directory meets all that is unsettled
//!   below it and nothing else;
//! - a directory without a parent is a tree of its own (a question was asked about it, or its
//!   parent is not read yet); reading the parent attaches it with its sums.
//!
//! Costs: a file's new numbers, a new or removed name: the depth. Moving a directory: the depth,
//! plus, for each file below with several names, the depth, and a visit of the directories below
//! that hold such files. A visit: what is unsettled times the depth. Files with one name take about
//! 110 bytes, those with several some hundreds.
//!
//! Time: numbers are obtained outside the tree, so they arrive late, perhaps after later ones. Each
//! piece of work notes the [`Tick`] at which it began; numbers from work that began before the last
//! accepted are dropped, and work settles a file only if it was not marked since the work began.

mod listing;
mod names;
mod node;
mod numbers;
mod pending;
mod place;
mod sharers;
mod slab;
#[cfg(test)]
mod tests;

pub use listing::{Child, Entry, NameChange, NamesInFlight, Token};
pub use node::Tick;
pub use numbers::{Measured, Trust};
pub use pending::Work;
pub use sharers::Way;

use super::distinct::Step;
use super::key::{DeviceIndex, FileKey};
use super::totals::DirTotals;
use crate::extent::ShareSummary;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use node::{DirNode, DirSlot, FileNode, FileSlot, SeveralNames, Sums};
use slab::Slab;
use smallvec::SmallVec;
use std::hash::BuildHasher;

/// The ancestors of something, itself included, from below upwards.
type Chain = SmallVec<[DirSlot; 24]>;

/// The tree, see the module's text.
pub struct Tree {
    files: Slab<FileNode>,
    dirs: Slab<DirNode>,
    hasher: DefaultHashBuilder,
    file_index: HashTable<FileSlot>,
    dir_index: HashTable<DirSlot>,
    several: HashMap<FileSlot, SeveralNames>,
    /// Directories that lost their parent and were not met elsewhere yet.
    orphans: Vec<FileKey>,
    /// Directories that keep a coverage.
    covered: Vec<DirSlot>,
    /// Changes of names under way, by directory.
    in_flight: HashMap<FileKey, u32>,
    /// Directories being read.
    claims: usize,
    /// Files marked while something was being read: they may have been looked at before, and be
    /// added after.
    strays: HashMap<FileKey, Tick>,
    /// When everything was marked last.
    strays_all: Option<Tick>,
    /// Physical address spaces of devices, where they are not the device's own number.
    spaces: HashMap<DeviceIndex, u16>,
    /// Bytes that parts of files take on the heap.
    parts_heap: usize,
    tick: Tick,
    version: u64,
    /// Another number after whatever may change which files share with which.
    sharing: u64,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// An empty tree.
    #[must_use]
    pub fn new() -> Self {
        Self {
            files: Slab::new(),
            dirs: Slab::new(),
            hasher: DefaultHashBuilder::default(),
            file_index: HashTable::new(),
            dir_index: HashTable::new(),
            several: HashMap::new(),
            orphans: Vec::new(),
            covered: Vec::new(),
            in_flight: HashMap::new(),
            claims: 0,
            strays: HashMap::new(),
            strays_all: None,
            spaces: HashMap::new(),
            parts_heap: 0,
            tick: Tick(1),
            version: 0,
            sharing: 0,
        }
    }

    /// A new moment, later than all before. Marks made from now on are later than it.
    pub fn tick(&mut self) -> Tick {
        self.tick.0 += 1;
        self.tick
    }

    /// Says which physical address space a device's files live in. To be called before the first
    /// file of the device is added.
    pub fn learn_space(&mut self, device: DeviceIndex, space: u16) {
        self.spaces.insert(device, space);
    }

    /// Whether the directory is known.
    #[must_use]
    pub fn knows_directory(&self, directory: FileKey) -> bool {
        self.find_dir(directory).is_some()
    }

    /// Begins to keep the totals of a directory.
    pub fn watch(&mut self, directory: FileKey) {
        self.ensure_dir(directory);
    }

    /// The totals as they stand, whether or not something below is unsettled. `None` where the
    /// directory is not known or a file's numbers below were never learnt.
    pub fn totals(&mut self, directory: FileKey) -> Option<DirTotals> {
        let slot = self.find_dir(directory)?;
        let sums = self.dirs.get(slot)?.sums;
        if sums.unknown > 0 {
            return None;
        }
        Some(DirTotals {
            files: sums.files,
            dirs: sums.dirs,
            numbers: sums.numbers(),
            set_shared_bytes: self.distinct(slot),
            linked_outside_bytes: crate::extent::Bytes(sums.outside),
            reclaimable_bytes: None,
        })
    }

    /// The numbers of a directory without what takes more than reading them off. `None` as in
    /// [`Tree::totals`].
    #[must_use]
    pub fn sums(&self, directory: FileKey) -> Option<ShareSummary> {
        let sums = &self.dirs.get(self.find_dir(directory)?)?.sums;
        (sums.unknown == 0).then(|| sums.numbers())
    }

    /// The numbers of a child, of a directory its sums. `None` also for what the directory does
    /// not hold any more, which may be unsettled when the directory is not.
    #[must_use]
    pub fn child_numbers(&self, directory: FileKey, child: Child) -> Option<ShareSummary> {
        let parent = self.find_dir(directory)?;
        match child {
            Child::File(key) => {
                let held = self.names_in(parent, self.find_file(key)?) > 0;
                held.then(|| self.numbers(key)).flatten()
            }
            Child::Directory(key) => {
                let held = self.dirs.get(self.find_dir(key)?)?.parent == parent;
                held.then(|| self.sums(key)).flatten()
            }
            Child::Other => None,
        }
    }

    /// A directory and those above it, as far as they are known.
    #[must_use]
    pub fn above(&self, directory: FileKey) -> Vec<FileKey> {
        let chain = self.find_dir(directory).map(|slot| self.chain(slot));
        let chain = chain.unwrap_or_default().into_iter();
        chain
            .filter_map(|slot| Some(self.dirs.get(slot)?.key))
            .collect()
    }

    /// Whether everything below a directory was read at least once.
    #[must_use]
    pub fn was_read(&self, directory: FileKey) -> bool {
        self.find_dir(directory)
            .and_then(|slot| self.dirs.get(slot))
            .is_some_and(|node| node.listing.read && node.sums.unknown == 0)
    }

    /// What the directory holds, by inode number. Numbers that two children have (of different
    /// devices) are left out.
    #[must_use]
    pub fn held(&self, directory: FileKey) -> HashMap<u64, Child> {
        let mut held = HashMap::new();
        let Some(node) = self
            .find_dir(directory)
            .and_then(|slot| self.dirs.get(slot))
        else {
            return held;
        };
        let files = node.files.iter().filter_map(|&slot| self.files.get(slot));
        let dirs = node.dirs.iter().filter_map(|&slot| self.dirs.get(slot));
        let children = files
            .map(|file| Child::File(file.key()))
            .chain(dirs.map(|dir| Child::Directory(dir.key)));
        let mut twice = Vec::new();
        for child in children {
            let (Child::File(key) | Child::Directory(key)) = child else {
                continue;
            };
            // The number in the entry of a subvolume is not that of its root.
            if key.device != directory.device || held.insert(key.ino, child).is_some() {
                twice.push(key.ino);
            }
        }
        for ino in twice {
            held.remove(&ino);
        }
        held
    }

    /// A number that is another one after each change of the directory's entries. `None` while
    /// they are not known, or changing.
    #[must_use]
    pub fn listing_version(&self, directory: FileKey) -> Option<u64> {
        let node = self.dirs.get(self.find_dir(directory)?)?;
        let known = node.listing.known && !self.is_in_flight(directory);
        known.then_some(node.listing.version)
    }

    /// Directories at or below this one that could not be read.
    #[must_use]
    pub fn skipped(&self, directory: FileKey) -> u64 {
        self.find_dir(directory)
            .and_then(|slot| self.dirs.get(slot))
            .map_or(0, |node| node.sums.skipped)
    }

    /// Number of files and of directories known.
    #[must_use]
    pub fn len(&self) -> (usize, usize) {
        (self.files.len(), self.dirs.len())
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    /// Bytes of memory it takes, as far as it keeps account.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let lists: usize = self
            .dirs
            .iter()
            .map(|node| {
                size_of::<DirSlot>()
                    * (node.files.capacity()
                        + node.dirs.capacity()
                        + node.pending_files.capacity()
                        + node.pending_dirs.capacity())
                    + node.coverage.as_ref().map_or(0, |it| it.len() * 32)
            })
            .sum();
        self.files.heap_bytes()
            + self.dirs.heap_bytes()
            + (self.file_index.capacity() + self.dir_index.capacity()) * 5
            + self.several.len() * 300
            + lists
            + self.parts_heap
    }

    /// Forgets everything but the time, so that work under way cannot settle anything.
    pub fn clear(&mut self) {
        let mut empty = Self::new();
        empty.tick = self.tick();
        empty.spaces = std::mem::take(&mut self.spaces);
        empty.in_flight = std::mem::take(&mut self.in_flight);
        empty.strays_all = Some(self.tick);
        empty.version = self.version;
        empty.sharing = self.sharing + 1;
        *self = empty;
    }

    /// A number not given before.
    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn hash(&self, key: FileKey) -> u64 {
        self.hasher.hash_one(key)
    }

    fn find_file(&self, key: FileKey) -> Option<FileSlot> {
        self.file_index
            .find(self.hash(key), |&slot| {
                self.files.get(slot).is_some_and(|node| node.key() == key)
            })
            .copied()
    }

    fn find_dir(&self, key: FileKey) -> Option<DirSlot> {
        self.dir_index
            .find(self.hash(key), |&slot| {
                self.dirs.get(slot).is_some_and(|node| node.key == key)
            })
            .copied()
    }

    fn index_file(&mut self, key: FileKey, slot: FileSlot) {
        let hash = self.hash(key);
        let (files, hasher) = (&self.files, &self.hasher);
        self.file_index.insert_unique(hash, slot, |&slot| {
            files
                .get(slot)
                .map_or(0, |node| hasher.hash_one(node.key()))
        });
    }

    fn index_dir(&mut self, key: FileKey, slot: DirSlot) {
        let hash = self.hash(key);
        let (dirs, hasher) = (&self.dirs, &self.hasher);
        self.dir_index.insert_unique(hash, slot, |&slot| {
            dirs.get(slot).map_or(0, |node| hasher.hash_one(node.key))
        });
    }

    fn unindex_file(&mut self, key: FileKey, slot: FileSlot) {
        let hash = self.hash(key);
        if let Ok(entry) = self.file_index.find_entry(hash, |&known| known == slot) {
            entry.remove();
        }
    }

    fn unindex_dir(&mut self, key: FileKey, slot: DirSlot) {
        let hash = self.hash(key);
        if let Ok(entry) = self.dir_index.find_entry(hash, |&known| known == slot) {
            entry.remove();
        }
    }

    /// The directory and everything above it.
    fn chain(&self, from: DirSlot) -> Chain {
        let mut chain = Chain::new();
        let mut next = from.some();
        while let Some((slot, node)) = next.and_then(|slot| Some((slot, self.dirs.get(slot)?))) {
            chain.push(slot);
            next = node.parent.some();
        }
        chain
    }

    /// Every directory that has a name of the file at or below it, with how many.
    fn names_below(&self, slot: FileSlot) -> SmallVec<[(DirSlot, u32); 24]> {
        if let Some(several) = self.several.get(&slot) {
            return several.below.iter().map(|(&dir, &n)| (dir, n)).collect();
        }
        let parent = self
            .files
            .get(slot)
            .map_or(DirSlot::NONE, |node| node.parent);
        self.chain(parent).iter().map(|&dir| (dir, 1)).collect()
    }

    fn add_sums(&mut self, dir: DirSlot, sums: Sums) {
        if let Some(node) = self.dirs.get_mut(dir) {
            node.sums = node.sums.plus(sums);
        }
    }

    fn space(&self, device: DeviceIndex) -> u16 {
        self.spaces.get(&device).copied().unwrap_or(device.0)
    }
}
