//! Putting a mount into the kernel's table: by mount(2) where that is permitted, otherwise
//! through fusermount3.

use super::options::{Io, Options};
use super::places::Places;
use super::refusal::Refusal;
use super::umount::Attachment;
use crate::sys::reason;
use fuser::{Config, Filesystem, MountOption, Session, SessionACL};
use nix::mount::{MsFlags, mount};
use nix::unistd::{getegid, geteuid};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// A mounted session that does not serve yet.
#[derive(Debug)]
pub struct Mounted<F: Filesystem> {
    /// The session, its handshake done.
    pub session: Session<F>,
    /// How to take it down again.
    pub attachment: Attachment,
}

/// Whether mount(2) is likely to be permitted: for choosing what to offer before mounting.
#[must_use]
pub fn may_mount_directly() -> bool {
    geteuid().is_root()
}

/// Looks for what would make mounting fail, before anything is started.
///
/// # Errors
/// A sentence with the remedy.
pub fn check(options: &Options) -> Result<(), Refusal> {
    open_device().map(drop)?;
    if may_mount_directly() {
        return Ok(());
    }
    if options.io == Io::Passthrough {
        return Err(Refusal::NoPassthrough {
            reason: "it needs root (CAP_SYS_ADMIN)",
        });
    }
    if find_fusermount().is_none() {
        return Err(Refusal::NoFusermount);
    }
    if options.allow_other && !others_allowed() {
        return Err(Refusal::AllowOtherDenied);
    }
    Ok(())
}

/// Mounts and does the handshake with the kernel.
///
/// # Errors
/// A sentence with the remedy; nothing stays mounted.
pub fn attach<F: Filesystem>(
    filesystem: F,
    places: &Places,
    options: &Options,
    threads: usize,
) -> Result<Mounted<F>, Refusal> {
    let mut config = Config::default();
    config.n_threads = Some(threads);
    config.clone_fd = threads > 1;
    config.acl = if options.allow_other {
        SessionACL::All
    } else {
        SessionACL::Owner
    };
    if let Some(device) = mount_directly(places, options)? {
        let attachment = Attachment::find(&places.point, true)?;
        let acl = config.acl;
        return match Session::from_fd(filesystem, device, acl, config) {
            Ok(session) => Ok(Mounted {
                attachment: attachment
                    .connected_by(session.as_fd())
                    .map_err(Refusal::system("keeping the connection to the kernel"))?,
                session,
            }),
            Err(error) => {
                let _ = attachment.unmount(true);
                Err(handshake_failed(error))
            }
        };
    }
    config.mount_options = helper_options(places, options);
    let session = Session::new(filesystem, &places.point, &config)
        .map_err(|error| helper_failed(&places.point, error))?;
    let attachment = Attachment::find(&places.point, false)?
        .connected_by(session.as_fd())
        .map_err(Refusal::system("keeping the connection to the kernel"))?;
    Ok(Mounted {
        session,
        attachment,
    })
}

fn open_device() -> Result<OwnedFd, Refusal> {
    match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(device) => Ok(device.into()),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => Err(Refusal::NoDevice),
            // An ordinary user's fusermount3 opens the device itself.
            Some(libc::EACCES | libc::EPERM) => Err(Refusal::DeviceDenied),
            _ => Err(Refusal::system("opening /dev/fuse")(error)),
        },
    }
}

/// mount(2). `None` when it is not permitted.
fn mount_directly(places: &Places, options: &Options) -> Result<Option<OwnedFd>, Refusal> {
    if !may_mount_directly() {
        return Ok(None);
    }
    let device = open_device()?;
    let mut data = format!(
        "fd={},rootmode={:o},user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        places.mode,
        geteuid(),
        getegid(),
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let name = match &options.fsname {
        Some(name) => Path::new(name),
        None => &places.source_path,
    };
    let kind = format!("fuse.{}", options.subtype);
    match mount(
        Some(name),
        &places.point,
        Some(kind.as_str()),
        flags(options),
        Some(data.as_str()),
    ) {
        Ok(()) => Ok(Some(device)),
        Err(nix::Error::EPERM) if find_fusermount().is_some() => Ok(None),
        Err(nix::Error::EPERM) => Err(Refusal::NotPermitted {
            point: places.point.clone(),
            said: "mount(2) says EPERM".to_owned(),
        }),
        Err(nix::Error::ENODEV) => Err(Refusal::NoDevice),
        Err(errno) => Err(Refusal::system(format!("mounting on {:?}", places.point))(
            errno,
        )),
    }
}

/// `MS_NOSYMFOLLOW` of `linux/mount.h` (Linux 5.10).
const NO_SYMLINKS: MsFlags = MsFlags::from_bits_retain(1 << 8);

/// The flags of mount(2).
pub(super) fn flags(options: &Options) -> MsFlags {
    [
        (options.read_only, MsFlags::MS_RDONLY),
        (options.no_suid, MsFlags::MS_NOSUID),
        (options.no_dev, MsFlags::MS_NODEV),
        (options.no_exec, MsFlags::MS_NOEXEC),
        (options.no_atime, MsFlags::MS_NOATIME),
        (options.synchronous, MsFlags::MS_SYNCHRONOUS),
        (options.dir_sync, MsFlags::MS_DIRSYNC),
        (options.strict_atime, MsFlags::MS_STRICTATIME),
        (options.no_dir_atime, MsFlags::MS_NODIRATIME),
        (options.lazy_time, MsFlags::MS_LAZYTIME),
        (options.no_symlinks, NO_SYMLINKS),
        (options.silent, MsFlags::MS_SILENT),
    ]
    .into_iter()
    .filter(|(set, _)| *set)
    .fold(MsFlags::empty(), |flags, (_, flag)| flags | flag)
}

/// The same for fusermount3, which always adds nosuid and nodev. It does not know all of them: of
/// those that mean nothing to a FUSE mount it is not told, and refuses the others itself.
fn helper_options(places: &Places, options: &Options) -> Vec<MountOption> {
    let name = options
        .fsname
        .clone()
        .unwrap_or_else(|| places.source_path.to_string_lossy().into_owned());
    // It splits its options at commas, and takes a backslash for the next character as it is.
    let name = name.replace('\\', "\\\\").replace(',', "\\,");
    let mut list = vec![
        MountOption::FSName(name),
        MountOption::Subtype(options.subtype.clone()),
        MountOption::DefaultPermissions,
    ];
    let extra = [
        (options.read_only, MountOption::RO),
        (options.no_exec, MountOption::NoExec),
        (options.no_atime, MountOption::NoAtime),
        (options.synchronous, MountOption::Sync),
        (options.dir_sync, MountOption::DirSync),
        (
            options.no_symlinks,
            MountOption::CUSTOM("nosymfollow".to_owned()),
        ),
    ];
    list.extend(
        extra
            .into_iter()
            .filter(|(set, _)| *set)
            .map(|(_, option)| option),
    );
    list
}

/// Whether fuse.conf lets ordinary users use `allow_other`.
#[must_use]
pub fn others_allowed() -> bool {
    std::fs::read_to_string("/etc/fuse.conf")
        .is_ok_and(|text| text.lines().any(|line| line.trim() == "user_allow_other"))
}

/// The set-user-id helper of libfuse 3, where it is installed.
#[must_use]
pub fn find_fusermount() -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/bin", "/bin", "/usr/local/bin"].map(Into::into))
        .map(|dir| dir.join("fusermount3"))
        .find(|candidate| candidate.exists())
}

fn helper_failed(point: &Path, error: io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::NotFound => Refusal::NoFusermount,
        io::ErrorKind::PermissionDenied => Refusal::AllowOtherDenied,
        _ => Refusal::NotPermitted {
            point: point.to_owned(),
            said: reason(&error).to_string().trim().to_owned(),
        },
    }
}

fn handshake_failed(error: io::Error) -> Refusal {
    Refusal::system("the kernel and sharelens could not agree on a session")(error)
}
