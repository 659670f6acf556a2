//! What is told to the kernel without being asked: that something it has cached is no longer so.
//!
//! Telling about an entry takes the lock of its directory, and about data page locks; a request
//! that waits for us may hold them. So these come from one thread that serves no request. Only
//! attributes of an inode that the request in hand keeps alive are told about directly, which
//! takes no lock that a request holds.

use super::backing::BackingIds;
use crate::fs::NodeId;
use fuser::{INodeNo, Notifier};
use std::ffi::OsString;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How often idle backing ids are looked at.
const TICK: Duration = Duration::from_secs(1);

enum Notice {
    Attributes(NodeId),
    Data(NodeId),
    Entry(NodeId, OsString),
}

/// The way to tell.
#[derive(Clone)]
pub struct Notices {
    inner: Arc<Inner>,
}

struct Inner {
    ids: Arc<BackingIds>,
    notifier: OnceLock<Notifier>,
    sender: OnceLock<mpsc::Sender<Notice>>,
}

impl Notices {
    pub(super) fn new(ids: Arc<BackingIds>) -> Self {
        Self {
            inner: Arc::new(Inner {
                ids,
                notifier: OnceLock::new(),
                sender: OnceLock::new(),
            }),
        }
    }

    /// Begins telling; until then, nothing is cached that could be wrong. The thread ends when
    /// all clones of this are gone.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(&self, notifier: Notifier) -> io::Result<()> {
        let (sender, receiver) = mpsc::channel();
        let ids = Arc::clone(&self.inner.ids);
        let telling = notifier.clone();
        std::thread::Builder::new()
            .name("notices".into())
            .spawn(move || {
                loop {
                    match receiver.recv_timeout(TICK) {
                        Ok(notice) => tell(&telling, &notice),
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => return,
                    }
                    ids.expire();
                }
            })?;
        // Started once a session; a second start would find the first one's.
        let _ = self.inner.notifier.set(notifier);
        let _ = self.inner.sender.set(sender);
        Ok(())
    }

    /// The attributes of a node may have changed.
    pub fn attributes(&self, node: NodeId) {
        self.send(Notice::Attributes(node));
    }

    /// Data and attributes of a node may have changed.
    pub fn data(&self, node: NodeId) {
        self.send(Notice::Data(node));
    }

    /// A name may lead elsewhere.
    pub fn entry(&self, parent: NodeId, name: OsString) {
        self.send(Notice::Entry(parent, name));
    }

    fn send(&self, notice: Notice) {
        if let Some(sender) = self.inner.sender.get() {
            // The thread ends only with the session.
            let _ = sender.send(notice);
        }
    }

    /// Drops the kernel's attributes of a node before the request that keeps it alive is answered.
    pub(super) fn attributes_now(&self, node: NodeId) {
        if let Some(notifier) = self.inner.notifier.get() {
            tell(notifier, &Notice::Attributes(node));
        }
    }
}

fn tell(notifier: &Notifier, notice: &Notice) {
    let told = match notice {
        Notice::Attributes(node) => notifier.inval_inode(INodeNo(node.0), -1, 0),
        Notice::Data(node) => notifier.inval_inode(INodeNo(node.0), 0, 0),
        Notice::Entry(parent, name) => notifier.inval_entry(INodeNo(parent.0), name),
    };
    if let Err(error) = told {
        // After the unmount there is nobody to tell.
        log::debug!("the kernel does not take a notice: {error}");
    }
}
