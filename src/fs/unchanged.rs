//! Which files and directories have not changed since they were last opened, so that what the
//! kernel has cached of them may be kept.
//!
//! An inode's change time and size are taken when it is opened, before anything of it is read into
//! the kernel's cache; asking for them makes the filesystem give every later change another time.

use super::types::NodeId;
use crate::sharing::FileKey;
use crate::sys::at::{Status, Time};
use lru::LruCache;
use parking_lot::Mutex;
use std::num::NonZeroUsize;

const SHARDS: usize = 16;
const EACH: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);

type Stamp = (FileKey, Time, u64);

/// The stamps, the least recently used forgotten first.
#[derive(Debug)]
pub(crate) struct Unchanged {
    shards: [Mutex<LruCache<NodeId, Stamp>>; SHARDS],
}

impl Unchanged {
    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::new(LruCache::new(EACH))),
        }
    }

    fn shard(&self, node: NodeId) -> &Mutex<LruCache<NodeId, Stamp>> {
        let index = (node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize;
        self.shards.get(index).unwrap_or(&self.shards[0])
    }

    /// How the inode is now says nothing about what is cached of it.
    pub(crate) fn forget(&self, node: NodeId) {
        self.shard(node).lock().pop(&node);
    }

    /// Whether the inode is as it was when this was last asked; notes how it is now.
    pub(crate) fn confirm(&self, node: NodeId, key: FileKey, status: &Status) -> bool {
        let stamp = (key, status.ctime, status.size);
        self.shard(node).lock().put(node, stamp) == Some(stamp)
    }
}
