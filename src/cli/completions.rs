//! `sharelens completions`.

use super::{Cli, Outcome, output};
use clap::{Args, CommandFactory};

/// Prints completions for a shell, made from the same definitions as the help
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The shell
    shell: clap_complete::Shell,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "sharelens", &mut text);
    output::print(&String::from_utf8_lossy(&text))?;
    Ok(())
}
