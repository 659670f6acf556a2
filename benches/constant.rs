//! A filesystem that gives the same answer to every question at once: what a round trip through
//! FUSE costs by itself, on the transport, threads and settings that sharelens uses.
//!
//! Its tree is that of [`crate::raw::generate`]: the root, directories of 1,000 files, files.

use crate::harness::Result;
use crate::raw::generate::{FILES_PER_DIRECTORY, file_path};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, MountOption,
    ReplyAttr, ReplyEntry, ReplyXattr, Request,
};
use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// The answer: as long as the shared bytes of an ordinary file.
pub(crate) const ANSWER: &[u8] = b"16384";
const LONG: Duration = Duration::from_secs(3600);
/// Inode numbers of directories start here, of files far above.
const FIRST_DIRECTORY: u64 = 2;
const FIRST_FILE: u64 = 1 << 32;

/// Serves at `mountpoint` until unmounted.
pub(crate) fn serve(files: usize, mountpoint: &Path) -> Result<()> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("constant".to_owned()),
        MountOption::DefaultPermissions,
    ];
    config.n_threads = Some(std::thread::available_parallelism().map_or(2, usize::from));
    config.clone_fd = true;
    fuser::mount(Constant { files }, mountpoint, &config)?;
    Ok(())
}

struct Constant {
    files: usize,
}

impl Constant {
    fn find(&self, parent: INodeNo, name: &OsStr) -> Option<INodeNo> {
        let name = name.to_str()?;
        if parent == INodeNo::ROOT {
            let number: usize = name.strip_prefix('d')?.parse().ok()?;
            let known = number * FILES_PER_DIRECTORY < self.files;
            let exact = file_path(number * FILES_PER_DIRECTORY).parent()? == Path::new(name);
            (known && exact).then_some(INodeNo(FIRST_DIRECTORY + number as u64))
        } else {
            let number: usize = name.strip_prefix('f')?.parse().ok()?;
            let directory = (number / FILES_PER_DIRECTORY) as u64;
            let exact = file_path(number).file_name()? == name;
            let known = number < self.files && parent.0 == FIRST_DIRECTORY + directory;
            (known && exact).then_some(INodeNo(FIRST_FILE + number as u64))
        }
    }
}

fn attributes(ino: INodeNo) -> FileAttr {
    let is_file = ino.0 >= FIRST_FILE;
    FileAttr {
        ino,
        size: if is_file { 16384 } else { 0 },
        blocks: if is_file { 32 } else { 0 },
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if is_file {
            FileType::RegularFile
        } else {
            FileType::Directory
        },
        perm: if is_file { 0o644 } else { 0o755 },
        nlink: if is_file { 1 } else { 2 },
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Constant {
    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name) {
            Some(ino) => reply.entry(&LONG, &attributes(ino), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&LONG, &attributes(ino));
    }

    fn getxattr(&self, _req: &Request, _: INodeNo, _: &OsStr, size: u32, reply: ReplyXattr) {
        if size == 0 {
            reply.size(ANSWER.len() as u32);
        } else if (size as usize) < ANSWER.len() {
            reply.error(Errno::ERANGE);
        } else {
            reply.data(ANSWER);
        }
    }
}
