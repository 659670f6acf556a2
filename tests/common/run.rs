//! Running programs with a time limit, so that a hanging mount fails a test instead of hanging it.

use std::ffi::OsStr;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long any program may take.
pub const LIMIT: Duration = Duration::from_secs(300);

/// What a program said and how it ended.
#[derive(Debug)]
pub struct Output {
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    pub fn ok(&self) -> bool {
        self.code == Some(0)
    }
}

/// Runs a command to its end; panics after [`LIMIT`].
pub fn output(command: &mut Command) -> Output {
    output_within(command, LIMIT)
}

/// Runs a command to its end; panics after `limit`.
pub fn output_within(command: &mut Command, limit: Duration) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let mut out = child.stdout.take().unwrap();
    let mut err = child.stderr.take().unwrap();
    let out = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = out.read_to_end(&mut text);
        text
    });
    let err = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = err.read_to_end(&mut text);
        text
    });
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > limit {
            let _ = child.kill();
            panic!("{command:?} did not end within {limit:?}");
        }
        let pause = if started.elapsed() < Duration::from_millis(50) {
            1
        } else {
            10
        };
        std::thread::sleep(Duration::from_millis(pause));
    };
    Output {
        code: status.code(),
        stdout: String::from_utf8_lossy(&out.join().unwrap()).into_owned(),
        stderr: String::from_utf8_lossy(&err.join().unwrap()).into_owned(),
    }
}

/// Runs a program; its output whatever its exit code.
pub fn try_run<I, S>(program: impl AsRef<OsStr>, arguments: I) -> Output
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    output(Command::new(program).args(arguments))
}

/// Runs a program that must succeed; its standard output.
pub fn run<I, S>(program: impl AsRef<OsStr>, arguments: I) -> String
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(program);
    command.args(arguments);
    let result = output(&mut command);
    assert!(
        result.ok(),
        "{command:?} ended with {:?}\n{}{}",
        result.code,
        result.stdout,
        result.stderr
    );
    result.stdout
}
