//! Extended attributes of any inode, also of symlinks and special files, by an `O_PATH` descriptor.
//!
//! The calls go through the descriptor's path under /proc, which leads to the inode itself and
//! not on through a symlink.

use super::at::FdPath;
use super::check;
use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;

fn length(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Reads attribute `name` into `buffer`; its length. With an empty buffer only the length.
///
/// # Errors
/// As getxattr(2) says: `ENODATA`, `ERANGE`, `EOPNOTSUPP`.
pub fn get(fd: BorrowedFd<'_>, name: &CStr, buffer: &mut [u8]) -> io::Result<usize> {
    let path = FdPath::new(fd);
    // SAFETY: path and name are terminated, the buffer is as long as stated; all outlive the call.
    length(unsafe {
        libc::getxattr(
            path.as_c_str().as_ptr(),
            name.as_ptr(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
        )
    })
}

/// Reads all names, each terminated by a zero byte, into `buffer`; their length. With an empty
/// buffer only the length.
///
/// # Errors
/// As listxattr(2) says.
pub fn list(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let path = FdPath::new(fd);
    // SAFETY: the path is terminated, the buffer is as long as stated; both outlive the call.
    length(unsafe {
        libc::listxattr(
            path.as_c_str().as_ptr(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
        )
    })
}

/// Sets attribute `name`, with the flags of setxattr(2).
///
/// # Errors
/// As setxattr(2) says.
pub fn set(fd: BorrowedFd<'_>, name: &CStr, value: &[u8], flags: i32) -> io::Result<()> {
    let path = FdPath::new(fd);
    // SAFETY: path and name are terminated, the value is as long as stated; all outlive the call.
    check(unsafe {
        libc::setxattr(
            path.as_c_str().as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            flags,
        )
    })?;
    Ok(())
}

/// Removes attribute `name`.
///
/// # Errors
/// As removexattr(2) says.
pub fn remove(fd: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    let path = FdPath::new(fd);
    // SAFETY: path and name are terminated and outlive the call.
    check(unsafe { libc::removexattr(path.as_c_str().as_ptr(), name.as_ptr()) })?;
    Ok(())
}
