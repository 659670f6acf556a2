//! Extracting a member of an archive by cloning its blocks, then truncating to the real size
//! (W2).

use super::Workload;
use crate::harness::{
    Context, FsKind, Image, Result, Settings, Side, Table, Tables, duration, median,
};
use crate::raw::generate::{BLOCK, write_solid};
use crate::raw::kernel::clone_range;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

pub(super) const WORKLOAD: Workload = Workload {
    name: "clone_truncate",
    about: "Making a file by cloning whole blocks of another and truncating it, against writing it.",
    run,
};

const SIZES: [u64; 5] = [1000, 5000, 20_000, 65_536, 90_000];
const SOURCE_SIZE: u64 = 1 << 20;

/// How a file is made.
#[derive(Clone, Copy)]
enum Mode {
    /// All bytes are written.
    Write,
    /// Whole blocks are written, then the file is truncated.
    WriteTrunc,
    /// Whole blocks are cloned, the partial last one is written.
    CloneTail,
    /// Whole blocks are cloned, the last one included, then the file is truncated.
    CloneTrunc,
}

const MODES: [(Mode, &str); 4] = [
    (Mode::Write, "write"),
    (Mode::WriteTrunc, "write-trunc"),
    (Mode::CloneTail, "clone-tail"),
    (Mode::CloneTrunc, "clone-trunc"),
];

/// How blocks are cloned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// `FICLONERANGE`, which no FUSE filesystem is asked for.
    CloneRange,
    /// `copy_file_range(2)`, which clones on reflinking filesystems.
    CopyFileRange,
}

fn run(settings: &Settings) -> Result<Tables> {
    let files = settings.size(4000, 20);
    let rounds = settings.rounds_or(3);
    let sides = [
        (Side::native(), By::CloneRange, "native, FICLONERANGE"),
        (Side::native(), By::CopyFileRange, "native, copy_file_range"),
        (
            Side::sharelens("sharelens", ""),
            By::CopyFileRange,
            "sharelens, copy_file_range",
        ),
    ];
    let mut tables = Tables::new();
    for kind in settings.filesystems() {
        let image = Image::create(settings, kind, 8 << 30)?;
        let directory = image.root().join("work");
        fs::create_dir(&directory)?;
        write_solid(&directory.join("source"), SOURCE_SIZE)?.sync_all()?;
        let mut measured: Vec<(String, Vec<Times>)> = Vec::new();
        for _ in 0..rounds {
            for (side, by, name) in &sides {
                if settings.chosen(vec![side.clone()]).is_empty() {
                    continue;
                }
                let view = side.open(settings, &directory)?;
                for size in SIZES {
                    for (mode, mode_name) in MODES {
                        let times = make_files(view.root(), files, size, mode, *by)
                            .context(format!("{name}, {mode_name}, {size} bytes"))?;
                        let line = format!("{size} | {mode_name} | {name}");
                        match measured.iter_mut().find(|(known, _)| *known == line) {
                            Some((_, samples)) => samples.push(times),
                            None => measured.push((line, vec![times])),
                        }
                        fs::remove_dir_all(directory.join("made"))?;
                        image.settle()?;
                    }
                }
                view.close()?;
            }
        }
        tables.push(table(&measured, kind, files, rounds));
    }
    Ok(tables)
}

/// Time a file of each part of making it.
#[derive(Clone, Copy, Default)]
struct Times {
    /// Clone or write.
    fill: Duration,
    truncate: Duration,
    close: Duration,
    whole: Duration,
}

/// Makes `files` files and checks the last one.
fn make_files(root: &Path, files: u32, size: u64, mode: Mode, by: By) -> Result<Times> {
    let source_path = root.join("source");
    let source = File::open(&source_path).context(&source_path)?;
    let mut content = vec![0; SOURCE_SIZE as usize];
    source.read_exact_at(&mut content, 0)?;
    let made = root.join("made");
    fs::create_dir(&made).context(&made)?;
    let mut times = Times::default();
    let begin = Instant::now();
    for number in 0..files {
        let path = made.join(number.to_string());
        let file = File::create(&path).context(&path)?;
        let start = Instant::now();
        fill(&file, &source, &content, size, mode, by)?;
        let filled = Instant::now();
        if matches!(mode, Mode::WriteTrunc | Mode::CloneTrunc) {
            file.set_len(size).context(&path)?;
        }
        let truncated = Instant::now();
        drop(file);
        times.fill += filled - start;
        times.truncate += truncated - filled;
        times.close += truncated.elapsed();
    }
    times.whole = begin.elapsed();
    let last = made.join((files - 1).to_string());
    if fs::read(&last).context(&last)?.as_slice() != content.get(..size as usize).unwrap_or(&[]) {
        return Err("the file made is not the part of the source that it should be".into());
    }
    Ok(Times {
        fill: times.fill / files,
        truncate: times.truncate / files,
        close: times.close / files,
        whole: times.whole / files,
    })
}

fn fill(file: &File, source: &File, content: &[u8], size: u64, mode: Mode, by: By) -> Result<()> {
    let rounded = size.next_multiple_of(BLOCK);
    let part = |from: u64, to: u64| content.get(from as usize..to as usize).unwrap_or_default();
    match mode {
        Mode::Write => file.write_all_at(part(0, size), 0)?,
        Mode::WriteTrunc => file.write_all_at(part(0, rounded), 0)?,
        Mode::CloneTail => {
            let whole = size - size % BLOCK;
            if whole > 0 {
                clone(file, source, whole, by)?;
            }
            file.write_all_at(part(whole, size), whole)?;
        }
        Mode::CloneTrunc => clone(file, source, rounded, by)?,
    }
    Ok(())
}

/// Clones the first `length` bytes.
fn clone(file: &File, source: &File, length: u64, by: By) -> io::Result<()> {
    if by == By::CloneRange {
        return clone_range(file.as_fd(), source.as_fd(), 0, length);
    }
    let (mut from, mut to) = (0, 0);
    while to < length {
        let left = (length - to) as usize;
        let copied =
            rustix::fs::copy_file_range(source, Some(&mut from), file, Some(&mut to), left)?;
        if copied == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

fn table(measured: &[(String, Vec<Times>)], kind: FsKind, files: u32, rounds: usize) -> Table {
    let title = format!("Clone, then truncate, time a file, {}", kind.name());
    let head = [
        "bytes",
        "mode",
        "side",
        "clone or write",
        "truncate",
        "close",
        "whole",
    ];
    let mut table = Table::with_head(title, &head);
    for (line, samples) in measured {
        let mut cells: Vec<_> = line.split(" | ").map(str::to_owned).collect();
        let parts: [fn(&Times) -> Duration; 4] =
            [|t| t.fill, |t| t.truncate, |t| t.close, |t| t.whole];
        for part in parts {
            let values: Vec<_> = samples.iter().map(|t| part(t).as_secs_f64()).collect();
            cells.push(median(&values).map_or("-".to_owned(), duration));
        }
        table.line(cells);
    }
    table.remark(format!(
        "Medians of {rounds} of the mean over {files} files. \"Whole\" includes creating the file."
    ));
    table
}
