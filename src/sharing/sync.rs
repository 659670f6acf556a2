//! The one door to locks, threads and waiting, so that a concurrency checker can take their
//! place (cargo feature `shuttle`).

#[cfg(not(feature = "shuttle"))]
mod imp {
    use std::time::{Duration, Instant};

    pub(crate) use parking_lot::{Mutex, MutexGuard};

    /// A condition variable for [`Mutex`].
    #[derive(Debug, Default)]
    pub(crate) struct Condvar(parking_lot::Condvar);

    impl Condvar {
        /// Waits for a notification.
        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            self.0.wait(guard);
        }

        /// Waits for a notification, at most until `deadline`; `false` when that has passed.
        pub(crate) fn wait_until<T>(
            &self,
            guard: &mut MutexGuard<'_, T>,
            deadline: Instant,
        ) -> bool {
            !self.0.wait_until(guard, deadline).timed_out()
        }

        /// Wakes everybody who waits.
        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// Runs `work` in a thread of its own. `false` where no thread could be made.
    pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) -> bool {
        std::thread::Builder::new()
            .name("sharelens-settle".into())
            .spawn(work)
            .is_ok()
    }

    /// Sleeps.
    pub(crate) fn sleep(time: Duration) {
        std::thread::sleep(time);
    }
}

#[cfg(feature = "shuttle")]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod imp {
    use std::ops::{Deref, DerefMut};
    use std::time::{Duration, Instant};

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    /// Holds the lock; empty only while it is handed to the condition variable.
    pub(crate) struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap()))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().expect("held")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("held")
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            guard.0 = guard.0.take().map(|held| self.0.wait(held).unwrap());
        }

        /// Under the checker no time passes.
        pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _: Instant) -> bool {
            self.wait(guard);
            true
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) -> bool {
        drop(shuttle::thread::spawn(work));
        true
    }

    pub(crate) fn sleep(_: Duration) {
        shuttle::thread::yield_now();
    }
}

pub(crate) use imp::{Condvar, Mutex, MutexGuard, sleep, spawn};
