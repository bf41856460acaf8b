//! What each kind of probe costs on this machine.
//!
//! - [`Format`]: how a result is written
//!
//! Not here: probes that a user names (`crates/tracer`), prices and their arithmetic (`crates/cost`), printing (`crates/cli`).
#![forbid(unsafe_code)]

mod format;
mod random;
pub mod stats;

pub use format::Format;
