//! Deliberate faults: the same histories have to notice each of them. Run with
//! `cargo test --features faults --test model faults -- --nocapture` to see after how many
//! operations.

use crate::histories::setting;
use crate::history::{History, Setting, operation};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sharelens::sharing::{Engine, Fault};

/// Operations within which a fault has to be noticed.
const AT_MOST: usize = 20_000;

/// How many operations of generated histories it takes until an answer is wrong.
fn caught_after(setting: Setting, fault: Fault, seed: u8) -> Option<usize> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let histories = prop::collection::vec(operation(false), 40..120);
    let mut operations = 0;
    while operations < AT_MOST {
        let ops = histories
            .new_tree(&mut runner)
            .expect("a history")
            .current();
        let mut history = History::new(setting, |sim, limits| {
            Engine::with_fault(sim, limits, fault)
        });
        match history.run(&ops) {
            Ok(()) => operations += ops.len(),
            Err((at, _)) => return Some(operations + at + 1),
        }
    }
    None
}

#[test]
fn every_fault_is_noticed() {
    for (name, fault) in Fault::ALL {
        let counts: Vec<_> = (1..=5)
            .map(|seed| caught_after(setting(), fault, seed))
            .collect();
        assert!(
            counts.iter().all(Option::is_some),
            "{name} went unnoticed: {counts:?}"
        );
        let mut counts: Vec<_> = counts.into_iter().flatten().collect();
        counts.sort_unstable();
        println!("{name:24} noticed after {counts:?} operations");
    }
}
