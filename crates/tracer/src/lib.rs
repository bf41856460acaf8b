//! A tracing run: what fired, what became of it, what it cost.
//!
//! - [`Run`]: probes attached, watched, weighed, detached; its result is an [`Outcome`]
//! - [`calibrate`]: what probes cost on this machine, measured on ourselves
//!
//! Not here: where probes go (crate `sites`), how they are attached (crate `kernel`), arithmetic and decisions (crate `cost`), printing (crate `cli`).
#![forbid(unsafe_code)]

pub mod calibrate;
mod error;
mod measuring;
pub mod outcome;
mod plan;
mod report;
mod request;
mod run;
mod store;
mod target;

pub use calibrate::Calibration;
pub use error::{Error, Result};
pub use lightfoot_kernel::os::monotonic_ns;
pub use outcome::Outcome;
pub use report::place;
pub use request::{Request, TRIAL, Target};
pub use run::{Progress, Run, list, options, sites};
