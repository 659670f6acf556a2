//! Through a real mount while a second actor works on the backing path: a backup, a
//! deduplicating daemon, an administrator.

use crate::common::Image;
use crate::generate::Style;
use crate::history::{History, Report};
use crate::images::{Kind, image};
use crate::mounted::{Io, Mounting, check, run};
use crate::op::{About, FILES, Op, Step, What, Who};

/// Half of the operations behind the mount.
fn style(seed: u64) -> Style {
    Style {
        behind: 50,
        snapshots: true,
        ..Style::drawn(seed)
    }
}

/// What fanotify tells of is exact at once.
fn exact_behind(kind: Kind, io: Io) {
    let Some(image) = image(kind) else {
        return;
    };
    let mut total = Report::default();
    for seed in 100..109 {
        total.add(&check(&image, kind, io, seed, style(seed), 600));
    }
    println!("{kind:?} {io:?}, half of it behind the mount: {total}, none stale");
}

#[test]
fn exact_behind_on_xfs_with_passthrough() {
    exact_behind(Kind::Xfs, Io::Passthrough);
}

#[test]
fn exact_behind_on_xfs_cached() {
    exact_behind(Kind::Xfs, Io::Cached);
}

#[test]
fn exact_behind_on_btrfs_with_passthrough() {
    exact_behind(Kind::Btrfs, Io::Passthrough);
}

#[test]
fn exact_behind_on_btrfs_cached() {
    exact_behind(Kind::Btrfs, Io::Cached);
}

/// What nothing tells of (stores through mappings, deduplication, defragmentation) is exact again
/// after `max_trust`.
fn bounded(kind: Kind) {
    let Some(image) = image(kind) else {
        return;
    };
    for seed in 200..203 {
        trust(&image, kind, seed);
    }
}

/// A check once everything has been written back and the mount has had time to stop trusting.
fn after_a_second() -> Vec<Step> {
    let mut ops: Vec<Op> = (0..FILES).map(|file| Op::Fsync { file }).collect();
    ops.extend([Op::Wait { milliseconds: 220 }; 5]);
    let mut steps: Vec<Step> = ops
        .into_iter()
        .map(|op| Step::Act(Who::Behind, op))
        .collect();
    steps.push(Step::Ask {
        about: About::All,
        what: What::Text,
        checked: true,
    });
    steps
}

fn trust(image: &Image, kind: Kind, seed: u64) {
    let style = Style {
        questions: 30,
        checked: 0,
        behind: 50,
        untold: 40,
        ..Style::drawn(seed)
    };
    let mut history = History::drawn(seed, style, 300);
    let mut steps = Vec::new();
    for part in history.steps.chunks(40) {
        steps.extend(part);
        steps.extend(after_a_second());
    }
    history.steps = steps;
    let mounting = Mounting {
        io: Io::Passthrough,
        options: "max_trust=1".to_owned(),
        fault: "",
    };
    let (report, result) = run(image, &mounting, seed, &history);
    if let Err(failure) = result {
        panic!("seed {seed} on {kind:?}, {mounting:?}: {failure}");
    }
    println!("{kind:?}, untold changes: {report}, none stale after max_trust");
}

#[test]
fn untold_changes_are_bounded_on_xfs() {
    bounded(Kind::Xfs);
}

#[test]
fn untold_changes_are_bounded_on_btrfs() {
    bounded(Kind::Btrfs);
}
