//! Tables in Markdown, and numbers as people read them.

use std::fmt;

/// A table with a title and remarks.
pub(crate) struct Table {
    title: String,
    head: Vec<String>,
    lines: Vec<Vec<String>>,
    remarks: Vec<String>,
}

impl Table {
    /// An empty table with these column heads.
    pub(crate) fn new(title: impl Into<String>, head: Vec<String>) -> Self {
        Self {
            title: title.into(),
            head,
            lines: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// An empty table with these column heads.
    pub(crate) fn with_head(title: impl Into<String>, head: &[&str]) -> Self {
        Self::new(title, head.iter().map(|&name| name.to_owned()).collect())
    }

    /// Adds a line.
    pub(crate) fn line(&mut self, cells: Vec<String>) {
        self.lines.push(cells);
    }

    /// Adds a sentence below the table.
    pub(crate) fn remark(&mut self, sentence: impl Into<String>) {
        self.remarks.push(sentence.into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "### {}\n", self.title)?;
        writeln!(f, "| {} |", self.head.join(" | "))?;
        writeln!(f, "|{}", " --- |".repeat(self.head.len()))?;
        for line in &self.lines {
            writeln!(f, "| {} |", line.join(" | "))?;
        }
        for remark in &self.remarks {
            writeln!(f, "\n{remark}")?;
        }
        Ok(())
    }
}

/// Seconds with a fitting unit and three digits.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{} s", digits(s)),
        s if s >= 1e-3 => format!("{} ms", digits(s * 1e3)),
        s if s >= 1e-6 => format!("{} us", digits(s * 1e6)),
        s => format!("{:.0} ns", s * 1e9),
    }
}

/// A ratio with three digits.
pub(crate) fn ratio(value: f64) -> String {
    digits(value)
}

/// Bytes with a fitting unit and three digits.
pub(crate) fn bytes(count: f64) -> String {
    const KIB: f64 = 1024.0;
    match count {
        b if b >= KIB * KIB * KIB => format!("{} GiB", digits(b / KIB / KIB / KIB)),
        b if b >= KIB * KIB => format!("{} MiB", digits(b / KIB / KIB)),
        b if b >= KIB => format!("{} KiB", digits(b / KIB)),
        b => format!("{} B", digits(b)),
    }
}

fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
