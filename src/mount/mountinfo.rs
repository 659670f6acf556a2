//! The kernel's table of mounts (`/proc/self/mountinfo`).
//!
//! Reading it touches no filesystem, so it is safe to ask about a mount that hangs or is our own.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// The mount's number.
    pub id: u64,
    /// `major:minor` of the filesystem, equal for every mount of it.
    pub device: String,
    /// Where it is.
    pub point: PathBuf,
    /// Filesystem type, such as `xfs` or `fuse.sharelens`.
    pub kind: String,
    /// What the table names as its source.
    pub source: String,
    /// Flags of this mount, such as `rw,nosuid`.
    pub flags: String,
    /// Options of the filesystem, the same for every mount of it.
    pub options: String,
}

impl MountEntry {
    /// Whether sharelens made it, under its own name.
    #[must_use]
    pub fn is_sharelens(&self) -> bool {
        self.kind == "fuse.sharelens"
    }
}

/// Every mount of this namespace, in the order they were made.
///
/// # Errors
/// Of reading the table.
pub fn read() -> io::Result<Vec<MountEntry>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(table
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .collect())
}

/// The topmost mount at exactly this point.
///
/// # Errors
/// Of reading the table.
pub fn topmost(point: &Path) -> io::Result<Option<MountEntry>> {
    Ok(read()?.into_iter().rfind(|entry| entry.point == point))
}

/// The mount that an open descriptor (`O_PATH` will do) lies in.
///
/// # Errors
/// Of reading the tables.
pub fn holding(file: impl AsFd) -> io::Result<Option<MountEntry>> {
    let number = file.as_fd().as_raw_fd();
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}"))?;
    let id: Option<u64> = info
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))
        .and_then(|id| id.trim().parse().ok());
    Ok(read()?.into_iter().find(|entry| Some(entry.id) == id))
}

fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let _parent = fields.next()?;
    let device = text(fields.next()?);
    let _root = fields.next()?;
    let point = PathBuf::from(std::ffi::OsString::from_vec(unescape(fields.next()?)));
    let flags = text(fields.next()?);
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    Some(MountEntry {
        id,
        device,
        point,
        kind: text(fields.next()?),
        source: text(fields.next()?),
        flags,
        options: text(fields.next().unwrap_or_default()),
    })
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

/// Blanks, tabs, newlines, backslashes and `#` stand as three octal digits in the table.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let code = after
            .get(..3)
            .filter(|_| first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_optional_fields_and_escapes_is_understood() {
        let line = br"97 1 0:52 / /mnt/a\040b\134c rw,nosuid shared:3 master:1 - fuse.sharelens /data/x\040y rw,user_id=0";
        let entry = parse(line).unwrap();
        assert_eq!(entry.id, 97);
        assert_eq!(entry.device, "0:52");
        assert_eq!(entry.point, Path::new("/mnt/a b\\c"));
        assert!(entry.is_sharelens());
        assert_eq!(entry.source, "/data/x y");
        assert_eq!(entry.flags, "rw,nosuid");
        assert_eq!(entry.options, "rw,user_id=0");
    }

    #[test]
    fn the_root_of_this_machine_is_found_by_descriptor_and_by_path() {
        let root = std::fs::File::open("/").unwrap();
        let held = holding(&root).unwrap().unwrap();
        assert_eq!(topmost(Path::new("/")).unwrap().unwrap().id, held.id);
    }
}
