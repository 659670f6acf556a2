//! A process in front of one that asks a mount for long.
//!
//! Who waits for a FUSE reply cannot be interrupted before it comes, which may be as long as the
//! mount's `wait`. So a child asks, and the process that was started only waits for the child: an
//! interrupt ends that one at once, and with it the child as soon as its reply is there.

use super::{Failure, Outcome, exit_code};
use crate::mount::mountinfo;
use crate::sys::process::{Forked, fork_alone};
use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getppid};
use std::path::Path;

/// Does `work` about `path`, behind a process that can be interrupted when `path` lies in a FUSE
/// mount. Must be called while the process has one thread.
pub(super) fn of(path: &Path, work: impl FnOnce() -> Outcome) -> Outcome {
    if !is_in_fuse(path) {
        return work();
    }
    let front = Pid::this();
    match fork_alone()? {
        Forked::Child => {
            let tied = set_pdeathsig(Signal::SIGKILL);
            // It may have gone before it was tied to.
            if tied.is_err() || getppid() != front {
                std::process::exit(1);
            }
            std::process::exit(exit_code(work()).into());
        }
        Forked::Parent(child) => loop {
            match waitpid(child, None) {
                Ok(WaitStatus::Exited(_, 0)) => return Ok(()),
                // It has said why.
                Ok(WaitStatus::Exited(..)) => return Err(Failure::Said),
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    return Err(Failure::Sentence(format!("ended by {signal}")));
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(Failure::Output(errno.into())),
            }
        },
    }
}

fn is_in_fuse(path: &Path) -> bool {
    let flags = nix::fcntl::OFlag::O_PATH | nix::fcntl::OFlag::O_CLOEXEC;
    nix::fcntl::open(path, flags, nix::sys::stat::Mode::empty())
        .ok()
        .and_then(|fd| mountinfo::holding(&fd).ok().flatten())
        .is_some_and(|mount| mount.kind.starts_with("fuse."))
}
