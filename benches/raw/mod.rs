//! The raw way of asking, against which sharelens is measured: open, FIEMAP and close of each
//! file, and the trees it is measured on.
//!
//! Independent of the library on purpose: what is compared with the product must not be made of
//! its parts.

pub(crate) mod generate;
pub(crate) mod kernel;
pub(crate) mod scan;
