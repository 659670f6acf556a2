//! `sharelens doctor`: what this machine, kernel, filesystem and user allow, what each limit
//! means for speed and exactness, and what to do about it.

mod filesystem;
mod machine;

use super::{Outcome, output};
use crate::mount::answering;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

/// Says what works here, what each limit costs, and what to do about it
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// One JSON array instead of text
    #[arg(long)]
    json: bool,
    /// The directory that is to be mounted; the current one when missing
    #[arg(default_value = ".")]
    path: PathBuf,
}

/// How a finding is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// As good as it gets.
    Good,
    /// Works, but slower or less exact.
    Limited,
    /// Does not work.
    Missing,
}

/// One thing looked at.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    what: &'static str,
    verdict: Verdict,
    found: String,
    /// What it means for speed and exactness.
    means: String,
    /// What to do about a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    pub(crate) fn good(
        what: &'static str,
        found: impl Into<String>,
        means: impl Into<String>,
    ) -> Self {
        Self {
            what,
            verdict: Verdict::Good,
            found: found.into(),
            means: means.into(),
            remedy: None,
        }
    }

    pub(crate) fn limited(
        what: &'static str,
        found: impl Into<String>,
        means: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            what,
            verdict: Verdict::Limited,
            found: found.into(),
            means: means.into(),
            remedy: Some(remedy.into()),
        }
    }

    pub(crate) fn missing(
        what: &'static str,
        found: impl Into<String>,
        means: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            verdict: Verdict::Missing,
            ..Self::limited(what, found, means, remedy)
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    answering::check(&arguments.path)?;
    let mut findings = machine::findings();
    findings.extend(filesystem::findings(&arguments.path)?);
    if arguments.json {
        output::print_json(&findings)?;
        return Ok(());
    }
    let mut text = String::new();
    for finding in &findings {
        let sign = match finding.verdict {
            Verdict::Good => "good   ",
            Verdict::Limited => "limited",
            Verdict::Missing => "missing",
        };
        text.push_str(&format!(
            "{sign}  {}: {}\n         {}\n",
            finding.what, finding.found, finding.means
        ));
        if let Some(remedy) = &finding.remedy {
            text.push_str(&format!("         remedy: {remedy}\n"));
        }
    }
    output::print(&text)?;
    Ok(())
}
