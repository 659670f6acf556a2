//! The engine itself: its parts, its limits, and what others ask of it.

use super::backing::Backing;
use super::cover::Cover;
use super::events::Inbox;
use super::evidence::Credible;
use super::faults::{Fault, Faults};
use super::flight::{Answer, Want};
use super::holds::Holds;
use super::key::{DeviceIndex, FileKey};
use super::pool::Pool;
use super::space::Device;
use super::state::State;
use super::stats::Stats;
use super::sync::{Condvar, Mutex, MutexGuard};
use crate::extent::{Bytes, ExtentMap, ShareSummary};
use crate::sys::reason;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How far the engine may go.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Memory for what is remembered of files.
    pub cache_size: Bytes,
    /// How long a question may take before it fails with [`AskError::Again`].
    pub wait: Duration,
    /// How old (in whole seconds) an answer about a file may be that is, or shares with one that
    /// is, open for write; zero: always exact.
    pub max_age: Duration,
    /// How long (in whole seconds) a record is believed that changes behind the mount could have
    /// altered unseen; `None`: for ever.
    pub max_trust: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cache_size: Bytes(256 << 20),
            wait: Duration::from_secs(30),
            max_age: Duration::ZERO,
            max_trust: None,
        }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The waiting time passed (`EAGAIN`); the work goes on.
    #[error("not known within the waiting time")]
    Again,
    /// The filesystem cannot say (`ENODATA`).
    #[error("the filesystem cannot say")]
    CannotSay,
    /// The file is gone (`ESTALE`).
    #[error("the file is gone")]
    Gone,
    /// The filesystem failed.
    #[error("{}", reason(.0))]
    Io(#[from] io::Error),
}

/// Threads for questions that take long.
const THREADS: usize = 16;

/// How many files may be active before the engine settles some of its own accord.
const MANY_ACTIVE: usize = 32_768;

/// Which numbers are known, and until when. See the module documentation of
/// [`crate::sharing`].
pub struct Engine<B: Backing> {
    pub(crate) backing: B,
    pub(crate) limits: Limits,
    pub(crate) watches: bool,
    pub(crate) faults: Faults,
    pub(crate) state: Mutex<State>,
    /// Something in the state changed that somebody may wait for.
    pub(crate) changed: Condvar,
    /// Foreign changes on their way into the state.
    pub(crate) inbox: Mutex<Inbox>,
    /// Files that are held open by the engine itself.
    pub(crate) holds: Holds,
    pub(crate) pool: Pool,
    born: Instant,
    me: Weak<Self>,
}

impl<B: Backing> Engine<B> {
    /// An engine over `backing`, with nothing known.
    pub fn new(backing: B, limits: Limits) -> Arc<Self> {
        Self::build(backing, limits, Faults::from_environment())
    }

    /// An engine with a deliberate fault, to show that tests notice.
    #[cfg(feature = "faults")]
    pub fn with_fault(backing: B, limits: Limits, fault: Fault) -> Arc<Self> {
        Self::build(backing, limits, Faults::only(fault))
    }

    fn build(backing: B, limits: Limits, faults: Faults) -> Arc<Self> {
        let watches = backing.watches();
        Arc::new_cyclic(|me| Self {
            backing,
            limits,
            watches,
            faults,
            state: Mutex::new(State::new(limits.cache_size, watches, faults)),
            changed: Condvar::default(),
            inbox: Mutex::new(Inbox::default()),
            holds: Holds::default(),
            pool: Pool::new(THREADS),
            born: Instant::now(),
            me: me.clone(),
        })
    }

    /// The disk below.
    pub fn backing(&self) -> &B {
        &self.backing
    }

    /// Settles what was dirty or half removed before, on every device known so far. To be called
    /// when foreign changes are watched already.
    ///
    /// # Errors
    /// Of the writeback or of carrying out removals.
    pub fn start(&self) -> io::Result<()> {
        self.backing
            .devices()
            .into_iter()
            .try_for_each(|device| self.device_added(device))
    }

    /// Does for one device what [`Engine::start`] does. Otherwise the first question about one
    /// of its files does it.
    ///
    /// # Errors
    /// Of the writeback or of carrying out removals.
    pub fn device_added(&self, device: DeviceIndex) -> io::Result<()> {
        self.drain();
        self.make_ready(device)
    }

    /// The answer, if it needs no slow work: no writeback, no map to read, nobody to wait for.
    pub fn peek(&self, file: FileKey) -> Option<ShareSummary> {
        self.peek_answer(file).map(|answer| answer.numbers)
    }

    /// The numbers of a file.
    ///
    /// # Errors
    /// See [`AskError`].
    pub fn summary(&self, file: FileKey) -> Result<ShareSummary, AskError> {
        Ok(self.answer(file)?.numbers)
    }

    /// The numbers of a file, and whether they stay right until
    /// [`Engine::take_unsettled`] names it.
    ///
    /// # Errors
    /// See [`AskError`].
    pub fn answer(&self, file: FileKey) -> Result<Answer, AskError> {
        match self.peek_answer(file) {
            Some(answer) => Ok(answer),
            None => Ok(self.ask(file, Want::Numbers)?.answer),
        }
    }

    /// The extent map of a file.
    ///
    /// # Errors
    /// See [`AskError`].
    pub fn map(&self, file: FileKey) -> Result<ExtentMap, AskError> {
        self.drain();
        let found = self.ask(file, Want::Map)?;
        Ok(found.map.map(Arc::unwrap_or_clone).unwrap_or_default())
    }

    /// The extent map and its answer, from one reading.
    ///
    /// # Errors
    /// See [`AskError`].
    pub fn answer_with_map(&self, file: FileKey) -> Result<(Answer, Arc<ExtentMap>), AskError> {
        self.drain();
        let found = self.ask(file, Want::Map)?;
        Ok((found.answer, found.map.unwrap_or_default()))
    }

    /// Forgets what is known of a file and of those that share with it, or of all.
    pub fn refresh(&self, file: Option<FileKey>) {
        let device = file.map_or(DeviceIndex(0), |file| file.device);
        let mut state = self.lock_for(device);
        // What nothing told of may not have been written back.
        state.due_barriers();
        let Some(file) = file else {
            for id in state.space_ids() {
                state.forget_space(id);
            }
            return;
        };
        let space = state.space_of(file);
        let Some(slot) = state.table.find(file) else {
            state.lose_all_shared(space);
            return;
        };
        let cover = state.cover(slot);
        state.drop_record(slot);
        if cover.is_known() {
            state.lose(slot, &cover);
        } else {
            state.lose_all_shared(space);
        }
        if state.active(file).is_some() {
            state.set_cover(slot, Cover::Unknown, Credible::NEVER);
        } else {
            state.forget(slot);
        }
    }

    /// What was done and what is held.
    pub fn stats(&self) -> Stats {
        self.state.lock().stats()
    }

    // For the other parts of the engine.

    /// The state, with the device known in it.
    pub(crate) fn lock_for(&self, device: DeviceIndex) -> MutexGuard<'_, State> {
        let state = self.state.lock();
        if state.device(device).is_some() {
            return state;
        }
        drop(state);
        let new = Device {
            space: self.backing.address_space(device),
            unit: self.backing.sharing_unit(device),
            barriers_due: 1,
            barriers_done: 0,
            can_flush: true,
            removals: 0,
            removed: 0,
            removed_files: VecDeque::new(),
        };
        let mut state = self.state.lock();
        state.add_device(device, new);
        state
    }

    /// Seconds since the engine was made.
    pub(crate) fn seconds(&self) -> u32 {
        u32::try_from(self.born.elapsed().as_secs()).unwrap_or(u32::MAX)
    }

    /// Has one of the engine's own threads do `work`.
    pub(crate) fn in_background(&self, work: impl FnOnce(&Self) + Send + 'static) {
        if let Some(me) = self.me.upgrade() {
            self.pool.run(move || work(&me));
        }
    }

    /// Settles files of its own accord when very many are active, so that their number stays
    /// bounded.
    pub(crate) fn sweep(&self) {
        let mut state = self.state.lock();
        if state.actives.len() < MANY_ACTIVE || std::mem::replace(&mut state.sweeping, true) {
            return;
        }
        drop(state);
        self.in_background(|engine| {
            let state = engine.state.lock();
            let quiet: Vec<_> = state
                .actives
                .iter()
                .filter(|(_, active)| !active.is_held())
                .take(MANY_ACTIVE / 2)
                .filter_map(|(slot, _)| state.table.get(super::table::Slot(*slot)))
                .map(|entry| entry.key)
                .collect();
            drop(state);
            for file in quiet {
                if let Err(error) = engine.settle(file) {
                    log::debug!("settling inode {}: {error}", file.ino);
                }
            }
            engine.state.lock().sweeping = false;
        });
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.faults.has(fault)
    }
}
