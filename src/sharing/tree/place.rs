//! Where directories stand: attaching, moving and dropping whole trees.

use super::node::{DirNode, DirSlot, FileFlags, FileSlot, Sums};
use super::{Chain, Tree};
use crate::sharing::key::FileKey;
use hashbrown::HashSet;

/// One directory.
const ONE_DIR: Sums = Sums {
    files: 0,
    dirs: 1,
    bytes: 0,
    shared_bytes: 0,
    extents: 0,
    shared_extents: 0,
    outside: 0,
    unknown: 0,
    several: 0,
    skipped: 0,
};

impl Tree {
    /// The directory, as a tree of its own when it was not known.
    pub(super) fn ensure_dir(&mut self, key: FileKey) -> Option<DirSlot> {
        if let Some(slot) = self.find_dir(key) {
            return Some(slot);
        }
        let mut node = DirNode::new(key);
        node.listing.version = self.next_version();
        let slot = self.dirs.insert(node)?;
        self.index_dir(key, slot);
        Some(slot)
    }

    /// Puts a directory with all that is below it under a new parent, or under none.
    pub(super) fn place(&mut self, child: DirSlot, parent: DirSlot) {
        let Some(node) = self.dirs.get(child) else {
            return;
        };
        let old = node.parent;
        if old == parent || child == parent {
            return;
        }
        let mut new_chain = self.chain(parent);
        if new_chain.contains(&child) {
            // What is known cannot be so any more: a directory never stands below itself. The new
            // parent is cut off, and whoever was believed to hold it is read again.
            let holder = self
                .dirs
                .get(parent)
                .map_or(DirSlot::NONE, |node| node.parent);
            self.place(parent, DirSlot::NONE);
            self.add_orphan(parent);
            self.mark_listing_slot(holder);
            new_chain = self.chain(parent);
        }
        self.sharing += 1;
        let mut old_chain = self.chain(old);
        while let (Some(a), Some(b)) = (old_chain.last(), new_chain.last())
            && a == b
        {
            old_chain.pop();
            new_chain.pop();
        }
        let several = self.several_below(child);
        self.leave_list(child);
        self.add_tree(child, &old_chain, &several, Direction::Out);
        if let Some(node) = self.dirs.get_mut(child) {
            node.parent = parent;
            node.queued = false;
        }
        self.add_tree(child, &new_chain, &several, Direction::In);
        if let Some(above) = self.dirs.get_mut(parent) {
            let position = u32::try_from(above.dirs.len()).unwrap_or(u32::MAX);
            above.dirs.push(child);
            if let Some(node) = self.dirs.get_mut(child) {
                node.position = position;
            }
        }
        self.raise(child);
    }

    /// Takes a directory out of its parent's list.
    fn leave_list(&mut self, child: DirSlot) {
        let Some(node) = self.dirs.get(child) else {
            return;
        };
        let at = node.position as usize;
        let Some(parent) = self.dirs.get_mut(node.parent) else {
            return;
        };
        if parent.dirs.get(at) != Some(&child) {
            return;
        }
        parent.dirs.swap_remove(at);
        let moved = parent.dirs.get(at).copied();
        if let Some(node) = moved.and_then(|moved| self.dirs.get_mut(moved)) {
            node.position = u32::try_from(at).unwrap_or(u32::MAX);
        }
    }

    /// Adds all below a directory to ancestors, or takes it from them.
    fn add_tree(
        &mut self,
        child: DirSlot,
        ancestors: &Chain,
        several: &[(FileSlot, u32)],
        direction: Direction,
    ) {
        let Some(node) = self.dirs.get(child) else {
            return;
        };
        let whole = node.sums.plus(ONE_DIR);
        let shares = node.sums.shared_extents > 0;
        for &above in ancestors {
            let Some(node) = self.dirs.get_mut(above) else {
                continue;
            };
            node.sums = match direction {
                Direction::In => node.sums.plus(whole),
                Direction::Out => node.sums.minus(whole),
            };
            if shares {
                self.drop_distinct(above);
            }
            // The sums of the directory hold a file with several names as if it had none
            // elsewhere: corrected by what it really adds here.
            for &(file, names) in several {
                let Some(share) = self.files.get(file).map(|file| file.share(names)) else {
                    continue;
                };
                if let Some(node) = self.dirs.get_mut(above) {
                    node.sums = match direction {
                        Direction::In => node.sums.minus(share),
                        Direction::Out => node.sums.plus(share),
                    };
                }
                let names = i32::try_from(names).unwrap_or(i32::MAX);
                let by = match direction {
                    Direction::In => names,
                    Direction::Out => -names,
                };
                self.count_names_at(above, file, by);
            }
        }
    }

    /// Files with several names that have some below, with how many of them.
    fn several_below(&self, dir: DirSlot) -> Vec<(FileSlot, u32)> {
        let mut found = HashSet::new();
        let mut next = vec![dir];
        while let Some(node) = next.pop().and_then(|slot| self.dirs.get(slot)) {
            if node.sums.several == 0 {
                continue;
            }
            next.extend(&node.dirs);
            found.extend(node.files.iter().copied().filter(|&file| {
                self.files
                    .get(file)
                    .is_some_and(|file| file.flags.contains(FileFlags::SEVERAL))
            }));
        }
        found
            .into_iter()
            .map(|file| {
                let names = self
                    .several
                    .get(&file)
                    .and_then(|several| several.below.get(&dir))
                    .copied()
                    .unwrap_or(0);
                (file, names)
            })
            .collect()
    }

    /// The directory and all below it, parents before children.
    pub(super) fn dirs_below(&self, dir: DirSlot) -> Vec<DirSlot> {
        let mut found = vec![dir];
        let mut at = 0;
        while let Some(&slot) = found.get(at) {
            if let Some(node) = self.dirs.get(slot) {
                found.extend(&node.dirs);
            }
            at += 1;
        }
        found
    }

    /// Forgets a directory and all below it.
    pub(super) fn drop_tree(&mut self, dir: DirSlot) {
        self.place(dir, DirSlot::NONE);
        for slot in self.dirs_below(dir).into_iter().rev() {
            let files = self
                .dirs
                .get(slot)
                .map(|node| node.files.clone())
                .unwrap_or_default();
            for file in files.into_iter().rev() {
                self.remove_names(slot, file);
            }
            let Some(key) = self.dirs.get(slot).map(|node| node.key) else {
                continue;
            };
            self.unindex_dir(key, slot);
            self.dirs.remove(slot);
            self.covered.retain(|&known| known != slot);
        }
    }

    /// Forgets the directories that lost their parent and were not met anywhere since. To be
    /// called when nothing is unsettled: what was moved has been met by then.
    pub fn drop_orphans(&mut self) {
        for key in std::mem::take(&mut self.orphans) {
            let Some(slot) = self.find_dir(key) else {
                continue;
            };
            let gone = self
                .dirs
                .get(slot)
                .is_some_and(|node| node.parent.some().is_none());
            if gone {
                self.drop_tree(slot);
            }
        }
    }

    /// Forgets a directory that is gone, with all below it; its parent, if known, is to be read
    /// again.
    pub fn forget(&mut self, directory: FileKey) {
        if let Some(slot) = self.find_dir(directory) {
            let holder = self
                .dirs
                .get(slot)
                .map_or(DirSlot::NONE, |node| node.parent);
            self.drop_tree(slot);
            self.mark_listing_slot(holder);
        }
    }

    /// Notes that a directory lost its parent.
    pub(super) fn add_orphan(&mut self, dir: DirSlot) {
        self.orphans.extend(self.dirs.get(dir).map(|node| node.key));
    }
}

/// Whether a tree enters or leaves.
#[derive(Clone, Copy)]
enum Direction {
    In,
    Out,
}
