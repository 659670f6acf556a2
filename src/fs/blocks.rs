//! `st_blocks` as what a file alone occupies (`blocks=exclusive`).
//!
//! Invariants: what is shown is the answer of the engine at a moment between request and reply,
//! because the kernel keeps no attributes of regular files then (see [`Passthrough::attr`]); a file
//! with data never shows 0, which archivers take for one hole; where the engine cannot say, or not
//! in time, the blocks are those of the filesystem below.

use super::Passthrough;
use super::types::Attr;
use crate::extent::ShareSummary;

/// Bytes in a block of `st_blocks` (stat(2)).
const UNIT: u64 = 512;

impl Passthrough {
    /// Whether `st_blocks` of this is a question for the engine.
    fn asks_for_blocks(&self, attr: &Attr) -> bool {
        self.options.exclusive_blocks && attr.status.is_file() && attr.status.blocks > 0
    }

    /// The attributes with the blocks that are to be shown, if that needs no slow work; `None` when
    /// it does, and [`Passthrough::shown_blocks`] is to be asked where waiting holds nobody up.
    #[must_use]
    pub fn shown_blocks_now(&self, attr: Attr) -> Option<Attr> {
        if !self.asks_for_blocks(&attr) {
            return Some(attr);
        }
        let key = self.inodes.key(attr.node).ok()?;
        let summary = self.engine.peek(key)?;
        Some(with_blocks(attr, &summary))
    }

    /// The same, which may take as long as the engine's `wait`.
    #[must_use]
    pub fn shown_blocks(&self, attr: Attr) -> Attr {
        if !self.asks_for_blocks(&attr) {
            return attr;
        }
        let Ok(key) = self.inodes.key(attr.node) else {
            return attr;
        };
        match self.engine.summary(key) {
            Ok(summary) => with_blocks(attr, &summary),
            Err(error) => {
                log::debug!("the blocks of inode {} alone: {error}", key.ino);
                attr
            }
        }
    }
}

fn with_blocks(mut attr: Attr, summary: &ShareSummary) -> Attr {
    if summary.bytes.0 > 0 {
        let least = u64::from(attr.status.block_size).max(UNIT);
        attr.status.blocks = summary
            .exclusive_bytes()
            .0
            .max(least.min(summary.bytes.0))
            .div_ceil(UNIT);
    }
    attr
}
