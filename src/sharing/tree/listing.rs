//! The entries of directories: reading them, and changes of them that are told.
//!
//! A reading counts only if no change of the directory was under way or told between its start
//! and its end; so a listing is either what the directory held at one moment, with every later
//! change told, or not known. Changes are told before they begin and after they ended: a reading
//! in between cannot say on which side of the change it was.

use super::Tree;
use super::node::{DirSlot, FileFlags, FileNode, Sums, Tick};
use super::numbers::{Measured, Trust};
use crate::sharing::key::FileKey;
use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

/// An entry of a directory, as a reading finds it. Symbolic links and special files are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A regular file.
    File {
        /// Which.
        key: FileKey,
        /// Number of its names (`st_nlink`).
        links: u32,
        /// What a look at it in passing gave.
        measured: Option<(Measured, Trust)>,
    },
    /// A directory.
    Directory(FileKey),
}

/// A thing that a name can stand for; others hold no blocks that can be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// A regular file.
    File(FileKey),
    /// A directory.
    Directory(FileKey),
    /// Anything else.
    Other,
}

/// A change of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameChange {
    /// A name appeared (create, mkdir, link).
    Added {
        /// The directory that holds the name.
        directory: FileKey,
        /// What it stands for.
        child: Child,
    },
    /// A name went (unlink, rmdir, or replaced by a rename).
    Removed {
        /// The directory that held the name.
        directory: FileKey,
        /// What it stood for.
        child: Child,
    },
    /// A name moved. An exchange is two of these.
    Moved {
        /// The directory that held it.
        from: FileKey,
        /// The directory that holds it.
        to: FileKey,
        /// What it stands for.
        child: Child,
    },
}

/// Changes of names under way in these directories. Must be given back to [`Tree::end_names`].
#[must_use]
#[derive(Debug)]
pub struct NamesInFlight(SmallVec<[FileKey; 2]>);

/// The right to read a directory. Must be given back by one of the methods that take it.
#[must_use]
#[derive(Debug)]
pub struct Token {
    directory: FileKey,
    id: u64,
    version: u64,
    began: Tick,
    first: bool,
}

impl Token {
    /// Whether the directory was never read: its entries can be added as they come.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.first
    }

    /// Which directory.
    #[must_use]
    pub fn directory(&self) -> FileKey {
        self.directory
    }
}

impl Tree {
    /// Notes that a directory waits to be read; whether it needs to and did not wait already.
    pub fn enqueue(&mut self, directory: FileKey) -> bool {
        let slot = self.find_dir(directory);
        let Some(node) = slot.and_then(|slot| self.dirs.get_mut(slot)) else {
            return false;
        };
        let listing = &mut node.listing;
        let needed = !listing.known && listing.claim.is_none() && !listing.queued;
        listing.queued |= needed;
        needed
    }

    /// A directory does not wait to be read any more.
    pub fn dequeue(&mut self, directory: FileKey) {
        let slot = self.find_dir(directory);
        if let Some(node) = slot.and_then(|slot| self.dirs.get_mut(slot)) {
            node.listing.queued = false;
        }
    }

    /// Takes the right to read a directory that is not known. `None` when nobody needs to, or
    /// somebody else has it.
    pub fn claim(&mut self, directory: FileKey) -> Option<Token> {
        let began = self.tick();
        let slot = self.find_dir(directory)?;
        let id = self.next_version();
        let node = self.dirs.get_mut(slot)?;
        node.listing.queued = false;
        if node.listing.known || node.listing.claim.is_some() {
            return None;
        }
        node.listing.claim = Some(id);
        let first = !node.listing.read && node.files.is_empty() && node.dirs.is_empty();
        node.listing.read = true;
        self.claims += 1;
        Some(Token {
            directory,
            id,
            version: node.listing.version,
            began,
            first,
        })
    }

    /// Adds entries of a first reading. `began` is from before the first of them was looked at.
    /// Nothing happens when the directory changed meanwhile: what stood in it may stand elsewhere
    /// by now.
    pub fn extend(&mut self, token: &Token, began: Tick, entries: Vec<Entry>) {
        let Some(dir) = self.claimed(token).filter(|_| self.is_valid(token)) else {
            return;
        };
        let mut added = Sums::default();
        for entry in entries {
            match entry {
                Entry::Directory(key) => self.add_child(dir, key),
                Entry::File {
                    key,
                    links,
                    measured,
                } => match (self.find_file(key), measured) {
                    (None, Some((measured, trust))) => {
                        let share = self.add_measured(dir, key, began, measured, trust);
                        added = added.plus(share.unwrap_or_default());
                    }
                    (_, measured) => {
                        let slot = self.add_name(dir, key, links);
                        if let (Some(slot), Some((measured, trust))) = (slot, measured) {
                            self.settle_slot(slot, began, measured, trust);
                        }
                    }
                },
            }
        }
        for above in self.chain(dir) {
            self.add_sums(above, added);
            if added.shared_extents > 0 {
                self.drop_distinct(above);
            }
        }
    }

    /// A file met for the first time with its numbers; what it adds to sums, which is left to the
    /// caller.
    fn add_measured(
        &mut self,
        dir: DirSlot,
        key: FileKey,
        began: Tick,
        measured: Measured,
        trust: Trust,
    ) -> Option<Sums> {
        let stray = self.strays.get(&key).copied().max(self.strays_all);
        let numbers = measured.numbers;
        let position = self.dirs.get(dir)?.files.len();
        self.parts_heap += measured.parts.heap_bytes();
        let node = FileNode {
            ino: key.ino,
            generation: key.generation,
            device: key.device,
            flags: FileFlags::KNOWN,
            bytes: numbers.bytes.0,
            shared_bytes: numbers.shared_bytes.0,
            extents: u32::try_from(numbers.extents).ok()?,
            shared_extents: u32::try_from(numbers.shared_extents).ok()?,
            parts: measured.parts,
            marked: Tick::default(),
            settled: began,
            parent: dir,
            position: u32::try_from(position).ok()?,
            links: measured.links,
        };
        let share = node.share(1);
        let slot = self.files.insert(node)?;
        self.index_file(key, slot);
        self.dirs.get_mut(dir)?.files.push(slot);
        if let Some(at) = stray.filter(|&at| at >= began) {
            self.mark_at(slot, at);
        } else {
            self.distrust(slot, began, trust);
        }
        Some(share)
    }

    /// Ends a first reading. Whether the listing is known now.
    pub fn finish(&mut self, token: Token) -> bool {
        let valid = self.is_valid(&token);
        self.give_back(&token, valid, None);
        valid
    }

    /// Ends a reading with all entries it found. Whether the listing is known now; if not, a
    /// change came in between and nothing was taken in.
    pub fn replace(&mut self, token: Token, entries: Vec<Entry>) -> bool {
        let valid = self.is_valid(&token);
        if let Some(dir) = self.find_dir(token.directory).filter(|_| valid) {
            self.replace_files(dir, &entries);
            self.replace_dirs(dir, &entries);
            self.settle_entries(token.began, entries);
        }
        self.give_back(&token, valid, None);
        valid
    }

    /// Ends a reading that failed for good: the directory is left out, and counted.
    pub fn skip(&mut self, token: Token, errno: i32) {
        let valid = self.is_valid(&token);
        if let Some(dir) = self.find_dir(token.directory).filter(|_| valid) {
            self.replace_files(dir, &[]);
            self.replace_dirs(dir, &[]);
        }
        self.give_back(&token, valid, Some(errno));
    }

    /// Ends a reading that did not come to its end.
    pub fn release(&mut self, token: Token) {
        self.give_back(&token, false, None);
    }

    /// The directory, if the token is still good for it.
    fn claimed(&self, token: &Token) -> Option<DirSlot> {
        self.find_dir(token.directory).filter(|&slot| {
            self.dirs
                .get(slot)
                .is_some_and(|node| node.listing.claim == Some(token.id))
        })
    }

    fn is_valid(&self, token: &Token) -> bool {
        !self.in_flight.contains_key(&token.directory)
            && self
                .claimed(token)
                .and_then(|slot| self.dirs.get(slot))
                .is_some_and(|node| node.listing.version == token.version)
    }

    fn give_back(&mut self, token: &Token, valid: bool, skipped: Option<i32>) {
        self.claims = self.claims.saturating_sub(1);
        if self.claims == 0 {
            self.strays.clear();
        }
        let Some(slot) = self.claimed(token) else {
            return;
        };
        let Some(node) = self.dirs.get_mut(slot) else {
            return;
        };
        node.listing.claim = None;
        if !valid {
            return;
        }
        node.listing.known = true;
        node.listing.settled = token.began;
        let before = u64::from(node.listing.skipped.is_some());
        let after = u64::from(skipped.is_some());
        node.listing.skipped = skipped;
        if before != after {
            for above in self.chain(slot) {
                if let Some(node) = self.dirs.get_mut(above) {
                    node.sums.skipped = node.sums.skipped.wrapping_add(after).wrapping_sub(before);
                }
            }
        }
    }

    /// Makes the files of a directory those that were read.
    fn replace_files(&mut self, dir: DirSlot, entries: &[Entry]) {
        let mut found: HashMap<FileKey, (u32, u32)> = HashMap::new();
        for entry in entries {
            if let Entry::File { key, links, .. } = *entry {
                let names = found.entry(key).or_insert((0, links));
                names.0 += 1;
            }
        }
        let held = self.dirs.get(dir).map(|node| node.files.clone());
        for slot in held.unwrap_or_default() {
            let Some(file) = self.files.get(slot) else {
                continue;
            };
            let key = file.key();
            let (wanted, links) = found.remove(&key).unwrap_or((0, 0));
            let relinked = wanted > 0 && file.links != links;
            let names = self.names_in(dir, slot);
            for _ in names..wanted {
                self.add_name(dir, key, links);
            }
            for _ in wanted..names {
                self.remove_name(dir, slot);
            }
            if relinked || (wanted < names && self.files.get(slot).is_some()) {
                self.mark_slot(slot);
            }
        }
        for (key, (names, links)) in found {
            let known = self.find_file(key);
            for _ in 0..names {
                self.add_name(dir, key, links);
            }
            if let Some(slot) = known {
                self.mark_slot(slot);
            }
        }
    }

    /// Makes the directories in a directory those that were read.
    fn replace_dirs(&mut self, dir: DirSlot, entries: &[Entry]) {
        let found: HashSet<FileKey> = entries
            .iter()
            .filter_map(|entry| match entry {
                Entry::Directory(key) => Some(*key),
                Entry::File { .. } => None,
            })
            .collect();
        let held = self.dirs.get(dir).map(|node| node.dirs.clone());
        for child in held.unwrap_or_default() {
            if self
                .dirs
                .get(child)
                .is_some_and(|node| !found.contains(&node.key))
            {
                self.place(child, DirSlot::NONE);
                self.add_orphan(child);
            }
        }
        for key in found {
            self.add_child(dir, key);
        }
    }

    /// Takes in what a reading learnt of files in passing.
    fn settle_entries(&mut self, began: Tick, entries: Vec<Entry>) {
        for entry in entries {
            if let Entry::File {
                key,
                measured: Some((measured, trust)),
                ..
            } = entry
            {
                self.settle(key, began, measured, trust);
            }
        }
    }

    /// Puts a directory into another.
    fn add_child(&mut self, dir: DirSlot, key: FileKey) {
        if let Some(child) = self.ensure_dir(key) {
            self.place(child, dir);
        }
    }

    /// To be called before names change in these directories.
    pub fn begin_names(&mut self, directories: &[FileKey]) -> NamesInFlight {
        for &directory in directories {
            *self.in_flight.entry(directory).or_insert(0) += 1;
        }
        NamesInFlight(SmallVec::from_slice(directories))
    }

    /// To be called when the change has been made, with what it was; `None` when that is not
    /// known, so that the directories must be read again.
    pub fn end_names(&mut self, names: NamesInFlight, changes: Option<&[NameChange]>) {
        for &directory in &names.0 {
            if let Some(count) = self.in_flight.get_mut(&directory) {
                *count -= 1;
                if *count == 0 {
                    self.in_flight.remove(&directory);
                }
            }
            if changes.is_none() {
                self.mark_listing(directory);
            }
        }
        for change in changes.unwrap_or_default() {
            self.apply(*change);
        }
    }

    /// Whether names are changing in the directory right now.
    #[must_use]
    pub fn is_in_flight(&self, directory: FileKey) -> bool {
        self.in_flight.contains_key(&directory)
    }

    fn apply(&mut self, change: NameChange) {
        match change {
            NameChange::Added { directory, child } => self.apply_added(directory, child),
            NameChange::Removed { directory, child } => self.apply_removed(directory, child, false),
            NameChange::Moved { from, to, child } => {
                self.apply_added(to, child);
                if from == to {
                    // Nothing but the name differs; the addition is taken back.
                    if let Child::File(_) = child {
                        self.apply_removed(from, child, true);
                    }
                } else {
                    self.apply_removed(from, child, true);
                }
            }
        }
    }

    /// The directory, if its listing is known, so that a change can be applied to it. A reading
    /// under way counts for nothing any more.
    fn known_listing(&mut self, directory: FileKey) -> Option<DirSlot> {
        let slot = self.find_dir(directory)?;
        let version = self.next_version();
        let node = self.dirs.get_mut(slot)?;
        node.listing.version = version;
        node.listing.known.then_some(slot)
    }

    fn apply_added(&mut self, directory: FileKey, child: Child) {
        let dir = self.known_listing(directory);
        match (child, dir) {
            (Child::File(key), dir) => {
                if let Some(dir) = dir {
                    self.add_name(dir, key, 1);
                }
                // Its number of names is another now.
                self.mark(key);
            }
            (Child::Directory(key), Some(dir)) => self.add_child(dir, key),
            (Child::Directory(_) | Child::Other, _) => {}
        }
    }

    fn apply_removed(&mut self, directory: FileKey, child: Child, moved: bool) {
        let dir = self.known_listing(directory);
        match child {
            Child::File(key) => {
                if let (Some(dir), Some(slot)) = (dir, self.find_file(key)) {
                    self.remove_name(dir, slot);
                }
                self.mark(key);
            }
            Child::Directory(key) => {
                let Some(slot) = self.find_dir(key) else {
                    return;
                };
                let held = self.find_dir(directory);
                let stays = self
                    .dirs
                    .get(slot)
                    .is_some_and(|node| node.parent.some().is_some() && Some(node.parent) != held);
                if stays {
                    return;
                }
                if moved {
                    self.place(slot, DirSlot::NONE);
                    self.add_orphan(slot);
                } else {
                    self.drop_tree(slot);
                }
            }
            Child::Other => {}
        }
    }
}
