//! Extended attributes: the virtual ones from the engine, all others from the backing file.
//!
//! The virtual ones are answered on the request's thread when that needs no slow work. A real
//! attribute below their prefix is neither read nor listed, and nothing is ever stored there.

use super::adapter::{Adapter, with_room};
use super::convert::errno;
use crate::fs::{Caller, Error, NodeId};
use crate::vxattr::{Name, PREFIX, Parsed, Text};
use fuser::{Errno, ReplyEmpty, ReplyXattr};
use std::cell::RefCell;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Longest name of an attribute (`XATTR_NAME_MAX`) with its terminator, in bytes.
const LONGEST_NAME: usize = 256;

thread_local! {
    static NAMES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Whether the name is below the prefix of the virtual attributes.
pub(super) fn is_virtual(name: &OsStr) -> bool {
    name.as_bytes().starts_with(PREFIX.as_bytes())
}

/// Setting and removing virtual attributes: refused, or where they are listed passed over in
/// silence, so that programs that copy attributes are content.
pub(super) fn refuse_change(adapter: &Adapter, reply: ReplyEmpty) {
    if adapter.fs.options().list_xattrs {
        reply.ok();
    } else {
        reply.error(Errno::EPERM);
    }
}

pub(super) fn get(
    adapter: &Adapter,
    caller: Caller,
    node: NodeId,
    name: &OsStr,
    size: u32,
    reply: ReplyXattr,
) {
    match Name::parse(name) {
        Parsed::NotOurs => get_real(adapter, node, name, size, reply),
        Parsed::Unknown => reply.error(Errno::ENODATA),
        Parsed::Known(name) => match adapter.fs.virtual_xattr_now(node, name) {
            Ok(Some(text)) => reply_value(&text, size, reply),
            Ok(None) => {
                let fs = Arc::clone(&adapter.fs);
                adapter.pool.run(move || {
                    reply_text(fs.virtual_xattr(caller, node, name), size, reply);
                });
            }
            Err(error) => reply.error(errno(error)),
        },
    }
}

fn get_real(adapter: &Adapter, node: NodeId, name: &OsStr, size: u32, reply: ReplyXattr) {
    let mut terminated = [0; LONGEST_NAME];
    let bytes = name.as_bytes();
    match terminated.get_mut(..bytes.len()) {
        Some(room) if bytes.len() < LONGEST_NAME => room.copy_from_slice(bytes),
        _ => return reply.error(Errno::ERANGE),
    }
    let Ok(name) = CStr::from_bytes_until_nul(&terminated) else {
        return reply.error(Errno::EINVAL);
    };
    with_room(size as usize, |room| {
        match adapter.fs.get_xattr(node, name, room) {
            Ok(length) if size == 0 => reply.size(length as u32),
            Ok(length) => reply.data(room.get(..length).unwrap_or_default()),
            Err(error) => reply.error(errno(error)),
        }
    });
}

pub(super) fn list(adapter: &Adapter, caller: Caller, node: NodeId, size: u32, reply: ReplyXattr) {
    let fs = &adapter.fs;
    let mut names = NAMES.take();
    let hidden = |name: &[u8]| name.starts_with(PREFIX.as_bytes());
    match fs.list_xattrs(caller, node, &mut names, hidden) {
        Ok(()) => reply_value(&names, size, reply),
        Err(error) => reply.error(errno(error)),
    }
    NAMES.set(names);
}

fn reply_text(text: Result<Text, Error>, size: u32, reply: ReplyXattr) {
    match text {
        Ok(text) => reply_value(&text, size, reply),
        Err(error) => reply.error(errno(error)),
    }
}

/// Replies with the length if that is what was asked, else with the value if it fits.
fn reply_value(value: &[u8], size: u32, reply: ReplyXattr) {
    if size == 0 {
        reply.size(value.len() as u32);
    } else if value.len() <= size as usize {
        reply.data(value);
    } else {
        reply.error(Errno::ERANGE);
    }
}
