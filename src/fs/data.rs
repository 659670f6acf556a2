//! Data of open files.

use super::Passthrough;
use super::error::{Doing, Error, Result};
use super::types::{Caller, HandleId};
use crate::sharing::Change;
use crate::sys::at;
use crate::sys::cred::KeepSetId;
use crate::sys::data::{self, Place};
use std::os::fd::AsFd;

/// A range of an open file to copy from or to.
#[derive(Clone, Copy, Debug)]
pub struct CopyEnd {
    /// The file.
    pub handle: HandleId,
    /// Where the range starts, in bytes.
    pub offset: u64,
}

impl Passthrough {
    /// Reads at `offset` until `buffer` is full or the file ends; the number of bytes read.
    ///
    /// # Errors
    /// As pread(2) says.
    pub fn read(&self, handle: HandleId, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let open = self.handles.file(handle)?;
        let fd = open.lend(&self.inodes).doing("read")?;
        data::read_at(fd.as_fd(), buffer, offset).doing("read")
    }

    /// Writes at `offset`, or at the end of the file; the number of bytes written.
    ///
    /// # Errors
    /// As pwrite(2) says.
    pub fn write(
        &self,
        caller: Caller,
        handle: HandleId,
        place: Place,
        bytes: &[u8],
    ) -> Result<usize> {
        let open = self.handles.file(handle)?;
        let fd = open.lend(&self.inodes).doing("write")?;
        let _change = self.engine.begin(Change::Write(open.key));
        let _keep = KeepSetId::new(open.set_id && caller.is_root());
        data::write(fd.as_fd(), bytes, place).doing("write")
    }

    /// Writes a file to the device.
    ///
    /// # Errors
    /// As fsync(2) says.
    pub fn sync(&self, handle: HandleId, data_only: bool) -> Result<()> {
        let open = self.handles.file(handle)?;
        let fd = open.lend(&self.inodes).doing("sync a file")?;
        data::sync(fd.as_fd(), data_only).doing("sync a file")
    }

    /// Finds data or a hole from `offset` on.
    ///
    /// # Errors
    /// As lseek(2) says: `ENXIO` past the end.
    pub fn seek(&self, handle: HandleId, offset: i64, whence: i32) -> Result<u64> {
        if whence != libc::SEEK_DATA && whence != libc::SEEK_HOLE {
            // The kernel keeps positions itself.
            return Err(Error::new(libc::EINVAL, "seek"));
        }
        let open = self.handles.file(handle)?;
        let fd = open.lend(&self.inodes).doing("seek")?;
        data::seek(fd.as_fd(), offset, whence).doing("seek")
    }

    /// Allocates, punches, zeroes, collapses, inserts or unshares.
    ///
    /// # Errors
    /// As fallocate(2) says.
    pub fn allocate(
        &self,
        caller: Caller,
        handle: HandleId,
        mode: i32,
        offset: u64,
        bytes: u64,
    ) -> Result<()> {
        let open = self.handles.file(handle)?;
        let fd = open.lend(&self.inodes).doing("allocate")?;
        let _change = self.engine.begin(Change::Allocate(open.key));
        let _keep = KeepSetId::new(caller.is_root());
        data::allocate(fd.as_fd(), mode, offset, bytes).doing("allocate")
    }

    /// How many bytes a copy from there would move at most.
    ///
    /// # Errors
    /// As stat(2) says.
    pub fn copy_size(&self, from: CopyEnd, bytes: u64) -> Result<u64> {
        let open = self.handles.file(from.handle)?;
        let fd = open.lend(&self.inodes).doing("copy")?;
        let status = at::status(fd.as_fd(), c"").doing("copy")?;
        Ok(bytes.min(status.size.saturating_sub(from.offset)))
    }

    /// Copies up to `bytes`, as a clone where the backing filesystem can; the number of bytes
    /// copied, which may be short.
    ///
    /// # Errors
    /// As copy_file_range(2) says.
    pub fn copy(&self, caller: Caller, from: CopyEnd, to: CopyEnd, bytes: u64) -> Result<usize> {
        let (source, target) = (
            self.handles.file(from.handle)?,
            self.handles.file(to.handle)?,
        );
        let source_fd = source.lend(&self.inodes).doing("copy")?;
        let target_fd = target.lend(&self.inodes).doing("copy")?;
        let _change = self.engine.begin(Change::Copy {
            from: source.key,
            to: target.key,
        });
        let _keep = KeepSetId::new(caller.is_root());
        data::copy(
            (source_fd.as_fd(), from.offset),
            (target_fd.as_fd(), to.offset),
            usize::try_from(bytes).unwrap_or(data::LARGEST_COPY),
        )
        .doing("copy")
    }
}
