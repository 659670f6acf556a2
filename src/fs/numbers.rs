//! The numbers by which the kernel knows inodes.
//!
//! fuser gives one number both as node id and as `st_ino`, so the number of an inode on the
//! source's own device is its backing inode number. Elsewhere (subvolumes of btrfs, whose roots
//! are all 256, and filesystems mounted below) it is made from device and inode number with the
//! highest bit set.
//!
//! Invariants: two inodes that exist at one time never have the same number; an inode has the same
//! number for as long as the mount lives, whether or not the kernel forgets it meanwhile.

use super::types::NodeId;
use crate::sharing::DeviceIndex;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Set in numbers that are not the backing inode number.
const MADE: u64 = 1 << 63;
/// Set in numbers from the table.
const TABLE: u64 = 1 << 62;
/// Bits of the inode number in a made number; the device has the 14 between.
const INO_BITS: u32 = 48;

/// Gives inodes their numbers.
#[derive(Debug)]
pub(crate) struct Numbers {
    root: u64,
    /// For inode numbers of other devices too large for a made number: kept for good.
    table: Mutex<HashMap<(DeviceIndex, u64), u64>>,
}

impl Numbers {
    /// `root` is the inode number of the source, on device 0.
    pub(crate) fn new(root: u64) -> Self {
        Self {
            root,
            table: Mutex::default(),
        }
    }

    /// The number of inode `ino` on `device`.
    pub(crate) fn node(&self, device: DeviceIndex, ino: u64) -> NodeId {
        if device == DeviceIndex(0) {
            if ino == self.root {
                return NodeId::ROOT;
            }
            // 0 is no inode and 1 is the root of the mount for the kernel.
            if ino > 1 && ino < MADE {
                return NodeId(ino);
            }
        }
        if ino < 1 << INO_BITS && device.0 < 1 << 14 {
            return NodeId(MADE | u64::from(device.0) << INO_BITS | ino);
        }
        let mut table = self.table.lock();
        let next = table.len() as u64;
        NodeId(MADE | TABLE | *table.entry((device, ino)).or_insert(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn numbers_are_stable_and_distinct() {
        let numbers = Numbers::new(128);
        let inodes = [1, 2, 128, 256, 1 << 47, 1 << 48, MADE, u64::MAX];
        let devices = [0, 1, 2, 0x3fff, 0x4000, u16::MAX].map(DeviceIndex);
        let all: Vec<NodeId> = devices
            .iter()
            .flat_map(|&device| inodes.map(|ino| numbers.node(device, ino)))
            .collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        let again: Vec<NodeId> = devices
            .iter()
            .flat_map(|&device| inodes.map(|ino| numbers.node(device, ino)))
            .collect();
        assert_eq!(all, again);
    }

    #[test]
    fn on_the_source_the_number_is_the_inode_number() {
        let numbers = Numbers::new(128);
        assert_eq!(numbers.node(DeviceIndex(0), 128), NodeId::ROOT);
        assert_eq!(numbers.node(DeviceIndex(0), 131), NodeId(131));
        assert_ne!(numbers.node(DeviceIndex(0), 1), NodeId::ROOT);
        assert_ne!(numbers.node(DeviceIndex(1), 128), NodeId::ROOT);
    }
}
