//! A fresh filesystem on a loop device, for one workload.

use super::command::Run;
use super::error::{Context, Result};
use super::mounts;
use super::settings::Settings;
use crate::raw::kernel;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The filesystems that reflink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FsKind {
    /// XFS with reverse mapping and this many allocation groups.
    Xfs {
        /// Allocation groups.
        groups: u32,
    },
    /// btrfs as it comes.
    Btrfs,
}

impl FsKind {
    /// For the heads of tables.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Xfs { groups } => format!("XFS, {groups} allocation groups"),
            Self::Btrfs => "btrfs".to_owned(),
        }
    }

    fn mkfs(self, image: &Path) -> Command {
        let mut command;
        match self {
            Self::Xfs { groups } => {
                command = Command::new("mkfs.xfs");
                command
                    .args(["-q", "-f", "-m", "reflink=1,rmapbt=1", "-d"])
                    .arg(format!("agcount={groups}"));
            }
            Self::Btrfs => {
                command = Command::new("mkfs.btrfs");
                command.args(["-q", "-f"]);
            }
        }
        command.arg(image);
        command
    }
}

/// A mounted image; unmounted and removed on drop.
pub(crate) struct Image {
    file: PathBuf,
    root: PathBuf,
    mounted: bool,
}

impl Image {
    /// Makes a filesystem of `size` bytes (in a sparse file) and mounts it.
    pub(crate) fn create(settings: &Settings, kind: FsKind, size: u64) -> Result<Self> {
        let file = settings.scratch("image");
        let root = settings.scratch("native");
        fs::create_dir(&root).context(&root)?;
        let mut image = Self {
            file,
            root,
            mounted: false,
        };
        let sparse = File::create(&image.file).context(&image.file)?;
        sparse.set_len(size).context(&image.file)?;
        drop(sparse);
        kind.mkfs(&image.file).timed()?;
        Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image.file)
            .arg(&image.root)
            .timed()?;
        image.mounted = true;
        Ok(image)
    }

    /// Where it is mounted.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Writes everything back and waits for removed files to be gone, so that no step pays for
    /// the one before it.
    pub(crate) fn settle(&self) -> Result<()> {
        let root = File::open(&self.root).context(&self.root)?;
        rustix::fs::syncfs(&root).context(&self.root)?;
        kernel::finish_removals(root.as_fd()).context(&self.root)?;
        rustix::fs::syncfs(&root).context(&self.root)
    }

    /// Bytes written to the device so far.
    pub(crate) fn device_written(&self) -> Result<u64> {
        const SECTOR: u64 = 512;
        let source = mounts::source_of(&self.root)?.unwrap_or_default();
        let name = source.trim_start_matches("/dev/");
        let path = PathBuf::from(format!("/sys/block/{name}/stat"));
        let text = fs::read_to_string(&path).context(&path)?;
        let sectors = text.split_whitespace().nth(6).unwrap_or_default();
        Ok(sectors.parse::<u64>().context(&path)? * SECTOR)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.mounted
            && let Err(error) = mounts::unmount(&self.root)
        {
            eprintln!("{}: {error}", self.root.display());
            mounts::unmount_by_force(&self.root);
        }
        for result in [fs::remove_file(&self.file), fs::remove_dir(&self.root)] {
            if let Err(error) = result {
                eprintln!("{}: {error}", self.file.display());
            }
        }
    }
}
