//! The one door to the disk: what the engine needs to know of a filesystem.
//!
//! The real one is [`crate::fs::backing`]; tests put a simulated filesystem here, with writeback
//! and removal delayed at will.

use super::key::{DeviceIndex, FileKey};
use crate::extent::{Extent, FileOffset, PhysRange};
use std::io;
use std::time::Duration;

/// What sharing is a property of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharingUnit {
    /// Single blocks (XFS): two files affect each other only through blocks both hold.
    Block,
    /// Whole extent items of at most this many bytes (btrfs, 128 MiB): two files affect each
    /// other through any parts of one item.
    Item {
        /// Largest item.
        largest: crate::extent::Bytes,
    },
    /// The filesystem has no sharing (ext4), or cannot say (`map` fails with `EOPNOTSUPP`).
    None,
}

/// What `statx` says of an inode at one moment, for comparison by equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// `stx_ctime`: seconds and nanoseconds since the epoch.
    pub ctime: (i64, u32),
    /// Size of the file.
    pub size: crate::extent::Bytes,
    /// Block size of its filesystem, for rounding the end of file.
    pub block: crate::extent::Bytes,
    /// Number of names.
    pub links: u32,
}

/// Whether anything, mappings included, holds a file open for write (`F_SETLEASE`, `F_RDLCK`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteHold {
    /// Nothing does: the lease was granted (and given back at once).
    Free,
    /// Something does.
    Held,
    /// The test is not permitted here: treat as held.
    Unknown,
}

/// Whether an inode still exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It can still be opened.
    Alive,
    /// It is gone (its blocks may still wait for background removal).
    Gone,
    /// Cannot be told without privilege.
    Unknown,
}

/// What became of the removals that waited in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removals {
    /// All were carried out.
    Done,
    /// One takes longer than could be waited for: a large subvolume, or one with files still
    /// open. To be asked again before anything that depends on it is believed.
    UnderWay,
    /// They can be neither carried out nor awaited here: the caller has to let time pass.
    Unknown,
}

/// A change that somebody else made, as fanotify reports it. Our own process's are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Data or size of the file changed, or may have.
    Modified(FileKey),
    /// A descriptor of the file that was open for write was closed. Stores through mappings,
    /// writes through libaio and deduplication into the file are not reported otherwise. Comes
    /// also for files open through the mount, by its users' closes.
    Closed(FileKey),
    /// Its attributes (mode, owner, links, times) changed.
    Attributes(FileKey),
    /// It lost its last name and its last opener.
    Removed(FileKey),
    /// An entry of this directory appeared, went or changed its inode.
    Entry {
        /// The directory.
        directory: FileKey,
        /// The name, as bytes.
        name: Vec<u8>,
        /// It may be a new subvolume or snapshot, which makes extents shared at once.
        subvolume: bool,
    },
    /// Events were lost: anything may have changed.
    Overflow,
}

/// The disk as the engine sees it. Every method may block; none is called with an engine lock
/// held. Errors carry the errno of the system call; `ESTALE` means that the inode is gone.
pub trait Backing: Send + Sync + 'static {
    /// An open, readable file; closed on drop.
    type File: Send + Sync;

    /// Opens for mapping. Never creates and never touches the mount.
    ///
    /// # Errors
    /// `ESTALE` when the inode is gone, else the errno of the open.
    fn open(&self, file: FileKey) -> io::Result<Self::File>;

    /// Size, ctime and links now. Asking arms the kernel's fine-grained ctime.
    ///
    /// # Errors
    /// Of statx.
    fn stamp(&self, file: &Self::File) -> io::Result<Stamp>;

    /// Up to `batch` raw FIEMAP records from `from` on, without writeback, appended to `out`.
    /// Returns true when the map ends with them.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the filesystem has no FIEMAP.
    fn map(
        &self,
        file: &Self::File,
        from: FileOffset,
        batch: usize,
        out: &mut Vec<Extent>,
    ) -> io::Result<bool>;

    /// Writes the dirty data of the file back and waits until the map shows it
    /// (`FIEMAP_FLAG_SYNC`).
    ///
    /// # Errors
    /// Of the writeback (EIO, ENOSPC).
    fn write_back(&self, file: &Self::File) -> io::Result<()>;

    /// The extent items that the file references (btrfs, by its EXTENT_DATA items), or `None`
    /// where they cannot be read. For [`SharingUnit::Block`] always `None`.
    ///
    /// # Errors
    /// Of the look-up, other than lacking privilege.
    fn items(&self, file: &Self::File) -> io::Result<Option<Vec<PhysRange>>>;

    /// Carries out removals that wait in the background on this device; when it says that it is
    /// done, those of `removed` are.
    ///
    /// # Errors
    /// Of the ioctl, other than lacking privilege.
    fn flush_removals(&self, device: DeviceIndex, removed: &[FileKey]) -> io::Result<Removals>;

    /// Writes everything dirty on this device back (`syncfs`).
    ///
    /// # Errors
    /// Of syncfs.
    fn write_back_all(&self, device: DeviceIndex) -> io::Result<()>;

    /// Whether anything holds the file open for write. The caller holds the inode's open lock
    /// and knows of no writer through the mount.
    ///
    /// # Errors
    /// Of the lease calls, other than lacking permission.
    fn write_hold(&self, file: &Self::File) -> io::Result<WriteHold>;

    /// Whether the inode still exists.
    fn liveness(&self, file: FileKey) -> Liveness;

    /// What sharing is a property of on this device.
    fn sharing_unit(&self, device: DeviceIndex) -> SharingUnit;

    /// The physical address space that the device's files live in: equal for subvolumes of one
    /// filesystem.
    fn address_space(&self, device: DeviceIndex) -> u16;

    /// Every device known so far.
    fn devices(&self) -> Vec<DeviceIndex>;

    /// Whether foreign changes are reported by [`Backing::take_events`].
    fn watches(&self) -> bool;

    /// Hands over every event queued up to now, without blocking. Events of changes that had
    /// returned to their caller before this call are among those handed over so far, by this
    /// call or by another one that has ended. `sink` must not call this again.
    fn take_events(&self, sink: &mut dyn FnMut(Event));

    /// The clock that stamps ctimes (`CLOCK_REALTIME`), since the epoch.
    fn now(&self) -> Duration;
}
