//! A directory stream with its positions.

use super::calls::c_path;
use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub ino: u64,
    pub kind: u8,
    pub name: OsString,
    /// The position that `seekdir` takes to go on after this entry.
    pub next: libc::c_long,
}

/// A directory stream of the C library.
#[derive(Debug)]
pub struct Directory {
    stream: ptr::NonNull<libc::DIR>,
}

impl Directory {
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = c_path(path);
        // SAFETY: the path ends with NUL.
        let stream = unsafe { libc::opendir(path.as_ptr()) };
        ptr::NonNull::new(stream)
            .map(|stream| Self { stream })
            .ok_or_else(io::Error::last_os_error)
    }

    /// The next entry, `.` and `..` included; `None` at the end.
    pub fn next(&mut self) -> io::Result<Option<Entry>> {
        // SAFETY: the stream is open, errno is this thread's, and the entry is copied before the
        // next call on the stream.
        unsafe {
            *libc::__errno_location() = 0;
            let entry = libc::readdir64(self.stream.as_ptr());
            if entry.is_null() {
                let error = io::Error::last_os_error();
                return match error.raw_os_error() {
                    Some(0) => Ok(None),
                    _ => Err(error),
                };
            }
            let name = CStr::from_ptr((&raw const (*entry).d_name).cast());
            Ok(Some(Entry {
                ino: (*entry).d_ino,
                kind: (*entry).d_type,
                name: OsStr::from_bytes(name.to_bytes()).to_owned(),
                next: libc::telldir(self.stream.as_ptr()),
            }))
        }
    }

    /// Everything up to the end, without `.` and `..`.
    pub fn rest(&mut self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        while let Some(entry) = self.next()? {
            if entry.name != "." && entry.name != ".." {
                entries.push(entry);
            }
        }
        Ok(entries)
    }

    pub fn seek(&mut self, position: libc::c_long) {
        // SAFETY: the stream is open.
        unsafe { libc::seekdir(self.stream.as_ptr(), position) };
    }

    pub fn tell(&mut self) -> libc::c_long {
        // SAFETY: the stream is open.
        unsafe { libc::telldir(self.stream.as_ptr()) }
    }

    pub fn rewind(&mut self) {
        // SAFETY: the stream is open.
        unsafe { libc::rewinddir(self.stream.as_ptr()) };
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: the stream is open and not used again.
        unsafe { libc::closedir(self.stream.as_ptr()) };
    }
}
