//! From a node to an open descriptor of its inode, and from a name to its identity.
//!
//! An inode is opened by its file handle where that is permitted. Elsewhere it is found again from
//! the directory and name at which it was last seen, one step at a time beneath the source, and
//! what is found is compared with the identity that is remembered: a name that leads to another
//! inode now gives `ESTALE`, never that other inode's data.
//!
//! Nothing here uses a path from outside the source, so a mount over the source itself works.

use super::backing::Resolve;
use super::descriptors::Descriptors;
use super::device::{Device, DeviceTable};
use super::error::{Doing, Error, Result};
use super::nodes::{Known, Nodes, Place};
use super::numbers::Numbers;
use super::places::Places;
use super::types::NodeId;
use crate::sharing::{DeviceIndex, FileKey};
use crate::sys::at::{self, Status};
use crate::sys::handle::{HandleParts, RawHandle};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// How often a look-up is done again when the name changed its inode meanwhile.
const ATTEMPTS: usize = 8;

/// Every inode below the source that the kernel knows.
#[derive(Debug)]
pub struct Inodes {
    source: Arc<OwnedFd>,
    devices: Arc<DeviceTable>,
    numbers: Numbers,
    pub(crate) nodes: Nodes,
    descriptors: Descriptors,
    /// Of files whose backing file the kernel knows, so that nothing is kept alive by these alone.
    registered: Mutex<HashMap<NodeId, (FileKey, Arc<OwnedFd>)>>,
    /// How many these may be.
    most_registered: usize,
    /// Where scans met what cannot be opened by handle.
    places: Places,
    /// Descriptors of inodes that have no name left to find them by: of directories, and of all where
    /// handles do not serve.
    nameless: Mutex<HashMap<NodeId, (FileKey, Arc<OwnedFd>)>>,
}

impl Inodes {
    /// Of the directory `source` and what is below it, keeping about `descriptors` descriptors.
    ///
    /// # Errors
    /// `ENOTDIR`, or what asking about the source gave.
    pub fn new(source: OwnedFd, devices: Arc<DeviceTable>, descriptors: usize) -> Result<Self> {
        let device = devices.learn(source.as_fd()).doing("identify the source")?;
        let status = at::status(source.as_fd(), c"").doing("identify the source")?;
        if !status.is_dir() {
            return Err(Error::new(libc::ENOTDIR, "open the source"));
        }
        let parts = parts_of(source.as_fd(), c"").doing("identify the source")?;
        let key = key_of(&status, parts.as_ref(), device.index);
        Ok(Self {
            source: Arc::new(source),
            numbers: Numbers::new(status.ino),
            nodes: Nodes::new(key),
            descriptors: Descriptors::new(descriptors),
            registered: Mutex::default(),
            most_registered: descriptors,
            places: Places::default(),
            devices,
            nameless: Mutex::default(),
        })
    }

    /// The devices met so far.
    #[must_use]
    pub fn devices(&self) -> &Arc<DeviceTable> {
        &self.devices
    }

    /// The source.
    #[must_use]
    pub fn source(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }

    /// The number of an inode, whether or not the kernel knows it.
    #[must_use]
    pub fn node(&self, device: DeviceIndex, ino: u64) -> NodeId {
        self.numbers.node(device, ino)
    }

    /// The number of a file.
    #[must_use]
    pub fn node_of(&self, key: FileKey) -> NodeId {
        self.numbers.node(key.device, key.ino)
    }

    /// The identity of a node.
    ///
    /// # Errors
    /// `ESTALE` when it is not known.
    pub fn key(&self, node: NodeId) -> Result<FileKey> {
        Ok(self.nodes.get(node)?.key)
    }

    /// Attributes and identity of `name` in `dir` (of `dir` itself when the name is empty).
    pub(crate) fn identify(&self, dir: BorrowedFd<'_>, name: &CStr) -> Result<(Status, FileKey)> {
        for _ in 0..ATTEMPTS {
            let status = at::status(dir, name).doing("look a name up")?;
            let parts = parts_of(dir, name).doing("take a file handle")?;
            let root = parts.map_or(0, |parts| parts.root);
            let device = match self.devices.known(status.device, root) {
                Some(device) => device,
                None => {
                    let fd = if name.is_empty() {
                        self.devices.learn(dir)
                    } else {
                        at::open_beneath(dir, name, libc::O_PATH | libc::O_NOFOLLOW, 0)
                            .and_then(|fd| self.devices.learn(fd.as_fd()))
                    };
                    fd.doing("identify a device")?;
                    continue;
                }
            };
            let parts = parts.filter(|_| self.devices.reads_handles(device));
            if parts.is_some_and(|parts| parts.ino != status.ino) {
                // Renamed over between the two calls.
                continue;
            }
            return Ok((status, key_of(&status, parts.as_ref(), device)));
        }
        Err(Error::new(libc::ESTALE, "look a name up"))
    }

    /// Notes that the kernel is told of an inode found as `name` in `parent`.
    pub(crate) fn remember(
        &self,
        parent: NodeId,
        name: &CStr,
        status: &Status,
        key: FileKey,
    ) -> (NodeId, Known) {
        let id = self.node_of(key);
        let place = (!self.by_handle(key)).then(|| {
            if let Ok(directory) = self.key(parent) {
                self.places.update(directory, name, key);
            }
            Place {
                parent,
                name: name.into(),
            }
        });
        (id, self.nodes.remember(id, key, status.is_dir(), place))
    }

    /// Takes back what [`Inodes::remember`] noted.
    pub(crate) fn forget(&self, id: NodeId, count: u64) {
        if self.nodes.forget(id, count) {
            self.descriptors.drop(id);
            let _closed = self.nameless.lock().remove(&id);
        }
    }

    /// Whether the kernel may know an inode by this number.
    #[must_use]
    pub fn knows(&self, node: NodeId) -> bool {
        self.nodes.get(node).is_ok()
    }

    /// Every node that the kernel may know.
    #[must_use]
    pub fn known(&self) -> Vec<NodeId> {
        self.nodes.all()
    }

    /// How many inodes are known.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nodes.count()
    }

    fn device(&self, key: FileKey) -> Result<Arc<Device>> {
        self.devices
            .get(key.device)
            .ok_or(Error::new(libc::ESTALE, "find a device"))
    }

    /// Whether this inode can be opened by its handle.
    pub(crate) fn by_handle(&self, key: FileKey) -> bool {
        self.devices
            .get(key.device)
            .is_some_and(|device| device.space.handles && device.format.is_some())
    }

    /// An `O_PATH` descriptor of a node.
    pub(crate) fn fd(&self, node: NodeId) -> Result<Arc<OwnedFd>> {
        if node == NodeId::ROOT {
            return Ok(Arc::clone(&self.source));
        }
        let known = self.nodes.get(node)?;
        self.fd_of(node, &known)
    }

    /// The same, for a node of which it is known already what it is.
    pub(crate) fn fd_of(&self, node: NodeId, known: &Known) -> Result<Arc<OwnedFd>> {
        if node == NodeId::ROOT {
            return Ok(Arc::clone(&self.source));
        }
        if let Some(fd) = self.descriptors.get(node, known.key) {
            return Ok(fd);
        }
        let kept = if known.directory {
            &self.nameless
        } else {
            &self.registered
        };
        if let Some((key, fd)) = kept.lock().get(&node)
            && *key == known.key
        {
            return Ok(Arc::clone(fd));
        }
        let device = self.device(known.key)?;
        let opened = self.with_room(|| device.open(known.key, libc::O_PATH).transpose());
        match opened.doing("open by handle")? {
            Some(fd) => {
                let fd = Arc::new(fd);
                if known.directory {
                    self.descriptors.put(node, known.key, Arc::clone(&fd));
                }
                Ok(fd)
            }
            None => self.find(node, known.key, false),
        }
    }

    /// A descriptor of a regular file that is not open for write, for the kernel to know its backing
    /// file by; kept until [`Inodes::unregistered`].
    pub(crate) fn registered(&self, node: NodeId, key: FileKey) -> Result<Arc<OwnedFd>> {
        // One that is open for reading serves more calls than an `O_PATH` one.
        const FLAGS: i32 = libc::O_RDONLY | libc::O_NOATIME | libc::O_NONBLOCK | libc::O_NOCTTY;
        let opened = self.device(key)?.open(key, FLAGS).and_then(io::Result::ok);
        let fd = match opened {
            Some(fd) => Arc::new(fd),
            None => self.fd_by_key(node, key)?,
        };
        self.keep_registered(node, key, &fd);
        Ok(fd)
    }

    /// Keeps such a descriptor.
    pub(crate) fn keep_registered(&self, node: NodeId, key: FileKey, fd: &Arc<OwnedFd>) {
        let mut registered = self.registered.lock();
        if registered.len() < self.most_registered {
            let _closed = registered.insert(node, (key, Arc::clone(fd)));
        }
    }

    /// Whether the kernel knows the backing file of this file.
    pub(crate) fn is_registered(&self, key: FileKey) -> bool {
        let registered = self.registered.lock();
        registered
            .get(&self.node_of(key))
            .is_some_and(|(known, _)| *known == key)
    }

    /// The kernel does not know the backing file any more.
    pub fn unregistered(&self, node: NodeId) {
        let closed = self.registered.lock().remove(&node);
        drop(closed);
    }

    /// Opens a node with these flags. The node must be a regular file or a directory. Waits for
    /// a lease that somebody else holds on it, unless `flags` has `O_NONBLOCK`.
    pub(crate) fn open(&self, node: NodeId, key: FileKey, flags: i32) -> io::Result<OwnedFd> {
        match self.open_now(node, key, flags | libc::O_NONBLOCK) {
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && flags & libc::O_NONBLOCK == 0 =>
            {
                self.open_now(node, key, flags)
            }
            other => other,
        }
    }

    fn open_now(&self, node: NodeId, key: FileKey, flags: i32) -> io::Result<OwnedFd> {
        let device = self.device(key)?;
        let opened = if node == NodeId::ROOT {
            None
        } else {
            self.with_room(|| device.open(key, flags).transpose())?
        };
        match opened {
            Some(fd) => Ok(fd),
            None => {
                let fd = self.fd_by_key(node, key)?;
                self.with_room(|| at::reopen(fd.as_fd(), flags))
            }
        }
    }

    fn fd_by_key(&self, node: NodeId, key: FileKey) -> Result<Arc<OwnedFd>> {
        let known = self.nodes.get(node)?;
        if known.key != key {
            return Err(Error::new(libc::ESTALE, "find a node"));
        }
        self.fd_of(node, &known)
    }

    /// An `O_PATH` descriptor of an inode that the kernel knows or a scan has met.
    fn fd_as_met(&self, key: FileKey) -> Result<Arc<OwnedFd>> {
        let node = self.node_of(key);
        match self.fd_by_key(node, key) {
            Err(error) if error.is_stale() => self.find(node, key, true),
            found => found,
        }
    }

    /// Tries again without the kept descriptors when there are no free ones.
    fn with_room<T>(&self, mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        match open() {
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                self.descriptors.clear();
                let closed = std::mem::take(&mut *self.registered.lock());
                drop(closed);
                open()
            }
            other => other,
        }
    }

    /// The directory of an inode, and its name there. Where the kernel looked it up last, or, if
    /// `as_met` or not known, where a scan met it.
    fn place(
        &self,
        id: NodeId,
        key: FileKey,
        as_met: bool,
    ) -> Option<(NodeId, FileKey, Box<CStr>)> {
        let looked_up = || {
            let known = self.nodes.get(id).ok().filter(|known| known.key == key)?;
            let place = self.nodes.place(id)?;
            let parent = self.nodes.get(place.parent).ok()?;
            Some((place.parent, parent.key, place.name)).filter(|_| known.key == key)
        };
        let met = || {
            let met = self.places.get(key)?;
            Some((self.node_of(met.directory), met.directory, met.name))
        };
        if as_met {
            met()
        } else {
            looked_up().or_else(met)
        }
    }

    /// Finds an inode again by the names on the way from the nearest kept descriptor; itself by the
    /// name under which a scan met it, if `as_met`.
    fn find(&self, node: NodeId, key: FileKey, mut as_met: bool) -> Result<Arc<OwnedFd>> {
        let stale = Error::new(libc::ESTALE, "find an inode by its name");
        let mut steps = Vec::new();
        let (mut id, mut wanted) = (node, key);
        let mut fd = loop {
            if id == NodeId::ROOT {
                break Arc::clone(&self.source);
            }
            if let Some(fd) = self.descriptors.get(id, wanted) {
                break fd;
            }
            if let Some((kept, fd)) = self.nameless.lock().get(&id)
                && *kept == wanted
            {
                break Arc::clone(fd);
            }
            let (parent, parent_key, name) = self.place(id, wanted, as_met).ok_or(stale)?;
            as_met = false;
            steps.push((id, wanted, name));
            if steps.len() > 1 << 16 {
                // Renames during the walk made a loop of what is remembered.
                return Err(stale);
            }
            id = parent;
            wanted = parent_key;
        };
        while let Some((id, wanted, name)) = steps.pop() {
            let next = self
                .with_room(|| {
                    at::open_beneath(fd.as_fd(), &name, libc::O_PATH | libc::O_NOFOLLOW, 0)
                })
                .map_err(|error| match error.raw_os_error() {
                    Some(libc::ENOENT | libc::ENOTDIR) => stale,
                    errno => Error::new(errno.unwrap_or(libc::EIO), "find an inode by its name"),
                })?;
            let (status, found) = self.identify(next.as_fd(), c"")?;
            if found != wanted {
                return Err(stale);
            }
            fd = Arc::new(next);
            // Of a file that the kernel does not know nobody would say when it is removed, and a
            // descriptor would keep its blocks shared.
            if status.is_dir() || self.nodes.get(id).is_ok_and(|known| known.key == wanted) {
                self.descriptors.put(id, wanted, Arc::clone(&fd));
            }
        }
        Ok(fd)
    }

    /// A name of the inode is about to be removed, or was given to another one. Where it can only
    /// be found by name, its descriptor is kept while the kernel knows it; else one that would
    /// keep a removed inode alive is closed.
    pub(crate) fn losing_name(&self, parent: NodeId, name: &CStr, key: FileKey) {
        let id = self.node_of(key);
        if self.by_handle(key) {
            // A directory may be open, which nothing tells, or be the working directory of a
            // program; the handle of a removed one leads nowhere.
            if let Ok(known) = self.nodes.get(id)
                && known.directory
                && let Ok(fd) = self.fd_by_key(id, key)
            {
                self.nameless.lock().insert(id, (key, fd));
            }
            self.descriptors.drop(id);
            return;
        }
        let Some(place) = self.nodes.place(id) else {
            return;
        };
        if place.parent == parent
            && *place.name == *name
            && let Ok(fd) = self.fd_by_key(id, key)
        {
            self.nameless.lock().insert(id, (key, fd));
        }
    }

    /// The name was not removed after all.
    pub(crate) fn kept_name(&self, key: FileKey) {
        if self.by_handle(key) {
            let _closed = self.nameless.lock().remove(&self.node_of(key));
        }
    }

    /// The name is gone.
    pub(crate) fn lost_name(&self, parent: NodeId, name: &CStr, key: FileKey) {
        let id = self.node_of(key);
        if self.by_handle(key) {
            return;
        }
        if let Ok(directory) = self.key(parent) {
            self.places.lose(directory, name, key);
        }
        self.descriptors.drop(id);
        if self
            .nodes
            .place(id)
            .is_some_and(|place| place.parent == parent && *place.name == *name)
        {
            self.nodes.set_place(id, key, None);
        }
    }

    /// The inode is found as `name` in `parent` from now on.
    pub(crate) fn moved(&self, parent: NodeId, name: &CStr, key: FileKey) {
        if self.by_handle(key) {
            return;
        }
        let id = self.node_of(key);
        if let Ok(directory) = self.key(parent) {
            self.places.update(directory, name, key);
        }
        self.nodes.set_place(
            id,
            key,
            Some(Place {
                parent,
                name: name.into(),
            }),
        );
        let _closed = self.nameless.lock().remove(&id);
    }
}

impl Resolve for Inodes {
    fn open(&self, file: FileKey) -> io::Result<OwnedFd> {
        let fd = self.fd_as_met(file)?;
        if !at::status(fd.as_fd(), c"")?.is_file() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.with_room(|| at::reopen(fd.as_fd(), libc::O_RDONLY | libc::O_NOCTTY))
    }

    fn open_directory(&self, directory: FileKey) -> io::Result<OwnedFd> {
        const FLAGS: i32 = libc::O_RDONLY | libc::O_DIRECTORY;
        let fd = self.fd_as_met(directory)?;
        match self.with_room(|| at::reopen(fd.as_fd(), FLAGS | libc::O_NOATIME)) {
            // Only the owner may leave the access time alone.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                self.with_room(|| at::reopen(fd.as_fd(), FLAGS))
            }
            opened => opened,
        }
    }

    fn met(&self, directory: FileKey, name: &CStr, key: FileKey) {
        self.places.note(directory, name, key);
    }
}

pub(super) fn parts_of(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<HandleParts>> {
    match RawHandle::of(dir, name) {
        Ok(handle) => Ok(handle.parts()),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
        // A handle larger than the kernel's own limit is of no use either.
        Err(error) if error.raw_os_error() == Some(libc::EOVERFLOW) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn key_of(status: &Status, parts: Option<&HandleParts>, device: DeviceIndex) -> FileKey {
    let generation = match parts {
        Some(parts) => parts.generation,
        // Without handles the time of creation tells apart those that had the same number.
        None => {
            let seconds = status.btime.seconds as u32;
            seconds.rotate_left(16) ^ status.btime.nanoseconds
        }
    };
    FileKey {
        ino: status.ino,
        generation,
        device,
    }
}
