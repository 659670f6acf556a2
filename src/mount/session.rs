//! A session: from the source directory to requests being served, and to their end.

use super::attach::{self, Mounted};
use super::below;
use super::options::{Blocks, Io, Options, Scan, lasting};
use super::places::Places;
use super::ready::DaemonEnd;
use super::refusal::Refusal;
use super::{Request, signals, systemd};
use crate::fs::backing::{DiskBacking, Resolve};
use crate::fs::device::DeviceTable;
use crate::fs::{self, Inodes, Passthrough, Timeout};
use crate::fuse::Adapter;
use crate::sharing::Limits;
use crate::sys::{lease, limits, reason};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Serves until the mount is gone. Called in the daemon, while it has one thread.
///
/// # Errors
/// Why there was nothing to serve, or why serving ended early.
pub(super) fn serve(places: Places, request: &Request, ready: DaemonEnd) -> Result<(), Refusal> {
    let options = &request.options;
    let signal_set = signals::block().map_err(Refusal::system("blocking signals"))?;
    std::env::set_current_dir("/").map_err(Refusal::system("leaving the working directory"))?;
    let descriptors = limits::raise_descriptors()
        .map_err(Refusal::system("asking for the limit of open files"))?;
    lease::ignore_signal();
    log::debug!("up to {descriptors} open files");

    let threads = threads(options);
    let filesystem = filesystem(&places, request, descriptors)?;
    let adapter = Adapter::new(Arc::clone(&filesystem));
    let notices = adapter.notices().clone();
    let Mounted {
        session,
        attachment,
    } = attach::attach(adapter, &places, options, threads)?;
    if options.io == Io::Passthrough && !filesystem.wants_passthrough() {
        let _ = attachment.unmount(true);
        return Err(Refusal::NoPassthrough {
            reason: "the kernel has no FUSE passthrough (Linux 6.9)",
        });
    }
    session
        .as_fd()
        .try_clone_to_owned()
        .and_then(|device| notices.start(session.notifier(), device))
        .and_then(|()| filesystem.follow(Arc::new(notices.clone())))
        .and_then(|()| below::watch(&places.source_path, notices))
        .map_err(Refusal::system("starting a thread"))?;
    log::info!(
        "mounted {:?} on {:?} with {threads} threads",
        places.source_path,
        places.point
    );
    settle_what_was_before(Arc::clone(filesystem.engine()))
        .map_err(Refusal::system("starting a thread"))?;
    if options.scan == Scan::Background
        && let Ok(root) = filesystem.inodes().key(fs::NodeId::ROOT)
    {
        filesystem.directories().scan_in_background(root);
    }
    signals::watch(signal_set, attachment.clone()).map_err(Refusal::system("starting a thread"))?;

    let failed = Arc::new(AtomicBool::new(false));
    let (on_failure, flag) = (attachment.clone(), Arc::clone(&failed));
    std::thread::Builder::new()
        .name("ready".to_owned())
        .spawn(move || {
            if ready.confirm() {
                systemd::notify("READY=1");
            } else {
                flag.store(true, Ordering::Relaxed);
                if let Err(error) = on_failure.unmount(true) {
                    log::error!("unmounting failed: {}", reason(&error));
                }
            }
        })
        .map_err(Refusal::system("starting a thread"))?;

    let ended = session.run();
    filesystem.directories().stop();
    // Whatever ended the session: a mount without a daemon would be left behind dead.
    if let Err(error) = attachment.unmount(true) {
        log::error!("unmounting failed: {}", reason(&error));
    }
    if failed.load(Ordering::Relaxed) {
        return Err(Refusal::NotReady(
            "the root of the new mount did not answer; nothing is mounted".to_owned(),
        ));
    }
    ended.map_err(Refusal::system("serving requests"))?;
    log::info!("unmounted {:?}", places.point);
    Ok(())
}

/// What was dirty or half removed before the mount is settled while it already serves: the first
/// question waits for it, ordinary work does not.
fn settle_what_was_before(engine: Arc<fs::Engine>) -> io::Result<()> {
    std::thread::Builder::new()
        .name("settle".to_owned())
        .spawn(move || {
            if let Err(error) = engine.start() {
                log::warn!(
                    "what was changed before mounting could not be settled: {}",
                    reason(&error)
                );
            }
        })
        .map(drop)
}

/// Builds the filesystem on its engine, and the engine on the disk.
fn filesystem(
    places: &Places,
    request: &Request,
    descriptors: u64,
) -> Result<Arc<Passthrough>, Refusal> {
    let build = || -> io::Result<Arc<Passthrough>> {
        let source = places.source.try_clone()?;
        let devices = Arc::new(DeviceTable::new(source.as_fd())?);
        if let Err(error) = devices.watch() {
            log::info!(
                "changes behind the mount are not watched: {}",
                reason(error)
            );
        }
        let fs_options = fs_options(request, descriptors);
        let inodes = Inodes::new(source, Arc::clone(&devices), fs_options.descriptors)
            .map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
        let inodes = Arc::new(inodes);
        let backing = DiskBacking::new(devices);
        let resolver: Weak<dyn Resolve> =
            Arc::downgrade(&(Arc::clone(&inodes) as Arc<dyn Resolve>));
        backing.resolve_through(resolver);
        let engine = fs::Engine::new(backing, limits_of(&request.options));
        Ok(Arc::new(Passthrough::new(inodes, fs_options, engine)))
    };
    build().map_err(Refusal::system(format!(
        "looking at the source {:?}",
        places.source_path
    )))
}

fn limits_of(options: &Options) -> Limits {
    Limits {
        cache_size: options.cache_size,
        wait: options.wait,
        max_age: options.max_age,
        max_trust: options.max_trust,
    }
}

fn fs_options(request: &Request, descriptors: u64) -> fs::Options {
    let options = &request.options;
    let default = fs::Options::default();
    fs::Options {
        attr_timeout: options
            .attr_timeout
            .map_or(default.attr_timeout, Timeout::fixed),
        entry_timeout: options
            .entry_timeout
            .map_or(default.entry_timeout, Timeout::fixed),
        negative_timeout: match options.entry_timeout {
            Some(watched) => Timeout {
                watched,
                ..default.negative_timeout
            },
            None => default.negative_timeout,
        },
        // The kernel takes backing files from root alone.
        passthrough: options.io != Io::Cached && attach::may_mount_directly(),
        exclusive_blocks: options.blocks == Blocks::Exclusive,
        list_xattrs: options.list_xattrs,
        mounted_with: lasting(&request.given).join(","),
        descriptors: usize::try_from(descriptors / 4)
            .unwrap_or(usize::MAX)
            .clamp(64, 4096),
    }
}

/// As many threads as processors, within reason: with one, a slow request would hold up all.
fn threads(options: &Options) -> usize {
    options.threads.map_or_else(
        || std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 8)),
        std::num::NonZero::get,
    )
}
