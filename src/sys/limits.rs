//! Limits of this process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io;

/// Raises the number of descriptors as far as the hard limit allows; the number now allowed.
///
/// # Errors
/// As getrlimit(2) and setrlimit(2) say.
pub fn raise_descriptors() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

/// The number of descriptors allowed now.
///
/// # Errors
/// As getrlimit(2) says.
pub fn descriptors() -> io::Result<u64> {
    Ok(getrlimit(Resource::RLIMIT_NOFILE)?.0)
}
