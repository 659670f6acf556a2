//! `sharelens refresh`.

use super::{Failure, Outcome, named};
use crate::mount::answering;
use crate::sys::{reason, refresh};
use clap::Args;
use std::io;
use std::os::fd::AsFd;
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
    answering::check_around(&arguments.paths)?;
    arguments.paths.iter().try_for_each(|path| {
        forget(path).map_err(|error| Failure::Sentence(format!("{path:?}: {}", explain(&error))))
    })
}

fn forget(path: &Path) -> io::Result<()> {
    match named::open_file_or_directory(path)? {
        Ok(file) => refresh::refresh(file.as_fd()),
        Err(what) => Err(io::Error::other(format!(
            "is {what}; only regular files and directories have numbers"
        ))),
    }
}

fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOTTY | libc::EOPNOTSUPP | libc::ENOSYS) => {
            "not a file or directory in a sharelens mount".to_owned()
        }
        Some(libc::EPERM) => "only root and the user who mounted it may do this".to_owned(),
        _ => reason(error).to_string(),
    }
}
