//! The devices below the source: what identifies one, how its inodes are opened, what it shares.
//!
//! A **device** is what has inode numbers of its own: a filesystem, or one subvolume of btrfs. A
//! **space** is what has one physical address space: a filesystem with all its subvolumes.
//!
//! Invariants:
//! - a device never changes once it is in the table, and an index is never given to another one;
//! - a btrfs subvolume is known by its space and root id, which is never reused, while the number
//!   in `st_dev` may be once the subvolume is removed;
//! - a space is watched, where that is permitted, before any of its devices is in the table, so
//!   that no change by others is missed;
//! - one descriptor a space is held for opening by handle, none in a subvolume of its own: a
//!   descriptor inside a removed subvolume would keep it from being cleaned, and its extents
//!   shared.

use crate::extent::Bytes;
use crate::sharing::{DeviceIndex, FileKey, SharingUnit};
use crate::sys::btrfs;
use crate::sys::fanotify::Watch;
use crate::sys::handle::{self, HandleFormat, HandleParts, RawHandle};
use crate::sys::statfs::{self, FilesystemKind};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One filesystem with its physical address space.
#[derive(Debug)]
pub struct Space {
    /// Its number, for the engine's index.
    pub index: u16,
    /// Which filesystem.
    pub kind: FilesystemKind,
    /// Block size.
    pub block: Bytes,
    /// Whether inodes can be opened by handle.
    pub handles: bool,
    /// The id that events about it carry; `None` when it is not watched.
    pub watched: Option<[u8; 8]>,
    id: SpaceId,
    mount: OwnedFd,
}

/// What tells filesystems apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SpaceId {
    /// The UUID of a btrfs filesystem.
    Btrfs([u8; 16]),
    /// `st_dev` of any other: our descriptor keeps the filesystem and so the number.
    Device(u64),
}

/// One device.
#[derive(Debug)]
pub struct Device {
    /// Its index.
    pub index: DeviceIndex,
    /// The filesystem that it belongs to.
    pub space: Arc<Space>,
    /// Id of the btrfs subvolume; 0 on other filesystems.
    pub root: u64,
    /// How its handles are written; `None` where they are not understood.
    pub format: Option<HandleFormat>,
    /// The number last seen in `st_dev`; 0 while only known from its handles.
    number: AtomicU64,
}

/// All devices met so far. Index 0 is the source's.
#[derive(Debug)]
pub struct DeviceTable {
    watch: io::Result<Watch>,
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    spaces: Vec<Arc<Space>>,
    devices: Vec<Arc<Device>>,
    /// By `st_dev` and root id, as [`DeviceTable::known`] asks.
    by_number: HashMap<(u64, u64), DeviceIndex>,
    by_root: HashMap<(u16, u64), DeviceIndex>,
}

impl DeviceTable {
    /// A table that knows the device of `source`, an open directory, and watches its filesystem
    /// where this process may.
    ///
    /// # Errors
    /// Of the calls that ask about it.
    pub fn new(source: BorrowedFd<'_>) -> io::Result<Self> {
        Self::with_watch(source, Watch::new())
    }

    /// A table that does not watch, as for a process that may not.
    ///
    /// # Errors
    /// Of the calls that ask about it.
    pub fn unwatched(source: BorrowedFd<'_>) -> io::Result<Self> {
        Self::with_watch(source, Err(io::ErrorKind::Unsupported.into()))
    }

    fn with_watch(source: BorrowedFd<'_>, watch: io::Result<Watch>) -> io::Result<Self> {
        let table = Self {
            watch,
            state: RwLock::default(),
        };
        table.learn(source)?;
        Ok(table)
    }

    /// The group that watches the spaces with [`Space::watched`] set.
    ///
    /// # Errors
    /// Why there is none.
    pub fn watch(&self) -> Result<&Watch, &io::Error> {
        self.watch.as_ref()
    }

    /// Whether every filesystem that can share is watched.
    #[must_use]
    pub fn watches_all(&self) -> bool {
        self.watch.is_ok()
            && self.state.read().spaces.iter().all(|space| {
                space.watched.is_some() || matches!(space.kind, FilesystemKind::Other(_))
            })
    }

    /// The space whose events carry this id.
    #[must_use]
    pub fn watched_space(&self, id: [u8; 8]) -> Option<Arc<Space>> {
        self.state
            .read()
            .spaces
            .iter()
            .find(|space| space.watched == Some(id))
            .cloned()
    }

    /// The device at `index`.
    #[must_use]
    pub fn get(&self, index: DeviceIndex) -> Option<Arc<Device>> {
        self.state.read().devices.get(usize::from(index.0)).cloned()
    }

    /// The device with this `st_dev` and subvolume id (0 where there are none), if it was met.
    #[must_use]
    pub fn known(&self, number: u64, root: u64) -> Option<DeviceIndex> {
        self.state.read().by_number.get(&(number, root)).copied()
    }

    /// The device of `fd` (any kind of file, also an `O_PATH` descriptor), taken into the table
    /// when it is new.
    ///
    /// # Errors
    /// Of the calls that ask about it; `EOVERFLOW` past 65,535 devices.
    pub fn learn(&self, fd: BorrowedFd<'_>) -> io::Result<Arc<Device>> {
        let status = nix::sys::stat::fstat(fd)?;
        let parts = match RawHandle::of(fd, c"") {
            Ok(handle) => handle.parts(),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => None,
            Err(error) => return Err(error),
        };
        let root = parts.map_or(0, |parts| parts.root);
        if let Some(device) = self
            .known(status.st_dev, root)
            .and_then(|index| self.get(index))
        {
            return Ok(device);
        }
        let space = self.learn_space(fd, status.st_dev)?;
        // FUSE writes numbers of its own into handles of a form that others use too.
        let read = parts.filter(|parts| {
            parts.ino == status.st_ino
                && space.kind != FilesystemKind::Other(libc::FUSE_SUPER_MAGIC)
        });
        self.add(&space, root, read.map(|parts| parts.format), status.st_dev)
    }

    /// Whether handles of this device's inodes are understood.
    #[must_use]
    pub fn reads_handles(&self, index: DeviceIndex) -> bool {
        self.state
            .read()
            .devices
            .get(usize::from(index.0))
            .is_some_and(|device| device.format.is_some())
    }

    /// The device of an inode whose handle came in an event about `space`; a subvolume that was
    /// not met before is taken into the table, since it may share with those that were.
    ///
    /// # Errors
    /// `EOVERFLOW` past 65,535 devices.
    pub fn of_handle(&self, space: &Arc<Space>, parts: &HandleParts) -> io::Result<DeviceIndex> {
        let known = self
            .state
            .read()
            .by_root
            .get(&(space.index, parts.root))
            .copied();
        match known {
            Some(index) => Ok(index),
            None => Ok(self.add(space, parts.root, Some(parts.format), 0)?.index),
        }
    }

    /// Whether changes on this device by others are told.
    #[must_use]
    pub fn is_watched(&self, index: DeviceIndex) -> bool {
        self.state
            .read()
            .devices
            .get(usize::from(index.0))
            .is_some_and(|device| device.space.watched.is_some())
    }

    /// Every device met so far.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Device>> {
        self.state.read().devices.clone()
    }

    /// Every filesystem met so far.
    #[must_use]
    pub fn spaces(&self) -> Vec<Arc<Space>> {
        self.state.read().spaces.clone()
    }

    fn learn_space(&self, fd: BorrowedFd<'_>, number: u64) -> io::Result<Arc<Space>> {
        let info = statfs::filesystem(fd)?;
        let mount = reopen(fd)?;
        let id = match info.kind {
            FilesystemKind::Btrfs => SpaceId::Btrfs(btrfs::filesystem_id(mount.as_fd())?),
            _ => SpaceId::Device(number),
        };
        let handles = opens_by_handle(mount.as_fd());
        let watched = match &self.watch {
            Ok(watch) if handles => watch_space(watch, mount.as_fd(), info.kind).ok(),
            _ => None,
        };
        let mut state = self.state.write();
        if let Some(space) = state.spaces.iter().find(|space| space.id == id) {
            return Ok(Arc::clone(space));
        }
        let space = Arc::new(Space {
            index: next(state.spaces.len())?,
            kind: info.kind,
            block: Bytes(info.block),
            handles,
            watched,
            id,
            mount,
        });
        state.spaces.push(Arc::clone(&space));
        Ok(space)
    }

    fn add(
        &self,
        space: &Arc<Space>,
        root: u64,
        format: Option<HandleFormat>,
        number: u64,
    ) -> io::Result<Arc<Device>> {
        let mut state = self.state.write();
        let known = state
            .by_root
            .get(&(space.index, root))
            .and_then(|index| state.devices.get(usize::from(index.0)))
            .cloned();
        let device = match known {
            Some(device) => device,
            None => {
                let device = Arc::new(Device {
                    index: DeviceIndex(next(state.devices.len())?),
                    space: Arc::clone(space),
                    root,
                    format,
                    number: AtomicU64::new(0),
                });
                state.by_root.insert((space.index, root), device.index);
                state.devices.push(Arc::clone(&device));
                device
            }
        };
        if number != 0 {
            device.number.store(number, Ordering::Relaxed);
            state.by_number.insert((number, root), device.index);
        }
        Ok(device)
    }
}

impl Device {
    /// The number last seen in `st_dev`, or `None` while the device is known only from events.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match self.number.load(Ordering::Relaxed) {
            0 => None,
            number => Some(number),
        }
    }

    /// The handle of one of its inodes, or `None` where handles cannot be opened here.
    #[must_use]
    pub fn handle(&self, file: FileKey) -> Option<RawHandle> {
        if !self.space.handles {
            return None;
        }
        self.format.map(|format| {
            HandleParts {
                format,
                ino: file.ino,
                generation: file.generation,
                root: self.root,
            }
            .handle()
        })
    }

    /// Opens one of its inodes by handle; `None` where that is not possible, so that it must be
    /// opened by name.
    ///
    /// # Errors
    /// `ESTALE` when the inode is gone, else as open(2).
    pub fn open(&self, file: FileKey, flags: i32) -> Option<io::Result<OwnedFd>> {
        self.handle(file)
            .map(|handle| handle::open(self.space.mount(), &handle, flags))
    }

    /// What sharing is a property of here.
    #[must_use]
    pub fn sharing_unit(&self) -> SharingUnit {
        match self.space.kind {
            FilesystemKind::Xfs => SharingUnit::Block,
            FilesystemKind::Btrfs => SharingUnit::Item {
                largest: Bytes(btrfs::LARGEST_ITEM),
            },
            FilesystemKind::Other(_) => SharingUnit::None,
        }
    }
}

impl Space {
    /// A descriptor on the filesystem, open for reading.
    #[must_use]
    pub fn mount(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }
}

/// The next free index of a table of `length`.
fn next(length: usize) -> io::Result<u16> {
    u16::try_from(length).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))
}

/// The same file, open for reading: handles and ioctls do not work on `O_PATH` descriptors.
fn reopen(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    use nix::fcntl::{OFlag, open, openat};
    use nix::sys::stat::Mode;
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    match openat(fd, c".", flags | OFlag::O_DIRECTORY, Mode::empty()) {
        // Not a directory: a single file mounted over another one.
        Err(nix::errno::Errno::ENOTDIR) => {
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            Ok(open(path.as_str(), flags, Mode::empty())?)
        }
        opened => Ok(opened?),
    }
}

/// Whether this process may open the inodes of this filesystem by handle.
fn opens_by_handle(mount: BorrowedFd<'_>) -> bool {
    RawHandle::of(mount, c"").is_ok_and(|handle| {
        handle.parts().is_some() && handle::open(mount, &handle, libc::O_PATH).is_ok()
    })
}

/// Watches the filesystem of `mount`; the id that its events will carry.
fn watch_space(watch: &Watch, mount: BorrowedFd<'_>, kind: FilesystemKind) -> io::Result<[u8; 8]> {
    let marked = match watch.add(mount) {
        // A subvolume of btrfs: only the top-level one can be marked, and it need not be mounted.
        Err(error)
            if kind == FilesystemKind::Btrfs && error.raw_os_error() == Some(libc::EXDEV) =>
        {
            let top = open_top_level(mount)?;
            watch.add(top.as_fd())?;
            statfs::filesystem(top.as_fd())?
        }
        added => {
            added?;
            statfs::filesystem(mount)?
        }
    };
    Ok(marked.id)
}

/// The root directory of a btrfs filesystem's top-level subvolume, wherever `mount` lies in it.
fn open_top_level(mount: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let root = HandleParts {
        format: HandleFormat::Btrfs,
        ino: btrfs::SUBVOLUME_ROOT,
        // btrfs takes 0 for any generation.
        generation: 0,
        root: btrfs::TOP_LEVEL,
    };
    handle::open(mount, &root.handle(), libc::O_RDONLY | libc::O_DIRECTORY)
}
