//! Which object and offset an address of a process belongs to, and the files behind it.
//!
//! The kernel side finds the mapping of each address by itself and sends it with the stack, so nothing is kept of processes here but what
//! names need: an [`Object`] for each executable file, held open so that a program that exited, was deleted or was replaced still gets its
//! names, and perf maps of code made at run time. `/proc` is asked only where a stack came without a mapping.
//!
//! Everything that grows has a bound ([`Limits`]) and a counter ([`Counters`]). All access to the file system passes
//! [`System`], so that tests can replace it.
//!
//! Not here: names of native code (crate `symbolize`), reading the kernel's tree of mappings (`bpf/mapping.h`).

mod address;
pub mod check;
mod counters;
mod host;
mod jit;
mod jit_jvm;
mod lines;
mod mapping;
pub mod maps;
mod objects;
pub mod perf_map;
mod processes;
mod procmap_query;
mod system;

pub use address::CodeAddress;
pub use counters::{Counters, Limits};
pub use host::Host;
pub use jit::{JitId, JitName};
pub use lines::for_each_line;
pub use mapping::{Code, Content, Device, FileKey, Mapping, Process};
pub use objects::{Object, ObjectId, OpenObject};
pub use processes::{Processes, Resolved};
pub use system::{FileIdentity, Opened, Owner, Runtime, System, Written};
