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
        .unwrap_or(300)
}

fn abilities() -> Abilities {
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
