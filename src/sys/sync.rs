//! Writing back a whole filesystem.

use std::io;
use std::os::fd::BorrowedFd;

/// Writes everything dirty on the filesystem of `fd` back and waits (`syncfs`).
///
/// # Errors
/// `EIO`, `ENOSPC` or `EDQUOT` of writeback.
pub fn filesystem(fd: BorrowedFd<'_>) -> io::Result<()> {
    nix::unistd::syncfs(fd).map_err(io::Error::from)
}
