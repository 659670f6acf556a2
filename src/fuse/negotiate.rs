//! What is agreed with the kernel when the mount begins.

use crate::fs::Passthrough;
use fuser::{InitFlags, KernelConfig};

/// Wanted wherever the kernel has it. Not among them: the writeback cache (does not go with
/// passthrough, and would hold writes back), locks (the kernel's own are right on the mount), and
/// truncation at open (the kernel would ask for it before it looks whether the file is being
/// executed: opening one with `O_RDONLY | O_TRUNC` emptied it, and then failed with `ETXTBSY`).
const WANTED: &[InitFlags] = &[
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_ASYNC_DIO,
    // Set-id bits and file capabilities are cleared by the backing filesystem; without this every
    // write asks for `security.capability` first.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_POSIX_ACL,
    // The umask is applied below, where a default ACL takes its place.
    InitFlags::FUSE_DONT_MASK,
    // Pages are dropped when size or time of a file turn out to have changed.
    InitFlags::FUSE_AUTO_INVAL_DATA,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    InitFlags::FUSE_HAS_IOCTL_DIR,
    // Inodes that the kernel has forgotten cannot be found by its own handles.
    InitFlags::FUSE_NO_EXPORT_SUPPORT,
];

/// Largest read or write in one request, in bytes.
const LARGEST_WRITE: u32 = 1 << 20;
/// Requests that may wait in the background, readahead among them.
const BACKGROUND: u16 = 64;

/// Agrees with the kernel.
pub(super) fn negotiate(fs: &Passthrough, config: &mut KernelConfig) {
    for &flag in WANTED {
        if config.add_capabilities(flag).is_err() {
            log::debug!("the kernel does not have {flag:?}");
        }
    }
    if let Err(nearest) = config.set_max_write(LARGEST_WRITE) {
        log::debug!("writes of {LARGEST_WRITE} bytes are refused, {nearest} would not be");
    }
    if let Err(nearest) = config.set_max_background(BACKGROUND) {
        log::debug!("{BACKGROUND} requests in the background are refused, {nearest} would not be");
    }
    if !fs.options().passthrough {
        return;
    }
    let agreed = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
        && config.set_max_stack_depth(1).is_ok();
    if !agreed {
        log::info!("the kernel has no FUSE passthrough: reads and writes go through the daemon");
        fs.give_up_passthrough();
    }
}
