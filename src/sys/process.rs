//! Calls about the process itself.

use nix::unistd::{ForkResult, Pid, dup2_stderr, dup2_stdin, dup2_stdout, fork};
use std::fs::OpenOptions;
use std::io;

/// Which side of a fork this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    /// The one that called, with the number of its new child.
    Parent(Pid),
    /// The new one.
    Child,
}

/// fork(2), while the process has only one thread.
///
/// # Errors
/// `EBUSY` when other threads run (the child would inherit whatever locks they hold), else of
/// fork.
pub fn fork_alone() -> io::Result<Forked> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    // SAFETY: this is the only thread (just counted, and nobody else could start one), so the
    // child is a whole copy with no lock held by a thread that it lacks.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(Forked::Parent(child)),
        ForkResult::Child => Ok(Forked::Child),
    }
}

/// Points standard input, output and error to /dev/null.
pub fn leave_terminal() {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null");
    if let Ok(null) = null {
        let _ = dup2_stdin(&null);
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
}
