//! Shows that the test can fail: each deliberate fault of the engine is caught.
//!
//! `cargo test --features faults --test differential -- --nocapture faults` prints the table of
//! `docs/exactness.md`.

use crate::generate::Style;
use crate::history::History;
use crate::images::{Kind, image};
use crate::mounted::{Io, Mounting, run};

/// The name of a fault, and whether this filesystem has what it breaks.
const FAULTS: [(&str, &[Kind]); 7] = [
    ("no-sharer-invalidation", &[Kind::Xfs, Kind::Btrfs]),
    ("no-sharer-writeback", &[Kind::Xfs, Kind::Btrfs]),
    // btrfs removes at once.
    ("no-removal-flush", &[Kind::Xfs]),
    ("ctime-only", &[Kind::Xfs, Kind::Btrfs]),
    ("release-ends-writing", &[Kind::Xfs, Kind::Btrfs]),
    ("clone-source-forgotten", &[Kind::Xfs, Kind::Btrfs]),
    ("no-barrier", &[Kind::Xfs, Kind::Btrfs]),
];

/// Operations in one history, and how many histories are tried.
const STEPS: usize = 200;
const HISTORIES: u64 = 40;

#[test]
fn every_deliberate_fault_is_caught() {
    println!("| fault | filesystem | caught after operations | in the history |");
    println!("| --- | --- | --- | --- |");
    let mut missed = Vec::new();
    for (fault, kinds) in FAULTS {
        for kind in kinds {
            match caught(*kind, fault) {
                Some((operations, seed)) => {
                    println!("| {fault} | {kind:?} | {operations} | {} |", seed + 1);
                }
                None => missed.push((fault, kind)),
            }
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}

/// After how many operations a fault is caught, and in which history.
fn caught(kind: Kind, fault: &'static str) -> Option<(u64, u64)> {
    let image = image(kind)?;
    let mounting = Mounting {
        io: Io::Passthrough,
        options: String::new(),
        fault,
    };
    let mut operations = 0;
    for seed in 0..HISTORIES {
        let history = History::drawn(seed, Style::drawn(seed), STEPS);
        let (report, result) = run(&image, &mounting, seed, &history);
        operations += report.tally.operations();
        if let Err(failure) = result {
            assert!(failure.is_stale(), "{fault}: {failure}");
            return Some((operations, seed));
        }
    }
    None
}
