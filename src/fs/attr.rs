//! Reading and changing attributes.

use super::Passthrough;
use super::error::{Doing, Error, Result};
use super::process;
use super::types::{Attr, Caller, HandleId, NodeId, SetAttr};
use crate::sharing::{Change, FileKey};
use crate::sys::at::{self, SetTime, Status};
use crate::sys::cred::{AsCaller, KeepSetId};
use crate::sys::data;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

impl Passthrough {
    /// The attributes of a node, through `handle` if the caller has it open.
    ///
    /// # Errors
    /// As stat(2) says.
    pub fn get_attr(&self, node: NodeId, handle: Option<HandleId>) -> Result<Attr> {
        let known = self.inodes.nodes.get(node)?;
        let open = handle.and_then(|handle| self.handles.file(handle).ok());
        let status = match open.as_deref().and_then(|open| open.fd.as_ref()) {
            Some(fd) => at::status(fd.as_fd(), c""),
            None => at::status(self.inodes.fd_of(node, &known)?.as_fd(), c""),
        }
        .doing("read attributes")?;
        Ok(self.attr(node, &known, status))
    }

    /// Changes attributes; what they are then.
    ///
    /// # Errors
    /// As chmod(2), chown(2), truncate(2) and utimensat(2) say.
    pub fn set_attr(
        &self,
        caller: Caller,
        node: NodeId,
        handle: Option<HandleId>,
        set: &SetAttr,
    ) -> Result<Attr> {
        let known = self.inodes.nodes.get(node)?;
        let fd = self.inodes.fd_of(node, &known)?;
        if let Some(mode) = set.mode {
            // The kernel has taken the set-group-id bit away where the caller may not set it.
            let _keep = KeepSetId::new(mode & libc::S_ISGID != 0);
            at::chmod(fd.as_fd(), mode).doing("change the mode")?;
        }
        if set.uid.is_some() || set.gid.is_some() {
            change_owner(caller, &fd, set.uid, set.gid)?;
        }
        if let Some(size) = set.size {
            self.set_size(caller, node, known.key, handle, size)?;
        }
        if set.atime != SetTime::Omit || set.mtime != SetTime::Omit {
            at::set_times(fd.as_fd(), set.atime, set.mtime).doing("change the times")?;
        }
        let status = at::status(fd.as_fd(), c"").doing("read attributes")?;
        Ok(self.attr(node, &known, status))
    }

    fn set_size(
        &self,
        caller: Caller,
        node: NodeId,
        key: FileKey,
        handle: Option<HandleId>,
        size: u64,
    ) -> Result<()> {
        let open = handle.map(|handle| self.handles.file(handle)).transpose()?;
        let _change = self.engine.begin(Change::Truncate(key));
        let _writer = self.as_writer(node, key);
        let _keep = KeepSetId::new(caller.is_root());
        let result = match open.as_deref().filter(|open| open.writes()) {
            Some(open) => open
                .lend(&self.inodes)
                .and_then(|fd| data::truncate(fd.as_fd(), size)),
            None => self
                .inodes
                .open(node, key, libc::O_WRONLY)
                .and_then(|fd| data::truncate(fd.as_fd(), size)),
        };
        result.doing("change the size")
    }
}

/// Changes owner and group as the caller, so that set-id bits go where natively they would.
fn change_owner(
    caller: Caller,
    fd: &Arc<OwnedFd>,
    uid: Option<u32>,
    gid: Option<u32>,
) -> Result<()> {
    let before = at::status(fd.as_fd(), c"").doing("read attributes")?;
    let _keep = KeepSetId::new(caller.is_root());
    let _caller = group_decides(caller, &before).transpose()?;
    at::chown(fd.as_fd(), uid, gid).doing("change the owner")
}

/// Acts as the caller with all groups where a set-group-id bit stands or falls with them.
pub(crate) fn group_decides(caller: Caller, status: &Status) -> Option<Result<AsCaller>> {
    if caller.is_root() || status.mode & libc::S_ISGID == 0 {
        return None;
    }
    let groups = process::groups(caller);
    Some(
        AsCaller::with_groups(caller.uid, caller.gid, &groups).map_err(|error| {
            Error::new(
                error.raw_os_error().unwrap_or(libc::EIO),
                "act as the caller",
            )
        }),
    )
}
