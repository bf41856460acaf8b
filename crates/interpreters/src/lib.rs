//! Interpreters of languages: whether an ELF file is one, where its state lies, and what its frames are called.
//!
//! * [`detect`] looks at an object's symbols. What it finds goes into the kernel side's map of interpreters as it is, and the code of
//!   the interpreter's loop is to be flagged in the object's unwind rows.
//! * The kernel side (`bpf/python.h`, `bpf/ruby.h`) then reads frames at the moment of a sample: addresses of code objects and
//!   positions in them.
//! * [`python::Names`] and [`ruby`] read the names behind these addresses from the process's memory, through [`Memory`].
//!
//! Where fields lie is never guessed: either the interpreter says it itself, or it is in a [`Layout`] taken from debug information or
//! headers of that version by `cargo xtask interpreter-offsets`.
//!
//! Not here: reading the memory of a process (crate `kernel`), and which object an address belongs to (crate `process`).

#[doc(hidden)]
pub mod check;
mod layout;
mod memory;
pub mod python;
pub mod ruby;
pub mod symbols;

use std::fmt;
use std::ops::Range;

pub use layout::{Layout, LayoutError, Layouts};
pub use lightfoot_unwind::ReadAt;
pub use memory::{Memory, Process};

/// Places in [`Interpreter::symbols`]. Keep in step with `bpf/lightfoot.h`.
pub const SYMBOLS: usize = 8;
/// Places in [`Interpreter::offsets`]. Keep in step with `bpf/lightfoot.h`.
pub const OFFSETS: usize = 64;

/// A language whose frames are read. The number is that of `enum lf_language` in `bpf/lightfoot.h`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum Language {
    /// CPython.
    Python = 1,
    /// CRuby.
    Ruby = 2,
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Language::Python => "Python",
            Language::Ruby => "Ruby",
        })
    }
}

/// Version of an interpreter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Version {
    /// 3 in 3.11.2.
    pub major: u8,
    /// 11 in 3.11.2.
    pub minor: u8,
    /// 2 in 3.11.2.
    pub patch: u8,
}

impl Version {
    /// As the kernel side has it: major << 16 | minor << 8 | patch.
    pub fn number(self) -> u32 {
        u32::from(self.major) << 16 | u32::from(self.minor) << 8 | u32::from(self.patch)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// What is known about an interpreter: per object, the same for each process that maps it. Mirror: `struct lf_interpreter`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interpreter {
    /// Its language.
    pub language: Language,
    /// Its version.
    pub version: Version,
    /// Places of its variables, relative to where the file would begin in the mapping of the code: the address in a process is
    /// `segment.start - segment.file_offset + this` (wrapping). The meaning of each is the language's.
    pub symbols: [u64; SYMBOLS],
    /// Offsets of fields in bytes, and what else the kernel side needs. The meaning of each is the language's.
    pub offsets: [u32; OFFSETS],
    /// Code of the interpreter's loop, as ranges of file offsets: unwind rows there are to be flagged.
    pub loop_code: Vec<Range<u64>>,
}

/// What an object turned out to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Detected {
    /// No interpreter.
    Nothing,
    /// An interpreter whose frames can be read.
    Interpreter(Box<Interpreter>),
    /// An interpreter whose frames cannot be read.
    Unsupported {
        /// Its language.
        language: Language,
        /// Why, for the user.
        reason: String,
    },
}

/// Whether an ELF object is an interpreter. Cheap for objects that are none: symbol tables of other objects are not gone through.
///
/// `path` is where the object was found; the part after the last `/` may tell a version. `layouts` has the versions that do not
/// describe themselves.
pub fn detect(data: &dyn ReadAt, path: &str, layouts: &Layouts) -> Detected {
    match python::detect(data, path, layouts) {
        Detected::Nothing => ruby::detect(data, path, layouts),
        found => found,
    }
}

/// What a frame of an interpreter is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name {
    /// Function, qualified as far as the version allows: `Class.method`.
    pub function: std::sync::Arc<str>,
    /// Source file as the interpreter knows it; empty if it has none.
    pub file: std::sync::Arc<str>,
    /// Line in it; 0 if unknown.
    pub line: u32,
}

/// What became of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resolved {
    /// It has a name.
    Named(Name),
    /// The interpreter's own bookkeeping: no frame that a user would know. To be left out.
    Hidden,
    /// It has none.
    Unknown(Unknown),
}

/// Why a frame has no name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Unknown {
    /// The process's memory could not be read: it is gone.
    Unreadable,
    /// What is there is no code.
    NotCode,
}
