//! Where the numbers of directories come from: the mount that a directory lies in, or, without
//! one, the same engine on the disk in this process.
//!
//! A program that waits for a FUSE reply cannot be killed (see [`super::front`]), so what takes
//! long is begun without waiting and then looked at until it is done.

use crate::extent::{Bytes, ShareSummary};
use crate::fs::Unmounted;
use crate::mount::ask::{self, Scan};
use crate::mount::mountinfo;
use crate::sharing::directories::ScanStep;
use crate::sharing::scan::ScanState;
use crate::sharing::tree::Child;
use crate::sharing::{AskError, DirTotals, FileKey, Limits};
use crate::sys::reason;
use crate::vxattr::{ChildKind, Name, parse_children};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a question to this process's own engine takes at most before the bar is moved.
const WAIT: Duration = Duration::from_secs(1);
/// The longest pause between two looks at a scan.
const PAUSE: Duration = Duration::from_millis(50);

/// Who answers.
pub(super) enum Source {
    /// The mount whose root is here.
    Mount(PathBuf),
    /// This process.
    Disk(Box<Unmounted>),
}

/// A directory, as its source knows it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    key: Option<FileKey>,
}

/// An entry of a directory.
#[derive(Debug)]
pub(super) struct Below {
    pub(super) place: Place,
    pub(super) kind: ChildKind,
    pub(super) numbers: Option<ShareSummary>,
}

/// The root of the living sharelens mount that `path` lies in.
pub(super) fn mount_of(path: &Path) -> Option<PathBuf> {
    let flags = nix::fcntl::OFlag::O_PATH | nix::fcntl::OFlag::O_CLOEXEC;
    nix::fcntl::open(path, flags, nix::sys::stat::Mode::empty())
        .ok()
        .and_then(|fd| mountinfo::holding(&fd).ok().flatten())
        .filter(|mount| mount.kind.starts_with("fuse.") && ask::is_answered(&mount.point))
        .map(|mount| mount.point)
}

/// Whether a living sharelens mount answers for `path`.
pub(super) fn in_mount(path: &Path) -> bool {
    mount_of(path).is_some()
}

impl Source {
    /// Who answers about the directory at `path`, and what it is to them.
    ///
    /// # Errors
    /// `ENOTDIR` where it is none, else of opening it.
    pub(super) fn of(path: &Path) -> io::Result<(Self, Place)> {
        if !std::fs::metadata(path)?.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
        }
        let (source, key) = match mount_of(path) {
            Some(root) => (Self::Mount(root), None),
            None => {
                let limits = Limits {
                    wait: WAIT,
                    ..Limits::default()
                };
                let disk = Unmounted::open(path, limits)?;
                let key = disk.root();
                (Self::Disk(Box::new(disk)), Some(key))
            }
        };
        let path = path.to_owned();
        Ok((source, Place { path, key }))
    }

    /// What the scanner has done so far.
    pub(super) fn state(&self) -> Option<ScanState> {
        match self {
            Self::Mount(root) => {
                let stats = ask::text(root, Name::Stats).ok()?;
                let stats: Value = serde_json::from_str(&stats).ok()?;
                serde_json::from_value(stats.get("scan")?.clone()).ok()
            }
            Self::Disk(disk) => Some(disk.directories().scan_state()),
        }
    }

    fn step(&self, place: &Place, begin: bool) -> io::Result<Scan> {
        match self {
            Self::Mount(_) => match ask::scan(&place.path, begin) {
                // A mount made by another version: the question itself will wait.
                Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => Ok(Scan::Known),
                step => step,
            },
            Self::Disk(disk) => {
                let key = place.key.unwrap_or(disk.root());
                Ok(match disk.directories().scan_step(key, begin) {
                    ScanStep::Idle => Scan::Idle,
                    ScanStep::UnderWay => Scan::UnderWay,
                    ScanStep::Known => Scan::Known,
                })
            }
        }
    }

    /// Has everything below a directory read, with a bar on a terminal. Can be interrupted at any
    /// time; what was read of a mount stays known. What it failed with, the next question tells.
    ///
    /// # Errors
    /// Of opening the directory.
    pub(super) fn prepare(&self, place: &Place, bar: &Bar) -> io::Result<()> {
        let before = self.state().unwrap_or_default();
        let mut step = self.step(place, true)?;
        let mut pause = Duration::from_millis(1);
        while step == Scan::UnderWay {
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE);
            if bar.is_shown() {
                bar.show(before, self.state().unwrap_or_default());
            }
            step = self.step(place, false)?;
        }
        Ok(())
    }

    /// The totals of a directory, however long they take.
    ///
    /// # Errors
    /// As reading the attributes has them, without `EAGAIN`.
    pub(super) fn totals(&self, place: &Place, bar: &Bar) -> io::Result<DirTotals> {
        match self {
            Self::Mount(_) => {
                let text = ask::patiently(&place.path, Name::Json, || bar.wait())?;
                serde_json::from_str(&text)
                    .ok()
                    .and_then(|value| totals_in(&value))
                    .ok_or_else(|| io::Error::other("the mount gave no totals"))
            }
            Self::Disk(disk) => {
                let key = place.key.unwrap_or(disk.root());
                until_known(bar, || disk.directories().totals(key))
            }
        }
    }

    /// The entries of a directory with their numbers, however long that takes.
    ///
    /// # Errors
    /// As reading the attributes has them, without `EAGAIN`.
    pub(super) fn children(&self, place: &Place, bar: &Bar) -> io::Result<Vec<Below>> {
        let below = |name: &OsStr, key| Place {
            path: place.path.join(name),
            key,
        };
        match self {
            Self::Mount(_) => {
                let text = ask::children(&place.path, || bar.wait())?;
                Ok(parse_children(&text)
                    .map(|child| Below {
                        place: below(&OsString::from_vec(child.name.into_owned()), None),
                        kind: child.kind,
                        numbers: child.numbers,
                    })
                    .collect())
            }
            Self::Disk(disk) => {
                let key = place.key.unwrap_or(disk.root());
                let rows = until_known(bar, || disk.directories().children(key))?;
                Ok(rows
                    .into_iter()
                    .map(|row| {
                        let (kind, key) = match row.child {
                            Child::File(key) => (ChildKind::File, Some(key)),
                            Child::Directory(key) => (ChildKind::Directory, Some(key)),
                            Child::Other => (ChildKind::Other, None),
                        };
                        Below {
                            place: below(OsStr::from_bytes(row.name.to_bytes()), key),
                            kind,
                            numbers: row.numbers,
                        }
                    })
                    .collect())
            }
        }
    }
}

/// Asks until there is an answer.
fn until_known<T>(bar: &Bar, mut ask: impl FnMut() -> Result<T, AskError>) -> io::Result<T> {
    loop {
        let errno = match ask() {
            Ok(answer) => return Ok(answer),
            Err(AskError::Again) => {
                bar.wait();
                continue;
            }
            Err(AskError::CannotSay) => libc::ENODATA,
            Err(AskError::Gone) => libc::ESTALE,
            Err(AskError::Io(error)) => return Err(error),
        };
        return Err(io::Error::from_raw_os_error(errno));
    }
}

fn totals_in(value: &Value) -> Option<DirTotals> {
    let number = |name: &str| value.get(name).and_then(Value::as_u64);
    Some(DirTotals {
        files: number("files")?,
        dirs: number("dirs")?,
        numbers: ShareSummary {
            bytes: Bytes(number("bytes")?),
            shared_bytes: Bytes(number("shared_bytes")?),
            extents: number("extents")?,
            shared_extents: number("shared_extents")?,
        },
        set_shared_bytes: Bytes(number("set_shared_bytes")?),
        linked_outside_bytes: Bytes(number("linked_outside_bytes")?),
        reclaimable_bytes: number("reclaimable_bytes").map(Bytes),
    })
}

/// A bar on standard error, where that is a terminal.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        Self(bar)
    }

    fn is_shown(&self) -> bool {
        !self.0.is_hidden()
    }

    fn show(&self, before: ScanState, now: ScanState) {
        self.0.set_message(format!(
            "{} files in {} directories read, {} waiting",
            now.files.saturating_sub(before.files),
            now.directories.saturating_sub(before.directories),
            now.waiting
        ));
        self.0.tick();
    }

    fn wait(&self) {
        self.0.tick();
    }

    /// Takes the bar away.
    pub(super) fn end(&self) {
        self.0.finish_and_clear();
    }
}

/// What was left out, and why, as sentences.
pub(super) fn skipped(state: &ScanState) -> Vec<String> {
    [
        (
            state.unreadable_directories,
            "directories may not be read: what is below them is left out",
        ),
        (
            state.unreadable_files,
            "files may not be read: they count with no bytes",
        ),
        (
            state.elsewhere,
            "things are mounted below, or lead back into the tree: they are left out",
        ),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect()
}

/// What an errno means for somebody who asked about a directory.
pub(super) fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENODATA | libc::EOPNOTSUPP) => {
            "not known: the filesystem cannot say what is shared".to_owned()
        }
        Some(libc::ENOTDIR) => {
            "not a directory; `sharelens show` prints the numbers of files".to_owned()
        }
        Some(libc::ENOTCONN) => {
            "the daemon of this mount is gone: `sharelens umount` it, then mount it again"
                .to_owned()
        }
        _ => reason(error).to_string(),
    }
}
