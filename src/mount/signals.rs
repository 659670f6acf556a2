//! Signals: TERM, INT and HUP end the mount, wherever they arrive.
//!
//! They are blocked in every thread and taken by one that does nothing else, so that no handler
//! ever runs.

use super::umount::Attachment;
use crate::sys::reason;
use nix::sys::signal::{SigSet, Signal};
use std::io;
use std::time::Duration;

/// How long files may stay open after the mount has left the table, before they are cut off.
pub(super) const GRACE: Duration = Duration::from_secs(3);

/// Blocks the signals in this thread and all that it will start.
///
/// # Errors
/// Of sigprocmask.
pub(super) fn block() -> io::Result<SigSet> {
    let set: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]
        .into_iter()
        .collect();
    set.thread_block()?;
    Ok(set)
}

/// Waits for the signals from now on, in a thread of its own. The first unmounts: when the mount
/// is in use it leaves the table at once, and who still has files open there keeps them for
/// [`GRACE`]; then the process ends. A second signal ends it without waiting.
///
/// # Errors
/// When the thread cannot be started.
pub(super) fn watch(set: SigSet, attachment: Attachment) -> io::Result<()> {
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let mut ending = false;
            while let Ok(signal) = set.wait() {
                if ending {
                    std::process::exit(0);
                }
                log::info!("{signal}: unmounting");
                ending = end(&attachment);
            }
        })
        .map(drop)
}

/// Takes the mount down. The session then ends by itself, at the latest after [`GRACE`].
fn end(attachment: &Attachment) -> bool {
    super::systemd::notify("STOPPING=1");
    let gone = attachment.unmount(false).or_else(|error| {
        log::warn!(
            "the mount is in use ({}): it goes with its last user",
            reason(&error)
        );
        attachment.unmount(true)
    });
    if let Err(error) = gone {
        log::error!("unmounting failed: {}", reason(&error));
        return false;
    }
    // When nothing holds the mount any more, the process has ended long before this has passed.
    let last_resort = std::thread::Builder::new()
        .name("grace".to_owned())
        .spawn(|| {
            std::thread::sleep(GRACE);
            log::warn!("files are still open: they are cut off");
            std::process::exit(0);
        });
    last_resort.is_ok()
}
