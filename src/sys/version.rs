//! `FS_IOC_GETVERSION`: the generation of an inode, from its descriptor.

use super::{check, request};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The generation of the inode of `fd`: the number that its file handle holds (XFS, btrfs, ext4).
/// A fifth of the cost of asking for the handle.
///
/// # Errors
/// `ENOTTY` where the filesystem has none.
pub fn of(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut generation: libc::c_int = 0;
    // The request number states a long, the kernel writes an int.
    // SAFETY: the kernel writes four bytes to `generation`, which outlives the call.
    check(unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            request::read::<libc::c_long>(b'v', 1) as _,
            &raw mut generation,
        )
    })?;
    Ok(generation.cast_unsigned())
}
