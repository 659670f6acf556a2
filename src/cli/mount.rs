//! `sharelens mount`.

use super::{Outcome, output};
use crate::mount::{self, Options, Request, Unknown, option_table};
use clap::Args;
use std::path::PathBuf;

/// Shows a directory at a mount point, or over itself, with the virtual attributes
///
/// Without MOUNTPOINT the view covers SOURCE itself (in place). Returns once the mount is ready;
/// the daemon goes on in the background and ends when the mount is unmounted.
#[derive(Args, Debug)]
#[command(after_long_help = option_table::help(), after_help = option_table::help())]
pub(crate) struct Arguments {
    /// Mount options, comma separated; may be given more than once
    #[arg(short = 'o', long = "options", value_name = "OPTS")]
    options: Vec<String>,
    /// Stay in the foreground and log to standard error
    #[arg(short, long)]
    foreground: bool,
    /// The directory to be shown
    source: PathBuf,
    /// Where to show it; in place when missing
    #[arg(value_name = "MOUNTPOINT")]
    point: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let point = arguments.point.as_ref().unwrap_or(&arguments.source);
    let mut options = parsed(Options::default(), &arguments.options)?;
    if options.remount {
        // What is not named stays as it is.
        mount::answering::check(point)?;
        options = parsed(mount::remount::present(point)?, &arguments.options)?;
    }
    options.foreground |= arguments.foreground;
    let request = Request {
        source: arguments.source.clone(),
        point: arguments.point.clone(),
        options,
        given: arguments.options.clone(),
    };
    mount::mount(&request, |note| {
        output::complain(&format_args!("note: {note}"))
    })?;
    Ok(())
}

fn parsed(mut options: Options, lists: &[String]) -> Result<Options, mount::Refusal> {
    for list in lists {
        options.parse(list, Unknown::Refuse)?;
    }
    Ok(options)
}
