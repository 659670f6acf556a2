//! Whether anything holds a file open for write, asked through a read lease.
//!
//! `F_SETLEASE` with `F_RDLCK` fails with `EAGAIN` as long as anything, a mapping included and
//! whoever it is, holds the file open for write. While the lease is held, another opener for
//! write blocks (or gets `EAGAIN` with `O_NONBLOCK`), and the holder gets a signal: so the lease is
//! given back at once, and the signal is ignored. Needs ownership of the file or `CAP_LEASE`.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Once;

/// What the test found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// Nothing has the file open for write.
    Free,
    /// Something has.
    Held,
    /// Not permitted, or not a kind of file or filesystem that has leases.
    Unknown,
}

/// Asks whether anything has the file of `fd` (open for reading) open for write.
///
/// The caller keeps other openers that it knows of from opening the file meanwhile: they would
/// wait for the lease to be given back.
///
/// # Errors
/// Of the calls, other than that they are not permitted or not possible here.
pub fn test(fd: BorrowedFd<'_>) -> io::Result<Lease> {
    ignore_signal();
    match set(fd, libc::F_RDLCK) {
        Ok(()) => {
            set(fd, libc::F_UNLCK)?;
            Ok(Lease::Free)
        }
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN) => Ok(Lease::Held),
            Some(libc::EACCES | libc::EPERM | libc::EINVAL | libc::ENOTTY | libc::EOPNOTSUPP) => {
                Ok(Lease::Unknown)
            }
            _ => Err(error),
        },
    }
}

fn set(fd: BorrowedFd<'_>, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: the command takes a number and touches no memory.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, kind) }).map(drop)
}

/// The default action of SIGIO ends the process: ignored before the first lease is asked for,
/// whatever the program did about it (a handler of its own stays).
pub fn ignore_signal() {
    static IGNORED: Once = Once::new();
    IGNORED.call_once(|| {
        // SAFETY: the structures are plain data, zeroed and read or written for their whole size;
        // SIG_IGN runs no code.
        unsafe {
            let mut current: libc::sigaction = std::mem::zeroed();
            let asked = libc::sigaction(libc::SIGIO, std::ptr::null(), &raw mut current);
            if asked == 0 && current.sa_sigaction == libc::SIG_DFL {
                let mut ignored: libc::sigaction = std::mem::zeroed();
                ignored.sa_sigaction = libc::SIG_IGN;
                libc::sigaction(libc::SIGIO, &raw const ignored, std::ptr::null_mut());
            }
        }
    });
}
