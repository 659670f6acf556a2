//! The scanner: bounded workers that read directories and look at the files in them.
//!
//! A **ticket** is the work that one question waits for: the jobs given out for it, and those that
//! come of them. Jobs of all tickets wait in one queue, so that the number of workers is bounded
//! whoever asks. A worker takes whole directories, of the part of the disk it was last at, since
//! threads in one allocation group of XFS wait for each other; newer jobs come first, so that a
//! question about a small tree does not wait for a scan of the whole.
//!
//! Invariants: a directory is in the queue at most once; every job is counted in its ticket until
//! it is done, with the jobs that came of it counted before; a worker holds no lock while it reads.

mod job;
mod progress;
mod queue;
mod work;

pub(super) use job::Ticket;
pub use progress::{Progress, ScanState};

use super::directories::Directories;
use super::engine::AskError;
use super::key::FileKey;
use super::sync::{Condvar, Mutex, spawn};
use super::tree::{Tick, Work};
use super::walk::Walk;
use job::Job;
use queue::Queue;
use std::sync::Arc;
use std::time::Instant;

/// Files in one job.
const FILES: usize = 64;

/// Locks for parts of the disk.
const LANES: usize = 64;

/// The queue, its workers, and what they have done.
pub(super) struct Scanner {
    queue: Mutex<Queue<Job>>,
    /// A job was put in, or the last one taken out is done.
    wake: Condvar,
    most_workers: usize,
    /// Held while files in one part of the disk are mapped, those of parts with the same number
    /// modulo theirs. Threads that do so at the same time wait for each other in the kernel at
    /// each file; here they wait once for many.
    lanes: [Mutex<()>; LANES],
    pub(super) progress: Progress,
}

impl Scanner {
    /// A scanner with at most this many workers.
    pub(super) fn new(most_workers: usize) -> Self {
        Self {
            queue: Mutex::new(Queue::default()),
            wake: Condvar::default(),
            most_workers: most_workers.max(1),
            lanes: std::array::from_fn(|_| Mutex::new(())),
            progress: Progress::default(),
        }
    }

    /// The lock for a part of the disk.
    fn lane(&self, group: u32) -> Option<&Mutex<()>> {
        self.lanes.get(group as usize % LANES)
    }

    /// What it has done and has to do.
    pub(super) fn state(&self) -> ScanState {
        let queue = self.queue.lock();
        self.progress.state(queue.len(), queue.running())
    }
}

impl<B: Walk> Directories<B> {
    /// Gives work out, for a question that began at `since`.
    pub(super) fn give_out(&self, work: Work, since: Tick) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket::new(since));
        let mut jobs = Vec::new();
        for directory in work.listings {
            if self.tree.lock().enqueue(directory) {
                let group = self.backing().group(directory);
                jobs.push((group, Job::listing(&ticket, directory)));
            }
        }
        // Collected in the order of their inodes, so each job keeps to one part of the disk.
        for files in work.files.chunks(FILES) {
            let group = files.first().map_or(0, |&file| self.backing().group(file));
            jobs.push((group, Job::files(&ticket, files.to_vec())));
        }
        self.put_in(jobs);
        ticket
    }

    /// Waits until the work of a ticket is done.
    ///
    /// # Errors
    /// [`AskError::Again`] at the deadline or when the scanner is stopped, else what the work
    /// failed with.
    pub(super) fn wait_for(&self, ticket: &Ticket, deadline: Instant) -> Result<(), AskError> {
        let mut queue = self.scanner.queue.lock();
        while !ticket.is_done() {
            if !self.scanner.wake.wait_until(&mut queue, deadline) {
                return Err(AskError::Again);
            }
        }
        drop(queue);
        ticket.result()
    }

    /// Puts jobs into the queue and sees to it that there are workers.
    fn put_in(&self, jobs: Vec<(u32, Job)>) {
        if jobs.is_empty() {
            return;
        }
        let mut queue = self.scanner.queue.lock();
        for (group, job) in jobs {
            queue.put(group, job);
        }
        let missing = queue
            .len()
            .min(self.scanner.most_workers.saturating_sub(queue.workers()));
        let mut started = 0;
        for _ in 0..missing {
            queue.worker_comes();
            started += 1;
        }
        let idle = queue.idle() > 0;
        drop(queue);
        if idle {
            self.scanner.wake.notify_all();
        }
        for _ in 0..started {
            let Some(me) = self.me.upgrade() else { return };
            let is_started = spawn(move || me.work());
            if !is_started {
                let mut queue = self.scanner.queue.lock();
                queue.worker_goes();
                if queue.workers() == 0 {
                    // Nobody can do it: those who wait ask again.
                    let stranded = queue.clear();
                    drop(queue);
                    self.give_up(stranded);
                }
            }
        }
    }

    /// A worker: takes jobs until none is left and none can come.
    fn work(&self) {
        let mut place = 0;
        loop {
            let mut queue = self.scanner.queue.lock();
            let (group, job) = loop {
                if let Some(taken) = queue.take(place) {
                    break taken;
                }
                if queue.running() == 0 {
                    queue.worker_goes();
                    drop(queue);
                    self.scanner.wake.notify_all();
                    return;
                }
                queue.rest();
                self.scanner.wake.wait(&mut queue);
                queue.resume();
            };
            drop(queue);
            place = group;
            let ticket = Arc::clone(job.ticket());
            if self.is_stopping() {
                ticket.fail(&AskError::Again);
            } else if let Err(error) = self.run(job) {
                ticket.fail(&error);
            }
            ticket.leave();
            let mut queue = self.scanner.queue.lock();
            queue.done(group);
            let wake = ticket.is_done() || (queue.running() == 0 && queue.idle() > 0);
            drop(queue);
            if wake {
                self.scanner.wake.notify_all();
            }
        }
    }

    /// Takes everything out of the queue: nobody works on it any more.
    pub(super) fn stop_scanner(&self) {
        let jobs = self.scanner.queue.lock().clear();
        self.give_up(jobs);
    }

    fn give_up(&self, jobs: Vec<Job>) {
        for job in jobs {
            if let Some(directory) = job.directory() {
                self.tree.lock().dequeue(directory);
            }
            job.ticket().fail(&AskError::Again);
            job.ticket().leave();
        }
        self.scanner.wake.notify_all();
    }

    /// Puts the directories met in another one into the queue.
    fn put_listings(&self, ticket: &Arc<Ticket>, directories: &[FileKey]) {
        let mut tree = self.tree.lock();
        let new: Vec<FileKey> = directories
            .iter()
            .copied()
            .filter(|&directory| tree.enqueue(directory))
            .collect();
        drop(tree);
        let jobs = new
            .into_iter()
            .map(|directory| {
                let group = self.backing().group(directory);
                (group, Job::listing(ticket, directory))
            })
            .collect();
        self.put_in(jobs);
    }
}
