//! What is told to the kernel without being asked: that something it has cached is no longer so.
//!
//! Telling about an entry takes the lock of its directory, and about data page locks; a request
//! that waits for us may hold them. So these come from one thread that serves no request and holds
//! no lock. Only attributes of an inode that the request in hand keeps alive are told about
//! directly, which takes no lock that a request holds.
//!
//! What is to be told is collected, each thing once, so that a thousand writes to a file are one
//! notice. Attributes are told about again a moment later and a second later: a reply that was put
//! together before the change may have been on its way when the kernel was first told.

use super::backing::BackingIds;
use crate::fs::{Caches, Inodes, NodeId};
use crate::sys::reason;
use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How often idle backing ids are looked at.
const TICK: Duration = Duration::from_secs(1);
/// When attributes are told about again: replies take microseconds, on a busy machine
/// milliseconds.
const AGAIN: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// `FUSE_NOTIFY_INC_EPOCH` (linux/fuse.h, Linux 6.16): no name that was looked up so far is
/// believed any more.
const INC_EPOCH: i32 = 8;

/// What is to be told again, and when.
type Later = VecDeque<(Instant, Vec<(NodeId, Changed)>)>;

/// What is to be told.
#[derive(Default)]
struct Batch {
    /// Nodes that changed.
    nodes: HashMap<NodeId, Changed>,
    entries: HashSet<(NodeId, OsString)>,
    anything: bool,
}

/// What changed of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Changed {
    Attributes,
    /// Data and attributes.
    Data,
    /// Entries and attributes of a directory: a listing that was under way may have been kept.
    Listing,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.entries.is_empty() && !self.anything
    }
}

/// The way to tell.
#[derive(Clone)]
pub struct Notices {
    inner: Arc<Inner>,
}

struct Inner {
    ids: Arc<BackingIds>,
    inodes: Arc<Inodes>,
    kernel: OnceLock<Kernel>,
    batch: Mutex<Batch>,
    work: Condvar,
}

/// The other side.
struct Kernel {
    notifier: Notifier,
    device: File,
}

impl Notices {
    pub(super) fn new(ids: Arc<BackingIds>, inodes: Arc<Inodes>) -> Self {
        Self {
            inner: Arc::new(Inner {
                ids,
                inodes,
                kernel: OnceLock::new(),
                batch: Mutex::default(),
                work: Condvar::new(),
            }),
        }
    }

    /// Begins telling, through the session's notifier and a descriptor of its device; until then,
    /// nothing is cached that could be wrong. The thread ends when all clones of this are gone.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(&self, notifier: Notifier, device: OwnedFd) -> io::Result<()> {
        // Started once a session; a second start would find the first one's.
        let _ = self.inner.kernel.set(Kernel {
            notifier,
            device: device.into(),
        });
        let inner = Arc::downgrade(&self.inner);
        std::thread::Builder::new()
            .name("notices".into())
            .spawn(move || {
                let mut again: [Later; AGAIN.len()] = Default::default();
                let mut expired = Instant::now();
                while let Some(inner) = inner.upgrade() {
                    inner.work(&mut again);
                    if expired.elapsed() >= TICK {
                        expired = Instant::now();
                        inner.ids.expire();
                    }
                }
            })
            .map(drop)
    }

    /// Drops the kernel's attributes of a node before the request that keeps it alive is answered.
    pub(super) fn attributes_now(&self, node: NodeId) {
        if let Some(kernel) = self.inner.kernel.get() {
            kernel.attributes(node);
        }
    }

    fn changed(&self, node: NodeId, what: Changed) {
        self.add(|batch| {
            let known = batch.nodes.entry(node).or_insert(what);
            *known = what.max(*known);
        });
    }

    fn add(&self, add: impl FnOnce(&mut Batch)) {
        let mut batch = self.inner.batch.lock();
        let idle = batch.is_empty();
        add(&mut batch);
        drop(batch);
        if idle {
            self.inner.work.notify_one();
        }
    }
}

impl Caches for Notices {
    fn attributes(&self, node: NodeId) {
        self.changed(node, Changed::Attributes);
    }

    fn data(&self, node: NodeId) {
        self.changed(node, Changed::Data);
    }

    fn listing(&self, node: NodeId) {
        self.changed(node, Changed::Listing);
    }

    fn entry(&self, parent: NodeId, name: &[u8]) {
        self.add(|batch| {
            let name = OsStr::from_bytes(name).to_owned();
            batch.entries.insert((parent, name));
        });
    }

    fn anything(&self) {
        self.add(|batch| batch.anything = true);
    }
}

impl Inner {
    /// Waits for something to tell, a moment at most, and tells it.
    fn work(&self, again: &mut [Later]) {
        let due = again
            .iter()
            .filter_map(|queue| queue.front())
            .map(|(due, _)| *due)
            .min();
        let until = Instant::now() + TICK;
        let until = due.map_or(until, |due| due.min(until));
        let mut collected = self.batch.lock();
        if collected.is_empty() {
            self.work.wait_until(&mut collected, until);
        }
        let batch = std::mem::take(&mut *collected);
        // Telling may wait for a request, and the thread that serves it may have to add to these.
        drop(collected);
        let Some(kernel) = self.kernel.get() else {
            return;
        };
        if batch.anything {
            self.tell_of_anything(kernel);
        }
        // Names first: who finds the new inode by its name does not meet the old attributes.
        for (parent, name) in &batch.entries {
            if self.inodes.knows(*parent) {
                kernel.entry(*parent, name);
            }
        }
        for (&node, &what) in &batch.nodes {
            if self.inodes.knows(node) {
                kernel.changed(node, what);
            }
        }
        let now = Instant::now();
        for queue in again.iter_mut() {
            while queue.front().is_some_and(|(due, _)| *due <= now) {
                let (_, nodes) = queue.pop_front().unwrap_or((now, Vec::new()));
                for (node, what) in nodes {
                    if self.inodes.knows(node) {
                        kernel.changed(node, what);
                    }
                }
            }
        }
        if !batch.nodes.is_empty() {
            // Also those that are not known: a look-up of one may be under way.
            let told_again = |what| match what {
                Changed::Data => Changed::Attributes,
                what => what,
            };
            let nodes = batch.nodes.into_iter();
            let nodes: Vec<_> = nodes.map(|(node, what)| (node, told_again(what))).collect();
            for (queue, delay) in again.iter_mut().zip(AGAIN) {
                queue.push_back((now + delay, nodes.clone()));
            }
        }
    }

    /// No name and no attributes are to be believed. Before Linux 6.16 names that were looked up
    /// are believed until their time is over.
    fn tell_of_anything(&self, kernel: &Kernel) {
        if let Err(error) = kernel.new_epoch() {
            log::warn!(
                "the kernel cannot be told to look all names up again: {}",
                reason(&error)
            );
        }
        for node in self.inodes.known() {
            kernel.data(node);
        }
    }
}

impl Kernel {
    fn changed(&self, node: NodeId, what: Changed) {
        match what {
            Changed::Attributes => self.attributes(node),
            Changed::Data | Changed::Listing => self.data(node),
        }
    }

    fn attributes(&self, node: NodeId) {
        said(self.notifier.inval_inode(INodeNo(node.0), -1, 0));
    }

    fn data(&self, node: NodeId) {
        said(self.notifier.inval_inode(INodeNo(node.0), 0, 0));
    }

    fn entry(&self, parent: NodeId, name: &OsStr) {
        said(self.notifier.inval_entry(INodeNo(parent.0), name));
    }

    /// A message without a body: `struct fuse_out_header` alone, its length first, the kind of
    /// notice in place of an error, and no request that it answers.
    fn new_epoch(&self) -> io::Result<()> {
        const LENGTH: u32 = 16;
        let mut message = [0; LENGTH as usize];
        let (length, rest) = message.split_at_mut(4);
        length.copy_from_slice(&LENGTH.to_ne_bytes());
        let (kind, _) = rest.split_at_mut(4);
        kind.copy_from_slice(&INC_EPOCH.to_ne_bytes());
        (&self.device).write_all(&message)
    }
}

fn said(told: io::Result<()>) {
    if let Err(error) = told {
        // After the unmount there is nobody to tell.
        log::debug!("the kernel does not take a notice: {}", reason(&error));
    }
}
