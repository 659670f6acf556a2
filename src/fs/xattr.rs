//! Extended attributes of the backing files. The virtual ones are answered before.

use super::Passthrough;
use super::attr::group_decides;
use super::error::{Doing, Result};
use super::types::{Caller, NodeId};
use crate::sys::at;
use crate::sys::cred::KeepSetId;
use crate::sys::xattr;
use std::ffi::CStr;
use std::os::fd::AsFd;

/// The most that a list of names can be (`XATTR_LIST_MAX`), in bytes.
pub const LARGEST_LIST: usize = 64 * 1024;

/// More than most lists need.
const USUAL_LIST: usize = 1024;

/// What begins the names that only root sees.
const TRUSTED: &[u8] = b"trusted.";
/// The access ACL, which with the caller's groups decides about the set-group-id bit.
const ACCESS_ACL: &CStr = c"system.posix_acl_access";

impl Passthrough {
    /// Reads an attribute into `buffer`; its length. With an empty buffer only the length.
    ///
    /// # Errors
    /// As getxattr(2) says.
    pub fn get_xattr(&self, node: NodeId, name: &CStr, buffer: &mut [u8]) -> Result<usize> {
        let fd = self.inodes.fd(node)?;
        xattr::get(fd.as_fd(), name, buffer).doing("read an attribute")
    }

    /// The names of the attributes that `caller` may see, each terminated by a zero byte, those
    /// apart for which `hidden` says so; with `list_xattrs`, then those of the virtual ones. `buffer` grows to
    /// [`LARGEST_LIST`] bytes at most.
    ///
    /// # Errors
    /// As listxattr(2) says.
    pub fn list_xattrs(
        &self,
        caller: Caller,
        node: NodeId,
        buffer: &mut Vec<u8>,
        hidden: impl Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let fd = self.inodes.fd(node)?;
        let ours = self.listed_virtual_xattrs(node)?;
        buffer.resize(USUAL_LIST, 0);
        let mut listed = xattr::list(fd.as_fd(), buffer);
        if matches!(&listed, Err(error) if error.raw_os_error() == Some(libc::ERANGE)) {
            buffer.resize(LARGEST_LIST, 0);
            listed = xattr::list(fd.as_fd(), buffer);
        }
        let length = match listed {
            // The virtual ones are there nevertheless.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) && !ours.is_empty() => 0,
            other => other.doing("list attributes")?,
        };
        buffer.truncate(length);
        let mut kept = 0;
        let mut at = 0;
        while let Some(rest) = buffer.get(at..).filter(|rest| !rest.is_empty()) {
            let end = rest
                .iter()
                .position(|&byte| byte == 0)
                .map_or(rest.len(), |end| end + 1);
            let name = rest.get(..end.saturating_sub(1)).unwrap_or_default();
            if !hidden(name) && (caller.is_root() || !name.starts_with(TRUSTED)) {
                buffer.copy_within(at..at + end, kept);
                kept += end;
            }
            at += end;
        }
        buffer.truncate(kept);
        for name in ours {
            buffer.extend_from_slice(name.attribute().as_bytes());
            buffer.push(0);
        }
        Ok(())
    }

    /// Sets an attribute, with the flags of setxattr(2).
    ///
    /// # Errors
    /// As setxattr(2) says.
    pub fn set_xattr(
        &self,
        caller: Caller,
        node: NodeId,
        name: &CStr,
        value: &[u8],
        flags: i32,
    ) -> Result<()> {
        let fd = self.inodes.fd(node)?;
        let set = || xattr::set(fd.as_fd(), name, value, flags).doing("set an attribute");
        if name != ACCESS_ACL {
            return set();
        }
        let status = at::status(fd.as_fd(), c"").doing("read attributes")?;
        let _keep = KeepSetId::new(caller.is_root());
        let _caller = group_decides(caller, &status).transpose()?;
        set()
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// As removexattr(2) says.
    pub fn remove_xattr(&self, node: NodeId, name: &CStr) -> Result<()> {
        let fd = self.inodes.fd(node)?;
        xattr::remove(fd.as_fd(), name).doing("remove an attribute")
    }
}
