//! Inode flags and project ids by ioctl, and those of sharelens's own ioctls that are
//! answered at once.

use super::Passthrough;
use super::error::{Doing, Error, Result};
use super::types::{Caller, NodeId};
use crate::sys::fileattr::{self, FSXATTR, number};
use crate::sys::listing::SCAN;
use crate::sys::refresh::REFRESH;
use smallvec::SmallVec;
use std::os::fd::AsFd;

/// What an ioctl gives back to the program.
pub type IoctlOutput = SmallVec<[u8; FSXATTR]>;

impl Passthrough {
    /// Answers an ioctl of a regular file or directory.
    ///
    /// # Errors
    /// `ENOTTY` for one that is not known, else as ioctl_iflags(2) says.
    pub fn ioctl(
        &self,
        caller: Caller,
        node: NodeId,
        request: u32,
        input: &[u8],
    ) -> Result<IoctlOutput> {
        if request == REFRESH {
            self.refresh(caller, node)?;
            return Ok(SmallVec::new());
        }
        if request == SCAN {
            let step = self.scan_step(node, input)?;
            return Ok(SmallVec::from_slice(&step.to_ne_bytes()));
        }
        let unknown = Error::new(libc::ENOTTY, "ioctl");
        let known = matches!(
            request,
            number::GET_FLAGS
                | number::GET_FLAGS_32
                | number::SET_FLAGS
                | number::SET_FLAGS_32
                | number::GET_FSXATTR
                | number::SET_FSXATTR
        );
        if !known {
            return Err(unknown);
        }
        let key = self.inodes.key(node)?;
        let fd = self.inodes.open(node, key, libc::O_RDONLY).doing("ioctl")?;
        let short = Error::new(libc::EINVAL, "ioctl");
        match request {
            number::GET_FLAGS | number::GET_FLAGS_32 => {
                let flags = fileattr::flags(fd.as_fd()).doing("read inode flags")?;
                Ok(SmallVec::from_slice(&flags.to_ne_bytes()))
            }
            number::SET_FLAGS | number::SET_FLAGS_32 => {
                let flags = input.first_chunk().ok_or(short)?;
                fileattr::set_flags(fd.as_fd(), u32::from_ne_bytes(*flags))
                    .doing("set inode flags")?;
                Ok(SmallVec::new())
            }
            number::GET_FSXATTR => {
                let value = fileattr::fsxattr(fd.as_fd()).doing("read inode flags")?;
                Ok(SmallVec::from_slice(&value))
            }
            _ => {
                let value = input.first_chunk().ok_or(short)?;
                fileattr::set_fsxattr(fd.as_fd(), value).doing("set inode flags")?;
                Ok(SmallVec::new())
            }
        }
    }

    /// Forgets what is known of a file, and of those that share with it; of a directory, all that
    /// is known at all. Only root and the owner of the mount may, since it costs everybody.
    fn refresh(&self, caller: Caller, node: NodeId) -> Result<()> {
        if !caller.is_root() && caller.uid != nix::unistd::geteuid().as_raw() {
            return Err(Error::new(libc::EPERM, "refresh"));
        }
        let known = self.inodes.nodes.get(node)?;
        if known.directory {
            self.engine.refresh(None);
            self.directories.refresh();
            self.drop_caches(None);
        } else {
            self.engine.refresh(Some(known.key));
            self.drop_caches(Some(node));
        }
        Ok(())
    }
}
