//! The only crate that speaks `bpf(2)`, `perf_event_open(2)` and libbpf, and the only one with `unsafe` code.
//!
//! - [`sampler`]: the sampling program of `bpf/sampler.bpf.c`, loaded, attached, read
//! - [`tables`]: the maps that hold unwind tables
//! - [`perf`]: perf events
//! - [`probes`]: probes of every kind
//! - [`offcpu`], [`remote`]: time off the CPU, and the stacks of threads that do not run
//! - [`tick`]: the scheduler's tick as a clock
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
mod maps;
mod mmap;
pub mod offcpu;
pub mod os;
pub mod perf;
pub mod probes;
pub mod remote;
pub mod sampler;
pub mod spawn;
pub mod tables;
pub mod tick;

pub use error::{Error, Kind, Result};
