//! Ctrl-C ends a run at the next step, so that everything mounted is unmounted.

use super::error::Result;
use nix::sys::signal::{SigSet, Signal};
use std::io;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn signals() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Signal::SIGINT);
    set.add(Signal::SIGTERM);
    set
}

/// Starts to listen for SIGINT and SIGTERM. To be called before any other thread exists, since
/// threads inherit that these are blocked.
pub(crate) fn watch() -> Result<()> {
    let set = signals();
    set.thread_block()?;
    std::thread::spawn(move || {
        while set.wait().is_ok() {
            INTERRUPTED.store(true, Ordering::Relaxed);
        }
    });
    Ok(())
}

/// Starts a program without the blocked signals, which it would inherit: it has to die of Ctrl-C,
/// and a filesystem under test to listen for it.
pub(crate) fn start(command: &mut Command) -> io::Result<Child> {
    let set = signals();
    set.thread_unblock()?;
    let child = command.spawn();
    set.thread_block()?;
    child
}

/// An error once a signal has come.
pub(crate) fn interrupted() -> Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) {
        return Err("interrupted".into());
    }
    Ok(())
}
