//! What the kernel knows of a path without asking whoever serves the filesystem.

use super::check;
use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The device (`st_dev`) of what a path leads to, as far as the kernel knows it without asking
/// whoever serves that filesystem, who may not answer.
///
/// # Errors
/// As statx(2) says.
pub fn device(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut buffer = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the buffer has the size of the structure and was zeroed, so that it is initialised
    // whatever the kernel writes; `path` is terminated; both outlive the call.
    let stat = unsafe {
        check(libc::statx(
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_NO_AUTOMOUNT | libc::AT_STATX_DONT_SYNC,
            0,
            buffer.as_mut_ptr(),
        ))?;
        buffer.assume_init()
    };
    Ok(libc::makedev(stat.stx_dev_major, stat.stx_dev_minor))
}
