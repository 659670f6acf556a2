//! Where log messages go: the file of `log_file`, else standard error in the foreground and the
//! system log in the background.

use super::options::Options;
use super::refusal::Refusal;
use env_logger::{Builder, Target};
use log::LevelFilter;
use std::fs::{File, OpenOptions};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use syslog::{Facility, Formatter3164, LogFormat, Severity};

/// Where the system log (syslog, or the journal behind it) takes messages.
pub const SYSTEM_LOG: &str = "/dev/log";

/// A place for messages, opened before the daemon leaves the terminal and the directory that the
/// user knows.
#[derive(Debug)]
pub(super) enum Log {
    File(File),
    Terminal,
    System,
}

impl Log {
    /// The place that the options name.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub(super) fn open(options: &Options, background: bool) -> Result<Self, Refusal> {
        let Some(path) = &options.log_file else {
            return Ok(if background {
                Self::System
            } else {
                Self::Terminal
            });
        };
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.map(Self::File)
            .map_err(Refusal::system(format!("opening the log file {path:?}")))
    }

    /// Logs there from now on.
    pub(super) fn begin(self, level: Option<LevelFilter>) {
        let mut builder = builder(level, LevelFilter::Info);
        match self {
            Self::Terminal => return install(builder.build()),
            Self::File(file) => install(builder.target(Target::Pipe(Box::new(file))).build()),
            Self::System => begin_system(builder),
        }
        // Nobody reads the standard error of a daemon in the background.
        std::panic::set_hook(Box::new(|panic| log::error!("{panic}")));
    }
}

/// Logs to the system log. Where there is none, messages are lost.
pub fn to_system() {
    begin_system(builder(None, LevelFilter::Info));
}

fn builder(level: Option<LevelFilter>, default: LevelFilter) -> Builder {
    let mut builder = Builder::new();
    builder.filter_level(level.unwrap_or(default));
    if level.is_none() {
        builder.parse_default_env();
    }
    builder.format_timestamp_millis();
    builder
}

fn begin_system(mut builder: Builder) {
    if let Ok(log) = SystemLog::new(builder.build(), Path::new(SYSTEM_LOG)) {
        let most = log.filter.filter();
        begin(log, most);
    }
}

fn install(logger: env_logger::Logger) {
    let most = logger.filter();
    begin(logger, most);
}

fn begin(log: impl log::Log + 'static, most: LevelFilter) {
    // Fails only when a logger is there already, which then is as good.
    if log::set_boxed_logger(Box::new(WithoutTheGone(log))).is_ok() {
        log::set_max_level(most);
    }
}

/// Leaves out what is no error: a reply (of the FUSE library) to who was interrupted and does not
/// wait any more, for which the kernel says `ENOENT`.
struct WithoutTheGone<L>(L);

impl<L: log::Log> log::Log for WithoutTheGone<L> {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        self.0.enabled(metadata)
    }

    fn log(&self, record: &log::Record<'_>) {
        let is_reply = record.target() == "fuser::reply";
        if !is_reply || !record.args().to_string().ends_with("(os error 2)") {
            self.0.log(record);
        }
    }

    fn flush(&self) {
        self.0.flush();
    }
}

/// Sends each message by itself, so that a system log that is started later, or anew, gets what
/// is said from then on.
struct SystemLog {
    filter: env_logger::Logger,
    format: Formatter3164,
    path: std::path::PathBuf,
    socket: UnixDatagram,
}

impl SystemLog {
    fn new(filter: env_logger::Logger, path: &Path) -> std::io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        // A message may be lost, but nothing waits for the system log.
        socket.set_nonblocking(true)?;
        Ok(Self {
            filter,
            format: Formatter3164 {
                facility: Facility::LOG_DAEMON,
                hostname: None,
                process: "sharelens".to_owned(),
                pid: std::process::id(),
            },
            path: path.to_owned(),
            socket,
        })
    }
}

impl log::Log for SystemLog {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        self.filter.enabled(metadata)
    }

    fn log(&self, record: &log::Record<'_>) {
        if !self.filter.matches(record) {
            return;
        }
        let severity = match record.level() {
            log::Level::Error => Severity::LOG_ERR,
            log::Level::Warn => Severity::LOG_WARNING,
            log::Level::Info => Severity::LOG_INFO,
            log::Level::Debug | log::Level::Trace => Severity::LOG_DEBUG,
        };
        let mut message = Vec::new();
        if self
            .format
            .format(&mut message, severity, record.args())
            .is_ok()
        {
            let _ = self.socket.send_to(&message, &self.path);
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::Log as _;
    use std::time::Duration;

    #[test]
    fn a_system_log_that_starts_later_or_anew_gets_what_is_said_from_then_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut filter = builder(Some(LevelFilter::Info), LevelFilter::Off);
        let log = SystemLog::new(filter.build(), &path).unwrap();
        let say = |level, text| {
            log.log(
                &log::Record::builder()
                    .level(level)
                    .args(format_args!("{text}"))
                    .build(),
            );
        };
        say(log::Level::Info, "lost");
        for text in ["first", "second"] {
            let listener = UnixDatagram::bind(&path).unwrap();
            listener
                .set_read_timeout(Some(Duration::from_secs(10)))
                .unwrap();
            say(log::Level::Debug, "not wanted");
            say(log::Level::Warn, text);
            let mut room = [0; 512];
            let length = listener.recv(&mut room).unwrap();
            let got = std::str::from_utf8(room.get(..length).unwrap()).unwrap();
            // LOG_DAEMON and LOG_WARNING of syslog(3).
            assert!(got.starts_with("<28>"), "{got}");
            let end = format!("sharelens[{}]: {text}", std::process::id());
            assert!(got.ends_with(&end), "{got}");
            std::fs::remove_file(&path).unwrap();
        }
    }
}
