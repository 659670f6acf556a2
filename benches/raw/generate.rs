//! The trees and files that the workloads ask about, the same for the same arguments.

use crate::harness::{Context, Result, interrupted};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Block size of the images.
pub(crate) const BLOCK: u64 = 4096;
/// Files in one directory of a generated tree.
pub(crate) const FILES_PER_DIRECTORY: usize = 1000;

/// A tree of equal directories of small files with pseudo-random content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    /// Number of files.
    pub(crate) files: usize,
    /// Files are 1 to this many blocks long.
    pub(crate) largest: u64,
}

/// Path of file `number` below the root of a generated tree.
pub(crate) fn file_path(number: usize) -> PathBuf {
    PathBuf::from(format!("d{:04}/f{number:07}", number / FILES_PER_DIRECTORY))
}

impl Tree {
    /// The tree of the field's report: files of 4096 x (1 + r mod 8) bytes.
    pub(crate) fn of_small_files(files: usize) -> Self {
        Self { files, largest: 8 }
    }

    /// Writes the tree below `root`, which is made.
    pub(crate) fn write(&self, root: &Path) -> Result<()> {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut content = vec![0; (self.largest * BLOCK) as usize];
        for number in 0..self.files {
            let path = root.join(file_path(number));
            if number.is_multiple_of(FILES_PER_DIRECTORY)
                && let Some(directory) = path.parent()
            {
                interrupted()?;
                fs::create_dir_all(directory).context(directory)?;
            }
            let length = ((1 + u64::from(random.next_u32()) % self.largest) * BLOCK) as usize;
            let content = content.get_mut(..length).unwrap_or_default();
            random.fill_bytes(content);
            fs::write(&path, content).context(&path)?;
        }
        Ok(())
    }

    /// Paths of all files below `root`, directory by directory.
    pub(crate) fn paths(&self, root: &Path) -> Result<Vec<CString>> {
        (0..self.files)
            .map(|number| c_path(&root.join(file_path(number))))
            .collect()
    }
}

/// Clones each file below `from` to the same path below `to`, which is made.
pub(crate) fn clone_tree(from: &Path, to: &Path) -> Result<()> {
    interrupted()?;
    fs::create_dir_all(to).context(to)?;
    for entry in fs::read_dir(from).context(from)? {
        let entry = entry?;
        let (source, copy) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            clone_tree(&source, &copy)?;
        } else if kind.is_file() {
            clone_file(&source, &copy)?;
        }
    }
    Ok(())
}

/// Makes `to` a clone of `from` (`FICLONE`).
pub(crate) fn clone_file(from: &Path, to: &Path) -> Result<()> {
    let source = File::open(from).context(from)?;
    let copy = File::create(to).context(to)?;
    rustix::fs::ioctl_ficlone(&copy, &source).context(to)
}

/// Writes a file of `extents` extents: every second block is a hole.
pub(crate) fn write_fragmented(path: &Path, extents: u64) -> Result<()> {
    let mut random = ChaCha8Rng::seed_from_u64(2);
    let mut block = [0; BLOCK as usize];
    let file = File::create(path).context(path)?;
    for number in 0..extents {
        random.fill_bytes(&mut block);
        file.write_all_at(&block, 2 * number * BLOCK)
            .context(path)?;
    }
    file.sync_all().context(path)
}

/// Writes `length` pseudo-random bytes (of a repeating megabyte, so that it costs little).
pub(crate) fn write_solid(path: &Path, length: u64) -> Result<File> {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut content = vec![0; 1 << 20];
    random.fill_bytes(&mut content);
    let file = File::create(path).context(path)?;
    let mut offset = 0;
    while offset < length {
        let step = (length - offset).min(content.len() as u64);
        let content = content.get(..step as usize).unwrap_or_default();
        file.write_all_at(content, offset).context(path)?;
        offset += step;
    }
    Ok(file)
}

/// `path` as the kernel takes it.
pub(crate) fn c_path(path: &Path) -> Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}
