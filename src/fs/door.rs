//! Stands in for the engine until it is there: every change is let through, no number is known.

use super::backing::DiskBacking;
use crate::sharing::{Change, FileKey};
use std::marker::PhantomData;
use std::sync::Arc;

/// The engine.
pub struct Engine {
    backing: DiskBacking,
}

/// A change under way.
#[must_use]
pub struct ChangeGuard<'a>(PhantomData<&'a Engine>);

impl ChangeGuard<'_> {
    /// Nothing was changed.
    pub fn abandon(self) {}
}

impl Engine {
    /// On this disk.
    #[must_use]
    pub fn new(backing: DiskBacking) -> Arc<Self> {
        Arc::new(Self { backing })
    }

    /// The disk.
    pub fn backing(&self) -> &DiskBacking {
        &self.backing
    }

    /// Announces a change.
    pub fn begin(&self, _change: Change) -> ChangeGuard<'_> {
        ChangeGuard(PhantomData)
    }

    /// A file was created.
    pub fn created(&self, _file: FileKey) {}
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {}
}
