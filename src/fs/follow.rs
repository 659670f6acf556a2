//! Following what others change behind the mount, so that what the kernel has cached is dropped.
//!
//! One thread waits for the queue of events and has the engine take it in, also when nobody asks
//! anything; the engine's reading tells what each event makes wrong, here, and from here it goes
//! to what caches it ([`Caches`]). Only while that thread lives, and only for devices that are
//! watched, the kernel is told to believe things for long.
//!
//! A reply that was put together before a change and reaches the kernel after it was told of the
//! change could leave something stale in its cache. Names cannot: the kernel takes the lock of the
//! directory both for a look-up and for dropping a name, and a name it drops is unhashed.
//! Attributes of an inode that the kernel knows cannot when they come by getattr or look-up: it
//! discards those older than the drop. What remains are inodes that it does not know yet and
//! replies to setattr; therefore attributes are told about again ([`Caches::attributes`]).

use super::backing::{Heard, Listener};
use super::types::NodeId;
use super::{Inodes, Passthrough};
use crate::sharing::{DeviceIndex, FileKey};
use crate::sys::at::Status;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// After events were taken in, more are let come before the next look: under a build there are
/// tens of thousands a second, most of them of the mount's own users, and waking up for each
/// would cost them time. Meanwhile nobody waits for the queue, so that an event wakes nobody, and
/// those about one file become one. The most by which the kernel hears later of a change.
const PAUSE: Duration = Duration::from_millis(10);
/// How often the thread looks whether it is still needed, in milliseconds.
const LOOK: u16 = 1000;

/// What was allocated to a file may still be given back by itself this long after its last
/// change (XFS: preallocation for copy-on-write, half an hour).
const ALLOCATION_SETTLES: Duration = Duration::from_secs(35 * 60);
/// Both filesystems allocate in these.
const BLOCK: u64 = 4096;

/// What holds copies of attributes, names and data: the kernel's side of the mount. None of
/// these may wait for a request to be served.
pub trait Caches: Send + Sync {
    /// The attributes of a node changed. Told on at once and again when every reply that was
    /// under way has arrived.
    fn attributes(&self, node: NodeId);

    /// Data and attributes of a node changed.
    fn data(&self, node: NodeId);

    /// The entries of a directory changed, and its attributes. Told on as those are.
    fn listing(&self, node: NodeId);

    /// A name in a directory leads elsewhere.
    fn entry(&self, parent: NodeId, name: &[u8]);

    /// Anything may have changed.
    fn anything(&self);
}

/// From what was heard of an inode to the node that the kernel knows.
struct Follower {
    inodes: Arc<Inodes>,
    caches: Arc<dyn Caches>,
}

impl Listener for Follower {
    fn heard(&self, change: Heard<'_>) {
        match change {
            Heard::Attributes(key) => self.caches.attributes(self.inodes.node_of(key)),
            Heard::Data(key) => {
                let node = self.inodes.node_of(key);
                // The pages of one that is not open are looked at when it is opened.
                let cached = self.inodes.nodes.get(node).is_ok_and(|known| {
                    known
                        .open
                        .is_some_and(|open| open.opens > 0 && !open.passthrough)
                });
                if cached {
                    self.caches.data(node);
                } else {
                    self.caches.attributes(node);
                }
            }
            Heard::Entry {
                directory,
                name,
                inode,
            } => {
                let parent = self.inodes.node_of(directory);
                self.caches.entry(parent, name);
                self.caches.listing(parent);
                // A name more or less, or another place, is in the attributes of the inode too.
                if let Some(inode) = inode {
                    self.caches.attributes(self.inodes.node_of(inode));
                }
            }
            Heard::Anything => self.caches.anything(),
        }
    }

    fn knows_file(&self, inode: FileKey) -> bool {
        self.inodes.is_registered(inode)
    }
}

impl Passthrough {
    /// Begins following: from now on `caches` is told what others change. To be called before the
    /// first request is served.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn follow(self: &Arc<Self>, caches: Arc<dyn Caches>) -> io::Result<()> {
        let backing = self.engine.backing();
        backing.heard_by(Arc::new(Follower {
            inodes: Arc::clone(&self.inodes),
            caches: Arc::clone(&caches),
        }));
        // Mounted once; a second call would find the first one's.
        let _ = self.caches.set(caches);
        if backing.event_queue().is_none() {
            return Ok(());
        }
        let fs = Arc::downgrade(self);
        std::thread::Builder::new()
            .name("changes".into())
            .spawn(move || attend(&fs))?;
        self.following.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether the kernel is told what others change on this device.
    pub(crate) fn follows(&self, device: DeviceIndex) -> bool {
        self.following.load(Ordering::Acquire) && self.inodes.devices().is_watched(device)
    }

    /// Forgets what the engine and the kernel know of one inode, or of everything.
    pub(crate) fn drop_caches(&self, node: Option<NodeId>) {
        let Some(caches) = self.caches.get() else {
            return;
        };
        match node {
            Some(node) => caches.data(node),
            None => caches.anything(),
        }
    }

    /// Whether the attributes stay as they are until an event tells otherwise. Blocks allocated
    /// ahead are given back in the background, which nothing tells; and pages that the daemon
    /// serves are dropped when size or time turn out to have changed, which stores through
    /// mappings behind the mount do without an event.
    pub(crate) fn settles_by_events(&self, status: &Status) -> bool {
        if !status.is_file() {
            return true;
        }
        if !self.wants_passthrough() {
            return false;
        }
        let plain = status.size.next_multiple_of(BLOCK) / 512 == status.blocks;
        plain || {
            let since = crate::sys::clock::realtime();
            let changed = u64::try_from(status.ctime.seconds).unwrap_or_default();
            since.saturating_sub(Duration::from_secs(changed)) > ALLOCATION_SETTLES
        }
    }

    /// Stops trusting what was told: from now on the kernel asks often.
    fn stop_following(&self) {
        self.following.store(false, Ordering::Release);
        if let Some(caches) = self.caches.get() {
            caches.anything();
        }
    }
}

/// The thread that follows, for as long as the filesystem lives.
fn attend(fs: &Weak<Passthrough>) {
    while let Some(fs) = fs.upgrade() {
        let backing = fs.engine.backing();
        let Some(queue) = backing.event_queue() else {
            return fs.stop_following();
        };
        let mut waited = [PollFd::new(queue, PollFlags::POLLIN)];
        match poll(&mut waited, PollTimeout::from(LOOK)) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => {
                fs.expire_readings();
                continue;
            }
            Ok(_) => {}
            Err(error) => {
                log::error!(
                    "changes behind the mount are not followed any more: {}",
                    error.desc()
                );
                return fs.stop_following();
            }
        }
        fs.engine.drain();
        fs.expire_readings();
        if !backing.hears() {
            return fs.stop_following();
        }
        std::thread::sleep(PAUSE);
    }
}
