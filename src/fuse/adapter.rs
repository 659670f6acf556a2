//! [`fuser::Filesystem`] on [`Passthrough`].

use super::backing::BackingIds;
use super::convert::{
    caller, decode_device, errno, file_attr, file_handle, file_type, handle, node, set_time,
};
use super::negotiate::negotiate;
use super::notices::Notices;
use super::pool::Pool;
use super::xattr;
use crate::fs::{
    self, CopyEnd, Entry, Error, IoMode, Name, NodeId, Opened, Passthrough, Permissions, SetAttr,
};
use crate::sys::cred;
use crate::sys::data::{LARGEST_COPY, Place};
use crate::sys::listing::LIST;
use crate::sys::peers::PEERS;
use fuser::{
    BackingId, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::cell::RefCell;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Copies and allocations up to this many bytes are done on the request's thread.
const SMALL: u64 = 1 << 20;

/// The filesystem as fuser serves it.
pub struct Adapter {
    pub(super) fs: Arc<Passthrough>,
    ids: Arc<BackingIds>,
    notices: Notices,
    pub(super) pool: Pool,
}

/// Gives the value of an operation, or replies with its error and ends the request.
macro_rules! reply_error {
    ($result:expr, $reply:ident) => {
        match $result {
            Ok(value) => value,
            Err(error) => return $reply.error(errno(error)),
        }
    };
}

thread_local! {
    /// Room for what one request of this thread reads.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lends the thread's room, with at least `size` bytes.
pub(super) fn with_room<T>(size: usize, use_it: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut room = ROOM.take();
    if room.len() < size {
        room.resize(size, 0);
    }
    let result = use_it(room.get_mut(..size).unwrap_or_default());
    ROOM.set(room);
    result
}

impl Adapter {
    /// Serves `fs`. [`Notices::start`] is to be called once the session is there.
    #[must_use]
    pub fn new(fs: Arc<Passthrough>) -> Self {
        let ids = Arc::new(BackingIds::new(Arc::clone(fs.inodes())));
        fs.pinned_by(Arc::clone(&ids) as Arc<dyn fs::Pins>);
        let weak = Arc::downgrade(&fs);
        ids.on_let_go(Box::new(move |key| {
            if let Some(fs) = weak.upgrade() {
                fs.let_go(key);
            }
        }));
        Self {
            notices: Notices::new(Arc::clone(&ids), Arc::clone(fs.inodes())),
            fs,
            ids,
            pool: Pool::default(),
        }
    }

    /// The way to tell the kernel what is no longer so.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    fn reply_entry(reply: ReplyEntry, entry: &Entry) {
        reply.entry_with_ttls(
            &entry.attr.ttl,
            &entry.ttl,
            &file_attr(&entry.attr),
            Generation(entry.generation),
        );
    }

    /// Where an opened file's I/O is to be the kernel's own: the id of its backing file. `None`
    /// when the kernel does not take it and the file was opened here instead.
    fn backing_id<F: AsFd>(
        &self,
        opened: &Opened,
        open: impl FnOnce() -> io::Result<F>,
        register: impl FnOnce(&F) -> io::Result<BackingId>,
    ) -> Result<Option<Arc<BackingId>>, Error> {
        let failed = match self.ids.acquire(opened.node, opened.key, open, register) {
            Ok(id) => return Ok(Some(id)),
            Err(error) => error,
        };
        let refused = match failed.raw_os_error() {
            // Out of descriptors or memory, or the inode is gone: of this one open.
            Some(number @ (libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ESTALE)) => {
                Some(Error::new(number, "register a backing file"))
            }
            _ => None,
        };
        let fallen_back = match refused {
            Some(error) => Err(error),
            None => {
                log::info!("kernel passthrough is not possible here: {failed}");
                self.fs.give_up_passthrough();
                self.fs.fall_back(opened.handle)
            }
        };
        match fallen_back {
            Ok(()) => Ok(None),
            Err(error) => {
                self.fs.release(opened.handle, false);
                Err(error)
            }
        }
    }
}

fn cached_flags(io: IoMode) -> FopenFlags {
    match io {
        IoMode::Cached { keep: true } => FopenFlags::FOPEN_KEEP_CACHE,
        _ => FopenFlags::empty(),
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        negotiate(&self.fs, config);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = reply_error!(Name::new(name.as_bytes()), reply);
        match self.fs.lookup(node(parent), &name) {
            Ok(entry) => Self::reply_entry(reply, &entry),
            Err(error) => {
                if error.errno() != libc::ENOENT {
                    return reply.error(errno(error));
                }
                let ttl = self.fs.negative_timeout(node(parent));
                if !ttl.is_zero() {
                    return Self::reply_entry(reply, &Entry::absent(ttl));
                }
                reply.error(errno(error));
            }
        }
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.fs.forget(node(ino), nlookup);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        let attr = reply_error!(self.fs.get_attr(node(ino), fh.map(handle)), reply);
        if let Some(attr) = self.fs.shown_blocks_now(attr) {
            return reply.attr(&attr.ttl, &file_attr(&attr));
        }
        let fs = Arc::clone(&self.fs);
        self.pool.run(move || {
            let attr = fs.shown_blocks(attr);
            reply.attr(&attr.ttl, &file_attr(&attr));
        });
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        cred::settle();
        let set = SetAttr {
            mode,
            uid,
            gid,
            size,
            atime: set_time(atime),
            mtime: set_time(mtime),
        };
        let changed = self
            .fs
            .set_attr(caller(req), node(ino), fh.map(handle), &set);
        let attr = reply_error!(changed, reply);
        reply.attr(&attr.ttl, &file_attr(&attr));
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        with_room(libc::PATH_MAX as usize, |room| {
            let length = reply_error!(self.fs.readlink(node(ino), room), reply);
            reply.data(room.get(..length).unwrap_or_default());
        });
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let name = reply_error!(Name::new(name.as_bytes()), reply);
        let permissions = Permissions { mode, umask };
        let made = self.fs.mknod(
            caller(req),
            node(parent),
            &name,
            permissions,
            decode_device(rdev),
        );
        let entry = reply_error!(made, reply);
        Self::reply_entry(reply, &entry);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let name = reply_error!(Name::new(name.as_bytes()), reply);
        let permissions = Permissions { mode, umask };
        let made = self.fs.mkdir(caller(req), node(parent), &name, permissions);
        let entry = reply_error!(made, reply);
        Self::reply_entry(reply, &entry);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = reply_error!(Name::new(name.as_bytes()), reply);
        reply_error!(self.fs.unlink(node(parent), &name), reply);
        reply.ok();
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = reply_error!(Name::new(name.as_bytes()), reply);
        reply_error!(self.fs.rmdir(node(parent), &name), reply);
        reply.ok();
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let name = reply_error!(Name::new(link_name.as_bytes()), reply);
        let Ok(target) = CString::new(target.as_os_str().as_bytes()) else {
            return reply.error(Errno::EINVAL);
        };
        let made = self.fs.symlink(caller(req), node(parent), &name, &target);
        let entry = reply_error!(made, reply);
        Self::reply_entry(reply, &entry);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let from = reply_error!(Name::new(name.as_bytes()), reply);
        let to = reply_error!(Name::new(newname.as_bytes()), reply);
        let renamed = self
            .fs
            .rename((node(parent), &from), (node(newparent), &to), flags.bits());
        reply_error!(renamed, reply);
        reply.ok();
    }

    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let name = reply_error!(Name::new(newname.as_bytes()), reply);
        let entry = reply_error!(self.fs.link(node(ino), node(newparent), &name), reply);
        Self::reply_entry(reply, &entry);
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        cred::settle();
        let opened = reply_error!(self.fs.open(caller(req), node(ino), flags.0), reply);
        if opened.drop_attributes {
            self.notices.attributes_now(opened.node);
        }
        let fh = file_handle(opened.handle);
        if opened.io != IoMode::Passthrough {
            return reply.opened(fh, cached_flags(opened.io));
        }
        let id = self.backing_id(
            &opened,
            || Ok(self.fs.backing_file(&opened, None)?),
            |fd| reply.open_backing(fd),
        );
        match reply_error!(id, reply) {
            Some(id) => reply.opened_passthrough(fh, FopenFlags::FOPEN_NOFLUSH, &id),
            None => reply.opened(fh, FopenFlags::empty()),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        cred::settle();
        let name = reply_error!(Name::new(name.as_bytes()), reply);
        let permissions = Permissions { mode, umask };
        let created = self
            .fs
            .create(caller(req), node(parent), &name, permissions, flags);
        let (entry, opened, fd) = reply_error!(created, reply);
        if opened.drop_attributes {
            self.notices.attributes_now(opened.node);
        }
        let (attr, ttl) = (file_attr(&entry.attr), entry.ttl.min(entry.attr.ttl));
        let generation = Generation(entry.generation);
        let fh = file_handle(opened.handle);
        if opened.io != IoMode::Passthrough {
            return reply.created(&ttl, &attr, generation, fh, cached_flags(opened.io));
        }
        let id = self.backing_id(
            &opened,
            || Ok(self.fs.backing_file(&opened, fd)?),
            |fd| reply.open_backing(fd),
        );
        match id {
            Ok(Some(id)) => reply.created_passthrough(
                &ttl,
                &attr,
                generation,
                fh,
                FopenFlags::FOPEN_NOFLUSH,
                &id,
            ),
            Ok(None) => reply.created(&ttl, &attr, generation, fh, FopenFlags::empty()),
            Err(error) => {
                self.fs.forget(opened.node, 1);
                reply.error(errno(error));
            }
        }
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        with_room(size as usize, |room| {
            let length = reply_error!(self.fs.read(handle(fh), offset, room), reply);
            reply.data(room.get(..length).unwrap_or_default());
        });
    }

    fn write(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        cred::settle();
        let appends =
            flags.0 & libc::O_APPEND != 0 && !write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let place = if appends {
            Place::End
        } else {
            Place::At(offset)
        };
        let written = self.fs.write(caller(req), handle(fh), place, data);
        let written = reply_error!(written, reply);
        reply.written(written as u32);
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Nothing is held back, so there is nothing to do at close, and the kernel need not ask.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.fs.release(handle(fh), true);
        reply.ok();
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        let fs = Arc::clone(&self.fs);
        self.pool.run(move || {
            reply_error!(fs.sync(handle(fh), datasync), reply);
            reply.ok();
        });
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.fs.opens_directories_itself() {
            // The kernel opens and closes directories by itself from now on, keeps their
            // listings, and looks at their time of change before it believes one.
            return reply.error(Errno::ENOSYS);
        }
        let (handle, keep) = reply_error!(self.fs.open_dir(node(ino)), reply);
        let mut flags = FopenFlags::FOPEN_CACHE_DIR;
        if keep {
            flags |= FopenFlags::FOPEN_KEEP_CACHE;
        }
        reply.opened(file_handle(handle), flags);
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let read = self.fs.read_dir(node(ino), handle(fh), offset, |entry| {
            !reply.add(
                INodeNo(entry.node.0),
                entry.next,
                file_type(entry.kind),
                OsStr::from_bytes(entry.name.to_bytes()),
            )
        });
        reply_error!(read, reply);
        reply.ok();
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let each = |dirent: fs::DirEntry<'_>, entry: &Entry| {
            !reply.add(
                INodeNo(dirent.node.0),
                dirent.next,
                OsStr::from_bytes(dirent.name.to_bytes()),
                &entry.ttl.min(entry.attr.ttl),
                &file_attr(&entry.attr),
                Generation(entry.generation),
            )
        };
        let read = self.fs.read_dir_plus(node(ino), handle(fh), offset, each);
        reply_error!(read, reply);
        reply.ok();
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.fs.release_dir(handle(fh));
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        let fs = Arc::clone(&self.fs);
        self.pool.run(move || {
            reply_error!(fs.sync_dir(node(ino), handle(fh), datasync), reply);
            reply.ok();
        });
    }

    fn statfs(&self, _req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let space = reply_error!(self.fs.statfs(node(ino)), reply);
        reply.statfs(
            space.blocks,
            space.free,
            space.available,
            space.files,
            space.free_files,
            space.block,
            space.longest_name,
            space.fragment,
        );
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        cred::settle();
        if xattr::is_virtual(name) {
            return xattr::refuse_change(self, reply);
        }
        let Ok(name) = CString::new(name.as_bytes()) else {
            return reply.error(Errno::EINVAL);
        };
        let set = self
            .fs
            .set_xattr(caller(req), node(ino), &name, value, flags);
        reply_error!(set, reply);
        reply.ok();
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        xattr::get(self, caller(req), node(ino), name, size, reply);
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        xattr::list(self, caller(req), node(ino), size, reply);
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if xattr::is_virtual(name) {
            return xattr::refuse_change(self, reply);
        }
        let Ok(name) = CString::new(name.as_bytes()) else {
            return reply.error(Errno::EINVAL);
        };
        reply_error!(self.fs.remove_xattr(node(ino), &name), reply);
        reply.ok();
    }

    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        if cmd == LIST || cmd == PEERS {
            let (fs, caller, input) = (Arc::clone(&self.fs), caller(req), in_data.to_vec());
            return self.pool.run(move || {
                let page = if cmd == LIST {
                    fs.list_page(caller, (node(ino), handle(fh)), &input)
                } else {
                    fs.peers_page(caller, node(ino), &input)
                };
                let page = reply_error!(page, reply);
                let shown = page.get(..page.len().min(out_size as usize));
                reply.ioctl(0, shown.unwrap_or_default());
            });
        }
        let output = reply_error!(self.fs.ioctl(caller(req), node(ino), cmd, in_data), reply);
        let shown = output.get(..output.len().min(out_size as usize));
        reply.ioctl(0, shown.unwrap_or_default());
    }

    fn fallocate(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (fs, caller) = (Arc::clone(&self.fs), caller(req));
        let work = move || {
            cred::settle();
            reply_error!(fs.allocate(caller, handle(fh), mode, offset, length), reply);
            reply.ok();
        };
        if length <= SMALL {
            work();
        } else {
            self.pool.run(work);
        }
    }

    fn lseek(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let found = reply_error!(self.fs.seek(handle(fh), offset, whence), reply);
        reply.offset(found as i64);
    }

    fn copy_file_range(
        &self,
        req: &Request,
        _ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        _ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (fs, caller) = (Arc::clone(&self.fs), caller(req));
        let from = CopyEnd {
            handle: handle(fh_in),
            offset: offset_in,
        };
        let to = CopyEnd {
            handle: handle(fh_out),
            offset: offset_out,
        };
        let bytes = len.min(LARGEST_COPY as u64);
        let small = reply_error!(fs.copy_size(from, bytes), reply) <= SMALL;
        let work = move || {
            cred::settle();
            let copied = fs.copy(caller, from, to, bytes);
            let copied = reply_error!(copied, reply);
            reply.written(copied as u32);
        };
        if small {
            work();
        } else {
            self.pool.run(work);
        }
    }
}

impl Entry {
    /// What says that a name does not exist, and for how long the kernel may believe it.
    fn absent(ttl: Duration) -> Self {
        Self {
            attr: fs::Attr {
                node: NodeId(0),
                status: crate::sys::at::Status::default(),
                ttl: Duration::ZERO,
            },
            generation: 0,
            ttl,
        }
    }
}
