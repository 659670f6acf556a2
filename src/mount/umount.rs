//! Taking mounts down.
//!
//! Invariant: only the mount that is meant goes. A path is unmounted only while the topmost mount
//! there is the one that was found before. A mount of this process is known by its device number,
//! which the kernel gives to the next filesystem as soon as ours is gone: so it is looked for only
//! while our connection to the kernel is alive, which is cut before the number is free.

use super::attach::find_fusermount;
use super::mountinfo::{self, MountEntry};
use super::places;
use super::refusal::Refusal;
use super::{answering, ask, busy};
use nix::mount::{MntFlags, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::geteuid;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A mount of this process.
#[derive(Clone, Debug)]
pub struct Attachment {
    device: String,
    privileged: bool,
    /// Our end of the connection to the kernel, once there is a session.
    connection: Option<Arc<OwnedFd>>,
}

impl Attachment {
    /// The same mount, known to be there only while this connection is alive.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn connected_by(self, connection: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self {
            connection: Some(Arc::new(connection.try_clone_to_owned()?)),
            ..self
        })
    }

    /// Whether the filesystem may still exist. The kernel cuts the connection when the last mount
    /// of it goes (`fuse_dev_poll`: `EPOLLERR`).
    fn may_exist(&self) -> bool {
        let Some(connection) = &self.connection else {
            return true;
        };
        let mut asked = [PollFd::new(connection.as_fd(), PollFlags::empty())];
        let answered = poll(&mut asked, PollTimeout::ZERO).is_ok();
        let [asked] = asked;
        !(answered
            && asked
                .revents()
                .is_some_and(|seen| seen.contains(PollFlags::POLLERR)))
    }

    /// The mount that was just made at `point`.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(point: &Path, privileged: bool) -> Result<Self, Refusal> {
        let top = mountinfo::topmost(point).map_err(Refusal::system("reading the mount table"))?;
        match top {
            Some(entry) => Ok(Self {
                device: entry.device,
                privileged,
                connection: None,
            }),
            None => Err(Refusal::NotMounted {
                point: point.to_owned(),
                kind: None,
            }),
        }
    }

    /// `major:minor` of the mount.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Unmounts every place where this filesystem is on top; `lazily` also when it is in use:
    /// it then leaves the table at once, and goes for good with its last user.
    ///
    /// # Errors
    /// `EBUSY` when it is in use, or covered by another mount.
    pub fn unmount(&self, lazily: bool) -> io::Result<()> {
        let mut result = Ok(());
        // A failed mount can leave one turn's work undone only by an error, which ends this.
        while let Some(entry) = self.mine()?.pop() {
            let top = mountinfo::topmost(&entry.point)?;
            if top.is_none_or(|top| top.device != self.device) {
                return Err(io::Error::from_raw_os_error(libc::EBUSY));
            }
            result = take_down(&entry.point, lazily, self.privileged);
            if result.is_err() {
                break;
            }
        }
        result
    }

    fn mine(&self) -> io::Result<Vec<MountEntry>> {
        if !self.may_exist() {
            return Ok(Vec::new());
        }
        let mut entries = mountinfo::read()?;
        entries.retain(|entry| entry.device == self.device);
        Ok(entries)
    }
}

/// How long a daemon whose mount is gone may take to let go of its source.
const LETTING_GO: Duration = Duration::from_secs(3);

/// Unmounts the sharelens mount at `point` (the command). Unless `lazily`, the source is free when
/// this returns: what was mounted below can be unmounted next.
///
/// # Errors
/// When it is none, or is in use and `lazily` is not set.
pub fn unmount(point: &Path, lazily: bool) -> Result<(), Refusal> {
    let point = places::resolve(point);
    let top = mountinfo::topmost(&point).map_err(Refusal::system("reading the mount table"))?;
    if let Some(entry) = &top
        && entry.kind.starts_with("fuse.")
        && !entry.is_sharelens()
    {
        // Has to be asked whether it is ours.
        answering::check(&point)?;
    }
    let entry = match top {
        Some(entry) if entry.is_sharelens() || is_served_by_us(&entry) => entry,
        other => {
            let kind = other.map(|entry| entry.kind);
            return Err(Refusal::NotMounted { point, kind });
        }
    };
    let daemon = (!lazily).then(|| busy::daemon_of(&entry)).flatten();
    let gone = take_down(&point, lazily, geteuid().is_root());
    if let (Ok(()), Some(daemon)) = (&gone, daemon) {
        let deadline = Instant::now() + LETTING_GO;
        while busy::runs(daemon) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    gone.map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => Refusal::Busy {
            users: busy::describe(&busy::users_of(&entry)),
            point,
        },
        Some(libc::EPERM) => Refusal::NotPermitted {
            said: "only root and the user who mounted it may unmount it".to_owned(),
            point,
        },
        _ => Refusal::system(format!("unmounting {point:?}"))(error),
    })
}

/// Takes a dead mount out of the table.
///
/// # Errors
/// When that is not permitted.
pub fn detach(point: &Path) -> Result<(), Refusal> {
    take_down(point, true, geteuid().is_root())
        .map_err(Refusal::system(format!("unmounting {point:?}")))
}

/// A mount under another subtype that answers as sharelens does cannot be told from the table, so
/// only FUSE mounts named by the user are tried.
fn is_served_by_us(entry: &MountEntry) -> bool {
    entry.kind.starts_with("fuse.")
        && !places::is_dead(&entry.point)
        && ask::is_answered(&entry.point)
}

fn take_down(point: &Path, lazily: bool, privileged: bool) -> io::Result<()> {
    if privileged {
        let mut flags = MntFlags::UMOUNT_NOFOLLOW;
        if lazily {
            flags |= MntFlags::MNT_DETACH;
        }
        return Ok(umount2(point, flags)?);
    }
    let Some(fusermount) = find_fusermount() else {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "fusermount3 is not installed (package fuse3)",
        ));
    };
    let mut command = Command::new(fusermount);
    command.arg("-u");
    if lazily {
        command.arg("-z");
    }
    let done = command.arg("--").arg(point).stdin(Stdio::null()).output()?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let errno = if said.contains("busy") {
        libc::EBUSY
    } else if said.contains("not permitted") || said.contains("not found in /etc/mtab") {
        libc::EPERM
    } else {
        return Err(io::Error::other(said.trim().to_owned()));
    };
    Err(io::Error::from_raw_os_error(errno))
}
