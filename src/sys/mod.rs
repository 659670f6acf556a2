//! Every `unsafe` and every raw system call, each wrapped once.
//!
//! Nothing here knows of the rooms above: functions take descriptors and plain values and give
//! back `io::Result`. A structure that the kernel fills is read only after the call succeeded, and
//! only as far as the kernel says that it wrote.

pub mod at;
pub mod btrfs;
pub mod clock;
pub mod clone;
pub mod cred;
pub mod data;
pub mod dir;
pub mod fanotify;
pub mod fiemap;
pub mod fileattr;
pub mod handle;
pub mod lease;
pub mod limits;
pub mod listing;
pub mod peers;
pub mod process;
pub mod reason;
pub mod refresh;
pub mod statfs;
pub mod sync;
pub mod unasked;
pub mod version;
pub mod xattr;
pub mod xfs;

pub use reason::reason;
use std::io;

/// The result of a call that returns -1 and sets `errno` on failure.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Little-endian and native-endian fields read out of kernel buffers, `None` past their end.
pub(crate) mod field {
    /// The `N` bytes at `at`.
    pub(crate) fn bytes<const N: usize>(buffer: &[u8], at: usize) -> Option<[u8; N]> {
        buffer
            .get(at..at.checked_add(N)?)
            .and_then(|part| part.try_into().ok())
    }

    /// A native-endian `u16`.
    pub(crate) fn u16(buffer: &[u8], at: usize) -> Option<u16> {
        bytes(buffer, at).map(u16::from_ne_bytes)
    }

    /// A native-endian `u32`.
    pub(crate) fn u32(buffer: &[u8], at: usize) -> Option<u32> {
        bytes(buffer, at).map(u32::from_ne_bytes)
    }

    /// A native-endian `u64`.
    pub(crate) fn u64(buffer: &[u8], at: usize) -> Option<u64> {
        bytes(buffer, at).map(u64::from_ne_bytes)
    }

    /// A `u64` of an on-disk structure of btrfs.
    pub(crate) fn le64(buffer: &[u8], at: usize) -> Option<u64> {
        bytes(buffer, at).map(u64::from_le_bytes)
    }
}

/// Numbers of ioctls, as `asm-generic/ioctl.h` makes them.
pub(crate) mod request {
    const WRITE: u64 = 1;
    const READ: u64 = 2;

    const fn number(direction: u64, group: u8, function: u8, size: usize) -> u64 {
        (direction << 30) | ((size as u64) << 16) | ((group as u64) << 8) | function as u64
    }

    /// `_IO`: no argument.
    pub(crate) const fn none(group: u8, function: u8) -> u64 {
        number(0, group, function, 0)
    }

    /// `_IOR`: the kernel writes the argument.
    pub(crate) const fn read<T>(group: u8, function: u8) -> u64 {
        number(READ, group, function, size_of::<T>())
    }

    /// `_IOW`: the kernel reads the argument.
    pub(crate) const fn write<T>(group: u8, function: u8) -> u64 {
        number(WRITE, group, function, size_of::<T>())
    }

    /// `_IOWR`: the kernel reads and writes the argument.
    pub(crate) const fn both<T>(group: u8, function: u8) -> u64 {
        number(READ | WRITE, group, function, size_of::<T>())
    }
}
