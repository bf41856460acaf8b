//! What each kind of probe costs on this machine.
//!
//! - [`rung`]: what is weighed
//! - [`ladder`]: how; [`Machine`] is what it is weighed on
//! - [`stats`]: medians and intervals
//! - [`noise`]: which machine, and how far it can be trusted
//! - [`Report`]: the rows; written as [`text`], [`markdown`], [`svg`] or JSON ([`Format`])
//! - [`apps`]: real servers with probes and without
//!
//! Not here: probes that a user names (`crates/tracer`), prices and their arithmetic (`crates/cost`), printing (`crates/cli`).
#![forbid(unsafe_code)]

pub mod apps;
mod crew;
mod format;
pub mod ladder;
pub mod markdown;
pub mod noise;
mod random;
pub mod report;
mod rig;
pub mod rung;
pub mod stats;
pub mod svg;
pub mod text;

pub use format::Format;
pub use report::Report;
pub use rig::Machine;
