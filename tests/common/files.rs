//! Small files and questions.

use super::raw;
use super::truth::Numbers;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// `length` bytes that differ with `seed` and do not compress to nothing.
pub fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Writes a new file of `length` bytes and puts it on disk.
pub fn write_synced(path: &Path, seed: u64, length: usize) {
    let mut file = File::create(path).unwrap();
    file.write_all(&content(seed, length)).unwrap();
    file.sync_all().unwrap();
}

/// Writes `bytes` at `offset` of an existing file, without putting them on disk.
pub fn write_at(path: &Path, offset: u64, bytes: &[u8]) {
    OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .write_all_at(bytes, offset)
        .unwrap();
}

/// Clones a whole file on a backing path (`FICLONE`).
pub fn clone(from: &Path, to: &Path) {
    let source = File::open(from).unwrap();
    let target = File::create(to).unwrap();
    raw::clone_file(&source, &target).unwrap();
}

/// One number of a file below a mount, e.g. `number(path, "shared_bytes")`.
pub fn number(path: &Path, name: &str) -> io::Result<u64> {
    let text = text(path, name)?;
    text.parse()
        .map_err(|_| io::Error::other(format!("user.reflink.{name} is {text:?}")))
}

/// The text of one virtual attribute below a mount.
pub fn text(path: &Path, name: &str) -> io::Result<String> {
    let value = raw::getxattr(path, &format!("user.reflink.{name}"))?;
    String::from_utf8(value).map_err(io::Error::other)
}

/// The numbers of a file below a mount, from one answer.
pub fn asked(path: &Path) -> io::Result<Numbers> {
    let line = text(path, "summary")?;
    let field = |wanted: &str| -> io::Result<u64> {
        line.split_whitespace()
            .filter_map(|pair| pair.split_once('='))
            .find(|(name, _)| *name == wanted)
            .and_then(|(_, value)| value.parse().ok())
            .ok_or_else(|| io::Error::other(format!("no {wanted} in {line:?}")))
    };
    Ok(Numbers {
        bytes: field("bytes")?,
        shared_bytes: field("shared_bytes")?,
        extents: field("extents")?,
        shared_extents: field("shared_extents")?,
    })
}
