//! Who shares with a file, and on which ways from above it is reached.

use super::Tree;
use crate::extent::ShareSummary;
use crate::sharing::distinct::SharedParts;
use crate::sharing::key::FileKey;

/// The directories from one down to another that holds a file, both included.
pub type Way = Vec<FileKey>;

impl Tree {
    /// Every file below `top` that holds a physical byte or key that `parts` in the file's space
    /// hold, the file itself left out. Looks at every file.
    #[must_use]
    pub fn meeting(&self, top: FileKey, key: FileKey, parts: &SharedParts) -> Vec<FileKey> {
        let space = self.space(key.device);
        self.files
            .iter()
            .filter(|node| {
                node.shared_extents > 0
                    && self.space(node.device) == space
                    && node.parts.meets(parts)
            })
            .map(super::FileNode::key)
            .filter(|&other| other != key && self.stands_below(top, other))
            .collect()
    }

    /// Whether an unsettled file may hold something that `parts` in the space of `key` hold. One
    /// that is only open for write can lose what it shared when it was looked at last, and get
    /// nothing.
    #[must_use]
    pub fn may_meet(&self, other: FileKey, key: FileKey, parts: &SharedParts) -> bool {
        if self.space(other.device) != self.space(key.device) {
            return false;
        }
        !self.is_only_watched(other)
            || self
                .find_file(other)
                .and_then(|slot| self.files.get(slot))
                .is_some_and(|node| node.parts.meets(parts))
    }

    /// Whether the numbers and parts of a file are these; `None` for a file that is not known.
    #[must_use]
    pub fn is_measured_as(
        &self,
        key: FileKey,
        numbers: ShareSummary,
        parts: &SharedParts,
    ) -> Option<bool> {
        let node = self.files.get(self.find_file(key)?)?;
        Some(node.numbers() == numbers && node.parts == *parts)
    }

    /// A number that is another one after whatever may change which files share with which.
    #[must_use]
    pub fn sharing(&self) -> u64 {
        self.sharing
    }

    /// Notes that everything at and below a directory is settled.
    pub fn note_settled(&mut self, directory: FileKey) {
        let slot = self.find_dir(directory);
        if let Some(node) = slot.and_then(|slot| self.dirs.get_mut(slot)) {
            node.was_settled = true;
        }
    }

    /// Whether everything at and below a directory was settled at some time, so that all that was
    /// done since is known.
    #[must_use]
    pub fn was_settled(&self, directory: FileKey) -> bool {
        self.find_dir(directory)
            .and_then(|slot| self.dirs.get(slot))
            .is_some_and(|node| node.was_settled)
    }

    /// Whether nothing at or below a directory is unsettled.
    #[must_use]
    pub fn is_quiet(&self, directory: FileKey) -> bool {
        self.find_dir(directory)
            .and_then(|slot| self.dirs.get(slot))
            .is_some_and(super::DirNode::is_quiet)
    }

    /// The ways from a directory down to each that holds names of the file.
    #[must_use]
    pub fn ways(&self, top: FileKey, file: FileKey) -> Vec<Way> {
        let (Some(top), Some(file)) = (self.find_dir(top), self.find_file(file)) else {
            return Vec::new();
        };
        self.holders(file)
            .into_iter()
            .filter_map(|holder| {
                let chain = self.chain(holder);
                let length = chain.iter().position(|&slot| slot == top)? + 1;
                let way = chain.iter().take(length).rev();
                way.map(|&slot| Some(self.dirs.get(slot)?.key)).collect()
            })
            .collect()
    }

    /// Whether the file has a name below a directory.
    fn stands_below(&self, top: FileKey, file: FileKey) -> bool {
        let (Some(top), Some(file)) = (self.find_dir(top), self.find_file(file)) else {
            return false;
        };
        let mut holders = self.holders(file).into_iter();
        holders.any(|holder| self.chain(holder).contains(&top))
    }
}
