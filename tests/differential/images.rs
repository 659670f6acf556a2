//! The filesystems that histories run on.

use crate::common::{self, Image, try_run};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Which filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Xfs,
    Btrfs,
    /// btrfs that compresses whatever it can.
    BtrfsCompressed,
}

/// An image of that kind, or nothing where this machine cannot make one.
pub fn image(kind: Kind) -> Option<Image> {
    let builder = match kind {
        Kind::Xfs => Image::of(common::Kind::Xfs),
        Kind::Btrfs => Image::of(common::Kind::Btrfs),
        Kind::BtrfsCompressed => Image::of(common::Kind::Btrfs).options("compress-force=zstd"),
    };
    builder.size_mib(1024).in_memory().make()
}

/// A fresh directory of an image, for one history; on btrfs a subvolume, so that snapshots of it
/// can be taken.
pub struct Source {
    path: PathBuf,
}

impl Source {
    pub fn on(image: &Image) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = image.path().join(format!("source{count}"));
        if image.kind() == common::Kind::Btrfs {
            common::run(
                "btrfs",
                [Path::new("subvolume"), Path::new("create"), &path],
            );
        } else {
            std::fs::create_dir(&path).unwrap();
        }
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
        for snapshot in 0..2 {
            let path = snapshot_path(&self.path, snapshot);
            if path.exists() {
                let _ = try_run(
                    "btrfs",
                    [Path::new("subvolume"), Path::new("delete"), &path],
                );
            }
        }
    }
}

/// Where a snapshot of a source lies: beside it.
pub fn snapshot_path(source: &Path, snapshot: u8) -> PathBuf {
    let mut name = source.file_name().unwrap().to_owned();
    name.push(format!("-snapshot{snapshot}"));
    source.with_file_name(name)
}
