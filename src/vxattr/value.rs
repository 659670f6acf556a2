//! The numbers of files and directories as text.

use super::name::{Kind, Name};
use super::text::Text;
use crate::extent::{MayShare, ShareSummary};
use crate::sharing::totals::DirTotals;

/// What is known of a regular file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileNumbers {
    /// Its numbers, of one computation.
    pub summary: ShareSummary,
    /// Number of other files below the mount that share with it, once known.
    pub peers: Option<u64>,
}

/// The value of an attribute of a regular file; `None` where it has none or it is not known. Maps
/// are the matter of [`super::map`].
#[must_use]
pub fn file(name: Name, numbers: &FileNumbers) -> Option<Text> {
    value(name, Kind::File, |name| match name {
        Name::Peers => numbers.peers,
        name => of_summary(name, &numbers.summary),
    })
}

/// The value of an attribute of a directory; `None` where it has none or it is not known.
/// Listings are the matter of [`super::Children`].
#[must_use]
pub fn directory(name: Name, totals: &DirTotals) -> Option<Text> {
    value(name, Kind::Directory, |name| match name {
        Name::Files => Some(totals.files),
        Name::Dirs => Some(totals.dirs),
        Name::SetSharedBytes => Some(totals.set_shared_bytes.0),
        Name::FootprintBytes => Some(totals.footprint_bytes().0),
        Name::LinkedOutsideBytes => Some(totals.linked_outside_bytes.0),
        Name::ReclaimableBytes => totals.reclaimable_bytes.map(|bytes| bytes.0),
        name => of_summary(name, &totals.numbers),
    })
}

fn of_summary(name: Name, summary: &ShareSummary) -> Option<u64> {
    match name {
        Name::Bytes => Some(summary.bytes.0),
        Name::SharedBytes => Some(summary.shared_bytes.0),
        Name::ExclusiveBytes => Some(summary.exclusive_bytes().0),
        Name::Extents => Some(summary.extents),
        Name::SharedExtents => Some(summary.shared_extents),
        Name::MayShare => Some(match summary.may_share() {
            MayShare::No => 0,
            MayShare::Yes => 1,
        }),
        _ => None,
    }
}

/// One number, or all of those that `number` knows in one text.
fn value(name: Name, kind: Kind, number: impl Fn(Name) -> Option<u64>) -> Option<Text> {
    let known = || {
        Name::ALL
            .iter()
            .filter(move |name| name.exists_on(kind))
            .filter_map(|name| Some((name.key(), number(*name)?)))
    };
    match name {
        Name::Summary => {
            let mut text = Text::default();
            for (position, (key, number)) in known().enumerate() {
                if position > 0 {
                    text.push(b" ");
                }
                text.push(key.as_bytes());
                text.push(b"=");
                text.push_number(number);
            }
            Some(text)
        }
        Name::Json => {
            let object: serde_json::Map<_, _> = known()
                .map(|(key, number)| (key.to_owned(), number.into()))
                .collect();
            Some(serde_json::Value::from(object).to_string().as_str().into())
        }
        name => number(name).map(Text::number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::Bytes;

    const SUMMARY: ShareSummary = ShareSummary {
        bytes: Bytes(90_112),
        shared_bytes: Bytes(86_016),
        extents: 2,
        shared_extents: 1,
    };

    fn text(value: Option<Text>) -> Option<String> {
        value.map(|text| String::from_utf8(text.to_vec()).unwrap())
    }

    #[test]
    fn a_file_answers_with_its_numbers() {
        let numbers = FileNumbers {
            summary: SUMMARY,
            peers: None,
        };
        let ask = |name| text(file(name, &numbers));
        assert_eq!(ask(Name::Bytes).unwrap(), "90112");
        assert_eq!(ask(Name::SharedBytes).unwrap(), "86016");
        assert_eq!(ask(Name::ExclusiveBytes).unwrap(), "4096");
        assert_eq!(ask(Name::Extents).unwrap(), "2");
        assert_eq!(ask(Name::SharedExtents).unwrap(), "1");
        assert_eq!(ask(Name::MayShare).unwrap(), "1");
        assert_eq!(ask(Name::Peers), None);
        assert_eq!(ask(Name::Files), None);
        assert_eq!(
            ask(Name::Summary).unwrap(),
            "bytes=90112 shared_bytes=86016 exclusive_bytes=4096 extents=2 shared_extents=1 \
             may_share=1"
        );
        let json: serde_json::Value = serde_json::from_str(&ask(Name::Json).unwrap()).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"bytes": 90112, "shared_bytes": 86016, "exclusive_bytes": 4096,
                "extents": 2, "shared_extents": 1, "may_share": 1})
        );
    }

    #[test]
    fn peers_appear_once_they_are_known() {
        let numbers = FileNumbers {
            summary: ShareSummary::default(),
            peers: Some(0),
        };
        assert_eq!(text(file(Name::Peers, &numbers)).unwrap(), "0");
        assert_eq!(
            text(file(Name::Summary, &numbers)).unwrap(),
            "bytes=0 shared_bytes=0 exclusive_bytes=0 extents=0 shared_extents=0 may_share=0 \
             peers=0"
        );
    }

    #[test]
    fn a_directory_answers_with_its_totals() {
        let mut totals = DirTotals {
            files: 3,
            dirs: 1,
            numbers: SUMMARY,
            set_shared_bytes: Bytes(43_008),
            linked_outside_bytes: Bytes(0),
            reclaimable_bytes: None,
        };
        let ask = |name, totals: &DirTotals| text(directory(name, totals));
        assert_eq!(ask(Name::FootprintBytes, &totals).unwrap(), "47104");
        assert_eq!(ask(Name::ReclaimableBytes, &totals), None);
        assert_eq!(ask(Name::Peers, &totals), None);
        assert_eq!(ask(Name::Map, &totals), None);
        assert_eq!(
            ask(Name::Summary, &totals).unwrap(),
            "bytes=90112 shared_bytes=86016 exclusive_bytes=4096 extents=2 shared_extents=1 \
             may_share=1 files=3 dirs=1 set_shared_bytes=43008 footprint_bytes=47104 \
             linked_outside_bytes=0"
        );
        totals.reclaimable_bytes = Some(Bytes(4096));
        assert_eq!(ask(Name::ReclaimableBytes, &totals).unwrap(), "4096");
        let json: serde_json::Value =
            serde_json::from_str(&ask(Name::Json, &totals).unwrap()).unwrap();
        assert_eq!(json["reclaimable_bytes"], 4096);
        assert_eq!(json.as_object().unwrap().len(), 12);
    }
}
