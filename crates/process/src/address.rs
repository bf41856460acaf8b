//! An address in code, and how it came to be known.

/// An absolute address of code, as found in a stack.
///
/// The first address of a stack is the instruction that was executing; the others are where calls will return to. A
/// return address may lie behind the last byte of the calling function (a call of a function that never returns), so
/// it is looked up one byte earlier, inside the call instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CodeAddress {
    /// Address of an instruction that was executing, for example `0x401136`.
    Instruction(u64),
    /// Address of the instruction behind a call.
    Return(u64),
}

impl CodeAddress {
    /// The address at `depth` of a stack that is given leaf first: 0 is the instruction pointer, all others are return
    /// addresses.
    pub fn at_depth(depth: usize, address: u64) -> CodeAddress {
        if depth == 0 { CodeAddress::Instruction(address) } else { CodeAddress::Return(address) }
    }

    /// The address to look up in mappings and symbol tables: a byte of the instruction itself or of the call.
    pub fn lookup(self) -> u64 {
        match self {
            CodeAddress::Instruction(address) => address,
            CodeAddress::Return(address) => address.saturating_sub(1),
        }
    }

    /// The address as it was found.
    pub fn raw(self) -> u64 {
        match self {
            CodeAddress::Instruction(address) | CodeAddress::Return(address) => address,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_address_is_looked_up_inside_the_call() {
        assert_eq!(CodeAddress::at_depth(0, 0x1000).lookup(), 0x1000);
        assert_eq!(CodeAddress::at_depth(1, 0x1000).lookup(), 0xfff);
        assert_eq!(CodeAddress::at_depth(7, 0).lookup(), 0);
        assert_eq!(CodeAddress::Return(0x1000).raw(), 0x1000);
    }
}
