//! btrfs where extents are many, or shared very often (W4): a big compressed file behind a
//! snapshot, and a tree with many clones of each file, then a snapshot of all.

use super::{Workload, stats};
use crate::harness::{
    Context, FsKind, Image, Result, Run, Settings, Side, Table, Tables, bytes, duration,
    interrupted, median,
};
use crate::raw::generate::{c_path, clone_tree, write_solid};
use crate::raw::kernel::{Mapper, Writeback};
use crate::raw::scan::{ask, list, scan};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

pub(super) const WORKLOAD: Workload = Workload {
    name: "deep_sharing",
    about: "btrfs: a file of very many compressed extents shared through a snapshot, and a tree \
            whose extents are shared by many clones and a snapshot of all of them.",
    run,
};

/// Uncompressed length of a compressed extent.
const EXTENT: u64 = 128 << 10;
const CLONES: usize = 50;

fn run(settings: &Settings) -> Result<Tables> {
    Ok(vec![compressed(settings)?, many_clones(settings)?])
}

fn subvolume(path: &Path) -> Result<()> {
    let mut command = Command::new("btrfs");
    command.args(["subvolume", "create"]).arg(path).timed()?;
    Ok(())
}

fn snapshot(from: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("btrfs");
    command
        .args(["subvolume", "snapshot"])
        .arg(from)
        .arg(to)
        .timed()?;
    Ok(())
}

/// The mean time of repeated questions, warm.
fn repeated(settings: &Settings, mut question: impl FnMut() -> Result<()>) -> Result<f64> {
    let times = settings.size(1000, 10);
    question()?;
    let begin = Instant::now();
    for _ in 0..times {
        question()?;
    }
    Ok(begin.elapsed().as_secs_f64() / f64::from(times))
}

fn compressed(settings: &Settings) -> Result<Table> {
    let extents = settings.size(327_680, 200);
    let image = Image::create(settings, FsKind::Btrfs, 32 << 30)?;
    let live = image.root().join("live");
    subvolume(&live)?;
    let mut property = Command::new("btrfs");
    property.args(["property", "set"]);
    property.arg(&live).args(["compression", "zstd"]).timed()?;
    write_compressible(&live.join("file"), extents)?;
    image.settle()?;
    snapshot(&live, &image.root().join("snapshot"))?;
    image.settle()?;

    let size = bytes((extents * EXTENT) as f64);
    let title = format!("One file of {size} in compressed extents of 128 KiB, btrfs");
    let mut table = Table::with_head(title, &["question", "time"]);
    let path = c_path(&live.join("file"))?;
    let mut mapper = Mapper::new();
    let mut raw = Vec::new();
    for _ in 0..settings.rounds_or(5) {
        let begin = Instant::now();
        let sums = ask(&mut mapper, &path, Writeback::Leave)?;
        raw.push(begin.elapsed().as_secs_f64());
        if sums.shared_bytes != extents * EXTENT {
            return Err(format!("not everything is shared: {sums:?}").into());
        }
    }
    let raw = median(&raw).unwrap_or_default();
    table.line(vec!["one FIEMAP".to_owned(), duration(raw)]);
    let view = Side::sharelens("sharelens", "").open(settings, image.root())?;
    let file = view.root().join("live/file");
    let begin = Instant::now();
    let shared = stats::ask_number(&file, "shared_bytes").context("sharelens")?;
    let first = begin.elapsed().as_secs_f64();
    if shared != extents * EXTENT {
        return Err(format!("sharelens: {shared} bytes shared").into());
    }
    table.line(vec!["sharelens, first".to_owned(), duration(first)]);
    let warm = repeated(settings, || stats::ask(&file, "shared_bytes").map(drop))?;
    table.line(vec!["sharelens, warm".to_owned(), duration(warm)]);
    view.close()?;
    table.remark(format!(
        "Warm against one FIEMAP: {:.0} times faster.",
        raw / warm
    ));
    Ok(table)
}

/// Content that compresses to a block an extent and is never the same in two extents.
fn write_compressible(path: &Path, extents: u64) -> Result<()> {
    let file = File::create(path).context(path)?;
    let mut content = vec![b'.'; EXTENT as usize];
    for extent in 0..extents {
        if extent.is_multiple_of(1024) {
            interrupted()?;
        }
        if let Some(start) = content.first_chunk_mut() {
            *start = extent.to_le_bytes();
        }
        file.write_all_at(&content, extent * EXTENT).context(path)?;
    }
    file.sync_all().context(path)
}

fn many_clones(settings: &Settings) -> Result<Table> {
    let sources = settings.size(2000, 40);
    let image = Image::create(settings, FsKind::Btrfs, 16 << 30)?;
    let live = image.root().join("live");
    subvolume(&live)?;
    let first = live.join("clone0");
    fs::create_dir(&first).context(&first)?;
    for number in 0..sources {
        write_solid(&first.join(format!("f{number}")), 64 << 10)?;
    }
    image.settle()?;
    for number in 1..=CLONES {
        interrupted()?;
        clone_tree(&first, &live.join(format!("clone{number}")))?;
    }
    image.settle()?;
    snapshot(&live, &image.root().join("snapshot"))?;
    image.settle()?;

    let files = list(image.root())?;
    let title = format!(
        "{sources} files of 64 KiB with {CLONES} clones each and a snapshot: {} files, btrfs",
        files.len()
    );
    let mut table = Table::with_head(title, &["question about the whole", "time"]);
    let mut raw = Vec::new();
    for _ in 0..settings.rounds_or(3) {
        raw.push(scan(&files, 1, Writeback::Leave)?.time.as_secs_f64());
    }
    let raw = median(&raw).unwrap_or_default();
    table.line(vec![
        "FIEMAP of each file, listed before, 1 thread".to_owned(),
        duration(raw),
    ]);
    let view = Side::sharelens("sharelens", "").open(settings, image.root())?;
    let begin = Instant::now();
    stats::ask(view.root(), "summary").context("sharelens")?;
    let first = begin.elapsed().as_secs_f64();
    let found = stats::ask_number(view.root(), "files").context("sharelens")?;
    if found != files.len() as u64 {
        return Err(format!("sharelens: {found} files of {}", files.len()).into());
    }
    table.line(vec!["sharelens, first".to_owned(), duration(first)]);
    let warm = repeated(settings, || stats::ask(view.root(), "summary").map(drop))?;
    table.line(vec!["sharelens, warm".to_owned(), duration(warm)]);
    let begin = Instant::now();
    stats::ask(view.root(), "set_shared_bytes")?;
    let distinct = begin.elapsed().as_secs_f64();
    table.line(vec![
        "sharelens, distinct bytes, first".to_owned(),
        duration(distinct),
    ]);
    view.close()?;
    table.remark(format!(
        "Warm against FIEMAP of each: {:.0} times faster.",
        raw / warm
    ));
    Ok(table)
}
