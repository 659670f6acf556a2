//! The raw system calls that the tests need, written apart from the program's own, so that a
//! fault there cannot hide itself here.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const BATCH: usize = 500;
const FIEMAP_FLAG_SYNC: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct FiemapHead {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

#[repr(C)]
struct Fiemap {
    head: FiemapHead,
    extents: [FiemapExtent; BATCH],
}

nix::ioctl_readwrite!(fs_ioc_fiemap, b'f', 11, FiemapHead);

#[repr(C)]
struct EofBlocks {
    version: u32,
    flags: u32,
    uid: u32,
    gid: u32,
    project: u32,
    pad: u32,
    min_file_size: u64,
    pad64: [u64; 12],
}

nix::ioctl_read!(xfs_ioc_free_eofblocks, b'X', 58, EofBlocks);
nix::ioctl_write_int_bad!(ficlone, 0x4004_9409);

/// One record of FIEMAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub logical: u64,
    pub physical: u64,
    pub length: u64,
    pub flags: u32,
}

/// Every FIEMAP record of a file; with `sync` its dirty data are written back first.
pub fn fiemap(file: &File, sync: bool) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    let mut start = 0;
    loop {
        let mut request = Box::new(Fiemap {
            head: FiemapHead {
                start,
                length: u64::MAX - start,
                flags: if sync { FIEMAP_FLAG_SYNC } else { 0 },
                mapped_extents: 0,
                extent_count: BATCH as u32,
                reserved: 0,
            },
            extents: [FiemapExtent::default(); BATCH],
        });
        // SAFETY: the descriptor is open, and the pointer is to a whole `Fiemap`, whose array has
        // room for the `extent_count` records that the kernel may write after the head.
        unsafe { fs_ioc_fiemap(file.as_raw_fd(), (&raw mut *request).cast::<FiemapHead>()) }?;
        let got = &request.extents[..request.head.mapped_extents as usize];
        records.extend(got.iter().map(|extent| Record {
            logical: extent.logical,
            physical: extent.physical,
            length: extent.length,
            flags: extent.flags,
        }));
        match got.last() {
            Some(last) if last.flags & 1 == 0 => start = last.logical + last.length,
            _ => return Ok(records),
        }
    }
}

/// Waits until XFS has given back the blocks of every removed file.
pub fn flush_removals(on: &File) -> io::Result<()> {
    let mut request = EofBlocks {
        version: 1,
        flags: 0x10,
        uid: 0,
        gid: 0,
        project: 0,
        pad: 0,
        min_file_size: 1 << 62,
        pad64: [0; 12],
    };
    // SAFETY: the descriptor is open and the pointer is to a whole `EofBlocks`.
    unsafe { xfs_ioc_free_eofblocks(on.as_raw_fd(), &raw mut request) }?;
    Ok(())
}

/// Makes `to` a clone of `from` (`FICLONE`).
pub fn clone_file(from: &File, to: &File) -> io::Result<()> {
    // SAFETY: both descriptors are open; the argument of FICLONE is a descriptor number.
    unsafe { ficlone(to.as_raw_fd(), from.as_raw_fd()) }?;
    Ok(())
}

const PEERS_PAGE: usize = 16_368;
nix::ioctl_readwrite!(sharelens_peers, 0xb7, 4, [u8; PEERS_PAGE]);

/// The paths of the files of a mount that share with this one, and how many more are hidden.
pub fn peers(file: &File) -> io::Result<(Vec<Vec<u8>>, u64)> {
    let mut paths: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut page = Box::new([0; PEERS_PAGE]);
        let after = paths.last().cloned().unwrap_or_default();
        page[..4].copy_from_slice(&(after.len() as u32).to_ne_bytes());
        page[4..4 + after.len()].copy_from_slice(&after);
        // SAFETY: the descriptor is open and the pointer is to as many bytes as the number says.
        unsafe { sharelens_peers(file.as_raw_fd(), &raw mut *page) }?;
        let word = |at: usize| u32::from_ne_bytes(page[at..at + 4].try_into().unwrap());
        let text = &page[16..16 + word(8) as usize];
        paths.extend(text.split_inclusive(|byte| *byte == 0).map(|path| {
            let (end, path) = path.split_last().unwrap();
            assert_eq!(*end, 0);
            path.to_vec()
        }));
        if word(12) != 0 {
            return Ok((paths, u64::from_ne_bytes(page[..8].try_into().unwrap())));
        }
    }
}

/// The value of an extended attribute; `ERANGE` is retried with a bigger buffer.
pub fn getxattr(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let name = CString::new(name)?;
    let mut buffer = vec![0u8; 256];
    loop {
        // SAFETY: both strings end with NUL and the buffer is as long as is said.
        let got = unsafe {
            libc::lgetxattr(
                path.as_ptr(),
                name.as_ptr(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
            )
        };
        if let Ok(length) = usize::try_from(got) {
            buffer.truncate(length);
            return Ok(buffer);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || buffer.len() > 1 << 20 {
            return Err(error);
        }
        buffer.resize(buffer.len() * 4, 0);
    }
}

/// getxattr(2) with a buffer of exactly `size` bytes (0 asks for the length).
pub fn getxattr_sized(path: &Path, name: &str, size: usize) -> io::Result<usize> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let name = CString::new(name)?;
    let mut buffer = vec![0u8; size];
    // SAFETY: both strings end with NUL and the buffer is as long as is said.
    let got = unsafe {
        libc::lgetxattr(
            path.as_ptr(),
            name.as_ptr(),
            buffer.as_mut_ptr().cast(),
            size,
        )
    };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Sets an extended attribute.
pub fn setxattr(path: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let name = CString::new(name)?;
    // SAFETY: both strings end with NUL and the value is as long as is said.
    let done = unsafe {
        libc::lsetxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Removes an extended attribute.
pub fn removexattr(path: &Path, name: &str) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let name = CString::new(name)?;
    // SAFETY: both strings end with NUL.
    if unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The names of the extended attributes, sorted.
pub fn listxattr(path: &Path) -> io::Result<Vec<String>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut buffer = vec![0u8; 65536];
    // SAFETY: the path ends with NUL and the buffer is as long as is said.
    let got = unsafe { libc::llistxattr(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
    let length = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    let mut names: Vec<String> = buffer[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    names.sort();
    Ok(names)
}

/// Copies up to `length` bytes with copy_file_range(2), which clones where it can; how many.
pub fn copy_range(
    from: &File,
    from_offset: u64,
    to: &File,
    to_offset: u64,
    length: usize,
) -> io::Result<usize> {
    let mut from_offset = i64::try_from(from_offset).map_err(io::Error::other)?;
    let mut to_offset = i64::try_from(to_offset).map_err(io::Error::other)?;
    let (from, to): (RawFd, RawFd) = (from.as_raw_fd(), to.as_raw_fd());
    // SAFETY: both descriptors are open and both offsets live through the call.
    let copied = unsafe {
        libc::copy_file_range(
            from,
            &raw mut from_offset,
            to,
            &raw mut to_offset,
            length,
            0,
        )
    };
    usize::try_from(copied).map_err(|_| io::Error::last_os_error())
}

/// Reads from the start of an open file; how much there was.
pub fn read_at(file: &File, room: &mut [u8]) -> usize {
    std::os::unix::fs::FileExt::read_at(file, room, 0).unwrap()
}
