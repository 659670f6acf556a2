//! The numbers of one file.

use super::map::ExtentMap;
use super::units::Bytes;

/// The numbers made from one extent map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShareSummary {
    /// Sum of the lengths of all extents.
    pub bytes: Bytes,
    /// Of these, the bytes in extents flagged shared.
    pub shared_bytes: Bytes,
    /// Number of extents.
    pub extents: u64,
    /// Number of extents flagged shared.
    pub shared_extents: u64,
}

/// Whether a file has shared extents, as far as its filesystem can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayShare {
    /// None.
    No,
    /// At least one.
    Yes,
}

impl ShareSummary {
    /// The numbers of `map`.
    #[must_use]
    pub fn of(map: &ExtentMap) -> Self {
        let mut numbers = Self::default();
        for extent in map.extents() {
            numbers.bytes += extent.length;
            numbers.extents += 1;
            if extent.is_shared() {
                numbers.shared_bytes += extent.length;
                numbers.shared_extents += 1;
            }
        }
        numbers
    }

    /// Bytes in extents not flagged shared.
    #[must_use]
    pub fn exclusive_bytes(&self) -> Bytes {
        self.bytes - self.shared_bytes
    }

    /// Whether any extent is shared.
    #[must_use]
    pub fn may_share(&self) -> MayShare {
        if self.shared_extents > 0 {
            MayShare::Yes
        } else {
            MayShare::No
        }
    }
}
