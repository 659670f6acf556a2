//! Watching whole filesystems with fanotify: which inodes others change.
//!
//! One group watches any number of filesystems. Events carry file handles, not descriptors, so
//! that reading them opens nothing and needs no path. An event is readable by the time the call
//! that caused it returned. Not reported as they happen: stores through mappings, writes through
//! libaio, `FIDEDUPERANGE`, writeback; the close of a descriptor open for write is reported.
//! Needs `CAP_SYS_ADMIN`.

use super::handle::RawHandle;
use super::{check, field};
use smallvec::SmallVec;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// What is asked for: changes of data and of attributes, removal, and changes of directories.
const WATCHED: u64 = libc::FAN_MODIFY
    | libc::FAN_CLOSE_WRITE
    | libc::FAN_ATTRIB
    | libc::FAN_DELETE_SELF
    | libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_MOVED_FROM
    | libc::FAN_MOVED_TO
    | libc::FAN_ONDIR;

/// Room for one reading of events: an event is some 100 bytes.
const ROOM: usize = 64 << 10;
/// More than the largest event: a name of 255 bytes and four handles.
const LARGEST_EVENT: usize = 2048;

/// The length of `struct fanotify_event_metadata`, and where its fields lie.
const HEAD: usize = 24;
const VERSION_AT: usize = 4;
const HEAD_LENGTH_AT: usize = 6;
const MASK_AT: usize = 8;
const PID_AT: usize = 20;
/// The length of `struct fanotify_event_info_fid` with the head of its handle.
const INFO_HEAD: usize = 20;

/// What an event says happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask(u64);

impl Mask {
    /// Data or size changed.
    #[must_use]
    pub fn modified(self) -> bool {
        self.0 & libc::FAN_MODIFY != 0
    }

    /// A descriptor that was open for write was closed.
    #[must_use]
    pub fn closed(self) -> bool {
        self.0 & libc::FAN_CLOSE_WRITE != 0
    }

    /// Attributes changed (mode, owner, times, number of names).
    #[must_use]
    pub fn attributes(self) -> bool {
        self.0 & libc::FAN_ATTRIB != 0
    }

    /// The inode is gone: it had lost its last name, and now its last opener.
    #[must_use]
    pub fn removed(self) -> bool {
        self.0 & libc::FAN_DELETE_SELF != 0
    }

    /// A name came into the directory or went from it.
    #[must_use]
    pub fn entry(self) -> bool {
        self.0 & (libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO)
            != 0
    }

    /// A name came into being in the directory or was removed, rather than moved.
    #[must_use]
    pub fn created_or_deleted(self) -> bool {
        self.0 & (libc::FAN_CREATE | libc::FAN_DELETE) != 0
    }

    /// A name was removed from the directory, rather than moved.
    #[must_use]
    pub fn deleted(self) -> bool {
        self.0 & libc::FAN_DELETE != 0
    }

    /// The inode that it happened to is a directory.
    #[must_use]
    pub fn directory(self) -> bool {
        self.0 & libc::FAN_ONDIR != 0
    }
}

/// One event, borrowed from the reading that brought it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Something happened to an inode or to an entry of a directory.
    Change {
        /// `statfs.f_fsid` of the descriptor that was marked.
        filesystem: [u8; 8],
        /// What.
        mask: Mask,
        /// Process (thread group) that did it.
        pid: i32,
        /// The inode.
        target: Option<RawHandle>,
        /// The directory and the name in it, for changes of entries.
        entry: Option<(RawHandle, &'a [u8])>,
    },
    /// Events were lost.
    Overflow,
}

/// A group of watched filesystems.
#[derive(Debug)]
pub struct Watch {
    group: OwnedFd,
}

/// Room for reading events, kept by the caller across calls.
pub struct Room(Box<[u64]>);

impl Room {
    /// Room for some hundred events.
    #[must_use]
    pub fn new() -> Self {
        Self(vec![0; ROOM / 8].into_boxed_slice())
    }
}

impl Default for Room {
    fn default() -> Self {
        Self::new()
    }
}

impl Watch {
    /// A group that watches nothing yet. Its queue is not limited: an overflow would cost all
    /// that is known.
    ///
    /// # Errors
    /// `EPERM` without the privilege, `EINVAL` or `ENOSYS` on a kernel before 5.17.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes numbers only; a descriptor that it returns is new.
        let group = unsafe {
            let fd = check(libc::fanotify_init(
                libc::FAN_CLASS_NOTIF
                    | libc::FAN_CLOEXEC
                    | libc::FAN_NONBLOCK
                    | libc::FAN_UNLIMITED_QUEUE
                    | libc::FAN_REPORT_DFID_NAME_TARGET,
                (libc::O_RDONLY | libc::O_CLOEXEC) as libc::c_uint,
            ))?;
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Self { group })
    }

    /// Watches the whole filesystem of `fd`.
    ///
    /// # Errors
    /// `EXDEV` when `fd` is in a subvolume of btrfs other than the top-level one, `EOPNOTSUPP`
    /// or `ENODEV` where the filesystem has no handles or id.
    pub fn add(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: a null path means `fd` itself; the call touches no memory of ours.
        check(unsafe {
            libc::fanotify_mark(
                self.group.as_raw_fd(),
                libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM,
                WATCHED,
                fd.as_raw_fd(),
                std::ptr::null(),
            )
        })
        .map(drop)
    }

    /// Reads events that are queued, as many as `room` holds, and gives them to `sink`. False
    /// when these were all.
    ///
    /// # Errors
    /// Of read(2), other than that nothing is queued.
    pub fn read(&self, room: &mut Room, sink: &mut dyn FnMut(Event<'_>)) -> io::Result<bool> {
        // SAFETY: the room is plain words, and is written for at most its size in bytes.
        let read = unsafe {
            libc::read(
                self.group.as_raw_fd(),
                room.0.as_mut_ptr().cast(),
                room.0.len() * 8,
            )
        };
        let Ok(length) = usize::try_from(read) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock => Ok(false),
                // Something is queued, or will be: the caller reads again.
                io::ErrorKind::Interrupted => Ok(true),
                _ => Err(error),
            };
        };
        // SAFETY: any bytes are valid bytes; the slice covers only what was written.
        let bytes = unsafe {
            std::slice::from_raw_parts(room.0.as_ptr().cast::<u8>(), length.min(room.0.len() * 8))
        };
        decode(bytes, sink);
        // The kernel stops at an event that no longer fits.
        Ok(length > ROOM - LARGEST_EVENT)
    }
}

impl AsFd for Watch {
    /// The group's descriptor: readable when events are queued.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.group.as_fd()
    }
}

/// Takes events apart. Whatever cannot be read counts as lost events, never as none.
fn decode(mut bytes: &[u8], sink: &mut dyn FnMut(Event<'_>)) {
    while !bytes.is_empty() {
        let Some((event, rest)) = next_event(bytes) else {
            return sink(Event::Overflow);
        };
        sink(event);
        bytes = rest;
    }
}

fn next_event(bytes: &[u8]) -> Option<(Event<'_>, &[u8])> {
    let length = field::u32(bytes, 0)? as usize;
    let head = usize::from(field::u16(bytes, HEAD_LENGTH_AT)?);
    let mask = field::u64(bytes, MASK_AT)?;
    let pid = field::u32(bytes, PID_AT)? as i32;
    if length < HEAD || head < HEAD || *bytes.get(VERSION_AT)? != libc::FANOTIFY_METADATA_VERSION {
        return None;
    }
    let (whole, rest) = bytes.split_at_checked(length)?;
    if mask & libc::FAN_Q_OVERFLOW != 0 {
        return Some((Event::Overflow, rest));
    }
    let mut filesystem = [0; 8];
    let mut target = None;
    let mut entry = None;
    let mut infos = whole.get(head..)?;
    while !infos.is_empty() {
        let kind = *infos.first()?;
        let length = usize::from(field::u16(infos, 2)?);
        let (info, after) = infos.split_at_checked(length.max(1))?;
        infos = after;
        match kind {
            libc::FAN_EVENT_INFO_TYPE_FID => target = Some(handle(info)?.0),
            libc::FAN_EVENT_INFO_TYPE_DFID => entry = Some((handle(info)?.0, &[][..])),
            libc::FAN_EVENT_INFO_TYPE_DFID_NAME => {
                let (directory, rest) = handle(info)?;
                let name = CStr::from_bytes_until_nul(rest).ok()?.to_bytes();
                entry = Some((directory, name));
            }
            _ => continue,
        }
        filesystem = field::bytes(info, 4)?;
    }
    let event = Event::Change {
        filesystem,
        mask: Mask(mask),
        pid,
        target,
        entry,
    };
    Some((event, rest))
}

/// The handle in an information record, and what follows it.
fn handle(info: &[u8]) -> Option<(RawHandle, &[u8])> {
    let length = field::u32(info, 12)? as usize;
    let kind = field::u32(info, 16)? as i32;
    let (bytes, rest) = info.get(INFO_HEAD..)?.split_at_checked(length)?;
    Some((
        RawHandle {
            kind,
            bytes: SmallVec::from_slice(bytes),
        },
        rest,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn information(kind: u8, handle: &[u8], name: Option<&[u8]>) -> Vec<u8> {
        let mut info = vec![kind, 0, 0, 0];
        info.extend_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        info.extend_from_slice(&(handle.len() as u32).to_ne_bytes());
        info.extend_from_slice(&0x81_u32.to_ne_bytes());
        info.extend_from_slice(handle);
        if let Some(name) = name {
            info.extend_from_slice(name);
            info.push(0);
        }
        while info.len() % 4 != 0 {
            info.push(0);
        }
        let length = info.len() as u16;
        info[2..4].copy_from_slice(&length.to_ne_bytes());
        info
    }

    fn event(mask: u64, infos: &[Vec<u8>]) -> Vec<u8> {
        let length = HEAD + infos.iter().map(Vec::len).sum::<usize>();
        let mut event = (length as u32).to_ne_bytes().to_vec();
        event.extend_from_slice(&[libc::FANOTIFY_METADATA_VERSION, 0]);
        event.extend_from_slice(&(HEAD as u16).to_ne_bytes());
        event.extend_from_slice(&mask.to_ne_bytes());
        event.extend_from_slice(&(-1_i32).to_ne_bytes());
        event.extend_from_slice(&77_u32.to_ne_bytes());
        event.extend(infos.iter().flatten());
        event
    }

    fn decoded(bytes: &[u8]) -> Vec<String> {
        let mut seen = Vec::new();
        decode(bytes, &mut |event| seen.push(format!("{event:?}")));
        seen
    }

    #[test]
    fn a_creation_brings_the_directory_the_name_and_the_inode() {
        let bytes = event(
            libc::FAN_CREATE,
            &[
                information(
                    libc::FAN_EVENT_INFO_TYPE_DFID_NAME,
                    &[9; 12],
                    Some(b"odd \xff name"),
                ),
                information(libc::FAN_EVENT_INFO_TYPE_FID, &[8; 12], None),
            ],
        );
        let mut seen = 0;
        decode(&bytes, &mut |event| {
            seen += 1;
            let Event::Change {
                filesystem,
                mask,
                pid,
                target,
                entry,
            } = event
            else {
                panic!("not a change");
            };
            assert_eq!(filesystem, [1, 2, 3, 4, 5, 6, 7, 8]);
            assert!(mask.entry() && mask.created_or_deleted() && !mask.modified());
            assert_eq!(pid, 77);
            assert_eq!(target.unwrap().bytes.as_slice(), [8; 12]);
            let (directory, name) = entry.unwrap();
            assert_eq!((directory.kind, directory.bytes.len()), (0x81, 12));
            assert_eq!(name, b"odd \xff name");
        });
        assert_eq!(seen, 1);
    }

    #[test]
    fn an_overflow_and_a_torn_event_both_say_that_events_were_lost() {
        let overflow = event(libc::FAN_Q_OVERFLOW, &[]);
        assert_eq!(decoded(&overflow), ["Overflow"]);
        let whole = event(
            libc::FAN_MODIFY,
            &[information(libc::FAN_EVENT_INFO_TYPE_FID, &[8; 12], None)],
        );
        for length in 1..whole.len() {
            assert_eq!(decoded(&whole[..length]), ["Overflow"], "cut to {length}");
        }
        let mut two = whole.clone();
        two.extend_from_slice(&whole);
        assert_eq!(decoded(&two).len(), 2);
    }
}
