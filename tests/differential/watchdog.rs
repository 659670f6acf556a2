//! Turns a hanging mount into an error: a request that waits for its daemon cannot be killed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long one step may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Aborts the FUSE connection of one mount when nothing moves on.
pub struct Watchdog {
    steps: Arc<AtomicU64>,
}

impl Watchdog {
    /// Over the mount at `point`.
    pub fn of(point: &Path) -> Self {
        let device = fs::metadata(point).unwrap().dev();
        let abort = format!("/sys/fs/fuse/connections/{}/abort", libc::minor(device));
        let steps = Arc::new(AtomicU64::new(0));
        let watched = Arc::downgrade(&steps);
        thread::spawn(move || {
            let (mut last, mut since) = (0, Instant::now());
            while let Some(steps) = watched.upgrade() {
                let now = steps.load(Ordering::Relaxed);
                drop(steps);
                if now != last {
                    (last, since) = (now, Instant::now());
                } else if since.elapsed() > PATIENCE {
                    eprintln!("step {now} hangs: the mount is aborted");
                    let _ = fs::write(&abort, "1");
                    return;
                }
                thread::sleep(Duration::from_millis(500));
            }
        });
        Self { steps }
    }

    /// Says that a step was done.
    pub fn moved(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }
}
