//! `sharelens show --peers`: the files of a mount that share with one.

use super::output;
use super::source::mount_of;
use super::{Failure, Outcome};
use crate::mount::ask::{self, Peers, Scan};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Lists who shares with each of these files: the paths alone, below the name of the file where
/// there are several.
pub(super) fn run(files: &[PathBuf], as_json: bool) -> Outcome {
    let mut objects = Vec::new();
    let mut text = Vec::new();
    let mut failed = false;
    for file in files {
        let mount = mount_of(file);
        match ask::peers(file, || {}) {
            Ok(found) => {
                let point = mount.unwrap_or_default();
                let paths: Vec<PathBuf> = found.paths.iter().map(|path| point.join(path)).collect();
                if files.len() > 1 && !as_json {
                    let break_before = if text.is_empty() { "" } else { "\n" };
                    text.extend_from_slice(break_before.as_bytes());
                    text.extend_from_slice(file.as_os_str().as_bytes());
                    text.extend_from_slice(b":\n");
                }
                for path in &paths {
                    text.extend_from_slice(path.as_os_str().as_bytes());
                    text.push(b'\n');
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
                output::complain(&format_args!("{}: {reason}", file.display()));
            }
        }
    }
    if as_json {
        output::print_json(&objects)?;
    } else {
        io::stdout().lock().write_all(&text)?;
    }
    if failed { Err(Failure::Said) } else { Ok(()) }
}

fn note_hidden(file: &Path, found: &Peers, as_json: bool) {
    if found.hidden > 0 && !as_json {
        output::complain(&format_args!(
            "note: {}: {} more share with it that belong to others, or stand where you may not look",
            file.display(),
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
            _ => error.to_string(),
        };
    };
    let scanned = || matches!(ask::scan(mount, false), Ok(Scan::Known));
    match error.raw_os_error() {
        Some(libc::ENODATA) if scanned() => {
            "not known: only root can read which extents these files hold".to_owned()
        }
        Some(libc::ENODATA) => format!(
            "not known before the whole mount was scanned: `sharelens scan {}` does that",
            mount.display()
        ),
        Some(libc::EPERM) => {
            "who shares with it is told to root and to the file's owner only".to_owned()
        }
        Some(libc::EINVAL) => "only regular files share with others".to_owned(),
        Some(libc::ENOTTY) => {
            "the mount was made by an older version, which cannot list them".to_owned()
        }
        _ => error.to_string(),
    }
}
