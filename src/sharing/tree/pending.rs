//! What is unsettled, and finding it below a directory without visiting anything else.

use super::Tree;
use super::node::{DirSlot, FileFlags, FileSlot, Tick};
use crate::sharing::key::FileKey;

/// What a question about a directory has to do first.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Directories to be read.
    pub listings: Vec<FileKey>,
    /// Files to be looked at.
    pub files: Vec<FileKey>,
    /// Directories that somebody else reads or is about to read.
    pub claimed: usize,
}

impl Work {
    /// Whether nothing is left, not even with somebody else.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.listings.is_empty() && self.files.is_empty() && self.claimed == 0
    }
}

impl Tree {
    /// Says that the numbers of a file may not be right any more. Whoever reads a directory may
    /// have looked at the file before and add it only later (again, if it is lost until then), so
    /// that is remembered while anybody reads.
    pub fn mark(&mut self, key: FileKey) {
        if let Some(slot) = self.find_file(key) {
            self.mark_slot(slot);
        }
        if self.claims > 0 {
            self.strays.insert(key, self.tick);
        }
    }

    /// Says that a file was not found any more: the directories that hold it are to be read again.
    pub fn lost(&mut self, key: FileKey) {
        if let Some(slot) = self.find_file(key) {
            for dir in self.holders(slot) {
                self.mark_listing_slot(dir);
            }
        }
    }

    /// Whether a file still has to be looked at for a question that began at `since`.
    #[must_use]
    pub fn is_open(&self, key: FileKey, since: Tick) -> bool {
        self.find_file(key)
            .and_then(|slot| self.files.get(slot))
            .is_some_and(|node| {
                node.flags.contains(FileFlags::UNSETTLED)
                    && (!node.flags.contains(FileFlags::KNOWN) || node.settled < since)
            })
    }

    /// Whether the totals of a directory can be read off as they are, without slow work.
    #[must_use]
    pub fn is_ready(&self, directory: FileKey) -> bool {
        self.find_dir(directory)
            .and_then(|slot| self.dirs.get(slot))
            .is_some_and(|node| {
                node.is_quiet() && (node.distinct.is_some() || node.sums.shared_extents == 0)
            })
    }

    /// Says that every number may be wrong.
    pub fn mark_all(&mut self) {
        self.strays_all = Some(self.tick);
        let all: Vec<FileKey> = self.files.iter().map(super::FileNode::key).collect();
        for key in all {
            self.mark(key);
        }
    }

    /// Says that the entries of a directory may not be what is known.
    pub fn mark_listing(&mut self, directory: FileKey) {
        if let Some(slot) = self.find_dir(directory) {
            self.mark_listing_slot(slot);
        }
    }

    /// Says that the entries of every directory may not be what is known.
    pub fn mark_all_listings(&mut self) {
        let all: Vec<FileKey> = self.dirs.iter().map(|node| node.key).collect();
        for key in all {
            self.mark_listing(key);
        }
    }

    /// Says that the entries of directories at or below this one may not be what is known.
    pub fn mark_listings_below(&mut self, directory: FileKey) {
        let Some(top) = self.find_dir(directory) else {
            return;
        };
        for slot in self.dirs_below(top) {
            self.mark_listing_slot(slot);
        }
    }

    pub(super) fn mark_listing_slot(&mut self, slot: DirSlot) {
        let version = self.next_version();
        if let Some(node) = self.dirs.get_mut(slot) {
            node.listing.known = false;
            node.listing.version = version;
            self.raise(slot);
        }
    }

    pub(super) fn mark_slot(&mut self, slot: FileSlot) {
        self.mark_at(slot, self.tick);
    }

    pub(super) fn mark_at(&mut self, slot: FileSlot, at: Tick) {
        let Some(node) = self.files.get_mut(slot) else {
            return;
        };
        node.marked = node.marked.max(at);
        self.unsettle(slot);
    }

    /// The numbers of a file have to be looked at again by the next question.
    pub(super) fn unsettle(&mut self, slot: FileSlot) {
        let Some(node) = self.files.get_mut(slot) else {
            return;
        };
        if node.flags.contains(FileFlags::UNSETTLED) {
            return;
        }
        node.flags.insert(FileFlags::UNSETTLED);
        for dir in self.holders(slot) {
            self.queue_in(dir, slot);
        }
    }

    pub(super) fn is_unsettled(&self, slot: FileSlot) -> bool {
        self.files
            .get(slot)
            .is_some_and(|node| node.flags.contains(FileFlags::UNSETTLED))
    }

    /// Puts an unsettled file into its directory's list.
    pub(super) fn queue_in(&mut self, dir: DirSlot, slot: FileSlot) {
        if let Some(node) = self.dirs.get_mut(dir) {
            node.pending_files.push(slot);
            self.raise(dir);
        }
    }

    /// Makes a directory with something unsettled known to those above it.
    pub(super) fn raise(&mut self, dir: DirSlot) {
        let mut at = dir;
        while let Some(node) = self.dirs.get_mut(at) {
            if node.queued || node.is_quiet() {
                return;
            }
            let above = node.parent;
            node.queued = above.some().is_some();
            let Some(parent) = self.dirs.get_mut(above) else {
                return;
            };
            parent.pending_dirs.push(at);
            at = above;
        }
    }

    /// What is unsettled at and below a directory, of that which was not settled by work begun at
    /// `since` or later; `relist` asks for listings also if they were read since then. Nothing
    /// when the directory is not known.
    pub fn collect(&mut self, directory: FileKey, since: Tick, relist: bool) -> Work {
        let mut work = Work::default();
        let Some(top) = self.find_dir(directory) else {
            return work;
        };
        let mut visited = vec![top];
        let mut at = 0;
        while let Some(&slot) = visited.get(at) {
            at += 1;
            self.visit(slot, since, relist, &mut work);
            if let Some(node) = self.dirs.get(slot) {
                visited.extend(&node.pending_dirs);
            }
        }
        // A file with several names stands in several lists.
        work.files.sort_unstable();
        work.files.dedup();
        // Children come after their parents, so in reverse each is judged after those below it.
        for &slot in visited.iter().rev() {
            self.drop_quiet(slot);
        }
        work
    }

    /// Takes in what is unsettled in one directory, and sorts its lists out.
    fn visit(&mut self, slot: DirSlot, since: Tick, relist: bool, work: &mut Work) {
        let Some(node) = self.dirs.get_mut(slot) else {
            return;
        };
        let mut files = std::mem::take(&mut node.pending_files);
        let mut dirs = std::mem::take(&mut node.pending_dirs);
        if !node.listing.known && (relist || node.listing.settled < since) {
            if node.listing.claim.is_some() || node.listing.queued {
                work.claimed += 1;
            } else {
                work.listings.push(node.key);
            }
        }
        files.sort_unstable();
        files.dedup();
        files.retain(|&file| self.is_unsettled(file) && self.names_in(slot, file) > 0);
        work.files.extend(
            files
                .iter()
                .filter_map(|&file| self.files.get(file))
                .filter(|file| !file.flags.contains(FileFlags::KNOWN) || file.settled < since)
                .map(super::FileNode::key),
        );
        dirs.sort_unstable();
        dirs.dedup();
        dirs.retain(|&dir| {
            self.dirs
                .get(dir)
                .is_some_and(|child| child.parent == slot && child.queued)
        });
        if let Some(node) = self.dirs.get_mut(slot) {
            node.pending_files = files;
            node.pending_dirs = dirs;
        }
    }

    /// Takes the directories below which nothing is unsettled out of a directory's list.
    fn drop_quiet(&mut self, slot: DirSlot) {
        let Some(node) = self.dirs.get_mut(slot) else {
            return;
        };
        let mut dirs = std::mem::take(&mut node.pending_dirs);
        dirs.retain(|&dir| {
            self.dirs.get_mut(dir).is_some_and(|child| {
                child.queued = !child.is_quiet();
                child.queued
            })
        });
        if let Some(node) = self.dirs.get_mut(slot) {
            node.pending_dirs = dirs;
            if node.pending_files.is_empty() {
                node.pending_files = Vec::new();
            }
        }
    }
}
