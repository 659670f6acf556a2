//! The raw scan: open, FIEMAP and close of each of a list of files, by any number of threads.

use super::generate::c_path;
use super::kernel::{Mapper, Sums, Writeback};
use crate::harness::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rustix::fs::{Mode, OFlags};
use std::ffi::{CStr, CString};
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Order in which the files are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Order {
    /// As listed: at any time the threads are at neighbouring files, which share an allocation
    /// group.
    Seq,
    /// Shuffled, always the same way.
    Shuffle,
}

impl Order {
    /// Puts `files` into this order.
    pub(crate) fn apply(self, files: &mut [CString]) {
        if self == Self::Shuffle {
            files.shuffle(&mut ChaCha8Rng::seed_from_u64(4));
        }
    }
}

/// What a scan took and found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan {
    /// From the start of the first thread to the end of the last.
    pub(crate) time: Duration,
    /// How often a thread gave up the processor to wait.
    pub(crate) voluntary_switches: u64,
    /// Of all files.
    pub(crate) sums: Sums,
}

/// Asks about each of `files` with `threads` threads, each taking the next file.
pub(crate) fn scan(files: &[CString], threads: usize, writeback: Writeback) -> Result<Scan> {
    let next = AtomicUsize::new(0);
    let switches = voluntary_switches()?;
    let begin = Instant::now();
    let sums = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| take_files(files, &next, writeback)))
            .collect();
        let mut sums = Sums::default();
        for worker in workers {
            sums += worker.join().map_err(|_| "a scanning thread panicked")??;
        }
        Result::Ok(sums)
    })?;
    Ok(Scan {
        time: begin.elapsed(),
        voluntary_switches: voluntary_switches()?.saturating_sub(switches),
        sums,
    })
}

/// One thread's part: file after file until none is left.
fn take_files(files: &[CString], next: &AtomicUsize, writeback: Writeback) -> Result<Sums> {
    let mut mapper = Mapper::new();
    let mut sums = Sums::default();
    while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
        sums += ask(&mut mapper, path, writeback)?;
    }
    Ok(sums)
}

/// Open, FIEMAP and close of one file.
pub(crate) fn ask(mapper: &mut Mapper, path: &CStr, writeback: Writeback) -> Result<Sums> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .context(path.to_string_lossy())?;
    mapper
        .sums(file.as_fd(), writeback)
        .context(path.to_string_lossy())
}

/// Voluntary context switches of this process so far, ended threads included.
fn voluntary_switches() -> Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    Ok(usage.voluntary_context_switches().unsigned_abs())
}

/// All regular files below `directory`, in the order of their names.
pub(crate) fn list(directory: &Path) -> Result<Vec<CString>> {
    let mut entries: Vec<_> = fs::read_dir(directory)
        .context(directory)?
        .collect::<std::io::Result<_>>()
        .context(directory)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    let mut files = Vec::new();
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            files.append(&mut list(&entry.path())?);
        } else if kind.is_file() {
            files.push(c_path(&entry.path())?);
        }
    }
    Ok(files)
}
