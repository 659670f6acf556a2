//! The sides that are compared: the backing filesystem itself, sharelens on it, other passthrough
//! filesystems on it.
//!
//! A side is mounted only for its own turn: a mounted sharelens watches the backing filesystem,
//! which the other sides would pay for.

use super::daemon::Daemon;
use super::error::{Context, Result};
use super::interrupt::{interrupted, start};
use super::mounts;
use super::settings::{Other, Settings};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// One of the things compared.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    name: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Native,
    Sharelens { options: String },
    Bindfs,
    Constant { files: usize },
    Other(Other),
}

impl Side {
    /// The backing filesystem itself.
    pub(crate) fn native() -> Self {
        Self::of("native", Kind::Native)
    }

    /// sharelens with these mount options (none: an empty string).
    pub(crate) fn sharelens(name: &str, options: &str) -> Self {
        let options = options.to_owned();
        Self::of(name, Kind::Sharelens { options })
    }

    /// bindfs, the reference of the field that Debian ships.
    pub(crate) fn bindfs() -> Self {
        Self::of("bindfs", Kind::Bindfs)
    }

    /// A filesystem of so many files that gives the same answer to every question: what the
    /// transport alone costs.
    pub(crate) fn constant(files: usize) -> Self {
        Self::of("constant answer", Kind::Constant { files })
    }

    /// The native side, sharelens in both modes of I/O, bindfs, and what else was asked for.
    pub(crate) fn all(settings: &Settings) -> Vec<Self> {
        let mut sides = vec![
            Self::native(),
            Self::sharelens("sharelens", "io=auto"),
            Self::sharelens("sharelens io=cached", "io=cached"),
            Self::bindfs(),
        ];
        sides.extend(Self::others(settings));
        settings.chosen(sides)
    }

    /// The further filesystems that were asked for.
    pub(crate) fn others(settings: &Settings) -> impl Iterator<Item = Self> {
        settings
            .others
            .iter()
            .map(|other| Self::of(&other.name, Kind::Other(other.clone())))
    }

    fn of(name: &str, kind: Kind) -> Self {
        let name = name.to_owned();
        Self { name, kind }
    }

    /// Its name in the tables.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is the backing filesystem itself.
    pub(crate) fn is_native(&self) -> bool {
        matches!(self.kind, Kind::Native)
    }

    /// Whether it answers questions about sharing.
    pub(crate) fn answers(&self) -> bool {
        matches!(self.kind, Kind::Sharelens { .. } | Kind::Constant { .. })
    }

    /// Shows `source` through this side.
    pub(crate) fn open(&self, settings: &Settings, source: &Path) -> Result<View> {
        interrupted()?;
        if self.is_native() {
            return Ok(View {
                root: source.to_owned(),
                mount: None,
            });
        }
        let mountpoint = settings.scratch("mount");
        fs::create_dir(&mountpoint).context(&mountpoint)?;
        let command = self.command(settings, source, &mountpoint)?;
        let mount = Mount::new(command, &mountpoint, &settings.scratch("log"))
            .context(self.name.as_str())?;
        Ok(View {
            root: mountpoint,
            mount: Some(mount),
        })
    }

    fn command(&self, settings: &Settings, source: &Path, mountpoint: &Path) -> Result<Command> {
        let mut command;
        match &self.kind {
            Kind::Native => return Err("nothing to mount".into()),
            Kind::Sharelens { options } => {
                command = Command::new(&settings.program);
                command.args(["mount", "-f"]);
                let mut all = settings.options.clone();
                all.extend((!options.is_empty()).then(|| options.clone()));
                if !all.is_empty() {
                    command.args(["-o", &all.join(",")]);
                }
                command.arg(source).arg(mountpoint);
            }
            Kind::Bindfs => {
                command = Command::new("bindfs");
                command.args(["-f", "--multithreaded"]);
                command.arg(source).arg(mountpoint);
            }
            Kind::Constant { files } => {
                command = Command::new(std::env::current_exe()?);
                command.arg("constant").arg(files.to_string());
                command.arg(mountpoint);
            }
            Kind::Other(other) => {
                let text = other
                    .command
                    .replace("{source}", &source.display().to_string())
                    .replace("{mountpoint}", &mountpoint.display().to_string());
                let mut words = text.split_whitespace();
                command = Command::new(words.next().unwrap_or_default());
                command.args(words);
            }
        }
        Ok(command)
    }
}

/// A side during its turn.
pub(crate) struct View {
    root: PathBuf,
    mount: Option<Mount>,
}

impl View {
    /// Where its files are.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The process behind it; none for the native side.
    pub(crate) fn daemon(&mut self) -> Option<&mut Daemon> {
        self.mount.as_mut()?.daemon.as_mut()
    }

    /// Ends its turn; an error if it does not end as it should.
    pub(crate) fn close(mut self) -> Result<()> {
        match self.mount.take() {
            Some(mount) => mount.end(),
            None => Ok(()),
        }
    }
}

/// A mount with the process behind it; taken away by force on drop.
struct Mount {
    mountpoint: PathBuf,
    log: PathBuf,
    daemon: Option<Daemon>,
    attached: bool,
}

impl Mount {
    /// Starts `command` and waits until its filesystem answers at `mountpoint`.
    fn new(mut command: Command, mountpoint: &Path, log: &Path) -> Result<Self> {
        let output = File::create(log).context(log)?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output);
        let name = format!("{command:?}");
        let daemon = Daemon::new(start(&mut command).context(name.as_str())?);
        let mut mount = Self {
            mountpoint: mountpoint.to_owned(),
            log: log.to_owned(),
            daemon: Some(daemon),
            attached: false,
        };
        let end = Instant::now() + Duration::from_secs(20);
        while mounts::source_of(mountpoint)?.is_none() {
            let alive = mount.daemon.as_mut().is_some_and(Daemon::is_alive);
            if !alive || Instant::now() > end {
                return Err(format!("{name} did not mount: {}", mount.said()).into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        mount.attached = true;
        fs::metadata(mountpoint).context(mountpoint)?;
        Ok(mount)
    }

    fn end(mut self) -> Result<()> {
        mounts::unmount(&self.mountpoint)?;
        self.attached = false;
        if let Some(daemon) = self.daemon.take() {
            daemon.finish().context(self.said())?;
        }
        Ok(())
    }

    /// The last lines that the process wrote to standard error.
    fn said(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        let last = lines.get(lines.len().saturating_sub(5)..);
        last.unwrap_or_default().join("; ")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.attached {
            mounts::unmount_by_force(&self.mountpoint);
        }
        drop(self.daemon.take());
        match fs::remove_dir(&self.mountpoint) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                eprintln!("{}: {error}", self.mountpoint.display());
            }
            _ => {}
        }
    }
}
