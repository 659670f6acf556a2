//! `sharelens refresh`.

use super::{Failure, Outcome};
use crate::sys::refresh;
use clap::Args;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Has a mount forget what it knows, so that the next question reads the disk again
///
/// For changes behind the mount that no event and no change time tells of: deduplication into
/// a file, defragmentation, balance, stores through mappings that are still open. Of a directory,
/// everything that the mount knows is forgotten. Only for root and for who mounted it.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Files or directories in a sharelens mount
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    arguments.paths.iter().try_for_each(|path| {
        forget(path).map_err(|error| Failure::Sentence(format!("{path:?}: {}", reason(&error))))
    })
}

fn forget(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    refresh::refresh(file.as_fd())
}

fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOTTY | libc::EOPNOTSUPP | libc::ENOSYS) => {
            "not a file or directory in a sharelens mount".to_owned()
        }
        Some(libc::EPERM) => "only root and the user who mounted it may do this".to_owned(),
        _ => error.to_string(),
    }
}
