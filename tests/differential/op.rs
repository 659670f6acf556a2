//! What can happen to a small set of files, as plain data.
//!
//! A step names files, handles and mappings by number and is executed whatever state it meets
//! (a missing file is simply an error), so that any part of a history is a history too: this is
//! what lets a failing one be shrunk.

pub const BLOCK: u64 = 4096;
/// Names in use. The first ones are small files, of which one write can reach every byte (on
/// btrfs an extent is shared until its last byte is not), the last ones large.
pub const FILES: u8 = 12;
pub const SMALL: u8 = 4;
pub const LARGE: u8 = 2;
/// Descriptors kept open across steps, for one actor.
pub const HANDLES: u8 = 5;
/// Mappings kept alive across steps, for one actor.
pub const MAPPINGS: u8 = 3;

/// How data are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Buffered,
    Direct,
    Dsync,
    Append,
}

/// The modes of fallocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Allocate,
    KeepSize,
    Punch,
    Zero,
    ZeroKeepSize,
    Collapse,
    Insert,
    Unshare,
}

/// Changes that leave the data alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noise {
    SetXattr,
    Chmod,
    Times,
    Read,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Summary,
    Json,
    /// A file's map, a directory's children.
    Text,
    /// One of the plain numbers, by its place in the contract's tables.
    Number(u8),
}

/// Whom a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    File(u8),
    /// The file of an open handle, which may have lost its name.
    Handle(u8),
    /// Every file, one after another, before any answer is compared.
    All,
    /// A directory and everything below it.
    Tree(u8),
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Makes the file anew with `length` bytes of data.
    Create {
        file: u8,
        length: u64,
    },
    Write {
        file: u8,
        at: u64,
        length: u64,
        how: How,
    },
    Truncate {
        file: u8,
        length: u64,
    },
    /// Opens with `O_TRUNC` and closes.
    OpenTruncate {
        file: u8,
    },
    Allocate {
        file: u8,
        space: Space,
        at: u64,
        length: u64,
    },
    Copy {
        from: u8,
        from_at: u64,
        to: u8,
        to_at: u64,
        length: u64,
    },
    /// A whole file over another, as cp does.
    CopyWhole {
        from: u8,
        to: u8,
    },
    Unlink {
        file: u8,
    },
    Rename {
        from: u8,
        to: u8,
    },
    Exchange {
        a: u8,
        b: u8,
    },
    /// Exchanges two directories with everything below them.
    ExchangeTrees,
    Link {
        from: u8,
        to: u8,
    },
    Fsync {
        file: u8,
    },
    /// Opens and keeps the descriptor.
    Open {
        file: u8,
        handle: u8,
        write: bool,
        how: How,
    },
    HandleWrite {
        handle: u8,
        at: u64,
        length: u64,
    },
    HandleTruncate {
        handle: u8,
        length: u64,
    },
    HandleAllocate {
        handle: u8,
        space: Space,
        at: u64,
        length: u64,
    },
    /// Copies from one open file to another.
    HandleCopy {
        from: u8,
        from_at: u64,
        to: u8,
        to_at: u64,
        length: u64,
    },
    HandleFsync {
        handle: u8,
    },
    Close {
        handle: u8,
    },
    /// Maps the file and closes the descriptor it was mapped from.
    Map {
        file: u8,
        mapping: u8,
    },
    Store {
        mapping: u8,
        at: u64,
        length: u64,
    },
    Msync {
        mapping: u8,
    },
    Unmap {
        mapping: u8,
    },
    Noise {
        file: u8,
        noise: Noise,
    },
    /// The backing filesystem starts to write the file back by itself.
    Writeback {
        file: u8,
    },
    /// Time passes.
    Wait {
        milliseconds: u8,
    },
    /// Takes a snapshot of the whole tree (btrfs, behind the mount).
    Snapshot {
        snapshot: u8,
    },
    /// Removes a snapshot and waits until it is gone.
    DropSnapshot {
        snapshot: u8,
    },
    /// Writes the same data into two files, then shares them as a deduplicating daemon does
    /// (behind the mount).
    Dedupe {
        from: u8,
        to: u8,
    },
    /// Rewrites a file into fewer extents (behind the mount).
    Defragment {
        file: u8,
    },
}

impl Op {
    /// Whether it works through a mapping.
    pub fn maps(&self) -> bool {
        matches!(
            self,
            Self::Map { .. } | Self::Store { .. } | Self::Msync { .. } | Self::Unmap { .. }
        )
    }
}

/// Who acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A program on the mount.
    Mount,
    /// A program on the backing path, behind the mount.
    Behind,
}

/// One step of a history.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Act(Who, Op),
    /// A question; when `checked`, the truth is taken after the answer and they must be equal.
    Ask {
        about: About,
        what: What,
        checked: bool,
    },
}
