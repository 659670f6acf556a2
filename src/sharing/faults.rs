//! Deliberate faults, to show that the tests can fail. Without the cargo feature `faults` there
//! are none and the questions for them cost nothing.

/// A way in which the engine could be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A change invalidates the file, but not those that share with it.
    NoSharerInvalidation,
    /// Files that share are not written back before an answer.
    NoSharerWriteback,
    /// Removals are not carried out before an answer.
    NoRemovalFlush,
    /// A record is believed for as long as the file's own ctime and size stay the same.
    CtimeOnly,
    /// The last close is taken as the end of writing, mappings forgotten.
    ReleaseEndsWriting,
    /// A copy does not touch what is known of its source.
    CloneSourceForgotten,
    /// What was dirty or half removed at the beginning is not settled.
    NoBarrier,
}

impl Fault {
    /// Every fault, with the name it is asked for by.
    pub const ALL: [(&'static str, Self); 7] = [
        ("no-sharer-invalidation", Self::NoSharerInvalidation),
        ("no-sharer-writeback", Self::NoSharerWriteback),
        ("no-removal-flush", Self::NoRemovalFlush),
        ("ctime-only", Self::CtimeOnly),
        ("release-ends-writing", Self::ReleaseEndsWriting),
        ("clone-source-forgotten", Self::CloneSourceForgotten),
        ("no-barrier", Self::NoBarrier),
    ];
}

/// The fault of an engine, if it has one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults(#[cfg(feature = "faults")] Option<Fault>);

impl Faults {
    /// The fault that the environment asks for (`SHARELENS_FAULT`).
    pub(crate) fn from_environment() -> Self {
        #[cfg(feature = "faults")]
        {
            let wanted = std::env::var("SHARELENS_FAULT").unwrap_or_default();
            Self(
                Fault::ALL
                    .iter()
                    .find(|(name, _)| *name == wanted)
                    .map(|(_, fault)| *fault),
            )
        }
        #[cfg(not(feature = "faults"))]
        Self()
    }

    /// This one fault.
    #[cfg(feature = "faults")]
    pub(crate) fn only(fault: Fault) -> Self {
        Self(Some(fault))
    }

    /// Whether the engine is to have it.
    #[inline]
    pub(crate) fn has(self, fault: Fault) -> bool {
        #[cfg(feature = "faults")]
        {
            self.0 == Some(fault)
        }
        #[cfg(not(feature = "faults"))]
        {
            let _ = fault;
            false
        }
    }
}
