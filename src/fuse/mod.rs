//! The thin adapter from FUSE requests to [`crate::fs`]: each method calls one operation and turns
//! its result into a reply; errors become errnos in one place.
//!
//! Invariants:
//! - slow work does not occupy a request thread: it replies from a pool;
//! - one backing id an inode, shared by all its opens, registered by a thread without
//!   `CAP_FSETID`, given up only when nothing has the inode open;
//! - notifications that can wait for the kernel come from one thread that serves no request.

mod adapter;
mod backing;
mod convert;
mod negotiate;
mod notices;
mod pool;
mod xattr;

pub use adapter::Adapter;
pub use notices::Notices;
