//! sharelens's own ioctls of an open directory: to begin a scan without waiting for it, and to read
//! a listing that is too long for an attribute.
//!
//! Both read only, and are known to no other filesystem (`ENOTTY`). Their numbers are in a range
//! that `ioctl-number.rst` of the kernel does not give to anybody. One ioctl of a FUSE filesystem
//! carries less than 16 KiB, since 14 bits of its number hold the size of the argument.

use super::{check, field, request};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Size of the argument of [`LIST`].
pub const PAGE: usize = 16_368;

/// Bytes of it before the text: where the next page begins (`u64`), how long the text is (`u32`),
/// and whether this is the last page (`u32`).
pub const HEADER: usize = 16;

/// `_IOWR(0xb7, 2, u32)`: in 1 to begin, 0 only to look; out 0 when nothing goes on, 1 while a scan
/// is under way, 2 when everything below was read.
pub const SCAN: u32 = request::both::<u32>(0xb7, 2) as u32;

/// `_IOWR(0xb7, 3, char[16368])`: in the position (`u64`; 0 at the start), out a page.
pub const LIST: u32 = request::both::<[u8; PAGE]>(0xb7, 3) as u32;

/// How far the scan of a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// Nothing goes on: the next question begins it.
    Idle,
    /// It is under way.
    UnderWay,
    /// Everything below was read at least once.
    Known,
}

/// Asks how far the scan of an open directory is; with `begin` it is begun when it has to be.
///
/// # Errors
/// `ENOTTY` outside a sharelens mount.
pub fn scan(directory: BorrowedFd<'_>, begin: bool) -> io::Result<Scan> {
    let mut value = u32::from(begin);
    // SAFETY: the kernel reads and writes the integer, which outlives the call.
    check(unsafe {
        libc::ioctl(
            directory.as_raw_fd(),
            libc::Ioctl::from(SCAN),
            &raw mut value,
        )
    })?;
    Ok(match value {
        0 => Scan::Idle,
        1 => Scan::UnderWay,
        _ => Scan::Known,
    })
}

/// Appends one page of the listing of an open directory to `text`; where the next one begins, if
/// there is one.
///
/// # Errors
/// `ENOTTY` outside a sharelens mount, else as reading the attribute `children` says.
pub fn page(
    directory: BorrowedFd<'_>,
    position: u64,
    text: &mut Vec<u8>,
) -> io::Result<Option<u64>> {
    let mut room = vec![0u8; PAGE];
    if let Some(start) = room.first_chunk_mut() {
        *start = position.to_ne_bytes();
    }
    // SAFETY: the kernel reads and writes at most the size in the ioctl's number, which is that of
    // the room; it outlives the call.
    check(unsafe {
        libc::ioctl(
            directory.as_raw_fd(),
            libc::Ioctl::from(LIST),
            room.as_mut_ptr(),
        )
    })?;
    let cut = || io::Error::from_raw_os_error(libc::EPROTO);
    let next = field::u64(&room, 0).ok_or_else(cut)?;
    let length = field::u32(&room, 8).ok_or_else(cut)? as usize;
    let last = field::u32(&room, 12).ok_or_else(cut)? != 0;
    let lines = room.get(HEADER..HEADER + length).ok_or_else(cut)?;
    text.extend_from_slice(lines);
    Ok((!last).then_some(next))
}
