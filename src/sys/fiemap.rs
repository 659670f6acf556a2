//! `FS_IOC_FIEMAP`: where a file lies, and writing it back so that the answer is true.
//!
//! The kernel holds the inode's lock shared for the length of one call, so a large map is asked
//! for in batches: one call over 400,000 records stalls a writer for 0.3 s.

use super::{check, field, request};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `FIEMAP_FLAG_SYNC`.
const SYNC: u32 = 1;
/// `FIEMAP_EXTENT_LAST`.
const LAST: u32 = 1;
/// Bytes of a `struct fiemap_extent`.
const RECORD: usize = 56;
/// Largest batch: the kernel takes far more, but a batch also bounds the time under the lock.
const LARGEST_BATCH: usize = 4096;

/// `struct fiemap`, without its extents.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Head {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

/// `struct fiemap_extent`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Offset in the file.
    pub logical: u64,
    /// Address, or a key.
    pub physical: u64,
    /// Length in the file.
    pub length: u64,
    /// `FIEMAP_EXTENT_*`.
    pub flags: u32,
}

/// Room for one batch of records, kept by the caller across calls.
#[derive(Debug)]
pub struct Batch {
    /// A head and then the records, in words so that it is aligned as the kernel's structure.
    words: Vec<u64>,
    capacity: u32,
}

const HEAD_WORDS: usize = size_of::<Head>() / 8;

impl Batch {
    /// Room for `records` records, at least one and at most 4096.
    #[must_use]
    pub fn new(records: usize) -> Self {
        let capacity = records.clamp(1, LARGEST_BATCH);
        Self {
            words: vec![0; HEAD_WORDS + capacity * RECORD / 8],
            capacity: capacity as u32,
        }
    }

    /// Reads the next records of `fd` from the file offset `from` on, without writeback, and
    /// gives them to `sink`. True when the map ends with them.
    ///
    /// A record may begin before `from`, when `from` lies inside it.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the filesystem has no FIEMAP (and for directories on most), `EBADF` on
    /// an `O_PATH` descriptor.
    pub fn read(
        &mut self,
        fd: BorrowedFd<'_>,
        from: u64,
        mut sink: impl FnMut(Record),
    ) -> io::Result<bool> {
        let head = call(
            fd,
            &mut self.words,
            Head {
                start: from,
                length: u64::MAX - from,
                extent_count: self.capacity,
                ..Head::default()
            },
        )?;
        let count = head.mapped_extents.min(self.capacity) as usize;
        let mut last = false;
        for words in self
            .words
            .get(HEAD_WORDS..)
            .unwrap_or_default()
            .chunks_exact(RECORD / 8)
            .take(count)
        {
            let [logical, physical, length, _, _, flags, _] = words else {
                break;
            };
            let record = Record {
                logical: *logical,
                physical: *physical,
                length: *length,
                flags: field::u32(&flags.to_ne_bytes(), 0).unwrap_or_default(),
            };
            last = record.flags & LAST != 0;
            sink(record);
        }
        Ok(last || count < self.capacity as usize)
    }
}

/// Writes the dirty data of `fd` back and waits until its map shows them (`FIEMAP_FLAG_SYNC`; any
/// range writes the whole file back). Costs nothing on a clean file.
///
/// # Errors
/// Of writeback (`EIO`, `ENOSPC`, `EDQUOT`); `EOPNOTSUPP` where there is no FIEMAP.
pub fn write_back(fd: BorrowedFd<'_>) -> io::Result<()> {
    // With no room for records only their number is asked; one byte keeps that number small.
    call(
        fd,
        &mut [0; HEAD_WORDS],
        Head {
            length: 1,
            flags: SYNC,
            ..Head::default()
        },
    )
    .map(drop)
}

/// Calls the kernel with `head` in front of `words`, which has room for what `head` allows.
fn call(fd: BorrowedFd<'_>, words: &mut [u64], head: Head) -> io::Result<Head> {
    let room = words.len().saturating_sub(HEAD_WORDS) * 8 / RECORD;
    if words.len() < HEAD_WORDS || room < head.extent_count as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let pointer = words.as_mut_ptr().cast::<Head>();
    // SAFETY: the words begin with room for the head (checked above) and are aligned for it;
    // behind it there is room for `extent_count` records. They outlive the call.
    unsafe {
        pointer.write(head);
        check(libc::ioctl(
            fd.as_raw_fd(),
            request::both::<Head>(b'f', 11) as _,
            pointer,
        ))?;
        Ok(pointer.read())
    }
}

const _: () = assert!(size_of::<Head>() == 32);
