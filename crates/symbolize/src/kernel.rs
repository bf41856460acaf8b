//! Names of kernel addresses.

use crate::{Named, dwarf};
use blazesym::symbolize::source::{Kernel, Source};
use blazesym::symbolize::{Input, Symbolizer};

/// Names for absolute kernel addresses, in their order: the kernel, its modules (`name [module]`) and BPF programs.
pub fn kernel(addresses: &[u64]) -> Vec<Named> {
    match Symbolizer::new().symbolize(&Source::Kernel(Kernel::default()), Input::AbsAddr(addresses)) {
        Ok(symbols) => symbols.iter().map(dwarf::named).collect(),
        Err(_) => vec![Named::Unknown { reason: "kernel hides addresses (kptr_restrict)" }; addresses.len()],
    }
}
