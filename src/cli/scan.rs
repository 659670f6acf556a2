//! `sharelens scan`.

use super::source::{self, Bar, Source};
use super::{Failure, Outcome, front, output};
use crate::mount::answering;
use clap::Args;
use serde_json::json;
use std::io;
use std::path::PathBuf;

/// Has a mount read a directory with everything below, so that later questions are answered at once
///
/// May be interrupted: the mount goes on with what it has begun, and keeps what is known.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// A directory in a sharelens mount
    #[arg(value_name = "PATH", default_value = ".")]
    path: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let path = &arguments.path;
    answering::check(path)?;
    front::of(path, || scan(arguments))
}

fn scan(arguments: &Arguments) -> Outcome {
    let path = &arguments.path;
    let refused =
        |error: io::Error| Failure::Sentence(format!("{path:?}: {}", source::explain(&error)));
    if std::fs::metadata(path).map_err(refused)?.is_dir() && source::mount_of(path).is_none() {
        return Err(Failure::Sentence(format!(
            "{path:?} is not in a sharelens mount, so nothing would be kept; `sharelens du` reads a directory without one"
        )));
    }
    let (source, top) = Source::of(path).map_err(refused)?;
    let bar = Bar::new();
    let read = source
        .prepare(&top, &bar)
        .and_then(|()| source.totals(&top, &bar));
    bar.end();
    let totals = read.map_err(refused)?;
    let state = source.state().unwrap_or_default();
    if arguments.json {
        output::print_json(&json!({
            "path": path.to_string_lossy(),
            "files": totals.files,
            "dirs": totals.dirs,
            "bytes": totals.numbers.bytes.0,
            "scan": state,
        }))?;
        return Ok(());
    }
    output::print(&format!(
        "{}: {} files in {} directories, {}\n",
        output::shown(path),
        totals.files,
        totals.dirs.saturating_add(1),
        output::amount(totals.numbers.bytes.0, true)
    ))?;
    let skipped = source::skipped(&state);
    if !skipped.is_empty() {
        output::print("left out in this mount so far (repeated readings count again):\n")?;
        for what in skipped {
            output::print(&format!("  {what}\n"))?;
        }
    }
    Ok(())
}
