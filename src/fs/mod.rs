//! The passthrough filesystem in plain types.

pub mod device;
