//! `sharelens clone`: a reflink copy, all or nothing.
//!
//! Through FUSE the kernel refuses FICLONE before any daemon is asked, so below a mount the clone
//! is made by copy_file_range, which clones where the backing filesystem can, and what came of it
//! is checked before the new name appears. The first piece is checked before the rest is copied.
//!
//! Invariant: the destination is either the old file (or none) or the whole clone; work is done
//! on a file of another name in the same directory, removed on every failure. Only a regular file
//! is ever replaced.

use super::{Failure, Outcome, named, output};
use crate::mount::{answering, ask};
use crate::sys::{clone as sys_clone, data, reason};
use crate::vxattr::Name;
use clap::Args;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Clones a file by reflink, all or nothing
///
/// Works below a mount, where `cp --reflink=always` cannot, and elsewhere. Where the filesystem
/// cannot clone, nothing is copied and no file is left behind. The new file has the permissions of
/// SRC, as far as the umask lets it, and belongs to who clones.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Replace a regular file at the destination, in one step; its other names (hard links) keep
    /// the old file. Anything else that stands there is left alone
    #[arg(short, long)]
    force: bool,
    /// The file to clone
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// The new file, or a directory to put it in
    #[arg(value_name = "DST")]
    target: PathBuf,
}

/// Enough to tell a clone from a copy, and little to lose.
const FIRST: usize = 1 << 20;
/// A FUSE reply holds 32 bits.
const PIECE: usize = 1 << 30;

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    answering::check_around([&arguments.source, &arguments.target])?;
    let target = final_name(&arguments.source, &arguments.target)?;
    let source = match named::open_file(&arguments.source) {
        Ok(Ok(source)) => source,
        Ok(Err(what)) => return Err(not_a_file(&arguments.source, what)),
        Err(error) => return Err(sentence(&arguments.source, &reason(&error).to_string())),
    };
    let meta = source.metadata()?;
    may_be_taken(&target, &meta, arguments.force).map_err(|reason| sentence(&target, &reason))?;
    let unfinished = Unfinished::create(&target, meta.mode())
        .map_err(|error| sentence(&target, &reason(&error).to_string()))?;
    make_clone(&source, meta.len(), &unfinished).map_err(|reason| sentence(&target, &reason))?;
    unfinished
        .finish(&target, arguments.force)
        .map_err(|error| {
            let reason = if error.raw_os_error() == Some(libc::EEXIST) {
                EXISTS.to_owned()
            } else {
                reason(&error).to_string()
            };
            sentence(&target, &reason)
        })
}

const EXISTS: &str = "exists already; --force replaces it";

/// Whether the clone may have this name.
fn may_be_taken(target: &Path, source: &Metadata, force: bool) -> Result<(), String> {
    let there = match fs::symlink_metadata(target) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(reason(&error).to_string()),
    };
    if !there.is_file() {
        let what = named::what(there.file_type());
        return Err(format!(
            "is {what}, which is not replaced: name a regular file, or one that does not exist"
        ));
    }
    if (there.dev(), there.ino()) == (source.dev(), source.ino()) {
        return Err("source and destination are the same file".to_owned());
    }
    if force {
        Ok(())
    } else {
        Err(EXISTS.to_owned())
    }
}

fn make_clone(source: &File, size: u64, to: &Unfinished) -> Result<(), String> {
    match sys_clone::whole(source.as_fd(), to.file.as_fd()) {
        Ok(()) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::EINVAL) if is_view(&to.path) => {
                clone_through_mount(source, size, to)
            }
            Some(libc::EXDEV) => {
                Err("not cloned: source and destination are on different filesystems".to_owned())
            }
            Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::EINVAL) => Err(
                "not cloned: this filesystem cannot clone (XFS with reflink=1 and btrfs can)"
                    .to_owned(),
            ),
            _ => Err(format!("not cloned: {}", reason(&error))),
        },
    }
}

fn is_view(path: &Path) -> bool {
    ask::text(path, Name::Bytes).is_ok() || ask::text(path, Name::MayShare).is_ok()
}

fn clone_through_mount(source: &File, size: u64, to: &Unfinished) -> Result<(), String> {
    let mut done = 0;
    while done < size {
        let wanted = if done == 0 { FIRST } else { PIECE };
        let copied = data::copy((source.as_fd(), done), (to.file.as_fd(), done), wanted)
            .map_err(|error| format!("not cloned: {}", reason(&error)))?;
        if copied == 0 {
            return Err("not cloned: the source became shorter meanwhile".to_owned());
        }
        if done == 0 {
            check_shared(&to.path)?;
        }
        done += copied as u64;
    }
    // The size is right already. Setting it would make XFS write the last block anew.
    check_shared(&to.path)
}

/// Whether every extent of the new file is shared. What lies in metadata (inline) cannot be and
/// costs no space of its own; unwritten space holds no data.
fn check_shared(path: &Path) -> Result<(), String> {
    let unknown =
        |error: io::Error| format!("not cloned: sharing cannot be checked: {}", reason(&error));
    let exclusive = ask::patiently(path, Name::ExclusiveBytes, || {}).map_err(unknown)?;
    if exclusive == "0" {
        return Ok(());
    }
    let copied = || {
        Err("not cloned: the filesystem below made a copy instead (it cannot clone, or the file cannot be cloned)"
            .to_owned())
    };
    let map = match ask::patiently(path, Name::Map, || {}) {
        Ok(map) => map,
        // Too many extents to show: some of them are not shared.
        Err(error) if error.raw_os_error() == Some(libc::ENODATA) => return copied(),
        Err(error) => return Err(unknown(error)),
    };
    let harmless = |line: &str| {
        line.split(' ').nth(3).is_some_and(|flags| {
            flags
                .split(',')
                .any(|flag| matches!(flag, "shared" | "inline" | "unwritten"))
        })
    };
    if map.lines().all(harmless) {
        Ok(())
    } else {
        copied()
    }
}

/// The file under its working name; removed on drop unless it was finished.
#[derive(Debug)]
struct Unfinished {
    file: File,
    path: PathBuf,
    finished: bool,
}

impl Unfinished {
    fn create(target: &Path, mode: u32) -> io::Result<Self> {
        let name = target
            .file_name()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EISDIR))?;
        let mut last = io::Error::from_raw_os_error(libc::EEXIST);
        for attempt in 0..100u32 {
            let mut working = OsString::from(".");
            // A name of 255 bytes has no room for more.
            let short: String = name.to_string_lossy().chars().take(40).collect();
            working.push(short);
            working.push(format!(".clone-{}-{attempt}", std::process::id()));
            let path = target.with_file_name(working);
            let opened = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(mode & 0o777)
                .open(&path);
            match opened {
                Ok(file) => {
                    return Ok(Self {
                        file,
                        path,
                        finished: false,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    fn finish(mut self, target: &Path, replace: bool) -> io::Result<()> {
        if replace {
            fs::rename(&self.path, target)?;
        } else {
            renameat2(
                AT_FDCWD,
                &self.path,
                AT_FDCWD,
                target,
                RenameFlags::RENAME_NOREPLACE,
            )?;
        }
        self.finished = true;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn final_name(source: &Path, target: &Path) -> Result<PathBuf, Failure> {
    if !target.is_dir() {
        return Ok(target.to_owned());
    }
    match source.file_name() {
        Some(name) => Ok(target.join(name)),
        None => Err(not_a_file(source, "a directory")),
    }
}

fn not_a_file(path: &Path, what: &str) -> Failure {
    sentence(
        path,
        &format!("is {what}; only a regular file can be cloned"),
    )
}

fn sentence(path: &Path, reason: &str) -> Failure {
    Failure::Sentence(format!("{}: {reason}", output::shown(path)))
}
