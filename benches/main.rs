//! The benchmarks of sharelens: the workloads of the field, side by side with the raw way of
//! doing them.
//!
//! `make bench` runs all, `make bench WORK=scan` one, `make bench QUICK=1` all in sizes that only
//! show that they run. Needs root, loop devices and FUSE.

mod constant;
mod harness;
mod raw;
mod work;

use clap::{Args, Parser, Subcommand};
use harness::{Context, Other, Result, Settings, machine_line, shell_words};
use raw::generate::{Tree, clone_tree};
use raw::kernel::Writeback;
use raw::scan::{Order, scan};
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Measures sharelens side by side with the raw way", version)]
struct Cli {
    /// Given by `cargo bench`.
    #[arg(long, hide = true, global = true)]
    bench: bool,
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Subcommand)]
enum Command {
    /// List the workloads.
    List,
    /// Write a tree of small files and a reflink copy of it: DIR/tree and DIR/copy.
    Generate {
        /// Where; on XFS or btrfs.
        dir: PathBuf,
        /// Files in the tree.
        #[arg(long, default_value_t = 100_000)]
        files: usize,
    },
    /// Ask about each file below DIR by open, FIEMAP and close.
    Raw {
        /// A directory.
        dir: PathBuf,
        /// Threads.
        #[arg(long, default_value_t = 1)]
        threads: usize,
        /// Order in which files are taken.
        #[arg(long, value_enum, default_value = "seq")]
        order: Order,
        /// Scans one after the other.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Write back what is dirty of each file first.
        #[arg(long)]
        sync: bool,
    },
    /// Serve the constant answer until unmounted.
    #[command(hide = true)]
    Constant {
        /// Files in its tree.
        files: usize,
        /// Where.
        mountpoint: PathBuf,
    },
}

#[derive(Args)]
struct RunArgs {
    /// Workloads to run, separated by commas; all if none is named.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    work: Vec<String>,
    /// Sizes that only show that everything runs.
    #[arg(long)]
    quick: bool,
    /// Rounds in place of each workload's own number.
    #[arg(long)]
    rounds: Option<usize>,
    /// Only these sides (by the names in the tables), separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    sides: Vec<String>,
    /// Only this backing filesystem, where a workload runs on both.
    #[arg(long, value_name = "NAME", value_parser = ["xfs", "btrfs"])]
    filesystem: Option<String>,
    /// Another passthrough filesystem: NAME=COMMAND, which serves in the foreground, with
    /// {source} and {mountpoint} in COMMAND. May be repeated.
    #[arg(long, value_name = "NAME=COMMAND")]
    also: Vec<Other>,
    /// Further mount options for every sharelens mount.
    #[arg(short = 'o', long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// The program to measure.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_sharelens"))]
    program: PathBuf,
    /// A source tree for `ordinary` in place of the project's dependencies.
    #[arg(long, value_name = "DIR")]
    source_tree: Option<PathBuf>,
    /// Where images are made: a directory with 20 GiB free.
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// Write the tables of each workload to DIR/NAME.md too.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    let result = match Cli::parse() {
        Cli {
            command: Some(command),
            ..
        } => tool(command),
        Cli { run, .. } => run_workloads(run),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_workloads(args: RunArgs) -> Result<()> {
    let chosen = work::chosen(&args.work)?;
    if !nix::unistd::geteuid().is_root() {
        return Err("the benchmarks make and mount filesystems: run as root".into());
    }
    harness::watch()?;
    let mut settings = Settings::new(&args.dir, args.program)?;
    settings.quick = args.quick;
    settings.rounds = args.rounds;
    settings.sides = args.sides;
    settings.filesystem = args.filesystem;
    settings.others = args.also;
    settings.options = args.options;
    settings.source_tree = args.source_tree;
    let mut failed = Vec::new();
    for workload in chosen {
        eprintln!("bench: {} ...", workload.name);
        let head = head(workload, &settings);
        match (workload.run)(&settings) {
            Ok(tables) => {
                let tables: Vec<_> = tables.iter().map(ToString::to_string).collect();
                let text = format!("{head}\n{}", tables.join("\n"));
                println!("{text}");
                if let Some(directory) = &args.out {
                    fs::create_dir_all(directory).context(directory)?;
                    let path = directory.join(format!("{}.md", workload.name));
                    fs::write(&path, text).context(&path)?;
                }
            }
            Err(error) => {
                eprintln!("bench: {}: {error}", workload.name);
                failed.push(workload.name);
            }
        }
        harness::interrupted()?;
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("failed: {}", failed.join(", ")).into())
    }
}

/// The heading of a workload's results: what, on what, by which command.
fn head(workload: &work::Workload, settings: &Settings) -> String {
    let arguments = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench");
    let quick = if settings.quick {
        "\nQuick run: sizes that only show that everything runs; the figures mean nothing.\n"
    } else {
        ""
    };
    format!(
        "## {}\n\n{}\n{quick}\nMachine: {}.\nCommand: `cargo bench --bench bench -- {}`.\n",
        workload.name,
        workload.about,
        machine_line(),
        shell_words(arguments)
    )
}

fn tool(command: Command) -> Result<()> {
    match command {
        Command::List => {
            for workload in work::ALL {
                println!("{:16} {}", workload.name, workload.about);
            }
            Ok(())
        }
        Command::Generate { dir, files } => {
            let tree = dir.join("tree");
            Tree::of_small_files(files).write(&tree)?;
            clone_tree(&tree, &dir.join("copy"))
        }
        Command::Raw {
            dir,
            threads,
            order,
            rounds,
            sync,
        } => {
            let mut files = raw::scan::list(&dir)?;
            order.apply(&mut files);
            let writeback = if sync {
                Writeback::First
            } else {
                Writeback::Leave
            };
            for _ in 0..rounds {
                let scan = scan(&files, threads, writeback)?;
                println!(
                    "{} files, {} records, {} bytes, {} shared: {:.1} ms, {} voluntary switches",
                    files.len(),
                    scan.sums.records,
                    scan.sums.bytes,
                    scan.sums.shared_bytes,
                    scan.time.as_secs_f64() * 1e3,
                    scan.voluntary_switches
                );
            }
            Ok(())
        }
        Command::Constant { files, mountpoint } => constant::serve(files, &mountpoint),
    }
}
