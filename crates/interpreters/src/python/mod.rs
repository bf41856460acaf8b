//! CPython 3.8 and later.

mod align;
pub(crate) mod cold;
mod described;
mod detect;
mod lines;
mod names;
mod offsets;
mod text;

pub use align::align;
pub use detect::detect;
pub(crate) use detect::from_layout;
pub use names::{Limits, Names};
pub use offsets::{Offset, SYMBOL_CODE_TYPE, SYMBOL_RUNTIME};
