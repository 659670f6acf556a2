//! Resident memory with a million files known.

use super::{Workload, stats};
use crate::harness::{
    Context, FsKind, Image, Result, Run, Settings, Side, Table, Tables, View, bytes, duration,
    interrupted,
};
use crate::raw::generate::{Tree, clone_tree};
use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

pub(super) const WORKLOAD: Workload = Workload {
    name: "memory",
    about: "Resident memory after a scan of a million small files, after a walk over them, and \
            after the kernel has forgotten them.",
    run,
};

fn run(settings: &Settings) -> Result<Tables> {
    let tree = Tree {
        files: settings.size(500_000, 2000),
        largest: 1,
    };
    let kind = FsKind::Xfs { groups: 4 };
    let image = Image::create(settings, kind, 24 << 30)?;
    tree.write(&image.root().join("tree"))?;
    clone_tree(&image.root().join("tree"), &image.root().join("copy"))?;
    image.settle()?;
    let files = 2 * tree.files;
    let title = format!("Memory, {files} files of one block, {}", kind.name());
    let mut table = Table::with_head(title, &["after", "time", "resident", "more, a file"]);

    let side = Side::sharelens("sharelens", "");
    let mut view = side.open(settings, image.root())?;
    let start = resident(&mut view)?;
    let mut record = |view: &mut View, what: &str, time: Option<Duration>| {
        let now = resident(view)?;
        table.line(vec![
            what.to_owned(),
            time.map_or("-".to_owned(), |time| duration(time.as_secs_f64())),
            bytes(now as f64),
            bytes(now.saturating_sub(start) as f64 / files as f64),
        ]);
        Result::Ok(())
    };
    record(&mut view, "mounting", None)?;
    let begin = Instant::now();
    stats::ask(view.root(), "summary")?;
    record(&mut view, "the first scan", Some(begin.elapsed()))?;
    view.close()?;

    let mut view = side.open(settings, image.root())?;
    let time = walk(view.root())?;
    record(
        &mut view,
        "a walk with lstat of each file (fresh mount)",
        Some(time),
    )?;
    forget(view.root())?;
    record(&mut view, "the kernel has forgotten them", None)?;
    for number in 0..3 {
        walk(view.root())?;
        forget(view.root())?;
        record(
            &mut view,
            &format!("walked and forgotten again, {}", number + 1),
            None,
        )?;
    }
    for number in 0..3 {
        let time = opens_and_renames(view.root(), settings.size(300_000, 500))?;
        let what = format!("a soak of opens and renames, {}", number + 1);
        record(&mut view, &what, Some(time))?;
    }
    view.close()?;
    Ok(vec![table])
}

fn resident(view: &mut View) -> Result<u64> {
    view.daemon().ok_or("no daemon")?.resident()
}

fn walk(root: &Path) -> Result<Duration> {
    Command::new("find")
        .arg(root)
        .args(["-size", "+1G"])
        .timed()
}

/// Makes the kernel forget names and inodes, and waits until the daemon has heard of it.
fn forget(root: &Path) -> Result<()> {
    let path = Path::new("/proc/sys/vm/drop_caches");
    fs::write(path, "2").context(path)?;
    fs::metadata(root).context(root)?;
    std::thread::sleep(Duration::from_secs(2));
    Ok(())
}

/// Opens of one file to read and to write, and files created, renamed over another and removed.
fn opens_and_renames(root: &Path, times: usize) -> Result<Duration> {
    let (old, new) = (root.join("old"), root.join("new"));
    let begin = Instant::now();
    for number in 0..times {
        if number.is_multiple_of(1000) {
            interrupted()?;
        }
        fs::write(&old, b"content").context(&old)?;
        drop(File::open(&old).context(&old)?);
        fs::rename(&old, &new).context(&new)?;
        drop(OpenOptions::new().append(true).open(&new).context(&new)?);
        if number.is_multiple_of(2) {
            fs::remove_file(&new).context(&new)?;
        }
    }
    Ok(begin.elapsed())
}
