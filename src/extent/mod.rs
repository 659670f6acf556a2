//! Pure data: extents as FIEMAP reports them, the map they form, and the numbers made from it.
//!
//! Nothing here does I/O or takes a lock. Bytes, file offsets and physical addresses are distinct
//! types, so that one cannot be passed for another.
//!
//! Invariants:
//! - an [`ExtentMap`] is normalised: sorted by file offset, without overlaps, nothing past the
//!   end of file rounded up to the filesystem block, neighbours that continue each other merged;
//! - a [`ShareSummary`] always satisfies `shared <= bytes` and `shared_extents <= extents`.

mod map;
mod summary;
mod units;

#[cfg(test)]
mod tests;

pub use map::{Extent, ExtentFlags, ExtentMap, MapBuilder};
pub use summary::{MayShare, ShareSummary};
pub use units::{Bytes, FileOffset, PhysRange, Physical};
