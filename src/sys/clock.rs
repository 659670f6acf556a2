//! The clock that stamps ctimes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `CLOCK_REALTIME` since the epoch; zero if the clock is set before it.
#[must_use]
pub fn realtime() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
