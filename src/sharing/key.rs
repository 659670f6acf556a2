//! The identity of a file.

/// A small number for a device below the source; 0 is the source's own. Subvolumes of one btrfs
/// filesystem are devices of their own (they have their own `st_dev` and inode numbers), but
/// share one physical address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceIndex(pub u16);

/// Which inode, for as long as it lives: a recycled inode number is another file, because its
/// generation differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey {
    /// Inode number on its device.
    pub ino: u64,
    /// Generation of the inode, as its file handle holds it.
    pub generation: u32,
    /// The device.
    pub device: DeviceIndex,
}
