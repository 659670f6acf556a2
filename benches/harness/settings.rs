//! What a run was asked for, and its scratch directory.

use super::error::{Context, Result};
use super::image::FsKind;
use super::side::Side;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Another passthrough filesystem to compare with.
#[derive(Clone, Debug)]
pub(crate) struct Other {
    /// Its name in the tables.
    pub(crate) name: String,
    /// The command that serves in the foreground, with `{source}` and `{mountpoint}` in it.
    pub(crate) command: String,
}

impl std::str::FromStr for Other {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.split_once('=') {
            Some((name, command))
                if command.contains("{source}") && command.contains("{mountpoint}") =>
            {
                Ok(Self {
                    name: name.to_owned(),
                    command: command.to_owned(),
                })
            }
            _ => Err("expected NAME=COMMAND with {source} and {mountpoint} in COMMAND".to_owned()),
        }
    }
}

/// What a run was asked for.
pub(crate) struct Settings {
    /// Sizes that take seconds, to see that everything runs: the figures mean nothing.
    pub(crate) quick: bool,
    /// Rounds asked for; each workload has its own default.
    pub(crate) rounds: Option<usize>,
    /// Names of the sides to run; empty means all.
    pub(crate) sides: Vec<String>,
    /// `xfs` or `btrfs`, where a workload runs on both; `None` means both.
    pub(crate) filesystem: Option<String>,
    /// Further filesystems to compare with.
    pub(crate) others: Vec<Other>,
    /// Further mount options for every sharelens mount.
    pub(crate) options: Vec<String>,
    /// The sharelens program.
    pub(crate) program: PathBuf,
    /// A source tree for the ordinary workload in place of the project's own dependencies.
    pub(crate) source_tree: Option<PathBuf>,
    /// Where images, mount points and inputs are made.
    directory: tempfile::TempDir,
    made: AtomicUsize,
}

impl Settings {
    /// Settings with a scratch directory below `parent`, everything else as by default.
    pub(crate) fn new(parent: &Path, program: PathBuf) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("sharelens-bench-")
            .tempdir_in(parent)
            .context(parent)?;
        Ok(Self {
            quick: false,
            rounds: None,
            sides: Vec::new(),
            filesystem: None,
            others: Vec::new(),
            options: Vec::new(),
            program,
            source_tree: None,
            directory,
            made: AtomicUsize::new(0),
        })
    }

    /// `full`, or `quick` in a quick run.
    pub(crate) fn size<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// The rounds asked for, or this many (1 in a quick run).
    pub(crate) fn rounds_or(&self, default: usize) -> usize {
        self.rounds.unwrap_or_else(|| self.size(default, 1)).max(1)
    }

    /// A path of its own in the scratch directory.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        self.directory.path().join(format!("{name}-{number}"))
    }

    /// The backing filesystems of workloads that run on XFS and on btrfs.
    pub(crate) fn filesystems(&self) -> impl Iterator<Item = FsKind> + use<> {
        let only = self.filesystem.clone();
        let both = [("xfs", FsKind::Xfs { groups: 4 }), ("btrfs", FsKind::Btrfs)];
        both.into_iter()
            .filter(move |(name, _)| only.as_ref().is_none_or(|only| only == name))
            .map(|(_, kind)| kind)
    }

    /// Of `sides` and the other filesystems those that the run was asked for.
    pub(crate) fn chosen(&self, sides: Vec<Side>) -> Vec<Side> {
        sides
            .into_iter()
            .filter(|side| self.sides.is_empty() || self.sides.iter().any(|s| s == side.name()))
            .collect()
    }
}
