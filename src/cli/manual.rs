//! `sharelens manual`: the man pages, made from the same definitions as the help.

use super::{Cli, Failure, Outcome, mount_helper, output};
use crate::sys::reason;
use clap::{Args, CommandFactory};
use clap_mangen::Man;
use std::io;
use std::path::{Path, PathBuf};

/// Prints the man page, or writes all of them into a directory
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Write sharelens.1, a page for each command, and mount.sharelens.8 there
    #[arg(value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let mut command = Cli::command();
    command.build();
    let Some(directory) = &arguments.directory else {
        output::print(&String::from_utf8_lossy(&page(command, "1")?))?;
        return Ok(());
    };
    for sub in command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help")
    {
        let name = format!("sharelens-{}", sub.get_name());
        write(directory, &format!("{name}.1"), &page(sub.clone(), "1")?)?;
    }
    write(directory, "sharelens.1", &page(command, "1")?)?;
    let helper = mount_helper::Helper::command();
    write(directory, "mount.sharelens.8", &page(helper, "8")?)
}

fn page(command: clap::Command, section: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(command).section(section).render(&mut text)?;
    Ok(text)
}

fn write(directory: &Path, name: &str, text: &[u8]) -> Outcome {
    let path = directory.join(name);
    std::fs::write(&path, text).map_err(|error| {
        Failure::Sentence(format!(
            "writing {}: {}",
            output::shown(&path),
            reason(&error)
        ))
    })
}
