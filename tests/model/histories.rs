//! The settings that histories are run in. Together they make more than 100,000 operations.

use crate::history::{History, Op, Setting, operation};
use crate::sim::Abilities;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};
use sharelens::sharing::Engine;

/// Operations a history has at most.
const LENGTH: usize = 120;

/// Histories for each setting; `MODEL_CASES` sets another number.
fn cases() -> u32 {
    std::env::var("MODEL_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(600)
}

pub fn abilities() -> Abilities {
    Abilities {
        by_item: false,
        items_readable: true,
        watches: true,
        may_flush: true,
        may_test_leases: true,
    }
}

pub fn setting() -> Setting {
    Setting {
        abilities: abilities(),
        passthrough: true,
        cache_size: 1 << 20,
    }
}

fn never_stale(setting: Setting) {
    never_stale_in(setting, cases());
}

fn never_stale_in(setting: Setting, cases: u32) {
    let foreign = setting.abilities.watches;
    let mut runner = TestRunner::new(Config {
        cases,
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..Config::default()
    });
    let operations = std::cell::Cell::new(0);
    let histories = prop::collection::vec(operation(foreign), 1..LENGTH);
    let result = runner.run(&histories, |ops: Vec<Op>| {
        operations.set(operations.get() + ops.len());
        let mut history = History::new(setting, Engine::new);
        match history.run(&ops) {
            Ok(()) => Ok(()),
            Err((at, wrong)) => Err(TestCaseError::fail(format!(
                "operation {at} of {setting:?}: inode {}: answer {:?}, truth {:?}",
                wrong.ino, wrong.answer, wrong.truth
            ))),
        }
    });
    println!("{} operations", operations.get());
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, ops)) => panic!("{reason}\n{ops:?}"),
        Err(error) => panic!("{error}"),
    }
}

/// Histories that were answered wrongly once, or would be without one of the engine's rules.
#[test]
fn known_ones() {
    let clone = |from, to, source| Op::ForeignClone {
        from,
        to,
        source,
        target: 0,
        length: 1,
    };
    let write = |slot| Op::ForeignWrite {
        slot,
        offset: 9,
        length: 1,
    };
    let later = || Op::TimePasses(2_500_000_000);
    // The map of the clone is read by a change of it before the clone is known to be one.
    let read_before_reported = vec![
        Op::Unlink(0),
        Op::Ask(1),
        Op::Ask(3),
        Op::AskDuring(1),
        clone(1, 2, 0),
        Op::AskDuring(1),
        Op::Open {
            slot: 2,
            direct: false,
        },
        Op::Ask(1),
    ];
    // What a file shared once is shared by it again, which those who kept it do not know.
    let shared_again = vec![
        Op::Create(4),
        Op::Open {
            slot: 4,
            direct: false,
        },
        Op::Write {
            slot: 4,
            offset: 0,
            length: 1,
        },
        Op::Close(4),
        Op::CloneWhole { from: 4, to: 5 },
        Op::Ask(5),
        later(),
        Op::Truncate { slot: 5, size: 0 },
        Op::Ask(4),
        later(),
        Op::Ask(3),
        clone(4, 5, 0),
        Op::Ask(4),
    ];
    // The same with a file that others keep changing.
    let shared_again_by_others = vec![
        Op::Create(4),
        clone(1, 4, 2),
        Op::Ask(1),
        write(4),
        Op::Ask(1),
        Op::ForeignTruncate { slot: 4, size: 0 },
        Op::Ask(1),
        clone(1, 4, 2),
        Op::Ask(1),
    ];
    // A question sees the clone in the map of its destination before it is reported.
    let seen_before_reported = vec![
        Op::Create(4),
        Op::Ask(1),
        Op::AskDuring(4),
        clone(1, 4, 2),
        Op::Ask(1),
    ];
    let seen_after_a_report = vec![
        Op::Create(4),
        Op::Ask(1),
        write(4),
        Op::AskDuring(4),
        clone(1, 4, 2),
        Op::Ask(1),
    ];
    for ops in [
        read_before_reported,
        shared_again,
        shared_again_by_others,
        seen_before_reported,
        seen_after_a_report,
    ] {
        for passthrough in [true, false] {
            let mut history = History::new(
                Setting {
                    passthrough,
                    ..setting()
                },
                Engine::new,
            );
            if let Err((at, wrong)) = history.run(&ops) {
                panic!("passthrough {passthrough}, operation {at} of {ops:?}: {wrong:?}");
            }
        }
    }
}

#[test]
fn by_block_with_everything_permitted() {
    never_stale(setting());
}

#[test]
fn by_block_with_writes_through_the_daemon() {
    never_stale(Setting {
        passthrough: false,
        ..setting()
    });
}

#[test]
fn by_block_with_a_tiny_cache() {
    never_stale(Setting {
        cache_size: 600,
        ..setting()
    });
}

#[test]
fn by_block_unwatched() {
    never_stale(Setting {
        abilities: Abilities {
            watches: false,
            ..abilities()
        },
        ..setting()
    });
}

#[test]
fn by_block_as_an_ordinary_user() {
    let setting = Setting {
        abilities: Abilities {
            watches: false,
            may_flush: false,
            may_test_leases: false,
            ..abilities()
        },
        passthrough: false,
        ..setting()
    };
    // Fewer: after each removal a question waits some milliseconds.
    never_stale_in(setting, cases() / 10);
}

#[test]
fn by_item_with_items_readable() {
    never_stale(Setting {
        abilities: Abilities {
            by_item: true,
            ..abilities()
        },
        ..setting()
    });
}

#[test]
fn by_item_with_items_unreadable() {
    never_stale(Setting {
        abilities: Abilities {
            by_item: true,
            items_readable: false,
            ..abilities()
        },
        ..setting()
    });
}

#[test]
fn by_item_with_writes_through_the_daemon() {
    never_stale(Setting {
        abilities: Abilities {
            by_item: true,
            ..abilities()
        },
        passthrough: false,
        cache_size: 2000,
    });
}
