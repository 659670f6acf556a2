//! Scanning a reflinked tree for shared blocks (W1): the raw tool, plain `du`, and one question
//! to sharelens.

use super::{Workload, stats};
use crate::harness::{
    Context, FsKind, Image, Result, Run, Samples, Settings, Side, Table, Tables, View, bytes,
    duration, median, ratio,
};
use crate::raw::generate::{
    BLOCK, FILES_PER_DIRECTORY, Tree, c_path, clone_file, clone_tree, file_path, write_fragmented,
};
use crate::raw::kernel::{Mapper, Writeback};
use crate::raw::scan::{Order, ask, list, scan};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

pub(super) const WORKLOAD: Workload = Workload {
    name: "scan",
    about: "How much of a reflinked tree is shared: each file by open, FIEMAP and close, against \
            one question to sharelens.",
    run,
};

const TREE: &str = "tree";
const COPY: &str = "copy";
const FRAGMENTED: &str = "fragmented";
/// Files changed between two questions.
const CHANGED: usize = 100;

fn run(settings: &Settings) -> Result<Tables> {
    let tree = Tree::of_small_files(settings.size(100_000, 3000));
    let mut tables = Tables::new();
    for kind in [
        FsKind::Xfs { groups: 4 },
        FsKind::Xfs { groups: 32 },
        FsKind::Btrfs,
    ] {
        let image = Image::create(settings, kind, 16 << 30)?;
        tree.write(&image.root().join(TREE))?;
        clone_tree(&image.root().join(TREE), &image.root().join(COPY))?;
        let fragmented = image.root().join(FRAGMENTED);
        fs::create_dir(&fragmented)?;
        write_fragmented(&fragmented.join("source"), settings.size(32_000, 500))?;
        clone_file(&fragmented.join("source"), &fragmented.join("clone"))?;
        image.settle()?;
        let mut bench = Bench {
            settings,
            image: &image,
            tree,
            samples: Samples::default(),
            switches: Vec::new(),
            resident: Vec::new(),
        };
        let rounds = settings.rounds_or(5);
        for _ in 0..rounds {
            bench.raw()?;
            bench.ours().context("sharelens")?;
            bench.exclusive_blocks().context("blocks=exclusive")?;
        }
        tables.push(bench.table(kind, rounds));
    }
    Ok(tables)
}

struct Bench<'a> {
    settings: &'a Settings,
    image: &'a Image,
    tree: Tree,
    samples: Samples,
    /// Voluntary switches a file, by what was done.
    switches: Vec<(String, f64)>,
    /// Resident bytes a file after the first scan.
    resident: Vec<f64>,
}

/// Lines of the samples that the targets are computed from.
const RAW_ONE: &str = "raw, seq, 1 thread";
const RAW_TWO: &str = "raw, seq, 2 threads";
const WALK_AND_RAW: &str = "raw, seq, 1 thread, walking included";
const FIRST: &str = "first question: walk and scan";
const WARM: &str = "total of the tree, warm";
const AFTER_CHANGES: &str = "total after 100 files changed and written to disk";
const AFTER_DIRTY: &str = "total after 100 files changed, still dirty";
const SYNC_OF_DIRTY: &str = "one syncfs with 100 files dirty";
const CHILDREN: &str = "numbers of every file, through children";
const RAW_FRAGMENTED: &str = "one file of many shared extents: raw";
const FRAGMENTED_WARM: &str = "one file of many shared extents, warm";
const DU: &str = "du -s, native, warm";
const DU_EXCLUSIVE: &str = "du -s on the mount, blocks=exclusive, warm";
const ONE_SIDE: &str = "time";

impl Bench<'_> {
    fn add(&mut self, line: &str, seconds: f64) {
        self.samples.add(line, ONE_SIDE, seconds);
    }

    /// Both trees: what is scanned and asked about.
    fn files(&self) -> f64 {
        (2 * self.tree.files) as f64
    }

    /// The raw tool, with files listed before, and native `du`.
    fn raw(&mut self) -> Result<()> {
        let root = self.image.root().to_owned();
        let mut listed = self.tree.paths(&root.join(TREE))?;
        listed.extend(self.tree.paths(&root.join(COPY))?);
        scan(&listed, 1, Writeback::Leave)?;
        for order in [Order::Seq, Order::Shuffle] {
            let mut files = listed.clone();
            order.apply(&mut files);
            for threads in [1, 2, 4, 8] {
                let scan = scan(&files, threads, Writeback::Leave)?;
                if scan.sums.shared_bytes == 0 {
                    return Err("the raw scan found nothing shared".into());
                }
                let name = if order == Order::Seq {
                    "seq"
                } else {
                    "shuffle"
                };
                let plural = if threads == 1 { "" } else { "s" };
                let line = format!("raw, {name}, {threads} thread{plural}");
                self.add(&line, scan.time.as_secs_f64());
                self.switches
                    .push((line, scan.voluntary_switches as f64 / self.files()));
            }
        }
        let begin = Instant::now();
        let mut walked = list(&root.join(TREE))?;
        walked.append(&mut list(&root.join(COPY))?);
        scan(&walked, 1, Writeback::Leave)?;
        self.add(WALK_AND_RAW, begin.elapsed().as_secs_f64());

        let path = c_path(&root.join(FRAGMENTED).join("source"))?;
        let mut mapper = Mapper::new();
        let begin = Instant::now();
        ask(&mut mapper, &path, Writeback::Leave)?;
        self.add(RAW_FRAGMENTED, begin.elapsed().as_secs_f64());

        let mut du = Command::new("du");
        du.arg("-s").arg(root.join(TREE)).arg(root.join(COPY));
        du.timed()?;
        let time = du.timed()?;
        self.add(DU, time.as_secs_f64());
        Ok(())
    }

    /// Questions to a sharelens that was just mounted.
    fn ours(&mut self) -> Result<()> {
        let side = Side::sharelens("sharelens", "");
        let mut view = side.open(self.settings, self.image.root())?;
        let root = view.root().to_owned();
        self.first(&mut view)?;
        self.repeated(WARM, || stats::ask(&root, "summary").map(drop))?;
        self.changes(&root)?;
        self.children(&root)?;
        let fragmented = root.join(FRAGMENTED).join("source");
        stats::ask(&fragmented, "shared_bytes")?;
        self.repeated(FRAGMENTED_WARM, || {
            stats::ask(&fragmented, "shared_bytes").map(drop)
        })?;
        view.close()
    }

    /// The first question: walks and maps everything.
    fn first(&mut self, view: &mut View) -> Result<()> {
        let root = view.root().to_owned();
        let daemon = view.daemon().ok_or("no daemon")?;
        let (switches, resident) = (daemon.voluntary_switches()?, daemon.resident()?);
        let begin = Instant::now();
        stats::ask(&root, "summary")?;
        let time = begin.elapsed().as_secs_f64();
        let files = stats::ask_number(&root, "files")?;
        let expected = 2 * self.tree.files as u64 + 2;
        if files != expected {
            return Err(format!("{files} files where there are {expected}").into());
        }
        let switches = daemon.voluntary_switches()?.saturating_sub(switches);
        let resident = daemon.resident()?.saturating_sub(resident);
        self.add(FIRST, time);
        let each = self.files();
        self.switches
            .push((FIRST.to_owned(), switches as f64 / each));
        self.resident.push(resident as f64 / each);
        Ok(())
    }

    /// The mean of many equal questions.
    fn repeated(&mut self, line: &str, mut question: impl FnMut() -> Result<()>) -> Result<()> {
        let times = self.settings.size(1000, 10);
        question()?;
        let begin = Instant::now();
        for _ in 0..times {
            question()?;
        }
        self.add(line, begin.elapsed().as_secs_f64() / f64::from(times));
        Ok(())
    }

    /// Totals after changes made through the mount, written to disk and not. Each round changes
    /// other files of the copy than the one before, so that each change takes sharing away.
    fn changes(&mut self, root: &Path) -> Result<()> {
        let round = self.resident.len() - 1;
        let before = stats::ask_number(root, "shared_bytes")?;
        self.change(root, 2 * round, true)?;
        let begin = Instant::now();
        let after = stats::ask_number(root, "shared_bytes")?;
        self.add(AFTER_CHANGES, begin.elapsed().as_secs_f64());
        if after >= before {
            return Err("the total did not see the changes".into());
        }
        self.image.settle()?;
        self.change(root, 2 * round + 1, false)?;
        let begin = Instant::now();
        let last = stats::ask_number(root, "shared_bytes")?;
        self.add(AFTER_DIRTY, begin.elapsed().as_secs_f64());
        if last >= after {
            return Err("the total did not see the changes still dirty".into());
        }
        // As many other files dirty again, for one syncfs.
        self.change(root, 2 * round, false)?;
        let backing = File::open(self.image.root())?;
        let begin = Instant::now();
        rustix::fs::syncfs(&backing)?;
        self.add(SYNC_OF_DIRTY, begin.elapsed().as_secs_f64());
        self.image.settle()
    }

    /// Overwrites the first block of the files of one batch, spread over the whole copy.
    fn change(&self, root: &Path, batch: usize, to_disk: bool) -> Result<()> {
        let changed = CHANGED.min(self.tree.files / 20);
        let step = self.tree.files / changed;
        for number in 0..changed {
            let number = number * step + batch % step;
            let path = root.join(COPY).join(file_path(number));
            let file = OpenOptions::new().write(true).open(&path).context(&path)?;
            file.write_all_at(&[batch as u8; BLOCK as usize], 0)?;
            if to_disk {
                file.sync_data()?;
            }
        }
        Ok(())
    }

    /// One request a directory for the numbers of all files.
    fn children(&mut self, root: &Path) -> Result<()> {
        let directories = self.tree.files.div_ceil(FILES_PER_DIRECTORY);
        stats::ask(root, "summary")?;
        let mut rows = 0;
        let begin = Instant::now();
        for half in [TREE, COPY] {
            for number in 0..directories {
                let path = root.join(half).join(format!("d{number:04}"));
                rows += stats::ask(&path, "children")?.lines().count();
            }
        }
        self.add(CHILDREN, begin.elapsed().as_secs_f64());
        if rows != 2 * self.tree.files {
            return Err(format!("{rows} rows of children where {} files are", self.files()).into());
        }
        Ok(())
    }

    /// Unmodified `du` that sees exclusive blocks.
    fn exclusive_blocks(&mut self) -> Result<()> {
        let side = Side::sharelens("sharelens", "blocks=exclusive");
        let view = side.open(self.settings, self.image.root())?;
        let mut du = Command::new("du");
        du.arg("-s")
            .arg(view.root().join(TREE))
            .arg(view.root().join(COPY));
        du.timed()?;
        let time = du.timed()?;
        self.add(DU_EXCLUSIVE, time.as_secs_f64());
        view.close()
    }

    fn table(&self, kind: FsKind, rounds: usize) -> Table {
        let title = format!("Two trees of {} files, {}", self.tree.files, kind.name());
        let mut table = Table::with_head(title, &["what", "time", "voluntary switches a file"]);
        let time = |line: &str| self.samples.median(line, ONE_SIDE);
        for line in self.samples.lines() {
            let switches: Vec<_> = self
                .switches
                .iter()
                .filter(|(name, _)| name == line)
                .map(|&(_, switches)| switches)
                .collect();
            let switches =
                median(&switches).map_or("-".to_owned(), |a_file| format!("{a_file:.4}"));
            let text = time(line).map_or("-".to_owned(), duration);
            table.line(vec![line.clone(), text, switches]);
        }
        table.remark(format!(
            "Medians of {rounds}. Trees: files of 1 to 8 blocks in directories of 1,000, and a \
             reflink copy. Raw: open, FIEMAP and close of each file, listed before timing unless \
             said otherwise, warm."
        ));
        for (what, slow, fast) in [
            ("Warm total against raw, one thread", RAW_ONE, WARM),
            (
                "After 100 changes against raw, one thread",
                RAW_ONE,
                AFTER_CHANGES,
            ),
            (
                "First scan, walking included, against raw, one thread",
                RAW_ONE,
                FIRST,
            ),
            (
                "First scan, walking included, against raw, two threads",
                RAW_TWO,
                FIRST,
            ),
            (
                "All files through children against raw, one thread",
                RAW_ONE,
                CHILDREN,
            ),
            (
                "A file of many shared extents, warm, against one FIEMAP",
                RAW_FRAGMENTED,
                FRAGMENTED_WARM,
            ),
        ] {
            if let (Some(slow), Some(fast)) = (time(slow), time(fast)) {
                table.remark(format!("{what}: {} times faster.", ratio(slow / fast)));
            }
        }
        if let (Some(native), Some(ours)) = (time(DU), time(DU_EXCLUSIVE)) {
            table.remark(format!(
                "`du -s` with blocks=exclusive: {} of native.",
                ratio(ours / native)
            ));
        }
        if let Some(resident) = median(&self.resident) {
            table.remark(format!(
                "Resident memory of the scan: {} a file.",
                bytes(resident)
            ));
        }
        table
    }
}
