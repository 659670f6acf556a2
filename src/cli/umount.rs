//! `sharelens umount`.

use super::Outcome;
use crate::mount::umount;
use clap::Args;
use std::path::PathBuf;

/// Ends a sharelens mount
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Also when it is in use: it leaves the mount table at once and goes with its last user
    #[arg(short, long)]
    lazy: bool,
    /// The mount point
    #[arg(value_name = "MOUNTPOINT")]
    point: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    umount::unmount(&arguments.point, arguments.lazy)?;
    Ok(())
}
