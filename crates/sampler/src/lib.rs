//! A profiling run: kernel + process + symbolize + cost -> [`lightfoot_model::Profile`].
//!
//! The life of a sample here: [`Run`] takes stacks of raw addresses out of the kernel's ring, brings them to (object, offset) at once
//! ([`stacks`]), because mappings change and processes exit, and names them when the run is over (`naming`), object by object.
//!
//! Not here: the kernel side (crate `kernel`), file formats (crate `export`), signals and terminals (crate `cli`).
#![forbid(unsafe_code)]

mod error;
mod naming;
mod request;
mod run;
mod stacks;

pub use error::{Error, Result};
pub use lightfoot_kernel::sampler::Transfer;
pub use request::{Request, Target};
pub use run::{Progress, Run};
