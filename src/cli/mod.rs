//! The commands: one file each.
//!
//! Exit codes: 0 done, 1 the request failed, 2 wrong usage. What a command has to say goes to
//! standard output as a table or as JSON; what went wrong goes to standard error as one sentence.
//! A reader that closes the pipe early is content, so that is not an error.

mod clone;
mod completions;
mod direct;
mod doctor;
mod du;
mod front;
mod manual;
mod mount;
pub mod mount_helper;
mod named;
mod output;
mod peers;
mod refresh;
mod scan;
mod show;
mod source;
mod status;
mod umount;

use crate::mount::Refusal;
use crate::sys::reason;
use clap::{Parser, Subcommand};
use std::io;
use std::process::ExitCode;
use thiserror::Error;

/// Shows how much of every file and directory is shared by reflinks.
#[derive(Debug, Parser)]
#[command(name = "sharelens", version, about, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 the request failed, 2 wrong usage.\nBelow a mount, `getfattr -n user.reflink.summary FILE` answers as `sharelens show FILE` does."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Mount(mount::Arguments),
    #[command(alias = "unmount")]
    Umount(umount::Arguments),
    Show(show::Arguments),
    Du(du::Arguments),
    Scan(scan::Arguments),
    Status(status::Arguments),
    Refresh(refresh::Arguments),
    Doctor(doctor::Arguments),
    Clone(clone::Arguments),
    Completions(completions::Arguments),
    Manual(manual::Arguments),
}

/// Why a command failed.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("{0}")]
    Sentence(String),
    #[error("{}", reason(.0))]
    Output(#[from] io::Error),
    /// Everything was said already.
    #[error("")]
    Said,
}

type Outcome = Result<(), Failure>;

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Mount(arguments) => mount::run(&arguments),
        Command::Umount(arguments) => umount::run(&arguments),
        Command::Show(arguments) => show::run(&arguments),
        Command::Du(arguments) => du::run(&arguments),
        Command::Scan(arguments) => scan::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Refresh(arguments) => refresh::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Clone(arguments) => clone::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Manual(arguments) => manual::run(&arguments),
    };
    ExitCode::from(exit_code(outcome))
}

fn exit_code(outcome: Outcome) -> u8 {
    match outcome {
        Ok(()) => 0,
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(Failure::Said | Failure::Refused(Refusal::AlreadySaid)) => 1,
        Err(Failure::Refused(refusal)) => {
            output::complain(&refusal);
            if refusal.is_usage() { 2 } else { 1 }
        }
        Err(failure) => {
            output::complain(&failure);
            1
        }
    }
}
