//! The virtual attributes: which question a name asks, and the engine's answer as text.

use super::Passthrough;
use super::error::{Doing, Error, Result};
use super::listing::kind_of;
use super::types::{Caller, NodeId};
use crate::extent::ShareSummary;
use crate::sharing::{AskError, FileKey};
use crate::sys::at;
use crate::vxattr::{self, FileNumbers, Kind, Name, Question, Text};
use std::os::fd::AsFd;

pub(super) const ABSENT: Error = Error::new(libc::ENODATA, "read a virtual attribute");

impl Passthrough {
    /// The value of a virtual attribute if it needs no slow work; `None` when it does, and
    /// [`Passthrough::virtual_xattr`] is to be asked where waiting holds nobody up.
    ///
    /// # Errors
    /// `ENODATA` when there is none, `ESTALE` when the inode is gone.
    pub fn virtual_xattr_now(&self, node: NodeId, name: Name) -> Result<Option<Text>> {
        let (key, kind) = self.asked(node, name)?;
        match (name.question(), kind) {
            (Question::Version, _) => Ok(Some(env!("CARGO_PKG_VERSION").into())),
            (Question::Numbers, Kind::File) => {
                let known = if name.has_peers() {
                    self.directories.peek_with_peers(self.root_key()?, key)
                } else {
                    self.engine.peek(key).map(|summary| (summary, None))
                };
                match known {
                    Some((summary, peers)) => value(name, summary, peers).map(Some),
                    None => Ok(None),
                }
            }
            (Question::Numbers, Kind::Directory | Kind::MountRoot) => {
                match self.directories.peek(key) {
                    Some(totals) => vxattr::directory(name, &totals).ok_or(ABSENT).map(Some),
                    None => Ok(None),
                }
            }
            (Question::Stats | Question::Map | Question::Peers | Question::Children, _) => Ok(None),
        }
    }

    /// The value of a virtual attribute, which may take as long as the engine's `wait`.
    ///
    /// # Errors
    /// `ENODATA` when there is none or it cannot be known, `EAGAIN` when it is not known in time,
    /// `ESTALE` when the inode is gone, else as the filesystem below says.
    pub fn virtual_xattr(&self, caller: Caller, node: NodeId, name: Name) -> Result<Text> {
        let (key, kind) = self.asked(node, name)?;
        match (name.question(), kind) {
            (Question::Version, _) => Ok(env!("CARGO_PKG_VERSION").into()),
            (Question::Stats, _) => self.stats(),
            (Question::Numbers, Kind::File) if name.has_peers() => {
                let found = self.directories.with_peers(self.root_key()?, key);
                let (summary, peers) = found.map_err(refusal)?;
                value(name, summary, peers)
            }
            (Question::Numbers, Kind::File) => {
                value(name, self.engine.summary(key).map_err(refusal)?, None)
            }
            (Question::Map, Kind::File) => {
                let map = self.engine.map(key).map_err(refusal)?;
                vxattr::map(&map).ok_or(ABSENT)
            }
            (Question::Numbers, Kind::Directory | Kind::MountRoot) => {
                let totals = self.directories.totals(key).map_err(refusal)?;
                vxattr::directory(name, &totals).ok_or(ABSENT)
            }
            (Question::Children, _) => self.children(caller, node, key),
            (Question::Peers, Kind::File) => {
                let peers = self.directories.peers(self.root_key()?, key);
                let peers = peers.map_err(refusal)?;
                let peers = peers.ok_or(ABSENT)?;
                Ok(Text::number(peers))
            }
            (Question::Map | Question::Peers, _) => Err(ABSENT),
        }
    }

    /// The entries of a directory with their numbers, as far as the caller may see them.
    fn children(&self, caller: Caller, node: NodeId, key: FileKey) -> Result<Text> {
        let rows = self.directories.children(key).map_err(refusal)?;
        let dir = self.inodes.fd(node)?;
        let owner = at::status(dir.as_fd(), c"")
            .doing("look at a directory")?
            .uid;
        let sees_all = caller.uid == 0 || caller.uid == owner;
        let mut listing = vxattr::Children::new();
        for row in rows {
            let may_see = || {
                at::status(dir.as_fd(), &row.name).is_ok_and(|status| {
                    status.uid == caller.uid || status.mode & libc::S_IROTH != 0
                })
            };
            let fits = listing.push(&vxattr::Child {
                kind: kind_of(row.child),
                numbers: row.numbers.filter(|_| sees_all || may_see()),
                name: row.name.to_bytes().into(),
            });
            if !fits {
                return Err(ABSENT);
            }
        }
        Ok(listing.finish())
    }

    /// The virtual attributes that are listed for a node: none of what has none (the kernel lets
    /// nobody ask anything but regular files and directories).
    pub(super) fn listed_virtual_xattrs(&self, node: NodeId) -> Result<Vec<Name>> {
        if !self.options.list_xattrs {
            return Ok(Vec::new());
        }
        let kind = self.kind(node)?;
        if kind == Kind::File {
            let fd = self.inodes.fd(node)?;
            let status = at::status(fd.as_fd(), c"").doing("read attributes")?;
            if !status.is_file() {
                return Ok(Vec::new());
            }
        }
        Ok(Name::listed(kind).collect())
    }

    fn root_key(&self) -> Result<FileKey> {
        self.inodes.key(NodeId::ROOT)
    }

    fn kind(&self, node: NodeId) -> Result<Kind> {
        Ok(match self.inodes.nodes.get(node)?.directory {
            _ if node == NodeId::ROOT => Kind::MountRoot,
            true => Kind::Directory,
            false => Kind::File,
        })
    }

    fn asked(&self, node: NodeId, name: Name) -> Result<(crate::sharing::FileKey, Kind)> {
        let kind = self.kind(node)?;
        if name.exists_on(kind) {
            Ok((self.inodes.key(node)?, kind))
        } else {
            Err(ABSENT)
        }
    }

    /// The counters of the mount.
    fn stats(&self) -> Result<Text> {
        #[derive(serde::Serialize)]
        struct Shown<'a> {
            #[serde(flatten)]
            engine: crate::sharing::Stats,
            scan: crate::sharing::scan::ScanState,
            tree_files: usize,
            tree_directories: usize,
            tree_memory_bytes: usize,
            inodes_known: usize,
            mounted_with: &'a str,
            kernel_passthrough: bool,
            /// Changes behind the mount are seen as they happen.
            watching: bool,
            /// The kernel is told of them, and so believes names and attributes for long.
            following: bool,
        }
        let (tree_memory_bytes, tree_files, tree_directories) = self.directories.memory();
        let shown = Shown {
            engine: self.engine.stats(),
            scan: self.directories.scan_state(),
            tree_files,
            tree_directories,
            tree_memory_bytes,
            inodes_known: self.inodes.count(),
            mounted_with: &self.options.mounted_with,
            kernel_passthrough: self.wants_passthrough(),
            watching: self.inodes.devices().watches_all() && self.engine.backing().hears(),
            following: self.follows(crate::sharing::DeviceIndex(0)),
        };
        serde_json::to_string(&shown)
            .map(|text| text.as_str().into())
            .map_err(|_| Error::new(libc::EIO, "write the counters"))
    }
}

fn value(name: Name, summary: ShareSummary, peers: Option<u64>) -> Result<Text> {
    let numbers = FileNumbers { summary, peers };
    vxattr::file(name, &numbers).ok_or(ABSENT)
}

pub(super) fn refusal(error: AskError) -> Error {
    const DOING: &str = "ask how much is shared";
    match error {
        AskError::Again => Error::new(libc::EAGAIN, DOING),
        AskError::CannotSay => Error::new(libc::ENODATA, DOING),
        AskError::Gone => Error::new(libc::ESTALE, DOING),
        AskError::Io(error) => Error::new(error.raw_os_error().unwrap_or(libc::EIO), DOING),
    }
}
