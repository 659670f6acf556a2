//! Inode flags and project ids: `FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS`, `FS_IOC_FSGETXATTR`,
//! `FS_IOC_FSSETXATTR` (linux/fs.h).

use super::{check, request};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Size of `struct fsxattr`.
pub const FSXATTR: usize = 28;

/// Numbers of the ioctls as a program gives them. The flags are declared `long` but are an `int`.
pub mod number {
    use super::request;

    /// `FS_IOC_GETFLAGS`.
    pub const GET_FLAGS: u32 = request::read::<libc::c_long>(b'f', 1) as u32;
    /// `FS_IOC_SETFLAGS`.
    pub const SET_FLAGS: u32 = request::write::<libc::c_long>(b'f', 2) as u32;
    /// `FS_IOC32_GETFLAGS`.
    pub const GET_FLAGS_32: u32 = request::read::<libc::c_int>(b'f', 1) as u32;
    /// `FS_IOC32_SETFLAGS`.
    pub const SET_FLAGS_32: u32 = request::write::<libc::c_int>(b'f', 2) as u32;
    /// `FS_IOC_FSGETXATTR`.
    pub const GET_FSXATTR: u32 = request::read::<[u8; super::FSXATTR]>(b'X', 31) as u32;
    /// `FS_IOC_FSSETXATTR`.
    pub const SET_FSXATTR: u32 = request::write::<[u8; super::FSXATTR]>(b'X', 32) as u32;
}

/// The inode flags (`FS_IMMUTABLE_FL` ...).
///
/// # Errors
/// `ENOTTY` where the filesystem has none.
pub fn flags(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // Room for a `long`, since that is what the number of the ioctl declares.
    let mut value = [0u32; 2];
    // SAFETY: the kernel writes an int, and the room is larger; it outlives the call.
    check(unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            libc::Ioctl::from(number::GET_FLAGS),
            value.as_mut_ptr(),
        )
    })?;
    Ok(value[0])
}

/// Sets the inode flags.
///
/// # Errors
/// As ioctl_iflags(2) says.
pub fn set_flags(fd: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    let value = [flags, 0];
    // SAFETY: the kernel reads an int, and there is more; it outlives the call.
    check(unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            libc::Ioctl::from(number::SET_FLAGS),
            value.as_ptr(),
        )
    })?;
    Ok(())
}

/// The extended flags, extent size hint and project id, as `struct fsxattr`.
///
/// # Errors
/// `ENOTTY` where the filesystem has none.
pub fn fsxattr(fd: BorrowedFd<'_>) -> io::Result<[u8; FSXATTR]> {
    // As words, so that it is aligned as the structure is.
    let mut value = [0u32; FSXATTR / 4];
    // SAFETY: the array has the size and the alignment of the structure and outlives the call.
    check(unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            libc::Ioctl::from(number::GET_FSXATTR),
            value.as_mut_ptr(),
        )
    })?;
    let mut bytes = [0; FSXATTR];
    for (to, from) in bytes.chunks_exact_mut(4).zip(value) {
        to.copy_from_slice(&from.to_ne_bytes());
    }
    Ok(bytes)
}

/// Sets them.
///
/// # Errors
/// As ioctl_xfs_fssetxattr(2) says.
pub fn set_fsxattr(fd: BorrowedFd<'_>, bytes: &[u8; FSXATTR]) -> io::Result<()> {
    let mut value = [0u32; FSXATTR / 4];
    for (to, from) in value.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *to = u32::from_ne_bytes(*from);
    }
    // SAFETY: the array has the size and the alignment of the structure and outlives the call.
    check(unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            libc::Ioctl::from(number::SET_FSXATTR),
            value.as_ptr(),
        )
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn the_numbers_are_those_of_the_headers() {
        assert_eq!(number::GET_FLAGS, 0x8008_6601);
        assert_eq!(number::SET_FLAGS, 0x4008_6602);
        assert_eq!(number::GET_FSXATTR, 0x801c_581f);
        assert_eq!(number::SET_FSXATTR, 0x401c_5820);
    }
}
