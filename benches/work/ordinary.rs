//! Ordinary work on a source tree: what nobody wants to become slow.

use super::Workload;
use crate::harness::{
    Context, Image, Result, Run, Samples, Settings, Side, SourceTree, Tables, View,
};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub(super) const WORKLOAD: Workload = Workload {
    name: "ordinary",
    about: "Ordinary work on a source tree, as ratios to the backing filesystem.",
    run,
};

const APPENDS: usize = 300;

fn run(settings: &Settings) -> Result<Tables> {
    let source = SourceTree::pack(settings)?;
    let rounds = settings.rounds_or(5);
    let mut tables = Tables::new();
    for kind in settings.filesystems() {
        let image = Image::create(settings, kind, 16 << 30)?;
        let mut samples = Samples::default();
        for _ in 0..rounds {
            for side in &Side::all(settings) {
                let mut turn = Turn::new(settings, &image, side, &mut samples)?;
                turn.source_tree(&source.archive)
                    .and_then(|()| turn.input_and_output())
                    .context(side.name())?;
                turn.end()?;
            }
        }
        let mut table = samples.table(format!("Ordinary work, {}", kind.name()), "work");
        table.remark(format!(
            "Medians of {rounds}; in parentheses the ratio to native. The tree: {} files, {} MiB \
             (the project's dependencies). Before each step everything is written back. \"First\" \
             is on a fresh mount whose backing files are known to the kernel. Times of fio are \
             its own, without its start.",
            source.files,
            source.bytes >> 20,
        ));
        tables.push(table);
    }
    Ok(tables)
}

/// One side's turn in one round.
struct Turn<'a> {
    settings: &'a Settings,
    image: &'a Image,
    side: &'a Side,
    samples: &'a mut Samples,
    view: Option<View>,
    /// The directory of this turn, on the backing filesystem.
    source: PathBuf,
}

impl<'a> Turn<'a> {
    fn new(
        settings: &'a Settings,
        image: &'a Image,
        side: &'a Side,
        samples: &'a mut Samples,
    ) -> Result<Self> {
        let source = image.root().join("work");
        fs::create_dir(&source).context(&source)?;
        let view = Some(side.open(settings, &source)?);
        Ok(Self {
            settings,
            image,
            side,
            samples,
            view,
            source,
        })
    }

    /// Where this side shows the directory.
    fn root(&self) -> Result<&Path> {
        let view = self.view.as_ref().ok_or("the side is not open")?;
        Ok(view.root())
    }

    /// Ends the mount and makes a fresh one, which knows nothing yet.
    fn fresh(&mut self) -> Result<()> {
        if let Some(view) = self.view.take() {
            view.close()?;
        }
        self.view = Some(self.side.open(self.settings, &self.source)?);
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        if let Some(view) = self.view.take() {
            view.close()?;
        }
        fs::remove_dir_all(&self.source).context(&self.source)?;
        self.image.settle()
    }

    fn record(&mut self, line: &str, time: Duration) {
        self.samples.add(line, self.side.name(), time.as_secs_f64());
    }

    /// Times one command that works in the root of the side.
    fn step(&mut self, line: &str, command: &[&str]) -> Result<()> {
        self.image.settle()?;
        let time = self.command(command)?.timed_or_one()?;
        self.record(line, time);
        Ok(())
    }

    fn command(&self, words: &[&str]) -> Result<Command> {
        let (program, arguments) = words.split_first().ok_or("no command")?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.root()?)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null");
        Ok(command)
    }

    /// Everything done with the source tree.
    fn source_tree(&mut self, archive: &Path) -> Result<()> {
        fs::create_dir(self.root()?.join("tree"))?;
        let archive = archive.display().to_string();
        self.step("untar", &["tar", "-xf", &archive, "-C", "tree"])?;
        self.step("cp -a", &["cp", "-a", "tree", "copy"])?;
        self.git()?;
        self.appends()?;

        self.fresh()?;
        self.step("find, first", &["find", "tree", "-size", "+1G"])?;
        self.step("find, warm", &["find", "tree", "-size", "+1G"])?;
        self.step("du, warm", &["du", "-s", "tree"])?;
        self.fresh()?;
        self.step("du, first", &["du", "-s", "tree"])?;
        self.fresh()?;
        let grep = ["grep", "-r", "no such words in any of them", "tree"];
        self.step("grep -r, first", &grep)?;
        self.step("grep -r, warm", &grep)?;
        self.step("rm -r", &["rm", "-r", "copy"])
    }

    fn git(&mut self) -> Result<()> {
        let script = "cd copy && git init -q . && git -c core.autocrlf=false add . && \
            git -c gc.auto=0 -c user.name=bench -c user.email=bench@localhost commit -q -m all";
        self.step("git init, add, commit", &["sh", "-c", script])?;
        let status = ["git", "-C", "copy", "status", "--porcelain"];
        self.command(&status)?.timed()?;
        self.step("git status", &status)
    }

    /// Appends of a line: each an open, a write and a close.
    fn appends(&mut self) -> Result<()> {
        let mut files = Vec::new();
        regular_files(&self.root()?.join("tree"), APPENDS, &mut files)?;
        let log = self.root()?.join("log");
        fs::write(&log, "")?;
        self.image.settle()?;
        let begin = Instant::now();
        for _ in 0..APPENDS {
            append(&log)?;
        }
        self.record("300 appends, one file", begin.elapsed());
        self.image.settle()?;
        let begin = Instant::now();
        for file in &files {
            append(file)?;
        }
        self.record("an append to each of 300 files", begin.elapsed());
        Ok(())
    }

    /// Big files, and a build.
    fn input_and_output(&mut self) -> Result<()> {
        for (line, pattern, block) in [
            ("sequential write", "write", "1M"),
            ("sequential read", "read", "1M"),
            ("random write, 4 KiB", "randwrite", "4k"),
            ("random read, 4 KiB", "randread", "4k"),
        ] {
            self.image.settle()?;
            let time = self.fio(pattern, block)?;
            self.record(line, time);
        }
        self.build()
    }

    /// The time that fio itself measured for one job on one file.
    fn fio(&self, pattern: &str, block: &str) -> Result<Duration> {
        let size = self.settings.size("512M", "4M");
        let text = self
            .command(&[
                "fio",
                "--name=job",
                "--filename=big",
                "--output-format=json",
            ])?
            .args(["--ioengine=psync", "--fallocate=none", "--randrepeat=1"])
            .args(["--invalidate=0", "--overwrite=0"])
            .arg(format!("--size={size}"))
            .arg(format!("--rw={pattern}"))
            .arg(format!("--bs={block}"))
            .text()?;
        // Warnings may stand before the JSON.
        let json = text.find('{').and_then(|start| text.get(start..));
        let report: serde_json::Value = serde_json::from_str(json.unwrap_or_default())?;
        let direction = if pattern.ends_with("read") {
            "read"
        } else {
            "write"
        };
        let number = |name: &str| {
            report
                .pointer(&format!("/jobs/0/{direction}/{name}"))
                .and_then(serde_json::Value::as_f64)
                .ok_or_else(|| format!("fio reported no {direction}/{name}"))
        };
        // Its run time is in whole milliseconds; operations by mean latency are finer.
        let operations = number("total_ios")?;
        let nanoseconds = number("clat_ns/mean")?;
        Ok(Duration::from_secs_f64(operations * nanoseconds * 1e-9))
    }

    /// `cargo build` of a small crate without dependencies.
    fn build(&mut self) -> Result<()> {
        let package = self.root()?.join("package");
        write_package(&package)?;
        self.image.settle()?;
        let time = build(&package)?;
        self.record("cargo build, small crate", time);
        Ok(())
    }
}

/// Writes a crate of some modules and no dependencies.
pub(super) fn write_package(package: &Path) -> Result<()> {
    const MANIFEST: &str = "\
[package]
name = \"small\"
version = \"0.1.0\"
edition = \"2021\"

[workspace]
";
    const MODULE: &str = "\
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub name: String,
    pub values: Vec<u64>,
}

pub fn sum(part: &Part) -> u64 {
    part.values.iter().map(|value| value * NUMBER).sum()
}
";
    const CALL: &str =
        "    let part = partNUMBER::Part { name: String::new(), values: vec![1, 2] };
    println!(\"{:?} {}\", part.clone(), partNUMBER::sum(&part));
";
    let sources = package.join("src");
    fs::create_dir_all(&sources).context(&sources)?;
    fs::write(package.join("Cargo.toml"), MANIFEST)?;
    let (mut modules, mut calls) = (String::new(), String::new());
    for number in 0..20 {
        let number = number.to_string();
        let module = MODULE.replace("NUMBER", &number);
        fs::write(sources.join(format!("part{number}.rs")), module)?;
        modules.push_str(&format!("mod part{number};\n"));
        calls.push_str(&CALL.replace("NUMBER", &number));
    }
    let main = format!("{modules}\nfn main() {{\n{calls}}}\n");
    fs::write(sources.join("main.rs"), main)?;
    Ok(())
}

/// Builds that crate where it lies.
pub(super) fn build(package: &Path) -> Result<Duration> {
    Command::new("cargo")
        .args(["build", "--offline", "--quiet"])
        .current_dir(package)
        .env("CARGO_TARGET_DIR", package.join("target"))
        .env_remove("RUSTFLAGS")
        .timed()
}

fn append(path: &Path) -> Result<()> {
    let mut file = OpenOptions::new().append(true).open(path).context(path)?;
    file.write_all(b"one more line of an ordinary length, as logs have them\n")
        .context(path)
}

/// Up to `wanted` regular files below `directory`.
fn regular_files(directory: &Path, wanted: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory).context(directory)? {
        if found.len() >= wanted {
            break;
        }
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            regular_files(&entry.path(), wanted, found)?;
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    Ok(())
}
