//! A build in a tree whose numbers do not fit into the cache: how often a question still needs
//! no look at the disk.

use super::{Workload, stats};
use crate::harness::{
    Context, FsKind, Image, Result, Run, Settings, Side, SourceTree, Table, Tables, bytes, duration,
};
use crate::raw::generate::clone_tree;
use crate::raw::scan::list;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(super) const WORKLOAD: Workload = Workload {
    name: "cache",
    about: "A build in a tree with cache_size at a tenth of what the tree needs, while its files \
            are asked about.",
    run,
};

/// Pause between two questions.
const PAUSE: Duration = Duration::from_micros(200);

fn run(settings: &Settings) -> Result<Tables> {
    let source = SourceTree::pack(settings)?;
    let kind = FsKind::Xfs { groups: 4 };
    let image = Image::create(settings, kind, 8 << 30)?;
    let directory = image.root().join("work");
    fs::create_dir(&directory)?;
    fs::create_dir(directory.join("tree"))?;
    Command::new("tar")
        .arg("-xf")
        .arg(&source.archive)
        .arg("-C")
        .arg(directory.join("tree"))
        .timed()?;
    clone_tree(&directory.join("tree"), &directory.join("copy"))?;
    image.settle()?;
    let title = format!(
        "Build in a tree of {} files, {}",
        2 * source.files,
        kind.name()
    );
    let head = [
        "cache_size",
        "build",
        "questions",
        "FIEMAP calls",
        "needing no FIEMAP",
        "cache in use",
    ];
    let mut table = Table::with_head(title, &head);
    let needed = measure(settings, &directory, None, &mut table).context("whole")?;
    image.settle()?;
    measure(settings, &directory, Some(needed / 10), &mut table).context("a tenth")?;
    table.remark(
        "The build is `cargo build` of a generated crate inside the tree; meanwhile one thread asks \
         about every file of the tree and about the files being built, each file of a directory \
         twice in a row, as a listing and its refresh do. Mapping every file would need as many \
         FIEMAP calls as questions.",
    );
    Ok(vec![table])
}

/// One build; returns the memory that the engine used for its numbers.
fn measure(
    settings: &Settings,
    directory: &Path,
    cache_size: Option<u64>,
    table: &mut Table,
) -> Result<u64> {
    let options = cache_size.map_or(String::new(), |bytes| format!("cache_size={bytes}"));
    let view = Side::sharelens("sharelens", &options).open(settings, directory)?;
    let root = view.root();
    let files = list(root)?;
    let as_path =
        |file: &std::ffi::CString| Path::new(OsStr::from_bytes(file.to_bytes())).to_owned();
    for file in &files {
        stats::ask(&as_path(file), "shared_bytes")?;
    }
    let used = stats::counter(root, "memory_bytes")?;
    let package = root.join("package");
    super::ordinary::write_package(&package)?;
    let before = stats::counter(root, "fiemap_calls")?;
    let done = AtomicBool::new(false);
    let (time, questions) = std::thread::scope(|scope| {
        let asker = scope.spawn(|| {
            let mut questions = 0_u64;
            while !done.load(Ordering::Acquire) {
                for part in files.chunks(50) {
                    for file in part.iter().chain(part) {
                        stats::ask(&as_path(file), "shared_bytes")?;
                        questions += 1;
                        std::thread::sleep(PAUSE);
                    }
                    for file in list(&package.join("src"))? {
                        stats::ask(&as_path(&file), "shared_bytes")?;
                        questions += 1;
                    }
                    if done.load(Ordering::Acquire) {
                        break;
                    }
                }
            }
            Result::Ok(questions)
        });
        let begin = Instant::now();
        let built = super::ordinary::build(&package);
        let time = begin.elapsed();
        done.store(true, Ordering::Release);
        let questions = asker.join().map_err(|_| "the asking thread panicked")??;
        built?;
        Result::Ok((time, questions))
    })?;
    let calls = stats::counter(root, "fiemap_calls")?.saturating_sub(before);
    let rate = 100.0 * (1.0 - calls as f64 / questions.max(1) as f64);
    table.line(vec![
        cache_size.map_or("default".to_owned(), |size| bytes(size as f64)),
        duration(time.as_secs_f64()),
        questions.to_string(),
        calls.to_string(),
        format!("{rate:.1} %"),
        bytes(stats::counter(root, "memory_bytes")? as f64),
    ]);
    fs::remove_dir_all(&package)?;
    view.close()?;
    Ok(used)
}
