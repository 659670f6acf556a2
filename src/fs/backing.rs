//! The real disk behind the engine: [`Backing`] on XFS, btrfs and whatever else has FIEMAP.
//!
//! Inodes are opened by handle where that is permitted, else through the inode store
//! ([`Resolve`]); either way a key stands for one inode for ever, so that nothing here can open
//! another file than was meant. Only regular files are opened for reading: opening a device or a
//! pipe would have effects of its own.

use super::device::{Device, DeviceTable, Space};
use crate::extent::{Bytes, Extent, ExtentFlags, FileOffset, PhysRange, Physical};
use crate::sharing::{
    Backing, DeviceIndex, Event, FileKey, Liveness, Removals, SharingUnit, Stamp, WriteHold,
};
use crate::sys::fanotify::{self, Room, Watch};
use crate::sys::handle::RawHandle;
use crate::sys::statfs::FilesystemKind;
use crate::sys::{btrfs, clock, fiemap, lease, reason, sync, xfs};
use parking_lot::{Mutex, RwLock};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Keys of regular files remembered, so that an event about one costs no look at its type.
const REMEMBERED: usize = 8192;

/// How long a removed subvolume is waited for: a question waits 30 s by default.
const CLEANER_WAIT: Duration = Duration::from_secs(20);

/// Opens files where handles are not permitted: the inode store.
pub trait Resolve: Send + Sync {
    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// `ESTALE` when the inode is gone or not known, else as open(2).
    fn open(&self, file: FileKey) -> io::Result<OwnedFd>;

    /// Opens a directory for reading.
    ///
    /// # Errors
    /// As [`Resolve::open`].
    fn open_directory(&self, directory: FileKey) -> io::Result<OwnedFd>;

    /// A scan met something that cannot be opened by handle.
    fn met(&self, _directory: FileKey, _name: &CStr, _key: FileKey) {}
}

/// What others changed, as whoever caches attributes and names has to hear of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    /// The attributes of the inode, not its data.
    Attributes(FileKey),
    /// The data of the file, and with it size and times; or that may be so.
    Data(FileKey),
    /// The name came into the directory or went from it, which changed the directory as well.
    Entry {
        /// The directory.
        directory: FileKey,
        /// The name.
        name: &'a [u8],
        /// What has or had the name.
        inode: Option<FileKey>,
    },
    /// Anything: changes were lost.
    Anything,
}

/// Hears of every change by others while the queue of events is read. What it does must be
/// quick, and must not ask the engine.
pub trait Listener: Send + Sync {
    /// This happened, some moments ago.
    fn heard(&self, change: Heard<'_>);

    /// Whether this is known to be a regular file, without looking at it.
    fn knows_file(&self, inode: FileKey) -> bool;
}

/// Carries out the removals that wait on an XFS filesystem. Those of `removed` are still under way
/// when others remove so much that they were not waited for.
fn flush_xfs(mount: BorrowedFd<'_>, removed: &[FileKey]) -> io::Result<Removals> {
    const ROUNDS: u32 = 40;
    const PAUSE: Duration = Duration::from_micros(100);
    xfs::flush_removals(mount)?;
    let mut waiting = removed.to_vec();
    waiting.sort_unstable_by_key(|file| file.ino);
    for round in 0..ROUNDS {
        let mut freed = xfs::Freed::of(mount);
        let mut still = Vec::new();
        for file in waiting {
            if !freed.is(file.ino, file.generation)? {
                still.push(file);
            }
        }
        if still.is_empty() {
            return Ok(Removals::Done);
        }
        if round > 0 {
            std::thread::sleep(PAUSE);
        }
        xfs::flush_removals(mount)?;
        waiting = still;
    }
    Ok(Removals::UnderWay)
}

/// An open file of the backing filesystem.
#[derive(Debug)]
pub struct DiskFile {
    file: File,
    ino: u64,
    block: Bytes,
    /// On btrfs: its extent items can be asked for.
    items: bool,
}

impl DiskFile {
    /// The regular file with this inode number, open for reading.
    pub(super) fn new(file: OwnedFd, ino: u64, device: &Device) -> Self {
        Self {
            file: file.into(),
            ino,
            block: device.space.block,
            items: device.space.kind == FilesystemKind::Btrfs,
        }
    }
}

impl AsFd for DiskFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The disk.
pub struct DiskBacking {
    devices: Arc<DeviceTable>,
    resolver: OnceLock<Weak<dyn Resolve>>,
    listener: OnceLock<Arc<dyn Listener>>,
    events: Mutex<Reader>,
    /// The queue of events cannot be read any more.
    deaf: AtomicBool,
    /// Readings of the event queue begun so far.
    readings: AtomicU64,
    /// Files of btrfs filesystems that others removed so far: the writeback of one may be under
    /// way, and then it lives on until that is done.
    removed: AtomicU64,
    /// How many of these a `syncfs` has waited for; locked while it does.
    settled: Mutex<u64>,
    /// How long a removed subvolume is waited for.
    cleaner_wait: Duration,
    /// Removed subvolumes that the cleaner did not free within that time.
    slow: Mutex<HashSet<u64>>,
    /// Layouts of XFS filesystems, by space.
    geometries: RwLock<HashMap<u16, xfs::Geometry>>,
}

/// What reading events needs, used by one thread at a time.
#[derive(Default)]
struct Reader {
    room: Room,
    regular: HashSet<FileKey>,
}

impl DiskBacking {
    /// The disk with these devices.
    #[must_use]
    pub fn new(devices: Arc<DeviceTable>) -> Self {
        Self {
            devices,
            resolver: OnceLock::new(),
            listener: OnceLock::new(),
            events: Mutex::default(),
            deaf: AtomicBool::new(false),
            readings: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            settled: Mutex::new(0),
            cleaner_wait: CLEANER_WAIT,
            slow: Mutex::default(),
            geometries: RwLock::default(),
        }
    }

    /// Waits at most this long for a removed btrfs subvolume, instead of 20 s.
    #[must_use]
    pub fn with_cleaner_wait(mut self, most: Duration) -> Self {
        self.cleaner_wait = most;
        self
    }

    /// Names the inode store, which opens files where handles are not permitted. It is held
    /// weakly, since it holds the engine and so this. The first one named stays.
    pub fn resolve_through(&self, resolver: Weak<dyn Resolve>) {
        // A second store would be a second owner of the same inodes; there is none.
        let _ = self.resolver.set(resolver);
    }

    /// Names who hears of changes by others. The first one named stays.
    pub fn heard_by(&self, listener: Arc<dyn Listener>) {
        // A second one would be a second owner of the kernel's caches; there is none.
        let _ = self.listener.set(listener);
    }

    /// What opens files where handles are not permitted.
    pub(super) fn resolver(&self) -> Option<Arc<dyn Resolve>> {
        self.resolver.get().and_then(Weak::upgrade)
    }

    fn tell(&self, change: Heard<'_>) {
        if let Some(listener) = self.listener.get() {
            listener.heard(change);
        }
    }

    fn lost(&self, sink: &mut dyn FnMut(Event)) {
        self.tell(Heard::Anything);
        sink(Event::Overflow);
    }

    /// Whether changes by others are heard of, where they are watched.
    #[must_use]
    pub fn hears(&self) -> bool {
        self.devices.watch().is_ok() && !self.deaf.load(Ordering::Relaxed)
    }

    /// The devices.
    #[must_use]
    pub fn devices(&self) -> &Arc<DeviceTable> {
        &self.devices
    }

    /// The descriptor that is readable when events are queued, if anything is watched.
    #[must_use]
    pub fn event_queue(&self) -> Option<BorrowedFd<'_>> {
        self.devices.watch().ok().map(Watch::as_fd)
    }

    fn device(&self, index: DeviceIndex) -> io::Result<Arc<Device>> {
        self.devices.get(index).ok_or_else(stale)
    }

    /// Opens a file for reading.
    fn open_inode(&self, inode: FileKey) -> io::Result<(Arc<Device>, OwnedFd)> {
        const FLAGS: i32 = libc::O_RDONLY | libc::O_NOATIME | libc::O_NOCTTY;
        let device = self.device(inode.device)?;
        let opened = match device.open(inode, FLAGS) {
            // Refused: the privilege is gone since the device was met.
            Some(Err(error)) if error.raw_os_error() == Some(libc::EPERM) => None,
            opened => opened,
        };
        let opened = match opened {
            Some(opened) => opened?,
            None => match self.resolver() {
                // Found by name only while the kernel knows it or a scan has met it: one that is not
                // found counts as gone for the engine, so nothing of it may be left to be written
                // back.
                Some(resolver) => resolver.open(inode).or_else(|error| {
                    if error.raw_os_error() == Some(libc::ESTALE) {
                        sync::filesystem(device.space.mount())?;
                    }
                    Err(error)
                })?,
                None => return Err(stale()),
            },
        };
        Ok((device, opened))
    }

    /// Opens a directory for reading.
    ///
    /// # Errors
    /// `ESTALE` when it is gone, else as open(2).
    pub(super) fn open_directory_inode(
        &self,
        inode: FileKey,
    ) -> io::Result<(Arc<Device>, OwnedFd)> {
        const FLAGS: i32 = libc::O_RDONLY | libc::O_NOATIME | libc::O_DIRECTORY;
        let device = self.device(inode.device)?;
        match device.open(inode, FLAGS) {
            Some(Ok(fd)) => Ok((device, fd)),
            Some(Err(error)) if error.raw_os_error() != Some(libc::EPERM) => Err(error),
            _ => match self.resolver() {
                Some(resolver) => Ok((device, resolver.open_directory(inode)?)),
                None => Err(stale()),
            },
        }
    }

    /// The layout of a device on XFS.
    pub(super) fn geometry(&self, index: DeviceIndex) -> Option<xfs::Geometry> {
        let device = self.devices.get(index)?;
        if device.space.kind != FilesystemKind::Xfs {
            return None;
        }
        let known = self.geometries.read().get(&device.space.index).copied();
        known.or_else(|| {
            let geometry = xfs::geometry(device.space.mount()).ok()?;
            self.geometries.write().insert(device.space.index, geometry);
            Some(geometry)
        })
    }

    /// The key of the inode with this handle.
    fn key(&self, space: &Arc<Space>, handle: &RawHandle) -> Option<FileKey> {
        let parts = handle.parts()?;
        Some(FileKey {
            ino: parts.ino,
            generation: parts.generation,
            device: self.devices.of_handle(space, &parts).ok()?,
        })
    }

    /// Takes one event in. Whatever cannot be understood counts as lost events.
    fn translate(
        &self,
        event: fanotify::Event<'_>,
        regular: &mut HashSet<FileKey>,
        sink: &mut dyn FnMut(Event),
    ) {
        let fanotify::Event::Change {
            filesystem,
            mask,
            pid,
            target,
            entry,
        } = event
        else {
            return self.lost(sink);
        };
        let ours = u32::try_from(pid) == Ok(std::process::id());
        if ours && !(mask.directory() && mask.created_or_deleted()) {
            return;
        }
        let Some(space) = self.devices.watched_space(filesystem) else {
            return self.lost(sink);
        };
        let key = target.as_ref().and_then(|handle| self.key(&space, handle));
        // The directory of a subvolume: one that appears may share all that it holds, one that
        // goes gives it back later.
        let subvolume = space.kind == FilesystemKind::Btrfs
            && mask.directory()
            && mask.created_or_deleted()
            && key.is_none_or(|key| key.ino == btrfs::SUBVOLUME_ROOT);
        if ours && !subvolume {
            return;
        }
        if mask.entry() {
            let directory = entry
                .and_then(|(directory, name)| Some((self.key(&space, &directory)?, name.to_vec())));
            let Some((directory, name)) = directory else {
                return self.lost(sink);
            };
            self.tell(Heard::Entry {
                directory,
                name: &name,
                inode: key,
            });
            sink(Event::Entry {
                directory,
                name,
                subvolume,
            });
        }
        if subvolume && mask.deleted() {
            match key {
                Some(key) => sink(Event::Removed(key)),
                None => self.lost(sink),
            }
        }
        if !(mask.modified() || mask.closed() || mask.attributes() || mask.removed()) {
            return;
        }
        let Some(key) = key else {
            return self.lost(sink);
        };
        if mask.modified() || mask.closed() {
            self.tell(Heard::Data(key));
        } else if mask.attributes() {
            self.tell(Heard::Attributes(key));
        }
        if mask.attributes() {
            sink(Event::Attributes(key));
        }
        if (mask.modified() || mask.closed()) && !mask.directory() && self.is_regular(key, regular)
        {
            // What changed the file is told first; a close by itself may have changed nothing.
            sink(if mask.modified() {
                Event::Modified(key)
            } else {
                Event::Closed(key)
            });
        }
        if mask.removed() && !mask.directory() {
            regular.remove(&key);
            if space.kind == FilesystemKind::Btrfs {
                self.removed.fetch_add(1, Ordering::AcqRel);
            }
            sink(Event::Removed(key));
        }
    }

    /// Whether a changed inode is a regular file, or gone: writes to pipes and devices are
    /// reported too.
    fn is_regular(&self, file: FileKey, regular: &mut HashSet<FileKey>) -> bool {
        let known = |listener: &Arc<dyn Listener>| listener.knows_file(file);
        if regular.contains(&file) || self.listener.get().is_some_and(known) {
            return true;
        }
        let opened = self
            .devices
            .get(file.device)
            .and_then(|device| device.open(file, libc::O_PATH));
        let Some(Ok(opened)) = opened else {
            return true;
        };
        let is_regular = nix::sys::stat::fstat(&opened)
            .is_ok_and(|status| status.st_mode & libc::S_IFMT == libc::S_IFREG);
        if is_regular {
            if regular.len() >= REMEMBERED {
                regular.clear();
            }
            regular.insert(file);
        }
        is_regular
    }

    /// On btrfs a removed file is freed at once, except when its writeback is under way; a
    /// removed subvolume is freed by the cleaner, which otherwise runs every half minute, and not
    /// before the last file in it is closed.
    fn flush_btrfs(&self, mount: BorrowedFd<'_>) -> io::Result<Removals> {
        let removed = self.removed.load(Ordering::Acquire);
        let mut settled = self.settled.lock();
        if *settled < removed {
            for space in self.devices.spaces() {
                if space.kind == FilesystemKind::Btrfs {
                    sync::filesystem(space.mount())?;
                }
            }
            *settled = removed;
        }
        drop(settled);
        match btrfs::removed_subvolumes(mount) {
            Ok(waiting) if waiting.is_empty() => Ok(Removals::Done),
            Ok(waiting) => self.wait_for_cleaner(mount, waiting),
            // Without the privilege only the queue can be seen.
            Err(error) if is_refusal(&error) => Ok(match btrfs::queued_subvolumes(mount) {
                Ok(1..) => Removals::UnderWay,
                _ => Removals::Done,
            }),
            Err(error) => Err(error),
        }
    }

    /// Waits until the removed subvolumes are cleaned. One that outlasts the wait (it is held by
    /// an open file, or large) is waited for only once, and then said to be under way.
    fn wait_for_cleaner(
        &self,
        mount: BorrowedFd<'_>,
        mut waiting: Vec<u64>,
    ) -> io::Result<Removals> {
        let is_new = |waiting: &[u64]| {
            let slow = self.slow.lock();
            waiting.iter().any(|id| !slow.contains(id))
        };
        if is_new(&waiting) {
            btrfs::commit(mount)?;
        }
        let end = Instant::now() + self.cleaner_wait;
        let mut pause = Duration::from_millis(1);
        loop {
            waiting = btrfs::removed_subvolumes(mount)?;
            if waiting.is_empty() {
                self.slow.lock().clear();
                return Ok(Removals::Done);
            }
            if !is_new(&waiting) {
                return Ok(Removals::UnderWay);
            }
            if Instant::now() >= end {
                // Ids are never used again: what is no longer waited for is forgotten here.
                *self.slow.lock() = waiting.into_iter().collect();
                return Ok(Removals::UnderWay);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

impl Backing for DiskBacking {
    type File = DiskFile;

    fn open(&self, file: FileKey) -> io::Result<DiskFile> {
        let (device, opened) = self.open_inode(file)?;
        Ok(DiskFile::new(opened, file.ino, &device))
    }

    fn stamp(&self, file: &DiskFile) -> io::Result<Stamp> {
        // The standard library asks statx for the basic fields, STATX_CTIME among them.
        let status = file.file.metadata()?;
        Ok(Stamp {
            ctime: (
                status.ctime(),
                u32::try_from(status.ctime_nsec()).unwrap_or_default(),
            ),
            size: Bytes(status.size()),
            block: file.block,
            links: u32::try_from(status.nlink()).unwrap_or(u32::MAX),
        })
    }

    fn map(
        &self,
        file: &DiskFile,
        from: FileOffset,
        batch: usize,
        out: &mut Vec<Extent>,
    ) -> io::Result<bool> {
        thread_local! {
            static ROOM: RefCell<Option<(usize, fiemap::Batch)>> = const { RefCell::new(None) };
        }
        let mut room = ROOM
            .take()
            .filter(|(records, _)| *records == batch)
            .unwrap_or_else(|| (batch, fiemap::Batch::new(batch)));
        let ended = room.1.read(file.as_fd(), from.0, |record| {
            out.push(Extent {
                logical: FileOffset(record.logical),
                physical: Physical(record.physical),
                length: Bytes(record.length),
                flags: ExtentFlags::from_bits_retain(record.flags),
            });
        });
        ROOM.set(Some(room));
        ended
    }

    fn write_back(&self, file: &DiskFile) -> io::Result<()> {
        fiemap::write_back(file.as_fd())
    }

    fn items(&self, file: &DiskFile) -> io::Result<Option<Vec<PhysRange>>> {
        if !file.items {
            return Ok(None);
        }
        match btrfs::items(file.as_fd(), file.ino) {
            Ok(items) => Ok(Some(
                items
                    .into_iter()
                    .map(|item| PhysRange::new(Physical(item.start), Bytes(item.length)))
                    .collect(),
            )),
            Err(error) if is_refusal(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn flush_removals(&self, device: DeviceIndex, removed: &[FileKey]) -> io::Result<Removals> {
        let device = self.device(device)?;
        let mount = device.space.mount();
        match device.space.kind {
            FilesystemKind::Xfs => match flush_xfs(mount, removed) {
                Ok(outcome) => Ok(outcome),
                // Nothing is removed on a filesystem that cannot be written.
                Err(error) if error.raw_os_error() == Some(libc::EROFS) => Ok(Removals::Done),
                Err(error) if is_refusal(&error) => Ok(Removals::Unknown),
                Err(error) => Err(error),
            },
            FilesystemKind::Btrfs => self.flush_btrfs(mount),
            FilesystemKind::Other(_) => Ok(Removals::Done),
        }
    }

    fn write_back_all(&self, device: DeviceIndex) -> io::Result<()> {
        sync::filesystem(self.device(device)?.space.mount())
    }

    fn write_hold(&self, file: &DiskFile) -> io::Result<WriteHold> {
        Ok(match lease::test(file.as_fd())? {
            lease::Lease::Free => WriteHold::Free,
            lease::Lease::Held => WriteHold::Held,
            lease::Lease::Unknown => WriteHold::Unknown,
        })
    }

    fn liveness(&self, file: FileKey) -> Liveness {
        let Some(device) = self.devices.get(file.device) else {
            return Liveness::Unknown;
        };
        match device.open(file, libc::O_PATH) {
            Some(Ok(_)) => Liveness::Alive,
            Some(Err(error)) if error.raw_os_error() == Some(libc::ESTALE) => Liveness::Gone,
            _ => Liveness::Unknown,
        }
    }

    fn sharing_unit(&self, device: DeviceIndex) -> SharingUnit {
        self.devices
            .get(device)
            .map_or(SharingUnit::None, |device| device.sharing_unit())
    }

    fn address_space(&self, device: DeviceIndex) -> u16 {
        self.devices
            .get(device)
            .map_or(0, |device| device.space.index)
    }

    fn devices(&self) -> Vec<DeviceIndex> {
        self.devices
            .all()
            .iter()
            .map(|device| device.index)
            .collect()
    }

    fn watches(&self) -> bool {
        self.devices.watches_all()
    }

    fn take_events(&self, sink: &mut dyn FnMut(Event)) {
        let Ok(watch) = self.devices.watch() else {
            return;
        };
        let begun = self.readings.load(Ordering::Acquire);
        let mut reader = self.events.lock();
        // Another thread began after this one asked, and has ended since the lock is free: what
        // it handed over is all that this one was to see.
        if self.readings.load(Ordering::Acquire) > begun {
            return;
        }
        self.readings.fetch_add(1, Ordering::AcqRel);
        let Reader { room, regular } = &mut *reader;
        loop {
            match watch.read(room, &mut |event| self.translate(event, regular, sink)) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    if !self.deaf.swap(true, Ordering::Relaxed) {
                        log::error!(
                            "changes behind the mount are not seen any more: {}",
                            reason(&error)
                        );
                    }
                    return self.lost(sink);
                }
            }
        }
    }

    fn now(&self) -> Duration {
        clock::realtime()
    }
}

/// The error of an inode that is gone.
fn stale() -> io::Error {
    io::Error::from_raw_os_error(libc::ESTALE)
}

/// Whether a call is not permitted or not known here, rather than failed.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EPERM | libc::EACCES | libc::ENOTTY | libc::EOPNOTSUPP)
    )
}
