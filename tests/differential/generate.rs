//! The generator of histories. It depends on nothing but its seed.

use crate::op::{
    About, BLOCK, FILES, HANDLES, How, LARGE, MAPPINGS, Noise, Op, SMALL, Space, Step, What, Who,
};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::VecDeque;

/// What a history should look like.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Share of steps that are questions, in percent.
    pub questions: u8,
    /// Share of questions that are compared with the truth, in percent.
    pub checked: u8,
    /// Share of operations done behind the mount, in percent.
    pub behind: u8,
    /// Whether to ask about open handles.
    pub handles: bool,
    /// Whether to ask about directories, and to move them.
    pub trees: bool,
    /// Whether snapshots are taken behind the mount.
    pub snapshots: bool,
    /// Share of the operations behind the mount that nothing tells of (stores through mappings,
    /// deduplication, defragmentation), in percent.
    pub untold: u8,
}

impl Style {
    /// A style drawn by the seed: from a check at every step to rare checks, so that what an
    /// unchecked answer leaves in a cache is met by later ones without the oracle's settling in
    /// between.
    pub fn drawn(seed: u64) -> Self {
        let styles = [(50, 100), (50, 25), (30, 10), (15, 50), (70, 15)];
        let (questions, checked) = styles[(seed % styles.len() as u64) as usize];
        Self {
            questions,
            checked,
            behind: 0,
            handles: true,
            trees: false,
            snapshots: false,
            untold: 0,
        }
    }
}

/// Draws steps.
pub struct Generator {
    random: ChaCha8Rng,
    style: Style,
    /// The file that was worked on last.
    last: u8,
    /// With whom each file last exchanged blocks.
    partners: [u8; FILES as usize],
    /// What is still to come of a motif begun.
    motif: VecDeque<Step>,
}

impl Generator {
    pub fn new(seed: u64, style: Style) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(seed),
            style,
            last: 0,
            partners: [0; FILES as usize],
            motif: VecDeque::new(),
        }
    }

    /// The files a history begins with, some of them clones of others.
    pub fn beginning(&mut self) -> Vec<Op> {
        let mut ops = Vec::new();
        for file in 0..FILES {
            let from = self.random.random_range(0..FILES);
            if from < file && is_large(from) == is_large(file) {
                ops.push(Op::CopyWhole { from, to: file });
            } else {
                let length = self.length(file);
                ops.push(Op::Create { file, length });
            }
        }
        ops
    }

    /// The next step.
    pub fn step(&mut self) -> Step {
        if self.percent(75)
            && let Some(step) = self.motif.pop_front()
        {
            return step;
        }
        if self.percent(4) {
            self.begin_motif();
        }
        if self.percent(self.style.questions) {
            return self.question();
        }
        if self.percent(self.style.behind) {
            Step::Act(Who::Behind, self.op_behind())
        } else {
            Step::Act(Who::Mount, self.op())
        }
    }

    /// Two files that share everything, then one of them changes wholly, in one of the ways there
    /// are, with questions about the other. Random steps come in between.
    fn begin_motif(&mut self) {
        let small = self.percent(60);
        let files = if small { 0..SMALL } else { 0..FILES - LARGE };
        let (a, b) = (
            self.random.random_range(files.clone()),
            self.random.random_range(files),
        );
        if a == b {
            return;
        }
        let length = self.random.random_range(1..=blocks(a)) * BLOCK;
        let other = self.file();
        let handle = self.random.random_range(0..HANDLES);
        let mapping = self.random.random_range(0..MAPPINGS);
        let at = 0;
        let mut ops = vec![Some(Op::Create { file: a, length })];
        if self.percent(50) {
            ops.push(Some(Op::Fsync { file: a }));
        }
        // None stands for a question.
        ops.extend([Some(Op::CopyWhole { from: a, to: b }), None]);
        let file = a;
        ops.extend(
            match self.random.random_range(0..14) {
                0..=5 => {
                    let how = self.how();
                    vec![Op::Write {
                        file,
                        at,
                        length,
                        how,
                    }]
                }
                6..=7 => {
                    let (how, write) = (self.how(), true);
                    let open = Op::Open {
                        file,
                        handle,
                        write,
                        how,
                    };
                    vec![open, Op::HandleWrite { handle, at, length }]
                }
                8..=9 => vec![
                    Op::Map { file, mapping },
                    Op::Store {
                        mapping,
                        at,
                        length,
                    },
                ],
                10 => vec![Op::Truncate {
                    file,
                    length: self.offset(file),
                }],
                11 => vec![Op::Allocate {
                    file,
                    space: self.space(),
                    at,
                    length,
                }],
                12 => vec![Op::Unlink { file }],
                _ => vec![Op::Rename {
                    from: other,
                    to: file,
                }],
            }
            .into_iter()
            .map(Some),
        );
        ops.push(None);
        let end = match self.random.random_range(0..4) {
            0 => Op::Store {
                mapping,
                at,
                length,
            },
            1 => Op::HandleWrite { handle, at, length },
            2 => Op::Close { handle },
            _ => Op::Unmap { mapping },
        };
        ops.extend([Some(end), None]);
        for op in ops {
            let step = match op {
                Some(op) => self.act(op),
                None => self.about(About::File(b)),
            };
            self.motif.push_back(step);
        }
    }

    /// By whom an operation is done.
    fn act(&mut self, op: Op) -> Step {
        let behind = self.percent(self.style.behind) && !op.maps();
        Step::Act(if behind { Who::Behind } else { Who::Mount }, op)
    }

    /// The next operation behind the mount.
    fn op_behind(&mut self) -> Op {
        if self.style.snapshots && self.percent(6) {
            let snapshot = self.random.random_range(0..2);
            return if self.percent(50) {
                Op::Snapshot { snapshot }
            } else {
                Op::DropSnapshot { snapshot }
            };
        }
        if self.percent(self.style.untold) {
            let (from, to) = (self.file(), self.file());
            return match self.random.random_range(0..4) {
                0 => Op::Defragment { file: to },
                1 => Op::Dedupe { from, to },
                _ => loop {
                    let op = self.op();
                    if op.maps() {
                        return op;
                    }
                },
            };
        }
        loop {
            let op = self.op();
            if !op.maps() {
                return op;
            }
        }
    }

    /// The next operation.
    pub fn op(&mut self) -> Op {
        let op = self.any_op();
        if let Op::Copy { from, to, .. } | Op::CopyWhole { from, to } = op {
            self.partners[usize::from(from)] = to;
            self.partners[usize::from(to)] = from;
        }
        op
    }

    fn any_op(&mut self) -> Op {
        let file = self.file();
        self.last = file;
        let other = self.file();
        let handle = self.random.random_range(0..HANDLES);
        let mapping = self.random.random_range(0..MAPPINGS);
        match self.random.random_range(0..100) {
            0..=3 => Op::Create {
                file,
                length: self.length(file),
            },
            4..=14 => {
                let how = self.how();
                let (at, length) = self.span(file, how == How::Direct);
                Op::Write {
                    file,
                    at,
                    length,
                    how,
                }
            }
            15..=18 => Op::Truncate {
                file,
                length: self.offset(file),
            },
            19 => Op::OpenTruncate { file },
            20..=25 => {
                let space = self.space();
                let (at, length) = self.span(file, space == Space::Collapse);
                Op::Allocate {
                    file,
                    space,
                    at,
                    length,
                }
            }
            26..=43 => self.copy(file, other),
            44..=53 => Op::CopyWhole {
                from: file,
                to: other,
            },
            54..=56 => Op::Unlink { file },
            57..=58 => Op::Rename {
                from: file,
                to: other,
            },
            59 if self.style.trees && self.percent(30) => Op::ExchangeTrees,
            59..=60 => Op::Exchange { a: file, b: other },
            61..=62 => Op::Link {
                from: file,
                to: other,
            },
            63 => Op::Fsync { file },
            64..=68 => Op::Open {
                file,
                handle,
                write: !self.percent(15),
                how: self.how(),
            },
            69..=73 => {
                let (at, length) = self.span(file, self.last.is_multiple_of(2));
                Op::HandleWrite { handle, at, length }
            }
            74 => Op::HandleTruncate {
                handle,
                length: self.offset(file),
            },
            75 => {
                let (at, length) = self.span(file, true);
                Op::HandleAllocate {
                    handle,
                    space: self.space(),
                    at,
                    length,
                }
            }
            76..=78 => match self.copy(file, other) {
                Op::Copy {
                    from_at,
                    to_at,
                    length,
                    ..
                } => Op::HandleCopy {
                    from: handle,
                    from_at,
                    to: self.random.random_range(0..HANDLES),
                    to_at,
                    length,
                },
                op => op,
            },
            79 => Op::HandleFsync { handle },
            80..=83 => Op::Close { handle },
            84..=85 => Op::Map { file, mapping },
            86..=90 => {
                let (at, length) = self.span(file, false);
                Op::Store {
                    mapping,
                    at,
                    length: length.min(3 * BLOCK),
                }
            }
            91 => Op::Msync { mapping },
            92 => Op::Unmap { mapping },
            93..=95 => Op::Noise {
                file,
                noise: self.noise(),
            },
            96..=98 => Op::Writeback { file },
            _ => Op::Wait {
                milliseconds: self.random.random_range(1..12),
            },
        }
    }

    /// A question, more often than not about what was just changed or shares with it.
    fn question(&mut self) -> Step {
        let about = match self.random.random_range(0..100) {
            0..=19 => About::File(self.last),
            20..=44 => About::File(self.partners[usize::from(self.last)]),
            45..=54 if self.style.handles => About::Handle(self.random.random_range(0..HANDLES)),
            55..=58 => About::All,
            59..=79 if self.style.trees => About::Tree(self.random.random_range(0..4)),
            _ => About::File(self.file()),
        };
        self.about(about)
    }

    fn about(&mut self, about: About) -> Step {
        let what = match self.random.random_range(0..10) {
            0..=3 => What::Summary,
            4..=5 => What::Json,
            6..=8 => What::Text,
            _ => What::Number(self.random.random_range(0..30)),
        };
        Step::Ask {
            about,
            what,
            checked: self.percent(self.style.checked),
        }
    }

    /// A partial copy: on whole blocks mostly (a clone), within one file too.
    fn copy(&mut self, from: u8, to: u8) -> Op {
        let (to_at, length) = self.span(to, true);
        let (mut from_at, _) = self.span(from, true);
        let mut length = length;
        if self.percent(15) {
            from_at += self.random.random_range(1..BLOCK);
        } else if self.percent(20) {
            length -= self.random.random_range(1..BLOCK);
        }
        Op::Copy {
            from,
            from_at,
            to,
            to_at,
            length,
        }
    }

    fn file(&mut self) -> u8 {
        // Large files cost more and are met less often.
        match self.random.random_range(0..FILES) {
            file if is_large(file) && self.percent(50) => file - LARGE,
            file => file,
        }
    }

    fn how(&mut self) -> How {
        match self.random.random_range(0..10) {
            0..=5 => How::Buffered,
            6..=7 => How::Direct,
            8 => How::Dsync,
            _ => How::Append,
        }
    }

    fn space(&mut self) -> Space {
        match self.random.random_range(0..11) {
            0 => Space::Allocate,
            1 => Space::KeepSize,
            2..=4 => Space::Punch,
            5 => Space::Zero,
            6 => Space::ZeroKeepSize,
            7 => Space::Collapse,
            8 => Space::Insert,
            _ => Space::Unshare,
        }
    }

    fn noise(&mut self) -> Noise {
        match self.random.random_range(0..4) {
            0 => Noise::SetXattr,
            1 => Noise::Chmod,
            2 => Noise::Times,
            _ => Noise::Read,
        }
    }

    /// Where and how much, never empty and inside the largest size of that file.
    fn span(&mut self, file: u8, aligned: bool) -> (u64, u64) {
        let blocks = blocks(file);
        if self.percent(5) {
            return (0, blocks * BLOCK);
        }
        let first = self.random.random_range(0..blocks);
        let most = (blocks - first).min(if self.percent(20) { blocks } else { 8 });
        let count = self.random.random_range(1..=most);
        let (at, length) = (first * BLOCK, count * BLOCK);
        if aligned || self.percent(60) {
            return (at, length);
        }
        let skip = self.random.random_range(0..BLOCK);
        let length = self.random.random_range(1..=length);
        (at + skip, length.min(blocks * BLOCK - at - skip).max(1))
    }

    /// A size for a whole file: now and then small enough to be inline, or not a whole block.
    fn length(&mut self, file: u8) -> u64 {
        match self.random.random_range(0..10) {
            0 => self.random.random_range(0..2048),
            1..=2 => self.random.random_range(0..blocks(file) * BLOCK),
            3..=5 => self.random.random_range(1..5) * BLOCK,
            _ => self.random.random_range(1..=blocks(file)) * BLOCK,
        }
    }

    fn offset(&mut self, file: u8) -> u64 {
        let offset = self.random.random_range(0..=blocks(file)) * BLOCK;
        if self.percent(50) {
            offset
        } else {
            offset.saturating_sub(self.random.random_range(0..BLOCK))
        }
    }

    fn percent(&mut self, share: u8) -> bool {
        self.random.random_range(0..100) < share
    }
}

fn is_large(file: u8) -> bool {
    file >= FILES - LARGE
}

/// The most blocks a file is given.
fn blocks(file: u8) -> u64 {
    match file {
        0..SMALL => 4,
        file if is_large(file) => 1024,
        _ => 64,
    }
}
