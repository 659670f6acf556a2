//! The workloads, one a file.

mod busy_clone;
mod cache;
mod clone_truncate;
mod deep_sharing;
mod invalidate;
mod memory;
mod opens;
mod operations;
mod ordinary;
mod polling;
mod questions;
mod scan;
mod stats;

use crate::harness::{Result, Settings, Tables};

/// A workload.
pub(crate) struct Workload {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What it measures, in a sentence.
    pub(crate) about: &'static str,
    /// Runs it.
    pub(crate) run: fn(&Settings) -> Result<Tables>,
}

/// All of them.
pub(crate) const ALL: &[Workload] = &[
    ordinary::WORKLOAD,
    operations::WORKLOAD,
    questions::WORKLOAD,
    scan::WORKLOAD,
    deep_sharing::WORKLOAD,
    clone_truncate::WORKLOAD,
    busy_clone::WORKLOAD,
    polling::WORKLOAD,
    invalidate::WORKLOAD,
    cache::WORKLOAD,
    opens::WORKLOAD,
    memory::WORKLOAD,
];

/// Those named, or all if none is.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static Workload>> {
    if names.is_empty() {
        return Ok(ALL.iter().collect());
    }
    names
        .iter()
        .map(|name| {
            ALL.iter()
                .find(|workload| workload.name == name)
                .ok_or_else(|| format!("no workload {name}: `list` names them").into())
        })
        .collect()
}

/// The name of the virtual attribute `NAME`, as the kernel takes it.
pub(crate) fn attribute(name: &str) -> String {
    format!("user.reflink.{name}")
}
