//! What the ioctls of an open directory answer: scans begun without waiting, and listings page by
//! page.
//!
//! A page begins where the kernel's own reading of the directory would go on, so nothing is kept
//! between two pages, and an entry that is there all the time is listed once.

use super::Passthrough;
use super::error::{Doing, Error, Result};
use super::types::{Caller, HandleId, NodeId};
use super::virtual_xattr::refusal;
use crate::sharing::directories::ScanStep;
use crate::sharing::tree::Child;
use crate::sys::at;
use crate::sys::listing::{HEADER, PAGE};
use crate::vxattr::{self, ChildKind};
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes that the numbers of a row take, as a guess: how many entries are looked at for one page.
const NUMBERS: usize = 32;

/// An entry on its way into a page.
struct Found {
    name: CString,
    child: Child,
    /// Where reading goes on after it.
    next: u64,
    /// The caller could read it.
    readable: bool,
}

impl Passthrough {
    /// How far the scan of a directory is, begun if `input` asks for it; as the ioctl gives it.
    ///
    /// # Errors
    /// `ENOTDIR` for another file, `EINVAL` without input.
    pub(crate) fn scan_step(&self, node: NodeId, input: &[u8]) -> Result<u32> {
        let known = self.inodes.nodes.get(node)?;
        if !known.directory {
            return Err(Error::new(libc::ENOTDIR, "scan"));
        }
        let key = self.inodes.key(node)?;
        let begin = input
            .first_chunk()
            .ok_or(Error::new(libc::EINVAL, "scan"))?;
        let begin = u32::from_ne_bytes(*begin) != 0;
        Ok(match self.directories.scan_step(key, begin) {
            ScanStep::Idle => 0,
            ScanStep::UnderWay => 1,
            ScanStep::Known => 2,
        })
    }

    /// One page of the listing of an open directory, as the ioctl gives it. May take as long as
    /// the engine's `wait`.
    ///
    /// # Errors
    /// As the attribute `children` has, apart from its length.
    pub fn list_page(
        &self,
        caller: Caller,
        (node, handle): (NodeId, HandleId),
        input: &[u8],
    ) -> Result<Vec<u8>> {
        let start = input
            .first_chunk()
            .ok_or(Error::new(libc::EINVAL, "list a directory"))?;
        let mut next = u64::from_ne_bytes(*start);
        let known = self.inodes.nodes.get(node)?;
        if !known.directory {
            return Err(Error::new(libc::ENOTDIR, "list a directory"));
        }
        let fd = self.inodes.fd_of(node, &known)?;
        let owner = at::status(fd.as_fd(), c"")
            .doing("look at a directory")?
            .uid;
        let sees_all = caller.is_root() || caller.uid == owner;
        let (found, mut last) = self.find_entries(caller, (node, handle), fd.as_fd(), next)?;
        let children: Vec<Child> = found.iter().map(|entry| entry.child).collect();
        let numbers = self
            .directories
            .numbers_in(known.key, &children)
            .map_err(refusal)?;
        let mut listing = vxattr::Children::with_limit(PAGE - HEADER);
        for (entry, numbers) in found.iter().zip(numbers) {
            let fits = listing.push(&vxattr::Child {
                kind: kind_of(entry.child),
                numbers: numbers.filter(|_| sees_all || entry.readable),
                name: entry.name.to_bytes().into(),
            });
            if !fits {
                last = false;
                break;
            }
            next = entry.next;
        }
        let text = listing.finish();
        let mut page = Vec::with_capacity(HEADER + text.len());
        page.extend_from_slice(&next.to_ne_bytes());
        page.extend_from_slice(&(text.len() as u32).to_ne_bytes());
        page.extend_from_slice(&u32::from(last).to_ne_bytes());
        page.extend_from_slice(&text);
        Ok(page)
    }

    /// About as many entries from a position on as fit into a page; whether they are the last.
    fn find_entries(
        &self,
        caller: Caller,
        (node, handle): (NodeId, HandleId),
        dir: BorrowedFd<'_>,
        position: u64,
    ) -> Result<(Vec<Found>, bool)> {
        let mut found = Vec::new();
        let mut room = PAGE - HEADER;
        let mut last = true;
        let mut failed = None;
        self.read_dir(node, handle, position, |entry| {
            if matches!(entry.name.to_bytes(), b"." | b"..") {
                return true;
            }
            let needed = NUMBERS + entry.name.to_bytes().len();
            if needed > room {
                last = false;
                return false;
            }
            let (child, readable) = match self.inodes.identify(dir, entry.name) {
                Ok((status, key)) => {
                    let child = if status.mount_root {
                        Child::Other
                    } else if status.is_dir() {
                        Child::Directory(key)
                    } else if status.is_file() {
                        Child::File(key)
                    } else {
                        Child::Other
                    };
                    let readable = status.uid == caller.uid || status.mode & libc::S_IROTH != 0;
                    (child, readable)
                }
                // Removed since it was read: it is right to leave it out.
                Err(error) if matches!(error.errno(), libc::ENOENT | libc::ESTALE) => return true,
                Err(error) => {
                    failed = Some(error);
                    return false;
                }
            };
            room -= needed;
            found.push(Found {
                name: entry.name.to_owned(),
                child,
                next: entry.next,
                readable,
            });
            true
        })?;
        match failed {
            Some(error) if found.is_empty() => Err(error),
            failed => Ok((found, last && failed.is_none())),
        }
    }
}

pub(super) fn kind_of(child: Child) -> ChildKind {
    match child {
        Child::File(_) => ChildKind::File,
        Child::Directory(_) => ChildKind::Directory,
        Child::Other => ChildKind::Other,
    }
}
