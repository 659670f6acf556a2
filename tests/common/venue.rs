//! Where a test of ordinary filesystem behaviour runs: natively on XFS and btrfs, which proves the
//! test itself, and through a mount in both I/O modes, which judges sharelens.
//!
//! With `SHARELENS_TEST_IN_PLACE=1` the mounts cover their sources, as they mostly do in use.
//!
//! Invariant: no test hangs on a dead mount. What takes longer than [`PATIENCE`] has its own FUSE
//! connection aborted, so that every waiting call fails.

use super::{Image, ImageBuilder, Kind, Mounted, MountedBuilder, run as run_program};
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// How long the body of one test may take in one venue.
const PATIENCE: Duration = Duration::from_secs(240);

/// Through what the test reaches the filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// Not through sharelens at all.
    Native,
    /// A mount with kernel passthrough.
    Passthrough,
    /// A mount with ordinary cached opens.
    Cached,
}

/// A directory to test in, and what is behind it.
#[derive(Debug)]
pub struct Venue {
    /// Dropped before the image that it covers.
    mount: Option<Mounted>,
    image: Image,
    io: Io,
    dir: PathBuf,
    backing: PathBuf,
}

impl Venue {
    /// A filesystem of `kind`, reached through `io`; `None` where the machine lacks something.
    pub fn new(kind: Kind, io: Io) -> Option<Self> {
        Self::with(Image::of(kind), io, "")
    }

    /// As [`Venue::new`], with an image of the caller's own making and more mount options.
    pub fn with(image: ImageBuilder, io: Io, options: &str) -> Option<Self> {
        let image = image.in_memory().make()?;
        let tree = image.tree();
        std::fs::set_permissions(&tree, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let mut backing = tree.clone();
        if io != Io::Native && std::env::var_os("SHARELENS_TEST_IN_PLACE").is_some() {
            // The source will be covered: the same filesystem once more, elsewhere.
            let again = image.beside("again");
            run_program("mount", [image.device().as_ref(), again.as_os_str()]);
            backing = again.join(tree.file_name().unwrap());
        }
        let mut venue = Self {
            mount: None,
            backing,
            dir: tree,
            image,
            io,
        };
        venue.mount(options);
        Some(venue)
    }

    /// Mounts (again), unless the venue is native.
    pub fn mount(&mut self, options: &str) {
        if let Some(builder) = self.builder(options) {
            let mount = builder.mount();
            self.dir = mount.path().to_owned();
            self.mount = Some(mount);
        }
    }

    /// The mount that [`Venue::mount`] makes, for a test that changes it.
    pub fn builder(&self, options: &str) -> Option<MountedBuilder> {
        let io = match self.io {
            Io::Native => return None,
            Io::Passthrough => "io=passthrough",
            Io::Cached => "io=cached",
        };
        let tree = self.image.tree();
        let point = if self.backing == tree {
            self.image.beside("mnt")
        } else {
            tree.clone()
        };
        Some(
            Mounted::at(&tree, &point)
                .options("allow_other")
                .options(io)
                .options(options),
        )
    }

    /// The directory under test.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A name in the directory under test.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// The same directory on the backing filesystem (natively: itself).
    pub fn backing(&self) -> PathBuf {
        self.backing.clone()
    }

    /// A directory of the same filesystem that no mount covers, to compare with.
    pub fn native(&self) -> PathBuf {
        let path = self.image.path().join("native");
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    pub fn io(&self) -> Io {
        self.io
    }

    pub fn is_native(&self) -> bool {
        self.io == Io::Native
    }

    pub fn kind(&self) -> Kind {
        self.image.kind()
    }

    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The mount, where there is one.
    pub fn mounted(&self) -> Option<&Mounted> {
        self.mount.as_ref()
    }

    /// Takes the mount out, to end it in a way of the test's own.
    pub fn take_mount(&mut self) -> Option<Mounted> {
        self.mount.take()
    }
}

/// Runs `body` in one venue, and fails instead of hanging; a daemon that panicked fails it too.
pub fn run(kind: Kind, io: Io, body: impl FnOnce(&mut Venue)) {
    if let Some(venue) = Venue::new(kind, io) {
        run_in(venue, body);
    }
}

/// As [`run`], in a venue already made.
pub fn run_in(mut venue: Venue, body: impl FnOnce(&mut Venue)) {
    let abort = venue.mounted().map(connection);
    let (done, waits) = mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if waits.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("not done after {PATIENCE:?}: the connection is aborted");
            if let Some(abort) = abort {
                let _ = std::fs::write(abort, "1");
            }
        }
    });
    let result = catch_unwind(AssertUnwindSafe(|| body(&mut venue)));
    drop(done);
    watchdog.join().unwrap();
    let said = venue.mounted().map(Mounted::said).unwrap_or_default();
    if let Err(panic) = result {
        if !said.is_empty() {
            eprintln!("--- the daemon said:\n{said}");
        }
        drop(venue);
        resume_unwind(panic);
    }
    assert!(!said.contains("panicked"), "the daemon panicked:\n{said}");
}

/// The file that aborts the FUSE connection of one mount.
fn connection(mount: &Mounted) -> PathBuf {
    let device = std::fs::symlink_metadata(mount.path()).unwrap().dev();
    let minor = libc::minor(device);
    PathBuf::from(format!("/sys/fs/fuse/connections/{minor}/abort"))
}

/// Makes one test per filesystem and way to reach it of each named body
/// (`fn body(venue: &mut Venue)`).
#[macro_export]
macro_rules! everywhere {
    ($($body:ident),+ $(,)?) => {$(
        mod $body {
            use $crate::common::{Kind, venue::{Io, run}};
            #[test]
            fn xfs_native() { run(Kind::Xfs, Io::Native, super::$body) }
            #[test]
            fn xfs_passthrough() { run(Kind::Xfs, Io::Passthrough, super::$body) }
            #[test]
            fn xfs_cached() { run(Kind::Xfs, Io::Cached, super::$body) }
            #[test]
            fn btrfs_native() { run(Kind::Btrfs, Io::Native, super::$body) }
            #[test]
            fn btrfs_passthrough() { run(Kind::Btrfs, Io::Passthrough, super::$body) }
            #[test]
            fn btrfs_cached() { run(Kind::Btrfs, Io::Cached, super::$body) }
        }
    )+};
}

/// As [`everywhere!`], on a mount only: what it tests does not exist natively.
#[macro_export]
macro_rules! on_mounts {
    ($($body:ident),+ $(,)?) => {$(
        mod $body {
            use $crate::common::{Kind, venue::{Io, run}};
            #[test]
            fn xfs_passthrough() { run(Kind::Xfs, Io::Passthrough, super::$body) }
            #[test]
            fn xfs_cached() { run(Kind::Xfs, Io::Cached, super::$body) }
            #[test]
            fn btrfs_passthrough() { run(Kind::Btrfs, Io::Passthrough, super::$body) }
            #[test]
            fn btrfs_cached() { run(Kind::Btrfs, Io::Cached, super::$body) }
        }
    )+};
}
