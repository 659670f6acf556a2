//! The mount options as values, and how a list of them is parsed.
//!
//! Names, defaults and help stand in [`super::option_table`], which the command line,
//! `mount.sharelens`, the man pages and the documentation all read; nothing else knows an option
//! by name.

use super::option_table::{Audience, TABLE};
use crate::extent::Bytes;
use log::LevelFilter;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// How data are read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// Passthrough where it is possible, otherwise cached.
    #[default]
    Auto,
    /// By the kernel, straight to the backing file; the mount fails where that is not possible.
    Passthrough,
    /// Through the daemon and the kernel's page cache.
    Cached,
}

/// What `st_blocks`, and so `du`, shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Blocks {
    /// What the backing filesystem says.
    #[default]
    Allocated,
    /// What the file alone occupies, at least one block for a file with data.
    Exclusive,
}

/// When a tree is scanned for its totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scan {
    /// At the first question about it.
    #[default]
    Demand,
    /// From mounting on, in the background.
    Background,
}

/// The options of one mount.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// `ro`.
    pub read_only: bool,
    /// `nosuid`.
    pub no_suid: bool,
    /// `nodev`.
    pub no_dev: bool,
    /// `noexec`.
    pub no_exec: bool,
    /// `noatime`.
    pub no_atime: bool,
    /// `strictatime`.
    pub strict_atime: bool,
    /// `nodiratime`.
    pub no_dir_atime: bool,
    /// `lazytime`.
    pub lazy_time: bool,
    /// `nosymfollow`.
    pub no_symlinks: bool,
    /// `silent`.
    pub silent: bool,
    /// `sync`.
    pub synchronous: bool,
    /// `dirsync`.
    pub dir_sync: bool,
    /// `allow_other`.
    pub allow_other: bool,
    /// `remount`: only generic flags of an existing mount change.
    pub remount: bool,
    /// `fsname=`; the source where not given.
    pub fsname: Option<String>,
    /// `subtype=`: the filesystem type shows as `fuse.SUBTYPE`.
    pub subtype: String,
    /// `io=`.
    pub io: Io,
    /// `threads=`; by the number of processors where not given.
    pub threads: Option<NonZeroUsize>,
    /// `attr_timeout=`; chosen by sharelens where not given.
    pub attr_timeout: Option<Duration>,
    /// `entry_timeout=`; chosen by sharelens where not given.
    pub entry_timeout: Option<Duration>,
    /// `cache_size=`.
    pub cache_size: Bytes,
    /// `blocks=`.
    pub blocks: Blocks,
    /// `list_xattrs`.
    pub list_xattrs: bool,
    /// `scan=`.
    pub scan: Scan,
    /// `wait=`.
    pub wait: Duration,
    /// `max_trust=`; `None` is off.
    pub max_trust: Option<Duration>,
    /// `max_age=`.
    pub max_age: Duration,
    /// `foreground`.
    pub foreground: bool,
    /// `log=`; `RUST_LOG`, and then `info`, where not given.
    pub log: Option<LevelFilter>,
    /// `log_file=`.
    pub log_file: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            no_suid: false,
            no_dev: false,
            no_exec: false,
            no_atime: false,
            strict_atime: false,
            no_dir_atime: false,
            lazy_time: false,
            no_symlinks: false,
            silent: false,
            synchronous: false,
            dir_sync: false,
            allow_other: false,
            remount: false,
            fsname: None,
            subtype: "sharelens".to_owned(),
            io: Io::Auto,
            threads: None,
            attr_timeout: None,
            entry_timeout: None,
            cache_size: Bytes(256 << 20),
            blocks: Blocks::Allocated,
            list_xattrs: false,
            scan: Scan::Demand,
            wait: Duration::from_secs(30),
            max_trust: None,
            max_age: Duration::ZERO,
            foreground: false,
            log: None,
            log_file: None,
        }
    }
}

/// Why an option was not accepted, as a sentence.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OptionError {
    /// No option has this name.
    #[error("there is no mount option {name:?}{}", did_you_mean(*.closest))]
    Unknown {
        /// As it was given.
        name: String,
        /// The option that was probably meant.
        closest: Option<&'static str>,
    },
    /// It needs a value.
    #[error("the mount option {name} needs a value: {name}={metavar} ({help})")]
    Missing {
        /// The option.
        name: &'static str,
        /// What the value stands for.
        metavar: &'static str,
        /// What the option does.
        help: &'static str,
    },
    /// It takes none.
    #[error("the mount option {name} takes no value, but {value:?} was given")]
    Superfluous {
        /// The option.
        name: &'static str,
        /// The value.
        value: String,
    },
    /// No mount of this kind can have it.
    #[error("the mount option {name} is not possible here: {reason}")]
    Impossible {
        /// The option.
        name: &'static str,
        /// Why.
        reason: String,
    },
    /// The value makes no sense.
    #[error("{name}={value}: {reason}")]
    Invalid {
        /// The option.
        name: &'static str,
        /// The value.
        value: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
}

fn did_you_mean(closest: Option<&'static str>) -> String {
    closest.map_or_else(
        || "; see `sharelens mount --help`".to_owned(),
        |name| format!("; did you mean {name}?"),
    )
}

/// Prefixes of options that belong to fstab's readers (systemd, autofs, comments).
const FSTAB_PREFIXES: &[&str] = &["x-", "X-", "comment=", "helper=", "uhelper=", "pri="];

/// The options of these lists that hold for the life of the mount, each once in the order given,
/// as [`Options::parse`] takes them.
#[must_use]
pub fn lasting(lists: &[String]) -> Vec<String> {
    lists
        .iter()
        .flat_map(|list| split(list))
        .filter(|item| {
            let name = item.split('=').next().unwrap_or_default();
            TABLE.iter().any(|spec| spec.name == name && spec.lasts())
        })
        .map(|item| item.replace('\\', "\\\\").replace(',', "\\,"))
        .collect()
}

/// What to do with an option that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Refuse it.
    Refuse,
    /// Pass over it (mount(8)'s `-s`).
    Tolerate,
}

impl Options {
    /// Takes in a comma-separated list as it follows `-o`; later options override earlier ones,
    /// and `\,` and `\\` stand for a comma and a backslash in a value.
    ///
    /// # Errors
    /// A sentence about the first option that is not understood.
    pub fn parse(&mut self, list: &str, unknown: Unknown) -> Result<(), OptionError> {
        split(list)
            .iter()
            .filter(|item| !item.is_empty())
            .try_for_each(|item| self.set(item, unknown))
    }

    fn set(&mut self, item: &str, unknown: Unknown) -> Result<(), OptionError> {
        if FSTAB_PREFIXES.iter().any(|prefix| item.starts_with(prefix)) {
            return Ok(());
        }
        let (name, value) = match item.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (item, None),
        };
        let Some(spec) = TABLE.iter().find(|spec| spec.name == name) else {
            return match unknown {
                Unknown::Tolerate => Ok(()),
                Unknown::Refuse => Err(OptionError::Unknown {
                    name: name.to_owned(),
                    closest: closest(name),
                }),
            };
        };
        match (spec.metavar, value) {
            (Some(metavar), None) => Err(OptionError::Missing {
                name: spec.name,
                metavar,
                help: spec.help,
            }),
            // fstab writes some of its own with values (user=NAME).
            (None, Some(value)) if spec.audience != Audience::Fstab => {
                Err(OptionError::Superfluous {
                    name: spec.name,
                    value: value.to_owned(),
                })
            }
            (_, value) => {
                let value = value.unwrap_or_default();
                (spec.set)(self, value).map_err(|reason| match spec.metavar {
                    Some(_) => OptionError::Invalid {
                        name: spec.name,
                        value: value.to_owned(),
                        reason,
                    },
                    None => OptionError::Impossible {
                        name: spec.name,
                        reason,
                    },
                })
            }
        }
    }
}

fn split(list: &str) -> Vec<String> {
    let mut items = vec![String::new()];
    let mut characters = list.chars();
    while let Some(character) = characters.next() {
        let literal = match character {
            ',' => {
                items.push(String::new());
                continue;
            }
            '\\' => characters.next().unwrap_or('\\'),
            other => other,
        };
        if let Some(item) = items.last_mut() {
            item.push(literal);
        }
    }
    items
}

/// The known name nearest to a wrong one, when it is near enough to be meant.
fn closest(name: &str) -> Option<&'static str> {
    TABLE
        .iter()
        .map(|spec| (strsim::damerau_levenshtein(name, spec.name), spec.name))
        .filter(|(distance, known)| *distance <= 2 && *distance * 2 <= known.len())
        .min()
        .map(|(_, known)| known)
}
