//! Which processes and mappings exist, and which object and offset an address belongs to.
//!
//! [`Processes`] is fed with the machine's [`Event`]s in the order of time and asked where an address lies
//! ([`Processes::resolve`]). What it answers outlives the process: an [`Object`] stays open, so that a program that
//! exited, was deleted or was replaced still gets its names.
//!
//! Everything that grows has a bound ([`Limits`]) and a counter ([`Counters`]). All access to the file system passes
//! [`System`], so that tests can replace it.
//!
//! Not here: names of native code (crate `symbolize`), the events' source (crate `kernel`).

mod address;
pub mod check;
mod counters;
mod event;
mod host;
mod images;
mod jit;
mod lines;
pub mod maps;
mod objects;
pub mod perf_map;
mod processes;
mod procmap_query;
mod system;
mod table;

pub use address::CodeAddress;
pub use counters::{Counters, Limits};
pub use event::{Device, Event, Mapping};
pub use host::Host;
pub use jit::{JitId, JitName};
pub use lines::for_each_line;
pub use objects::{Object, ObjectId, OpenObject};
pub use processes::{Processes, Resolved};
pub use system::{FileIdentity, Opened, Owner, System};
