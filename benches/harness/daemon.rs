//! A filesystem process under test, and what /proc says of it.

use super::error::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// The process behind a mount; killed on drop if it has not ended by itself.
pub(crate) struct Daemon(Child);

impl Daemon {
    /// Takes charge of `child`.
    pub(crate) fn new(child: Child) -> Self {
        Self(child)
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Resident memory in bytes.
    pub(crate) fn resident(&self) -> Result<u64> {
        let kib = status_field(&format!("/proc/{}/status", self.0.id()), "VmRSS:")?;
        Ok(kib * 1024)
    }

    /// Voluntary context switches of all its living threads.
    pub(crate) fn voluntary_switches(&self) -> Result<u64> {
        self.threads()?
            .into_iter()
            .map(|thread| {
                let path = format!("/proc/{}/task/{thread}/status", self.0.id());
                match status_field(&path, "voluntary_ctxt_switches:") {
                    // It ended since the threads were listed.
                    Err(_) if !Path::new(&path).exists() => Ok(0),
                    switches => switches,
                }
            })
            .sum()
    }

    /// Binds all its threads to these processors.
    pub(crate) fn pin(&self, processors: &[usize]) -> Result<()> {
        for thread in self.threads()? {
            pin(Pid::from_raw(thread), processors)?;
        }
        Ok(())
    }

    /// Waits for it to end by itself after its mount is gone.
    pub(crate) fn finish(mut self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            if let Some(status) = self.0.try_wait()? {
                if status.success() {
                    return Ok(());
                }
                return Err(format!("the filesystem process ended with {status}").into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err("the filesystem process did not end after its mount was gone".into())
    }

    fn threads(&self) -> Result<Vec<i32>> {
        let path = format!("/proc/{}/task", self.0.id());
        let mut threads = Vec::new();
        for entry in fs::read_dir(&path).context(path.as_str())? {
            threads.push(entry?.file_name().to_string_lossy().parse()?);
        }
        Ok(threads)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.is_alive() {
            // Fails only if it has ended meanwhile.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Binds one thread to these processors; 0 is the calling thread.
pub(crate) fn pin(thread: Pid, processors: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for &processor in processors {
        set.set(processor)?;
    }
    sched_setaffinity(thread, &set)?;
    Ok(())
}

fn status_field(path: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(path).context(path)?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next())
        .ok_or_else(|| format!("{path}: no {name}"))?;
    value.parse().context(path)
}
