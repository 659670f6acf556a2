//! Contents and attributes: the tree through the mount equals the backing tree.

use crate::kernel::{self, Of};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Compares two directories and everything below them.
///
/// # Errors
/// What differs first.
pub fn compare(front: &Path, back: &Path) -> Result<(), String> {
    let here = names(front)?;
    let there = names(back)?;
    if here != there {
        return Err(format!(
            "{}: names through the mount {here:?}, on the backing filesystem {there:?}",
            front.display()
        ));
    }
    for name in here {
        let (front, back) = (front.join(&name), back.join(&name));
        let seen = |error: std::io::Error| format!("{}: {error}", front.display());
        let meta = fs::symlink_metadata(&front).map_err(seen)?;
        let true_meta = fs::symlink_metadata(&back).map_err(seen)?;
        if meta.is_dir() && true_meta.is_dir() {
            compare(&front, &back)?;
            continue;
        }
        equal(
            &front,
            "attributes",
            &attributes(&meta),
            &attributes(&true_meta),
        )?;
        let noise = |path| {
            kernel::get_xattr(&Of::Path(path), "user.noise").map_err(|error| error.raw_os_error())
        };
        equal(&front, "user.noise", &noise(&front), &noise(&back))?;
        let bytes = fs::read(&front).map_err(seen)?;
        let true_bytes = fs::read(&back).map_err(seen)?;
        if bytes != true_bytes {
            let pairs = bytes.iter().zip(&true_bytes);
            let at = pairs
                .take_while(|(byte, true_byte)| byte == true_byte)
                .count();
            return Err(format!(
                "{}: {} bytes read through the mount, {} on the backing filesystem, the first \
                 difference at {at}",
                front.display(),
                bytes.len(),
                true_bytes.len()
            ));
        }
    }
    Ok(())
}

fn names(path: &Path) -> Result<BTreeSet<OsString>, String> {
    let failed = |error| format!("{}: {error}", path.display());
    let entries = fs::read_dir(path).map_err(failed)?;
    entries
        .map(|entry| entry.map(|entry| entry.file_name()).map_err(failed))
        .collect()
}

/// What both sides must agree on. Access times move by reading, allocated blocks by the
/// filesystem's own preallocation.
fn attributes(meta: &Metadata) -> impl PartialEq + std::fmt::Debug + use<> {
    [
        ("ino", meta.ino().cast_signed()),
        ("mode", meta.mode().into()),
        ("uid", meta.uid().into()),
        ("gid", meta.gid().into()),
        ("links", meta.nlink().cast_signed()),
        ("size", meta.size().cast_signed()),
        ("mtime", meta.mtime()),
        ("mtime_nsec", meta.mtime_nsec()),
        ("ctime", meta.ctime()),
        ("ctime_nsec", meta.ctime_nsec()),
    ]
}

fn equal<T: PartialEq + std::fmt::Debug>(
    path: &Path,
    what: &str,
    here: &T,
    there: &T,
) -> Result<(), String> {
    if here == there {
        return Ok(());
    }
    Err(format!(
        "{}: {what} through the mount\n  {here:?}\nbut on the backing filesystem\n  {there:?}",
        path.display()
    ))
}
