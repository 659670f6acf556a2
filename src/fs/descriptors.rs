//! A bounded set of `O_PATH` descriptors, the least recently used closed first.
//!
//! Where inodes can be opened by handle only directories are kept: they are asked for again and
//! again, and a descriptor of a removed file would keep its blocks shared. Elsewhere any inode is.

use super::types::NodeId;
use crate::sharing::FileKey;
use lru::LruCache;
use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;

const SHARDS: usize = 8;

#[derive(Debug)]
struct Kept {
    key: FileKey,
    fd: Arc<OwnedFd>,
}

/// The set.
#[derive(Debug)]
pub(crate) struct Descriptors {
    shards: [Mutex<LruCache<NodeId, Kept>>; SHARDS],
}

impl Descriptors {
    /// Keeps about `limit` descriptors.
    pub(crate) fn new(limit: usize) -> Self {
        let each = NonZeroUsize::new(limit / SHARDS).unwrap_or(NonZeroUsize::MIN);
        Self {
            shards: std::array::from_fn(|_| Mutex::new(LruCache::new(each))),
        }
    }

    fn shard(&self, node: NodeId) -> &Mutex<LruCache<NodeId, Kept>> {
        let index = (node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61) as usize;
        self.shards.get(index).unwrap_or(&self.shards[0])
    }

    /// The descriptor of a node, if it is kept and the node is still the same inode.
    pub(crate) fn get(&self, node: NodeId, key: FileKey) -> Option<Arc<OwnedFd>> {
        let mut shard = self.shard(node).lock();
        shard
            .get(&node)
            .filter(|kept| kept.key == key)
            .map(|kept| Arc::clone(&kept.fd))
    }

    /// Keeps a descriptor.
    pub(crate) fn put(&self, node: NodeId, key: FileKey, fd: Arc<OwnedFd>) {
        // What it pushes out is closed after the lock is given back.
        let _closed = self.shard(node).lock().push(node, Kept { key, fd });
    }

    /// Closes the descriptor of a node.
    pub(crate) fn drop(&self, node: NodeId) {
        let _closed = self.shard(node).lock().pop(&node);
    }

    /// Closes all.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let mut closed = Vec::new();
            let mut shard = shard.lock();
            while let Some(kept) = shard.pop_lru() {
                closed.push(kept);
            }
            drop(shard);
        }
    }
}
