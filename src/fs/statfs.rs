//! How full the backing filesystem is.

use super::Passthrough;
use super::error::{Doing, Result};
use super::types::NodeId;
use std::io;
use std::os::fd::AsFd;

/// What statfs(2) says, in units of `fragment` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Size.
    pub blocks: u64,
    /// Free.
    pub free: u64,
    /// Free for users.
    pub available: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub free_files: u64,
    /// Preferred size of I/O.
    pub block: u32,
    /// The unit.
    pub fragment: u32,
    /// Longest name.
    pub longest_name: u32,
}

impl Passthrough {
    /// How full the filesystem of `node` is.
    ///
    /// # Errors
    /// As fstatfs(2) says.
    pub fn statfs(&self, node: NodeId) -> Result<Space> {
        let fd = self.inodes.fd(node)?;
        let space = nix::sys::statvfs::fstatvfs(fd.as_fd())
            .map_err(io::Error::from)
            .doing("ask how full the filesystem is")?;
        Ok(Space {
            blocks: space.blocks(),
            free: space.blocks_free(),
            available: space.blocks_available(),
            files: space.files(),
            free_files: space.files_free(),
            block: u32::try_from(space.block_size()).unwrap_or(4096),
            fragment: u32::try_from(space.fragment_size()).unwrap_or(4096),
            longest_name: u32::try_from(space.name_max()).unwrap_or(255),
        })
    }
}
