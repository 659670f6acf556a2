//! The plain types of an operation.

use super::error::{Error, Result};
use crate::sharing::FileKey;
use crate::sys::at::{SetTime, Status};
use smallvec::SmallVec;
use std::ffi::CStr;
use std::time::Duration;

/// The number by which the kernel knows an inode; also the `st_ino` that programs see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root of the mount.
    pub const ROOT: Self = Self(1);
}

/// An open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandleId(pub u64);

impl HandleId {
    /// No handle: of a directory that the kernel opened by itself.
    pub const NONE: Self = Self(0);
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Filesystem uid.
    pub uid: u32,
    /// Filesystem gid.
    pub gid: u32,
    /// Process (thread) id as this process sees it; 0 when it cannot.
    pub pid: u32,
}

impl Caller {
    /// Whether the caller has the rights of root. The kernel does not pass capabilities on; who
    /// has uid 0 is taken to have them.
    #[must_use]
    pub const fn is_root(&self) -> bool {
        self.uid == 0
    }
}

/// A name in a directory: one component, terminated, never `.` or `..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(SmallVec<[u8; 64]>);

impl Name {
    /// Checks a name as the kernel passes it.
    ///
    /// # Errors
    /// `EINVAL` for a name that is none; `EPERM` for one that would lead elsewhere.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() || bytes.contains(&0) {
            return Err(Error::new(libc::EINVAL, "check a name"));
        }
        if bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
            return Err(Error::new(libc::EPERM, "check a name"));
        }
        let mut name = SmallVec::with_capacity(bytes.len() + 1);
        name.extend_from_slice(bytes);
        name.push(0);
        Ok(Self(name))
    }

    /// As system calls want it.
    #[must_use]
    pub fn as_c_str(&self) -> &CStr {
        // There is exactly one zero byte, at the end.
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

/// Attributes with the time for which the kernel may believe them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// What `st_ino` shows.
    pub node: NodeId,
    /// The rest, as the backing filesystem says; its `ino` is the backing one.
    pub status: Status,
    /// How long it holds.
    pub ttl: Duration,
}

/// The result of a look-up. The kernel holds a reference to the node for each that it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its attributes.
    pub attr: Attr,
    /// Tells inodes apart that had the same number one after another.
    pub generation: u64,
    /// How long the name holds.
    pub ttl: Duration,
}

/// What setattr is to change.
#[derive(Clone, Copy, Debug)]
pub struct SetAttr {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Time of last access.
    pub atime: SetTime,
    /// Time of last modification.
    pub mtime: SetTime,
}

/// How reads and writes of an open file travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// The kernel goes to the backing file itself.
    Passthrough,
    /// Through the page cache of FUSE and the daemon.
    Cached {
        /// What the page cache holds is still right.
        keep: bool,
    },
}

/// An opened file.
#[derive(Debug)]
pub struct Opened {
    /// Its handle.
    pub handle: HandleId,
    /// Its node.
    pub node: NodeId,
    /// Its identity.
    pub key: FileKey,
    /// How its I/O travels.
    pub io: IoMode,
    /// The attributes that the kernel has cached may silently become wrong from here on, and must
    /// be dropped before the open returns to its caller.
    pub drop_attributes: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for bad in [&b"."[..], b"..", b"a/b", b"/", b"../a"] {
            assert_eq!(Name::new(bad).unwrap_err().errno(), libc::EPERM);
        }
        for none in [&b""[..], b"a\0b"] {
            assert_eq!(Name::new(none).unwrap_err().errno(), libc::EINVAL);
        }
        let longest = vec![0xff; 255];
        assert_eq!(Name::new(&longest).unwrap().as_c_str().to_bytes(), longest);
    }
}
