//! The numbers of a directory: recursive totals over every regular file below it.

use crate::extent::{Bytes, ShareSummary};

/// Recursive totals of a directory, each inode once however many names it has below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirTotals {
    /// Regular files below (inodes, not names).
    pub files: u64,
    /// Directories below, itself not counted.
    pub dirs: u64,
    /// Sums of the numbers of the files below.
    pub numbers: ShareSummary,
    /// Distinct physical bytes among the shared extents below.
    pub set_shared_bytes: Bytes,
    /// Bytes of files below that have another name outside: removing the tree does not free them.
    pub linked_outside_bytes: Bytes,
    /// What removing the tree would free, where it is exactly known.
    pub reclaimable_bytes: Option<Bytes>,
}

impl DirTotals {
    /// What the tree occupies, each shared block counted once.
    #[must_use]
    pub fn footprint_bytes(&self) -> Bytes {
        self.numbers.exclusive_bytes() + self.set_shared_bytes
    }
}
