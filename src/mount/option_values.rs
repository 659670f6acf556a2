//! Values of mount options. What is wrong is answered with what would be right.

use crate::extent::Bytes;
use std::time::Duration;

pub(super) fn one_of<T: Copy>(value: &str, choices: &[(&str, T)]) -> Result<T, String> {
    choices
        .iter()
        .find(|(name, _)| *name == value)
        .map(|(_, choice)| *choice)
        .ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            format!("choose one of {}", names.join(", "))
        })
}

pub(super) fn seconds(value: &str) -> Result<Duration, String> {
    value
        .parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "give seconds, such as 30 or 0.5".to_owned())
}

pub(super) fn bytes(value: &str) -> Result<Bytes, String> {
    let wrong = || "give bytes, such as 268435456 or 256M".to_owned();
    let (digits, unit) = match value.char_indices().next_back() {
        Some((at, suffix)) if suffix.is_ascii_alphabetic() => {
            let shift = match suffix.to_ascii_uppercase() {
                'K' => 10,
                'M' => 20,
                'G' => 30,
                'T' => 40,
                _ => return Err(wrong()),
            };
            (value.get(..at).unwrap_or_default(), 1u64 << shift)
        }
        _ => (value, 1),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number
        .checked_mul(unit)
        .map(Bytes)
        .ok_or_else(|| "more bytes than any machine has".to_owned())
}
