//! The engine: which numbers are known, until when, and what they cost to learn again.
//!
//! It knows nothing of FUSE or paths and asks the disk only through [`Backing`]. How its parts
//! fit together:
//!
//! - a question ([`Engine::peek`], [`Engine::summary`]) is answered from a record, or by a flight
//!   that settles, maps and stores (`flight`, `settle`);
//! - a change goes through one door ([`Engine::begin`], `door`): it marks its files, invalidates
//!   whoever shares with them, and what is read meanwhile is not stored;
//! - who shares with whom is told by covers (`cover`), found in the extent index (`index`);
//! - files that may change unseen are active (`active`): whatever overlaps them is settled at
//!   each question instead of being believed;
//! - foreign changes come as events (`events`); whether one of them made a file a clone of others is
//!   told by what it was known to share before (`evidence`);
//! - all bookkeeping is in one `state`, under one lock that is never held over a call to the disk.
//!
//! Invariants: an answer is what FIEMAP says at a moment between question and answer with every
//! change settled that had returned before; nothing that was read while something changed around
//! it is stored; forgetting anything is always safe.

mod active;
pub mod backing;
pub mod change;
mod children;
mod cover;
pub mod directories;
pub mod distinct;
mod door;
mod engine;
mod events;
mod evidence;
mod faults;
mod flight;
mod holds;
mod index;
mod journal;
pub mod key;
mod passes;
pub mod peers;
mod pool;
mod records;
pub mod scan;
mod settle;
mod space;
mod state;
mod stats;
mod survey;
mod sync;
mod table;
pub mod totals;
pub mod tree;
mod unsettled;
pub mod walk;

pub use backing::{Backing, Event, Liveness, Removals, SharingUnit, Stamp, WriteHold};
pub use change::Change;
pub use children::Row;
pub use directories::{Directories, NamesGuard};
pub use door::ChangeGuard;
pub use engine::{AskError, Engine, Limits};
pub use faults::Fault;
pub use flight::Answer;
pub use key::{DeviceIndex, FileKey};
pub use stats::Stats;
pub use survey::Look;
pub use totals::DirTotals;
pub use unsettled::Unsettled;
