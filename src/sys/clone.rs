//! Cloning between open files.

use super::{check, request};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const FICLONE: u64 = request::write::<libc::c_int>(0x94, 9);

/// Makes `to` share all of `from`'s data (`FICLONE`).
///
/// # Errors
/// `EOPNOTSUPP` where the filesystem cannot (and always through FUSE), `EXDEV` across
/// filesystems, `EINVAL` for files that cannot share with each other.
pub fn whole(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are open; the argument of FICLONE is a descriptor number.
    check(unsafe { libc::ioctl(to.as_raw_fd(), FICLONE as _, from.as_raw_fd()) }).map(drop)
}
