//! XFS: carrying out background removals, and the layout of allocation groups.
//!
//! Structures and numbers are those of `xfs_fs.h`.

use super::{check, request};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `XFS_EOFBLOCKS_VERSION`.
const VERSION: u32 = 1;
/// `XFS_EOF_FLAGS_MINFILESIZE`.
const MIN_FILE_SIZE: u32 = 1 << 4;

/// `struct xfs_fs_eofblocks`.
#[repr(C)]
#[derive(Default)]
struct EofBlocks {
    version: u32,
    flags: u32,
    uid: u32,
    gid: u32,
    prid: u32,
    pad32: u32,
    min_file_size: u64,
    pad64: [u64; 12],
}

/// `struct xfs_fsop_geom` (version 5).
#[repr(C)]
#[derive(Clone, Copy)]
struct RawGeometry {
    blocksize: u32,
    rtextsize: u32,
    agblocks: u32,
    agcount: u32,
    logblocks: u32,
    sectsize: u32,
    inodesize: u32,
    imaxpct: u32,
    datablocks: u64,
    rtblocks: u64,
    rtextents: u64,
    logstart: u64,
    uuid: [u8; 16],
    sunit: u32,
    swidth: u32,
    version: i32,
    flags: u32,
    logsectsize: u32,
    rtsectsize: u32,
    dirblocksize: u32,
    logsunit: u32,
    sick: u32,
    checked: u32,
    rgextents: u32,
    rgcount: u32,
    reserved: [u64; 16],
}

/// `XFS_FSOP_GEOM_FLAGS_RMAPBT`.
const FLAG_RMAPBT: u32 = 1 << 19;
/// `XFS_FSOP_GEOM_FLAGS_REFLINK`.
const FLAG_REFLINK: u32 = 1 << 20;

/// How an XFS filesystem is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size of a block in bytes.
    pub block: u32,
    /// Number of allocation groups.
    pub groups: u32,
    /// Blocks of an allocation group.
    pub group_blocks: u32,
    /// Size of an inode in bytes.
    pub inode: u32,
    /// Whether files can share blocks.
    pub reflink: bool,
    /// Whether the filesystem knows the owners of its blocks.
    pub rmap: bool,
}

impl Geometry {
    /// The allocation group that holds the inode `ino`: the inode number is the group, then the
    /// block in the group, then the inode in the block, each in as many bits as it needs.
    #[must_use]
    pub fn group_of(&self, ino: u64) -> u32 {
        let inodes_in_block = self.block.checked_div(self.inode).unwrap_or(1).max(1);
        let bits = bits_for(self.group_blocks) + inodes_in_block.ilog2();
        ino.checked_shr(bits)
            .map_or(0, |group| u32::try_from(group).unwrap_or(u32::MAX))
    }
}

/// Bits that hold every number below `count`.
fn bits_for(count: u32) -> u32 {
    count
        .saturating_sub(1)
        .checked_ilog2()
        .map_or(0, |bits| bits + 1)
}

/// The layout of the filesystem of `fd`. Needs no privilege.
///
/// # Errors
/// `ENOTTY` on another filesystem.
pub fn geometry(fd: BorrowedFd<'_>) -> io::Result<Geometry> {
    let mut raw = MaybeUninit::<RawGeometry>::zeroed();
    // SAFETY: the buffer has the size that the request number states, and every bit pattern is a
    // value of it; it outlives the call.
    let raw = unsafe {
        check(libc::ioctl(
            fd.as_raw_fd(),
            request::read::<RawGeometry>(b'X', 126) as _,
            raw.as_mut_ptr(),
        ))?;
        raw.assume_init()
    };
    Ok(Geometry {
        block: raw.blocksize,
        groups: raw.agcount,
        group_blocks: raw.agblocks,
        inode: raw.inodesize,
        reflink: raw.flags & FLAG_REFLINK != 0,
        rmap: raw.flags & FLAG_RMAPBT != 0,
    })
}

/// Has every removal that waits in the background carried out, and mostly waits for it: 2 us when
/// nothing waits. Needs `CAP_SYS_ADMIN`.
///
/// A removed file gives its blocks back in a worker some milliseconds later, and until then they
/// are shared. `XFS_IOC_FREE_EOFBLOCKS` flushes that worker before it looks for preallocation to
/// free; asked for files of 2^62 bytes and more only, it finds none and does nothing else. It may
/// return too early while others remove files: each removal takes the worker's timer out of its
/// queue for a moment to set it anew, and is not waited for then (`xfs_inodegc_queue`). Whether a
/// removal was carried out is told by [`Freed`].
///
/// # Errors
/// `EPERM` without the privilege, `EROFS` on a read-only filesystem, `ENOTTY` on another one.
pub fn flush_removals(fd: BorrowedFd<'_>) -> io::Result<()> {
    let argument = EofBlocks {
        version: VERSION,
        flags: MIN_FILE_SIZE,
        min_file_size: 1 << 62,
        ..EofBlocks::default()
    };
    // SAFETY: `argument` has the size that the request number states and outlives the call.
    check(unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            request::read::<EofBlocks>(b'X', 58) as _,
            &raw const argument,
        )
    })
    .map(drop)
}

/// `struct xfs_bulk_ireq`, the head of the next two.
#[repr(C)]
#[derive(Default)]
struct BulkRequest {
    ino: u64,
    flags: u32,
    room: u32,
    count: u32,
    group: u32,
    reserved: [u64; 5],
}

/// `struct xfs_inumbers`: an allocation unit of inodes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Chunk {
    first: u64,
    allocated: u64,
    count: u8,
    version: u8,
    padding: [u8; 6],
}

/// `struct xfs_inumbers_req`.
#[repr(C)]
#[derive(Default)]
struct Inumbers {
    request: BulkRequest,
    chunks: [Chunk; 2],
}

/// `struct xfs_bulkstat_req` for one `struct xfs_bulkstat`, of which only number and generation
/// are named.
#[repr(C)]
struct Bulkstat {
    request: BulkRequest,
    ino: u64,
    other: [u64; 7],
    generation: u32,
    rest: [u32; 31],
}

/// Inodes in the unit of their allocation.
const CHUNK: u64 = 64;

/// Tells whether removed inodes were given back, the last step of which frees the inode itself.
#[derive(Debug)]
pub struct Freed<'a> {
    fd: BorrowedFd<'a>,
    /// The first inode of the unit asked about last, and which of it are allocated.
    known: Option<(u64, u64)>,
}

impl<'a> Freed<'a> {
    /// Of the filesystem that `fd` is on.
    #[must_use]
    pub fn of(fd: BorrowedFd<'a>) -> Self {
        Self { fd, known: None }
    }

    /// Whether the inode of this number and generation was given back. Quick for neighbours one
    /// after the other. Needs `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    /// Of `XFS_IOC_INUMBERS` and `XFS_IOC_BULKSTAT`.
    pub fn is(&mut self, ino: u64, generation: u32) -> io::Result<bool> {
        let holds = |first: u64| first <= ino && ino - first < CHUNK;
        let chunk = match self.known.filter(|(first, _)| holds(*first)) {
            Some(known) => Some(known),
            None => {
                self.known = self
                    .chunks_before(ino)?
                    .into_iter()
                    .find(|(first, _)| holds(*first));
                self.known
            }
        };
        if chunk.is_none_or(|(first, allocated)| allocated & (1 << (ino - first)) == 0) {
            return Ok(true);
        }
        // Allocated still, or again for another file.
        Ok(self.generation(ino)?.is_some_and(|now| now != generation))
    }

    /// The units that can hold this inode: the first inode of each, and a bit for each inode that
    /// is allocated.
    fn chunks_before(&self, ino: u64) -> io::Result<Vec<(u64, u64)>> {
        let mut argument = Inumbers {
            request: BulkRequest {
                ino: ino.saturating_sub(CHUNK - 1),
                room: 2,
                ..BulkRequest::default()
            },
            ..Inumbers::default()
        };
        // SAFETY: the request number states the head's size; what follows it has room for the two
        // records that are asked for, and `argument` outlives the call.
        check(unsafe {
            libc::ioctl(
                self.fd.as_raw_fd(),
                request::read::<BulkRequest>(b'X', 128) as _,
                &raw mut argument,
            )
        })?;
        let found = argument.chunks.iter().take(argument.request.count as usize);
        Ok(found.map(|chunk| (chunk.first, chunk.allocated)).collect())
    }

    /// The generation of a living inode.
    fn generation(&self, ino: u64) -> io::Result<Option<u32>> {
        let mut argument = Bulkstat {
            request: BulkRequest {
                ino,
                room: 1,
                ..BulkRequest::default()
            },
            ino: 0,
            other: [0; 7],
            generation: 0,
            rest: [0; 31],
        };
        // SAFETY: as above, for one record.
        check(unsafe {
            libc::ioctl(
                self.fd.as_raw_fd(),
                request::read::<BulkRequest>(b'X', 127) as _,
                &raw mut argument,
            )
        })?;
        let found = argument.request.count > 0 && argument.ino == ino;
        Ok(found.then_some(argument.generation))
    }
}

const _: () = {
    assert!(size_of::<EofBlocks>() == 128);
    assert!(size_of::<BulkRequest>() == 64);
    assert!(size_of::<Inumbers>() == 64 + 2 * 24);
    assert!(size_of::<Bulkstat>() == 64 + 192);
    assert!(size_of::<RawGeometry>() == 256);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_number_names_its_group() {
        // As mkfs.xfs lays out 1 GiB in four groups: 65,536 blocks of 4 KiB each, inodes of 512
        // bytes; 16 + 3 bits lie below the group.
        let geometry = Geometry {
            block: 4096,
            groups: 4,
            group_blocks: 65_536,
            inode: 512,
            reflink: true,
            rmap: true,
        };
        assert_eq!(geometry.group_of(128), 0);
        assert_eq!(geometry.group_of((1 << 19) - 1), 0);
        assert_eq!(geometry.group_of(1 << 19), 1);
        assert_eq!(geometry.group_of(3 << 19 | 7), 3);
    }

    #[test]
    fn a_group_that_is_no_power_of_two_takes_the_bits_of_the_next_one() {
        assert_eq!(bits_for(65_536), 16);
        assert_eq!(bits_for(65_537), 17);
        assert_eq!(bits_for(1), 0);
        assert_eq!(bits_for(0), 0);
    }
}
