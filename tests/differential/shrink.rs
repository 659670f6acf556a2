//! Makes a failing history shorter: leaves steps out as long as what remains still fails.

use crate::history::History;
use crate::op::{Op, Step};
use std::time::{Duration, Instant};

enum Part {
    Before(Op),
    Step(Step),
}

/// The shortest history found within `time` that `fails` still.
pub fn shrink(
    history: &History,
    time: Duration,
    mut fails: impl FnMut(&History) -> bool,
) -> History {
    let end = Instant::now() + time;
    let before = history.before.iter().map(|op| Part::Before(*op));
    let steps = history.steps.iter().map(|step| Part::Step(*step));
    let mut parts: Vec<Part> = before.chain(steps).collect();
    let mut chunk = parts.len().div_ceil(2);
    while chunk > 0 {
        let mut start = 0;
        let before = parts.len();
        while start < parts.len() && Instant::now() < end {
            let stop = (start + chunk).min(parts.len());
            let rest = parts[..start].iter().chain(&parts[stop..]);
            if fails(&assemble(rest)) {
                parts.drain(start..stop);
            } else {
                start = stop;
            }
        }
        if Instant::now() >= end {
            break;
        }
        // At the finest grain, again as long as it helps.
        if chunk > 1 || parts.len() == before {
            chunk /= 2;
        }
    }
    assemble(parts.iter())
}

fn assemble<'a>(parts: impl Iterator<Item = &'a Part>) -> History {
    let mut history = History {
        before: Vec::new(),
        steps: Vec::new(),
    };
    for part in parts {
        match part {
            Part::Before(op) => history.before.push(*op),
            Part::Step(step) => history.steps.push(*step),
        }
    }
    history
}
