//! The passthrough filesystem in plain types.
//!
//! It does below the source what is asked above it, as the caller who asks, and tells the engine
//! of everything that can alter sharing. It knows neither FUSE nor FIEMAP ([`backing`] apart, which
//! is the engine's way to the disk).
//!
//! Invariants:
//! - every step is one name relative to an open directory, or a file handle: nothing leads out of
//!   the source, and no path is used, so that the source may be covered by the mount;
//! - a system call that can alter sharing happens while a [`Change`](crate::sharing::Change) for it
//!   is under way;
//! - the errno of the backing filesystem is the errno of the caller;
//! - permissions were checked by the kernel (`default_permissions`); what is created belongs to
//!   the caller, and set-id bits go where natively they would.

pub mod backing;
pub mod device;
pub mod walk;

mod attr;
mod blocks;
mod create;
mod data;
mod descriptors;
mod dir;
mod error;
mod follow;
mod handles;
mod inodes;
mod ioctl;
mod listing;
mod lookup;
mod names;
mod nodes;
mod numbers;
mod open;
mod options;
mod peers;
mod places;
mod process;
mod readings;
mod remove;
mod statfs;
mod types;
mod unchanged;
mod unmounted;
mod virtual_xattr;
mod xattr;

pub use create::Permissions;
pub use data::CopyEnd;
pub use dir::DirEntry;
pub use error::{Error, Result};
pub use follow::Caches;
pub use inodes::Inodes;
pub use ioctl::IoctlOutput;
pub use options::{Options, Timeout};
pub use statfs::Space;
pub use types::{Attr, Caller, Entry, HandleId, IoMode, Name, NodeId, Opened, SetAttr};
pub use unmounted::Unmounted;
pub use xattr::LARGEST_LIST;

use crate::sharing::Directories;
use handles::Handles;
use parking_lot::Mutex;
use readings::Readings;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use unchanged::Unchanged;

/// The engine on the real disk.
pub type Engine = crate::sharing::Engine<backing::DiskBacking>;

/// Threads that read directories for totals. More than two gain little even on fast disks, and take
/// from those who work in the tree.
const SCAN_WORKERS: usize = 2;

/// What holds inodes open outside this room: the kernel's backing files. Told before an inode
/// loses its last name, since what keeps it alive keeps its blocks shared.
pub trait Pins: Send + Sync {
    /// Lets go of the inode unless it is open.
    fn unpin(&self, node: NodeId);

    /// One open of the inode with kernel passthrough has ended.
    fn closed(&self, node: NodeId);
}

/// The filesystem.
pub struct Passthrough {
    inodes: Arc<Inodes>,
    engine: Arc<Engine>,
    directories: Arc<Directories<backing::DiskBacking>>,
    options: Options,
    handles: Handles,
    readings: Readings,
    unchanged: Unchanged,
    pins: OnceLock<Arc<dyn Pins>>,
    caches: OnceLock<Arc<dyn Caches>>,
    /// What others change is followed, where it is watched.
    following: AtomicBool,
    /// Kernel passthrough is wanted and was not found impossible.
    passthrough: AtomicBool,
    /// Paths of which pages are being read.
    peer_paths: Mutex<Option<peers::KeptPaths>>,
    /// Keeps opens for write and the test whether a mapping lives apart, by node.
    gates: [Mutex<()>; 64],
}

impl Passthrough {
    /// The filesystem of these inodes.
    #[must_use]
    pub fn new(inodes: Arc<Inodes>, options: Options, engine: Arc<Engine>) -> Self {
        let directories = Directories::new(Arc::clone(&engine), SCAN_WORKERS);
        if !inodes.devices().watches_all() {
            directories.read_again_every(options.entry_timeout.unwatched);
        }
        Self {
            inodes,
            directories,
            engine,
            passthrough: AtomicBool::new(options.passthrough),
            options,
            handles: Handles::default(),
            readings: Readings::new(),
            unchanged: Unchanged::new(),
            pins: OnceLock::new(),
            caches: OnceLock::new(),
            following: AtomicBool::new(false),
            peer_paths: Mutex::new(None),
            gates: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Names what holds inodes open elsewhere. The first one named stays.
    pub fn pinned_by(&self, pins: Arc<dyn Pins>) {
        // A second one would be a second owner of the kernel's backing files; there is none.
        let _ = self.pins.set(pins);
    }

    /// The inodes.
    #[must_use]
    pub fn inodes(&self) -> &Arc<Inodes> {
        &self.inodes
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The totals of directories.
    #[must_use]
    pub fn directories(&self) -> &Arc<Directories<backing::DiskBacking>> {
        &self.directories
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    fn pin_closed(&self, node: NodeId) {
        if let Some(pins) = self.pins.get() {
            pins.closed(node);
        }
    }

    fn unpin(&self, node: NodeId) {
        if let Some(pins) = self.pins.get() {
            pins.unpin(node);
        }
    }

    fn gate(&self, node: NodeId) -> &Mutex<()> {
        let index = (node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize;
        self.gates.get(index).unwrap_or(&self.gates[0])
    }
}
