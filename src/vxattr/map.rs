//! The extent map as text.

use super::LARGEST_VALUE;
use super::text::Text;
use crate::extent::{Extent, ExtentFlags, ExtentMap};
use std::fmt::Write;

/// The flags as filefrag(8) names them.
const FLAGS: [(ExtentFlags, &str); 11] = [
    (ExtentFlags::LAST, "last"),
    (ExtentFlags::UNKNOWN, "unknown_loc"),
    (ExtentFlags::DELALLOC, "delalloc"),
    (ExtentFlags::ENCODED, "encoded"),
    (ExtentFlags::DATA_ENCRYPTED, "encrypted"),
    (ExtentFlags::NOT_ALIGNED, "not_aligned"),
    (ExtentFlags::DATA_INLINE, "inline"),
    (ExtentFlags::DATA_TAIL, "tail_packed"),
    (ExtentFlags::UNWRITTEN, "unwritten"),
    (ExtentFlags::MERGED, "merged"),
    (ExtentFlags::SHARED, "shared"),
];

/// One line an extent: `logical physical length flags`, in bytes, with `-` for no flags; `None`
/// when it would pass the largest value of an attribute. The last line ends with a newline too.
#[must_use]
pub fn map(map: &ExtentMap) -> Option<Text> {
    let mut text = Text::default();
    for extent in map.extents() {
        push_line(&mut text, extent);
        if text.len() > LARGEST_VALUE {
            return None;
        }
    }
    Some(text)
}

fn push_line(text: &mut Text, extent: &Extent) {
    for number in [extent.logical.0, extent.physical.0, extent.length.0] {
        text.push_number(number);
        text.push(b" ");
    }
    let mut separator = "";
    let mut unnamed = extent.flags;
    for (flag, name) in FLAGS {
        if extent.flags.contains(flag) {
            text.push(separator.as_bytes());
            text.push(name.as_bytes());
            separator = ",";
        }
        unnamed.remove(flag);
    }
    if !unnamed.is_empty() {
        // Writing to memory does not fail.
        let _ = write!(text, "{separator}0x{:x}", unnamed.bits());
    } else if separator.is_empty() {
        text.push(b"-");
    }
    text.push(b"\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::{Bytes, FileOffset, MapBuilder, Physical};

    fn built(extents: &[(u64, u64, u64, ExtentFlags)]) -> ExtentMap {
        let mut builder = MapBuilder::new(Bytes(1 << 50), Bytes(4096));
        for (logical, physical, length, flags) in extents {
            builder.push(Extent {
                logical: FileOffset(*logical),
                physical: Physical(*physical),
                length: Bytes(*length),
                flags: *flags,
            });
        }
        builder.finish()
    }

    #[test]
    fn a_line_an_extent_with_the_names_of_filefrag() {
        let extents = built(&[
            (0, 8192, 4096, ExtentFlags::empty()),
            (8192, 65_536, 8192, ExtentFlags::SHARED),
            (
                16_384,
                1 << 40,
                4096,
                ExtentFlags::LAST | ExtentFlags::UNWRITTEN | ExtentFlags::SHARED,
            ),
            (
                20_480,
                0,
                4096,
                ExtentFlags::UNKNOWN
                    | ExtentFlags::DELALLOC
                    | ExtentFlags::from_bits_retain(1 << 30),
            ),
        ]);
        assert_eq!(
            std::str::from_utf8(&map(&extents).unwrap()).unwrap(),
            "0 8192 4096 -\n\
             8192 65536 8192 shared\n\
             16384 1099511627776 4096 last,unwritten,shared\n\
             20480 0 4096 unknown_loc,delalloc,0x40000000\n"
        );
    }

    #[test]
    fn no_extents_are_an_empty_text() {
        assert_eq!(map(&ExtentMap::default()).unwrap().len(), 0);
    }

    #[test]
    fn a_map_past_the_largest_value_is_absent() {
        let line = "4096 4096 4096 -\n".len();
        let mut extents = Vec::new();
        let mut length = 0;
        // Lines of growing length, one hole between each two, until the next one would not fit.
        for number in 0_u64.. {
            let extent = (number * 8192, number * 8192, 4096, ExtentFlags::empty());
            let text = format!("{} {} 4096 -\n", extent.0, extent.1);
            length += text.len();
            extents.push(extent);
            if length > LARGEST_VALUE {
                break;
            }
        }
        assert!(extents.len() > LARGEST_VALUE / 4 / line);
        assert_eq!(map(&built(&extents)), None);
        extents.pop();
        assert!(map(&built(&extents)).unwrap().len() <= LARGEST_VALUE);
    }
}
