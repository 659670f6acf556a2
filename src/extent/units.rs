//! The units: a length in bytes, an offset in a file, an address on the filesystem's device.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// A length in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// An offset in a file, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileOffset(pub u64);

/// An address in the filesystem's own physical address space, in bytes. For a btrfs filesystem
/// it is the filesystem's logical address (what FIEMAP and EXTENT_DATA items hold).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Physical(pub u64);

/// A half-open range of physical addresses, `start..end`, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhysRange {
    /// First byte.
    pub start: Physical,
    /// One past the last byte.
    pub end: Physical,
}

impl PhysRange {
    /// The range of `length` bytes at `start`; saturates at the end of the address space.
    #[must_use]
    pub fn new(start: Physical, length: Bytes) -> Self {
        Self {
            start,
            end: Physical(start.0.saturating_add(length.0.max(1))),
        }
    }

    /// Length of the range.
    #[must_use]
    pub fn len(&self) -> Bytes {
        Bytes(self.end.0.saturating_sub(self.start.0))
    }

    /// Never true: a range holds at least one byte. Present because `len` is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end.0 <= self.start.0
    }

    /// Whether the two ranges have a byte in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

impl FileOffset {
    /// The offset `length` further on; saturates at `u64::MAX`.
    #[must_use]
    pub fn plus(self, length: Bytes) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}

impl Physical {
    /// The address `length` further on; saturates at `u64::MAX`.
    #[must_use]
    pub fn plus(self, length: Bytes) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// Rounded up to a multiple of `block` (a power of two or not; 0 leaves it as it is).
    #[must_use]
    pub fn round_up(self, block: Self) -> Self {
        match self.0.checked_rem(block.0) {
            None | Some(0) => self,
            Some(rest) => Self(self.0.saturating_add(block.0 - rest)),
        }
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}
