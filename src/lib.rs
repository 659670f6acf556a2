//! sharelens: a FUSE passthrough filesystem that shows how much of every file and directory is
//! shared with others by reflinks, as virtual extended attributes.
//!
//! The rooms, from the door down; each depends only on rooms below it:
//!
//! | room | owns |
//! | --- | --- |
//! | [`cli`] | the commands: one file each, printing, tables, progress, JSON |
//! | [`mount`] | options, privileges, limits, background and readiness, signals, unmount |
//! | [`fuse`] | the thin adapter from FUSE requests to [`fs`] |
//! | [`vxattr`] | names and text of the virtual attributes |
//! | [`fs`] | the passthrough filesystem in plain types |
//! | [`sharing`] | the engine: which numbers are known, and until when |
//! | [`extent`] | pure data: extents, maps and the numbers made from them |
//! | [`sys`] | every `unsafe` and every raw system call, each wrapped once |

pub mod cli;
pub mod extent;
pub mod fs;
pub mod fuse;
pub mod mount;
pub mod sharing;
pub mod sys;
pub mod vxattr;
