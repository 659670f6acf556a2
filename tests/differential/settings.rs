//! What the environment asks for.
//!
//! | variable | meaning | default |
//! | --- | --- | --- |
//! | `SEED` | seed of the first history | the clock for soaks, else 0 |
//! | `STEPS` | operations in one history | 1000 |
//! | `FS` | `Xfs`, `Btrfs`, `BtrfsCompressed` | all |
//! | `IO` | `Passthrough`, `Cached` | both |
//! | `BEHIND` | percentage of operations done behind the mount | 0 |
//! | `TREES` | 1: ask about directories too, and move them | 0 |
//! | `SECONDS` | length of a soak | 60 |
//! | `SHRINK` | seconds to spend on making a failing history shorter | none |

use crate::generate::Style;
use crate::images::Kind;
use crate::mounted::Io;
use std::env;
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime};

pub struct Settings {
    pub started: Instant,
    pub seed: u64,
    pub steps: usize,
    pub kinds: Vec<Kind>,
    pub ios: Vec<Io>,
    pub behind: u8,
    pub trees: bool,
    pub seconds: Duration,
    pub shrink: Option<Duration>,
}

impl Settings {
    pub fn get() -> Self {
        let clock = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let kinds = [Kind::Xfs, Kind::Btrfs, Kind::BtrfsCompressed];
        Self {
            started: Instant::now(),
            seed: number("SEED").unwrap_or(clock * 1000),
            steps: number("STEPS").unwrap_or(1000),
            kinds: chosen("FS", &kinds),
            ios: chosen("IO", &[Io::Passthrough, Io::Cached]),
            behind: number("BEHIND").unwrap_or(0),
            trees: number("TREES").unwrap_or(0) > 0,
            seconds: Duration::from_secs(number("SECONDS").unwrap_or(60)),
            shrink: number("SHRINK").map(Duration::from_secs),
        }
    }

    /// The style of that seed.
    pub fn style(&self, seed: u64) -> Style {
        Style {
            behind: self.behind,
            snapshots: self.behind > 0,
            trees: self.trees,
            ..Style::drawn(seed)
        }
    }

    /// The first filesystem asked for.
    pub fn kind(&self) -> Kind {
        self.kinds[0]
    }

    /// The first I/O mode asked for.
    pub fn io(&self) -> Io {
        self.ios[0]
    }
}

fn number<T: FromStr>(name: &str) -> Option<T> {
    let value = env::var(name).ok()?;
    match value.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{name}={value} is not a number"),
    }
}

/// Those of `all` that the variable names by the beginning of their names; all without it.
fn chosen<T: Copy + std::fmt::Debug>(name: &str, all: &[T]) -> Vec<T> {
    let Ok(value) = env::var(name) else {
        return all.to_vec();
    };
    let wanted = value.to_lowercase();
    let named = |one: &&T| format!("{one:?}").to_lowercase() == wanted;
    let chosen: Vec<T> = all.iter().filter(named).copied().collect();
    assert!(!chosen.is_empty(), "{name}={value} is none of {all:?}");
    chosen
}
