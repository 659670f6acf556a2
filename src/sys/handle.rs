//! File handles: a name for an inode that outlives its path and is never reused.
//!
//! `name_to_handle_at` needs no privilege; `open_by_handle_at` needs `CAP_DAC_READ_SEARCH` in the
//! initial user namespace (and loses it on a thread that has switched its fsuid).

use super::check;
use smallvec::SmallVec;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Room for the largest handle (`MAX_HANDLE_SZ`).
const LARGEST: usize = 128;
/// `FILEID_INO32_GEN`: inode 32 bits, generation 32 bits (ext4, f2fs, XFS with `inode32`).
const KIND_INO32: i32 = 0x01;
/// XFS with 64-bit inode numbers: inode 64 bits, generation 32 bits.
const KIND_XFS64: i32 = 0x81;
/// btrfs: object id 64 bits, root id 64 bits, generation 32 bits.
const KIND_BTRFS: i32 = 0x4d;

/// A file handle as the kernel gives it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RawHandle {
    /// Its type, which says how to read the bytes.
    pub kind: i32,
    /// The bytes.
    pub bytes: SmallVec<[u8; 24]>,
}

/// How a filesystem writes its handles, so that one can be built again from its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandleFormat {
    /// Inode 32 bits, generation 32 bits.
    Ino32,
    /// Inode 64 bits, generation 32 bits.
    Xfs64,
    /// Object id 64 bits, root id 64 bits, generation 32 bits.
    Btrfs,
}

/// What a handle says of its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandleParts {
    /// How it is written.
    pub format: HandleFormat,
    /// Inode number.
    pub ino: u64,
    /// Generation of the inode.
    pub generation: u32,
    /// Id of the btrfs subvolume; 0 on other filesystems.
    pub root: u64,
}

/// `struct file_handle` with room for the largest handle.
#[repr(C, align(8))]
struct Buffer {
    length: u32,
    kind: i32,
    bytes: [u8; LARGEST],
}

impl RawHandle {
    /// The handle of `name` in `dir`, not following a symlink; of `dir` itself (also an `O_PATH`
    /// descriptor) when `name` is empty.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the filesystem has no handles, else as name_to_handle_at(2) says.
    pub fn of(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Self> {
        let mut buffer = Buffer {
            length: LARGEST as u32,
            kind: 0,
            bytes: [0; LARGEST],
        };
        let mut mount_id: libc::c_int = 0;
        // SAFETY: `buffer` has the layout of `struct file_handle` and `length` states its room;
        // `name` is terminated; all outlive the call.
        check(unsafe {
            libc::name_to_handle_at(
                dir.as_raw_fd(),
                name.as_ptr(),
                (&raw mut buffer).cast(),
                &raw mut mount_id,
                if name.is_empty() {
                    libc::AT_EMPTY_PATH
                } else {
                    0
                },
            )
        })?;
        let bytes = buffer
            .bytes
            .get(..buffer.length as usize)
            .ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self {
            kind: buffer.kind,
            bytes: SmallVec::from_slice(bytes),
        })
    }

    /// What the handle says, or `None` for a type that is not known here.
    #[must_use]
    pub fn parts(&self) -> Option<HandleParts> {
        use super::field::{u32, u64};
        let bytes = self.bytes.as_slice();
        let (format, ino, generation, root) = match (self.kind, bytes.len()) {
            (KIND_INO32, 8) => (
                HandleFormat::Ino32,
                u64::from(u32(bytes, 0)?),
                u32(bytes, 4)?,
                0,
            ),
            (KIND_XFS64, 12) => (HandleFormat::Xfs64, u64(bytes, 0)?, u32(bytes, 8)?, 0),
            (KIND_BTRFS, 20) => (
                HandleFormat::Btrfs,
                u64(bytes, 0)?,
                u32(bytes, 16)?,
                u64(bytes, 8)?,
            ),
            _ => return None,
        };
        Some(HandleParts {
            format,
            ino,
            generation,
            root,
        })
    }
}

impl HandleParts {
    /// The handle with these parts. An inode number that the format cannot hold is cut, and such
    /// a handle opens nothing.
    #[must_use]
    pub fn handle(&self) -> RawHandle {
        let mut bytes = SmallVec::new();
        let kind = match self.format {
            HandleFormat::Ino32 => {
                bytes.extend_from_slice(&(self.ino as u32).to_ne_bytes());
                KIND_INO32
            }
            HandleFormat::Xfs64 => {
                bytes.extend_from_slice(&self.ino.to_ne_bytes());
                KIND_XFS64
            }
            HandleFormat::Btrfs => {
                bytes.extend_from_slice(&self.ino.to_ne_bytes());
                bytes.extend_from_slice(&self.root.to_ne_bytes());
                KIND_BTRFS
            }
        };
        bytes.extend_from_slice(&self.generation.to_ne_bytes());
        RawHandle { kind, bytes }
    }
}

/// Opens the inode of `handle`; `mount` is any open descriptor (not `O_PATH`) on its filesystem.
///
/// # Errors
/// `ESTALE` when the inode is gone, `EPERM` without the privilege, else as open(2).
pub fn open(mount: BorrowedFd<'_>, handle: &RawHandle, flags: i32) -> io::Result<OwnedFd> {
    let mut buffer = Buffer {
        length: handle.bytes.len() as u32,
        kind: handle.kind,
        bytes: [0; LARGEST],
    };
    buffer
        .bytes
        .get_mut(..handle.bytes.len())
        .ok_or(io::ErrorKind::InvalidInput)?
        .copy_from_slice(&handle.bytes);
    // SAFETY: `buffer` has the layout of `struct file_handle`, filled for `length` bytes; a
    // descriptor that the call returns is new and owned by nobody else.
    unsafe {
        let fd: RawFd = check(libc::open_by_handle_at(
            mount.as_raw_fd(),
            (&raw mut buffer).cast(),
            flags | libc::O_CLOEXEC,
        ))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_built_again_from_its_parts() {
        for (format, kind, length) in [
            (HandleFormat::Ino32, KIND_INO32, 8),
            (HandleFormat::Xfs64, KIND_XFS64, 12),
            (HandleFormat::Btrfs, KIND_BTRFS, 20),
        ] {
            let parts = HandleParts {
                format,
                ino: 0x1234_5678,
                generation: 0x9abc_def0,
                root: if format == HandleFormat::Btrfs {
                    258
                } else {
                    0
                },
            };
            let handle = parts.handle();
            assert_eq!((handle.kind, handle.bytes.len()), (kind, length));
            assert_eq!(handle.parts(), Some(parts));
        }
    }

    #[test]
    fn an_unknown_handle_has_no_parts() {
        let handle = RawHandle {
            kind: KIND_XFS64,
            bytes: SmallVec::from_slice(&[0; 11]),
        };
        assert_eq!(handle.parts(), None);
    }
}
