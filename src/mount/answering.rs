//! Whether a path can be looked at without waiting for ever: the daemon of a FUSE mount may be
//! stopped, and who asks it then waits with it, sometimes beyond being killed. So a process of its
//! own looks first, and is left behind when it does not come back.

use super::mountinfo;
use super::refusal::Refusal;
use crate::sys::process::{Forked, fork_alone, leave_terminal};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::statvfs::statvfs;
use nix::sys::wait::waitpid;
use nix::unistd::pipe;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// How long a daemon may take for the simplest question, in milliseconds. A disk that is asked for
/// much takes a second or two.
const PATIENCE: u16 = 5000;

/// Looks whether the filesystem at `path` answers. Must be called while the process has one
/// thread.
///
/// # Errors
/// [`Refusal::NotAnswering`] when it does not.
pub fn check(path: &Path) -> Result<(), Refusal> {
    match answers(path) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Refusal::NotAnswering {
            path: path.to_owned(),
        }),
        // What cannot be found out this way, the request itself will say.
        Err(error) => {
            log::debug!(
                "looking whether {path:?} answers: {}",
                crate::sys::reason(&error)
            );
            Ok(())
        }
    }
}

/// Looks whether the FUSE mounts above these paths answer, however many paths there are. Must be
/// called while the process has one thread.
///
/// # Errors
/// [`Refusal::NotAnswering`] for the first that does not.
pub fn check_around<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), Refusal> {
    let mounts: Vec<_> = mountinfo::read()
        .unwrap_or_default()
        .into_iter()
        .filter(|entry| entry.kind.starts_with("fuse"))
        .map(|entry| entry.point)
        .collect();
    let mut above = BTreeSet::new();
    for path in paths {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        above.extend(mounts.iter().filter(|point| path.starts_with(point)));
    }
    above.into_iter().try_for_each(|point| check(point))
}

fn answers(path: &Path) -> io::Result<bool> {
    // Nothing else waits for a process that can be stopped.
    let fuse = |entry: &mountinfo::MountEntry| entry.kind.starts_with("fuse");
    if !mountinfo::read()?.iter().any(fuse) {
        return Ok(true);
    }
    let (ended, end) = pipe()?;
    match fork_alone()? {
        Forked::Child => {
            // Left behind, it must not keep a reader of this command's output waiting.
            leave_terminal();
            drop(ended);
            // Whatever the answer is, it is one. Always asks the daemon.
            let _ = statvfs(path);
            drop(end);
            std::process::exit(0);
        }
        Forked::Parent(child) => {
            drop(end);
            let mut waited = [PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
            let answered = loop {
                match poll(&mut waited, PollTimeout::from(PATIENCE)) {
                    Err(nix::Error::EINTR) => {}
                    result => break result? > 0,
                }
            };
            if answered {
                waitpid(child, None)?;
            } else {
                // Takes effect at once, or when the daemon goes on.
                kill(child, Signal::SIGKILL)?;
            }
            Ok(answered)
        }
    }
}
