//! Limits of this process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io;

/// Descriptors that are enough for any use; more would only cost memory in the kernel.
const ENOUGH: u64 = 1 << 20;

/// Raises the number of descriptors as far as it goes: to [`ENOUGH`] with the right to raise the
/// hard limit, else to the hard limit. The number now allowed.
///
/// # Errors
/// As getrlimit(2) and setrlimit(2) say.
pub fn raise_descriptors() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if hard < ENOUGH && setrlimit(Resource::RLIMIT_NOFILE, ENOUGH, ENOUGH).is_ok() {
        return Ok(ENOUGH);
    }
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
