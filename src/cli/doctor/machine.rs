//! The kernel, FUSE, the user's privileges and limits.

use super::Finding;
use crate::mount::attach;
use crate::mount::logging::SYSTEM_LOG;
use crate::sys::{fanotify, reason};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::geteuid;
use std::fs::OpenOptions;
use std::os::unix::net::UnixDatagram;

/// Below this many open files the store of descriptors gets tight for an ordinary user.
const FEW_DESCRIPTORS: u64 = 4096;

/// Capabilities by their bit (`linux/capability.h`).
const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_FOWNER: u32 = 3;
const CAP_SETUID: u32 = 7;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_LEASE: u32 = 28;

pub(super) fn findings() -> Vec<Finding> {
    let capabilities = capabilities();
    vec![
        kernel(),
        device(),
        mounting(has(capabilities, CAP_SYS_ADMIN)),
        passthrough(has(capabilities, CAP_SYS_ADMIN)),
        handles(has(capabilities, CAP_DAC_READ_SEARCH)),
        removals(has(capabilities, CAP_SYS_ADMIN)),
        leases(has(capabilities, CAP_LEASE)),
        users(has(capabilities, CAP_SETUID) && has(capabilities, CAP_FOWNER)),
        watching(),
        descriptors(),
        system_log(),
    ]
}

/// Major and minor version of the running kernel.
pub(super) fn kernel_version() -> Option<(u32, u32)> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The effective capabilities of this process.
fn capabilities() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("CapEff:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .unwrap_or_default()
}

fn has(capabilities: u64, bit: u32) -> bool {
    capabilities >> bit & 1 == 1
}

fn kernel() -> Finding {
    let what = "kernel";
    match kernel_version() {
        Some(version @ (major, minor)) if version >= (6, 9) => Finding::good(
            what,
            format!("{major}.{minor}"),
            "knows FUSE passthrough (6.9), fanotify with targets (5.17) and fine-grained ctime where it is 6.13 or later",
        ),
        Some((major, minor)) => Finding::limited(
            what,
            format!("{major}.{minor}"),
            "without FUSE passthrough (6.9) every read and write goes through the daemon, and stores through mappings count once they have reached it",
            "use a kernel of version 6.9 or later",
        ),
        None => Finding::limited(
            what,
            "unknown",
            "/proc/sys/kernel/osrelease cannot be read",
            "mount /proc",
        ),
    }
}

fn device() -> Finding {
    let what = "/dev/fuse";
    match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => Finding::good(what, "can be opened", "sharelens can mount"),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Finding::missing(
            what,
            "this user may not open it",
            "sharelens cannot mount",
            "run as root, or chmod 0666 /dev/fuse",
        ),
        Err(error) => Finding::missing(
            what,
            reason(&error).to_string(),
            "sharelens cannot mount; `show`, `clone` and `doctor` work all the same",
            "modprobe fuse; in a container, start it with --device /dev/fuse and the capability SYS_ADMIN",
        ),
    }
}

fn mounting(admin: bool) -> Finding {
    let what = "mounting";
    if geteuid().is_root() && admin {
        return Finding::good(what, "by mount(2)", "any directory can be a mount point");
    }
    if attach::find_fusermount().is_none() {
        return Finding::missing(
            what,
            "no fusermount3",
            "an ordinary user cannot mount without it",
            "apt-get install fuse3, or run as root",
        );
    }
    let others = if attach::others_allowed() {
        "allow_other is permitted"
    } else {
        "allow_other is for root alone (user_allow_other is not in /etc/fuse.conf)"
    };
    Finding::limited(
        what,
        format!("through fusermount3; {others}"),
        "only over directories that this user may write, with nosuid and nodev",
        "run as root where that is not enough",
    )
}

fn passthrough(admin: bool) -> Finding {
    let what = "passthrough I/O";
    let new_enough = kernel_version().is_none_or(|version| version >= (6, 9));
    if !new_enough {
        return Finding::limited(
            what,
            "not in this kernel",
            "data move through the daemon (io=cached): reads and writes are slower",
            "use a kernel of version 6.9 or later",
        );
    }
    if admin {
        Finding::good(
            what,
            "permitted",
            "reads, writes and mappings run at the speed of the filesystem below",
        )
    } else {
        Finding::limited(
            what,
            "needs CAP_SYS_ADMIN",
            "data move through the daemon (io=cached): reads and writes are slower, and stores through mappings count once they have reached it",
            "mount as root",
        )
    }
}

fn handles(permitted: bool) -> Finding {
    let what = "file handles";
    if permitted {
        Finding::good(
            what,
            "permitted",
            "files are known by handle: no descriptor is held for them",
        )
    } else {
        Finding::limited(
            what,
            "needs CAP_DAC_READ_SEARCH",
            "files are found again by walking their names, which costs time when many are known, as for totals of directories",
            "mount as root",
        )
    }
}

fn removals(admin: bool) -> Finding {
    let what = "removal flush (XFS)";
    if admin {
        Finding::good(
            what,
            "permitted",
            "an answer after a removal is exact at once",
        )
    } else {
        Finding::limited(
            what,
            "needs CAP_SYS_ADMIN",
            "XFS frees a removed file's blocks in the background; an answer soon after a removal waits for it, for a bounded time",
            "mount as root",
        )
    }
}

fn leases(permitted: bool) -> Finding {
    let what = "lease test";
    if permitted {
        Finding::good(
            what,
            "permitted",
            "sharelens can tell when nothing holds a file open for write any more",
        )
    } else {
        Finding::limited(
            what,
            "needs CAP_LEASE for files of other users",
            "such a file counts as open for write for longer, and is mapped again at each question",
            "mount as root",
        )
    }
}

fn users(permitted: bool) -> Finding {
    let what = "other users";
    if permitted {
        Finding::good(
            what,
            "permitted",
            "with allow_other every user works with their own rights, and owns what they create",
        )
    } else {
        Finding::limited(
            what,
            "needs root",
            "the mount works with the rights of the user who mounts it",
            "mount as root for several users",
        )
    }
}

fn watching() -> Finding {
    let what = "fanotify";
    match fanotify::Watch::new() {
        Ok(_) => Finding::good(
            what,
            "permitted",
            "changes behind the mount are seen when they happen (stores through mappings, dedupe and defragmentation aside)",
        ),
        Err(error) => Finding::limited(
            what,
            reason(&error).to_string(),
            "a change behind the mount to a file is seen by its ctime at the next question; one to a file that shares with it is not",
            "mount as root on a kernel of version 5.17 or later, use max_trust=S, or run `sharelens umount` and mount again after such changes",
        ),
    }
}

fn system_log() -> Finding {
    let what = "system log";
    let reached = UnixDatagram::unbound().and_then(|socket| socket.connect(SYSTEM_LOG));
    match reached {
        Ok(()) => Finding::good(
            what,
            SYSTEM_LOG,
            "takes what a mount in the background has to say",
        ),
        Err(error) => Finding::limited(
            what,
            format!("{SYSTEM_LOG}: {}", reason(&error)),
            "what a mount in the background has to say is lost until there is one",
            "mount with log_file=PATH or in the foreground (-f), or start one (systemd-journald, rsyslog)",
        ),
    }
}

fn descriptors() -> Finding {
    let what = "open files";
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((0, 0));
    let found = format!("{soft}, can be raised to {hard}");
    if hard >= FEW_DESCRIPTORS {
        Finding::good(what, found, "enough for any tree")
    } else {
        Finding::limited(
            what,
            found,
            "few files can be open at once through the mount",
            "raise the hard limit (ulimit -Hn, LimitNOFILE= of a systemd unit)",
        )
    }
}
