//! Reading directories: getdents64(2) and the entries in its buffer.

use super::field;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Fills `buffer` with the next entries of the open directory; the number of bytes, 0 at the end.
///
/// # Errors
/// As getdents64(2) says.
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is as long as stated and outlives the call.
    let length = unsafe {
        libc::syscall(
            libc::SYS_getdents64,
            fd.as_raw_fd(),
            buffer.as_mut_ptr(),
            buffer.len(),
        )
    };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Inode number, of the covered directory where something is mounted on it.
    pub ino: u64,
    /// Where the next entry starts, for lseek(2).
    pub next: u64,
    /// Type (`DT_REG` ...), `DT_UNKNOWN` where the filesystem does not say.
    pub kind: u8,
    /// Name.
    pub name: &'a CStr,
}

/// The entry at the start of `buffer` and its length there; `None` past the last one.
#[must_use]
pub fn entry(buffer: &[u8]) -> Option<(Entry<'_>, usize)> {
    let ino = field::u64(buffer, 0)?;
    let next = field::u64(buffer, 8)?;
    let length = usize::from(u16::from_ne_bytes(field::bytes(buffer, 16)?));
    let kind = *buffer.get(18)?;
    let name = CStr::from_bytes_until_nul(buffer.get(19..length)?).ok()?;
    Some((
        Entry {
            ino,
            next,
            kind,
            name,
        },
        length,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn every_entry_of_a_directory_is_read() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..300 {
            std::fs::write(dir.path().join(format!("file-{number}")), "").unwrap();
        }
        let open = std::fs::File::open(dir.path()).unwrap();
        let mut buffer = vec![0; 4096];
        let mut names = std::collections::BTreeSet::new();
        loop {
            let length = read(open.as_fd(), &mut buffer).unwrap();
            if length == 0 {
                break;
            }
            let mut rest = &buffer[..length];
            while let Some((entry, size)) = entry(rest) {
                names.insert(entry.name.to_owned());
                rest = &rest[size..];
            }
            assert!(rest.is_empty());
        }
        assert_eq!(names.len(), 302);
    }
}
