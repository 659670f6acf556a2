//! Filesystems mounted and unmounted below the source while it is shown.
//!
//! They change what a name leads to, and no file event tells of it; the kernel's table of mounts
//! does, of the namespace that this process lives in.

use super::mountinfo;
use crate::fs::Caches;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Tells `caches` when the mounts below `source` become others, until the process ends.
///
/// # Errors
/// When the table cannot be opened or no thread started.
pub(super) fn watch(source: &Path, caches: impl Caches + 'static) -> io::Result<()> {
    // Opened before it is read first, so that no change falls in between.
    let table = File::open("/proc/self/mountinfo")?;
    let source = source.to_owned();
    std::thread::Builder::new()
        .name("mounts".into())
        .spawn(move || {
            let mut known = below(&source);
            loop {
                let mut waited = [PollFd::new(table.as_fd(), PollFlags::POLLPRI)];
                match poll(&mut waited, PollTimeout::NONE) {
                    Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                    Err(error) => {
                        return log::warn!("mounts below are not followed: {}", error.desc());
                    }
                }
                let now = below(&source);
                if now != known {
                    known = now;
                    caches.anything();
                }
            }
        })
        .map(drop)
}

/// Number and place of each mount below a directory; `None` when the table cannot be read.
fn below(source: &Path) -> Option<Vec<(u64, PathBuf)>> {
    let table = mountinfo::read().ok()?;
    Some(
        table
            .into_iter()
            .filter(|entry| entry.point.starts_with(source))
            .map(|entry| (entry.id, entry.point))
            .collect(),
    )
}
