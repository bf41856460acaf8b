//! Where a probe goes: from what a user writes (`uprobe:/bin/x:main`) to the cheapest place with the same meaning.
//!
//! - [`Spec`]: the syntax of probes, bpftrace's
//! - [`resolve`]: from specs to [`Site`]s. What the kernel can do comes in as [`Capabilities`]
//! - [`list`]: what there is to probe
//! - [`elf`], [`usdt`], [`btf`], [`System`]: what files and the kernel say about themselves; foreign bytes, never trusted
//! - [`instruction`]: what stands under a uprobe, and what the kernel makes of it
//! - [`leave`]: where calls of a function end
//!
//! Files are read and never written; nothing is attached, nothing printed. Not here: attaching (crate `kernel`), prices (crate `cost`).
#![forbid(unsafe_code)]

pub mod btf;
mod capabilities;
pub mod check;
mod choose;
mod demangle;
pub mod elf;
mod error;
mod events;
mod files;
mod glob;
pub mod instruction;
mod kernel;
pub mod leave;
mod list;
mod near;
mod place;
mod resolve;
mod scan;
mod spec;
mod syscalls;
mod system;
pub mod usdt;
mod user;

pub use capabilities::{Capabilities, Nop5};
pub use error::{Error, Kind, Result};
pub use list::{list, list_on};
pub use place::{Every, Place, Site};
pub use resolve::{Options, resolve, resolve_on};
pub use spec::{At, Spec};
pub use system::System;
