//! Where inodes were met by a scan, for where they cannot be opened by handle.
//!
//! A place is a hint: what is found there is compared with what was meant, and a scan that misses
//! something reads its directory again, which notes the new place.
//!
//! Invariant: an inode number has one place at most, so that there are never more places than the
//! filesystem has inodes.

use crate::sharing::{DeviceIndex, FileKey};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::CStr;

/// The directory and the name where an inode was met.
#[derive(Clone, Debug)]
pub(super) struct Met {
    /// Generation of the inode.
    generation: u32,
    /// The directory.
    pub(super) directory: FileKey,
    /// The name.
    pub(super) name: Box<CStr>,
}

/// All places.
#[derive(Debug, Default)]
pub(super) struct Places {
    met: Mutex<HashMap<(DeviceIndex, u64), Met>>,
}

impl Places {
    /// Notes where an inode is.
    pub(super) fn note(&self, directory: FileKey, name: &CStr, key: FileKey) {
        let met = Met {
            generation: key.generation,
            directory,
            name: name.into(),
        };
        self.met.lock().insert((key.device, key.ino), met);
    }

    /// Notes that an inode is somewhere else now, if it was met before.
    pub(super) fn update(&self, directory: FileKey, name: &CStr, key: FileKey) {
        if let Some(met) = self.met.lock().get_mut(&(key.device, key.ino)) {
            *met = Met {
                generation: key.generation,
                directory,
                name: name.into(),
            };
        }
    }

    /// Notes that an inode is not there any more.
    pub(super) fn lose(&self, directory: FileKey, name: &CStr, key: FileKey) {
        let mut all = self.met.lock();
        let is_it = all.get(&(key.device, key.ino)).is_some_and(|met| {
            met.generation == key.generation && met.directory == directory && *met.name == *name
        });
        if is_it {
            all.remove(&(key.device, key.ino));
        }
    }

    /// Where an inode was met last.
    pub(super) fn get(&self, key: FileKey) -> Option<Met> {
        let all = self.met.lock();
        let met = all.get(&(key.device, key.ino))?;
        (met.generation == key.generation).then(|| met.clone())
    }
}
