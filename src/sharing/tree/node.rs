//! What the tree keeps of a file and of a directory, and the sums of files.

use super::slab::Slot;
use crate::extent::{Bytes, ShareSummary};
use crate::sharing::distinct::{Coverage, SharedParts};
use crate::sharing::key::{DeviceIndex, FileKey};
use bitflags::bitflags;
use hashbrown::HashMap;

/// A moment in the tree's own time, see [`super::Tree::tick`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(pub(super) u64);

/// The slot of a file.
pub(super) type FileSlot = Slot<FileNode>;

/// The slot of a directory.
pub(super) type DirSlot = Slot<DirNode>;

bitflags! {
    /// What is so of a file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct FileFlags: u8 {
        /// Its numbers may not be what its map says now. It then stands in the list of pending
        /// files of every directory that holds it.
        const UNSETTLED = 1;
        /// Its numbers were learnt at least once.
        const KNOWN = 2;
        /// It has more than one name here: its names are in [`super::Tree::several`].
        const SEVERAL = 4;
        /// It could not be looked at.
        const UNREADABLE = 8;
    }
}

/// A regular file.
pub(super) struct FileNode {
    pub(super) ino: u64,
    pub(super) generation: u32,
    pub(super) device: DeviceIndex,
    pub(super) flags: FileFlags,
    pub(super) bytes: u64,
    pub(super) shared_bytes: u64,
    pub(super) extents: u32,
    pub(super) shared_extents: u32,
    pub(super) parts: SharedParts,
    /// When it was last marked as unsettled.
    pub(super) marked: Tick,
    /// When the work that gave its numbers began.
    pub(super) settled: Tick,
    /// The directory that holds its only name.
    pub(super) parent: DirSlot,
    /// Where it stands in the parent's list.
    pub(super) position: u32,
    /// Names it has on disk (`st_nlink`).
    pub(super) links: u32,
}

/// The names of a file that has more than one.
#[derive(Default)]
pub(super) struct SeveralNames {
    /// Directories that hold names of it.
    pub(super) held: HashMap<DirSlot, Held>,
    /// Names at or below each directory that has any.
    pub(super) below: HashMap<DirSlot, u32>,
}

/// A file in a directory.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) position: u32,
    pub(super) names: u32,
}

/// A directory.
pub(super) struct DirNode {
    pub(super) key: FileKey,
    pub(super) parent: DirSlot,
    /// Where it stands in the parent's list.
    pub(super) position: u32,
    pub(super) files: Vec<FileSlot>,
    pub(super) dirs: Vec<DirSlot>,
    /// Unsettled files it holds; others and repetitions are sorted out when it is visited.
    pub(super) pending_files: Vec<FileSlot>,
    /// Directories in it with something unsettled; likewise.
    pub(super) pending_dirs: Vec<DirSlot>,
    /// It stands in the parent's list of pending directories.
    pub(super) queued: bool,
    /// Everything at and below it was settled at some time.
    pub(super) was_settled: bool,
    pub(super) listing: Listing,
    /// Sums over what is below.
    pub(super) sums: Sums,
    /// The distinct shared bytes below, while nothing has changed.
    pub(super) distinct: Option<Bytes>,
    /// What they were made from.
    pub(super) coverage: Option<Box<Coverage>>,
    /// When the coverage was last used.
    pub(super) used: Tick,
}

/// How well the entries of a directory are known.
#[derive(Default)]
pub(super) struct Listing {
    /// What is known is what the directory holds, and changes are told.
    pub(super) known: bool,
    /// It was read at least once.
    pub(super) read: bool,
    /// It waits to be read.
    pub(super) queued: bool,
    /// Somebody is reading it, with the token of this number.
    pub(super) claim: Option<u64>,
    /// Another number after each change: a reading during which it moved counts for nothing.
    pub(super) version: u64,
    /// When the last reading began.
    pub(super) settled: Tick,
    /// Why it could not be read, if so.
    pub(super) skipped: Option<i32>,
}

/// Sums over files and directories. Modulo 2^64: intermediate results may be negative, what is
/// read never is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) files: u64,
    pub(super) dirs: u64,
    pub(super) bytes: u64,
    pub(super) shared_bytes: u64,
    pub(super) extents: u64,
    pub(super) shared_extents: u64,
    pub(super) outside: u64,
    /// Files whose numbers were never learnt.
    pub(super) unknown: u64,
    /// Pairs of a directory and a file with several names that it holds.
    pub(super) several: u64,
    /// Directories that could not be read and files that could not be looked at.
    pub(super) skipped: u64,
}

macro_rules! each_sum {
    ($left:ident, $right:ident, $operation:ident) => {
        Sums {
            files: $left.files.$operation($right.files),
            dirs: $left.dirs.$operation($right.dirs),
            bytes: $left.bytes.$operation($right.bytes),
            shared_bytes: $left.shared_bytes.$operation($right.shared_bytes),
            extents: $left.extents.$operation($right.extents),
            shared_extents: $left.shared_extents.$operation($right.shared_extents),
            outside: $left.outside.$operation($right.outside),
            unknown: $left.unknown.$operation($right.unknown),
            several: $left.several.$operation($right.several),
            skipped: $left.skipped.$operation($right.skipped),
        }
    };
}

impl Sums {
    /// Added up.
    pub(super) fn plus(self, other: Self) -> Self {
        each_sum!(self, other, wrapping_add)
    }

    /// Taken away.
    pub(super) fn minus(self, other: Self) -> Self {
        each_sum!(self, other, wrapping_sub)
    }

    /// The numbers in them.
    pub(super) fn numbers(&self) -> ShareSummary {
        ShareSummary {
            bytes: Bytes(self.bytes),
            shared_bytes: Bytes(self.shared_bytes),
            extents: self.extents,
            shared_extents: self.shared_extents,
        }
    }
}

impl FileNode {
    /// Its identity.
    pub(super) fn key(&self) -> FileKey {
        FileKey {
            ino: self.ino,
            generation: self.generation,
            device: self.device,
        }
    }

    /// What it adds to the sums of a directory with this many of its names below.
    pub(super) fn share(&self, names_below: u32) -> Sums {
        if names_below == 0 {
            return Sums::default();
        }
        Sums {
            files: 1,
            bytes: self.bytes,
            shared_bytes: self.shared_bytes,
            extents: u64::from(self.extents),
            shared_extents: u64::from(self.shared_extents),
            outside: if self.links > names_below {
                self.bytes
            } else {
                0
            },
            unknown: u64::from(!self.flags.contains(FileFlags::KNOWN)),
            skipped: u64::from(self.flags.contains(FileFlags::UNREADABLE)),
            ..Sums::default()
        }
    }

    /// Its numbers.
    pub(super) fn numbers(&self) -> ShareSummary {
        ShareSummary {
            bytes: Bytes(self.bytes),
            shared_bytes: Bytes(self.shared_bytes),
            extents: u64::from(self.extents),
            shared_extents: u64::from(self.shared_extents),
        }
    }
}

impl DirNode {
    /// A directory of which nothing is known.
    pub(super) fn new(key: FileKey) -> Self {
        Self {
            key,
            parent: DirSlot::NONE,
            position: 0,
            files: Vec::new(),
            dirs: Vec::new(),
            pending_files: Vec::new(),
            pending_dirs: Vec::new(),
            queued: false,
            was_settled: false,
            listing: Listing::default(),
            sums: Sums::default(),
            distinct: None,
            coverage: None,
            used: Tick::default(),
        }
    }

    /// Whether nothing is unsettled at or below it.
    pub(super) fn is_quiet(&self) -> bool {
        self.listing.known && self.pending_files.is_empty() && self.pending_dirs.is_empty()
    }
}
