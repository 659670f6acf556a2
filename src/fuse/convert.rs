//! Plain types to fuser's and back, errors to errnos.

use crate::fs::{Attr, Caller, Error, HandleId, NodeId};
use crate::sys::at::{SetTime, Time};
use fuser::{Errno, FileAttr, FileHandle, FileType, INodeNo, Request, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The errno of an error, which is logged when it says that something is wrong here or below.
pub(super) fn errno(error: Error) -> Errno {
    match error.errno() {
        libc::EIO | libc::EBADF | libc::EUCLEAN => log::warn!("{error}"),
        _ => log::trace!("{error}"),
    }
    Errno::from_i32(error.errno())
}

pub(super) fn caller(request: &Request) -> Caller {
    Caller {
        uid: request.uid(),
        gid: request.gid(),
        pid: request.pid(),
    }
}

pub(super) fn node(ino: INodeNo) -> NodeId {
    NodeId(ino.0)
}

pub(super) fn handle(fh: FileHandle) -> HandleId {
    HandleId(fh.0)
}

pub(super) fn file_handle(handle: HandleId) -> FileHandle {
    FileHandle(handle.0)
}

/// What stat shows.
pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    let status = &attr.status;
    FileAttr {
        ino: INodeNo(attr.node.0),
        size: status.size,
        blocks: status.blocks,
        atime: system_time(status.atime),
        mtime: system_time(status.mtime),
        ctime: system_time(status.ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(status.mode),
        perm: (status.mode & 0o7777) as u16,
        nlink: status.links,
        uid: status.uid,
        gid: status.gid,
        rdev: encode_device(status.rdev),
        blksize: status.block_size,
        flags: 0,
    }
}

/// The file type in these mode bits; of what cannot be told, a regular file.
pub(super) fn file_type(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

/// A device number as FUSE carries it: `new_encode_dev` of the kernel.
fn encode_device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// The reverse.
pub(super) fn decode_device(device: u32) -> (u32, u32) {
    (
        (device & 0xf_ff00) >> 8,
        (device & 0xff) | ((device >> 12) & 0xf_ff00),
    )
}

/// A time that the standard library cannot hold becomes the epoch.
fn system_time(time: Time) -> SystemTime {
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let base = if time.seconds < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    base.and_then(|base| base.checked_add(Duration::from_nanos(u64::from(time.nanoseconds))))
        .unwrap_or(UNIX_EPOCH)
}

pub(super) fn set_time(time: Option<TimeOrNow>) -> SetTime {
    match time {
        None => SetTime::Omit,
        Some(TimeOrNow::Now) => SetTime::Now,
        Some(TimeOrNow::SpecificTime(time)) => SetTime::To(received_time(time)),
    }
}

/// fuser 0.18 makes a time before the epoch by taking the nanoseconds off too, though they count
/// upwards: -2 s + 0.8 s arrives as -2.8 s. Both parts are still there.
fn received_time(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Time {
            seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: after.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            Time {
                seconds: 0_i64.saturating_sub_unsigned(before.as_secs()),
                nanoseconds: before.subsec_nanos(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive() {
        for device in [(1, 3), (8, 1), (259, 70000), (0xfff, 0xf_ffff)] {
            assert_eq!(decode_device(encode_device(device)), device);
        }
    }

    #[test]
    fn times_before_the_epoch_survive() {
        for (seconds, nanoseconds) in [(0, 0), (5, 7), (-1, 0), (-2, 800_000_000), (-1, 1)] {
            let time = Time {
                seconds,
                nanoseconds,
            };
            // As fuser makes it of what the kernel sent.
            let sent = if seconds < 0 {
                UNIX_EPOCH - Duration::new(seconds.unsigned_abs(), nanoseconds)
            } else {
                UNIX_EPOCH + Duration::new(seconds.unsigned_abs(), nanoseconds)
            };
            assert_eq!(received_time(sent), time);
        }
        let before = system_time(Time {
            seconds: -2,
            nanoseconds: 800_000_000,
        });
        assert_eq!(
            UNIX_EPOCH.duration_since(before).unwrap(),
            Duration::new(1, 200_000_000)
        );
    }
}
