//! The system calls that only this test makes, each wrapped once: it owns every `unsafe` of the
//! test beside those of the common fixtures.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// A file handle: finds an inode again after its names are gone.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Handle {
    bytes: u32,
    kind: i32,
    body: [u8; 128],
}

/// The handle of the file at `path`, without opening it.
pub fn handle_of(path: &Path) -> io::Result<Handle> {
    let path = c_path(path);
    let mut handle = Handle {
        bytes: 128,
        kind: 0,
        body: [0; 128],
    };
    let mut mount = 0;
    // SAFETY: the handle says how much room its body has; the path ends with a zero.
    check(unsafe {
        libc::name_to_handle_at(
            libc::AT_FDCWD,
            path.as_ptr(),
            (&raw mut handle).cast(),
            &raw mut mount,
            0,
        )
    })?;
    Ok(handle)
}

/// Opens an inode by its handle, for reading. `root` is any descriptor on its filesystem.
pub fn open_handle(root: &File, handle: &Handle) -> io::Result<File> {
    let mut handle = *handle;
    // SAFETY: the handle came from name_to_handle_at.
    let fd = check(unsafe {
        libc::open_by_handle_at(
            root.as_raw_fd(),
            (&raw mut handle).cast(),
            libc::O_RDONLY | libc::O_CLOEXEC,
        )
    })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Where an attribute is asked for.
pub enum Of<'a> {
    Path(&'a Path),
    File(&'a File),
}

/// The value of an extended attribute.
pub fn get_xattr(of: &Of<'_>, name: &str) -> io::Result<Vec<u8>> {
    let name = CString::new(name)?;
    let mut value = vec![0_u8; 65536];
    let (room, into) = (value.len(), value.as_mut_ptr().cast());
    let got = match of {
        Of::Path(path) => {
            let path = c_path(path);
            // SAFETY: both strings end with a zero; the buffer has `room` bytes.
            unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), into, room) }
        }
        // SAFETY: as above.
        Of::File(file) => unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), into, room) },
    };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    value.truncate(got);
    Ok(value)
}

/// Starts writeback of the file without waiting for it, as the kernel's flusher does.
pub fn start_writeback(file: &File) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) })?;
    Ok(())
}

/// Copies inside the kernel and moves both offsets on; returns how much was copied.
pub fn copy_file_range(
    from: &File,
    from_at: &mut i64,
    to: &File,
    to_at: &mut i64,
    length: usize,
) -> io::Result<usize> {
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    // SAFETY: both offsets are valid for the call.
    let copied = unsafe { libc::copy_file_range(from, from_at, to, to_at, length, 0) };
    usize::try_from(copied).map_err(|_| io::Error::last_os_error())
}

/// Shares the beginning of `from` with `to` where their data are equal.
pub fn dedupe(from: &File, to: &File) -> io::Result<()> {
    #[repr(C)]
    struct Request {
        from_at: u64,
        length: u64,
        count: u16,
        reserved: [u16; 3],
        to: i64,
        to_at: u64,
        deduped: u64,
        status: i32,
        reserved2: u32,
    }
    const FIDEDUPERANGE: libc::c_ulong = 0xC018_9436;
    let mut request = Request {
        from_at: 0,
        length: from.metadata()?.len().min(to.metadata()?.len()) / 4096 * 4096,
        count: 1,
        reserved: [0; 3],
        to: to.as_raw_fd().into(),
        to_at: 0,
        deduped: 0,
        status: 0,
        reserved2: 0,
    };
    // SAFETY: the request is a file_dedupe_range with one target.
    check(unsafe { libc::ioctl(from.as_raw_fd(), FIDEDUPERANGE, &raw mut request) })?;
    Ok(())
}

/// A shared, writable mapping of a file. The descriptor it was made from may be closed.
pub struct Mapping {
    address: *mut libc::c_void,
    length: usize,
    pattern: OwnedFd,
}

// SAFETY: the address is touched only by system calls that fault safely.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the first `length` bytes of the file.
    pub fn new(file: &File, length: usize, pattern: BorrowedFd<'_>) -> io::Result<Self> {
        let pattern = pattern.try_clone_to_owned()?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            address,
            length,
            pattern,
        })
    }

    /// Stores bytes of the pattern into the mapping. A store past the end of file gives EFAULT
    /// instead of the signal that a store by the program itself would raise: the kernel stores
    /// for us, through the same page tables.
    pub fn store(&self, at: usize, length: usize, from: usize) -> io::Result<()> {
        if at >= self.length {
            return Ok(());
        }
        let length = length.min(self.length - at);
        // SAFETY: `at + length` lies inside the mapping, and the kernel handles faults.
        let stored = unsafe {
            libc::pread(
                self.pattern.as_raw_fd(),
                self.address.byte_add(at),
                length,
                from as libc::off_t,
            )
        };
        check(stored as libc::c_int)?;
        Ok(())
    }

    /// Hands what was stored to the file and waits for it.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: exactly the range of the mapping.
        check(unsafe { libc::msync(self.address, self.length, libc::MS_SYNC) })?;
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range of the mapping, which nobody uses any more.
        unsafe { libc::munmap(self.address, self.length) };
    }
}

/// A file in memory that holds `bytes`.
pub fn memory_file(bytes: &[u8]) -> io::Result<File> {
    // SAFETY: the name ends with a zero.
    let fd = check(unsafe { libc::memfd_create(c"pattern".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: the descriptor is new and nobody else's.
    let mut file = unsafe { File::from_raw_fd(fd) };
    io::Write::write_all(&mut file, bytes)?;
    Ok(file)
}

/// Memory aligned for O_DIRECT.
pub struct Aligned {
    memory: Vec<u8>,
    skip: usize,
}

impl Aligned {
    const ALIGN: usize = 4096;

    pub fn new(length: usize) -> Self {
        let memory = vec![0; length + Self::ALIGN];
        let skip = memory.as_ptr().align_offset(Self::ALIGN);
        Self { memory, skip }
    }

    pub fn bytes(&mut self, length: usize) -> &mut [u8] {
        &mut self.memory[self.skip..self.skip + length]
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
