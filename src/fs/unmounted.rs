//! A directory read without a mount: the engine on the disk, for one look at what is below.
//!
//! Where the kernel does not open files by handle (ordinary users), the names are noted first, and
//! every file is opened by the name under which it was found, if that still leads to it.

use super::backing::{DiskBacking, Resolve};
use super::device::DeviceTable;
use super::inodes::{key_of, parts_of};
use super::{Engine, SCAN_WORKERS};
use crate::sharing::walk::{Identity, Walk};
use crate::sharing::{Directories, FileKey, Limits};
use crate::sys::at;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// A directory and what answers questions about it.
pub struct Unmounted {
    directories: Arc<Directories<DiskBacking>>,
    root: FileKey,
    /// Held for the disk, which asks it.
    _places: Option<Arc<Places>>,
}

/// Where files were found.
#[derive(Default)]
struct Places {
    paths: RwLock<HashMap<FileKey, PathBuf>>,
}

impl Unmounted {
    /// Makes ready to answer about the directory at `path`.
    ///
    /// # Errors
    /// Of opening the directory, or of asking about its filesystem.
    pub fn open(path: &Path, limits: Limits) -> io::Result<Self> {
        let source = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY)
            .open(path)?;
        let devices = Arc::new(DeviceTable::new(source.as_fd())?);
        let device = devices.learn(source.as_fd())?;
        let status = at::status(source.as_fd(), c"")?;
        let root = key_of(
            &status,
            parts_of(source.as_fd(), c"")?.as_ref(),
            device.index,
        );
        let by_handle = device.space.handles && device.format.is_some();
        let backing = DiskBacking::new(devices);
        let places = (!by_handle).then(|| Arc::new(Places::default()));
        if let Some(places) = &places {
            let resolver: Weak<dyn Resolve> =
                Arc::downgrade(&(Arc::clone(places) as Arc<dyn Resolve>));
            backing.resolve_through(resolver);
            places.find_all(&backing, root, path)?;
        }
        let engine = Engine::new(backing, limits);
        Ok(Self {
            directories: Directories::new(engine, SCAN_WORKERS),
            root,
            _places: places,
        })
    }

    /// What answers.
    #[must_use]
    pub fn directories(&self) -> &Arc<Directories<DiskBacking>> {
        &self.directories
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> FileKey {
        self.root
    }
}

impl Places {
    /// Notes everything at and below a directory. What may not be read is left to the scan, which
    /// counts it.
    fn find_all(&self, backing: &DiskBacking, root: FileKey, path: &Path) -> io::Result<()> {
        self.paths.write().insert(root, path.canonicalize()?);
        let mut next = vec![root];
        while let Some(key) = next.pop() {
            let Some(path) = self.paths.read().get(&key).cloned() else {
                continue;
            };
            let Ok(mut directory) = backing.open_directory(key) else {
                continue;
            };
            let mut names = Vec::new();
            while backing.read_directory(&mut directory, usize::MAX, &mut names)? {}
            for name in names {
                let (key, is_directory) = match backing.identify(&directory, &name) {
                    Ok(Identity::File { key, .. }) => (key, false),
                    Ok(Identity::Directory(key)) => (key, true),
                    _ => continue,
                };
                let below = path.join(OsStr::from_bytes(name.text.to_bytes()));
                if let Entry::Vacant(place) = self.paths.write().entry(key) {
                    place.insert(below);
                    next.extend(is_directory.then_some(key));
                }
            }
        }
        Ok(())
    }
}

impl Resolve for Places {
    fn open(&self, file: FileKey) -> io::Result<OwnedFd> {
        let stale = || io::Error::from_raw_os_error(libc::ESTALE);
        let path = self.paths.read().get(&file).cloned().ok_or_else(stale)?;
        let opened: File = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(path)?;
        let status = at::status(opened.as_fd(), c"")?;
        let parts = parts_of(opened.as_fd(), c"")?;
        if key_of(&status, parts.as_ref(), file.device) == file {
            Ok(opened.into())
        } else {
            Err(stale())
        }
    }

    fn open_directory(&self, directory: FileKey) -> io::Result<OwnedFd> {
        self.open(directory)
    }
}
