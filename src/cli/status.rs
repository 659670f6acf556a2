//! `sharelens status`.

use super::output::{self, Table};
use super::{Failure, Outcome};
use crate::mount::{answering, ask, mountinfo, places};
use crate::sys::reason;
use crate::vxattr::{Name, printable};
use clap::Args;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};

/// Prints what a mount has done so far: cache hits, FIEMAP calls, scan state, memory
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// The mount point; every sharelens mount when missing
    #[arg(value_name = "MOUNTPOINT")]
    point: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let points = match &arguments.point {
        Some(point) => {
            answering::check(point)?;
            match std::fs::symlink_metadata(point) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(Failure::Sentence(format!("{point:?} does not exist")));
                }
                _ => vec![places::resolve(point)],
            }
        }
        None => all()?,
    };
    if points.is_empty() && !arguments.json {
        output::print("there is no sharelens mount\n")?;
        return Ok(());
    }
    let mut reports = Vec::new();
    for point in &points {
        match report(point) {
            Ok(report) => reports.push(report),
            // Of many, one that is dead or has just gone does not hide the others.
            Err(failure) if arguments.point.is_none() => reports.push(json!({
                "mountpoint": point.to_string_lossy(),
                "error": failure.to_string(),
            })),
            Err(failure) => return Err(failure),
        }
    }
    if arguments.json {
        match (&arguments.point, reports.first()) {
            (Some(_), Some(report)) => output::print_json(report)?,
            _ => output::print_json(&reports)?,
        }
        return Ok(());
    }
    let mut text = String::new();
    for report in &reports {
        let mut table = Table::new(&["", ""]);
        flatten("", report, &mut table);
        text.push_str(table.text().trim_start());
        text.push('\n');
    }
    output::print(&text)?;
    Ok(())
}

fn all() -> Result<Vec<PathBuf>, Failure> {
    Ok(mountinfo::read()?
        .into_iter()
        .filter(mountinfo::MountEntry::is_sharelens)
        .map(|entry| entry.point)
        .collect())
}

fn report(point: &Path) -> Result<Value, Failure> {
    let entry = mountinfo::topmost(point)?.ok_or_else(|| not_a_mount(point))?;
    answering::check(point)?;
    let stats =
        ask::patiently(point, Name::Stats, || {}).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOTCONN | libc::ECONNABORTED) => Failure::Sentence(format!(
                "the daemon of {point:?} is gone: `sharelens umount {point:?}`, then mount it again"
            )),
            Some(libc::EACCES) => Failure::Sentence(format!(
                "{point:?} lets only the user in who mounted it (allow_other lets all)"
            )),
            _ if entry.is_sharelens() => {
                Failure::Sentence(format!("asking {point:?}: {}", reason(&error)))
            }
            _ => not_a_mount(point),
        })?;
    let version = ask::text(point, Name::Version).unwrap_or_default();
    let stats: Value = serde_json::from_str(&stats).unwrap_or(Value::String(stats));
    Ok(json!({
        "mountpoint": point.to_string_lossy(),
        "source": entry.source,
        "options": entry.options,
        "version": version,
        "stats": stats,
    }))
}

fn not_a_mount(point: &Path) -> Failure {
    Failure::Sentence(format!("{point:?} is not the root of a sharelens mount"))
}

fn flatten(prefix: &str, value: &Value, table: &mut Table) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let name = match prefix {
                    "" | "stats" => name.clone(),
                    _ => format!("{prefix}.{name}"),
                };
                flatten(&name, field, table);
            }
        }
        Value::String(text) => {
            table.row(vec![prefix.to_owned(), printable(text.as_bytes())]);
        }
        other => table.row(vec![prefix.to_owned(), other.to_string()]),
    }
}
