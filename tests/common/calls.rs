//! More of the system calls that the tests of ordinary behaviour need; users and processes, locks
//! and directory streams are in files of their own, and found here too.

pub use super::actors::{Child, User, code, in_child, with_umask};
pub use super::directory::{Directory, Entry};
pub use super::locking::{Owner, blocking_lock, flock, record_lock};

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::resume_unwind;
use std::path::Path;
use std::ptr;

/// A path as the kernel takes it.
pub fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

pub(super) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

pub(super) fn check_long(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// The errno of a result that must be an error.
#[track_caller]
pub fn errno<T>(result: io::Result<T>) -> i32 {
    match result {
        Ok(_) => panic!("succeeded, but had to fail"),
        Err(error) => error.raw_os_error().unwrap(),
    }
}

/// What happened, without the value: equal for two filesystems that behave alike.
pub fn outcome<T>(result: io::Result<T>) -> Result<(), i32> {
    result
        .map(drop)
        .map_err(|error| error.raw_os_error().unwrap())
}

/// A shared, writable mapping of the first `length` bytes of a file.
#[derive(Debug)]
pub struct Mapping {
    address: ptr::NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is memory like any other; the tests order their accesses themselves.
unsafe impl Send for Mapping {}

impl Mapping {
    pub fn new(file: &File, length: usize) -> io::Result<Self> {
        Self::with(file, length, libc::PROT_READ | libc::PROT_WRITE)
    }

    pub fn read_only(file: &File, length: usize) -> io::Result<Self> {
        Self::with(file, length, libc::PROT_READ)
    }

    fn with(file: &File, length: usize, protection: i32) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            address: ptr::NonNull::new(address.cast()).unwrap(),
            length,
        })
    }

    pub fn store(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.length);
        // SAFETY: the range lies inside the mapping.
        unsafe {
            ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.address.as_ptr().add(offset),
                bytes.len(),
            );
        }
    }

    pub fn load(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.length);
        let mut bytes = vec![0; length];
        // SAFETY: the range lies inside the mapping.
        unsafe {
            ptr::copy_nonoverlapping(
                self.address.as_ptr().add(offset),
                bytes.as_mut_ptr(),
                length,
            );
        }
        bytes
    }

    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is this mapping.
        check(unsafe { libc::msync(self.address.as_ptr().cast(), self.length, libc::MS_SYNC) })
            .map(drop)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and not used again.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.length) };
    }
}

/// lseek(2) with `SEEK_DATA` or `SEEK_HOLE`.
pub fn seek(file: &File, offset: i64, whence: libc::c_int) -> io::Result<i64> {
    // SAFETY: no pointer.
    let at = unsafe { libc::lseek(file.as_raw_fd(), offset, whence) };
    if at < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(at)
    }
}

/// fallocate(2).
pub fn fallocate(file: &File, mode: libc::c_int, offset: i64, length: i64) -> io::Result<()> {
    // SAFETY: no pointer.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) }).map(drop)
}

/// linkat(2) of what an open descriptor is of, through /proc.
pub fn link_descriptor(file: &File, to: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = c_path(to);
    // SAFETY: both paths end with NUL.
    check(unsafe {
        libc::linkat(
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            libc::AT_SYMLINK_FOLLOW,
        )
    })
    .map(drop)
}

/// renameat2(2).
pub fn rename2(from: &Path, to: &Path, flags: libc::c_uint) -> io::Result<()> {
    let (from, to) = (c_path(from), c_path(to));
    // SAFETY: both paths end with NUL.
    check(unsafe {
        libc::renameat2(
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            flags,
        )
    })
    .map(drop)
}

/// mknod(2).
pub fn mknod(path: &Path, mode: libc::mode_t, device: libc::dev_t) -> io::Result<()> {
    let path = c_path(path);
    // SAFETY: the path ends with NUL.
    check(unsafe { libc::mknod(path.as_ptr(), mode, device) }).map(drop)
}

/// chmod(2).
pub fn chmod(path: &Path, mode: libc::mode_t) -> io::Result<()> {
    let path = c_path(path);
    // SAFETY: the path ends with NUL.
    check(unsafe { libc::chmod(path.as_ptr(), mode) }).map(drop)
}

/// lchown(2); `None` leaves one alone.
pub fn chown(path: &Path, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    std::os::unix::fs::lchown(path, uid, gid)
}

/// A point in time: seconds and nanoseconds, or one of the two special ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    At(i64, i64),
    Now,
    Omit,
}

impl Time {
    fn spec(self) -> libc::timespec {
        let (tv_sec, tv_nsec) = match self {
            Self::At(seconds, nanoseconds) => (seconds, nanoseconds),
            Self::Now => (0, libc::UTIME_NOW),
            Self::Omit => (0, libc::UTIME_OMIT),
        };
        libc::timespec { tv_sec, tv_nsec }
    }
}

/// utimensat(2) on the link itself.
pub fn set_times(path: &Path, accessed: Time, modified: Time) -> io::Result<()> {
    let path = c_path(path);
    let times = [accessed.spec(), modified.spec()];
    // SAFETY: the path ends with NUL and there are two times.
    check(unsafe {
        libc::utimensat(
            libc::AT_FDCWD,
            path.as_ptr(),
            times.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
        )
    })
    .map(drop)
}

/// futimens(2).
pub fn set_file_times(file: &File, accessed: Time, modified: Time) -> io::Result<()> {
    let times = [accessed.spec(), modified.spec()];
    // SAFETY: there are two times.
    check(unsafe { libc::futimens(file.as_raw_fd(), times.as_ptr()) }).map(drop)
}

/// access(2) with the effective identity.
pub fn may(path: &Path, mode: libc::c_int) -> bool {
    let path = c_path(path);
    // SAFETY: the path ends with NUL.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), mode, libc::AT_EACCESS) == 0 }
}

/// open(2) with flags of the caller's choice, mode 0644.
pub fn open(path: &Path, flags: libc::c_int) -> io::Result<File> {
    open_mode(path, flags, 0o644)
}

/// open(2).
pub fn open_mode(path: &Path, flags: libc::c_int, mode: libc::c_uint) -> io::Result<File> {
    let path = c_path(path);
    // SAFETY: the path ends with NUL; a descriptor that comes back is ours alone.
    unsafe {
        let descriptor = check(libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, mode))?;
        Ok(File::from_raw_fd(descriptor))
    }
}

/// open(2) with `O_PATH`.
pub fn open_path(path: &Path) -> io::Result<OwnedFd> {
    std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_NOFOLLOW)
        .open(path)
        .map(OwnedFd::from)
}

/// openat(2) relative to an open directory, mode 0644.
pub fn open_at(dir: &impl AsRawFd, name: impl AsRef<Path>, flags: i32) -> io::Result<File> {
    let name = c_path(name.as_ref());
    // SAFETY: the name ends with NUL; a descriptor that comes back is ours alone.
    unsafe {
        let descriptor = check(libc::openat(
            dir.as_raw_fd(),
            name.as_ptr(),
            flags | libc::O_CLOEXEC,
            0o644,
        ))?;
        Ok(File::from_raw_fd(descriptor))
    }
}

/// openat2(2) that follows no link and stays below `dir`.
pub fn open_beneath(dir: &impl AsRawFd, name: impl AsRef<Path>) -> io::Result<File> {
    let name = c_path(name.as_ref());
    // SAFETY: `open_how` is plain numbers, for which zero is valid.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_XDEV;
    // SAFETY: the name ends with NUL and `how` is as long as is said; the descriptor is ours.
    unsafe {
        let descriptor = check_long(libc::syscall(
            libc::SYS_openat2,
            dir.as_raw_fd(),
            name.as_ptr(),
            &raw mut how,
            size_of::<libc::open_how>(),
        ))?;
        Ok(File::from_raw_fd(i32::try_from(descriptor).unwrap()))
    }
}

/// mkdirat(2).
pub fn mkdir_at(dir: &impl AsRawFd, name: impl AsRef<Path>) -> io::Result<()> {
    let name = c_path(name.as_ref());
    // SAFETY: the name ends with NUL.
    check(unsafe { libc::mkdirat(dir.as_raw_fd(), name.as_ptr(), 0o755) }).map(drop)
}

/// An extended attribute by descriptor.
pub fn fgetxattr(file: &File, name: &str) -> io::Result<Vec<u8>> {
    let name = CString::new(name)?;
    let mut buffer = vec![0u8; 65536];
    // SAFETY: the name ends with NUL and the buffer is as long as is said.
    let got = unsafe {
        libc::fgetxattr(
            file.as_raw_fd(),
            name.as_ptr(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
        )
    };
    let length = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    buffer.truncate(length);
    Ok(buffer)
}

/// Sets an extended attribute by descriptor.
pub fn fsetxattr(file: &File, name: &str, value: &[u8]) -> io::Result<()> {
    let name = CString::new(name)?;
    // SAFETY: the name ends with NUL and the value is as long as is said.
    check(unsafe {
        libc::fsetxattr(
            file.as_raw_fd(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    })
    .map(drop)
}

/// Lets the kernel forget every entry and inode that nobody uses.
pub fn drop_caches() {
    std::fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

/// Shuts an XFS down at once, as on a lost device (`XFS_IOC_GOINGDOWN`, without the log).
pub fn shut_down_xfs(on: &File) -> io::Result<()> {
    nix::ioctl_read!(going_down, b'X', 125, u32);
    let mut flags: u32 = 2;
    // SAFETY: the pointer is to a u32, which the call reads.
    unsafe { going_down(on.as_raw_fd(), &raw mut flags) }?;
    Ok(())
}

/// The inode flags (`FS_IOC_GETFLAGS`), as lsattr reads them.
pub fn inode_flags(file: &File) -> io::Result<libc::c_long> {
    nix::ioctl_read!(get_flags, b'f', 1, libc::c_long);
    let mut flags: libc::c_long = 0;
    // SAFETY: the pointer is to room for a long; the kernel writes at most that.
    unsafe { get_flags(file.as_raw_fd(), &raw mut flags) }?;
    Ok(flags & 0xffff_ffff)
}

/// The numbers of statfs(2) that a user sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub block: i64,
    pub blocks: u64,
    pub free: u64,
    pub available: u64,
    pub files: u64,
    pub name_length: i64,
}

/// statfs(2).
pub fn space(path: &Path) -> io::Result<Space> {
    let path = c_path(path);
    let mut buffer = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the path ends with NUL and the buffer is a whole statfs.
    let buffer = unsafe {
        check(libc::statfs(path.as_ptr(), buffer.as_mut_ptr()))?;
        buffer.assume_init()
    };
    Ok(Space {
        block: buffer.f_bsize,
        blocks: buffer.f_blocks,
        free: buffer.f_bfree,
        available: buffer.f_bavail,
        files: buffer.f_files,
        name_length: buffer.f_namelen,
    })
}

/// The entries of a path's directory as names of bytes, sorted.
pub fn names(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut names: Vec<Vec<u8>> = std::fs::read_dir(path)?
        .map(|entry| entry.map(|entry| entry.file_name().into_vec()))
        .collect::<io::Result<_>>()?;
    names.sort();
    Ok(names)
}
