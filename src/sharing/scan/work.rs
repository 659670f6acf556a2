//! The jobs themselves: reading a directory, looking at files.

use super::job::{Job, Task, Ticket};
use super::progress::count;
use crate::extent::Physical;
use crate::sharing::directories::Directories;
use crate::sharing::engine::AskError;
use crate::sharing::key::FileKey;
use crate::sharing::survey::{Look, Seen};
use crate::sharing::tree::{Entry, Measured, Tick, Token, Trust};
use crate::sharing::walk::{Identity, Kind, Name, Walk};
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// Names read before the files behind them are looked at, in the order of their inodes.
const NAMES: usize = 4096;

/// Files looked at together; each has a descriptor meanwhile.
const TOGETHER: usize = 64;

/// Files looked at before it is known where on the disk they lie.
const FIRST: usize = 4;

/// Readings of a directory that changes all the time before changes of it are held back.
const READINGS: usize = 3;

impl<B: Walk> Directories<B> {
    /// Does one job.
    pub(super) fn run(&self, job: Job) -> Result<(), AskError> {
        let ticket = Arc::clone(job.ticket());
        match job.task {
            Task::Listing(directory) => self.read_listing(directory, &ticket),
            Task::Files(files) => self.look_at_files(&files, ticket.since, None),
        }
    }

    /// Reads a directory until its listing is known.
    fn read_listing(&self, directory: FileKey, ticket: &Arc<Ticket>) -> Result<(), AskError> {
        for reading in 0.. {
            let held = (reading >= READINGS).then(|| self.hold_names(directory));
            let Some(token) = self.tree.lock().claim(directory) else {
                return Ok(());
            };
            let result = self.read_once(token, ticket);
            drop(held);
            self.reading_ended();
            if result? || self.is_stopping() {
                return Ok(());
            }
            self.wait_for_names(directory);
        }
        Ok(())
    }

    /// Reads a directory once; whether its listing is known now.
    fn read_once(&self, token: Token, ticket: &Arc<Ticket>) -> Result<bool, AskError> {
        let key = token.directory();
        let mut directory = match self.backing().open_directory(key) {
            Ok(directory) => directory,
            Err(error) => return self.unreadable(token, &error),
        };
        let outcome = if token.is_first() {
            self.read_first(&token, &mut directory, ticket)
                .map(|()| None)
        } else {
            self.read_again(&mut directory).map(Some)
        };
        count(&self.scanner.progress.directories, 1);
        match outcome {
            Ok(None) => Ok(self.tree.lock().finish(token)),
            Ok(Some(entries)) => {
                let below = directories_in(&entries);
                let known = self.tree.lock().replace(token, entries);
                if known {
                    self.put_listings(ticket, &below);
                }
                Ok(known)
            }
            Err(error) => self.unreadable(token, &error),
        }
    }

    /// The end of a reading that failed.
    fn unreadable(&self, token: Token, error: &io::Error) -> Result<bool, AskError> {
        let key = token.directory();
        let mut tree = self.tree.lock();
        match error.raw_os_error() {
            Some(libc::ESTALE | libc::ENOENT) => {
                tree.release(token);
                tree.forget(key);
                Ok(true)
            }
            Some(errno @ (libc::EACCES | libc::EPERM)) => {
                tree.skip(token, errno);
                count(&self.scanner.progress.unreadable_directories, 1);
                Ok(true)
            }
            errno => {
                tree.release(token);
                Err(io::Error::from_raw_os_error(errno.unwrap_or(libc::EIO)).into())
            }
        }
    }

    /// Reads a directory for the first time, and looks at the files in it on the way.
    fn read_first(
        &self,
        token: &Token,
        directory: &mut B::Directory,
        ticket: &Arc<Ticket>,
    ) -> io::Result<()> {
        let mut more = true;
        let mut group = None;
        while more {
            if self.is_stopping() {
                return Err(io::Error::from_raw_os_error(libc::EAGAIN));
            }
            let mut names = Vec::new();
            more = self
                .backing()
                .read_directory(directory, NAMES, &mut names)?;
            names.retain(|name| name.kind != Kind::Other);
            names.sort_unstable_by_key(|name| name.ino);
            // The first few tell where the rest probably lies.
            let (few, rest) = names.split_at(names.len().min(FIRST));
            for names in std::iter::once(few).chain(rest.chunks(TOGETHER)) {
                let began = self.tree.lock().tick();
                let entries = self.look_at_names(directory, names, group)?;
                group = self.group_of(&entries).or(group);
                let below = directories_in(&entries);
                count(
                    &self.scanner.progress.files,
                    entries.len().saturating_sub(below.len()),
                );
                self.learn_spaces(&entries);
                self.tree.lock().extend(token, began, entries);
                self.put_listings(ticket, &below);
            }
        }
        Ok(())
    }

    /// Where on the disk the first shared part of these lies, if that matters.
    fn group_of(&self, entries: &[Entry]) -> Option<u32> {
        entries.iter().find_map(|entry| match entry {
            Entry::File {
                key,
                measured: Some((measured, _)),
                ..
            } => {
                let part = measured.parts.as_slice().first()?;
                self.backing().group_at(key.device, Physical(part.start))
            }
            _ => None,
        })
    }

    /// What the names stand for, files with their numbers where these are to be had quickly.
    fn look_at_names(
        &self,
        directory: &B::Directory,
        names: &[Name],
        group: Option<u32>,
    ) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::with_capacity(names.len());
        let held = self.engine.holds.walk();
        let mut opened = Vec::with_capacity(names.len());
        for name in names {
            if name.kind == Kind::File {
                match self.backing().open_named(directory, name) {
                    Ok(Some(file)) => {
                        opened.push(file);
                        continue;
                    }
                    Ok(None) => {}
                    Err(error) if is_gone(&error) => continue,
                    Err(error) if is_refused(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            entries.extend(self.identify(directory, name, None)?);
        }
        let lane = group.and_then(|group| self.scanner.lane(group));
        let looks = self.engine.survey(&opened, lane);
        entries.extend(opened.iter().zip(looks).map(|(file, look)| Entry::File {
            key: file.key,
            links: file.stamp.links,
            measured: look.map(measured),
        }));
        drop(opened);
        drop(held);
        Ok(entries)
    }

    /// Reads a directory whose files are known for the most part.
    fn read_again(&self, directory: &mut B::Directory) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut changed = Vec::new();
        let mut more = true;
        while more {
            let mut names = Vec::new();
            more = self
                .backing()
                .read_directory(directory, NAMES, &mut names)?;
            for name in &names {
                entries.extend(self.identify(directory, name, Some(&mut changed))?);
            }
        }
        self.learn_spaces(&entries);
        if !changed.is_empty() {
            let mut tree = self.tree.lock();
            changed.into_iter().for_each(|file| tree.mark(file));
        }
        Ok(entries)
    }

    /// What a name stands for. Files that others changed, as far as their stamps tell, are added to
    /// `changed`.
    fn identify(
        &self,
        directory: &B::Directory,
        name: &Name,
        changed: Option<&mut Vec<FileKey>>,
    ) -> io::Result<Option<Entry>> {
        Ok(match self.backing().identify(directory, name) {
            Ok(Identity::File { key, stamp }) => {
                if let Some(changed) = changed
                    && !self.engine.stands(key, &stamp)
                {
                    changed.push(key);
                }
                Some(Entry::File {
                    key,
                    links: stamp.links,
                    measured: None,
                })
            }
            Ok(Identity::Directory(key)) => Some(Entry::Directory(key)),
            Ok(Identity::Other) => None,
            Ok(Identity::Elsewhere) => {
                count(&self.scanner.progress.elsewhere, 1);
                None
            }
            Err(error) if is_gone(&error) => None,
            Err(error) => return Err(error),
        })
    }

    /// Tells the tree of address spaces before it meets the first file in them.
    fn learn_spaces(&self, entries: &[Entry]) {
        let mut last = None;
        for entry in entries {
            let (Entry::File { key, .. } | Entry::Directory(key)) = entry;
            if last != Some(key.device) {
                last = Some(key.device);
                let space = self.backing().address_space(key.device);
                self.tree.lock().learn_space(key.device, space);
            }
        }
    }

    /// Looks at files whose numbers are unsettled, for a question that began at `since`; with a
    /// deadline from the asker's own thread.
    pub(in crate::sharing) fn look_at_files(
        &self,
        files: &[FileKey],
        since: Tick,
        deadline: Option<Instant>,
    ) -> Result<(), AskError> {
        let mut left: Vec<FileKey> = {
            let tree = self.tree.lock();
            let files = files.iter().copied();
            files.filter(|&file| tree.is_open(file, since)).collect()
        };
        count(&self.scanner.progress.files, left.len());
        if deadline.is_none() {
            left = self.look_at_many(left);
        }
        for file in left {
            if self.is_stopping() {
                return Err(AskError::Again);
            }
            if let Some(deadline) = deadline
                && self.is_confirmed(file, deadline)?
            {
                continue;
            }
            let began = self.tree.lock().tick();
            let look = match deadline {
                Some(deadline) => self.engine.look(file, deadline),
                None => self.engine.look_patiently(file),
            };
            let mut tree = self.tree.lock();
            match look {
                Ok(look) => {
                    let (measured, trust) = measured(look);
                    tree.settle(file, began, measured, trust);
                }
                Err(AskError::Gone) => tree.lost(file),
                Err(AskError::Io(error)) if is_refused(&error) => {
                    count(&self.scanner.progress.unreadable_files, 1);
                    tree.settle(file, began, Measured::unreadable(), Trust::Settled);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl<B: Walk> Directories<B> {
    /// Looks at many files at once; those that are left.
    fn look_at_many(&self, files: Vec<FileKey>) -> Vec<FileKey> {
        let settled = self.engine.settle_around(&files);
        // What settling found changed is taken in before the look begins, so that it need not be
        // looked at twice.
        self.take_in();
        let (began, known) = {
            let mut tree = self.tree.lock();
            let known: Vec<bool> = files
                .iter()
                .map(|&file| tree.is_only_watched(file))
                .collect();
            (tree.tick(), known)
        };
        let seen = self.engine.look_at_all(&files, &known, &settled);
        // A record that was confirmed is the one that the tree has numbers of, unless it was
        // replaced since: then the engine has named the file.
        self.take_in();
        let mut tree = self.tree.lock();
        let mut left = Vec::new();
        for (file, seen) in files.into_iter().zip(seen) {
            match seen {
                Some(Seen::Looked(look)) => {
                    let (measured, trust) = measured(look);
                    tree.settle(file, began, measured, trust);
                }
                Some(Seen::Confirmed(settled)) if tree.confirm(file, began, trust_in(settled)) => {}
                Some(Seen::Confirmed(_)) | None => left.push(file),
            }
        }
        left
    }

    /// Whether a file that may change without a mark turns out not to have: then it is not mapped
    /// again.
    fn is_confirmed(&self, file: FileKey, deadline: Instant) -> Result<bool, AskError> {
        let began = {
            let mut tree = self.tree.lock();
            if !tree.is_only_watched(file) {
                return Ok(false);
            }
            tree.tick()
        };
        let settled = match self.engine.confirm(file, deadline) {
            Ok(Some(settled)) => settled,
            Ok(None) | Err(AskError::Gone) => return Ok(false),
            // The look that follows says what to do about it.
            Err(AskError::Io(error)) if is_refused(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        self.take_in();
        Ok(self.tree.lock().confirm(file, began, trust_in(settled)))
    }
}

fn trust_in(settled: bool) -> Trust {
    if settled { Trust::Settled } else { Trust::Once }
}

fn measured(look: Look) -> (Measured, Trust) {
    let trust = match (look.settled, look.stored) {
        (true, _) => Trust::Settled,
        (false, true) => Trust::Once,
        (false, false) => Trust::Unkept,
    };
    let measured = Measured {
        numbers: look.numbers,
        parts: look.parts,
        links: look.links,
        unreadable: false,
    };
    (measured, trust)
}

fn directories_in(entries: &[Entry]) -> Vec<FileKey> {
    entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Directory(key) => Some(*key),
            Entry::File { .. } => None,
        })
        .collect()
}

/// Whether the name stands for nothing any more.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESTALE))
}

/// Whether looking is not permitted.
fn is_refused(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}
