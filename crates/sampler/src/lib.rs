//! A profiling run: kernel + process + symbolize + cost -> [`lightfoot_model::Profile`].
//!
//! The life of a sample here: [`Run`] takes stacks with their mappings out of the kernel's ring, brings them to (object, offset) at once
//! (`stacks`), because files are deleted and processes exit, and names them when the run is over (`naming`), object by object. Objects
//! that the kernel meets for the first time are given their unwind tables (`library`).
//!
//! Not here: the kernel side (crate `kernel`), file formats (crate `export`), signals and terminals (crate `cli`).
#![forbid(unsafe_code)]

mod cache;
mod debt;
mod deferred;
mod error;
mod interpreted;
mod library;
mod naming;
mod ranges;
mod request;
mod run;
mod saving;
mod stacks;
mod steering;
mod timing;
mod workshop;

pub use error::{Error, Result};
pub use lightfoot_kernel::sampler::{SaveWalks, Transfer};
pub use request::{ClockChoice, Kinds, Request, Save, Target};
pub use run::{Progress, Run};
