//! The table of all mount options: name, value, default, help and effect.
//!
//! Generic options keep the meaning that mount(8) gives them, and what belongs to fstab alone is
//! understood and left to its readers.

use super::option_values::{bytes, one_of, seconds};
use super::options::{Blocks, Io, Options, Scan};
use log::LevelFilter;
use std::fmt;
use std::num::NonZeroUsize;

/// Who an option is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// sharelens itself.
    Own,
    /// Any mount (the kernel or FUSE).
    Generic,
    /// mount(8), fstab and systemd; has no effect here.
    Fstab,
}

/// One mount option.
pub struct OptionSpec {
    /// Its name.
    pub name: &'static str,
    /// What its value stands for; `None` when it takes none.
    pub metavar: Option<&'static str>,
    /// What holds when it is not given, for the help; empty for a switch.
    pub default: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// Who it is for.
    pub audience: Audience,
    pub(super) set: fn(&mut Options, &str) -> Result<(), String>,
}

impl OptionSpec {
    /// Whether it holds for the life of the mount, so that a remount cannot change it.
    #[must_use]
    pub fn lasts(&self) -> bool {
        self.audience == Audience::Own || ["allow_other", "fsname", "subtype"].contains(&self.name)
    }
}

impl fmt::Debug for OptionSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

const fn switch(
    name: &'static str,
    audience: Audience,
    help: &'static str,
    set: fn(&mut Options, &str) -> Result<(), String>,
) -> OptionSpec {
    OptionSpec {
        name,
        metavar: None,
        default: "",
        help,
        audience,
        set,
    }
}

const fn valued(
    name: &'static str,
    metavar: &'static str,
    default: &'static str,
    audience: Audience,
    help: &'static str,
    set: fn(&mut Options, &str) -> Result<(), String>,
) -> OptionSpec {
    OptionSpec {
        name,
        metavar: Some(metavar),
        default,
        help,
        audience,
        set,
    }
}

/// A switch that sets one boolean field.
macro_rules! flag {
    ($name:literal, $audience:ident, $field:ident = $value:literal, $help:literal) => {
        switch($name, Audience::$audience, $help, |options, _| {
            options.$field = $value;
            Ok(())
        })
    };
}

/// A switch without effect here.
macro_rules! ignored {
    ($name:literal, $help:literal) => {
        switch($name, Audience::Fstab, $help, |_, _| Ok(()))
    };
}

/// Every mount option.
pub static TABLE: &[OptionSpec] = &[
    valued(
        "io",
        "auto|passthrough|cached",
        "auto",
        Audience::Own,
        "how data move: by the kernel straight to the backing file (passthrough, needs root), or through the daemon (cached)",
        |options, value| {
            options.io = one_of(
                value,
                &[
                    ("auto", Io::Auto),
                    ("passthrough", Io::Passthrough),
                    ("cached", Io::Cached),
                ],
            )?;
            Ok(())
        },
    ),
    valued(
        "threads",
        "N",
        "by the number of processors",
        Audience::Own,
        "threads that serve requests",
        |options, value| {
            let threads: NonZeroUsize = value
                .parse()
                .map_err(|_| "give a number of threads from 1 to 64".to_owned())?;
            if threads.get() > 64 {
                return Err("more than 64 threads do not help".to_owned());
            }
            options.threads = Some(threads);
            Ok(())
        },
    ),
    valued(
        "attr_timeout",
        "S",
        "as long as exactness allows",
        Audience::Own,
        "seconds that the kernel may keep attributes",
        |options, value| {
            options.attr_timeout = Some(seconds(value)?);
            Ok(())
        },
    ),
    valued(
        "entry_timeout",
        "S",
        "as long as exactness allows",
        Audience::Own,
        "seconds that the kernel may keep names",
        |options, value| {
            options.entry_timeout = Some(seconds(value)?);
            Ok(())
        },
    ),
    valued(
        "cache_size",
        "BYTES",
        "256M",
        Audience::Own,
        "memory for cached answers (suffixes K, M, G and T are powers of 1024)",
        |options, value| {
            options.cache_size = bytes(value)?;
            Ok(())
        },
    ),
    valued(
        "blocks",
        "allocated|exclusive",
        "allocated",
        Audience::Own,
        "what st_blocks, and so du and ls -s, show",
        |options, value| {
            options.blocks = one_of(
                value,
                &[
                    ("allocated", Blocks::Allocated),
                    ("exclusive", Blocks::Exclusive),
                ],
            )?;
            Ok(())
        },
    ),
    flag!(
        "list_xattrs",
        Own,
        list_xattrs = true,
        "list the virtual attributes, so that programs that show all attributes show them"
    ),
    valued(
        "scan",
        "demand|background",
        "demand",
        Audience::Own,
        "when the tree is scanned for directory totals: at the first question, or from mounting on",
        |options, value| {
            options.scan = one_of(
                value,
                &[("demand", Scan::Demand), ("background", Scan::Background)],
            )?;
            Ok(())
        },
    ),
    valued(
        "wait",
        "S",
        "30",
        Audience::Own,
        "seconds after which a question that is not answered fails with EAGAIN",
        |options, value| {
            let wait = seconds(value)?;
            if wait.is_zero() {
                return Err("no question could ever be answered; give at least 0.001".to_owned());
            }
            options.wait = wait;
            Ok(())
        },
    ),
    valued(
        "max_trust",
        "S",
        "off",
        Audience::Own,
        "seconds that a cached answer is believed which changes behind the mount could have altered unseen",
        |options, value| {
            options.max_trust = if value == "off" {
                None
            } else {
                Some(seconds(value).map_err(|reason| format!("{reason}, or off"))?)
            };
            Ok(())
        },
    ),
    valued(
        "max_age",
        "S",
        "0",
        Audience::Own,
        "seconds that an answer about a file open for write may be old, so that a poller causes no writeback (0: always exact)",
        |options, value| {
            options.max_age = seconds(value)?;
            Ok(())
        },
    ),
    flag!(
        "foreground",
        Own,
        foreground = true,
        "stay in the foreground, as -f does"
    ),
    valued(
        "log",
        "error|warn|info|debug|trace|off",
        "info",
        Audience::Own,
        "how much to log; comes before RUST_LOG",
        |options, value| {
            options.log = Some(one_of(
                value,
                &[
                    ("error", LevelFilter::Error),
                    ("warn", LevelFilter::Warn),
                    ("info", LevelFilter::Info),
                    ("debug", LevelFilter::Debug),
                    ("trace", LevelFilter::Trace),
                    ("off", LevelFilter::Off),
                ],
            )?);
            Ok(())
        },
    ),
    valued(
        "log_file",
        "PATH",
        "the system log, or standard error in the foreground",
        Audience::Own,
        "a file to log to, which is appended to",
        |options, value| {
            if value.is_empty() {
                return Err("give the path of a file".to_owned());
            }
            options.log_file = Some(value.into());
            Ok(())
        },
    ),
    flag!(
        "allow_other",
        Generic,
        allow_other = true,
        "let other users in; file permissions are always checked"
    ),
    valued(
        "fsname",
        "NAME",
        "the source",
        Audience::Generic,
        "the name shown as the device of the mount",
        |options, value| {
            if value.is_empty() {
                return Err("the name is empty".to_owned());
            }
            options.fsname = Some(value.to_owned());
            Ok(())
        },
    ),
    valued(
        "subtype",
        "NAME",
        "sharelens",
        Audience::Generic,
        "the filesystem type shows as fuse.NAME",
        |options, value| {
            if value.is_empty() || value.contains(|c: char| c.is_whitespace() || c == '.') {
                return Err("give a word without blanks and dots".to_owned());
            }
            value.clone_into(&mut options.subtype);
            Ok(())
        },
    ),
    flag!("ro", Generic, read_only = true, "read only"),
    flag!("rw", Generic, read_only = false, "read and write (default)"),
    flag!(
        "nosuid",
        Generic,
        no_suid = true,
        "set-user-id and set-group-id bits have no effect"
    ),
    flag!("suid", Generic, no_suid = false, "they have (default)"),
    flag!(
        "nodev",
        Generic,
        no_dev = true,
        "device files cannot be used"
    ),
    flag!("dev", Generic, no_dev = false, "they can (default)"),
    flag!("noexec", Generic, no_exec = true, "programs cannot be run"),
    flag!("exec", Generic, no_exec = false, "they can (default)"),
    switch(
        "noatime",
        Audience::Generic,
        "flag of the mount: no access times. Those that are seen are kept by the filesystem below, as its own mount says",
        |options, _| {
            (options.no_atime, options.strict_atime) = (true, false);
            Ok(())
        },
    ),
    flag!(
        "atime",
        Generic,
        no_atime = false,
        "the opposite of noatime (default)"
    ),
    switch(
        "relatime",
        Audience::Generic,
        "flag of the mount: access times where they tell something (default); see noatime",
        |options, _| {
            (options.no_atime, options.strict_atime) = (false, false);
            Ok(())
        },
    ),
    switch(
        "strictatime",
        Audience::Generic,
        "flag of the mount: every access time; see noatime",
        |options, _| {
            (options.no_atime, options.strict_atime) = (false, true);
            Ok(())
        },
    ),
    flag!(
        "nostrictatime",
        Generic,
        strict_atime = false,
        "the opposite of strictatime (default)"
    ),
    flag!(
        "nodiratime",
        Generic,
        no_dir_atime = true,
        "flag of the mount: no access times of directories; see noatime"
    ),
    flag!(
        "diratime",
        Generic,
        no_dir_atime = false,
        "the opposite of nodiratime (default)"
    ),
    flag!(
        "lazytime",
        Generic,
        lazy_time = true,
        "flag of the mount: times are written later; those that are seen are kept by the filesystem below"
    ),
    flag!(
        "nolazytime",
        Generic,
        lazy_time = false,
        "the opposite of lazytime (default)"
    ),
    flag!(
        "nosymfollow",
        Generic,
        no_symlinks = true,
        "symbolic links are not followed (Linux 5.10), only read"
    ),
    flag!(
        "symfollow",
        Generic,
        no_symlinks = false,
        "they are (default)"
    ),
    flag!(
        "silent",
        Generic,
        silent = true,
        "the kernel says nothing of mounting in its log"
    ),
    flag!("loud", Generic, silent = false, "it may (default)"),
    switch(
        "mand",
        Audience::Generic,
        "refused: there are no mandatory locks on FUSE, nor anywhere since Linux 5.15",
        |_, _| {
            Err("there are no mandatory locks on FUSE (nor anywhere since Linux 5.15)".to_owned())
        },
    ),
    flag!(
        "sync",
        Generic,
        synchronous = true,
        "every write is on disk when it returns"
    ),
    flag!("async", Generic, synchronous = false, "it is not (default)"),
    flag!(
        "dirsync",
        Generic,
        dir_sync = true,
        "every change of a directory is on disk when it returns"
    ),
    flag!(
        "remount",
        Generic,
        remount = true,
        "change the generic flags (ro, nosuid, ...) of an existing mount; its other options stay as they were"
    ),
    switch(
        "default_permissions",
        Audience::Generic,
        "the kernel checks permissions; always on",
        |_, _| Ok(()),
    ),
    ignored!("defaults", "the defaults of all options"),
    // What the mount table shows of a FUSE mount comes back with a remount.
    ignored!("user_id", "set by sharelens"),
    ignored!("group_id", "set by sharelens"),
    ignored!("rootmode", "set by sharelens"),
    ignored!("max_read", "set by the kernel"),
    ignored!("blksize", "set by the kernel"),
    ignored!("nomand", "no mandatory locks, as always"),
    ignored!(
        "norelatime",
        "the kernel's default is relatime all the same"
    ),
    // FUSE keeps no versions; the filesystem below keeps its own, whatever is said here.
    ignored!(
        "iversion",
        "versions of inodes are the backing filesystem's"
    ),
    ignored!(
        "noiversion",
        "versions of inodes are the backing filesystem's"
    ),
    ignored!("auto", "mounted by mount -a"),
    ignored!("noauto", "not mounted by mount -a"),
    ignored!("nofail", "no error at boot when the source is missing"),
    ignored!("_netdev", "needs the network"),
    switch(
        "user",
        Audience::Fstab,
        "an ordinary user may mount it; implies nosuid, nodev and noexec",
        |options, _| {
            options.no_suid = true;
            options.no_dev = true;
            options.no_exec = true;
            Ok(())
        },
    ),
    ignored!("nouser", "an ordinary user may not"),
    switch(
        "users",
        Audience::Fstab,
        "every user may mount and unmount it; implies nosuid, nodev and noexec",
        |options, _| {
            options.no_suid = true;
            options.no_dev = true;
            options.no_exec = true;
            Ok(())
        },
    ),
    switch(
        "owner",
        Audience::Fstab,
        "the owner of the source may mount it; implies nosuid and nodev",
        |options, _| {
            options.no_suid = true;
            options.no_dev = true;
            Ok(())
        },
    ),
    switch(
        "group",
        Audience::Fstab,
        "the group of the source may mount it; implies nosuid and nodev",
        |options, _| {
            options.no_suid = true;
            options.no_dev = true;
            Ok(())
        },
    ),
];

/// The options for the help and the man page, one a paragraph.
#[must_use]
pub fn help() -> String {
    let mut text = String::from("Mount options (-o), separated by commas:\n");
    for spec in TABLE {
        if spec.audience == Audience::Fstab {
            continue;
        }
        text.push_str("\n  ");
        text.push_str(spec.name);
        if let Some(metavar) = spec.metavar {
            text.push('=');
            text.push_str(metavar);
        }
        text.push_str("\n          ");
        text.push_str(spec.help);
        if !spec.default.is_empty() {
            text.push_str(" [default: ");
            text.push_str(spec.default);
            text.push(']');
        }
    }
    text.push_str("\n\nOptions of fstab and systemd (defaults, noauto, nofail, user, _netdev, x-*, ...) are understood.");
    text
}
