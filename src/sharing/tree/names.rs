//! Names of files: which directory holds which file how often.

use super::node::{DirSlot, FileFlags, FileNode, FileSlot, Held, SeveralNames, Sums, Tick};
use super::{Step, Tree};
use crate::sharing::distinct::SharedParts;
use crate::sharing::key::FileKey;

/// One pair of a directory and a file with several names.
const ONE_SEVERAL: Sums = Sums {
    files: 0,
    dirs: 0,
    bytes: 0,
    shared_bytes: 0,
    extents: 0,
    shared_extents: 0,
    outside: 0,
    unknown: 0,
    several: 1,
    skipped: 0,
};

impl Tree {
    /// Adds a name of a file to a directory; a file not met before is unsettled.
    pub(super) fn add_name(&mut self, dir: DirSlot, key: FileKey, links: u32) -> Option<FileSlot> {
        match self.find_file(key) {
            Some(slot) => {
                self.add_another_name(dir, slot);
                Some(slot)
            }
            None => self.add_file(dir, key, links),
        }
    }

    /// A file not met before.
    fn add_file(&mut self, dir: DirSlot, key: FileKey, links: u32) -> Option<FileSlot> {
        let position = self.dirs.get(dir)?.files.len();
        let slot = self.files.insert(FileNode {
            ino: key.ino,
            generation: key.generation,
            device: key.device,
            flags: FileFlags::empty(),
            bytes: 0,
            shared_bytes: 0,
            extents: 0,
            shared_extents: 0,
            parts: SharedParts::None,
            marked: Tick::default(),
            settled: Tick::default(),
            parent: dir,
            position: u32::try_from(position).ok()?,
            links,
        })?;
        self.index_file(key, slot);
        self.dirs.get_mut(dir)?.files.push(slot);
        let share = self.files.get(slot)?.share(1);
        for above in self.chain(dir) {
            self.add_sums(above, share);
        }
        self.mark_slot(slot);
        Some(slot)
    }

    /// One more name of a file that has one.
    fn add_another_name(&mut self, dir: DirSlot, slot: FileSlot) {
        self.begin_several(slot);
        self.count_names(dir, slot, 1);
        let Some(several) = self.several.get_mut(&slot) else {
            return;
        };
        if let Some(held) = several.held.get_mut(&dir) {
            held.names += 1;
            return;
        }
        let Some(node) = self.dirs.get_mut(dir) else {
            return;
        };
        let position = u32::try_from(node.files.len()).unwrap_or(u32::MAX);
        node.files.push(slot);
        several.held.insert(dir, Held { position, names: 1 });
        for above in self.chain(dir) {
            self.add_sums(above, ONE_SEVERAL);
        }
        if self.is_unsettled(slot) {
            self.queue_in(dir, slot);
        }
    }

    /// Takes one name of a file out of a directory; the last one takes the file.
    pub(super) fn remove_name(&mut self, dir: DirSlot, slot: FileSlot) {
        let Some(node) = self.files.get(slot) else {
            return;
        };
        if !node.flags.contains(FileFlags::SEVERAL) {
            if node.parent == dir {
                self.remove_file(slot);
            }
            return;
        }
        let Some(several) = self.several.get_mut(&slot) else {
            return;
        };
        let Some(held) = several.held.get_mut(&dir) else {
            return;
        };
        held.names -= 1;
        let (names, position) = (held.names, held.position);
        if names == 0 {
            several.held.remove(&dir);
            self.take_from_list(dir, position);
        }
        self.count_names(dir, slot, -1);
        if names == 0 {
            self.take_several(dir);
        }
        self.end_several(slot);
    }

    /// Takes every name of a file out of a directory.
    pub(super) fn remove_names(&mut self, dir: DirSlot, slot: FileSlot) {
        for _ in 0..self.names_in(dir, slot) {
            self.remove_name(dir, slot);
        }
    }

    /// How many names of the file the directory holds.
    pub(super) fn names_in(&self, dir: DirSlot, slot: FileSlot) -> u32 {
        match self.several.get(&slot) {
            Some(several) => several.held.get(&dir).map_or(0, |held| held.names),
            None => u32::from(self.files.get(slot).is_some_and(|node| node.parent == dir)),
        }
    }

    /// Directories that hold the file.
    pub(super) fn holders(&self, slot: FileSlot) -> smallvec::SmallVec<[DirSlot; 2]> {
        match self.several.get(&slot) {
            Some(several) => several.held.keys().copied().collect(),
            None => self
                .files
                .get(slot)
                .map(|node| node.parent)
                .into_iter()
                .collect(),
        }
    }

    /// Takes a file with one name out.
    fn remove_file(&mut self, slot: FileSlot) {
        let Some(node) = self.files.get(slot) else {
            return;
        };
        let (key, parent, position) = (node.key(), node.parent, node.position);
        let share = node.share(1);
        for above in self.chain(parent) {
            if let Some(dir) = self.dirs.get_mut(above) {
                dir.sums = dir.sums.minus(share);
            }
            self.note_parts(above, slot, Step::Leave);
        }
        self.take_from_list(parent, position);
        self.unindex_file(key, slot);
        if let Some(node) = self.files.remove(slot) {
            self.parts_heap -= node.parts.heap_bytes();
        }
    }

    /// Counts names of a file with several at a directory and all above it.
    fn count_names(&mut self, dir: DirSlot, slot: FileSlot, by: i32) {
        for above in self.chain(dir) {
            self.count_names_at(above, slot, by);
        }
    }

    /// Counts names of a file with several at one ancestor, and brings its sums up to date.
    pub(super) fn count_names_at(&mut self, dir: DirSlot, slot: FileSlot, by: i32) {
        let Some(several) = self.several.get_mut(&slot) else {
            return;
        };
        let before = several.below.get(&dir).copied().unwrap_or(0);
        let after = before.saturating_add_signed(by);
        if after == 0 {
            several.below.remove(&dir);
        } else {
            several.below.insert(dir, after);
        }
        let (Some(file), Some(node)) = (self.files.get(slot), self.dirs.get_mut(dir)) else {
            return;
        };
        node.sums = node.sums.plus(file.share(after)).minus(file.share(before));
        if before == 0 && after > 0 {
            self.note_parts(dir, slot, Step::Enter);
        } else if before > 0 && after == 0 {
            self.note_parts(dir, slot, Step::Leave);
        }
    }

    /// From one name to several.
    fn begin_several(&mut self, slot: FileSlot) {
        let Some(node) = self.files.get_mut(slot) else {
            return;
        };
        if node.flags.contains(FileFlags::SEVERAL) {
            return;
        }
        node.flags.insert(FileFlags::SEVERAL);
        let (parent, position) = (node.parent, node.position);
        let mut several = SeveralNames::default();
        several.held.insert(parent, Held { position, names: 1 });
        for above in self.chain(parent) {
            several.below.insert(above, 1);
            self.add_sums(above, ONE_SEVERAL);
        }
        self.several.insert(slot, several);
    }

    /// Back to one name, or to none, when no more are left.
    fn end_several(&mut self, slot: FileSlot) {
        let Some(several) = self.several.get(&slot) else {
            return;
        };
        let mut held = several.held.iter();
        let last = match (held.next(), held.next()) {
            (Some((&dir, &Held { position, names: 1 })), None) => Some((dir, position)),
            (None, _) => None,
            _ => return,
        };
        self.several.remove(&slot);
        let Some(node) = self.files.get_mut(slot) else {
            return;
        };
        node.flags.remove(FileFlags::SEVERAL);
        match last {
            Some((dir, position)) => {
                node.parent = dir;
                node.position = position;
                self.take_several(dir);
            }
            None => {
                let key = node.key();
                self.unindex_file(key, slot);
                if let Some(node) = self.files.remove(slot) {
                    self.parts_heap -= node.parts.heap_bytes();
                }
            }
        }
    }

    fn take_several(&mut self, dir: DirSlot) {
        for above in self.chain(dir) {
            if let Some(node) = self.dirs.get_mut(above) {
                node.sums = node.sums.minus(ONE_SEVERAL);
            }
        }
    }

    /// Takes an entry out of a directory's list of files; the last one takes its place.
    fn take_from_list(&mut self, dir: DirSlot, position: u32) {
        let Some(node) = self.dirs.get_mut(dir) else {
            return;
        };
        let at = position as usize;
        if at >= node.files.len() {
            return;
        }
        node.files.swap_remove(at);
        let Some(&moved) = node.files.get(at) else {
            return;
        };
        if let Some(held) = self
            .several
            .get_mut(&moved)
            .and_then(|several| several.held.get_mut(&dir))
        {
            held.position = position;
        } else if let Some(file) = self.files.get_mut(moved) {
            file.position = position;
        }
    }
}
