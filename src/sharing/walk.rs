//! The other door to the disk: directories, as a scan reads them.
//!
//! The real one is [`crate::fs::walk`]. Nothing here follows a symbolic link or leaves the
//! filesystem of the directory, except into a subvolume of it.

use super::backing::{Backing, Stamp};
use super::key::{DeviceIndex, FileKey};
use crate::extent::Physical;
use std::ffi::CString;
use std::io;

/// What a directory entry says it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else.
    Other,
    /// The filesystem does not say.
    Unknown,
}

/// A directory entry. `.` and `..` are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Its name.
    pub text: CString,
    /// What it stands for.
    pub kind: Kind,
    /// Inode number.
    pub ino: u64,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A regular file.
    File {
        /// Which.
        key: FileKey,
        /// Its stamp.
        stamp: Stamp,
    },
    /// A directory.
    Directory(FileKey),
    /// Anything else.
    Other,
    /// Something of another filesystem, which is mounted there.
    Elsewhere,
}

/// A regular file, opened by its name.
#[derive(Debug)]
pub struct Opened<F> {
    /// Which.
    pub key: FileKey,
    /// Open for mapping.
    pub file: F,
    /// Its stamp, taken after it was opened.
    pub stamp: Stamp,
}

/// Directories of the backing filesystem. Every method may block.
pub trait Walk: Backing {
    /// A directory open for reading.
    type Directory: Send;

    /// Opens a directory.
    ///
    /// # Errors
    /// `ESTALE` when it is gone, else as open(2).
    fn open_directory(&self, directory: FileKey) -> io::Result<Self::Directory>;

    /// Appends up to `most` further entries. `false` when there are no more.
    ///
    /// # Errors
    /// As getdents64(2).
    fn read_directory(
        &self,
        directory: &mut Self::Directory,
        most: usize,
        names: &mut Vec<Name>,
    ) -> io::Result<bool>;

    /// What a name stands for now.
    ///
    /// # Errors
    /// `ENOENT` when it is gone, else as statx(2).
    fn identify(&self, directory: &Self::Directory, name: &Name) -> io::Result<Identity>;

    /// Opens a regular file for mapping; `None` when the name stands for something else now, or
    /// for something of another filesystem.
    ///
    /// # Errors
    /// `ENOENT` when it is gone, else as open(2).
    fn open_named(
        &self,
        directory: &Self::Directory,
        name: &Name,
    ) -> io::Result<Option<Opened<Self::File>>>;

    /// The part of the disk that holds the directory and most of what is in it: on XFS its
    /// allocation group. Threads in one part wait for each other.
    fn group(&self, directory: FileKey) -> u32;

    /// The part of the disk at a physical address of a device, where threads that map what lies
    /// in one part wait for each other at each file; `None` where they do not.
    fn group_at(&self, device: DeviceIndex, address: Physical) -> Option<u32>;
}
