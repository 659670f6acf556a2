//! `sharelens show --peers`: the files of a mount that share with one.

use super::output;
use super::source::mount_of;
use super::{Failure, Outcome};
use crate::mount::ask::{self, Peers, Scan};
use crate::sys::reason;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};

/// Lists who shares with each of these files: the paths alone, below the name of the file where
/// there are several.
pub(super) fn run(files: &[PathBuf], as_json: bool) -> Outcome {
    let mut objects = Vec::new();
    let mut text = String::new();
    let mut failed = false;
    for file in files {
        let mount = mount_of(file);
        match ask::peers(file, || {}) {
            Ok(found) => {
                let point = mount.unwrap_or_default();
                let paths: Vec<PathBuf> = found.paths.iter().map(|path| point.join(path)).collect();
                if files.len() > 1 && !as_json {
                    let break_before = if text.is_empty() { "" } else { "\n" };
                    text.push_str(&format!("{break_before}{}:\n", output::shown(file)));
                }
                for path in &paths {
                    text.push_str(&output::shown(path));
                    text.push('\n');
                }
                note_hidden(file, &found, as_json);
                objects.push(described(file, &paths, found.hidden));
            }
            Err(error) => {
                failed = true;
                let reason = explain(&error, mount.as_deref());
                if as_json {
                    objects.push(json!({ "path": file.to_string_lossy(), "error": reason }));
                }
                output::complain(&format_args!("{}: {reason}", output::shown(file)));
            }
        }
    }
    if as_json {
        output::print_json(&objects)?;
    } else {
        output::print(&text)?;
    }
    if failed { Err(Failure::Said) } else { Ok(()) }
}

fn note_hidden(file: &Path, found: &Peers, as_json: bool) {
    if found.hidden > 0 && !as_json {
        output::complain(&format_args!(
            "note: {}: {} more share with it that belong to others, or stand where you may not look",
            output::shown(file),
            found.hidden
        ));
    }
}

fn described(file: &Path, paths: &[PathBuf], hidden: u64) -> Value {
    let paths: Vec<_> = paths.iter().map(|path| path.to_string_lossy()).collect();
    json!({ "path": file.to_string_lossy(), "peers": paths, "hidden": hidden })
}

/// What an errno means for somebody who asked who shares.
fn explain(error: &io::Error, mount: Option<&Path>) -> String {
    let Some(mount) = mount else {
        return match error.raw_os_error() {
            Some(libc::ENOTTY) => {
                "not in a sharelens mount: only a mount knows who shares with a file".to_owned()
            }
            _ => reason(error).to_string(),
        };
    };
    let scanned = || matches!(ask::scan(mount, false), Ok(Scan::Known));
    match error.raw_os_error() {
        Some(libc::ENODATA) if scanned() => {
            "not known: something in the mount may not be read, or only root can tell which extents it holds".to_owned()
        }
        Some(libc::ENODATA) => format!(
            "not known before the whole mount was scanned: `sharelens scan {}` does that",
            output::shown(mount)
        ),
        Some(libc::EPERM) => {
            "who shares with it is told to root and to the file's owner only".to_owned()
        }
        Some(libc::EINVAL) => "only regular files share with others".to_owned(),
        Some(libc::ENOTTY) => {
            "the mount was made by an older version, which cannot list them".to_owned()
        }
        _ => reason(error).to_string(),
    }
}
