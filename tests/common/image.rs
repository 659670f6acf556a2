//! Filesystems of a test's own, on a loop device.

use super::{Scratch, can_mount, have, mounts_below, run, try_run};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A filesystem in memory.
const MEMORY: &str = "/dev/shm";

/// Which filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Xfs,
    Btrfs,
    Ext4,
}

/// A filesystem to be made.
#[derive(Clone, Debug)]
pub struct ImageBuilder {
    kind: Kind,
    mebibytes: u64,
    groups: Option<u32>,
    reflink: bool,
    rmapbt: bool,
    mkfs: Vec<String>,
    options: String,
    in_memory: bool,
}

impl ImageBuilder {
    /// Keeps the image in memory where there is enough of it: for tests that settle the
    /// filesystem so often that the machine's disk would be what they measure.
    pub fn in_memory(mut self) -> Self {
        self.in_memory = has_room(Path::new(MEMORY), self.mebibytes << 20);
        self
    }

    /// Size of the (sparse) image in MiB.
    pub fn size_mib(mut self, mebibytes: u64) -> Self {
        self.mebibytes = mebibytes;
        self
    }

    /// Number of allocation groups (XFS).
    pub fn groups(mut self, groups: u32) -> Self {
        self.groups = Some(groups);
        self
    }

    /// XFS without reflink.
    pub fn without_reflink(mut self) -> Self {
        self.reflink = false;
        self.rmapbt = false;
        self
    }

    /// XFS without the reverse map.
    pub fn without_rmapbt(mut self) -> Self {
        self.rmapbt = false;
        self
    }

    /// One more argument to mkfs.
    pub fn mkfs_arg(mut self, argument: &str) -> Self {
        self.mkfs.push(argument.to_owned());
        self
    }

    /// Mount options, e.g. `compress-force=zstd`.
    pub fn options(mut self, options: &str) -> Self {
        self.options = options.to_owned();
        self
    }

    /// Makes and mounts it; `None` when this machine cannot (and this is not CI).
    pub fn make(self) -> Option<Image> {
        let mkfs = match self.kind {
            Kind::Xfs => "mkfs.xfs",
            Kind::Btrfs => "mkfs.btrfs",
            Kind::Ext4 => "mkfs.ext4",
        };
        if !can_mount() || !have(mkfs) {
            return None;
        }
        let scratch = Scratch::new(&format!("{:?}", self.kind).to_lowercase());
        let file = if self.in_memory {
            Path::new(MEMORY).join(scratch.path().file_name().unwrap())
        } else {
            scratch.path().join("disk.img")
        };
        File::create(&file)
            .and_then(|image| image.set_len(self.mebibytes << 20))
            .unwrap();
        let mut arguments: Vec<String> = vec!["-q".into()];
        match self.kind {
            Kind::Xfs => {
                let on = |set: bool| u8::from(set);
                arguments.extend(["-f".into(), "-m".into()]);
                arguments.push(format!(
                    "reflink={},rmapbt={}",
                    on(self.reflink),
                    on(self.rmapbt)
                ));
                if let Some(groups) = self.groups {
                    arguments.extend(["-d".into(), format!("agcount={groups}")]);
                }
            }
            Kind::Btrfs => arguments.push("-f".into()),
            Kind::Ext4 => arguments.push("-F".into()),
        }
        arguments.extend(self.mkfs);
        arguments.push(file.to_str().unwrap().into());
        run(mkfs, &arguments);
        let point = scratch.dir("fs");
        let device = attach(&file);
        if self.in_memory {
            // The loop device holds it; without a name nothing can leave it behind.
            std::fs::remove_file(&file).unwrap();
        }
        let mut mount: Vec<&str> = vec![&device, point.to_str().unwrap()];
        if !self.options.is_empty() {
            mount.extend(["-o", &self.options]);
        }
        let mounted = try_run("mount", &mount);
        // The device now goes by itself with the mount, whatever ends it.
        let _ = try_run("losetup", ["-d", &device]);
        assert!(mounted.ok(), "mount {device}: {}", mounted.stderr);
        Some(Image {
            kind: self.kind,
            point,
            device,
            scratch,
        })
    }
}

/// A mounted filesystem of the test's own.
#[derive(Debug)]
pub struct Image {
    kind: Kind,
    point: PathBuf,
    device: String,
    scratch: Scratch,
}

impl Image {
    pub fn of(kind: Kind) -> ImageBuilder {
        ImageBuilder {
            kind,
            mebibytes: 512,
            groups: None,
            reflink: true,
            rmapbt: true,
            mkfs: Vec::new(),
            options: String::new(),
            in_memory: false,
        }
    }

    /// XFS with reflink and rmapbt, 512 MiB.
    pub fn xfs() -> Option<Self> {
        Self::of(Kind::Xfs).make()
    }

    /// btrfs, 512 MiB.
    pub fn btrfs() -> Option<Self> {
        Self::of(Kind::Btrfs).make()
    }

    /// ext4, 512 MiB.
    pub fn ext4() -> Option<Self> {
        Self::of(Kind::Ext4).make()
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Where the backing filesystem is mounted.
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// The loop device that holds it.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// A directory of the backing filesystem, made when missing: the usual source of a mount.
    pub fn tree(&self) -> PathBuf {
        let tree = self.point.join("tree");
        std::fs::create_dir_all(&tree).unwrap();
        tree
    }

    /// An empty directory outside the image, for a mount point.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.scratch.dir(name)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        unmount_all(self.scratch.path());
    }
}

/// A tmpfs of the test's own: a filesystem without FIEMAP.
#[derive(Debug)]
pub struct MountedTmpfs {
    point: PathBuf,
    scratch: Scratch,
}

impl MountedTmpfs {
    pub fn new() -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let scratch = Scratch::new("tmpfs");
        let point = scratch.dir("fs");
        run("mount", ["-t", "tmpfs", "none", point.to_str().unwrap()]);
        Some(Self { point, scratch })
    }

    pub fn path(&self) -> &Path {
        &self.point
    }

    pub fn beside(&self, name: &str) -> PathBuf {
        self.scratch.dir(name)
    }
}

impl Drop for MountedTmpfs {
    fn drop(&mut self) {
        unmount_all(self.scratch.path());
    }
}

/// Whether the filesystem at `path` has twice `bytes` free.
fn has_room(path: &Path, bytes: u64) -> bool {
    nix::sys::statvfs::statvfs(path)
        .is_ok_and(|space| space.blocks_available() * space.fragment_size() / 2 > bytes)
}

/// Unmounts everything below `path`: properly, then by force.
fn unmount_all(path: &Path) {
    for attempt in 0..50 {
        let points = mounts_below(path);
        if points.is_empty() {
            return;
        }
        for point in points {
            let lazy = attempt > 20;
            let how = if lazy { "-l" } else { "-n" };
            let _ = try_run("umount", [how.as_ref(), point.as_os_str()]);
        }
        std::thread::sleep(Duration::from_millis(if attempt == 0 { 1 } else { 50 }));
    }
}

/// Attaches a file to a free loop device; under a lock, so that tests in parallel do not race for
/// the same one.
fn attach(file: &Path) -> String {
    let lock = File::create("/tmp/sharelens-test-loop.lock").unwrap();
    let _held = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive).unwrap();
    let file = file.to_str().unwrap();
    run("losetup", ["--find", "--show", file]).trim().to_owned()
}
