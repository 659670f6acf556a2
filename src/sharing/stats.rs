//! What the engine has done and what it holds, for people.

use serde::Serialize;

/// Counters since the engine was made, and present sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Questions answered from a record without any other work.
    pub hits: u64,
    /// Questions that needed work.
    pub misses: u64,
    /// Of these, answered from a record after settling what is active around it.
    pub confirmed: u64,
    /// Questions that ended without an answer within the waiting time.
    pub timeouts: u64,
    /// Records that became invalid.
    pub invalidations: u64,
    /// Records dropped to stay within the memory limit.
    pub evictions: u64,
    /// Batches of FIEMAP records read.
    pub fiemap_calls: u64,
    /// Files written back.
    pub write_backs: u64,
    /// Times that removals were carried out.
    pub removal_flushes: u64,
    /// Times that everything shared, or everything, became invalid at once.
    pub epochs: u64,
    /// Lease tests.
    pub lease_tests: u64,
    /// Foreign changes taken in.
    pub events: u64,
    /// Times that foreign changes were lost.
    pub overflows: u64,
    /// Answers that could not be made exact (no privilege to carry out removals).
    pub unsettled: u64,
    /// Answers given but not kept, because something changed meanwhile.
    pub unstored: u64,
    /// Files with valid or possibly valid numbers.
    pub records: u64,
    /// Files of which anything is remembered.
    pub files: u64,
    /// Ranges in the extent index.
    pub index_entries: u64,
    /// Files open for write, dirty, or on their way out.
    pub active_files: u64,
    /// Questions being worked on.
    pub flights: u64,
    /// Bytes of memory held.
    pub memory_bytes: u64,
}
