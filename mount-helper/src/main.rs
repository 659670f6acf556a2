//! `mount.sharelens`: the mount(8) and fstab helper of sharelens.

use std::process::ExitCode;

fn main() -> ExitCode {
    sharelens::cli::mount_helper::main()
}
