//! Mounting: options, places, privileges, limits, going to the background, signals, unmounting.
//!
//! [`mount`] is the whole of it: what can be checked is checked before anything is started, each
//! refusal is one sentence with its remedy, and success means that the root of the mount has
//! answered a request.
//!
//! Invariants:
//! - the daemon holds the source open from before the mount and never touches its own mount;
//! - whatever ends the daemon in an orderly way leaves nothing mounted.

pub mod answering;
pub mod ask;
pub mod attach;
mod below;
pub mod busy;
pub mod logging;
pub mod mountinfo;
pub mod option_table;
mod option_values;
pub mod options;
pub mod places;
mod ready;
pub mod refusal;
pub mod remount;
mod session;
mod signals;
mod systemd;
pub mod umount;

pub use options::{OptionError, Options, Unknown};
pub use refusal::Refusal;

use places::Places;
use ready::Split;
use std::path::{Path, PathBuf};

/// What is to be mounted where.
#[derive(Clone, Debug)]
pub struct Request {
    /// The directory to be shown.
    pub source: PathBuf,
    /// Where; `None` covers the source itself.
    pub point: Option<PathBuf>,
    /// How.
    pub options: Options,
    /// The lists that `options` were parsed from.
    pub given: Vec<String>,
}

/// Checks a request without mounting (mount(8)'s `-f`).
///
/// # Errors
/// The first reason why it would be refused.
pub fn check(request: &Request) -> Result<Places, Refusal> {
    for path in request.point.iter().chain([&request.source]) {
        answering::check(path)?;
    }
    attach::check(&request.options)?;
    places::open_places(&request.source, request.point.as_deref())
}

/// Mounts. In the background it returns once the mount is ready, in the process that called;
/// the daemon itself does not return before the mount has ended. In the foreground it returns
/// when the mount has ended. Must be called while the process has one thread. `note` is told
/// what a person should know of a mount that succeeds.
///
/// # Errors
/// Why not; nothing is mounted then.
pub fn mount(request: &Request, note: impl Fn(&str)) -> Result<(), Refusal> {
    let options = &request.options;
    if options.remount {
        let point = request.point.as_ref().unwrap_or(&request.source);
        answering::check(point)?;
        return remount::remount(&places::resolve(point), options, &request.given);
    }
    let places = check(request)?;
    for notice in &places.notices {
        note(notice);
    }
    if places.in_place {
        tell_who_stays_below(&places.point, &note);
    }
    let background = !options.foreground;
    let log = logging::Log::open(options, background)?;
    match ready::split(&places.point, background).map_err(Refusal::system("starting the daemon"))? {
        Split::Front(answer) => answer,
        Split::Daemon(end) => {
            log.begin(options.log);
            session::serve(places, request, end).inspect_err(|error| log::error!("{error}"))
        }
    }
}

/// Processes that were in the directory before it was covered go on seeing it uncovered.
fn tell_who_stays_below(point: &Path, note: &impl Fn(&str)) {
    let users = busy::users_below(point);
    if users.is_empty() {
        return;
    }
    let (processes, were, see) = match users.len() {
        1 => ("process", "was", "sees"),
        _ => ("processes", "were", "see"),
    };
    note(&format!(
        "{} {processes} {were} in the directory before and still {see} it uncovered: {}; what is changed there is a change from outside; in a shell, `cd .` enters the mount",
        users.len(),
        busy::describe(&users),
    ));
}
