//! Jobs by the part of the disk they are about, and how many work on each.

use std::collections::BTreeMap;

/// The queue. Pure bookkeeping.
pub(super) struct Queue<J> {
    groups: BTreeMap<u32, Group<J>>,
    jobs: usize,
    running: usize,
    workers: usize,
    idle: usize,
}

struct Group<J> {
    jobs: Vec<J>,
    running: usize,
}

impl<J> Default for Queue<J> {
    fn default() -> Self {
        Self {
            groups: BTreeMap::new(),
            jobs: 0,
            running: 0,
            workers: 0,
            idle: 0,
        }
    }
}

impl<J> Queue<J> {
    /// Jobs that wait.
    pub(super) fn len(&self) -> usize {
        self.jobs
    }

    /// Jobs being done.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Workers, idle ones included.
    pub(super) fn workers(&self) -> usize {
        self.workers
    }

    /// Workers that wait for jobs.
    pub(super) fn idle(&self) -> usize {
        self.idle
    }

    pub(super) fn worker_comes(&mut self) {
        self.workers += 1;
    }

    pub(super) fn worker_goes(&mut self) {
        self.workers -= 1;
    }

    pub(super) fn rest(&mut self) {
        self.idle += 1;
    }

    pub(super) fn resume(&mut self) {
        self.idle -= 1;
    }

    /// Puts a job in.
    pub(super) fn put(&mut self, group: u32, job: J) {
        self.jobs += 1;
        self.groups
            .entry(group)
            .or_insert_with(|| Group {
                jobs: Vec::new(),
                running: 0,
            })
            .jobs
            .push(job);
    }

    /// Takes the newest job out: of the group where the worker was if nobody else is there, else
    /// of the next group where nobody is, else of any.
    pub(super) fn take(&mut self, place: u32) -> Option<(u32, J)> {
        let free = |(_, group): &(&u32, &Group<J>)| group.running == 0 && !group.jobs.is_empty();
        let from_here = self.groups.range(place..);
        let around = self.groups.range(..place);
        let group = from_here
            .chain(around)
            .find(free)
            .or_else(|| {
                self.groups
                    .iter()
                    .filter(|(_, group)| !group.jobs.is_empty())
                    .max_by_key(|(_, group)| group.jobs.len())
            })
            .map(|(&group, _)| group)?;
        let found = self.groups.get_mut(&group)?;
        let job = found.jobs.pop()?;
        found.running += 1;
        self.jobs -= 1;
        self.running += 1;
        Some((group, job))
    }

    /// A job of this group is done.
    pub(super) fn done(&mut self, group: u32) {
        self.running -= 1;
        if let Some(found) = self.groups.get_mut(&group) {
            found.running -= 1;
            if found.running == 0 && found.jobs.is_empty() {
                self.groups.remove(&group);
            }
        }
    }

    /// Takes every job out that waits.
    pub(super) fn clear(&mut self) -> Vec<J> {
        self.jobs = 0;
        let jobs = self
            .groups
            .values_mut()
            .flat_map(|group| std::mem::take(&mut group.jobs))
            .collect();
        self.groups.retain(|_, group| group.running > 0);
        jobs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_workers_keep_to_different_groups() {
        let mut queue = Queue::default();
        for job in 0..4 {
            queue.put(0, job);
            queue.put(1, job + 10);
        }
        let (first, _) = queue.take(0).unwrap();
        let (second, _) = queue.take(0).unwrap();
        assert_eq!((first, second), (0, 1));
        queue.done(0);
        assert_eq!(queue.take(0).unwrap().0, 0);
        queue.done(1);
        assert_eq!(queue.take(1).unwrap().0, 1);
    }

    #[test]
    fn the_last_group_is_shared_rather_than_left() {
        let mut queue = Queue::default();
        queue.put(7, "a");
        queue.put(7, "b");
        assert_eq!(queue.take(0), Some((7, "b")));
        assert_eq!(queue.take(0), Some((7, "a")));
        assert_eq!(queue.take(0), None);
        assert_eq!(queue.running(), 2);
        queue.done(7);
        queue.done(7);
        assert_eq!((queue.running(), queue.len()), (0, 0));
    }

    #[test]
    fn clearing_leaves_what_is_being_done() {
        let mut queue = Queue::default();
        queue.put(1, 'x');
        queue.put(1, 'y');
        assert_eq!(queue.take(1), Some((1, 'y')));
        assert_eq!(queue.clear(), ['x']);
        assert_eq!((queue.running(), queue.len()), (1, 0));
        queue.done(1);
        assert_eq!(queue.running(), 0);
    }
}
