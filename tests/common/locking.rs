//! The three kinds of file lock.

use super::calls::check;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Which kind of `fcntl` record lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The process: closing any descriptor of the file drops it.
    Process,
    /// The open file description.
    Description,
}

/// Sets (`F_RDLCK`, `F_WRLCK`) or drops (`F_UNLCK`) a record lock; waits when `wait`.
pub fn record_lock(
    file: &File,
    owner: Owner,
    kind: libc::c_int,
    range: std::ops::Range<i64>,
    wait: bool,
) -> io::Result<()> {
    let lock = flock_struct(kind, &range);
    let command = match (owner, wait) {
        (Owner::Process, false) => libc::F_SETLK,
        (Owner::Process, true) => libc::F_SETLKW,
        (Owner::Description, false) => libc::F_OFD_SETLK,
        (Owner::Description, true) => libc::F_OFD_SETLKW,
    };
    // SAFETY: `lock` lives through the call.
    check(unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const lock) }).map(drop)
}

/// The first lock that would block this one: its kind, start and owner's process id.
pub fn blocking_lock(
    file: &File,
    owner: Owner,
    kind: libc::c_int,
    range: std::ops::Range<i64>,
) -> io::Result<Option<(libc::c_int, i64, i32)>> {
    let mut lock = flock_struct(kind, &range);
    let command = match owner {
        Owner::Process => libc::F_GETLK,
        Owner::Description => libc::F_OFD_GETLK,
    };
    // SAFETY: `lock` lives through the call, which fills it in.
    check(unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) })?;
    let found = libc::c_int::from(lock.l_type);
    Ok((found != libc::F_UNLCK).then_some((found, lock.l_start, lock.l_pid)))
}

fn flock_struct(kind: libc::c_int, range: &std::ops::Range<i64>) -> libc::flock {
    libc::flock {
        l_type: kind.try_into().unwrap(),
        l_whence: libc::SEEK_SET.try_into().unwrap(),
        l_start: range.start,
        l_len: range.end - range.start,
        l_pid: 0,
    }
}

/// Locks (`LOCK_SH`, `LOCK_EX`, with `LOCK_NB`) or unlocks (`LOCK_UN`) a whole file.
pub fn flock(file: &File, how: libc::c_int) -> io::Result<()> {
    // SAFETY: no pointer.
    check(unsafe { libc::flock(file.as_raw_fd(), how) }).map(drop)
}
