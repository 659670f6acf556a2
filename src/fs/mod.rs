//! The passthrough filesystem in plain types.

pub mod backing;
pub mod device;
