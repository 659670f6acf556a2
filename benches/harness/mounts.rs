//! What is mounted where, and unmounting it again.

use super::command::Run;
use super::error::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The source field of the topmost mount at `mountpoint` (a device or a FUSE name).
pub(crate) fn source_of(mountpoint: &Path) -> Result<Option<String>> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let wanted = mountpoint.display().to_string();
    Ok(table.lines().rev().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let here = front.split(' ').nth(4)?.replace("\\040", " ");
        let source = back.split(' ').nth(1)?;
        (here == wanted).then(|| source.to_owned())
    }))
}

/// Unmounts `mountpoint`, waiting up to ten seconds while it is busy.
pub(crate) fn unmount(mountpoint: &Path) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        match Command::new("umount").arg(mountpoint).output() {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) if Instant::now() > end => {
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(said.trim().to_owned().into());
            }
            Ok(_) => std::thread::sleep(Duration::from_millis(50)),
            Err(error) => return Err(error).context("umount"),
        }
    }
}

/// Takes `mountpoint` out of the tree whatever state it is in.
pub(crate) fn unmount_by_force(mountpoint: &Path) {
    let mut command = Command::new("umount");
    if let Err(error) = command.arg("--lazy").arg(mountpoint).text() {
        eprintln!("{error}");
    }
}
