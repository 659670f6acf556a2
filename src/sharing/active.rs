//! Active files: those whose maps may change by themselves, or may be about to.
//!
//! A file is active while it is open for write (with kernel passthrough its writes are not seen),
//! while it was so since the lease test last found nobody (a mapping outlives its close), while
//! it has data that are not written back, while a change to it is under way, and while it has
//! lost its last name but is not gone yet. Nothing that overlaps an active file is believed
//! without settling it first.

use super::backing::Stamp;
use super::evidence::Evidence;
use std::time::Duration;

/// What settling found a file to be like, to be compared at the next time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Baseline {
    /// Its stamp, taken after its data were written back.
    pub(crate) stamp: Stamp,
    /// The ctime was old enough at that moment: ctime is stamped before the map changes, so that
    /// a fresh one may belong to a change that is still on its way.
    pub(crate) trusted: bool,
}

/// How old a ctime must be for the change that stamped it to have reached the map or the page
/// cache.
pub(crate) const CTIME_LEAD: Duration = Duration::from_secs(1);

impl Stamp {
    /// Whether the change that stamped the ctime must have reached the map or the page cache by
    /// `moment`.
    pub(crate) fn is_older(&self, moment: Duration) -> bool {
        let (seconds, nanos) = self.ctime;
        let ctime = Duration::new(seconds.max(0).unsigned_abs(), nanos);
        moment
            .checked_sub(ctime)
            .is_some_and(|age| age >= CTIME_LEAD)
    }
}

impl Baseline {
    /// From a stamp taken after a writeback that began at `before`.
    pub(crate) fn new(stamp: Stamp, before: Duration) -> Self {
        Self {
            stamp,
            trusted: stamp.is_older(before),
        }
    }
}

/// The state of an active file.
#[derive(Debug, Default)]
pub(crate) struct Active {
    /// Opens for write through the mount.
    pub(crate) writers: u32,
    /// Of these, with `O_DIRECT`.
    pub(crate) direct: u32,
    /// Changes between their beginning and their end.
    pub(crate) changing: u32,
    /// Removals of a name that was not the last, under way.
    pub(crate) unnaming: u32,
    /// Copies that named it, begun or ended.
    pub(crate) copies: u32,
    /// Everything that was seen to happen to it.
    pub(crate) touches: u64,
    /// It was open for write since the lease test last found nobody.
    pub(crate) released: bool,
    /// It has, or may have, data that are not written back.
    pub(crate) dirty: bool,
    /// It was changed since it was last settled.
    pub(crate) touched: bool,
    /// It lost its last name; since when by the filesystem's clock.
    pub(crate) dying: Option<Duration>,
    /// Its last descriptor was closed after it lost its last name.
    pub(crate) last_closed: bool,
    /// The lease test is going on: nothing may open it for write.
    pub(crate) testing: bool,
    /// Somebody settles it.
    pub(crate) settling: bool,
    /// Somebody else changed it and its map was not looked at since.
    pub(crate) foreign: bool,
    /// No record of a sharer was stored since its sharers were last invalidated.
    pub(crate) sharers_invalid: bool,
    /// What it is known to have shared, for telling what foreign changes did.
    pub(crate) evidence: Evidence,
    /// What it was like when it was last settled.
    pub(crate) baseline: Option<Baseline>,
}

impl Active {
    /// Nothing keeps it active any more.
    pub(crate) fn is_idle(&self) -> bool {
        !(self.is_held() || self.released || self.dirty || self.dying.is_some() || self.foreign)
    }

    /// Somebody works with this state.
    pub(crate) fn is_held(&self) -> bool {
        self.writers > 0 || self.changing > 0 || self.unnaming > 0 || self.testing || self.settling
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::Bytes;

    #[test]
    fn a_fresh_ctime_is_not_trusted() {
        let stamp = Stamp {
            ctime: (100, 500_000_000),
            size: Bytes(0),
            block: Bytes(4096),
            links: 1,
        };
        assert!(!Baseline::new(stamp, Duration::from_millis(101_400)).trusted);
        assert!(Baseline::new(stamp, Duration::from_millis(101_500)).trusted);
        assert!(!Baseline::new(stamp, Duration::from_millis(99_000)).trusted);
    }
}
