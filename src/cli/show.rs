//! `sharelens show`.

use super::output::{self, Table};
use super::source::in_mount;
use super::{Failure, Outcome, direct, front, named, peers};
use crate::extent::ShareSummary;
use crate::mount::{answering, ask};
use crate::sys::reason;
use crate::vxattr::Name;
use clap::Args;
use serde_json::{Map, Value, json};
use std::io;
use std::path::{Path, PathBuf};

/// Prints the numbers of files and directories
///
/// Below a mount they are the mount's exact answers. For a file elsewhere one FIEMAP of it is made,
/// which knows nothing of changes to other files that are not on disk yet.
///
/// With --peers the files of the mount that share with each PATH are listed by path instead, every
/// hard link of them, sorted. They are known once the whole mount was scanned (`sharelens scan`, or
/// the option scan=background), and shown to root and the owner of PATH.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Amounts as 1.5M instead of bytes
    #[arg(short = 'H', long)]
    human: bool,
    /// One JSON array with an object for each path
    #[arg(long)]
    json: bool,
    /// List the files that share with each PATH
    #[arg(short, long)]
    peers: bool,
    /// Files and directories
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// The columns that hold bytes, then those that hold counts.
const BYTES: [&str; 3] = ["bytes", "shared_bytes", "exclusive_bytes"];
const COUNTS: [&str; 2] = ["extents", "shared_extents"];

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    answering::check_around(&arguments.paths)?;
    // Where the first lies, most of them do.
    let first = arguments
        .paths
        .first()
        .map_or(Path::new("."), PathBuf::as_path);
    front::of(first, || show(arguments))
}

fn show(arguments: &Arguments) -> Outcome {
    if arguments.peers {
        return peers::run(&arguments.paths, arguments.json);
    }
    let mut table = Table::new(&["bytes", "shared", "exclusive", "extents", "shared", "path"]);
    let mut objects = Vec::new();
    let mut failed = false;
    let mut outside = false;
    for path in &arguments.paths {
        match numbers(path) {
            Ok((numbers, from_mount)) => {
                outside |= !from_mount;
                table.row(row(&numbers, path, arguments.human));
                objects.push(described(path, numbers, from_mount));
            }
            Err(error) => {
                failed = true;
                let reason = explain(&error);
                if arguments.json {
                    objects.push(json!({ "path": path.to_string_lossy(), "error": reason }));
                }
                output::complain(&format_args!("{}: {reason}", output::shown(path)));
            }
        }
    }
    if arguments.json {
        output::print_json(&objects)?;
    } else if !table.is_empty() {
        output::print(&table.text())?;
        if outside {
            output::complain(
                &"note: not in a sharelens mount: read by FIEMAP once, without what other files have not yet written to disk",
            );
        }
    }
    if failed { Err(Failure::Said) } else { Ok(()) }
}

/// The numbers by name, and whether a mount gave them.
fn numbers(path: &Path) -> io::Result<(Map<String, Value>, bool)> {
    let kind = std::fs::metadata(path)?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(io::Error::other(format!(
            "is {}; only regular files and directories have numbers",
            named::what(kind)
        )));
    }
    match ask::patiently(path, Name::Json, || {}) {
        Ok(text) => match serde_json::from_str(&text) {
            Ok(Value::Object(numbers)) => Ok((numbers, true)),
            _ => Err(io::Error::other("the mount gave no numbers")),
        },
        // A mount has answered, but does not know.
        Err(error) if in_mount(path) => Err(error),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Err(error),
        Err(_) if kind.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        Err(_) => {
            let numbers = of_summary(&ShareSummary::of(&direct::map(path)?));
            Ok((numbers, false))
        }
    }
}

fn of_summary(summary: &ShareSummary) -> Map<String, Value> {
    let numbers = [
        ("bytes", summary.bytes.0),
        ("shared_bytes", summary.shared_bytes.0),
        ("exclusive_bytes", summary.exclusive_bytes().0),
        ("extents", summary.extents),
        ("shared_extents", summary.shared_extents),
    ];
    numbers
        .into_iter()
        .map(|(name, number)| (name.to_owned(), number.into()))
        .collect()
}

fn row(numbers: &Map<String, Value>, path: &Path, human: bool) -> Vec<String> {
    let number = |name: &str| numbers.get(name).and_then(Value::as_u64);
    let mut cells: Vec<String> = BYTES
        .iter()
        .map(|name| number(name).map_or("-".to_owned(), |bytes| output::amount(bytes, human)))
        .chain(
            COUNTS
                .iter()
                .map(|name| number(name).map_or("-".to_owned(), |count| count.to_string())),
        )
        .collect();
    cells.push(output::shown(path));
    cells
}

fn described(path: &Path, mut numbers: Map<String, Value>, from_mount: bool) -> Value {
    numbers.insert("path".to_owned(), path.to_string_lossy().into());
    let by = if from_mount { "mount" } else { "fiemap" };
    numbers.insert("by".to_owned(), by.into());
    Value::Object(numbers)
}

/// What an errno means for somebody who asked for numbers.
fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENODATA) => "not known (the filesystem below cannot say)".to_owned(),
        Some(libc::EOPNOTSUPP) => "not known: this filesystem has no FIEMAP".to_owned(),
        Some(libc::EISDIR) => {
            "a directory outside a mount has no totals: mount it first".to_owned()
        }
        Some(libc::ENOTCONN) => {
            "the daemon of this mount is gone: `sharelens umount` it, then mount it again"
                .to_owned()
        }
        _ => reason(error).to_string(),
    }
}
