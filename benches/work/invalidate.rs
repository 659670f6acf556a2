//! What a write to one of many clones of a fragmented file costs when all of them are cached.

use super::{Workload, stats};
use crate::harness::{
    Context, FsKind, Image, Result, Samples, Settings, Side, Tables, bytes, duration, interrupted,
};
use crate::raw::generate::{BLOCK, c_path, clone_file, write_fragmented};
use crate::raw::kernel::{Mapper, Writeback};
use crate::raw::scan;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub(super) const WORKLOAD: Workload = Workload {
    name: "invalidate",
    about: "A file of 32,000 extents with 1,000 clones, all of them cached: a write to one clone.",
    run,
};

const NOTHING_CACHED: &str = "sharelens, nothing cached";
const ALL_CACHED: &str = "sharelens, all cached";

fn run(settings: &Settings) -> Result<Tables> {
    let (extents, clones) = settings.size((32_000, 1000), (300, 30));
    let writes = settings.size(50, 5);
    let kind = FsKind::Xfs { groups: 4 };
    let image = Image::create(settings, kind, 16 << 30)?;
    let directory = image.root().join("work");
    fs::create_dir(&directory)?;
    let source = directory.join("source");
    write_fragmented(&source, extents)?;
    for number in 0..clones {
        interrupted()?;
        clone_file(&source, &clone_path(&directory, number))?;
    }
    image.settle()?;
    let mut samples = Samples::default();
    let mut remarks = Vec::new();
    let mut next = 0..clones;
    let mut write = |root: &Path, side: &str, samples: &mut Samples| {
        for _ in 0..writes {
            let number = next.next().ok_or("more writes than clones")?;
            write_block(root, number, side, samples)?;
            image.settle()?;
        }
        Result::Ok(())
    };

    write(&directory, "native", &mut samples)?;
    let begin = Instant::now();
    let path = c_path(&source)?;
    scan::ask(&mut Mapper::new(), &path, Writeback::Leave)?;
    remarks.push(format!(
        "One FIEMAP of the source: {}.",
        duration(begin.elapsed().as_secs_f64())
    ));
    for options in ["io=auto", "io=cached"] {
        let side = Side::sharelens("sharelens", options);
        if settings.chosen(vec![side.clone()]).is_empty() {
            continue;
        }
        let view = side.open(settings, &directory)?;
        let name = format!("{NOTHING_CACHED}, {options}");
        write(view.root(), &name, &mut samples).context(name.as_str())?;
        view.close()?;

        let mut view = side.open(settings, &directory)?;
        let root = view.root().to_owned();
        let begin = Instant::now();
        for number in 0..clones {
            interrupted()?;
            stats::ask(&clone_path(&root, number), "shared_bytes")?;
        }
        stats::ask(&root.join("source"), "shared_bytes")?;
        let resident = view.daemon().ok_or("no daemon")?.resident()?;
        remarks.push(format!(
            "{options}: the first questions about all of them took {}; resident afterwards: {}.",
            duration(begin.elapsed().as_secs_f64()),
            bytes(resident as f64)
        ));
        let name = format!("{ALL_CACHED}, {options}");
        write(&root, &name, &mut samples).context(name.as_str())?;
        let begin = Instant::now();
        stats::ask(&root.join("source"), "shared_bytes")?;
        samples.add(
            "question about the source after it",
            &name,
            begin.elapsed().as_secs_f64(),
        );
        view.close()?;
    }
    let title = format!(
        "{clones} clones of a file of {extents} extents, {}",
        kind.name()
    );
    let mut table = samples.table(title, "step");
    table.remark(format!(
        "Medians of {writes} writes of 4 KiB, each to another clone, with everything on disk \
         before; the question is asked once. What invalidation costs is the difference between \
         all cached and nothing cached."
    ));
    for remark in remarks {
        table.remark(remark);
    }
    Ok(vec![table])
}

fn clone_path(root: &Path, number: usize) -> PathBuf {
    root.join(format!("clone{number}"))
}

/// Opens a clone, overwrites a block of it, closes it.
fn write_block(root: &Path, number: usize, side: &str, samples: &mut Samples) -> Result<()> {
    let path = clone_path(root, number);
    // The name is looked up before: its cost is not what is asked.
    fs::metadata(&path).context(&path)?;
    let begin = Instant::now();
    let file = OpenOptions::new().write(true).open(&path).context(&path)?;
    let opened = Instant::now();
    file.write_all_at(&[7; BLOCK as usize], 8 * BLOCK)
        .context(&path)?;
    let written = Instant::now();
    drop(file);
    let closed = Instant::now();
    for (line, from, to) in [
        ("open for write", begin, opened),
        ("write", opened, written),
        ("close", written, closed),
        ("open, write and close", begin, closed),
    ] {
        samples.add(line, side, (to - from).as_secs_f64());
    }
    Ok(())
}
