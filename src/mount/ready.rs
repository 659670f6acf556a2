//! Knowing when a mount is ready, and going to the background.
//!
//! Two processes take part: the daemon, which must never touch its own mount (it could wait for
//! itself), and a front process, which looks at the root of the mount once it is there. In the
//! background the front process is the one that was started, and its exit code is the answer; in
//! the foreground it is a short-lived child. They talk over two pipes: the daemon sends one byte
//! when it serves requests, the front process answers with one when the root has replied. The end
//! of a pipe without a byte means failure.

use super::places;
use super::refusal::Refusal;
use crate::sys::process::{Forked, fork_alone, leave_terminal};
use crate::sys::reason;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, pipe, setsid};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The daemon's end.
#[derive(Debug)]
pub(super) struct DaemonEnd {
    serving: File,
    verdict: File,
    prober: Option<Pid>,
}

/// Who goes on after the split.
#[derive(Debug)]
pub(super) enum Split {
    /// This is the daemon.
    Daemon(DaemonEnd),
    /// This is the process in front, and the daemon in the background is done with starting.
    Front(Result<(), Refusal>),
}

/// Splits the process in two. Must be called while it has one thread.
///
/// # Errors
/// Of pipe and fork.
pub(super) fn split(point: &Path, background: bool) -> io::Result<Split> {
    let before = device_of(point);
    let (serving_read, serving_write) = pipe().map(|(r, w)| (File::from(r), File::from(w)))?;
    let (verdict_read, verdict_write) = pipe().map(|(r, w)| (File::from(r), File::from(w)))?;
    let forked = fork_alone()?;
    let is_daemon = matches!(forked, Forked::Child) == background;
    if is_daemon {
        drop((serving_read, verdict_write));
        return Ok(Split::Daemon(DaemonEnd {
            serving: serving_write,
            verdict: verdict_read,
            prober: match forked {
                Forked::Parent(prober) => Some(prober),
                Forked::Child => None,
            },
        }));
    }
    drop((serving_write, verdict_read));
    let answered = probe(serving_read, verdict_write, point, before);
    match forked {
        Forked::Parent(daemon) => Ok(Split::Front(answered.ok_or_else(|| failure(daemon)))),
        // The child in front of a foreground daemon has nothing to clean up or to say: the
        // daemon says it.
        Forked::Child => std::process::exit(i32::from(answered.is_none())),
    }
}

impl DaemonEnd {
    /// Tells the front process that requests are served, and waits until the root has answered
    /// it. `false` when it has not.
    pub(super) fn confirm(self) -> bool {
        let Self {
            mut serving,
            mut verdict,
            prober,
        } = self;
        let asked = serving.write_all(b"s").is_ok();
        let mut answer = [0u8];
        let ready = asked && verdict.read_exact(&mut answer).is_ok();
        match prober {
            Some(prober) => {
                // It waits for this end to close.
                drop(serving);
                let _ = waitpid(prober, None);
            }
            // In the background it does so too, so that everything said so far has reached its
            // terminal before it exits. Only now may the daemon leave the process group: automount
            // lets its own alone through to a place that it has not mounted yet.
            None if ready => {
                if let Err(errno) = setsid() {
                    log::warn!("staying in the session of the terminal: {}", errno.desc());
                }
                leave_terminal();
            }
            None => {}
        }
        ready
    }
}

/// Looks at the root once the daemon serves; `None` when it does not come to that.
fn probe(mut serving: File, mut verdict: File, point: &Path, before: Option<u64>) -> Option<()> {
    let mut byte = [0u8];
    serving.read_exact(&mut byte).ok()?;
    // The kernel knows nothing of the new root yet, so that this asks the daemon.
    let unready = match std::fs::metadata(point) {
        Err(error) => Some(reason(&error).to_string()),
        Ok(now) if Some(now.dev()) == before => Some("nothing is mounted there".to_owned()),
        Ok(_) if places::is_dead(point) => Some("its daemon is gone".to_owned()),
        Ok(_) => None,
    };
    if let Some(reason) = unready {
        log::error!("looking at {point:?}: {reason}");
        return None;
    }
    verdict.write_all(b"r").ok()?;
    drop(verdict);
    // Until the daemon has left the terminal.
    let _ = serving.read(&mut byte);
    Some(())
}

fn device_of(point: &Path) -> Option<u64> {
    std::fs::metadata(point).ok().map(|meta| meta.dev())
}

/// Why the daemon did not come up. It has said so itself on the same standard error, unless it
/// was killed.
fn failure(daemon: Pid) -> Refusal {
    match waitpid(daemon, None) {
        Ok(WaitStatus::Signaled(_, signal, _)) => Refusal::NotReady(format!(
            "the daemon was ended by {signal} before the mount was ready"
        )),
        _ => Refusal::AlreadySaid,
    }
}
