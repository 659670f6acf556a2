//! Extended attributes of any inode, also of symlinks and special files, by a descriptor.
//!
//! For an `O_PATH` descriptor the calls go through its path under /proc, which leads to the inode
//! itself and not on through a symlink; one that is open for reading or writing serves directly,
//! which takes a tenth of the time.

use super::at::FdPath;
use super::check;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Whether the call failed because the descriptor is an `O_PATH` one.
fn is_path<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(error) if error.raw_os_error() == Some(libc::EBADF))
}

fn length(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Reads attribute `name` into `buffer`; its length. With an empty buffer only the length.
///
/// # Errors
/// As getxattr(2) says: `ENODATA`, `ERANGE`, `EOPNOTSUPP`.
pub fn get(fd: BorrowedFd<'_>, name: &CStr, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the name is terminated, the buffer is as long as stated; both outlive the call.
    let direct = length(unsafe {
        libc::fgetxattr(
            fd.as_raw_fd(),
            name.as_ptr(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
        )
    });
    if !is_path(&direct) {
        return direct;
    }
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
    // SAFETY: the buffer is as long as stated and outlives the call.
    let direct = length(unsafe {
        libc::flistxattr(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len())
    });
    if !is_path(&direct) {
        return direct;
    }
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
    // SAFETY: the name is terminated, the value is as long as stated; both outlive the call.
    let direct = check(unsafe {
        libc::fsetxattr(
            fd.as_raw_fd(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            flags,
        )
    });
    if !is_path(&direct) {
        return direct.map(drop);
    }
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
    // SAFETY: the name is terminated and outlives the call.
    let direct = check(unsafe { libc::fremovexattr(fd.as_raw_fd(), name.as_ptr()) });
    if !is_path(&direct) {
        return direct.map(drop);
    }
    let path = FdPath::new(fd);
    // SAFETY: path and name are terminated and outlive the call.
    check(unsafe { libc::removexattr(path.as_c_str().as_ptr(), name.as_ptr()) })?;
    Ok(())
}
