//! What an address is called.

/// The functions at one address, or why they are not known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Named {
    /// The functions at the address.
    Known {
        /// The real function first, then the functions inlined there, innermost last. Never empty.
        frames: Vec<NamedFrame>,
    },
    /// No name.
    Unknown {
        /// A short phrase, for example `no symbol table`.
        reason: &'static str,
    },
}

/// One function at an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedFrame {
    /// Name, demangled (Rust, C++), without control characters.
    pub name: String,
    /// Source file as the debug information gives it, for example `/build/src/main.c`.
    pub file: Option<String>,
    /// Line in `file`, from 1; 0 if not known. In the innermost frame the line being executed; in the others the line
    /// of the call of the next one.
    pub line: u32,
    /// First address of the real function as its symbol table counts (ELF virtual address; absolute for the kernel), for
    /// example `0x1139`. Inlined functions have the address of the function that holds them.
    pub address: u64,
    /// Whether the compiler put the function into its caller, so that it has no stack frame of its own.
    pub inlined: bool,
}

/// Names of one object's addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// One entry for each address asked for, in that order.
    pub named: Vec<Named>,
    /// For each address without a name the offset in the file of the function that it belongs to, if that is known: stripped objects
    /// still say where their functions start. Empty if all have names.
    pub function_starts: Vec<Option<u64>>,
    /// What was left out for all of them, for example that the debug information is above the limit.
    pub note: Option<&'static str>,
}

impl Batch {
    /// No names, for one and the same reason.
    pub(crate) fn unknown(count: usize, reason: &'static str) -> Batch {
        Batch { named: vec![Named::Unknown { reason }; count], function_starts: Vec::new(), note: None }
    }
}
