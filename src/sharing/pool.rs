//! Threads for work that must not hold up its asker: made when needed, gone when idle.

use super::sync::{Condvar, Mutex, spawn};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

/// A bounded, elastic pool of threads.
#[derive(Clone)]
pub(crate) struct Pool {
    shared: Arc<(Mutex<Queue>, Condvar)>,
    most: usize,
}

impl Pool {
    const IDLE: Duration = Duration::from_secs(5);

    /// A pool of at most `most` threads, none yet.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            shared: Arc::new((Mutex::new(Queue::default()), Condvar::default())),
            most,
        }
    }

    /// Has `job` run soon by one of the threads; here and now where not one can be made.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.shared.0.lock();
        queue.jobs.push_back(Box::new(job));
        if queue.idle >= queue.jobs.len() || queue.threads >= self.most {
            drop(queue);
            self.shared.1.notify_all();
            return;
        }
        queue.threads += 1;
        drop(queue);
        let pool = self.clone();
        if !spawn(move || pool.work()) {
            let mut queue = self.shared.0.lock();
            queue.threads -= 1;
            let stranded = if queue.threads == 0 {
                queue.jobs.pop_back()
            } else {
                None
            };
            drop(queue);
            if let Some(job) = stranded {
                job();
            }
        }
    }

    fn work(&self) {
        let (jobs, wake) = &*self.shared;
        let mut queue = jobs.lock();
        loop {
            while let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job();
                queue = jobs.lock();
            }
            // Under the concurrency checker no time passes, and a thread that waits for ever
            // would look like a deadlock.
            if cfg!(feature = "shuttle") {
                break;
            }
            queue.idle += 1;
            let woken = wake.wait_until(&mut queue, Instant::now() + Self::IDLE);
            queue.idle -= 1;
            if !woken && queue.jobs.is_empty() {
                break;
            }
        }
        queue.threads -= 1;
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn jobs_run_side_by_side_up_to_the_limit() {
        let pool = Pool::new(2);
        let (done, results) = mpsc::channel();
        let (first_started, wait_for_second) = mpsc::channel::<()>();
        let finish = done.clone();
        pool.run(move || {
            // Ends only when the second job runs beside it.
            finish.send(wait_for_second.recv().is_ok()).ok();
        });
        pool.run(move || {
            first_started.send(()).ok();
        });
        assert_eq!(results.recv_timeout(Duration::from_secs(10)), Ok(true));
        for _ in 0..100 {
            let done = done.clone();
            pool.run(move || {
                done.send(true).ok();
            });
        }
        for _ in 0..100 {
            assert_eq!(results.recv_timeout(Duration::from_secs(10)), Ok(true));
        }
    }
}
