//! sharelens's own ioctl, by which a program tells a mount to forget.

use super::{check, request};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `_IO(0xb7, 1)`, without an argument: in a range that `ioctl-number.rst` of the kernel does not
/// give to anybody.
pub const REFRESH: u32 = request::none(0xb7, 1) as u32;

/// Has the sharelens mount in which `fd` lies forget what it knows of the file, or (of a
/// directory) of everything.
///
/// # Errors
/// `ENOTTY` outside a sharelens mount, `EPERM` for who neither mounted it nor is root.
pub fn refresh(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the ioctl has no argument; the kernel touches no memory of ours.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::Ioctl::from(REFRESH)) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn other_filesystems_do_not_know_it() {
        let here = std::fs::File::open("/proc/self").unwrap();
        let error = refresh(here.as_fd()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }
}
