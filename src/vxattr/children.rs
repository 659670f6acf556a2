//! The listing of a directory with the numbers of its entries, one line an entry.

use super::LARGEST_VALUE;
use super::text::Text;
use crate::extent::{Bytes, ShareSummary};
use std::borrow::Cow;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChildKind {
    /// A regular file.
    File,
    /// A directory; its numbers are its totals.
    Directory,
    /// Anything else, which has no numbers.
    Other,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child<'a> {
    /// What it is.
    pub kind: ChildKind,
    /// Its numbers; `None` where they are not known or not to be shown.
    pub numbers: Option<ShareSummary>,
    /// Its name.
    pub name: Cow<'a, [u8]>,
}

/// A listing under construction.
#[derive(Debug)]
pub struct Children {
    text: Text,
    limit: usize,
}

impl Children {
    /// A listing that is absent when it would pass the largest value of an attribute.
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(LARGEST_VALUE)
    }

    /// A listing, or a page of one, of at most `limit` bytes.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self {
            text: Text::default(),
            limit,
        }
    }

    /// Appends an entry; `false` when it does not fit, and then it is left out.
    pub fn push(&mut self, child: &Child<'_>) -> bool {
        let mut line = Text::default();
        push_line(&mut line, child);
        let fits = self.text.len() + line.len() <= self.limit;
        if fits {
            self.text.push(&line);
        }
        fits
    }

    /// The text.
    #[must_use]
    pub fn finish(self) -> Text {
        self.text
    }
}

impl Default for Children {
    fn default() -> Self {
        Self::new()
    }
}

fn push_line(line: &mut Text, child: &Child<'_>) {
    line.push(match child.kind {
        ChildKind::File => b"f ",
        ChildKind::Directory => b"d ",
        ChildKind::Other => b"- ",
    });
    match child.numbers {
        Some(numbers) => {
            for number in [
                numbers.bytes.0,
                numbers.shared_bytes.0,
                numbers.exclusive_bytes().0,
                numbers.extents,
                numbers.shared_extents,
            ] {
                line.push_number(number);
                line.push(b" ");
            }
        }
        None => line.push(b"- - - - - "),
    }
    push_name(line, &child.name);
    line.push(b"\n");
}

/// A name as `children` writes it, for wherever a person or a script reads names.
#[must_use]
pub fn printable(name: &[u8]) -> String {
    let mut text = Text::default();
    push_name(&mut text, name);
    String::from_utf8_lossy(&text).into_owned()
}

/// Backslash, newline and whatever is not printable UTF-8 become `\ooo`, byte by byte, so that a
/// name can neither end its line nor play tricks on a terminal.
fn push_name(line: &mut Text, name: &[u8]) {
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut buffer = [0; 4];
            let encoded = character.encode_utf8(&mut buffer);
            if is_plain(character) {
                line.push(encoded.as_bytes());
            } else {
                push_octal(line, encoded.as_bytes());
            }
        }
        push_octal(line, chunk.invalid());
    }
}

fn is_plain(character: char) -> bool {
    match character {
        '\\' => false,
        ' '..='~' => true,
        _ if character.is_ascii() => false,
        // The standard library knows what is printable, and tells it by leaving it as it is; a
        // combining mark it leaves only behind a letter.
        _ => {
            let mut behind_a_letter = String::from("a");
            behind_a_letter.push(character);
            behind_a_letter.escape_debug().count() == 2
        }
    }
}

fn push_octal(line: &mut Text, bytes: &[u8]) {
    for byte in bytes {
        line.push(&[
            b'\\',
            b'0' + (byte >> 6),
            b'0' + (byte >> 3 & 7),
            b'0' + (byte & 7),
        ]);
    }
}

/// Reads a listing; lines that are none end it.
pub fn parse_children(text: &[u8]) -> impl Iterator<Item = Child<'_>> {
    text.split(|byte| *byte == b'\n')
        .take_while(|line| !line.is_empty())
        .map_while(parse_line)
}

fn parse_line(line: &[u8]) -> Option<Child<'_>> {
    let mut fields = line.splitn(7, |byte| *byte == b' ');
    let kind = match fields.next()? {
        b"f" => ChildKind::File,
        b"d" => ChildKind::Directory,
        b"-" => ChildKind::Other,
        _ => return None,
    };
    let mut numbers = [None; 5];
    for number in &mut numbers {
        *number = match fields.next()? {
            b"-" => None,
            digits => Some(std::str::from_utf8(digits).ok()?.parse().ok()?),
        };
    }
    let numbers = match numbers {
        [
            Some(bytes),
            Some(shared_bytes),
            Some(_),
            Some(extents),
            Some(shared_extents),
        ] => Some(ShareSummary {
            bytes: Bytes(bytes),
            shared_bytes: Bytes(shared_bytes),
            extents,
            shared_extents,
        }),
        _ => None,
    };
    Some(Child {
        kind,
        numbers,
        name: unescaped(fields.next()?)?,
    })
}

fn unescaped(name: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !name.contains(&b'\\') {
        return Some(Cow::Borrowed(name));
    }
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            plain.push(*first);
            continue;
        }
        let (digits, after) = rest.split_first_chunk::<3>()?;
        rest = after;
        let digits = std::str::from_utf8(digits).ok()?;
        plain.push(u8::from_str_radix(digits, 8).ok()?);
    }
    Some(Cow::Owned(plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn child(kind: ChildKind, numbers: Option<ShareSummary>, name: &[u8]) -> Child<'_> {
        Child {
            kind,
            numbers,
            name: Cow::Borrowed(name),
        }
    }

    const NUMBERS: ShareSummary = ShareSummary {
        bytes: Bytes(12_288),
        shared_bytes: Bytes(8192),
        extents: 2,
        shared_extents: 1,
    };

    #[test]
    fn a_line_an_entry() {
        let mut children = Children::new();
        for child in [
            child(ChildKind::File, Some(NUMBERS), b"plain name"),
            child(ChildKind::Directory, Some(NUMBERS), "übung".as_bytes()),
            child(ChildKind::File, None, b"new\nline\\"),
            child(ChildKind::Other, None, b"\xff\x1b[31m\x7f"),
            child(ChildKind::Other, None, "e\u{301} \u{202e}".as_bytes()),
        ] {
            assert!(children.push(&child));
        }
        assert_eq!(
            std::str::from_utf8(&children.finish()).unwrap(),
            "f 12288 8192 4096 2 1 plain name\n\
             d 12288 8192 4096 2 1 übung\n\
             f - - - - - new\\012line\\134\n\
             - - - - - - \\377\\033[31m\\177\n\
             - - - - - - e\u{301} \\342\\200\\256\n"
        );
    }

    #[test]
    fn an_entry_that_does_not_fit_is_left_out_whole() {
        let mut children = Children::with_limit(40);
        let entry = child(ChildKind::Other, None, b"name");
        assert!(children.push(&entry));
        assert!(children.push(&entry));
        assert!(!children.push(&entry));
        assert_eq!(&*children.finish(), b"- - - - - - name\n".repeat(2));
    }

    #[test]
    fn a_torn_line_ends_the_listing() {
        assert_eq!(
            parse_children(b"- - - - - - a\nf 1 2\n- - - - - - b\n").count(),
            1
        );
        assert_eq!(parse_children(b"- - - - - - a\\9\n").count(), 0);
        assert_eq!(parse_children(b"").count(), 0);
    }

    proptest! {
        #[test]
        fn any_listing_is_read_back(
            entries in prop::collection::vec(
                (any::<[u64; 4]>(), 0..5_u8, prop::collection::vec(1..=255_u8, 1..20)),
                0..20,
            )
        ) {
            let entries: Vec<Child<'_>> = entries
                .iter()
                .map(|([bytes, shared, extents, shared_extents], kind, name)| child(
                    match kind % 3 {
                        0 => ChildKind::File,
                        1 => ChildKind::Directory,
                        _ => ChildKind::Other,
                    },
                    (*kind < 3).then_some(ShareSummary {
                        bytes: Bytes(*bytes),
                        shared_bytes: Bytes(*shared.min(bytes)),
                        extents: *extents,
                        shared_extents: *shared_extents.min(extents),
                    }),
                    name,
                ))
                .collect();
            let mut children = Children::new();
            for entry in &entries {
                prop_assert!(children.push(entry));
            }
            let text = children.finish();
            prop_assert!(std::str::from_utf8(&text).is_ok());
            prop_assert_eq!(parse_children(&text).collect::<Vec<_>>(), entries);
        }
    }
}
