//! The `sharelens` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    sharelens::cli::main()
}
