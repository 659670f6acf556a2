//! Directories that are being read without having been opened by the kernel.
//!
//! Where the kernel does not tell of opening and closing a directory, a listing is a row of
//! requests, each with the position at which the one before ended. The descriptor and what was
//! read ahead wait here for the next one.
//!
//! Invariants: a directory that was read to its end is not here; few are, and those that nobody
//! goes on reading are closed after a moment: a descriptor would keep a removed subvolume from
//! being cleaned.

use super::handles::OpenDir;
use super::types::NodeId;
use crate::sharing::FileKey;
use lru::LruCache;
use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

/// Kept at one time.
const MOST: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);
/// How long one is kept that nobody goes on reading.
const IDLE: Duration = Duration::from_secs(1);

/// The directories, by node and position, the longest unread one closed first.
#[derive(Debug)]
pub(crate) struct Readings {
    left: Mutex<LruCache<(NodeId, u64), (Instant, OpenDir)>>,
}

impl Readings {
    pub(crate) fn new() -> Self {
        Self {
            left: Mutex::new(LruCache::new(MOST)),
        }
    }

    /// The directory, if a reading was left at this position.
    pub(crate) fn take(&self, node: NodeId, key: FileKey, position: u64) -> Option<OpenDir> {
        let (_, open) = self.left.lock().pop(&(node, position))?;
        (open.key == key).then_some(open)
    }

    /// Keeps it for who goes on at `position`.
    pub(crate) fn leave(&self, position: u64, open: OpenDir) {
        let kept = (Instant::now(), open);
        let at = (kept.1.node, position);
        // What it pushes out is closed after the lock is given back.
        let _closed = self.left.lock().push(at, kept);
    }

    /// Closes those that nobody goes on reading.
    pub(crate) fn expire(&self) {
        let mut closed = Vec::new();
        let mut left = self.left.lock();
        while left
            .peek_lru()
            .is_some_and(|(_, (since, _))| since.elapsed() >= IDLE)
        {
            closed.extend(left.pop_lru());
        }
        drop(left);
    }
}
