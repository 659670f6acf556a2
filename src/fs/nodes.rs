//! What is known of each inode that the kernel knows: its identity, how often it was looked up,
//! whether it is open.
//!
//! Invariants:
//! - the look-up count belongs to the number: when an inode number is recycled while the kernel
//!   still holds the old inode, the counts add up as the kernel's FORGETs will, and only the
//!   identity is replaced;
//! - a node is kept while the kernel knows it or anything has it open; the root always;
//! - no lock is held over a system call;
//! - one known inode costs about 60 bytes, without counting names where handles are not usable.

use super::error::{Error, Result};
use super::types::NodeId;
use crate::sharing::FileKey;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::CStr;

const SHARDS: usize = 64;

/// The directory and the name by which an inode was last found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) parent: NodeId,
    pub(crate) name: Box<CStr>,
}

/// How an inode is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenState {
    /// Open files.
    pub(crate) opens: u32,
    /// Of these, for write.
    pub(crate) writers: u32,
    /// Of these, such that attributes can change without the kernel's knowledge.
    pub(crate) silent: u32,
    /// Open with kernel passthrough; all opens of an inode are in one mode.
    pub(crate) passthrough: bool,
    /// A mapping that outlived its descriptor may still be written through.
    pub(crate) mapped: bool,
    /// The last name was removed through the mount.
    pub(crate) unnamed: bool,
}

#[derive(Debug)]
struct Node {
    key: FileKey,
    lookups: u64,
    directory: bool,
    place: Option<Box<Place>>,
    open: Option<Box<OpenState>>,
}

/// What most operations need to know of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) key: FileKey,
    pub(crate) directory: bool,
    pub(crate) open: Option<OpenState>,
}

/// All nodes.
#[derive(Debug)]
pub(crate) struct Nodes {
    shards: [Mutex<HashMap<u64, Node>>; SHARDS],
}

impl Nodes {
    /// With the root, which is never forgotten.
    pub(crate) fn new(root: FileKey) -> Self {
        let nodes = Self {
            shards: std::array::from_fn(|_| Mutex::default()),
        };
        nodes.remember(NodeId::ROOT, root, true, None);
        nodes
    }

    fn shard(&self, node: NodeId) -> &Mutex<HashMap<u64, Node>> {
        // Multiplying spreads numbers that lie close together; the top bits are the best mixed.
        let index = (node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize;
        self.shards.get(index).unwrap_or(&self.shards[0])
    }

    /// Notes one look-up more. `place` is given only where the inode cannot be opened by handle.
    pub(crate) fn remember(
        &self,
        id: NodeId,
        key: FileKey,
        directory: bool,
        place: Option<Place>,
    ) -> Known {
        let place = place.map(Box::new);
        let mut shard = self.shard(id).lock();
        let node = shard.entry(id.0).or_insert_with(|| Node {
            key,
            lookups: 0,
            directory,
            place: None,
            open: None,
        });
        if node.key != key {
            // The number was recycled. An open inode cannot be: what is open was the old one's
            // and is gone.
            node.key = key;
            node.directory = directory;
            node.place = None;
            node.open = None;
        }
        node.lookups = node.lookups.saturating_add(1);
        if place.is_some() {
            node.place = place;
        }
        node.known()
    }

    /// Takes `count` look-ups back; true when the node is no longer known.
    pub(crate) fn forget(&self, id: NodeId, count: u64) -> bool {
        if id == NodeId::ROOT {
            return false;
        }
        let mut shard = self.shard(id).lock();
        let Some(node) = shard.get_mut(&id.0) else {
            return false;
        };
        node.lookups = node.lookups.saturating_sub(count);
        let unused = node.is_unused();
        if unused {
            remove(&mut shard, id);
        }
        unused
    }

    /// What is known of a node.
    pub(crate) fn get(&self, id: NodeId) -> Result<Known> {
        self.shard(id)
            .lock()
            .get(&id.0)
            .map(Node::known)
            .ok_or(Error::new(libc::ESTALE, "find a node"))
    }

    /// Where it was last found, when that is kept.
    pub(crate) fn place(&self, id: NodeId) -> Option<Place> {
        let shard = self.shard(id).lock();
        shard.get(&id.0)?.place.as_deref().cloned()
    }

    /// It is found elsewhere now, or (with `None`) no longer where it was.
    pub(crate) fn set_place(&self, id: NodeId, key: FileKey, place: Option<Place>) {
        if let Some(node) = self.shard(id).lock().get_mut(&id.0)
            && node.key == key
        {
            node.place = place.map(Box::new);
        }
    }

    /// Changes how `key` is open, if it still has the number. A state in which nothing is left is
    /// dropped, and the node with it if the kernel does not know it.
    pub(crate) fn with_open<T>(
        &self,
        id: NodeId,
        key: FileKey,
        change: impl FnOnce(&mut OpenState) -> T,
    ) -> Option<T> {
        let mut shard = self.shard(id).lock();
        let node = shard.get_mut(&id.0)?;
        if node.key != key {
            return None;
        }
        let mut open = node.open.as_deref().copied().unwrap_or_default();
        let result = change(&mut open);
        if open == OpenState::default() {
            node.open = None;
        } else {
            match &mut node.open {
                Some(kept) => **kept = open,
                None => node.open = Some(Box::new(open)),
            }
        }
        if id != NodeId::ROOT && node.is_unused() {
            remove(&mut shard, id);
        }
        Some(result)
    }

    /// All that are known.
    pub(crate) fn all(&self) -> Vec<NodeId> {
        let mut all = Vec::with_capacity(self.count());
        for shard in &self.shards {
            all.extend(shard.lock().keys().copied().map(NodeId));
        }
        all
    }

    /// How many are known.
    pub(crate) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

impl Node {
    fn known(&self) -> Known {
        Known {
            key: self.key,
            directory: self.directory,
            open: self.open.as_deref().copied(),
        }
    }

    fn is_unused(&self) -> bool {
        self.lookups == 0 && self.open.as_ref().is_none_or(|open| open.opens == 0)
    }
}

fn remove(shard: &mut HashMap<u64, Node>, id: NodeId) {
    shard.remove(&id.0);
    // Memory follows what the kernel still knows, not what it once knew.
    if shard.capacity() > 1024 && shard.len() * 4 < shard.capacity() {
        shard.shrink_to(shard.len() * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharing::DeviceIndex;

    fn key(ino: u64, generation: u32) -> FileKey {
        FileKey {
            ino,
            generation,
            device: DeviceIndex(0),
        }
    }

    #[test]
    fn counts_of_a_recycled_number_add_up() {
        let nodes = Nodes::new(key(128, 0));
        let id = NodeId(131);
        for _ in 0..3 {
            nodes.remember(id, key(131, 1), false, None);
        }
        nodes.remember(id, key(131, 2), false, None);
        assert_eq!(nodes.get(id).unwrap().key, key(131, 2));
        assert!(!nodes.forget(id, 3), "the new inode is still known");
        assert_eq!(nodes.get(id).unwrap().key, key(131, 2));
        assert!(nodes.forget(id, 1));
        assert!(nodes.get(id).is_err());
    }

    #[test]
    fn an_open_node_outlives_its_last_forget() {
        let nodes = Nodes::new(key(128, 0));
        let id = NodeId(131);
        nodes.remember(id, key(131, 1), false, None);
        nodes.with_open(id, key(131, 1), |open| open.opens += 1);
        assert!(!nodes.forget(id, 1));
        assert!(nodes.get(id).is_ok());
        nodes.with_open(id, key(131, 1), |open| open.opens -= 1);
        assert!(nodes.get(id).is_err());
    }

    #[test]
    fn the_root_stays() {
        let nodes = Nodes::new(key(128, 0));
        assert!(!nodes.forget(NodeId::ROOT, u64::MAX));
        assert!(nodes.get(NodeId::ROOT).is_ok());
        assert_eq!(nodes.count(), 1);
    }

    #[test]
    fn a_known_inode_is_small() {
        assert!(size_of::<(u64, Node)>() <= 56);
    }
}
