//! Names of kernel addresses.

use crate::symbols::Symbol;
use crate::{Named, NamedFrame, kallsyms};
use std::fs::File;

/// Names for absolute kernel addresses, in their order: the kernel, its modules and BPF programs (`name [module]`). Reads
/// `/proc/kallsyms` once; memory is proportional to the addresses.
pub fn kernel(addresses: &[u64]) -> Vec<Named> {
    let found = match File::open("/proc/kallsyms") {
        Ok(mut file) => kallsyms::find(&mut file, addresses),
        Err(_) => return vec![Named::Unknown { reason: "no /proc/kallsyms" }; addresses.len()],
    };
    let named = |address: &u64| match found.binary_search_by_key(address, |(address, _)| *address) {
        Ok(at) => found[at].1.clone().into(),
        Err(_) => Named::Unknown { reason: "address between symbols" },
    };
    addresses.iter().map(named).collect()
}

impl From<Result<Symbol, &'static str>> for Named {
    fn from(symbol: Result<Symbol, &'static str>) -> Named {
        match symbol {
            Ok(Symbol { name, start }) => Named::Known {
                frames: vec![NamedFrame { name, file: None, line: 0, address: start, inlined: false }],
            },
            Err(reason) => Named::Unknown { reason },
        }
    }
}
