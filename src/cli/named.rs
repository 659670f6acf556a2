//! Files named on the command line: looked at before they are opened, because opening a FIFO
//! waits for its writer and opening a device may set it going.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a regular file for reading (symbolic links are followed); of anything else, what it is.
///
/// # Errors
/// Of looking at it and opening it.
pub(crate) fn open_file(path: &Path) -> io::Result<Result<File, &'static str>> {
    open(path, FileType::is_file)
}

/// As [`open_file`], also a directory.
///
/// # Errors
/// Of looking at it and opening it.
pub(crate) fn open_file_or_directory(path: &Path) -> io::Result<Result<File, &'static str>> {
    open(path, |kind| kind.is_file() || kind.is_dir())
}

fn open(path: &Path, wanted: impl Fn(&FileType) -> bool) -> io::Result<Result<File, &'static str>> {
    let kind = std::fs::metadata(path)?.file_type();
    if !wanted(&kind) {
        return Ok(Err(what(kind)));
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    // Another may have taken the name meanwhile.
    let kind = file.metadata()?.file_type();
    Ok(if wanted(&kind) {
        Ok(file)
    } else {
        Err(what(kind))
    })
}

/// What a file is, for a sentence.
pub(crate) fn what(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_file() {
        "a regular file"
    } else {
        "a device"
    }
}
