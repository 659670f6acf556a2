//! The oracle for directories: recursive totals, summed up from scratch.

use crate::common::raw::Record;
use crate::common::truth::{ENCODED, Numbers, SHARED};
use crate::truth::{Truth, pieces, shared_names};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What lies below a directory.
#[derive(Default)]
struct Below {
    /// By inode: its map, its names below, all its names.
    files: BTreeMap<u64, (Vec<Record>, u64, u64)>,
    directories: u64,
}

/// The totals of a directory.
pub fn truth(path: &Path) -> io::Result<Truth> {
    let mut below = Below::default();
    walk(path, &mut below)?;
    let totals = below.totals();
    let set_shared = below.distinct_shared();
    let mut numbers = shared_names(totals);
    numbers.extend([
        ("files", below.files.len() as u64),
        ("dirs", below.directories),
        ("set_shared_bytes", set_shared),
        ("footprint_bytes", totals.exclusive_bytes() + set_shared),
        ("linked_outside_bytes", below.linked_outside()),
    ]);
    Ok(Truth {
        numbers,
        text: children(path)?,
    })
}

fn walk(path: &Path, below: &mut Below) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            below.directories += 1;
            walk(&entry.path(), below)?;
        } else if kind.is_file() {
            let file = File::open(entry.path())?;
            let meta = file.metadata()?;
            if let Some((_, names, _)) = below.files.get_mut(&meta.ino()) {
                *names += 1;
            } else {
                let found = (pieces(&file)?, 1, meta.nlink());
                below.files.insert(meta.ino(), found);
            }
        }
    }
    Ok(())
}

impl Below {
    fn totals(&self) -> Numbers {
        let mut totals = Numbers::default();
        for (pieces, _, _) in self.files.values() {
            let own = Numbers::of(pieces);
            totals.bytes += own.bytes;
            totals.shared_bytes += own.shared_bytes;
            totals.extents += own.extents;
            totals.shared_extents += own.shared_extents;
        }
        totals
    }

    /// Each shared byte of the device once. An encoded extent has a key for an address: each key
    /// once, with the longest piece that refers to it.
    fn distinct_shared(&self) -> u64 {
        let pieces = self.files.values().flat_map(|(pieces, _, _)| pieces);
        let shared = pieces.filter(|piece| piece.flags & SHARED != 0);
        let (encoded, plain): (Vec<&Record>, Vec<&Record>) =
            shared.partition(|piece| piece.flags & ENCODED != 0);
        let mut keys = BTreeMap::new();
        for piece in encoded {
            let longest: &mut u64 = keys.entry(piece.physical).or_default();
            *longest = piece.length.max(*longest);
        }
        let mut ranges: Vec<_> = plain
            .iter()
            .map(|piece| (piece.physical, piece.physical + piece.length))
            .collect();
        ranges.sort_unstable();
        let mut distinct = keys.values().sum();
        let mut reached = 0;
        for (start, end) in ranges {
            distinct += end.saturating_sub(start.max(reached));
            reached = reached.max(end);
        }
        distinct
    }

    fn linked_outside(&self) -> u64 {
        let files = self.files.values();
        let outside = files.filter(|(_, names, links)| names < links);
        outside
            .map(|(pieces, _, _)| Numbers::of(pieces).bytes)
            .sum()
    }
}

/// One row a child.
fn children(path: &Path) -> io::Result<String> {
    let mut rows = String::new();
    let mut entries = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (kind, numbers) = if entry.file_type()?.is_dir() {
            let mut below = Below::default();
            walk(&entry.path(), &mut below)?;
            ('d', below.totals())
        } else {
            ('f', Numbers::of(&pieces(&File::open(entry.path())?)?))
        };
        let _ = writeln!(
            rows,
            "{kind} {} {} {} {} {} {}",
            numbers.bytes,
            numbers.shared_bytes,
            numbers.exclusive_bytes(),
            numbers.extents,
            numbers.shared_extents,
            entry.file_name().display()
        );
    }
    Ok(rows)
}
