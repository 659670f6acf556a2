//! sharelens's own ioctl of an open file that lists which others share with it.
//!
//! It reads only, and is known to no other filesystem (`ENOTTY`); see [`super::listing`] for its
//! number and the size of its argument.

use super::{check, field, request};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Size of the argument.
pub const PAGE: usize = super::listing::PAGE;

/// Bytes of it before the paths: how many peers the caller sees no path of (`u64`), how long the
/// paths are together (`u32`), and whether this is the last page (`u32`).
pub const HEADER: usize = 16;

/// Longest path: one that programs can use has at most this many bytes (`PATH_MAX` without the
/// terminator).
pub const LONGEST: usize = libc::PATH_MAX as usize - 1;

/// `_IOWR(0xb7, 4, char[16368])`: in the length of a path (`u32`) and the path, after which the page
/// begins (none at the start); out a page of paths, each ended by a NUL.
pub const PEERS: u32 = request::both::<[u8; PAGE]>(0xb7, 4) as u32;

/// The path after which the page that is asked for begins; `None` when the input is too short.
#[must_use]
pub fn position(input: &[u8]) -> Option<&[u8]> {
    let length = field::u32(input, 0)? as usize;
    input.get(4..4usize.checked_add(length)?)
}

/// Appends the page that begins after `after`, and says how many peers are hidden; whether it was
/// the last page.
///
/// # Errors
/// `ENOTTY` outside a sharelens mount, `ENODATA` while not everything in the mount was read,
/// `EPERM` for others than root and the file's owner.
pub fn page(
    file: BorrowedFd<'_>,
    after: &[u8],
    paths: &mut Vec<Vec<u8>>,
    hidden: &mut u64,
) -> io::Result<bool> {
    let mut room = vec![0u8; PAGE];
    let length = u32::try_from(after.len()).unwrap_or(u32::MAX).to_ne_bytes();
    for (place, byte) in room.iter_mut().zip(length.iter().chain(after)) {
        *place = *byte;
    }
    // SAFETY: the kernel reads and writes at most the size in the ioctl's number, which is that of
    // the room; it outlives the call.
    check(unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            libc::Ioctl::from(PEERS),
            room.as_mut_ptr(),
        )
    })?;
    let cut = || io::Error::from_raw_os_error(libc::EPROTO);
    *hidden = field::u64(&room, 0).ok_or_else(cut)?;
    let length = field::u32(&room, 8).ok_or_else(cut)? as usize;
    let last = field::u32(&room, 12).ok_or_else(cut)? != 0;
    let text = room.get(HEADER..HEADER + length).ok_or_else(cut)?;
    let ended = text.split_inclusive(|byte| *byte == 0);
    paths.extend(ended.map(|path| path.strip_suffix(&[0]).unwrap_or(path).to_vec()));
    Ok(last)
}
