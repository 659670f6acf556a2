//! Making files, directories, symlinks, nodes and links, as the caller.
//!
//! The umask is applied by the backing filesystem, so that a default ACL takes its place. A
//! set-group-id bit that the kernel let pass is kept: it knows the caller's groups.

use super::Passthrough;
use super::error::{Doing, Result};
use super::names::{Naming, child_of};
use super::types::{Caller, Entry, Name, NodeId, Opened};
use crate::sharing::FileKey;
use crate::sys::at::{self, Status};
use crate::sys::cred::{self, AsCaller, KeepSetId};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The permissions asked for and the mask to apply where there is no default ACL.
#[derive(Clone, Copy, Debug)]
pub struct Permissions {
    /// As the caller gave them.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
}

impl Passthrough {
    /// Makes a regular file, FIFO, socket or device node.
    ///
    /// # Errors
    /// As mknod(2) says.
    pub fn mknod(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &Name,
        permissions: Permissions,
        rdev: (u32, u32),
    ) -> Result<Entry> {
        let dir = self.inodes.fd(parent)?;
        let names = self.naming(parent)?;
        let made = as_caller(caller, permissions, || {
            at::mknod(dir.as_fd(), name.as_c_str(), permissions.mode, rdev)
        });
        let names = names.unless_failed(&made);
        made.doing("make a node")?;
        let (status, key) = self.inodes.identify(dir.as_fd(), name.as_c_str())?;
        if status.is_file() {
            self.engine.created(key);
        }
        added(names, (status, key));
        Ok(self.entry(parent, name.as_c_str(), &status, key))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As mkdir(2) says.
    pub fn mkdir(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &Name,
        permissions: Permissions,
    ) -> Result<Entry> {
        let dir = self.inodes.fd(parent)?;
        let names = self.naming(parent)?;
        let made = as_caller(caller, permissions, || {
            at::mkdir(dir.as_fd(), name.as_c_str(), permissions.mode & 0o7777)
        });
        let names = names.unless_failed(&made);
        made.doing("make a directory")?;
        self.made(parent, dir.as_fd(), name, names)
    }

    /// Makes a symlink.
    ///
    /// # Errors
    /// As symlink(2) says.
    pub fn symlink(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &Name,
        target: &CStr,
    ) -> Result<Entry> {
        let dir = self.inodes.fd(parent)?;
        let _caller = AsCaller::new(caller.uid, caller.gid);
        at::symlink(target, dir.as_fd(), name.as_c_str()).doing("make a symlink")?;
        // Symlinks hold nothing that can be shared: totals need not be told.
        self.made(parent, dir.as_fd(), name, None)
    }

    /// Gives a node another name.
    ///
    /// # Errors
    /// As link(2) says.
    pub fn link(&self, node: NodeId, parent: NodeId, name: &Name) -> Result<Entry> {
        let known = self.inodes.nodes.get(node)?;
        let fd = self.inodes.fd_of(node, &known)?;
        let dir = self.inodes.fd(parent)?;
        let names = self.naming(parent)?;
        let made = at::link(fd.as_fd(), dir.as_fd(), name.as_c_str());
        let names = names.unless_failed(&made);
        made.doing("make a link")?;
        self.inodes.moved(parent, name.as_c_str(), known.key);
        self.inodes
            .nodes
            .with_open(node, known.key, |open| open.unnamed = false);
        self.made(parent, dir.as_fd(), name, names)
    }

    /// Where a symlink leads, written into `buffer`; its length.
    ///
    /// # Errors
    /// As readlink(2) says.
    pub fn readlink(&self, node: NodeId, buffer: &mut [u8]) -> Result<usize> {
        let fd = self.inodes.fd(node)?;
        at::readlink(fd.as_fd(), buffer).doing("read a symlink")
    }

    /// Creates a regular file and opens it; opens the one that is there meanwhile unless `flags`
    /// has `O_EXCL`. The third value is a descriptor by which the kernel can be told the backing
    /// file, when the I/O is to be its own.
    ///
    /// # Errors
    /// As open(2) says.
    pub fn create(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &Name,
        permissions: Permissions,
        flags: i32,
    ) -> Result<(Entry, Opened, Option<OwnedFd>)> {
        let dir = self.inodes.fd(parent)?;
        let passthrough = self.wants_passthrough();
        // With kernel passthrough the kernel opens the file itself, by any descriptor of it: one
        // for reading keeps nothing open for write.
        let access = if passthrough {
            libc::O_RDONLY | flags & libc::O_DIRECT
        } else {
            flags & libc::O_ACCMODE
        };
        let names = self.naming(parent)?;
        let created = as_caller(caller, permissions, || {
            at::open_beneath(
                dir.as_fd(),
                name.as_c_str(),
                access | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW,
                permissions.mode,
            )
        });
        let names = names.unless_failed(&created);
        let fd = match created {
            Ok(fd) => fd,
            Err(error)
                if error.raw_os_error() == Some(libc::EEXIST) && flags & libc::O_EXCL == 0 =>
            {
                let entry = self.lookup(parent, name)?;
                let opened = self.open(caller, entry.attr.node, flags & !libc::O_CREAT);
                return match opened {
                    Ok(opened) => Ok((entry, opened, None)),
                    Err(error) => {
                        self.forget(entry.attr.node, 1);
                        Err(error)
                    }
                };
            }
            Err(error) => return Err(error).doing("create a file"),
        };
        let (status, key) = self.inodes.identify(fd.as_fd(), c"")?;
        self.engine.created(key);
        added(names, (status, key));
        let (node, _) = self.inodes.remember(parent, name.as_c_str(), &status, key);
        let opened = self.opened_new(node, key, flags, passthrough, fd);
        let known = self.inodes.nodes.get(node)?;
        let entry = Entry {
            attr: self.attr(node, &known, status),
            generation: u64::from(key.generation),
            ttl: self.entry_timeout(parent, key),
        };
        Ok((entry, opened.0, opened.1))
    }

    fn made(
        &self,
        parent: NodeId,
        dir: BorrowedFd<'_>,
        name: &Name,
        names: Option<Naming<'_>>,
    ) -> Result<Entry> {
        let (status, key) = self.inodes.identify(dir, name.as_c_str())?;
        added(names, (status, key));
        Ok(self.entry(parent, name.as_c_str(), &status, key))
    }
}

/// Tells that what was made is there.
fn added(names: Option<Naming<'_>>, made: (Status, FileKey)) {
    if let Some(names) = names {
        names.added(child_of(&made));
    }
}

/// Creates as the caller, with its umask.
fn as_caller<T>(
    caller: Caller,
    permissions: Permissions,
    create: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    cred::set_umask(permissions.umask)?;
    let _keep = KeepSetId::new(permissions.mode & (libc::S_ISGID | libc::S_ISUID) != 0);
    let _caller = AsCaller::new(caller.uid, caller.gid);
    create()
}
