//! Answers and how they are judged against the truth.

use crate::kernel::{self, Of};
use crate::op::What;
use crate::truth::{Oracle, Truth, Which};
use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt;

/// The value may not pass this length.
const LONGEST: usize = 65536;

/// Who answers questions.
pub trait Teller {
    /// The value of the attribute `what` of one file.
    fn tell(&mut self, of: &Of<'_>, which: Which<'_>, what: What) -> io::Result<Vec<u8>>;
}

/// The mount: getxattr.
pub struct Mount;

impl Teller for Mount {
    fn tell(&mut self, of: &Of<'_>, which: Which<'_>, what: What) -> io::Result<Vec<u8>> {
        let tree = matches!(which, Which::Tree(_));
        kernel::get_xattr(of, &format!("user.reflink.{}", attribute(what, tree)))
    }
}

/// The oracle itself, to show that it answers the same twice.
pub struct Settled(pub Oracle);

impl Teller for Settled {
    fn tell(&mut self, _: &Of<'_>, which: Which<'_>, what: What) -> io::Result<Vec<u8>> {
        self.0.settle();
        let truth = self.0.look(which)?;
        render(&truth, what)
    }
}

/// One who writes back only the file asked about. Wrong: it must be caught.
pub struct OwnDataOnly(pub Oracle);

impl Teller for OwnDataOnly {
    fn tell(&mut self, _: &Of<'_>, which: Which<'_>, what: What) -> io::Result<Vec<u8>> {
        render(&self.0.look(which)?, what)
    }
}

/// One who settles everything but believes a file whose ctime did not move. Wrong: it must be
/// caught.
pub struct CtimeOnly {
    pub oracle: Oracle,
    pub known: HashMap<u64, (i64, i64, Truth)>,
}

impl Teller for CtimeOnly {
    fn tell(&mut self, of: &Of<'_>, which: Which<'_>, what: What) -> io::Result<Vec<u8>> {
        self.oracle.settle();
        let meta = match of {
            Of::Path(path) => std::fs::metadata(path)?,
            Of::File(file) => file.metadata()?,
        };
        let ctime = (meta.ctime(), meta.ctime_nsec());
        if let Some((seconds, nanoseconds, truth)) = self.known.get(&meta.ino())
            && (*seconds, *nanoseconds) == ctime
        {
            return render(truth, what);
        }
        let truth = self.oracle.look(which)?;
        let value = render(&truth, what);
        self.known.insert(meta.ino(), (ctime.0, ctime.1, truth));
        value
    }
}

/// Whether an answer is the truth; if not, what is wrong with it.
pub fn judge(
    what: What,
    tree: bool,
    answer: &io::Result<Vec<u8>>,
    truth: &io::Result<Truth>,
) -> Result<(), String> {
    let expected = match truth {
        Ok(truth) => render(truth, what),
        Err(error) => Err(io::Error::from_raw_os_error(
            error.raw_os_error().unwrap_or(0),
        )),
    };
    let equal = match (answer, &expected) {
        (Ok(answer), Ok(expected)) => same(what, answer, expected),
        (Err(answer), Err(expected)) => answer.raw_os_error() == expected.raw_os_error(),
        _ => false,
    };
    if equal {
        return Ok(());
    }
    let told = |value: &io::Result<Vec<u8>>| match value {
        Ok(value) => String::from_utf8_lossy(value).into_owned(),
        Err(error) => error.to_string(),
    };
    Err(format!(
        "{} answered\n{}\nbut the truth is\n{}\nof\n{}",
        attribute(what, tree),
        told(answer),
        told(&expected),
        truth.as_ref().map_or("", |truth| &truth.text)
    ))
}

/// The name of the attribute below the prefix.
pub fn attribute(what: What, tree: bool) -> &'static str {
    const NUMBERS: [&str; 5] = [
        "bytes",
        "shared_bytes",
        "exclusive_bytes",
        "extents",
        "shared_extents",
    ];
    const OF_TREES: [&str; 5] = [
        "files",
        "dirs",
        "set_shared_bytes",
        "footprint_bytes",
        "linked_outside_bytes",
    ];
    let names: Vec<_> = if tree {
        NUMBERS.iter().chain(&OF_TREES).copied().collect()
    } else {
        NUMBERS.iter().chain(&["may_share"]).copied().collect()
    };
    match what {
        What::Summary => "summary",
        What::Json => "json",
        What::Text if tree => "children",
        What::Text => "map",
        What::Number(number) => names[usize::from(number) % names.len()],
    }
}

/// The value that the contract prescribes.
fn render(truth: &Truth, what: What) -> io::Result<Vec<u8>> {
    let numbers = &truth.numbers;
    let text = match what {
        What::Summary => {
            let pairs = numbers.iter();
            let pairs = pairs.map(|(name, value)| format!("{name}={value}"));
            pairs.collect::<Vec<_>>().join(" ")
        }
        What::Json => {
            let object = numbers.iter();
            let object = object.map(|(name, value)| ((*name).to_owned(), (*value).into()));
            serde_json::Value::Object(object.collect()).to_string()
        }
        What::Text => truth.text.clone(),
        What::Number(number) => numbers[usize::from(number) % numbers.len()].1.to_string(),
    };
    if text.len() > LONGEST {
        return Err(io::Error::from_raw_os_error(libc::ENODATA));
    }
    Ok(text.into_bytes())
}

/// Whether two values say the same. Further names beside the contract's numbers (`peers`), and
/// the order of names, do not matter.
fn same(what: What, answer: &[u8], expected: &[u8]) -> bool {
    let (Ok(answer), Ok(expected)) = (str::from_utf8(answer), str::from_utf8(expected)) else {
        return false;
    };
    match what {
        What::Summary => contains(&pairs(answer), &pairs(expected)),
        What::Json => match (object(answer), object(expected)) {
            (Some(answer), Some(expected)) => contains(&answer, &expected),
            _ => false,
        },
        // The kernel moves the LAST flag for reasons of its own; children come in any order.
        What::Text => lines(answer) == lines(expected),
        What::Number(_) => answer == expected,
    }
}

fn contains(answer: &HashMap<String, String>, expected: &HashMap<String, String>) -> bool {
    expected
        .iter()
        .all(|(name, value)| answer.get(name) == Some(value))
}

fn pairs(text: &str) -> HashMap<String, String> {
    let pairs = text
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn object(text: &str) -> Option<HashMap<String, String>> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let object = value.as_object()?.iter();
    Some(
        object
            .map(|(name, value)| (name.clone(), value.to_string()))
            .collect(),
    )
}

fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<_> = text
        .lines()
        .map(|line| {
            let (place, flags) = line.rsplit_once(' ').unwrap_or((line, "-"));
            let flags: Vec<_> = flags.split(',').filter(|flag| *flag != "last").collect();
            match flags.as_slice() {
                [] => format!("{place} -"),
                flags => format!("{place} {}", flags.join(",")),
            }
        })
        .collect();
    lines.sort();
    lines
}
