//! What the scanner has done, for people.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the mount began.
#[derive(Debug, Default)]
pub struct Progress {
    pub(super) directories: AtomicU64,
    pub(super) files: AtomicU64,
    pub(super) unreadable_directories: AtomicU64,
    pub(super) unreadable_files: AtomicU64,
    pub(super) elsewhere: AtomicU64,
}

/// How far the scanner is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanState {
    /// Directories read since the mount began, repeated readings included.
    pub directories: u64,
    /// Files looked at since the mount began, likewise.
    pub files: u64,
    /// Jobs that wait: directories to be read, or some files to be looked at.
    pub waiting: usize,
    /// Jobs being done.
    pub running: usize,
    /// Readings of directories that were not permitted: what is below is left out.
    pub unreadable_directories: u64,
    /// Looks at files that were not permitted: they are counted with no bytes.
    pub unreadable_files: u64,
    /// Things mounted below, met in readings: they are left out.
    pub elsewhere: u64,
}

/// Counts one or more.
pub(super) fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

impl Progress {
    /// The numbers now.
    pub(super) fn state(&self, waiting: usize, running: usize) -> ScanState {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ScanState {
            directories: read(&self.directories),
            files: read(&self.files),
            waiting,
            running,
            unreadable_directories: read(&self.unreadable_directories),
            unreadable_files: read(&self.unreadable_files),
            elsewhere: read(&self.elsewhere),
        }
    }
}
