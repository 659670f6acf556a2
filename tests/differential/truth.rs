//! The oracle: what FIEMAP says of a backing file once everything has settled.
//!
//! It reads the backing filesystem by its own path, never the mount, and merges and clips by code
//! of its own. Its descriptors are read-only, opened late and closed at once, because an open
//! descriptor keeps a removed file's blocks and a lease test waiting.

use crate::common::raw::{self, Record};
use crate::common::truth::{Numbers, normalise, settle};
use crate::kernel::{self, Handle};
use crate::tree;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The flags as filefrag names them.
const NAMES: [(u32, &str); 10] = [
    (0x2, "unknown_loc"),
    (0x4, "delalloc"),
    (0x8, "encoded"),
    (0x80, "encrypted"),
    (0x100, "not_aligned"),
    (0x200, "inline"),
    (0x400, "tail_packed"),
    (0x800, "unwritten"),
    (0x1000, "merged"),
    (0x2000, "shared"),
];

/// What is true of one file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truth {
    /// The numbers of the contract, in the order of its tables.
    pub numbers: Vec<(&'static str, u64)>,
    /// A file's map or a directory's children, as the contract spells them; of the map's flags
    /// `last` is left out, of the children the order is that of their names.
    pub text: String,
}

impl Truth {
    fn of_file(pieces: &[Record]) -> Self {
        let own = Numbers::of(pieces);
        let mut numbers = shared_names(own);
        numbers.push(("may_share", u64::from(own.shared_extents > 0)));
        Self {
            numbers,
            text: map_lines(pieces),
        }
    }

    /// Whether anything is shared.
    pub fn shares(&self) -> bool {
        let mut numbers = self.numbers.iter();
        numbers.any(|(name, value)| *name == "shared_extents" && *value > 0)
    }
}

/// The numbers that files and directories have in common.
pub fn shared_names(numbers: Numbers) -> Vec<(&'static str, u64)> {
    vec![
        ("bytes", numbers.bytes),
        ("shared_bytes", numbers.shared_bytes),
        ("exclusive_bytes", numbers.exclusive_bytes()),
        ("extents", numbers.extents),
        ("shared_extents", numbers.shared_extents),
    ]
}

fn map_lines(pieces: &[Record]) -> String {
    let mut text = String::new();
    for piece in pieces {
        let names = NAMES.iter().filter(|(bit, _)| piece.flags & bit != 0);
        let names: Vec<_> = names.map(|(_, name)| *name).collect();
        let names = if names.is_empty() {
            "-".to_owned()
        } else {
            names.join(",")
        };
        let (logical, physical, length) = (piece.logical, piece.physical, piece.length);
        let _ = writeln!(text, "{logical} {physical} {length} {names}");
    }
    text
}

/// Which file the truth is wanted of.
#[derive(Clone, Copy)]
pub enum Which<'a> {
    /// The one with this name below the backing directory.
    Name(&'a Path),
    /// The one with this handle, whether it has a name or not.
    Handle(&'a Handle),
    /// The directory with this name, and everything below it.
    Tree(&'a Path),
}

/// Reads truths from one backing directory.
pub struct Oracle {
    root: File,
    path: PathBuf,
}

impl Oracle {
    /// For the files below `path`.
    pub fn new(path: &Path) -> io::Result<Self> {
        Ok(Self {
            root: File::open(path)?,
            path: path.to_owned(),
        })
    }

    /// Brings everything to disk and carries out every finished removal.
    pub fn settle(&self) {
        settle(&self.path);
    }

    /// What FIEMAP says now, after writing back the file's own dirty data only: the truth when
    /// `settle` went before.
    pub fn look(&self, which: Which<'_>) -> io::Result<Truth> {
        let file = match which {
            Which::Name(name) => File::open(self.path.join(name))?,
            Which::Handle(handle) => kernel::open_handle(&self.root, handle)?,
            Which::Tree(name) => return tree::truth(&self.path.join(name)),
        };
        Ok(Truth::of_file(&pieces(&file)?))
    }
}

/// The merged and clipped map of an open file.
pub fn pieces(file: &File) -> io::Result<Vec<Record>> {
    let records = raw::fiemap(file, true)?;
    let meta = file.metadata()?;
    Ok(normalise(&records, meta.size(), meta.blksize()))
}
