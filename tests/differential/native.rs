//! Without a mount: the oracle is stable, and wrong ways of answering are caught.

use crate::answer::{CtimeOnly, OwnDataOnly, Settled, Teller};
use crate::common::Image;
use crate::generate::Style;
use crate::history::{Failure, History, Report, Runner, prepare};
use crate::images::{Kind, Source, image};
use crate::truth::Oracle;
use crate::world::World;
use std::collections::HashMap;
use std::path::Path;

/// Runs one history in a fresh directory of the image, the same directory in both roles.
fn run(
    image: &Image,
    seed: u64,
    operations: usize,
    style: Style,
    teller: impl Fn(Oracle) -> Box<dyn Teller>,
) -> (Report, Result<(), Failure>) {
    let history = History::drawn(seed, style, operations);
    let dir = Source::on(image);
    let oracle = |path: &Path| Oracle::new(path).unwrap();
    prepare(dir.path(), &history.before, seed).unwrap();
    let mut runner = Runner {
        mount: World::new(dir.path(), dir.path(), false, seed + 1),
        behind: World::new(dir.path(), dir.path(), false, seed + 2),
        oracle: oracle(dir.path()),
        teller: &mut *teller(oracle(dir.path())),
        watchdog: None,
        shared_names: false,
        report: Report::default(),
    };
    let result = runner.run(&history.steps);
    runner.finish(dir.path(), dir.path()).unwrap();
    (runner.report, result)
}

fn oracle_is_stable(kind: Kind) {
    let Some(image) = image(kind) else {
        return;
    };
    let mut total = Report::default();
    for seed in 0..10 {
        let style = Style {
            trees: true,
            ..Style::drawn(seed)
        };
        let (report, result) = run(&image, seed, 700, style, |oracle| Box::new(Settled(oracle)));
        if let Err(failure) = result {
            panic!("seed {seed} on {kind:?}: {failure}");
        }
        total.add(&report);
    }
    println!("{kind:?}: {total}");
    total.tally.assert_all_worked();
    assert!(total.sharing * 3 > total.checked, "few files share");
}

#[test]
fn oracle_is_stable_on_xfs() {
    oracle_is_stable(Kind::Xfs);
}

#[test]
fn oracle_is_stable_on_btrfs() {
    oracle_is_stable(Kind::Btrfs);
}

#[test]
fn oracle_is_stable_on_compressed_btrfs() {
    oracle_is_stable(Kind::BtrfsCompressed);
}

/// After how many steps a wrong way of answering is caught.
fn caught(kind: Kind, name: &str, teller: fn(Oracle) -> Box<dyn Teller>) {
    let Some(image) = image(kind) else {
        return;
    };
    let mut steps = 0;
    for seed in 0..10 {
        let (_, result) = run(&image, seed, 200, Style::drawn(seed), teller);
        match result {
            Ok(()) => steps += 200,
            Err(failure) => {
                assert!(!failure.reason.contains("ORACLE"), "{failure}");
                println!(
                    "{kind:?}: {name} caught after {} steps",
                    steps + failure.step
                );
                return;
            }
        }
    }
    panic!("{name} was not caught on {kind:?} in {steps} steps");
}

#[test]
fn writing_back_only_the_file_itself_is_caught() {
    for kind in [Kind::Xfs, Kind::Btrfs] {
        caught(kind, "own data only", |oracle| {
            Box::new(OwnDataOnly(oracle))
        });
    }
}

#[test]
fn trusting_ctime_is_caught() {
    for kind in [Kind::Xfs, Kind::Btrfs] {
        caught(kind, "ctime only", |oracle| {
            let known = HashMap::new();
            Box::new(CtimeOnly { oracle, known })
        });
    }
}
