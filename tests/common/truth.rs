//! What is true of a file's sharing, taken from the backing filesystem once it has settled, by
//! code of the tests' own: the rules of the public contract (merge, clip) written a second time.

use super::raw::{self, Record};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub const LAST: u32 = 0x1;
pub const ENCODED: u32 = 0x8;
pub const SHARED: u32 = 0x2000;
/// UNKNOWN, DELALLOC, ENCODED, encrypted, NOT_ALIGNED, INLINE, TAIL: the address is none.
const NO_ADDRESS: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400;

/// One extent after merging and clipping.
pub type Piece = Record;

/// The numbers of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    pub bytes: u64,
    pub shared_bytes: u64,
    pub extents: u64,
    pub shared_extents: u64,
}

impl Numbers {
    pub fn exclusive_bytes(&self) -> u64 {
        self.bytes - self.shared_bytes
    }

    pub fn of(pieces: &[Piece]) -> Self {
        let mut numbers = Self::default();
        for piece in pieces {
            numbers.bytes += piece.length;
            numbers.extents += 1;
            if piece.flags & SHARED != 0 {
                numbers.shared_bytes += piece.length;
                numbers.shared_extents += 1;
            }
        }
        numbers
    }
}

/// Writes everything dirty back and lets every finished removal be carried out, on the filesystem
/// that holds `path` (a backing path, never one below a mount under test).
pub fn settle(path: &Path) {
    let on = File::open(path).unwrap();
    nix::unistd::syncfs(&on).unwrap();
    // Only XFS removes in the background; others do not know the request.
    let _ = raw::flush_removals(&on);
}

/// The extents of a backing file by the rules of the contract; settles first.
pub fn map(path: &Path) -> Vec<Piece> {
    settle(path);
    map_unsettled(path)
}

/// As [`map`], without settling anything but the file itself.
pub fn map_unsettled(path: &Path) -> Vec<Piece> {
    let file = File::open(path).unwrap();
    let meta = file.metadata().unwrap();
    let block = nix::sys::statfs::fstatfs(&file)
        .map(|fs| u64::try_from(fs.block_size()).unwrap())
        .unwrap();
    let records = raw::fiemap(&file, true).unwrap();
    normalise(&records, meta.size(), block)
}

/// The numbers of a backing file; settles first.
pub fn numbers(path: &Path) -> Numbers {
    Numbers::of(&map(path))
}

/// Leaves out what lies past the end of file rounded up to the block, cuts what crosses it, and
/// joins neighbours that continue each other in the file and on the device with equal flags.
pub fn normalise(records: &[Record], size: u64, block: u64) -> Vec<Piece> {
    let end = size.div_ceil(block) * block;
    let mut pieces: Vec<Piece> = Vec::new();
    for record in records {
        if record.logical >= end {
            continue;
        }
        let mut piece = *record;
        piece.length = piece.length.min(end - piece.logical);
        piece.flags &= !LAST;
        if let Some(before) = pieces.last_mut() {
            let joins = before.flags == piece.flags
                && piece.flags & NO_ADDRESS == 0
                && before.logical + before.length == piece.logical
                && before.physical + before.length == piece.physical;
            if joins {
                before.length += piece.length;
                continue;
            }
        }
        pieces.push(piece);
    }
    pieces
}
