//! What a filesystem says of itself: its type, block size and id.

use super::check;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `statfs.f_type` of XFS.
const XFS: i64 = 0x5846_5342;
/// `statfs.f_type` of btrfs.
const BTRFS: i64 = 0x9123_683e;

/// The kinds of filesystem that differ in how they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilesystemKind {
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
    /// Any other, by the number in `statfs.f_type`.
    Other(i64),
}

/// What fstatfs(2) says that sharelens needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilesystemInfo {
    /// Which filesystem.
    pub kind: FilesystemKind,
    /// Size of a block in bytes (`f_bsize`; on btrfs the sector size).
    pub block: u64,
    /// `f_fsid`, as fanotify events carry it. On btrfs it differs by subvolume.
    pub id: [u8; 8],
}

/// Asks about the filesystem of `fd` (also an `O_PATH` descriptor).
///
/// # Errors
/// As fstatfs(2) says.
pub fn filesystem(fd: BorrowedFd<'_>) -> io::Result<FilesystemInfo> {
    let mut buffer = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the buffer has the size of the structure and was zeroed, so that it is initialised
    // whatever the kernel writes; it outlives the call.
    let (info, id) = unsafe {
        check(libc::fstatfs(fd.as_raw_fd(), buffer.as_mut_ptr()))?;
        let info = buffer.assume_init();
        // `fsid_t` keeps its two words private; it is plain data of eight bytes.
        let id: [u8; 8] = std::mem::transmute(info.f_fsid);
        (info, id)
    };
    #[allow(clippy::unnecessary_cast)] // The types of these fields differ by architecture.
    let (kind, block) = (info.f_type as i64, info.f_bsize as u64);
    Ok(FilesystemInfo {
        kind: match kind & 0xffff_ffff {
            XFS => FilesystemKind::Xfs,
            BTRFS => FilesystemKind::Btrfs,
            other => FilesystemKind::Other(other),
        },
        block,
        id,
    })
}
