//! Data of open files: reading, writing, copying, space, size, holes.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The most that one copy may move: the reply of a FUSE copy holds 32 bits, and the kernel itself
/// stops a read or write here.
pub const LARGEST_COPY: usize = 0x7fff_f000;

fn length(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn offset(value: u64) -> io::Result<i64> {
    i64::try_from(value).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

/// Reads at `at` until `buffer` is full or the file ends; the number of bytes read.
///
/// # Errors
/// As pread(2) says.
pub fn read_at(fd: BorrowedFd<'_>, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let from = offset(at.saturating_add(done as u64))?;
        // SAFETY: the buffer is as long as stated and outlives the call.
        let read =
            unsafe { libc::pread64(fd.as_raw_fd(), rest.as_mut_ptr().cast(), rest.len(), from) };
        match length(read) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // What was read is good; the error comes again with the next read.
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// How a write finds its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At this offset.
    At(u64),
    /// At the end of the file, wherever that is when the write happens.
    End,
}

/// Writes all of `data`; the number of bytes written, which is short only when an error stopped
/// it after the first byte.
///
/// # Errors
/// As pwrite(2) says.
pub fn write(fd: BorrowedFd<'_>, data: &[u8], place: Place) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
        let written = match place {
            Place::At(at) => {
                let to = offset(at.saturating_add(done as u64))?;
                // SAFETY: the data are as long as stated and outlive the call.
                unsafe { libc::pwrite64(fd.as_raw_fd(), rest.as_ptr().cast(), rest.len(), to) }
            }
            Place::End => {
                let part = libc::iovec {
                    iov_base: rest.as_ptr().cast_mut().cast(),
                    iov_len: rest.len(),
                };
                // SAFETY: one part, as long as stated, which the kernel only reads; it outlives
                // the call. The offset counts for nothing with RWF_APPEND.
                unsafe { libc::pwritev2(fd.as_raw_fd(), &raw const part, 1, 0, libc::RWF_APPEND) }
            }
        };
        match length(written) {
            Ok(0) => break,
            Ok(written) => done += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Copies up to `bytes` (at most [`LARGEST_COPY`]) in the kernel, as a clone where the filesystem
/// can; the number of bytes copied, which may be short.
///
/// # Errors
/// As copy_file_range(2) says.
pub fn copy(
    from: (BorrowedFd<'_>, u64),
    to: (BorrowedFd<'_>, u64),
    bytes: usize,
) -> io::Result<usize> {
    let (mut source, mut target) = (offset(from.1)?, offset(to.1)?);
    // SAFETY: both offsets outlive the call.
    length(unsafe {
        libc::copy_file_range(
            from.0.as_raw_fd(),
            &raw mut source,
            to.0.as_raw_fd(),
            &raw mut target,
            bytes.min(LARGEST_COPY),
            0,
        )
    })
}

/// Allocates, punches, zeroes, collapses, inserts or unshares, as `mode` says.
///
/// # Errors
/// As fallocate(2) says.
pub fn allocate(fd: BorrowedFd<'_>, mode: i32, at: u64, bytes: u64) -> io::Result<()> {
    loop {
        // SAFETY: no memory is passed.
        let result =
            check(unsafe { libc::fallocate64(fd.as_raw_fd(), mode, offset(at)?, offset(bytes)?) });
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(drop),
        }
    }
}

/// Sets the size.
///
/// # Errors
/// As ftruncate(2) says.
pub fn truncate(fd: BorrowedFd<'_>, size: u64) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::ftruncate64(fd.as_raw_fd(), offset(size)?) })?;
    Ok(())
}

/// Moves the file position, or finds data or a hole, as `whence` says; the resulting offset.
///
/// # Errors
/// As lseek(2) says; `ENXIO` past the last data.
pub fn seek(fd: BorrowedFd<'_>, to: i64, whence: i32) -> io::Result<u64> {
    // SAFETY: no memory is passed.
    let at = unsafe { libc::lseek64(fd.as_raw_fd(), to, whence) };
    u64::try_from(at).map_err(|_| io::Error::last_os_error())
}

/// Writes data, and unless `data_only` all attributes, to the device.
///
/// # Errors
/// As fsync(2) says.
pub fn sync(fd: BorrowedFd<'_>, data_only: bool) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe {
        if data_only {
            libc::fdatasync(fd.as_raw_fd())
        } else {
            libc::fsync(fd.as_raw_fd())
        }
    })?;
    Ok(())
}
