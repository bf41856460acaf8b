//! Unwind rows: what an ELF file says about how its callers are found, as sorted rows of (file offset, rule), and the reference
//! walker over the same rows that the kernel side uses.
//!
//! * [`Table::build`] reads `.eh_frame`, `.debug_frame`, Go's `.gopclntab` and PLT sections in pieces through [`ReadAt`];
//!   its own interpreter of the call frame instructions is compared with gimli's in the tests.
//! * Rows are by **file offset** of the code, so one table serves every process that maps the file, at any address.
//! * [`Table::pages`] gives rows as the kernel keeps them: by 64 KiB page of the file.
//!
//! Pure: no I/O, no unsafe code; foreign bytes never make it panic, and memory is bounded by [`Options`].
//!
//! Not here: where an object is mapped, and who maps it (crate `process`).

mod arch;
mod builder;
mod bytes;
mod cache;
pub mod check;
mod coding;
mod elf;
mod expression;
mod frames;
mod frozen;
mod go;
mod interpreter;
mod plt;
mod pushes;
mod rule;
mod table;
mod unpack;
mod walk;

pub use arch::Arch;
pub use builder::function_range;
pub use bytes::ReadAt;
pub use coding::DecodeError;
pub use elf::{Elf, Segment, is_elf};
pub use frozen::{Agreement, Frozen, FrozenMapping, State, compare, replay};
pub use rule::{CfaKind, Rule, Saved};
pub use table::{Page, Row, Stats, Table};
pub use walk::{
    Code, Frame, Knowledge, Mappings, Memory, NoMapping, Outcome, Registers, Step, Walked, walk, walk_noting,
};

/// What building a table may cost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Rows before equal neighbours are merged. Each takes 8 bytes while the table is built. Functions beyond are left out and
    /// counted in [`Stats::left_out`].
    pub rows_max: usize,
    /// Compressed `.debug_frame` of more bytes than this, uncompressed, is not used: it would have to be in memory as a whole.
    pub unpacked_limit_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { rows_max: 4 << 20, unpacked_limit_bytes: 16 << 20 }
    }
}

/// Why an object has no table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuildError {
    /// The file does not start as ELF files do, or is shorter than an ELF header.
    #[error("not an ELF file")]
    NotElf,
    /// 32-bit code is not unwound.
    #[error("32-bit code")]
    ThirtyTwoBit,
    /// Neither x86-64 nor arm64 as Linux runs them.
    #[error("big-endian code")]
    BigEndian,
    /// Neither a program nor a shared object; the number is `e_type`.
    #[error("not a program or shared object (ELF type {0})")]
    NotLoadable(u16),
    /// Neither x86-64 nor arm64; the number is `e_machine`.
    #[error("code for another CPU (ELF machine {0})")]
    Machine(u16),
    /// Program headers lie outside of the file or have an impossible size.
    #[error("damaged ELF headers")]
    DamagedHeaders,
}
