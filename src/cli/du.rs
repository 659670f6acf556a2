//! `sharelens du`.

use super::output::{self, Table};
use super::source::{self, Bar, Below, Place, Source};
use super::{Failure, Outcome, front};
use crate::extent::ShareSummary;
use crate::mount::answering;
use crate::sharing::DirTotals;
use crate::vxattr::ChildKind;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value};
use std::cmp::Reverse;
use std::io;
use std::path::PathBuf;

/// Prints a tree with what is exclusive in it, what is shared, and what it occupies
///
/// total: all bytes of the files below. exclusive: those that no other file shares. set shared: the
/// shared ones, each block counted once. footprint: exclusive and set shared, which is what the tree
/// occupies. In a mount the mount answers; any other directory is scanned at once.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// How many levels to show; 0 shows PATH alone
    #[arg(short, long, value_name = "N")]
    depth: Option<usize>,
    /// Files too
    #[arg(short, long)]
    all: bool,
    /// Exact amounts
    #[arg(short, long, overrides_with = "human")]
    bytes: bool,
    /// Amounts as 1.5M (default)
    #[arg(short = 'H', long)]
    human: bool,
    /// Which comes first of those in one directory
    #[arg(short, long, value_enum, default_value_t = Sort::Exclusive)]
    sort: Sort,
    /// One JSON array with an object for each row, in bytes
    #[arg(long)]
    json: bool,
    /// The directory
    #[arg(value_name = "PATH", default_value = ".")]
    path: PathBuf,
}

/// An order.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sort {
    /// The largest exclusive bytes
    Exclusive,
    /// The largest total
    Total,
    /// By name
    Name,
}

/// A row of the result.
struct Row {
    path: PathBuf,
    depth: usize,
    numbers: Numbers,
}

enum Numbers {
    Directory(DirTotals),
    File(ShareSummary),
    Unknown,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let path = &arguments.path;
    answering::check(path)?;
    front::of(path, || du(arguments))
}

fn du(arguments: &Arguments) -> Outcome {
    let path = &arguments.path;
    let refused =
        |error: &io::Error| Failure::Sentence(format!("{path:?}: {}", source::explain(error)));
    let (source, top) = Source::of(path).map_err(|error| refused(&error))?;
    let bar = Bar::new();
    source
        .prepare(&top, &bar)
        .map_err(|error| refused(&error))?;
    let walked = walk(arguments, &source, top, &bar);
    bar.end();
    let (rows, complaints) = walked.map_err(|error| refused(&error))?;
    for complaint in &complaints {
        output::complain(complaint);
    }
    if arguments.json {
        output::print_json(&rows.iter().map(described).collect::<Vec<_>>())?;
    } else {
        output::print(&table(&rows, !arguments.bytes).text())?;
    }
    if let Source::Disk(_) = source {
        for note in source.state().iter().flat_map(source::skipped) {
            output::complain(&format_args!("note: {note}"));
        }
    }
    if complaints.is_empty() {
        Ok(())
    } else {
        Err(Failure::Said)
    }
}

/// The rows, every directory before what is in it, and what could not be read.
///
/// # Errors
/// Of the directory at the top.
fn walk(
    arguments: &Arguments,
    source: &Source,
    top: Place,
    bar: &Bar,
) -> io::Result<(Vec<Row>, Vec<String>)> {
    let mut rows = Vec::new();
    let mut complaints = Vec::new();
    let mut next = vec![(
        0,
        Below {
            place: top,
            kind: ChildKind::Directory,
            numbers: None,
        },
    )];
    while let Some((depth, item)) = next.pop() {
        let place = item.place;
        if item.kind != ChildKind::Directory {
            rows.push(Row {
                path: place.path,
                depth,
                numbers: item.numbers.map_or(Numbers::Unknown, Numbers::File),
            });
            continue;
        }
        let read = source.totals(&place, bar).and_then(|totals| {
            let wanted = arguments.depth.is_none_or(|most| depth < most);
            let below = if wanted {
                source.children(&place, bar)?
            } else {
                Vec::new()
            };
            Ok((totals, below))
        });
        let (totals, mut below) = match read {
            Ok(read) => read,
            Err(error) if depth == 0 => return Err(error),
            // It went meanwhile.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESTALE)) => {
                continue;
            }
            Err(error) => {
                complaints.push(format!(
                    "{}: {}",
                    output::shown(&place.path),
                    source::explain(&error)
                ));
                continue;
            }
        };
        rows.push(Row {
            path: place.path,
            depth,
            numbers: Numbers::Directory(totals),
        });
        below.retain(|child| match child.kind {
            ChildKind::Directory => true,
            ChildKind::File => arguments.all,
            ChildKind::Other => false,
        });
        order(&mut below, arguments.sort);
        next.extend(below.into_iter().rev().map(|child| (depth + 1, child)));
    }
    Ok((rows, complaints))
}

fn order(below: &mut [Below], sort: Sort) {
    let largest = |child: &Below| {
        let numbers = child.numbers.unwrap_or_default();
        match sort {
            Sort::Exclusive => numbers.exclusive_bytes(),
            Sort::Total => numbers.bytes,
            Sort::Name => crate::extent::Bytes(0),
        }
    };
    below.sort_by(|one, other| {
        Reverse(largest(one))
            .cmp(&Reverse(largest(other)))
            .then_with(|| one.place.path.cmp(&other.place.path))
    });
}

fn table(rows: &[Row], human: bool) -> Table {
    let mut table = Table::new(&["total", "exclusive", "set shared", "footprint", "path"]);
    let amount = |bytes: crate::extent::Bytes| output::amount(bytes.0, human);
    let none = || "-".to_owned();
    for row in rows {
        let mut cells = match &row.numbers {
            Numbers::Directory(totals) => vec![
                amount(totals.numbers.bytes),
                amount(totals.numbers.exclusive_bytes()),
                amount(totals.set_shared_bytes),
                amount(totals.footprint_bytes()),
            ],
            Numbers::File(numbers) => vec![
                amount(numbers.bytes),
                amount(numbers.exclusive_bytes()),
                none(),
                none(),
            ],
            Numbers::Unknown => vec![none(), none(), none(), none()],
        };
        cells.push(output::shown(&row.path));
        table.row(cells);
    }
    table
}

fn described(row: &Row) -> Value {
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| {
        object.insert(name.to_owned(), value);
    };
    put("path", row.path.to_string_lossy().into());
    put("depth", row.depth.into());
    let summary = match &row.numbers {
        Numbers::Directory(totals) => {
            put("type", "directory".into());
            put("files", totals.files.into());
            put("dirs", totals.dirs.into());
            put("set_shared_bytes", totals.set_shared_bytes.0.into());
            put("footprint_bytes", totals.footprint_bytes().0.into());
            put("linked_outside_bytes", totals.linked_outside_bytes.0.into());
            if let Some(bytes) = totals.reclaimable_bytes {
                put("reclaimable_bytes", bytes.0.into());
            }
            Some(totals.numbers)
        }
        Numbers::File(numbers) => {
            put("type", "file".into());
            Some(*numbers)
        }
        Numbers::Unknown => {
            put("type", "file".into());
            None
        }
    };
    if let Some(numbers) = summary {
        put("bytes", numbers.bytes.0.into());
        put("shared_bytes", numbers.shared_bytes.0.into());
        put("exclusive_bytes", numbers.exclusive_bytes().0.into());
        put("extents", numbers.extents.into());
        put("shared_extents", numbers.shared_extents.into());
    }
    Value::Object(object)
}
