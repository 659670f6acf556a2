//! Where log messages go: standard error in the foreground, the system log in the background.

use log::LevelFilter;

/// Logs to standard error. `level` comes before `RUST_LOG`; without either it is `default`.
pub fn to_stderr(level: Option<LevelFilter>, default: LevelFilter) {
    let mut builder = env_logger::Builder::new();
    builder.filter_level(default);
    match level {
        Some(level) => {
            builder.filter_level(level);
        }
        None => {
            builder.parse_default_env();
        }
    }
    builder.format_timestamp_millis();
    // Fails only when a logger is there already, which then is as good.
    let _ = builder.try_init();
}

/// Logs to the system log (syslog, or the journal behind it). Where there is none, nothing is
/// logged: the mount works all the same.
pub fn to_system(level: Option<LevelFilter>) {
    let level = level
        .or_else(level_of_environment)
        .unwrap_or(LevelFilter::Info);
    let formatter = syslog::Formatter3164 {
        facility: syslog::Facility::LOG_DAEMON,
        hostname: None,
        process: "sharelens".to_owned(),
        pid: std::process::id(),
    };
    if let Ok(logger) = syslog::unix(formatter) {
        let logger = Box::new(syslog::BasicLogger::new(logger));
        if log::set_boxed_logger(logger).is_ok() {
            log::set_max_level(level);
        }
    }
}

/// `RUST_LOG` as far as it is one level for everything.
fn level_of_environment() -> Option<LevelFilter> {
    std::env::var("RUST_LOG").ok()?.parse().ok()
}
