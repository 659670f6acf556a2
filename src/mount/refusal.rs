//! Why a mount or unmount was refused: one sentence each, with what to do about it.

use super::options::OptionError;
use crate::sys::reason;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// A request about a mount that cannot be carried out.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A mount option is wrong.
    #[error("{0}")]
    Option(#[from] OptionError),
    /// The source does not exist.
    #[error("the source {source_path:?} does not exist")]
    SourceMissing {
        /// As it was given.
        source_path: PathBuf,
    },
    /// The source is a file.
    #[error("the source {source_path:?} is not a directory: give the directory to be shown")]
    SourceNotDirectory {
        /// As it was given.
        source_path: PathBuf,
    },
    /// The source cannot be opened.
    #[error("the source {source_path:?} cannot be opened: {}", reason(.error))]
    SourceUnreadable {
        /// As it was given.
        source_path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The mount point does not exist.
    #[error("the mount point {point:?} does not exist: make it first (mkdir {point:?})")]
    PointMissing {
        /// As it was given.
        point: PathBuf,
    },
    /// The mount point is a file.
    #[error("the mount point {point:?} is not a directory")]
    PointNotDirectory {
        /// As it was given.
        point: PathBuf,
    },
    /// The mount point cannot be looked at.
    #[error("the mount point {point:?} cannot be used: {}", reason(.error))]
    PointUnreadable {
        /// As it was given.
        point: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The mount would show itself.
    #[error(
        "the mount point {point:?} lies inside the source {source_path:?}, so that the mount would show itself: mount in place (leave the mount point out), or choose a mount point elsewhere"
    )]
    PointInsideSource {
        /// The mount point.
        point: PathBuf,
        /// The source.
        source_path: PathBuf,
    },
    /// The mount would cover its own source and more.
    #[error(
        "the source {source_path:?} lies inside the mount point {point:?}, which the mount would cover: mount in place (leave the mount point out), or choose a mount point elsewhere"
    )]
    SourceInsidePoint {
        /// The source.
        source_path: PathBuf,
        /// The mount point.
        point: PathBuf,
    },
    /// There is a sharelens mount already.
    #[error(
        "{point:?} is already mounted by sharelens (showing {shown}): nothing was done; to mount it anew, run `sharelens umount {point:?}` first"
    )]
    AlreadyMounted {
        /// The mount point.
        point: PathBuf,
        /// Its source as the mount table names it.
        shown: String,
    },
    /// The source is itself a view.
    #[error(
        "the source {source_path:?} lies in a sharelens mount ({point:?}, showing {shown}): give the directory that it shows instead"
    )]
    SourceIsView {
        /// The source.
        source_path: PathBuf,
        /// Where the other mount is.
        point: PathBuf,
        /// What it shows.
        shown: String,
    },
    /// Whoever serves it does not come back.
    #[error(
        "{path:?} does not answer: the daemon of a FUSE mount there is stopped, or waits for its disk; `sharelens umount --lazy MOUNTPOINT` takes the mount away"
    )]
    NotAnswering {
        /// What was looked at.
        path: PathBuf,
    },
    /// A mount of another kind died there.
    #[error("a dead mount ({kind}) covers {point:?}: unmount it first (umount {point:?})")]
    DeadMount {
        /// The mount point.
        point: PathBuf,
        /// Its filesystem type.
        kind: String,
    },
    /// FUSE is not there.
    #[error(
        "there is no /dev/fuse: load the module (modprobe fuse); in a container, start it with --device /dev/fuse and the capability SYS_ADMIN"
    )]
    NoDevice,
    /// FUSE may not be used.
    #[error(
        "/dev/fuse cannot be opened by this user: run as root, or allow it (chmod 0666 /dev/fuse, or membership in the group that owns it)"
    )]
    DeviceDenied,
    /// The unprivileged helper is missing.
    #[error(
        "fusermount3 is not installed, which an ordinary user needs to mount: install the package fuse3 (apt-get install fuse3), or run as root"
    )]
    NoFusermount,
    /// fuse.conf does not allow it.
    #[error(
        "allow_other is for root alone here: add the line user_allow_other to /etc/fuse.conf, leave the option out, or run as root"
    )]
    AllowOtherDenied,
    /// The kernel or fusermount3 says no.
    #[error(
        "mounting on {point:?} is not permitted: {said}; run as root (in a container, with the capability SYS_ADMIN), or choose a mount point that this user owns"
    )]
    NotPermitted {
        /// The mount point.
        point: PathBuf,
        /// What they said.
        said: String,
    },
    /// `io=passthrough` where that cannot be had.
    #[error(
        "io=passthrough is not possible here: {reason}; use io=auto, which falls back to cached I/O, and see `sharelens doctor`"
    )]
    NoPassthrough {
        /// Why.
        reason: &'static str,
    },
    /// Only generic flags can change on a living mount.
    #[error("{point:?} cannot be remounted: {reason}")]
    Remount {
        /// The mount point.
        point: PathBuf,
        /// Why.
        reason: String,
    },
    /// It is not a sharelens mount.
    #[error("{point:?} is not a sharelens mount{}", hint(.kind))]
    NotMounted {
        /// The mount point.
        point: PathBuf,
        /// What is mounted there, if anything.
        kind: Option<String>,
    },
    /// Something still uses it.
    #[error(
        "{point:?} is in use{}: leave the directory and close the files, or run `sharelens umount --lazy {point:?}`",
        by(.users)
    )]
    Busy {
        /// The mount point.
        point: PathBuf,
        /// By whom, as far as is known.
        users: String,
    },
    /// The daemon ended before the mount answered.
    #[error("{0}")]
    NotReady(String),
    /// The daemon in the background has said why, on the same standard error.
    #[error("the daemon could not start")]
    AlreadySaid,
    /// Anything else that a system call said.
    #[error("{context}: {}", reason(.error))]
    System {
        /// What was being done.
        context: String,
        /// What the system call said.
        error: io::Error,
    },
}

impl Refusal {
    /// An error of a system call with what was being done, for `map_err`.
    pub fn system<E: Into<io::Error>>(context: impl Into<String>) -> impl FnOnce(E) -> Self {
        let context = context.into();
        |error| Self::System {
            context,
            error: error.into(),
        }
    }

    /// Whether the request itself was wrong, rather than what the machine allows.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Option(_))
    }
}

fn hint(kind: &Option<String>) -> String {
    kind.as_ref().map_or_else(
        || ": nothing is mounted there".to_owned(),
        |kind| format!(": {kind} is mounted there"),
    )
}

fn by(users: &str) -> String {
    if users.is_empty() {
        String::new()
    } else {
        format!(" by {users}")
    }
}
