//! Backing ids: by which the kernel knows the backing file of an inode.
//!
//! Invariants:
//! - an inode has at most one, since the kernel fails the open that names a second one;
//! - it is registered from a descriptor that is not open for write, by a thread in its base state
//!   (without `CAP_FSETID`): the kernel writes with that thread's credentials;
//! - a descriptor of the inode is kept with it, for whatever is asked about the file meanwhile;
//! - after the last close it is kept for a moment, for the next open, unless the inode has no name
//!   left: it keeps the inode alive.

use crate::fs::{Inodes, NodeId, Pins};
use crate::sharing::FileKey;
use fuser::BackingId;
use lru::LruCache;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const SHARDS: usize = 32;
/// Kept without an open.
const IDLE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);
/// How long.
const IDLE_TIME: Duration = Duration::from_secs(3);

#[derive(Debug)]
struct Slot {
    key: FileKey,
    id: Arc<BackingId>,
    opens: u32,
}

/// All backing ids.
pub(super) struct BackingIds {
    shards: [Mutex<HashMap<NodeId, Slot>>; SHARDS],
    idle: Mutex<LruCache<NodeId, Instant>>,
    let_go: OnceLock<LetGo>,
    inodes: Arc<Inodes>,
}

/// Told of an inode that a backing id has kept alive and does no longer.
type LetGo = Box<dyn Fn(FileKey) + Send + Sync>;

impl BackingIds {
    pub(super) fn new(inodes: Arc<Inodes>) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            idle: Mutex::new(LruCache::new(IDLE)),
            let_go: OnceLock::new(),
            inodes,
        }
    }

    /// Calls `told` of every inode that was given up because nothing opened it again.
    pub(super) fn on_let_go(&self, told: LetGo) {
        // Set once, by the adapter that owns this.
        let _ = self.let_go.set(told);
    }

    fn shard(&self, node: NodeId) -> &Mutex<HashMap<NodeId, Slot>> {
        let index = (node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59) as usize;
        self.shards.get(index).unwrap_or(&self.shards[0])
    }

    /// The id of an inode for one more open: the one that it has, or one registered now from the
    /// descriptor that `open` gives.
    pub(super) fn acquire<F: AsFd>(
        &self,
        node: NodeId,
        key: FileKey,
        open: impl FnOnce() -> io::Result<F>,
        register: impl FnOnce(&F) -> io::Result<BackingId>,
    ) -> io::Result<Arc<BackingId>> {
        if let Some(id) = self.reuse(node, key) {
            return Ok(id);
        }
        let fd = open()?;
        let mut shard = self.shard(node).lock();
        // The one ioctl that must not happen twice for an inode; it does no I/O.
        let slot = match shard.entry(node) {
            std::collections::hash_map::Entry::Occupied(slot) if slot.get().key == key => {
                slot.into_mut()
            }
            entry => {
                let id = match register(&fd) {
                    Ok(id) => Arc::new(id),
                    Err(error) => {
                        self.inodes.unregistered(node);
                        return Err(error);
                    }
                };
                let slot = Slot { key, id, opens: 0 };
                entry.insert_entry(slot).into_mut()
            }
        };
        slot.opens += 1;
        Ok(Arc::clone(&slot.id))
    }

    fn reuse(&self, node: NodeId, key: FileKey) -> Option<Arc<BackingId>> {
        let mut shard = self.shard(node).lock();
        let slot = shard.get_mut(&node).filter(|slot| slot.key == key)?;
        slot.opens += 1;
        Some(Arc::clone(&slot.id))
    }

    /// Gives up those that nothing has opened for a while.
    pub(super) fn expire(&self) {
        let now = Instant::now();
        loop {
            let mut idle = self.idle.lock();
            let expired = idle
                .peek_lru()
                .filter(|(_, since)| now.duration_since(**since) >= IDLE_TIME)
                .map(|(&node, _)| node);
            let Some(node) = expired else { return };
            idle.pop(&node);
            drop(idle);
            self.give_up(node);
        }
    }

    fn give_up(&self, node: NodeId) {
        if let Some(key) = self.drop_unused(node)
            && let Some(told) = self.let_go.get()
        {
            told(key);
        }
    }

    fn drop_unused(&self, node: NodeId) -> Option<FileKey> {
        let mut shard = self.shard(node).lock();
        let unused = shard.get(&node).is_some_and(|slot| slot.opens == 0);
        let dropped = if unused { shard.remove(&node) } else { None };
        drop(shard);
        if dropped.is_some() {
            self.inodes.unregistered(node);
        }
        // Here the id is given back to the kernel.
        dropped.map(|slot| slot.key)
    }
}

impl Pins for BackingIds {
    fn unpin(&self, node: NodeId) {
        self.idle.lock().pop(&node);
        let _dropped = self.drop_unused(node);
    }

    fn closed(&self, node: NodeId) {
        let mut shard = self.shard(node).lock();
        let Some(slot) = shard.get_mut(&node) else {
            return;
        };
        slot.opens = slot.opens.saturating_sub(1);
        let idle = slot.opens == 0;
        drop(shard);
        if idle {
            let pushed = self.idle.lock().push(node, Instant::now());
            if let Some((other, _)) = pushed
                && other != node
            {
                self.give_up(other);
            }
        }
    }
}
