//! Tables, amounts of bytes and complaints.

use crate::vxattr::printable;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One sentence on standard error. Where even that is closed there is nobody to tell.
pub(crate) fn complain(what: &impl Display) {
    let _ = writeln!(io::stderr(), "sharelens: {what}");
}

/// A path as one line of printable text, its other bytes written as the attribute `children` does.
pub(crate) fn shown(path: &Path) -> String {
    printable(path.as_os_str().as_bytes())
}

/// Prints lines to standard output; a closed pipe comes back as an error of that kind.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Prints a value as JSON with a newline.
pub(crate) fn print_json(value: &impl serde::Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
    text.push('\n');
    print(&text)
}

/// Rows under headings; every column but the last is set to the right, as numbers are.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self {
            rows: vec![headings.iter().map(|&text| text.to_owned()).collect()],
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Whether there is anything below the headings.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() <= 1
    }

    pub(crate) fn text(&self) -> String {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let last = row.len().saturating_sub(1);
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if column == last {
                    text.push_str(cell);
                } else {
                    let blanks = width.saturating_sub(cell.chars().count());
                    text.push_str(&" ".repeat(blanks));
                    text.push_str(cell);
                    text.push_str("  ");
                }
            }
            text.push('\n');
        }
        text
    }
}

/// An amount of bytes, exactly or for people.
pub(crate) fn amount(bytes: u64, human: bool) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if !human || bytes < 1024 {
        return bytes.to_string();
    }
    let mut scaled = bytes as f64;
    let mut unit = "";
    for next in UNITS {
        if scaled < 1023.95 {
            break;
        }
        scaled /= 1024.0;
        unit = next;
    }
    format!("{scaled:.1}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["bytes", "path"]);
        table.row(vec!["1048576".into(), "a".into()]);
        table.row(vec!["0".into(), "ä b".into()]);
        assert_eq!(table.text(), "  bytes  path\n1048576  a\n      0  ä b\n");
    }

    #[test]
    fn amounts_for_people_have_one_decimal() {
        assert_eq!(amount(0, true), "0");
        assert_eq!(amount(1023, true), "1023");
        assert_eq!(amount(1536, true), "1.5K");
        assert_eq!(amount(1 << 20, true), "1.0M");
        assert_eq!(amount((1 << 20) - 1, true), "1.0M");
        assert_eq!(amount(u64::MAX, true), "16.0E");
        assert_eq!(amount(4096, false), "4096");
    }
}
