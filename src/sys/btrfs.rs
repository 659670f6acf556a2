//! btrfs: the extent items of a file, subvolumes, and waiting for its background removal.
//!
//! Structures and numbers are those of `linux/btrfs.h` and `linux/btrfs_tree.h`. Headers of a
//! search result are in native byte order, items as on disk (little-endian).

use super::{check, field, request};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd};

const GROUP: u8 = 0x94;
/// Inode number of the root directory of every subvolume (`BTRFS_FIRST_FREE_OBJECTID`).
pub const SUBVOLUME_ROOT: u64 = 256;
/// Id of the top-level subvolume (`BTRFS_FS_TREE_OBJECTID`).
pub const TOP_LEVEL: u64 = 5;
/// Largest uncompressed extent item (`BTRFS_MAX_EXTENT_SIZE`), in bytes.
pub const LARGEST_ITEM: u64 = 128 << 20;

/// `BTRFS_EXTENT_DATA_KEY`.
const EXTENT_DATA: u32 = 108;
/// `BTRFS_ORPHAN_ITEM_KEY`.
const ORPHAN_ITEM: u32 = 48;
/// `BTRFS_ORPHAN_OBJECTID` (-5).
const ORPHANS: u64 = u64::MAX - 4;
/// `BTRFS_ROOT_TREE_OBJECTID`.
const ROOT_TREE: u64 = 1;
/// `BTRFS_FILE_EXTENT_INLINE`.
const INLINE: u8 = 0;
/// Offsets in `struct btrfs_file_extent_item`.
const ITEM_TYPE: usize = 20;
const ITEM_DISK_BYTENR: usize = 21;
const ITEM_DISK_NUM_BYTES: usize = 29;

/// Bytes of search results asked for at a time; about 700 items.
const SEARCH_ROOM: usize = 64 << 10;

/// `struct btrfs_ioctl_search_key`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct SearchKey {
    tree_id: u64,
    min_objectid: u64,
    max_objectid: u64,
    min_offset: u64,
    max_offset: u64,
    min_transid: u64,
    max_transid: u64,
    min_type: u32,
    max_type: u32,
    nr_items: u32,
    unused: u32,
    unused1: u64,
    unused2: u64,
    unused3: u64,
    unused4: u64,
}

/// The head of `struct btrfs_ioctl_search_args_v2`; its size is what the request number holds.
#[repr(C)]
struct SearchHead {
    key: SearchKey,
    buf_size: u64,
}

#[repr(C)]
struct SearchArguments {
    head: SearchHead,
    buffer: [u8; SEARCH_ROOM],
}

/// Bytes of `struct btrfs_ioctl_search_header`: transid, objectid, offset, type, len.
const RESULT_HEAD: usize = 32;

/// `struct btrfs_ioctl_fs_info_args`, of which only the first fields are named.
#[repr(C)]
struct FsInfo {
    max_id: u64,
    num_devices: u64,
    fsid: [u8; 16],
    rest: [u8; 992],
}

/// `struct btrfs_ioctl_subvol_wait`.
#[repr(C)]
struct SubvolWait {
    subvolid: u64,
    mode: u32,
    count: u32,
}

/// `BTRFS_SUBVOL_SYNC_COUNT`.
const WAIT_COUNT: u32 = 2;

/// `struct btrfs_ioctl_get_subvol_info_args`, of which only the first fields are named.
#[repr(C)]
struct SubvolInfo {
    treeid: u64,
    name: [u8; 256],
    parent_id: u64,
    dirid: u64,
    generation: u64,
    rest: [u8; 504 - 288],
}

/// A place on the filesystem's address space, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemRange {
    /// First byte (`disk_bytenr`).
    pub start: u64,
    /// Length on the device (`disk_num_bytes`), compressed.
    pub length: u64,
}

/// What a subvolume says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subvolume {
    /// Its id.
    pub id: u64,
    /// The generation of its root; taking a snapshot of it moves it.
    pub generation: u64,
}

/// The id (UUID) of the filesystem of `fd`, one for all its subvolumes. Needs no privilege.
///
/// # Errors
/// `ENOTTY` on another filesystem.
pub fn filesystem_id(fd: BorrowedFd<'_>) -> io::Result<[u8; 16]> {
    let mut info = FsInfo {
        max_id: 0,
        num_devices: 0,
        fsid: [0; 16],
        rest: [0; 992],
    };
    // SAFETY: `info` has the size that the request number states and outlives the call.
    check(unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            request::read::<FsInfo>(GROUP, 31) as _,
            &raw mut info,
        )
    })?;
    Ok(info.fsid)
}

/// The subvolume of `fd`. Needs no privilege.
///
/// # Errors
/// `ENOTTY` on another filesystem.
pub fn subvolume(fd: BorrowedFd<'_>) -> io::Result<Subvolume> {
    let mut info = SubvolInfo {
        treeid: 0,
        name: [0; 256],
        parent_id: 0,
        dirid: 0,
        generation: 0,
        rest: [0; 504 - 288],
    };
    // SAFETY: `info` has the size that the request number states and outlives the call.
    check(unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            request::read::<SubvolInfo>(GROUP, 60) as _,
            &raw mut info,
        )
    })?;
    Ok(Subvolume {
        id: info.treeid,
        generation: info.generation,
    })
}

/// The distinct extent items that the file `fd` with inode number `ino` references, in the order
/// of their addresses, by its own EXTENT_DATA items: current also before a commit, except for data
/// that wait for writeback. Needs `CAP_SYS_ADMIN`.
///
/// # Errors
/// `EPERM` without the privilege.
pub fn items(fd: BorrowedFd<'_>, ino: u64) -> io::Result<Vec<ItemRange>> {
    let mut found: Vec<ItemRange> = Vec::new();
    // Tree 0 is that of the subvolume of `fd`.
    search(fd, 0, ino, EXTENT_DATA, |_, item| {
        // Neighbouring pieces of one item are the common case.
        match item_range(item) {
            Some(range) if found.last() != Some(&range) => found.push(range),
            _ => {}
        }
    })?;
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The place that an EXTENT_DATA item names; `None` for inline data and holes.
fn item_range(item: &[u8]) -> Option<ItemRange> {
    if *item.get(ITEM_TYPE)? == INLINE {
        return None;
    }
    let start = field::le64(item, ITEM_DISK_BYTENR)?;
    let length = field::le64(item, ITEM_DISK_NUM_BYTES)?;
    // Address 0 is a hole.
    (start != 0).then_some(ItemRange { start, length })
}

/// The ids of removed subvolumes whose extents are not all given back yet: those that wait for
/// the cleaner, the one it works on, and those with files still open. Needs `CAP_SYS_ADMIN`.
///
/// The filesystem keeps an orphan item for each until the last of its extents is dropped. The
/// queue that `BTRFS_IOC_SUBVOL_SYNC_WAIT` looks at has not the one that is being cleaned.
///
/// # Errors
/// `EPERM` without the privilege.
pub fn removed_subvolumes(fd: BorrowedFd<'_>) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    search(fd, ROOT_TREE, ORPHANS, ORPHAN_ITEM, |id, _| {
        // Below are the filesystem's own trees.
        if id >= SUBVOLUME_ROOT {
            found.push(id);
        }
    })?;
    Ok(found)
}

/// Gives the offset and the bytes of every item of `objectid` and `kind` in a tree to `visit`.
fn search(
    fd: BorrowedFd<'_>,
    tree: u64,
    objectid: u64,
    kind: u32,
    mut visit: impl FnMut(u64, &[u8]),
) -> io::Result<()> {
    let mut arguments = Box::new(SearchArguments {
        head: SearchHead {
            key: SearchKey::default(),
            buf_size: SEARCH_ROOM as u64,
        },
        buffer: [0; SEARCH_ROOM],
    });
    let mut from = 0;
    loop {
        arguments.head.key = SearchKey {
            tree_id: tree,
            min_objectid: objectid,
            max_objectid: objectid,
            min_offset: from,
            max_offset: u64::MAX,
            min_transid: 0,
            max_transid: u64::MAX,
            min_type: kind,
            max_type: kind,
            nr_items: u32::MAX,
            ..SearchKey::default()
        };
        // SAFETY: the arguments are a head of the size that the request number states, followed
        // by `buf_size` bytes of room; they outlive the call.
        check(unsafe {
            libc::ioctl(
                fd.as_raw_fd(),
                request::both::<SearchHead>(GROUP, 17) as _,
                &raw mut *arguments,
            )
        })?;
        let count = arguments.head.key.nr_items;
        let last = read_results(&arguments.buffer, count, &mut visit);
        match last.and_then(|last| last.checked_add(1)) {
            Some(next) => from = next,
            None => return Ok(()),
        }
    }
}

/// Takes the items out of one answer; the key offset of the last one, `None` if it held none.
fn read_results(buffer: &[u8], count: u32, visit: &mut impl FnMut(u64, &[u8])) -> Option<u64> {
    let mut last = None;
    let mut at = 0;
    for _ in 0..count {
        let offset = field::u64(buffer, at + 16)?;
        let length = field::u32(buffer, at + 28)? as usize;
        let item = buffer.get(at + RESULT_HEAD..at + RESULT_HEAD + length)?;
        at += RESULT_HEAD + length;
        last = Some(offset);
        visit(offset, item);
    }
    last
}

/// Commits the running transaction and wakes the cleaner, which frees removed subvolumes and
/// inodes in the background; does not wait for the cleaner.
///
/// # Errors
/// Of the commit.
pub fn commit(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the request takes no argument.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request::none(GROUP, 8) as _) }).map(drop)
}

/// How many removed subvolumes are queued for the cleaner, without the one that it works on and
/// those with files still open (Linux 6.13 and later). Needs no privilege.
///
/// # Errors
/// `ENOTTY` on an older kernel or another filesystem.
pub fn queued_subvolumes(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut wait = SubvolWait {
        subvolid: 0,
        mode: WAIT_COUNT,
        count: 0,
    };
    // SAFETY: `wait` has the size that the request number states and outlives the call.
    check(unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            request::write::<SubvolWait>(GROUP, 65) as _,
            &raw mut wait,
        )
    })?;
    Ok(wait.count)
}

// The request numbers hold these sizes: a wrong one would be another request.
const _: () = {
    assert!(size_of::<FsInfo>() == 1024);
    assert!(size_of::<SubvolInfo>() == 504);
    assert!(size_of::<SubvolWait>() == 16);
    assert!(size_of::<SearchHead>() == 112);
    assert!(offset_of!(SearchArguments, buffer) == 112);
};
