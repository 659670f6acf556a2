//! Running programs, timed.

use super::error::{Context, Result};
use super::interrupt::{interrupted, start};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a benchmark runs a program.
pub(crate) trait Run {
    /// Runs to the end with its output thrown away; the time from start to end. An exit code
    /// other than 0 is an error that carries what the program wrote to standard error.
    fn timed(&mut self) -> Result<Duration>;

    /// As [`Run::timed`], with exit code 1 as good as 0 (`grep` that found nothing).
    fn timed_or_one(&mut self) -> Result<Duration>;

    /// Runs to the end; what it wrote to standard output.
    fn text(&mut self) -> Result<String>;
}

impl Run for Command {
    fn timed(&mut self) -> Result<Duration> {
        time(self, &[0])
    }

    fn timed_or_one(&mut self) -> Result<Duration> {
        time(self, &[0, 1])
    }

    fn text(&mut self) -> Result<String> {
        interrupted()?;
        let name = format!("{self:?}");
        self.stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = start(self).context(name.as_str())?;
        let output = child.wait_with_output().context(name.as_str())?;
        check(&name, output.status.code(), &[0], &output.stderr)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn time(command: &mut Command, good: &[i32]) -> Result<Duration> {
    interrupted()?;
    let name = format!("{command:?}");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let begin = Instant::now();
    let child = start(command).context(name.as_str())?;
    let output = child.wait_with_output().context(name.as_str())?;
    let time = begin.elapsed();
    check(&name, output.status.code(), good, &output.stderr)?;
    Ok(time)
}

fn check(name: &str, code: Option<i32>, good: &[i32], stderr: &[u8]) -> Result<()> {
    if code.is_some_and(|code| good.contains(&code)) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(stderr);
    let end = match code {
        Some(code) => format!("exit code {code}"),
        None => "ended by a signal".to_owned(),
    };
    Err(format!("{name}: {end}: {}", said.trim()).into())
}

/// The arguments of this process as one line that a shell takes.
pub(crate) fn shell_words(arguments: impl Iterator<Item = String>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    arguments
        .map(|word| {
            if !word.is_empty() && word.chars().all(plain) {
                word
            } else {
                format!("'{}'", word.replace('\'', r"'\''"))
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}
