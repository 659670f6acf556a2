//! Directories of the real disk, as a scan reads them.
//!
//! A file is opened by its name, and is what it is by its descriptor: inode number and device by
//! `statx`, generation by `FS_IOC_GETVERSION`, which together cost less than a look by name.

use super::backing::{DiskBacking, DiskFile};
use super::device::Device;
use super::inodes::{key_of, parts_of};
use crate::extent::{Bytes, Physical};
use crate::sharing::walk::{Identity, Kind, Name, Opened, Walk};
use crate::sharing::{DeviceIndex, FileKey, Stamp};
use crate::sys::at::{self, Status};
use crate::sys::dir::{self, Entry};
use crate::sys::version;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Bytes of entries that are read in one call.
const BUFFER: usize = 32 << 10;

/// A directory open for reading.
pub struct DiskDirectory {
    fd: OwnedFd,
    key: FileKey,
    /// What is in it cannot be opened by handle.
    by_name: bool,
    device: Arc<Device>,
    number: u64,
    buffer: Vec<u8>,
    /// What is left of the entries in the buffer.
    rest: std::ops::Range<usize>,
}

impl DiskDirectory {
    /// The next entry in the buffer.
    fn next(&mut self) -> Option<Entry<'_>> {
        let (entry, length) = dir::entry(self.buffer.get(self.rest.clone())?)?;
        self.rest.start += length;
        Some(entry)
    }

    /// Attributes of a name in it.
    pub(super) fn status(&self, name: &CStr) -> io::Result<Status> {
        at::status(self.fd.as_fd(), name)
    }

    /// Reads more entries; `false` at the end.
    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.resize(BUFFER, 0);
        let length = dir::read(self.fd.as_fd(), &mut self.buffer)?;
        self.rest = 0..length;
        Ok(length > 0)
    }
}

impl DiskBacking {
    /// The device of something met in a directory; `None` where it is another filesystem's.
    fn device_below(
        &self,
        directory: &DiskDirectory,
        status: &Status,
        open: impl FnOnce() -> io::Result<OwnedFd>,
    ) -> io::Result<Option<Arc<Device>>> {
        if status.device == directory.number {
            return Ok(Some(Arc::clone(&directory.device)));
        }
        let device = self.devices().learn(open()?.as_fd())?;
        Ok((device.space.index == directory.device.space.index).then_some(device))
    }

    /// Notes where something is, if that is the only way to find it again.
    fn note_place(&self, directory: &DiskDirectory, name: &Name, key: FileKey) {
        if directory.by_name
            && let Some(resolver) = self.resolver()
        {
            resolver.met(directory.key, &name.text, key);
        }
    }
}

/// The identity of an open file with this status.
fn key_of_open(fd: BorrowedFd<'_>, status: &Status, device: &Device) -> io::Result<FileKey> {
    if device.format.is_some()
        && let Ok(generation) = version::of(fd)
    {
        return Ok(FileKey {
            ino: status.ino,
            generation,
            device: device.index,
        });
    }
    Ok(key_of(status, parts_of(fd, c"")?.as_ref(), device.index))
}

fn stamp_of(status: &Status, device: &Device) -> Stamp {
    Stamp {
        ctime: (status.ctime.seconds, status.ctime.nanoseconds),
        size: Bytes(status.size),
        block: device.space.block,
        links: status.links,
    }
}

impl Walk for DiskBacking {
    type Directory = DiskDirectory;

    fn open_directory(&self, directory: FileKey) -> io::Result<DiskDirectory> {
        let (device, fd) = self.open_directory_inode(directory)?;
        let number = at::status(fd.as_fd(), c"")?.device;
        Ok(DiskDirectory {
            fd,
            key: directory,
            by_name: !(device.space.handles && device.format.is_some()),
            device,
            number,
            buffer: Vec::new(),
            rest: 0..0,
        })
    }

    fn read_directory(
        &self,
        directory: &mut DiskDirectory,
        most: usize,
        names: &mut Vec<Name>,
    ) -> io::Result<bool> {
        let mut found = 0;
        while found < most {
            let Some(entry) = directory.next() else {
                if directory.fill()? {
                    continue;
                }
                return Ok(false);
            };
            if matches!(entry.name.to_bytes(), b"." | b"..") {
                continue;
            }
            names.push(Name {
                text: entry.name.to_owned(),
                kind: match entry.kind {
                    libc::DT_REG => Kind::File,
                    libc::DT_DIR => Kind::Directory,
                    libc::DT_UNKNOWN => Kind::Unknown,
                    _ => Kind::Other,
                },
                ino: entry.ino,
            });
            found += 1;
        }
        Ok(true)
    }

    fn identify(&self, directory: &DiskDirectory, name: &Name) -> io::Result<Identity> {
        if name.kind == Kind::Other {
            return Ok(Identity::Other);
        }
        let fd = directory.fd.as_fd();
        let status = at::status(fd, &name.text)?;
        if !status.is_file() && !status.is_dir() {
            return Ok(Identity::Other);
        }
        if status.mount_root {
            // Also when it is a part of this filesystem: it would be met twice, or above itself.
            return Ok(Identity::Elsewhere);
        }
        let open = || at::open_beneath(fd, &name.text, libc::O_PATH | libc::O_NOFOLLOW, 0);
        let Some(device) = self.device_below(directory, &status, open)? else {
            return Ok(Identity::Elsewhere);
        };
        let parts = if device.format.is_some() {
            parts_of(fd, &name.text)?
        } else {
            None
        };
        if parts.as_ref().is_some_and(|parts| parts.ino != status.ino) {
            // The name was given to another inode between the two looks.
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        let key = key_of(&status, parts.as_ref(), device.index);
        self.note_place(directory, name, key);
        Ok(if status.is_dir() {
            Identity::Directory(key)
        } else {
            Identity::File {
                key,
                stamp: stamp_of(&status, &device),
            }
        })
    }

    fn open_named(
        &self,
        directory: &DiskDirectory,
        name: &Name,
    ) -> io::Result<Option<Opened<DiskFile>>> {
        // Without blocking: the name may stand for a pipe by now.
        const FLAGS: OFlag = OFlag::O_NOFOLLOW
            .union(OFlag::O_NONBLOCK)
            .union(OFlag::O_NOCTTY)
            .union(OFlag::O_CLOEXEC);
        // A name read from a directory is one component, so that nothing leads out of it.
        let open = |flags| openat(&directory.fd, name.text.as_c_str(), flags, Mode::empty());
        let opened = match open(FLAGS | OFlag::O_NOATIME) {
            // Only the owner may leave the access time alone; nothing is read, so it stays.
            Err(Errno::EPERM) => open(FLAGS),
            opened => opened,
        };
        let fd = match opened {
            Ok(fd) => fd,
            // A symbolic link, or a device without a driver.
            Err(Errno::ELOOP | Errno::ENXIO) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let status = at::status(fd.as_fd(), c"")?;
        if !status.is_file() || status.device != directory.number || status.mount_root {
            return Ok(None);
        }
        let device = &directory.device;
        let key = key_of_open(fd.as_fd(), &status, device)?;
        self.note_place(directory, name, key);
        Ok(Some(Opened {
            key,
            file: DiskFile::new(fd, key.ino, device),
            stamp: stamp_of(&status, device),
        }))
    }

    fn group(&self, directory: FileKey) -> u32 {
        self.geometry(directory.device)
            .map_or(0, |geometry| geometry.group_of(directory.ino))
    }

    fn group_at(&self, device: DeviceIndex, address: Physical) -> Option<u32> {
        let geometry = self.geometry(device)?;
        let bytes = u64::from(geometry.group_blocks) * u64::from(geometry.block);
        u32::try_from(address.0.checked_div(bytes)?).ok()
    }
}
