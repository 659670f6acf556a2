//! The names of the virtual attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// What the names of all virtual attributes begin with.
pub const PREFIX: &str = "user.reflink.";

/// What kind of file is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// The directory at the root of the mount.
    MountRoot,
}

/// What must be known to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// The numbers of the file, or the totals of the directory.
    Numbers,
    /// The number of files that share with it.
    Peers,
    /// The extent map.
    Map,
    /// The entries of the directory with their numbers.
    Children,
    /// The counters of the mount.
    Stats,
    /// The version of the program.
    Version,
}

/// What an attribute name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parsed {
    /// Not a virtual attribute: it belongs to the backing file.
    NotOurs,
    /// Below the prefix, but no such attribute: it does not exist, whatever the backing file has.
    Unknown,
    /// A virtual attribute.
    Known(Name),
}

macro_rules! names {
    ($($(#[$doc:meta])* $variant:ident $text:literal $question:ident $on:ident $listed:literal,)*) => {
        /// A virtual attribute.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Name {
            $($(#[$doc])* $variant,)*
        }

        impl Name {
            /// All of them, in the order in which they are listed and summed up.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The whole name, with the prefix.
            #[must_use]
            pub const fn attribute(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!("user.reflink.", $text),)*
                }
            }

            /// What must be known to answer.
            #[must_use]
            pub const fn question(self) -> Question {
                match self {
                    $(Self::$variant => Question::$question,)*
                }
            }

            /// Which kinds of files have it.
            const fn on(self) -> On {
                match self {
                    $(Self::$variant => On::$on,)*
                }
            }

            /// Whether it is there whenever the numbers are, so that it can be listed without a
            /// program that then reads it being told that it is absent.
            const fn is_listed(self) -> bool {
                match self {
                    $(Self::$variant => $listed,)*
                }
            }

            fn of(name: &[u8]) -> Option<Self> {
                match name {
                    $(_ if name == $text.as_bytes() => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

/// Which kinds of files have an attribute.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Both,
    Files,
    Directories,
    Root,
}

names! {
    /// Sum of the lengths of the extents.
    Bytes "bytes" Numbers Both true,
    /// Of these, the bytes in shared extents.
    SharedBytes "shared_bytes" Numbers Both true,
    /// The other bytes.
    ExclusiveBytes "exclusive_bytes" Numbers Both true,
    /// Number of extents.
    Extents "extents" Numbers Both true,
    /// Number of shared extents.
    SharedExtents "shared_extents" Numbers Both true,
    /// Whether there are shared extents.
    MayShare "may_share" Numbers Both true,
    /// Number of other files below the mount that share with it.
    Peers "peers" Peers Files false,
    /// Regular files below.
    Files "files" Numbers Directories true,
    /// Directories below.
    Dirs "dirs" Numbers Directories true,
    /// Distinct bytes among the shared extents below.
    SetSharedBytes "set_shared_bytes" Numbers Directories true,
    /// Exclusive bytes and distinct shared ones.
    FootprintBytes "footprint_bytes" Numbers Directories true,
    /// Bytes of files below with another name outside.
    LinkedOutsideBytes "linked_outside_bytes" Numbers Directories true,
    /// What removing the tree would free.
    ReclaimableBytes "reclaimable_bytes" Numbers Directories false,
    /// The extent map as text.
    Map "map" Map Files false,
    /// All numbers on one line.
    Summary "summary" Numbers Both true,
    /// All numbers as a JSON object.
    Json "json" Numbers Both true,
    /// The entries with their numbers.
    Children "children" Children Directories false,
    /// The counters of the mount, as a JSON object.
    Stats "stats" Stats Root false,
    /// The version of the program that made the mount.
    Version "version" Version Root false,
}

impl Name {
    /// Reads the name of an attribute of any kind of file.
    #[must_use]
    pub fn parse(name: &OsStr) -> Parsed {
        match name.as_bytes().strip_prefix(PREFIX.as_bytes()) {
            None => Parsed::NotOurs,
            Some(rest) => Self::of(rest).map_or(Parsed::Unknown, Parsed::Known),
        }
    }

    /// The name without the prefix, as summaries and JSON objects have it.
    #[must_use]
    pub fn key(self) -> &'static str {
        let name = self.attribute();
        name.strip_prefix(PREFIX).unwrap_or(name)
    }

    /// Whether the number of peers stands in it beside other numbers.
    #[must_use]
    pub fn has_peers(self) -> bool {
        matches!(self, Self::Summary | Self::Json)
    }

    /// Whether files of this kind have it.
    #[must_use]
    pub fn exists_on(self, kind: Kind) -> bool {
        match self.on() {
            On::Both => true,
            On::Files => kind == Kind::File,
            On::Directories => kind != Kind::File,
            On::Root => kind == Kind::MountRoot,
        }
    }

    /// The attributes of a file of this kind that `list_xattrs` lists: those that are there
    /// whenever its numbers are known.
    pub fn listed(kind: Kind) -> impl Iterator<Item = Self> {
        Self::ALL
            .iter()
            .copied()
            .filter(move |name| name.is_listed() && name.exists_on(kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str) -> Parsed {
        Name::parse(OsStr::new(name))
    }

    #[test]
    fn every_name_is_read_back() {
        for name in Name::ALL {
            assert_eq!(parse(name.attribute()), Parsed::Known(*name));
            assert_eq!(name.attribute(), format!("{PREFIX}{}", name.key()));
        }
        assert_eq!(Name::ALL.len(), 19);
    }

    #[test]
    fn only_what_is_below_the_prefix_is_ours() {
        for name in [
            "user.reflink",
            "user.reflinks.bytes",
            "user.Reflink.bytes",
            "trusted.reflink.bytes",
            "security.capability",
            "",
        ] {
            assert_eq!(parse(name), Parsed::NotOurs, "{name:?}");
        }
        for name in [
            "user.reflink.",
            "user.reflink.byte",
            "user.reflink.bytes ",
            "user.reflink.Bytes",
            "user.reflink.bytes.of",
        ] {
            assert_eq!(parse(name), Parsed::Unknown, "{name:?}");
        }
        assert_eq!(
            Name::parse(OsStr::from_bytes(b"user.reflink.\xff")),
            Parsed::Unknown
        );
    }

    #[test]
    fn files_and_directories_have_the_names_of_the_contract() {
        let keys = |kind| -> Vec<&str> {
            Name::ALL
                .iter()
                .filter(|name| name.exists_on(kind))
                .map(|name| name.key())
                .collect()
        };
        assert_eq!(
            keys(Kind::File),
            [
                "bytes",
                "shared_bytes",
                "exclusive_bytes",
                "extents",
                "shared_extents",
                "may_share",
                "peers",
                "map",
                "summary",
                "json",
            ]
        );
        let directory = keys(Kind::Directory);
        assert_eq!(
            directory,
            [
                "bytes",
                "shared_bytes",
                "exclusive_bytes",
                "extents",
                "shared_extents",
                "may_share",
                "files",
                "dirs",
                "set_shared_bytes",
                "footprint_bytes",
                "linked_outside_bytes",
                "reclaimable_bytes",
                "summary",
                "json",
                "children",
            ]
        );
        assert_eq!(
            keys(Kind::MountRoot),
            [directory.as_slice(), &["stats", "version"]].concat()
        );
    }

    #[test]
    fn nothing_is_listed_that_may_be_absent() {
        let listed: Vec<&str> = Name::listed(Kind::File).map(Name::key).collect();
        assert_eq!(
            listed,
            [
                "bytes",
                "shared_bytes",
                "exclusive_bytes",
                "extents",
                "shared_extents",
                "may_share",
                "summary",
                "json",
            ]
        );
        assert!(Name::listed(Kind::MountRoot).all(|name| {
            name.question() == Question::Numbers && name != Name::ReclaimableBytes
        }));
    }
}
