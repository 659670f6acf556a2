//! The engine's own descriptors: which files it holds open at this moment.
//!
//! A removed file lives on for as long as anything holds it, the engine's own readings included,
//! and its blocks stay shared until then. Whoever finds such a file alive waits here until none of
//! ours holds it.
//!
//! Invariant: nobody waits for anything but the disk while holding a file, so that waiting here
//! always ends.

use super::backing::Backing;
use super::engine::Engine;
use super::key::FileKey;
use super::sync::{Condvar, Mutex};
use super::table::KeyMap;
use std::collections::BTreeSet;
use std::io;
use std::ops::Deref;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    held: Mutex<Held>,
    let_go: Condvar,
}

#[derive(Debug, Default)]
struct Held {
    files: KeyMap<FileKey, u32>,
    /// Walks that open files by name, by number: which files is not known beforehand.
    walks: BTreeSet<u64>,
    walks_begun: u64,
    waiting: u32,
}

/// What is held.
#[derive(Clone, Copy, Debug)]
enum What {
    File(FileKey),
    Walk(u64),
}

/// Ends a hold when it is dropped.
#[derive(Debug)]
pub(crate) struct Hold<'a> {
    holds: &'a Holds,
    what: What,
}

impl Holds {
    /// The file is about to be opened.
    fn file(&self, file: FileKey) -> Hold<'_> {
        *self.held.lock().files.entry(file).or_default() += 1;
        Hold {
            holds: self,
            what: What::File(file),
        }
    }

    /// Files are about to be opened by name.
    pub(crate) fn walk(&self) -> Hold<'_> {
        let mut held = self.held.lock();
        held.walks_begun += 1;
        let number = held.walks_begun;
        held.walks.insert(number);
        Hold {
            holds: self,
            what: What::Walk(number),
        }
    }

    /// Waits until nothing of ours that holds the file now does so any more.
    pub(crate) fn wait_for(&self, file: FileKey) {
        let mut held = self.held.lock();
        let begun = held.walks_begun;
        held.waiting += 1;
        while held.files.contains_key(&file)
            || held.walks.first().is_some_and(|first| *first <= begun)
        {
            self.let_go.wait(&mut held);
        }
        held.waiting -= 1;
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut held = self.holds.held.lock();
        match self.what {
            What::File(file) => {
                if let Some(count) = held.files.get_mut(&file) {
                    *count -= 1;
                    if *count == 0 {
                        held.files.remove(&file);
                    }
                }
            }
            What::Walk(number) => {
                held.walks.remove(&number);
            }
        }
        let awaited = held.waiting > 0;
        drop(held);
        if awaited {
            self.holds.let_go.notify_all();
        }
    }
}

/// A file that the engine holds open.
pub(crate) struct HeldFile<'a, F> {
    // Closed before the hold ends.
    file: F,
    _hold: Hold<'a>,
}

impl<F> Deref for HeldFile<'_, F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.file
    }
}

impl<B: Backing> Engine<B> {
    /// Opens a file for mapping.
    ///
    /// # Errors
    /// As [`Backing::open`].
    pub(crate) fn open(&self, file: FileKey) -> io::Result<HeldFile<'_, B::File>> {
        let hold = self.holds.file(file);
        Ok(HeldFile {
            file: self.backing.open(file)?,
            _hold: hold,
        })
    }
}
