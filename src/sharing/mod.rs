//! The engine: which numbers are known, until when, and what they cost to learn again.
//!
//! It knows nothing of FUSE or paths and asks the disk only through [`Backing`].

pub mod backing;
pub mod change;
pub mod distinct;
pub mod key;
pub mod totals;
pub mod tree;

pub use backing::{Backing, Event, Liveness, SharingUnit, Stamp, WriteHold};
pub use change::Change;
pub use key::{DeviceIndex, FileKey};
pub use totals::DirTotals;
