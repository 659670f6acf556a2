//! Measured values by line and side, and their medians.

use super::table::{Table, duration, ratio};
use std::collections::HashMap;

/// The median of `values` (of an even number the lower middle one); `None` of none.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    percentile(values, 50.0)
}

/// The smallest value that `percent` of `values` do not exceed; `None` of none.
pub(crate) fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Samples of times in seconds; lines and sides keep the order in which they first came.
#[derive(Default)]
pub(crate) struct Samples {
    lines: Vec<String>,
    sides: Vec<String>,
    values: HashMap<(String, String), Vec<f64>>,
}

impl Samples {
    /// Adds one sample.
    pub(crate) fn add(&mut self, line: &str, side: &str, seconds: f64) {
        for (list, name) in [(&mut self.lines, line), (&mut self.sides, side)] {
            if !list.iter().any(|known| known == name) {
                list.push(name.to_owned());
            }
        }
        self.values
            .entry((line.to_owned(), side.to_owned()))
            .or_default()
            .push(seconds);
    }

    /// The median of a line on a side.
    pub(crate) fn median(&self, line: &str, side: &str) -> Option<f64> {
        let key = (line.to_owned(), side.to_owned());
        self.values.get(&key).and_then(|values| median(values))
    }

    /// The lines, in their order.
    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }

    /// A table of all medians: the first side as times, each other one as time and, in
    /// parentheses, as ratio to the first.
    pub(crate) fn table(&self, title: impl Into<String>, first_column: &str) -> Table {
        let mut head = vec![first_column.to_owned()];
        head.extend(self.sides.iter().cloned());
        let mut table = Table::new(title, head);
        for line in &self.lines {
            let base = self.sides.first().and_then(|side| self.median(line, side));
            let mut cells = vec![line.clone()];
            for (place, side) in self.sides.iter().enumerate() {
                cells.push(match (self.median(line, side), base) {
                    (None, _) => "-".to_owned(),
                    (Some(time), Some(base)) if place > 0 => {
                        format!("{} ({})", duration(time), ratio(time / base))
                    }
                    (Some(time), _) => duration(time),
                });
            }
            table.line(cells);
        }
        table
    }
}
