//! An extent, its flags, and the normalised map of a file.

use super::units::{Bytes, FileOffset, PhysRange, Physical};
use bitflags::bitflags;

bitflags! {
    /// The flags of a FIEMAP record (`linux/fiemap.h`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ExtentFlags: u32 {
        /// Last extent of the file.
        const LAST = 0x0001;
        /// The physical address is not known.
        const UNKNOWN = 0x0002;
        /// Not yet allocated: data waits for writeback.
        const DELALLOC = 0x0004;
        /// Compressed or encrypted: the physical address is a key, not the start of the bytes.
        const ENCODED = 0x0008;
        /// Encrypted.
        const DATA_ENCRYPTED = 0x0080;
        /// Address and length are not multiples of the block.
        const NOT_ALIGNED = 0x0100;
        /// The data lie in the metadata of the file.
        const DATA_INLINE = 0x0200;
        /// Tail packing.
        const DATA_TAIL = 0x0400;
        /// Allocated but not written: reads as zeros.
        const UNWRITTEN = 0x0800;
        /// Merged by the kernel from block-based records.
        const MERGED = 0x1000;
        /// The space is shared with other files, or with this file at another offset.
        const SHARED = 0x2000;
        const _ = !0;
    }
}

/// One piece of a file as FIEMAP reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it lies in the file.
    pub logical: FileOffset,
    /// Where it lies on the device, or a key for it (see [`Extent::is_addressed`]).
    pub physical: Physical,
    /// How long it is in the file (for compressed extents: uncompressed).
    pub length: Bytes,
    /// What FIEMAP says of it.
    pub flags: ExtentFlags,
}

impl Extent {
    /// One past its last byte in the file.
    #[must_use]
    pub fn logical_end(&self) -> FileOffset {
        self.logical.plus(self.length)
    }

    /// Whether it is flagged shared.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.flags.contains(ExtentFlags::SHARED)
    }

    /// Whether `physical` is the address of its first byte, so that it can be merged, clipped
    /// and compared as a range. Encoded extents have a key there, inline and not yet allocated
    /// ones nothing.
    #[must_use]
    pub fn is_addressed(&self) -> bool {
        !self.flags.intersects(
            ExtentFlags::UNKNOWN
                | ExtentFlags::DELALLOC
                | ExtentFlags::ENCODED
                | ExtentFlags::DATA_ENCRYPTED
                | ExtentFlags::DATA_INLINE
                | ExtentFlags::DATA_TAIL
                | ExtentFlags::NOT_ALIGNED,
        )
    }

    /// The physical range it occupies; for an encoded extent a range of one byte at its key (one
    /// key stands for one extent item); `None` where there is no address at all.
    #[must_use]
    pub fn phys_range(&self) -> Option<PhysRange> {
        if self.is_addressed() {
            Some(PhysRange::new(self.physical, self.length))
        } else if self.flags.contains(ExtentFlags::ENCODED)
            && !self
                .flags
                .intersects(ExtentFlags::UNKNOWN | ExtentFlags::DELALLOC)
        {
            Some(PhysRange::new(self.physical, Bytes(1)))
        } else {
            None
        }
    }

    /// Whether `next` continues this one logically and physically with equal flags (the LAST bit
    /// aside), so that the two are one extent that the kernel split for reasons of its own.
    fn continued_by(&self, next: &Self) -> bool {
        self.is_addressed()
            && next.is_addressed()
            && self.flags.difference(ExtentFlags::LAST) == next.flags.difference(ExtentFlags::LAST)
            && self.logical_end() == next.logical
            && self.physical.plus(self.length) == next.physical
    }
}

/// The normalised extent map of a file at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtentMap {
    extents: Vec<Extent>,
}

impl ExtentMap {
    /// The extents, in the order of their file offsets.
    #[must_use]
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The shared extents, in the order of their file offsets.
    pub fn shared(&self) -> impl Iterator<Item = &Extent> {
        self.extents.iter().filter(|extent| extent.is_shared())
    }
}

/// Builds a map from the records of one or more FIEMAP calls.
///
/// Records that reach back before the end of an earlier one (the file changed between two calls)
/// are cut to what is new, so that no byte of the file is counted twice.
#[derive(Debug)]
pub struct MapBuilder {
    extents: Vec<Extent>,
    limit: FileOffset,
    reached: FileOffset,
}

impl MapBuilder {
    /// A builder for a file of `size` bytes on a filesystem with this block size. What lies past
    /// the end of file rounded up to the block is left out (speculative preallocation comes and
    /// goes by itself).
    #[must_use]
    pub fn new(size: Bytes, block: Bytes) -> Self {
        Self {
            extents: Vec::new(),
            limit: FileOffset(size.round_up(block).0),
            reached: FileOffset(0),
        }
    }

    /// Takes in the next record. `false` when it lies wholly past the limit, so that nothing
    /// after it matters.
    pub fn push(&mut self, record: Extent) -> bool {
        if record.logical >= self.limit {
            return false;
        }
        let Some(record) = self.clip(record) else {
            return true;
        };
        self.reached = record.logical_end();
        match self.extents.last_mut() {
            Some(last) if last.continued_by(&record) => {
                last.length += record.length;
                last.flags |= record.flags;
            }
            _ => self.extents.push(record),
        }
        true
    }

    /// How far into the file the records taken in reach.
    #[must_use]
    pub fn reached(&self) -> FileOffset {
        self.reached
    }

    /// The map.
    #[must_use]
    pub fn finish(self) -> ExtentMap {
        ExtentMap {
            extents: self.extents,
        }
    }

    /// Cuts a record to the part between what was already taken in and the limit.
    fn clip(&self, mut record: Extent) -> Option<Extent> {
        if record.logical < self.reached {
            let cut = Bytes(self.reached.0 - record.logical.0);
            if cut >= record.length {
                return None;
            }
            record.logical = self.reached;
            record.length -= cut;
            if record.is_addressed() {
                record.physical = record.physical.plus(cut);
            }
        }
        let room = Bytes(self.limit.0 - record.logical.0);
        record.length = record.length.min(room);
        (record.length > Bytes::ZERO).then_some(record)
    }
}
