//! What a change can be. Adding an operation to the filesystem means choosing one of these.

use super::key::FileKey;

/// A change that can alter sharing, announced before its system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Data are written through the daemon.
    Write(FileKey),
    /// The file is opened for write: with kernel passthrough its writes are not seen.
    OpenForWrite {
        /// The file.
        file: FileKey,
        /// With `O_DIRECT`: its writes change the map while in flight, unseen.
        direct: bool,
    },
    /// A descriptor open for write is closed.
    CloseForWrite {
        /// The file.
        file: FileKey,
        /// As it was opened.
        direct: bool,
    },
    /// The size changes (also `O_TRUNC`).
    Truncate(FileKey),
    /// Space is allocated, punched, zeroed, collapsed, inserted or unshared.
    Allocate(FileKey),
    /// A copy, which may be a clone: both maps can change, the source's ctime does not.
    Copy {
        /// Source.
        from: FileKey,
        /// Destination.
        to: FileKey,
    },
    /// A name goes (unlink, replacement by rename): with the last one the file itself may.
    Unname {
        /// The file.
        file: FileKey,
        /// Whether it is its last name, as far as could be seen before.
        last: bool,
    },
    /// The last descriptor of a file without names is closed.
    LastClose(FileKey),
}
