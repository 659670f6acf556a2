//! What the filesystem is told to do.

use std::time::Duration;

/// How long the kernel may believe something that only changes behind the mount can make wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout {
    /// Where such changes are watched and the kernel is told of them.
    pub watched: Duration,
    /// Elsewhere.
    pub unwatched: Duration,
}

impl Timeout {
    /// The same everywhere, as a user asked for it.
    #[must_use]
    pub const fn fixed(time: Duration) -> Self {
        Self {
            watched: time,
            unwatched: time,
        }
    }
}

/// Times and choices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Of attributes.
    pub attr_timeout: Timeout,
    /// Of a name leading to its inode.
    pub entry_timeout: Timeout,
    /// Of a name not being there.
    pub negative_timeout: Timeout,
    /// Whether the kernel is to do the I/O where it can.
    pub passthrough: bool,
    /// Whether `st_blocks` shows what a file alone occupies.
    pub exclusive_blocks: bool,
    /// Whether the virtual attributes are listed.
    pub list_xattrs: bool,
    /// The mount options that hold for the life of the mount, for `stats`.
    pub mounted_with: String,
    /// How many `O_PATH` descriptors may be kept.
    pub descriptors: usize,
}

impl Default for Options {
    fn default() -> Self {
        const HOUR: Duration = Duration::from_secs(3600);
        let long = Timeout {
            watched: HOUR,
            unwatched: Duration::from_secs(1),
        };
        Self {
            attr_timeout: long,
            entry_timeout: long,
            negative_timeout: Timeout {
                watched: HOUR,
                unwatched: Duration::ZERO,
            },
            passthrough: true,
            exclusive_blocks: false,
            list_xattrs: false,
            mounted_with: String::new(),
            descriptors: 256,
        }
    }
}
