//! The ioctls that no safe crate wraps, each wrapped once here: FIEMAP, FICLONERANGE and the
//! flush of XFS's background removal.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Records a call of FIEMAP may return; a file of more takes several calls.
const BATCH: usize = 1000;

const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660B;
const FICLONERANGE: libc::Ioctl = 0x4020_940D;
const XFS_IOC_FREE_EOFBLOCKS: libc::Ioctl = 0x8080_583A;
const FIEMAP_FLAG_SYNC: u32 = 1;
const FIEMAP_EXTENT_LAST: u32 = 1;
const FIEMAP_EXTENT_SHARED: u32 = 0x2000;

/// `struct fiemap_extent` of `linux/fiemap.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Record {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap` of `linux/fiemap.h` with room for [`BATCH`] records.
#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    records: [Record; BATCH],
}

/// What the records of one file add up to, as the kernel gives them (neither merged nor clipped).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Bytes in all records.
    pub(crate) bytes: u64,
    /// Of these, bytes in records flagged shared.
    pub(crate) shared_bytes: u64,
    /// Number of records.
    pub(crate) records: u64,
}

impl std::ops::AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.shared_bytes += other.shared_bytes;
        self.records += other.records;
    }
}

/// Whether FIEMAP first writes back what is dirty of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writeback {
    /// Yes (`FIEMAP_FLAG_SYNC`).
    First,
    /// No.
    Leave,
}

/// Maps files; holds the buffer that the kernel fills, so that asking allocates nothing.
pub(crate) struct Mapper(Box<Request>);

impl Mapper {
    /// A mapper with its buffer.
    pub(crate) fn new() -> Self {
        Self(Box::new(Request {
            start: 0,
            length: 0,
            flags: 0,
            mapped_extents: 0,
            extent_count: 0,
            reserved: 0,
            records: [Record::default(); BATCH],
        }))
    }

    /// The sums of the map of `file`.
    pub(crate) fn sums(&mut self, file: BorrowedFd<'_>, writeback: Writeback) -> io::Result<Sums> {
        let mut sums = Sums::default();
        let mut start = 0;
        loop {
            self.0.start = start;
            self.0.length = u64::MAX - start;
            self.0.flags = match writeback {
                Writeback::First => FIEMAP_FLAG_SYNC,
                Writeback::Leave => 0,
            };
            self.0.mapped_extents = 0;
            self.0.extent_count = BATCH as u32;
            // SAFETY: the argument is a `struct fiemap` followed by `extent_count` records, all
            // of it owned by this mapper and borrowed mutably during the call; the kernel writes
            // no further than that.
            let code = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut *self.0) };
            if code < 0 {
                return Err(io::Error::last_os_error());
            }
            let filled = self.0.mapped_extents as usize;
            let records = self.0.records.get(..filled).unwrap_or(&self.0.records);
            for record in records {
                sums.bytes += record.length;
                sums.records += 1;
                if record.flags & FIEMAP_EXTENT_SHARED != 0 {
                    sums.shared_bytes += record.length;
                }
            }
            match records.last() {
                Some(last) if last.flags & FIEMAP_EXTENT_LAST == 0 => {
                    start = last.logical + last.length;
                }
                _ => return Ok(sums),
            }
        }
    }
}

/// `struct file_clone_range` of `linux/fs.h`.
#[repr(C)]
struct CloneRange {
    source: i64,
    source_offset: u64,
    length: u64,
    destination_offset: u64,
}

/// Makes `length` bytes of `destination` at `offset` share the blocks of `source` at the same
/// offset (`FICLONERANGE`; a length of 0 means to the end of `source`).
pub(crate) fn clone_range(
    destination: BorrowedFd<'_>,
    source: BorrowedFd<'_>,
    offset: u64,
    length: u64,
) -> io::Result<()> {
    let range = CloneRange {
        source: i64::from(source.as_raw_fd()),
        source_offset: offset,
        length,
        destination_offset: offset,
    };
    // SAFETY: the argument is a `struct file_clone_range` that the kernel only reads, and both
    // descriptors are open for the time of the call.
    let code = unsafe { libc::ioctl(destination.as_raw_fd(), FICLONERANGE, &raw const range) };
    if code < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// `struct xfs_fs_eofblocks` of `xfs/xfs_fs.h`.
#[repr(C)]
struct EofBlocks {
    version: u32,
    flags: u32,
    uid: u32,
    gid: u32,
    project: u32,
    pad32: u32,
    min_file_size: u64,
    pad64: [u64; 12],
}

/// Waits until XFS has given back the blocks of removed files (`XFS_IOC_FREE_EOFBLOCKS` with a
/// filter that matches no file). Other filesystems do not know the request: nothing happens.
pub(crate) fn finish_removals(directory: BorrowedFd<'_>) -> io::Result<()> {
    const MINFILESIZE: u32 = 1 << 4;
    let filter = EofBlocks {
        version: 1,
        flags: MINFILESIZE,
        uid: 0,
        gid: 0,
        project: 0,
        pad32: 0,
        min_file_size: 1 << 62,
        pad64: [0; 12],
    };
    // SAFETY: the argument is a `struct xfs_fs_eofblocks` that the kernel only reads.
    let code = unsafe {
        libc::ioctl(
            directory.as_raw_fd(),
            XFS_IOC_FREE_EOFBLOCKS,
            &raw const filter,
        )
    };
    if code < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENOTTY | libc::EOPNOTSUPP | libc::EINVAL) => Ok(()),
            _ => Err(error),
        };
    }
    Ok(())
}
