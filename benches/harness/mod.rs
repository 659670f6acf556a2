//! What every workload is made of: images to work in, the sides that are compared, samples and
//! their medians, tables.
//!
//! Invariant: whatever was mounted or attached is unmounted and detached when its guard is
//! dropped, on errors and on Ctrl-C too.

mod command;
mod daemon;
mod error;
mod image;
mod interrupt;
mod machine;
mod mounts;
mod samples;
mod settings;
mod side;
mod source;
mod table;

pub(crate) use command::{Run, shell_words};
pub(crate) use daemon::pin;
pub(crate) use error::{Context, Result};
pub(crate) use image::{FsKind, Image};
pub(crate) use machine::machine_line;
pub(crate) use samples::{Samples, median, percentile};
pub(crate) use settings::{Other, Settings};
pub(crate) use side::{Side, View};
pub(crate) use source::SourceTree;
pub(crate) use table::{Table, bytes, duration, ratio};
pub(crate) use {interrupt::interrupted, interrupt::watch};

/// What a workload hands back.
pub(crate) type Tables = Vec<Table>;
