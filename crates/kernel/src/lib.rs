//! The only crate that speaks `bpf(2)`, `perf_event_open(2)` and libbpf, and the only one with `unsafe` code.
//!
//! - [`sampler`]: the sampling program of `bpf/sampler.bpf.c`, loaded, attached, read
//! - [`sideband`]: which processes start, execute, map code and exit, as the kernel tells it in perf records
//! - [`perf`]: perf events
//! - [`calibrate`]: what a timer interrupt costs on this machine
//! - [`features`]: what works here, found by trying
//! - [`os`]: clocks, limits, capabilities, namespaces
//! - [`spawn`]: a command held back before its first instruction
//!
//! Not here: what samples mean (crate `sampler`), names (crate `symbolize`), decisions about cost (crate `cost`).

pub mod abi;
pub mod calibrate;
mod error;
pub mod features;
mod mmap;
pub mod os;
pub mod perf;
pub mod sampler;
pub mod sideband;
pub mod spawn;

pub use error::{Error, Kind, Result};
