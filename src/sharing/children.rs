//! The entries of a directory with their numbers.

use super::directories::Directories;
use super::engine::AskError;
use super::key::FileKey;
use super::tree::{Child, Tree};
use super::walk::{Identity, Kind, Name, Walk};
use crate::extent::ShareSummary;
use std::ffi::CString;

/// Entries read at a time.
const NAMES: usize = 4096;

/// Readings before names are identified one by one.
const READINGS: usize = 3;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: CString,
    /// What it stands for.
    pub child: Child,
    /// Its numbers; of a directory its totals. `None` for other things, and for what appeared
    /// only after everything had been settled.
    pub numbers: Option<ShareSummary>,
}

impl<B: Walk> Directories<B> {
    /// The entries of a directory with their numbers, in the order in which they are read.
    ///
    /// # Errors
    /// See [`AskError`]; `Gone` when the directory is gone.
    pub fn children(&self, directory: FileKey) -> Result<Vec<Row>, AskError> {
        for _ in 0..READINGS {
            let version = self.settle_then(directory, |tree| {
                tree.knows_directory(directory)
                    .then(|| tree.listing_version(directory))
            })?;
            let names = self.names(directory)?;
            self.take_in();
            // What is known of the directory is what it held all the time while it was read, so
            // that an inode number tells which inode the name stands for.
            let mut tree = self.tree.lock();
            if version.is_some() && tree.listing_version(directory) == version {
                let held = tree.held(directory);
                let rows = names.into_iter().map(|name| {
                    let child = match name.kind {
                        Kind::Other => Child::Other,
                        _ => held.get(&name.ino).copied().unwrap_or(Child::Other),
                    };
                    (name, child)
                });
                let (sure, unsure): (Vec<_>, Vec<_>) = rows
                    .partition(|(name, child)| name.kind == Kind::Other || *child != Child::Other);
                let mut rows: Vec<Row> = sure
                    .into_iter()
                    .map(|(name, child)| row(&mut tree, name, child))
                    .collect();
                drop(tree);
                let unsure = unsure.into_iter().map(|(name, _)| name).collect();
                rows.extend(self.identify_rows(directory, unsure)?);
                return Ok(rows);
            }
        }
        let names = self.names(directory)?;
        self.identify_rows(directory, names)
    }

    /// The numbers of some children of a directory; `None` for what it does not hold, or holds
    /// only since everything was settled.
    ///
    /// # Errors
    /// See [`AskError`]; `Gone` when the directory is gone.
    pub fn numbers_in(
        &self,
        directory: FileKey,
        children: &[Child],
    ) -> Result<Vec<Option<ShareSummary>>, AskError> {
        self.settle_then(directory, |tree| {
            tree.knows_directory(directory).then(|| {
                children
                    .iter()
                    .map(|&child| tree.child_numbers(directory, child))
                    .collect()
            })
        })
    }

    /// Rows of names that have to be looked up.
    fn identify_rows(&self, directory: FileKey, names: Vec<Name>) -> Result<Vec<Row>, AskError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let opened = self.backing().open_directory(directory)?;
        let mut rows = Vec::with_capacity(names.len());
        for name in names {
            let child = match self.backing().identify(&opened, &name) {
                Ok(Identity::File { key, .. }) => Child::File(key),
                Ok(Identity::Directory(key)) => Child::Directory(key),
                Ok(Identity::Other | Identity::Elsewhere) => Child::Other,
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESTALE)) => {
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            rows.push(row(&mut self.tree.lock(), name, child));
        }
        Ok(rows)
    }

    fn names(&self, directory: FileKey) -> Result<Vec<Name>, AskError> {
        let mut opened = self.backing().open_directory(directory).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::ESTALE | libc::ENOENT) => AskError::Gone,
                _ => AskError::Io(error),
            }
        })?;
        let mut names = Vec::new();
        while self
            .backing()
            .read_directory(&mut opened, NAMES, &mut names)?
        {}
        Ok(names)
    }
}

fn row(tree: &mut Tree, name: Name, child: Child) -> Row {
    let numbers = match child {
        Child::File(key) => tree.numbers(key),
        Child::Directory(key) => tree.sums(key),
        Child::Other => None,
    };
    Row {
        name: name.text,
        child,
        numbers,
    }
}
