//! Threads for slow work, made when needed and ended when idle.

use crate::sys::{cred, reason};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The most threads at one time; more work waits.
const LARGEST: usize = 64;
/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    work: Condvar,
}

/// The threads.
#[derive(Clone, Default)]
pub(super) struct Pool {
    inner: Arc<Inner>,
}

impl Pool {
    /// Does `job` on another thread, or here when there can be none.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.inner.state.lock();
        state.queue.push_back(Box::new(job));
        if state.idle >= state.queue.len() {
            self.inner.work.notify_one();
            return;
        }
        if state.threads >= LARGEST {
            return;
        }
        state.threads += 1;
        drop(state);
        let inner = Arc::clone(&self.inner);
        let started = std::thread::Builder::new()
            .name("slow-work".into())
            .spawn(move || inner.serve());
        if let Err(error) = started {
            log::warn!(
                "cannot start a thread, working on the request's own: {}",
                reason(&error)
            );
            let mut state = self.inner.state.lock();
            state.threads -= 1;
            let job = state.queue.pop_front();
            drop(state);
            if let Some(job) = job {
                job();
            }
        }
    }
}

impl Inner {
    fn serve(&self) {
        cred::settle();
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                job();
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let waited = self.work.wait_for(&mut state, IDLE);
            state.idle -= 1;
            if waited.timed_out() && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn slow_jobs_do_not_hold_up_each_other() {
        let pool = Pool::default();
        let (done, wait) = mpsc::channel();
        let gate = Arc::new(std::sync::Barrier::new(9));
        for number in 0..8 {
            let (done, gate) = (done.clone(), Arc::clone(&gate));
            pool.run(move || {
                gate.wait();
                done.send(number).unwrap();
            });
        }
        gate.wait();
        let mut all: Vec<i32> = (0..8).map(|_| wait.recv().unwrap()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..8).collect::<Vec<_>>());
    }
}
