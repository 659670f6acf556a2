//! The numbers of a file outside a mount, by one FIEMAP of it.
//!
//! The file's own dirty data are written back first. Changes to files that share with it and are
//! not on disk yet are not seen: a mount takes care of that, one FIEMAP cannot.

use crate::extent::{Bytes, Extent, ExtentFlags, ExtentMap, FileOffset, MapBuilder, Physical};
use crate::sys::{fiemap, statfs};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Records a call, so that a writer of a huge file is not held up for long.
const BATCH: usize = 1000;

/// The extent map of the regular file at `path`.
///
/// # Errors
/// Of opening it, or `EOPNOTSUPP` where there is no FIEMAP.
pub(crate) fn map(path: &Path) -> io::Result<ExtentMap> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
    let file = open(path, flags, Mode::empty())?;
    map_of(file.as_fd())
}

/// As [`map`], of an open file.
///
/// # Errors
/// `EOPNOTSUPP` where there is no FIEMAP.
pub(crate) fn map_of(file: BorrowedFd<'_>) -> io::Result<ExtentMap> {
    fiemap::write_back(file)?;
    let size = u64::try_from(fstat(file)?.st_size).unwrap_or_default();
    let block = statfs::filesystem(file)?.block;
    let mut map = MapBuilder::new(Bytes(size), Bytes(block));
    let mut batch = fiemap::Batch::new(BATCH);
    let mut from = 0;
    loop {
        let mut wanted = true;
        let mut next = from;
        let ended = batch.read(file, from, |record| {
            next = record.logical.saturating_add(record.length);
            wanted &= map.push(Extent {
                logical: FileOffset(record.logical),
                physical: Physical(record.physical),
                length: Bytes(record.length),
                flags: ExtentFlags::from_bits_retain(record.flags),
            });
        })?;
        if ended || !wanted || next <= from {
            return Ok(map.finish());
        }
        from = next;
    }
}
