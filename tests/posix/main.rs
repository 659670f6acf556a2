//! What a passthrough filesystem is judged by: it behaves like the filesystem below it. Each file
//! holds one subject; most tests run natively, which proves them, and through mounts in both I/O
//! modes, on XFS and on btrfs (`common::venue`). `xfs_native`, `btrfs_cached` and so on select
//! venues: `cargo test --test posix names::` or `cargo test --test posix xfs_passthrough`. With
//! `SHARELENS_TEST_IN_PLACE=1` the mounts cover their sources.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

#[path = "../common/mod.rs"]
mod common;

mod copies;
mod data;
mod databases;
mod directories;
mod holes_times;
mod lifetime;
mod lives;
mod locks;
mod names;
mod privileges;
mod regression;
mod regression_data;
mod robust;
mod users;
