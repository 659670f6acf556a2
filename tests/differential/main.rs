//! The differential test of exactness.
//!
//! Random operations on a few files that share a lot, interleaved with questions. Each checked
//! answer is compared with the truth, which an oracle of its own takes from the backing
//! filesystem after the answer. Seeds are printed; a failing one replays.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub
)]

#[path = "../common/mod.rs"]
mod common;

mod answer;
mod behind;
mod contents;
#[cfg(feature = "faults")]
mod faults;
mod generate;
mod history;
mod images;
mod kernel;
mod mounted;
mod native;
mod op;
mod settings;
mod shrink;
mod threads;
mod tree;
mod truth;
mod watchdog;
mod world;
