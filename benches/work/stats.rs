//! Asking sharelens: attributes, with the retry that a bounded wait asks for, and its counters.

use super::attribute;
use crate::harness::{Context, Result, interrupted};
use rustix::io::Errno;
use serde_json::Value;
use std::path::Path;

/// The value of virtual attribute `name` of `path`; asks again while the answer is not ready.
pub(crate) fn ask(path: &Path, name: &str) -> Result<String> {
    let name = attribute(name);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match rustix::fs::getxattr(path, name.as_str(), buffer.as_mut_slice()) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(String::from_utf8(buffer)?);
            }
            Err(Errno::AGAIN) => interrupted()?,
            Err(error) => return Err(error).context(format!("{name} of {}", path.display())),
        }
    }
}

/// The virtual attribute `name` of `path`, a number.
pub(crate) fn ask_number(path: &Path, name: &str) -> Result<u64> {
    let text = ask(path, name)?;
    text.parse()
        .context(format!("{name} of {}", path.display()))
}

/// The counter of this name, at whatever depth, in the `stats` of the mount at `root`.
pub(crate) fn counter(root: &Path, name: &str) -> Result<u64> {
    let text = ask(root, "stats")?;
    find(&serde_json::from_str(&text)?, name)
        .ok_or_else(|| format!("stats have no number {name}: {text}").into())
}

fn find(value: &Value, name: &str) -> Option<u64> {
    let object = value.as_object()?;
    let here = object.get(name).and_then(Value::as_u64);
    here.or_else(|| object.values().find_map(|value| find(value, name)))
}
