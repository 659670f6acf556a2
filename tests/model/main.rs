//! The engine against a simulated filesystem: generated histories, each answer compared with the
//! truth. A failing history is shrunk and printed.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]
#![cfg(not(feature = "shuttle"))]

#[cfg(feature = "faults")]
mod faults;
mod held;
mod histories;
mod history;
mod interleave;
mod sim;
mod world;
