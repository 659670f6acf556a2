//! Changing a mount that is there (`remount`).
//!
//! The kernel changes what it keeps itself: the flags of mount(8). What the daemon was started
//! with stays as it is for the life of the mount; a request to change that is refused, never
//! passed over. mount(8) repeats what fstab and the mount table say, so that naming an option that
//! already holds is no request to change it.

use super::attach;
use super::mountinfo::{self, MountEntry};
use super::options::{Options, Unknown, lasting};
use super::refusal::Refusal;
use super::{ask, places};
use crate::vxattr::Name;
use nix::mount::{MsFlags, mount};
use serde_json::Value;
use std::path::Path;

/// The flags that hold at `point` now, for a request that names only what is to change.
///
/// # Errors
/// When there is no sharelens mount.
pub fn present(point: &Path) -> Result<Options, Refusal> {
    let entry = entry(&places::resolve(point))?;
    let mut options = Options::default();
    for list in [&entry.options, &entry.flags] {
        options.parse(list, Unknown::Tolerate)?;
    }
    options.read_only = is_in(&entry.options, "ro") || is_in(&entry.flags, "ro");
    Ok(options)
}

/// Changes the flags of the sharelens mount at `point` into those of `options`; `given` are the
/// lists that they were parsed from.
///
/// # Errors
/// When there is no such mount, when something else would have to change, or of mount(2).
pub(super) fn remount(point: &Path, options: &Options, given: &[String]) -> Result<(), Refusal> {
    let entry = entry(point)?;
    let refuse = |reason: String| Refusal::Remount {
        point: point.to_owned(),
        reason,
    };
    if options.dir_sync && !is_in(&entry.options, "dirsync") {
        return Err(refuse(stays("dirsync")));
    }
    daemon_has(&entry, given).map_err(refuse)?;
    let mut flags = attach::flags(options) | MsFlags::MS_REMOUNT;
    if !options.no_atime && !options.strict_atime {
        // Without any of them the kernel would leave the one that holds.
        flags |= MsFlags::MS_RELATIME;
    }
    mount(
        Some(entry.source.as_str()),
        point,
        Some(entry.kind.as_str()),
        flags,
        None::<&str>,
    )
    .map_err(|errno| {
        refuse(match errno {
            nix::Error::EBUSY => "files are open for writing: close them first".to_owned(),
            nix::Error::EPERM => "only root may do this".to_owned(),
            errno => errno.desc().to_owned(),
        })
    })?;
    let now = self::entry(point)?;
    let is_read_only = is_in(&now.options, "ro") || is_in(&now.flags, "ro");
    if is_read_only == options.read_only {
        Ok(())
    } else {
        Err(refuse("the kernel did not change it".to_owned()))
    }
}

/// The sharelens mount at `point`.
fn entry(point: &Path) -> Result<MountEntry, Refusal> {
    let top = mountinfo::topmost(point).map_err(Refusal::system("reading the mount table"))?;
    let dead = || places::is_dead(point);
    let reason = match top {
        Some(entry) if entry.kind.starts_with("fuse.") && dead() => {
            "its daemon is gone: unmount it, or mount it anew, which replaces it"
        }
        Some(entry) if entry.is_sharelens() || ask::is_answered(point) => return Ok(entry),
        _ => "it is not a sharelens mount",
    };
    Err(Refusal::Remount {
        point: point.to_owned(),
        reason: reason.to_owned(),
    })
}

/// Whether every option of the daemon in the lists is what it was started with.
fn daemon_has(entry: &MountEntry, given: &[String]) -> Result<(), String> {
    let wanted = lasting(given);
    if wanted.is_empty() {
        return Ok(());
    }
    let started_with = ask::text(&entry.point, Name::Stats)
        .ok()
        .and_then(|stats| serde_json::from_str::<Value>(&stats).ok())
        .and_then(|stats| Some(stats.get("mounted_with")?.as_str()?.to_owned()))
        .ok_or("the daemon does not tell what it was started with")?;
    let mut running = Options::default();
    running
        .parse(&started_with, Unknown::Tolerate)
        .map_err(|error| error.to_string())?;
    for item in wanted {
        let mut changed = running.clone();
        changed
            .parse(&item, Unknown::Tolerate)
            .map_err(|error| error.to_string())?;
        if changed != running {
            return Err(stays(&item));
        }
    }
    Ok(())
}

fn stays(option: &str) -> String {
    format!("{option} can only be set when mounting: unmount it, and mount it with that")
}

fn is_in(list: &str, wanted: &str) -> bool {
    list.split(',').any(|item| item == wanted)
}
