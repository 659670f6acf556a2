//! Errors with what they were about.

use std::fmt;
use std::path::{Path, PathBuf};

/// Anything that ends a workload; printed, never matched on.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// Result of anything in a benchmark.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Adds to an error what it was about.
pub(crate) trait Context<T> {
    /// `about` is put before the text of the error.
    fn context(self, about: impl About) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, about: impl About) -> Result<T> {
        self.map_err(|error| format!("{}: {error}", about.text()).into())
    }
}

/// What an error may be about.
pub(crate) trait About {
    /// As text.
    fn text(&self) -> String;
}

impl About for &Path {
    fn text(&self) -> String {
        self.display().to_string()
    }
}

impl About for &PathBuf {
    fn text(&self) -> String {
        self.display().to_string()
    }
}

impl About for &str {
    fn text(&self) -> String {
        (*self).to_owned()
    }
}

impl About for String {
    fn text(&self) -> String {
        self.clone()
    }
}

impl About for std::borrow::Cow<'_, str> {
    fn text(&self) -> String {
        self.clone().into_owned()
    }
}
