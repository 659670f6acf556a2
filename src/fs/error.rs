//! Errors of the filesystem: an errno for the caller and what was being done for the log.

use crate::sys::reason;
use std::fmt;
use std::io;

/// Why an operation failed. The errno is the one that the backing filesystem gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    errno: i32,
    doing: &'static str,
}

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with this errno.
    #[must_use]
    pub const fn new(errno: i32, doing: &'static str) -> Self {
        Self { errno, doing }
    }

    /// The errno, for the caller.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        self.errno
    }

    /// Whether the inode is gone, or was replaced, so that its name must be looked up again.
    #[must_use]
    pub const fn is_stale(&self) -> bool {
        self.errno == libc::ESTALE
    }

    /// Whether this process is out of descriptors.
    #[must_use]
    pub const fn is_out_of_descriptors(&self) -> bool {
        matches!(self.errno, libc::EMFILE | libc::ENFILE)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = io::Error::from_raw_os_error(self.errno);
        write!(f, "{}: {}", self.doing, reason(&error))
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::from_raw_os_error(error.errno)
    }
}

/// Says what was being done when a system call failed.
pub(crate) trait Doing<T> {
    /// Turns the failure into an [`Error`].
    fn doing(self, what: &'static str) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: &'static str) -> Result<T> {
        self.map_err(|error| Error::new(error.raw_os_error().unwrap_or(libc::EIO), what))
    }
}
