//! A history: what happens before the mount, then operations and questions one after another.

use crate::answer::{Teller, judge};
use crate::contents;
use crate::generate::{Generator, Style};
use crate::kernel::Of;
use crate::op::{About, FILES, Op, Step, What, Who};
use crate::truth::{Oracle, Truth, Which};
use crate::watchdog::Watchdog;
use crate::world::{Tally, World};
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many steps of the past a failure shows.
const SHOWN: usize = 60;

/// How long a name changed behind the mount may lead to the old file.
const NAMES_LAG: Duration = Duration::from_secs(2);

/// A history, as plain data.
#[derive(Clone, Debug)]
pub struct History {
    /// Done on the backing path before anything is mounted, and left dirty.
    pub before: Vec<Op>,
    pub steps: Vec<Step>,
}

impl History {
    /// The history of that seed.
    pub fn drawn(seed: u64, style: Style, operations: usize) -> Self {
        let mut generator = Generator::new(seed, style);
        let mut before = generator.beginning();
        before.extend((0..40).map(|_| generator.op()));
        // The first question meets what was dirty and half removed before the mount.
        let mut steps = vec![Step::Ask {
            about: About::All,
            what: What::Summary,
            checked: seed.is_multiple_of(2) && style.checked > 0,
        }];
        let mut acts = 0;
        while acts < operations {
            let step = generator.step();
            acts += usize::from(matches!(step, Step::Act(..)));
            steps.push(step);
        }
        // The end is checked, unless nothing is.
        steps.push(Step::Ask {
            about: About::All,
            what: What::Text,
            checked: style.checked > 0,
        });
        Self { before, steps }
    }

    /// Whether anything happens behind the mount.
    pub fn works_behind(&self) -> bool {
        let mut steps = self.steps.iter();
        steps.any(|step| matches!(step, Step::Act(Who::Behind, _)))
    }
}

/// How a history went wrong.
pub struct Failure {
    /// The step at which it was noticed.
    pub step: usize,
    pub reason: String,
    past: Vec<Step>,
}

impl Failure {
    /// Whether an answer was not the truth.
    #[cfg(feature = "faults")]
    pub fn is_stale(&self) -> bool {
        self.reason.contains("but the truth is") && !self.reason.contains("ORACLE")
    }

    /// One noticed after the last step.
    pub fn at_end(steps: &[Step], reason: String) -> Self {
        Self {
            step: steps.len(),
            reason,
            past: steps[steps.len().saturating_sub(SHOWN)..].to_vec(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "the last steps, of {}:", self.step + 1)?;
        for step in &self.past {
            writeln!(out, "  {step:?}")?;
        }
        write!(out, "step {}: {}", self.step, self.reason)
    }
}

/// What a run did.
#[derive(Default)]
pub struct Report {
    pub tally: Tally,
    pub answers: u64,
    pub checked: u64,
    /// Of the checked answers, those about a file with shared extents.
    pub sharing: u64,
}

impl Report {
    pub fn add(&mut self, other: &Self) {
        self.tally.add(&other.tally);
        self.answers += other.answers;
        self.checked += other.checked;
        self.sharing += other.sharing;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} operations, {} answers, {} compared with the truth, {} of them about shared files",
            self.tally.operations(),
            self.answers,
            self.checked,
            self.sharing
        )
    }
}

/// Runs a history before its mount: on the backing path, everything closed at the end and
/// nothing written back.
pub fn prepare(back: &Path, before: &[Op], seed: u64) -> Result<(), String> {
    let mut world = World::new(back, back, false, seed);
    world.make_directories();
    before.iter().try_for_each(|op| world.act(op))
}

/// One thread that acts, asks and compares.
pub struct Runner<'a> {
    pub mount: World,
    pub behind: World,
    pub oracle: Oracle,
    pub teller: &'a mut dyn Teller,
    pub watchdog: Option<Arc<Watchdog>>,
    /// Names change behind the mount, so that a path may lead to another file for a moment.
    pub shared_names: bool,
    pub report: Report,
}

impl Runner<'_> {
    /// Runs every step.
    ///
    /// # Errors
    /// At the first answer that is not the truth, or operation that fails without a reason.
    pub fn run(&mut self, steps: &[Step]) -> Result<(), Failure> {
        let result = self.run_all(steps);
        self.report.tally.add(&self.mount.tally);
        self.report.tally.add(&self.behind.tally);
        result
    }

    fn run_all(&mut self, steps: &[Step]) -> Result<(), Failure> {
        for (index, step) in steps.iter().enumerate() {
            self.step(step).map_err(|reason| Failure {
                step: index,
                reason,
                past: steps[(index + 1).saturating_sub(SHOWN)..=index].to_vec(),
            })?;
            if let Some(watchdog) = &self.watchdog {
                watchdog.moved();
            }
        }
        Ok(())
    }

    /// Ends the history: everything closed, and the two trees compared.
    ///
    /// # Errors
    /// What differs.
    pub fn finish(&mut self, front: &Path, back: &Path) -> Result<(), String> {
        self.mount.sync_mappings()?;
        for file in 0..FILES {
            self.await_name(About::File(file))?;
        }
        contents::compare(front, back)?;
        self.mount.close_all();
        self.behind.close_all();
        contents::compare(front, back)
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match *step {
            Step::Act(Who::Mount, op) => self.mount.act(&op),
            Step::Act(Who::Behind, op) => self.behind.act(&op),
            Step::Ask {
                about,
                what,
                checked,
            } => self.ask(about, what, checked),
        }
    }

    fn ask(&mut self, about: About, what: What, checked: bool) -> Result<(), String> {
        self.mount.sync_mappings()?;
        let abouts = match about {
            About::All => (0..FILES).map(About::File).collect(),
            about => vec![about],
        };
        let mut answers = Vec::new();
        for about in abouts {
            self.await_name(about)?;
            if let Some(answer) = self.answer(about, what) {
                self.report.answers += 1;
                answers.push((about, answer));
            }
        }
        if !checked {
            return answers.iter().try_for_each(|(about, answer)| {
                is_an_answer(answer).map_err(|error| format!("{about:?}: {error}"))
            });
        }
        self.oracle.settle();
        for (about, answer) in answers {
            let truth = self.truth(about);
            self.report.checked += u64::from(truth.is_ok());
            self.report.sharing += u64::from(truth.as_ref().is_ok_and(Truth::shares));
            let tree = matches!(about, About::Tree(_));
            judge(what, tree, &answer, &truth)
                .map_err(|reason| self.blame(about, &truth, reason))?;
        }
        Ok(())
    }

    /// Tells a wrong answer from an oracle that had not settled: the truth taken again must be
    /// the same.
    fn blame(&self, about: About, truth: &io::Result<Truth>, reason: String) -> String {
        self.oracle.settle();
        match (truth, self.truth(about)) {
            (Ok(truth), Ok(again)) if *truth != again => format!(
                "{about:?}: THE ORACLE MOVED, from\n{}to\n{}{reason}",
                truth.text, again.text
            ),
            _ => format!("{about:?}: {reason}"),
        }
    }

    fn answer(&mut self, about: About, what: What) -> Option<io::Result<Vec<u8>>> {
        match about {
            About::File(file) => {
                let (name, path) = (World::name(file), self.mount.path(file));
                let answer = self.teller.tell(&Of::Path(&path), Which::Name(&name), what);
                Some(answer)
            }
            About::Handle(handle) => {
                let open = self.mount.open(handle)?;
                let which = Which::Handle(&open.handle);
                Some(self.teller.tell(&Of::File(&open.file), which, what))
            }
            About::Tree(number) => {
                let (name, path) = (World::directory(number), self.mount.directory_path(number));
                let answer = self.teller.tell(&Of::Path(&path), Which::Tree(&name), what);
                Some(answer)
            }
            About::All => None,
        }
    }

    /// Waits until the name leads to the same file on both sides: names changed behind the mount
    /// are noticed at once, but not within the system call that changed them.
    fn await_name(&self, about: About) -> Result<(), String> {
        let About::File(file) = about else {
            return Ok(());
        };
        if !self.shared_names {
            return Ok(());
        }
        let inode = |path: &Path| std::fs::metadata(path).map(|meta| meta.ino()).ok();
        let (front, back) = (self.mount.path(file), self.behind.path(file));
        let start = Instant::now();
        while inode(&front) != inode(&back) {
            if start.elapsed() > NAMES_LAG {
                return Err(format!(
                    "{}: inode {:?} through the mount, {:?} behind it, for {NAMES_LAG:?}",
                    front.display(),
                    inode(&front),
                    inode(&back)
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn truth(&self, about: About) -> io::Result<Truth> {
        match about {
            About::File(file) => self.oracle.look(Which::Name(&World::name(file))),
            About::Handle(handle) => match self.mount.open(handle) {
                Some(open) => self.oracle.look(Which::Handle(&open.handle)),
                None => Err(io::Error::from_raw_os_error(libc::EBADF)),
            },
            About::Tree(number) => self.oracle.look(Which::Tree(&World::directory(number))),
            About::All => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }
}

/// Whether an answer that is not compared is one at all.
fn is_an_answer(answer: &io::Result<Vec<u8>>) -> io::Result<()> {
    match answer {
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(
            io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(0)),
        ),
        _ => Ok(()),
    }
}
