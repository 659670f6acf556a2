//! Names and text of the virtual attributes: the only place that spells them.
//!
//! No I/O happens here and nothing is looked up: the rooms above bring the numbers. What is not
//! known is absent (`None`, which becomes `ENODATA`), never 0.

mod children;
mod map;
mod name;
mod text;
mod value;

pub use children::{Child, ChildKind, Children, parse_children, printable};
pub use map::map;
pub use name::{Kind, Name, PREFIX, Parsed, Question};
pub use text::Text;
pub use value::{FileNumbers, directory, file};

/// The largest value of an extended attribute that the kernel passes on (`XATTR_SIZE_MAX`).
pub const LARGEST_VALUE: usize = 64 << 10;
