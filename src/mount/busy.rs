//! Which processes use a mount or work below a directory, as `/proc` shows it.

use super::mountinfo::MountEntry;
use crate::sys::unasked;
use crate::vxattr::printable;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A process, by number, with its name.
pub type Users = BTreeMap<i32, String>;

/// Processes that keep the mount busy: by their working directory, root, program, open files or
/// mappings.
#[must_use]
pub fn users_of(mount: &MountEntry) -> Users {
    let Some(device) = device_number(&mount.device) else {
        return Users::new();
    };
    processes(|process| {
        let of_mount =
            |name: &str| unasked::device(&process.join(name)).is_ok_and(|found| found == device);
        ["cwd", "root", "exe"].iter().any(|name| of_mount(name))
            || opens_in(process, mount.id)
            || maps_from(process, &mount.device)
    })
}

/// Processes that have their working directory or an open file at or below `directory`. Asked
/// before that directory is covered, these are the ones that stay below the cover. Daemons of this
/// program are not among them: they hold the sources of other mounts, or of one that just ended.
#[must_use]
pub fn users_below(directory: &Path) -> Users {
    let program = fs::read_link("/proc/self/exe").ok();
    processes(|process| {
        if program.is_some() && fs::read_link(process.join("exe")).ok() == program {
            return false;
        }
        let below =
            |link: PathBuf| fs::read_link(link).is_ok_and(|target| target.starts_with(directory));
        below(process.join("cwd")) || descriptors(process).any(below)
    })
}

/// The process that serves a FUSE mount, where the kernel tells (Linux 6.13) and it may be seen.
#[must_use]
pub fn daemon_of(mount: &MountEntry) -> Option<i32> {
    let (_, connection) = numbers(&mount.device)?;
    let wanted = format!("fuse_connection:\t{connection}");
    let serving = processes(|process| {
        descriptors(process).any(|link| {
            fs::read_link(&link).is_ok_and(|target| target.ends_with("fuse"))
                && link.file_name().is_some_and(|number| {
                    fs::read_to_string(process.join("fdinfo").join(number))
                        .is_ok_and(|info| info.lines().any(|line| line == wanted))
                })
        })
    });
    serving.into_keys().next()
}

/// Whether the process may still hold something open. One that has ended and was not waited for
/// yet holds nothing once its last thread is gone (its program goes earlier, before its files).
#[must_use]
pub fn runs(pid: i32) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let Ok(stat) = fs::read_to_string(process.join("stat")) else {
        return false;
    };
    // proc_pid_stat(5): the state follows the name, which may hold anything but ends with ')'.
    let ended = stat
        .rsplit(')')
        .next()
        .is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']));
    let threads = fs::read_dir(process.join("task")).map_or(0, Iterator::count);
    !ended || threads > 1
}

/// For a sentence: `bash (12), vim (13) and 4 more`; empty when nobody is known.
#[must_use]
pub fn describe(users: &Users) -> String {
    const SHOWN: usize = 5;
    if users.is_empty() {
        return String::new();
    }
    let named: Vec<String> = users
        .iter()
        .take(SHOWN)
        .map(|(pid, name)| format!("{name} ({pid})"))
        .collect();
    let more = match users.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", named.join(", "))
}

fn processes(wanted: impl Fn(&Path) -> bool) -> Users {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Users::new();
    };
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let process = entry.path();
            (pid != own && wanted(&process)).then(|| {
                let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
                (pid, printable(name.trim().as_bytes()))
            })
        })
        .collect()
}

fn descriptors(process: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

fn opens_in(process: &Path, mount: u64) -> bool {
    let wanted = format!("mnt_id:\t{mount}");
    fs::read_dir(process.join("fdinfo"))
        .into_iter()
        .flatten()
        .flatten()
        .any(|entry| {
            fs::read_to_string(entry.path())
                .is_ok_and(|info| info.lines().any(|line| line == wanted))
        })
}

/// Lines of `maps` name the device in hexadecimal.
fn maps_from(process: &Path, device: &str) -> bool {
    let Some((major, minor)) = numbers(device) else {
        return false;
    };
    let wanted = format!("{major:02x}:{minor:02x}");
    fs::read_to_string(process.join("maps")).is_ok_and(|maps| {
        maps.lines()
            .any(|line| line.split_whitespace().nth(3) == Some(&wanted))
    })
}

fn device_number(device: &str) -> Option<u64> {
    let (major, minor) = numbers(device)?;
    Some(nix::sys::stat::makedev(major, minor))
}

fn numbers(device: &str) -> Option<(u64, u64)> {
    let (major, minor) = device.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_named_and_counted() {
        let users: Users = (1..=7).map(|pid| (pid, "sh".to_owned())).collect();
        assert_eq!(
            describe(&users),
            "sh (1), sh (2), sh (3), sh (4), sh (5) and 2 more"
        );
        assert_eq!(describe(&Users::new()), "");
    }

    #[test]
    fn a_process_is_found_by_its_working_directory() {
        let dir = tempfile::tempdir().unwrap();
        let dir_path = dir.path().canonicalize().unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("30")
            .current_dir(&dir_path)
            .spawn()
            .unwrap();
        let users = users_below(&dir_path);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(users.contains_key(&i32::try_from(child.id()).unwrap()));
    }
}
