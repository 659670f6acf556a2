//! What a worker does at a time, and for whom.

use crate::sharing::engine::AskError;
use crate::sharing::key::FileKey;
use crate::sharing::sync::Mutex;
use crate::sharing::tree::Tick;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The work that a question waits for.
pub(in crate::sharing) struct Ticket {
    /// When the question began.
    pub(super) since: Tick,
    jobs: AtomicUsize,
    failure: Mutex<Option<Failure>>,
}

/// Why work failed, as everybody who waits for it is told.
#[derive(Clone, Copy)]
enum Failure {
    Again,
    CannotSay,
    Gone,
    Errno(i32),
}

impl Ticket {
    /// A ticket without jobs.
    pub(super) fn new(since: Tick) -> Self {
        Self {
            since,
            jobs: AtomicUsize::new(0),
            failure: Mutex::new(None),
        }
    }

    /// One job is done.
    pub(super) fn leave(&self) {
        self.jobs.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether all jobs are done.
    pub(super) fn is_done(&self) -> bool {
        self.jobs.load(Ordering::Acquire) == 0
    }

    /// Notes a failure; the first one counts.
    pub(super) fn fail(&self, error: &AskError) {
        let failure = match error {
            AskError::Again => Failure::Again,
            AskError::CannotSay => Failure::CannotSay,
            AskError::Gone => Failure::Gone,
            AskError::Io(error) => Failure::Errno(error.raw_os_error().unwrap_or(libc::EIO)),
        };
        self.failure.lock().get_or_insert(failure);
    }

    /// What became of it.
    pub(super) fn result(&self) -> Result<(), AskError> {
        match *self.failure.lock() {
            None => Ok(()),
            Some(Failure::Again) => Err(AskError::Again),
            Some(Failure::CannotSay) => Err(AskError::CannotSay),
            Some(Failure::Gone) => Err(AskError::Gone),
            Some(Failure::Errno(errno)) => Err(io::Error::from_raw_os_error(errno).into()),
        }
    }
}

/// One piece of work.
pub(super) struct Job {
    ticket: Arc<Ticket>,
    pub(super) task: Task,
}

/// What is to be done.
pub(super) enum Task {
    /// Read a directory and look at what is new in it.
    Listing(FileKey),
    /// Look at files.
    Files(Vec<FileKey>),
}

impl Job {
    fn new(ticket: &Arc<Ticket>, task: Task) -> Self {
        ticket.jobs.fetch_add(1, Ordering::AcqRel);
        Self {
            ticket: Arc::clone(ticket),
            task,
        }
    }

    /// Read a directory.
    pub(super) fn listing(ticket: &Arc<Ticket>, directory: FileKey) -> Self {
        Self::new(ticket, Task::Listing(directory))
    }

    /// Look at files.
    pub(super) fn files(ticket: &Arc<Ticket>, files: Vec<FileKey>) -> Self {
        Self::new(ticket, Task::Files(files))
    }

    /// For whom.
    pub(super) fn ticket(&self) -> &Arc<Ticket> {
        &self.ticket
    }

    /// The directory to be read, if it is about one.
    pub(super) fn directory(&self) -> Option<FileKey> {
        match self.task {
            Task::Listing(directory) => Some(directory),
            Task::Files(_) => None,
        }
    }
}
