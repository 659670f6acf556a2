//! Asking a sharelens mount through its virtual attributes, as any program can.

use crate::sys;
use crate::vxattr::{LARGEST_VALUE, Name};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// The text of the virtual attribute `name` of `path`.
///
/// # Errors
/// `ENODATA` for what is not known, `EOPNOTSUPP` and `ENODATA` outside a mount, `EAGAIN` when
/// the answer took longer than the mount's `wait`.
pub fn text(path: &Path, name: Name) -> io::Result<String> {
    let fd = open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
    let name = CString::new(name.attribute())?;
    let mut buffer = vec![0; 512];
    loop {
        match sys::xattr::get(fd.as_fd(), &name, &mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return String::from_utf8(buffer).map_err(io::Error::other);
            }
            Err(error)
                if error.raw_os_error() == Some(libc::ERANGE) && buffer.len() < LARGEST_VALUE =>
            {
                buffer.resize(LARGEST_VALUE, 0);
            }
            Err(error) => return Err(error),
        }
    }
}

/// As [`text`], but asks again for as long as the mount says that it is still at work. `waiting`
/// is called between two tries.
///
/// # Errors
/// As [`text`], without `EAGAIN`.
pub fn patiently(path: &Path, name: Name, mut waiting: impl FnMut()) -> io::Result<String> {
    loop {
        match text(path, name) {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                waiting();
                std::thread::sleep(Duration::from_millis(20));
            }
            other => return other,
        }
    }
}

/// Whether `path` lies in a living sharelens mount: the version is known only there.
#[must_use]
pub fn is_answered(root: &Path) -> bool {
    text(root, Name::Version).is_ok()
}
