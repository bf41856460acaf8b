//! Address to name: native objects (ELF symbols, DWARF lines and inlined functions), the kernel, the vDSO.
//!
//! Names are found at the end of a run, one object after the other ([`object`]), so that the tables of only one object
//! are in memory at a time; nothing is kept between calls. Every call is bounded in memory ([`Options`]).
//!
//! Addresses are *look-up* addresses: a return address has already been moved into the call that it belongs to
//! (`CodeAddress::lookup` of crate `process`).
//!
//! Not here: which object an address belongs to, and perf maps of JIT compilers (crate `process`).

mod bytes;
pub mod check;
mod debug_file;
mod dwarf;
mod elf;
mod frame_index;
pub mod kallsyms;
mod kernel;
mod named;
mod names;
mod nearest;
mod object;
mod plt;
mod symbols;
mod vdso;

pub use kernel::kernel;
pub use named::{Batch, Named, NamedFrame};
pub use symbols::{Symbol, find_in_bytes};
pub use vdso::{vdso, vdso_image};

use std::fs::File;
use std::path::Path;

/// An object whose addresses are to be named.
#[derive(Clone, Copy, Debug)]
pub struct ObjectSource<'a> {
    /// The object itself, open for reading.
    pub file: &'a File,
    /// Its path as the process saw it; only used to find separate debug information beside it.
    pub display_path: &'a Path,
}

/// How much may be spent on one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Whether debug information (lines and inlined functions) is used at all.
    pub debug_info: bool,
    /// How much debug information may be read for one object, in bytes of the units that hold the addresses asked for. Bounds
    /// the time (about 3 ms per MB), not the memory, which is about 3 MB. Beyond it names come from the symbol table alone,
    /// and [`Batch::note`] says so.
    pub debug_info_limit_bytes: u64,
    /// Compressed debug information of more bytes than this, uncompressed, is not used: it would have to be in memory as a
    /// whole. (Debian's debug files are compressed; the C library's has 10 MB.)
    pub unpacked_limit_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { debug_info: true, debug_info_limit_bytes: 32 << 20, unpacked_limit_bytes: 12 << 20 }
    }
}

/// Names for offsets in one object's file, in their order. Never fails as a whole: what has no name has a reason.
pub fn object(source: &ObjectSource<'_>, file_offsets: &[u64], options: &Options) -> Batch {
    object::object(source, file_offsets, options)
}
