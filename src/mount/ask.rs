//! Asking a sharelens mount through its virtual attributes, as any program can.

use crate::sys;
use crate::vxattr::{LARGEST_VALUE, Name};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use crate::sys::listing::Scan;

/// How directories are opened.
const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC);

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

/// The listing of a directory, as the attribute `children` has it, however long it is. Asks again
/// as [`patiently`] does.
///
/// # Errors
/// As [`text`], without `EAGAIN`.
pub fn children(path: &Path, mut waiting: impl FnMut()) -> io::Result<Vec<u8>> {
    match patiently(path, Name::Children, &mut waiting) {
        Ok(text) => return Ok(text.into_bytes()),
        Err(error) if error.raw_os_error() == Some(libc::ENODATA) => {}
        Err(error) => return Err(error),
    }
    let directory = open(path, DIRECTORY, Mode::empty())?;
    let mut listing = Vec::new();
    let mut position = Some(0);
    while let Some(from) = position {
        position = match sys::listing::page(directory.as_fd(), from, &mut listing) {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                waiting();
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            next => next?,
        };
    }
    Ok(listing)
}

/// Who shares with a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// Their paths below the root of the mount, sorted by their bytes.
    pub paths: Vec<PathBuf>,
    /// Files of which the caller may see no path.
    pub hidden: u64,
}

/// The files of the mount that share with a file. Asks again as [`patiently`] does.
///
/// # Errors
/// `ENOTTY` outside a mount, `ENODATA` while not everything in the mount was read, `EPERM` for
/// others than root and the file's owner, `EINVAL` for what is no regular file.
pub fn peers(path: &Path, mut waiting: impl FnMut()) -> io::Result<Peers> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    let mut paths: Vec<Vec<u8>> = Vec::new();
    let mut hidden = 0;
    let mut last = false;
    while !last {
        let after = paths.last().cloned().unwrap_or_default();
        last = match sys::peers::page(file.as_fd(), &after, &mut paths, &mut hidden) {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                waiting();
                std::thread::sleep(Duration::from_millis(20));
                false
            }
            last => last?,
        };
    }
    let paths = paths.into_iter().map(OsString::from_vec);
    Ok(Peers {
        paths: paths.map(PathBuf::from).collect(),
        hidden,
    })
}

/// How far the mount's scan of a directory is; with `begin` it is begun where it has to be. Waits
/// for nothing.
///
/// # Errors
/// `ENOTTY` outside a mount, else of opening the directory.
pub fn scan(path: &Path, begin: bool) -> io::Result<Scan> {
    let directory = open(path, DIRECTORY, Mode::empty())?;
    sys::listing::scan(directory.as_fd(), begin)
}

/// Whether `path` lies in a living sharelens mount: the version is known only there.
#[must_use]
pub fn is_answered(root: &Path) -> bool {
    text(root, Name::Version).is_ok()
}
