//! What can be chosen about the filesystem.

use std::time::Duration;

/// The choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long the kernel may believe attributes that only changes behind the mount can make
    /// wrong.
    pub attr_timeout: Duration,
    /// How long it may believe that a name leads to its inode.
    pub entry_timeout: Duration,
    /// How long it may believe that a name does not exist. Zero unless changes behind the mount
    /// are watched.
    pub negative_timeout: Duration,
    /// Whether the kernel is to do the I/O where it can.
    pub passthrough: bool,
    /// Whether the virtual attributes are listed.
    pub list_xattrs: bool,
    /// How many `O_PATH` descriptors may be kept.
    pub descriptors: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            attr_timeout: Duration::from_secs(1),
            entry_timeout: Duration::from_secs(1),
            negative_timeout: Duration::ZERO,
            passthrough: true,
            list_xattrs: false,
            descriptors: 256,
        }
    }
}
