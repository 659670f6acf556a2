//! Questions about directories: their totals, their children, and who shares with a file.
//!
//! The engine knows files, the tree knows where they are and keeps the sums; this joins the two. A
//! question takes in what can no longer be trusted, has exactly that looked at again, and reads
//! the sums off.
//!
//! Invariants:
//! - a total is the sum of numbers each exact at a moment between question and answer: a file is
//!   settled by work that began after the question, or by earlier work and not named by the engine
//!   up to the question;
//! - changes of names are told before and after ([`Directories::begin_names`]), so a listing is
//!   what the directory held at one moment with every later change applied;
//! - the tree's lock is never held over a call to the disk or to the engine.

use super::engine::{AskError, Engine};
use super::key::FileKey;
use super::passes::{Asking, Passes};
use super::peers::PeerCounts;
use super::scan::{ScanState, Scanner};
use super::sync::{Condvar, Mutex};
use super::totals::DirTotals;
use super::tree::{NameChange, NamesInFlight, Tick, Tree, Work};
use super::unsettled::Unsettled;
use super::walk::Walk;
use hashbrown::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Rounds in which a listing that changed behind the mount since it was read is read again.
pub(super) const RELIST: usize = 4;

/// Files that a question looks at itself instead of having workers do it.
const FEW: usize = 4;

/// How long to wait at a time for somebody else's reading, or for names under way.
const MOMENT: Duration = Duration::from_millis(20);

/// Scans at one time that nobody waits for.
const BEGUN: usize = 4;

/// How far a scan that nobody waits for is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStep {
    /// It was not begun, or has ended without reading everything.
    Idle,
    /// It is under way.
    UnderWay,
    /// Everything below was read at least once.
    Known,
}

/// See the module.
pub struct Directories<B: Walk> {
    pub(super) engine: Arc<Engine<B>>,
    pub(super) tree: Mutex<Tree>,
    /// Names ceased to be under way, or to be held back, or a directory was read.
    names_changed: Condvar,
    /// Directories whose names are held back while somebody reads them.
    held: Mutex<HashSet<FileKey>>,
    /// Directories being scanned without anybody waiting.
    begun: Mutex<HashSet<FileKey>>,
    pub(super) scanner: Scanner,
    pub(super) peer_counts: Mutex<PeerCounts>,
    pub(super) passes: Passes,
    stopping: AtomicBool,
    in_use: AtomicBool,
    /// When everything was marked last because of `max_trust`.
    refreshed: Mutex<Instant>,
    pub(super) me: Weak<Self>,
}

impl<B: Walk> Directories<B> {
    /// Directories of the engine's disk, scanned by at most `workers` threads.
    pub fn new(engine: Arc<Engine<B>>, workers: usize) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            engine,
            tree: Mutex::new(Tree::new()),
            names_changed: Condvar::default(),
            held: Mutex::new(HashSet::new()),
            begun: Mutex::new(HashSet::new()),
            scanner: Scanner::new(workers),
            peer_counts: Mutex::default(),
            passes: Passes::default(),
            stopping: AtomicBool::new(false),
            in_use: AtomicBool::new(false),
            refreshed: Mutex::new(Instant::now()),
            me: me.clone(),
        })
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine<B>> {
        &self.engine
    }

    pub(super) fn backing(&self) -> &B {
        self.engine.backing()
    }

    /// The totals, if they need no slow work.
    pub fn peek(&self, directory: FileKey) -> Option<DirTotals> {
        self.take_in();
        let mut tree = self.tree.lock();
        if tree.is_ready(directory) && self.is_young(&tree, directory) {
            tree.totals(directory)
        } else {
            None
        }
    }

    /// The totals of a directory.
    ///
    /// # Errors
    /// See [`AskError`]; `Gone` when the directory is gone.
    pub fn totals(&self, directory: FileKey) -> Result<DirTotals, AskError> {
        self.settle_then(directory, |tree| tree.totals(directory))
    }

    /// Has everything below a directory settled, then reads from the tree before anything else
    /// happens to it.
    ///
    /// # Errors
    /// See [`AskError`]; `Gone` when the directory is gone, or `read` finds nothing.
    pub(super) fn settle_then<T>(
        &self,
        directory: FileKey,
        read: impl Fn(&mut Tree) -> Option<T>,
    ) -> Result<T, AskError> {
        let deadline = Instant::now() + self.engine.limits.wait;
        self.take_in();
        let (asking, since) = self.begin(directory);
        for round in 0.. {
            let mut tree = self.tree.lock();
            let work = tree.collect(directory, since, round < RELIST);
            if work.is_done() {
                if work == Work::default() {
                    tree.drop_orphans();
                }
                asking.finished();
                tree.note_settled(directory);
                return read(&mut tree).ok_or(AskError::Gone);
            }
            drop(tree);
            if Instant::now() >= deadline || self.is_stopping() {
                return Err(AskError::Again);
            }
            self.do_work(work, since, deadline)?;
            self.take_in();
        }
        Err(AskError::Again)
    }

    /// Begins a question about a directory, which is kept from now on; and when that was.
    pub(super) fn begin(&self, directory: FileKey) -> (Asking<'_>, Tick) {
        let space = self.backing().address_space(directory.device);
        self.in_use.store(true, Ordering::Release);
        let mut tree = self.tree.lock();
        tree.learn_space(directory.device, space);
        tree.watch(directory);
        let asking = self.ask(&mut tree, directory, true);
        (asking, tree.tick())
    }

    /// The same about a directory that is known, without having old listings read again.
    pub(super) fn begin_as_is(&self, directory: FileKey) -> (Asking<'_>, Tick) {
        let mut tree = self.tree.lock();
        let asking = self.ask(&mut tree, directory, false);
        (asking, tree.tick())
    }

    pub(super) fn do_work(
        &self,
        work: Work,
        since: Tick,
        deadline: Instant,
    ) -> Result<(), AskError> {
        if work.listings.is_empty() && work.files.len() <= FEW {
            self.look_at_files(&work.files, since, Some(deadline))?;
        } else {
            let ticket = self.give_out(work, since);
            return self.wait_for(&ticket, deadline);
        }
        if work.claimed > 0 && work.files.is_empty() {
            self.wait_for_others(deadline);
        }
        Ok(())
    }

    /// Wakes those who wait for somebody else's readings.
    pub(super) fn reading_ended(&self) {
        self.names_changed.notify_all();
    }

    /// Waits a moment for somebody else's readings.
    fn wait_for_others(&self, deadline: Instant) {
        let mut tree = self.tree.lock();
        let moment = (Instant::now() + MOMENT).min(deadline);
        self.names_changed.wait_until(&mut tree, moment);
    }

    /// Takes in what can no longer be trusted.
    pub(super) fn take_in(&self) {
        let mut unsettled = Vec::new();
        self.engine.take_unsettled(&mut |it| unsettled.push(it));
        let expired = self.engine.limits.max_trust.is_some_and(|most| {
            let mut refreshed = self.refreshed.lock();
            let expired = refreshed.elapsed() >= most;
            if expired {
                *refreshed = Instant::now();
            }
            expired
        });
        if unsettled.is_empty() && !expired {
            return;
        }
        let mut tree = self.tree.lock();
        for unsettled in unsettled {
            match unsettled {
                Unsettled::File(file) => tree.mark(file),
                Unsettled::Listing(directory) => {
                    tree.mark_listing(directory);
                    tree.mark(directory);
                }
                Unsettled::Everything => {
                    tree.mark_all();
                    tree.mark_all_listings();
                }
            }
        }
        if expired {
            tree.mark_all();
            if !self.engine.watches {
                tree.mark_all_listings();
            }
        }
    }

    /// Forgets everything that is known of directories.
    pub fn refresh(&self) {
        self.tree.lock().clear();
    }

    /// Whether a question was ever asked. Until then what became of a change of names need not be
    /// found out, only that it happened.
    pub fn in_use(&self) -> bool {
        self.in_use.load(Ordering::Acquire)
    }

    /// How far the scanner is.
    pub fn scan_state(&self) -> ScanState {
        self.scanner.state()
    }

    /// Bytes of memory that directories and their files take, and the numbers of both.
    pub fn memory(&self) -> (usize, usize, usize) {
        let tree = self.tree.lock();
        let (files, directories) = tree.len();
        (tree.memory_bytes(), files, directories)
    }

    /// Things at or below a directory that could not be read, as far as is known.
    pub fn skipped(&self, directory: FileKey) -> u64 {
        self.tree.lock().skipped(directory)
    }

    /// Begins to scan a directory without waiting for it; whether that is under way now. At most
    /// a few are at one time.
    pub fn scan_in_background(&self, directory: FileKey) -> bool {
        let Some(me) = self.me.upgrade() else {
            return false;
        };
        {
            let mut begun = self.begun.lock();
            if begun.contains(&directory) {
                return true;
            }
            if begun.len() >= BEGUN {
                return false;
            }
            begun.insert(directory);
        }
        self.engine.in_background(move |_| {
            while let Err(error) = me.settle_then(directory, |_| Some(())) {
                if me.is_stopping() || !matches!(error, AskError::Again) {
                    log::warn!("the scan ended early: {error}");
                    break;
                }
            }
            me.begun.lock().remove(&directory);
        });
        true
    }

    /// How far the scan of a directory is; with `begin` it is begun if it has to be. Waits for
    /// nothing.
    pub fn scan_step(&self, directory: FileKey, begin: bool) -> ScanStep {
        if self.tree.lock().was_read(directory) {
            ScanStep::Known
        } else if self.begun.lock().contains(&directory)
            || begin && self.scan_in_background(directory)
        {
            ScanStep::UnderWay
        } else {
            ScanStep::Idle
        }
    }

    /// Ends all scanning for good: whoever waits is told to ask again.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.stop_scanner();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    // Names.

    /// Announces that names will change in these directories; the guard is told what became of
    /// it.
    pub fn begin_names(&self, directories: &[FileKey]) -> NamesGuard<'_, B> {
        let mut tree = self.tree.lock();
        while self.is_held(directories) {
            self.names_changed.wait(&mut tree);
        }
        NamesGuard {
            directories: self,
            names: Some(tree.begin_names(directories)),
        }
    }

    fn is_held(&self, directories: &[FileKey]) -> bool {
        let held = self.held.lock();
        !held.is_empty() && directories.iter().any(|directory| held.contains(directory))
    }

    /// Waits until no names are under way in a directory, at most a moment.
    pub(super) fn wait_for_names(&self, directory: FileKey) {
        let mut tree = self.tree.lock();
        let moment = Instant::now() + MOMENT;
        while tree.is_in_flight(directory) && Instant::now() < moment {
            self.names_changed.wait_until(&mut tree, moment);
        }
    }

    /// Holds names in a directory back until the guard is dropped, and waits for those under way.
    pub(super) fn hold_names(&self, directory: FileKey) -> HeldNames<'_, B> {
        let mut tree = self.tree.lock();
        self.held.lock().insert(directory);
        while tree.is_in_flight(directory) {
            self.names_changed.wait(&mut tree);
        }
        HeldNames {
            directories: self,
            directory,
        }
    }
}

/// Names in a directory are held back.
pub(super) struct HeldNames<'a, B: Walk> {
    directories: &'a Directories<B>,
    directory: FileKey,
}

impl<B: Walk> Drop for HeldNames<'_, B> {
    fn drop(&mut self) {
        let tree = self.directories.tree.lock();
        self.directories.held.lock().remove(&self.directory);
        drop(tree);
        self.directories.names_changed.notify_all();
    }
}

/// Names are changing. Dropped without a word, what became of it is not known, and the
/// directories are read again.
#[must_use = "the change of names ends when the guard is dropped"]
pub struct NamesGuard<'a, B: Walk> {
    directories: &'a Directories<B>,
    names: Option<NamesInFlight>,
}

impl<B: Walk> NamesGuard<'_, B> {
    /// The change was made, and was this. To be called before the reply, so that changes of one
    /// directory are told in their order.
    pub fn done(mut self, changes: &[NameChange]) {
        self.end(Some(changes));
    }

    /// The system call failed: nothing changed.
    pub fn failed(mut self) {
        self.end(Some(&[]));
    }

    fn end(&mut self, changes: Option<&[NameChange]>) {
        let Some(names) = self.names.take() else {
            return;
        };
        let mut tree = self.directories.tree.lock();
        tree.end_names(names, changes);
        drop(tree);
        self.directories.names_changed.notify_all();
    }
}

impl<B: Walk> Drop for NamesGuard<'_, B> {
    fn drop(&mut self) {
        self.end(None);
    }
}
