//! Names in directories and the attributes of what they name.
//!
//! A name is one component: callers refuse `/`, `.` and `..` before. Opening goes through
//! openat2(2) and never leaves the directory that it starts in.

use super::check;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A point in time: seconds since the epoch (negative before it) and nanoseconds upwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds, below one thousand million.
    pub nanoseconds: u32,
}

/// What to set a time to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// Leave it (`UTIME_OMIT`).
    Omit,
    /// The time of the call (`UTIME_NOW`).
    Now,
    /// This.
    To(Time),
}

/// What statx(2) says of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// `st_dev`, as `makedev` joins it.
    pub device: u64,
    /// Inode number.
    pub ino: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Number of names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major and minor number of a device node.
    pub rdev: (u32, u32),
    /// Size in bytes.
    pub size: u64,
    /// Allocated, in units of 512 bytes.
    pub blocks: u64,
    /// Preferred size of I/O.
    pub block_size: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of the data.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Creation, zero where the filesystem does not know.
    pub btime: Time,
    /// Something is mounted here, and this is the root of it.
    pub mount_root: bool,
}

impl Status {
    /// The file type bits of the mode.
    #[must_use]
    pub fn kind(&self) -> u32 {
        self.mode & libc::S_IFMT
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.kind() == libc::S_IFREG
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.kind() == libc::S_IFDIR
    }
}

/// Attributes of `name` in `dir`, not following a symlink; of `dir` itself when `name` is empty.
///
/// # Errors
/// As statx(2) says.
pub fn status(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Status> {
    let mut buffer = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the buffer has the size of the structure and was zeroed, so that it is initialised
    // whatever the kernel writes; `name` is terminated; both outlive the call.
    let stat = unsafe {
        check(libc::statx(
            dir.as_raw_fd(),
            name.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW
                | libc::AT_NO_AUTOMOUNT
                | if name.is_empty() {
                    libc::AT_EMPTY_PATH
                } else {
                    0
                },
            libc::STATX_BASIC_STATS | libc::STATX_BTIME,
            buffer.as_mut_ptr(),
        ))?;
        buffer.assume_init()
    };
    let time = |time: libc::statx_timestamp| Time {
        seconds: time.tv_sec,
        nanoseconds: time.tv_nsec,
    };
    Ok(Status {
        device: libc::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        ino: stat.stx_ino,
        mode: u32::from(stat.stx_mode),
        links: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        block_size: stat.stx_blksize,
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
        btime: time(stat.stx_btime),
        mount_root: stat.stx_attributes & libc::STATX_ATTR_MOUNT_ROOT as u64 != 0,
    })
}

/// Opens `name` in `dir` without following symlinks and without leaving `dir`. With `O_PATH` and
/// `O_NOFOLLOW` in `flags` a symlink itself is opened. `mode` counts only with `O_CREAT`.
///
/// # Errors
/// As openat2(2) says.
pub fn open_beneath(
    dir: BorrowedFd<'_>,
    name: &CStr,
    flags: i32,
    mode: u32,
) -> io::Result<OwnedFd> {
    // SAFETY: all fields are integers; zero is what fields unknown here must be.
    let mut how: libc::open_how = unsafe { MaybeUninit::zeroed().assume_init() };
    how.flags = u64::from((flags | libc::O_CLOEXEC) as u32);
    how.mode = if flags & libc::O_CREAT != 0 {
        u64::from(mode & 0o7777)
    } else {
        0
    };
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS | libc::RESOLVE_NO_SYMLINKS;
    // SAFETY: `how` and `name` outlive the call and the size is that of `how`; a descriptor that
    // the call returns is new and owned by nobody else.
    unsafe {
        let fd = libc::syscall(
            libc::SYS_openat2,
            dir.as_raw_fd(),
            name.as_ptr(),
            &raw mut how,
            size_of::<libc::open_how>(),
        );
        let fd = check(fd as libc::c_int)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// The path of an open descriptor under /proc: for calls that take no `O_PATH` descriptor.
#[derive(Debug)]
pub struct FdPath {
    text: [u8; 32],
}

impl FdPath {
    /// The path of `fd`, good for as long as `fd` is open.
    #[must_use]
    pub fn new(fd: BorrowedFd<'_>) -> Self {
        use std::io::Write;
        let mut text = [0; 32];
        // "/proc/self/fd/" and ten digits always fit, with a terminator to spare.
        let _ = write!(text.as_mut_slice(), "/proc/self/fd/{}", fd.as_raw_fd());
        Self { text }
    }

    /// As the kernel wants it.
    #[must_use]
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.text).unwrap_or(c"/proc/self/fd/-1")
    }
}

/// Opens the file of `fd` (which may be an `O_PATH` descriptor) again with other flags.
///
/// # Errors
/// As open(2) says; `ELOOP` for a symlink.
pub fn reopen(fd: BorrowedFd<'_>, flags: i32) -> io::Result<OwnedFd> {
    let path = FdPath::new(fd);
    // SAFETY: the path is terminated and outlives the call; a descriptor that it returns is new
    // and owned by nobody else.
    unsafe {
        let fd = check(libc::open(
            path.as_c_str().as_ptr(),
            flags | libc::O_CLOEXEC,
        ))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Makes a directory.
///
/// # Errors
/// As mkdirat(2) says.
pub fn mkdir(dir: BorrowedFd<'_>, name: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: `name` is terminated and outlives the call.
    check(unsafe { libc::mkdirat(dir.as_raw_fd(), name.as_ptr(), mode) })?;
    Ok(())
}

/// Makes a regular file, FIFO, socket or device node.
///
/// # Errors
/// As mknodat(2) says.
pub fn mknod(dir: BorrowedFd<'_>, name: &CStr, mode: u32, rdev: (u32, u32)) -> io::Result<()> {
    let device = libc::makedev(rdev.0, rdev.1);
    // SAFETY: `name` is terminated and outlives the call.
    check(unsafe { libc::mknodat(dir.as_raw_fd(), name.as_ptr(), mode, device) })?;
    Ok(())
}

/// Makes a symlink.
///
/// # Errors
/// As symlinkat(2) says.
pub fn symlink(target: &CStr, dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: both strings are terminated and outlive the call.
    check(unsafe { libc::symlinkat(target.as_ptr(), dir.as_raw_fd(), name.as_ptr()) })?;
    Ok(())
}

/// Reads the symlink that `fd`, an `O_PATH` descriptor, stands for into `buffer`; its length.
///
/// # Errors
/// As readlinkat(2) says.
pub fn readlink(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is as long as stated and outlives the call.
    let length = unsafe {
        libc::readlinkat(
            fd.as_raw_fd(),
            c"".as_ptr(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
        )
    };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}

/// Removes a name, of a directory when `directory` is set.
///
/// # Errors
/// As unlinkat(2) says.
pub fn unlink(dir: BorrowedFd<'_>, name: &CStr, directory: bool) -> io::Result<()> {
    let flags = if directory { libc::AT_REMOVEDIR } else { 0 };
    // SAFETY: `name` is terminated and outlives the call.
    check(unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), flags) })?;
    Ok(())
}

/// Renames, with the flags of renameat2(2).
///
/// # Errors
/// As renameat2(2) says.
pub fn rename(
    from: (BorrowedFd<'_>, &CStr),
    to: (BorrowedFd<'_>, &CStr),
    flags: u32,
) -> io::Result<()> {
    // SAFETY: both names are terminated and outlive the call.
    check(unsafe {
        libc::renameat2(
            from.0.as_raw_fd(),
            from.1.as_ptr(),
            to.0.as_raw_fd(),
            to.1.as_ptr(),
            flags,
        )
    })?;
    Ok(())
}

/// Gives the inode of `fd` (which may be an `O_PATH` descriptor) another name.
///
/// # Errors
/// As linkat(2) says.
pub fn link(fd: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: the names are terminated and outlive the call.
    let direct = check(unsafe {
        libc::linkat(
            fd.as_raw_fd(),
            c"".as_ptr(),
            dir.as_raw_fd(),
            name.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    });
    match direct {
        // Without the privilege, the way through /proc is open to everybody. For an inode
        // without names both say ENOENT.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
            let path = FdPath::new(fd);
            // SAFETY: as above.
            check(unsafe {
                libc::linkat(
                    libc::AT_FDCWD,
                    path.as_c_str().as_ptr(),
                    dir.as_raw_fd(),
                    name.as_ptr(),
                    libc::AT_SYMLINK_FOLLOW,
                )
            })?;
            Ok(())
        }
        other => other.map(drop),
    }
}

/// Sets the permissions of the inode of `fd`, which may be an `O_PATH` descriptor.
///
/// # Errors
/// As fchmodat2(2) says; `EOPNOTSUPP` for a symlink.
pub fn chmod(fd: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    // SAFETY: no memory is passed. An `O_PATH` descriptor does not serve for this.
    match check(unsafe { libc::fchmod(fd.as_raw_fd(), mode & 0o7777) }) {
        Err(error) if error.raw_os_error() == Some(libc::EBADF) => {}
        done => return done.map(drop),
    }
    let path = FdPath::new(fd);
    // SAFETY: the path is terminated and outlives the call.
    check(unsafe { libc::chmod(path.as_c_str().as_ptr(), mode & 0o7777) })?;
    Ok(())
}

/// Sets owner and group of the inode of `fd` (which may be an `O_PATH` descriptor, also of a
/// symlink); `None` leaves one as it is.
///
/// # Errors
/// As fchownat(2) says.
pub fn chown(fd: BorrowedFd<'_>, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    // SAFETY: the empty name is terminated and outlives the call.
    check(unsafe {
        libc::fchownat(
            fd.as_raw_fd(),
            c"".as_ptr(),
            uid.unwrap_or(u32::MAX),
            gid.unwrap_or(u32::MAX),
            libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW,
        )
    })?;
    Ok(())
}

/// Sets access and modification time of the inode of `fd`, which may be an `O_PATH` descriptor,
/// also of a symlink.
///
/// # Errors
/// As utimensat(2) says.
pub fn set_times(fd: BorrowedFd<'_>, atime: SetTime, mtime: SetTime) -> io::Result<()> {
    let spec = |time: SetTime| match time {
        SetTime::Omit => libc::timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_OMIT,
        },
        SetTime::Now => libc::timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_NOW,
        },
        SetTime::To(time) => libc::timespec {
            tv_sec: time.seconds,
            tv_nsec: i64::from(time.nanoseconds),
        },
    };
    let times = [spec(atime), spec(mtime)];
    // SAFETY: two times and the empty name outlive the call.
    check(unsafe {
        libc::utimensat(
            fd.as_raw_fd(),
            c"".as_ptr(),
            times.as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW,
        )
    })?;
    Ok(())
}
