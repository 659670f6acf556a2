//! A value under construction, without an allocation for the short ones.

use smallvec::SmallVec;
use std::fmt;
use std::ops::Deref;

/// The text of a value. All but maps, listings and the summaries of directories fit inline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(SmallVec<[u8; 128]>);

impl Text {
    /// The text of one number.
    #[must_use]
    pub fn number(number: u64) -> Self {
        let mut text = Self::default();
        text.push_number(number);
        text
    }

    /// Appends a number in decimal.
    pub fn push_number(&mut self, number: u64) {
        // The longest u64 has 20 digits.
        let mut digits = [0; 20];
        let mut left = number;
        let mut used = 0;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
            used += 1;
            if left == 0 {
                break;
            }
        }
        self.0
            .extend_from_slice(digits.get(digits.len() - used..).unwrap_or_default());
    }

    /// Appends bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

impl Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(SmallVec::from_slice(text.as_bytes()))
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.push(part.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 7, 10, 4096, 99_999, u64::MAX] {
            assert_eq!(*Text::number(number), *number.to_string().as_bytes());
        }
    }
}
