//! What differs between CPUs.

/// A CPU that rows can be made for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Arch {
    /// x86-64.
    X86_64 = 1,
    /// arm64, little-endian.
    Arm64 = 2,
}

impl Arch {
    /// By ELF's `e_machine`.
    pub fn from_elf_machine(machine: u16) -> Option<Arch> {
        match machine {
            62 => Some(Arch::X86_64),
            183 => Some(Arch::Arm64),
            _ => None,
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<Arch> {
        [Arch::X86_64, Arch::Arm64].into_iter().find(|arch| *arch as u8 == number)
    }

    /// DWARF number of the stack pointer.
    pub fn sp(self) -> u16 {
        if self == Arch::X86_64 { 7 } else { 31 }
    }

    /// DWARF number of the frame pointer (rbp, x29).
    pub fn fp(self) -> u16 {
        if self == Arch::X86_64 { 6 } else { 29 }
    }

    /// DWARF number of the return address (its own number on x86-64, x30 on arm64).
    pub fn ra(self) -> u16 {
        if self == Arch::X86_64 { 16 } else { 30 }
    }

    /// General-purpose registers, by DWARF number from 0; on x86-64 without the return address.
    pub fn registers(self) -> u16 {
        if self == Arch::X86_64 { 16 } else { 32 }
    }
}
