//! Where nobody tells of changes behind the mount: when directories are read again to see them.
//!
//! A pass has every directory below one read again, with the stamp of each file in it compared.
//!
//! Invariants:
//! - what a question finds to be known below a directory was read after the last pass of that
//!   directory, or of one above it, began;
//! - a pass that is young enough, or that somebody still works on, is not begun anew: a question
//!   that is asked again for as long as it takes gets on.

use super::directories::Directories;
use super::key::FileKey;
use super::sync::Mutex;
use super::tree::Tree;
use super::walk::Walk;
use hashbrown::HashMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long nobody may ask before a pass that did not come to its end is given up.
const ABANDONED: Duration = Duration::from_secs(2);

/// Passes remembered before the old ones are dropped.
const MANY: usize = 1024;

/// The passes over all directories that were asked about.
#[derive(Default)]
pub(super) struct Passes {
    every: OnceLock<Duration>,
    of: Mutex<HashMap<FileKey, Pass>>,
}

struct Pass {
    began: Instant,
    /// When somebody asked last.
    touched: Instant,
    askers: u32,
    finished: bool,
}

/// A question that is being answered. It ends when this is dropped.
pub(super) struct Asking<'a> {
    /// `None` where it has no part in a pass.
    passes: Option<&'a Passes>,
    directory: FileKey,
}

impl<B: Walk> Directories<B> {
    /// Has directories read again by a question when that was not done for so long. For
    /// directories of which nobody tells what others change.
    pub fn read_again_every(&self, time: Duration) {
        // Said once, when the filesystem is made.
        let _ = self.passes.every.set(time);
    }

    /// Whether what is known below a directory is young enough.
    pub(super) fn is_young(&self, tree: &Tree, directory: FileKey) -> bool {
        let Some(&every) = self.passes.every.get() else {
            return true;
        };
        let of = self.passes.of.lock();
        tree.above(directory)
            .iter()
            .filter_map(|above| of.get(above))
            .any(|pass| pass.began.elapsed() < every)
    }

    /// A question begins about all that is below a directory; with `again`, what is too old is to
    /// be read again.
    pub(super) fn ask(&self, tree: &mut Tree, directory: FileKey, again: bool) -> Asking<'_> {
        let passes = (again && self.passes.every.get().is_some()).then_some(&self.passes);
        let asking = Asking { passes, directory };
        if passes.is_none() {
            return asking;
        }
        let young = self.is_young(tree, directory);
        let now = Instant::now();
        let mut of = self.passes.of.lock();
        if of.len() >= MANY {
            of.retain(|_, pass| pass.askers > 0 || pass.touched.elapsed() < ABANDONED);
        }
        let goes_on = of.get(&directory).is_some_and(|pass| {
            !pass.finished && (pass.askers > 0 || pass.touched.elapsed() < ABANDONED)
        });
        let pass = of.entry(directory).or_insert(Pass {
            began: now,
            touched: now,
            askers: 0,
            finished: true,
        });
        pass.askers += 1;
        if !young && !goes_on {
            pass.began = now;
            pass.finished = false;
            drop(of);
            tree.mark_listings_below(directory);
        }
        asking
    }
}

impl Asking<'_> {
    /// Everything below was settled.
    pub(super) fn finished(&self) {
        self.note(|pass| pass.finished = true);
    }

    fn note(&self, what: impl FnOnce(&mut Pass)) {
        if let Some(passes) = self.passes
            && let Some(pass) = passes.of.lock().get_mut(&self.directory)
        {
            what(pass);
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.note(|pass| {
            pass.askers = pass.askers.saturating_sub(1);
            pass.touched = Instant::now();
        });
    }
}
