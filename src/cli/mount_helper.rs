//! `mount.sharelens`: what mount(8), `mount -a`, systemd and autofs run for the type `sharelens`
//! (under the name `mount.fuse.sharelens` for `fuse.sharelens`).
//!
//! Exit codes are mount(8)'s: 0 mounted, 1 wrong usage or not permitted, 32 the mount failed.
//! Returns only when mounted or failed; the reason goes to standard error and to the system log.

use super::output;
use crate::mount::{self, Options, Refusal, Request, Unknown, logging, option_table};
use clap::Parser;
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: u8 = 1;
const MOUNT_FAILED: u8 = 32;

/// Mounts a sharelens view; run by mount(8)
///
/// A line for fstab: `/srv/data  /mnt/view  sharelens  allow_other,nofail  0  0`.
/// SOURCE and MOUNTPOINT may be the same directory: the view then covers it in place.
#[derive(Debug, Parser)]
#[command(name = "mount.sharelens", version, after_help = option_table::help())]
pub struct Helper {
    /// The directory to be shown
    source: PathBuf,
    /// Where to show it
    #[arg(value_name = "MOUNTPOINT")]
    point: PathBuf,
    /// Mount options, comma separated
    #[arg(short = 'o', value_name = "OPTS")]
    options: Vec<String>,
    /// Pass over options that are not known
    #[arg(short = 's')]
    sloppy: bool,
    /// Do everything but mount
    #[arg(short = 'f')]
    fake: bool,
    /// Kept for mount(8): there is no mtab to write
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Say what is done
    #[arg(short = 'v')]
    verbose: bool,
    /// A file that stands for the mount namespace to mount in
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<PathBuf>,
    /// The type as mount(8) was given it
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,
}

/// Runs the helper's command line.
#[must_use]
pub fn main() -> ExitCode {
    let helper = match Helper::try_parse() {
        Ok(helper) => helper,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::from(USAGE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match run(&helper) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            if !matches!(refusal, Refusal::AlreadySaid) {
                output::complain(&refusal);
                logging::to_system();
                log::error!("mount.sharelens: {refusal}");
            }
            let usage = refusal.is_usage() || matches!(refusal, Refusal::NotPermitted { .. });
            ExitCode::from(if usage { USAGE } else { MOUNT_FAILED })
        }
    }
}

fn run(helper: &Helper) -> Result<(), Refusal> {
    let mut options = Options::default();
    let unknown = if helper.sloppy {
        Unknown::Tolerate
    } else {
        Unknown::Refuse
    };
    for list in &helper.options {
        options.parse(list, unknown)?;
    }
    if let Some(path) = &helper.namespace {
        let context = format!("entering the mount namespace {path:?}");
        let namespace = File::open(path).map_err(Refusal::system(context.clone()))?;
        setns(namespace, CloneFlags::CLONE_NEWNS).map_err(Refusal::system(context))?;
    }
    let request = Request {
        source: helper.source.clone(),
        point: Some(helper.point.clone()),
        options,
        given: helper.options.clone(),
    };
    let say = |text: &str| {
        if helper.verbose {
            output::complain(&text);
        }
    };
    if helper.fake {
        let places = mount::check(&request)?;
        say(&format!(
            "would mount {:?} on {:?}",
            places.source_path, places.point
        ));
        return Ok(());
    }
    mount::mount(&request, |note| {
        output::complain(&format_args!("note: {note}"))
    })?;
    say(&format!(
        "mounted {:?} on {:?}",
        helper.source, helper.point
    ));
    Ok(())
}
