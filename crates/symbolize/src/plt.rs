//! Stubs of the procedure linkage table (x86-64): `name@plt`. The stub's own jump says which slot it uses, and the
//! relocation of that slot says for which function, so that no layout of the table has to be assumed.

use crate::bytes::read_some;
use crate::elf::{Elf, Section};
use crate::names::pretty;
use crate::symbols::{Symbol, name};

const EM_X86_64: u16 = 62;
/// Size of a relocation with addend, in bytes.
const RELA_BYTES: usize = 24;
/// Relocations looked at, in bytes of their table.
const RELOCATIONS_BYTES: u64 = 4 << 20;

/// The name of the stub at `address`, if there is one.
pub(crate) fn find(elf: &Elf<'_>, address: u64) -> Option<Symbol> {
    if elf.machine != EM_X86_64 || !elf.wide || !elf.endian.little {
        return None;
    }
    let section =
        elf.sections().iter().find(|section| section.name.starts_with(b".plt") && section.covers(address))?;
    let each = if &*section.name == b".plt.got" && section.size.is_multiple_of(8) { 8 } else { 16 };
    let start = address - (address - section.address) % each;
    let code = read_some(elf.data, section.offset.checked_add(start - section.address)?, each, 16);
    // jmp *offset(%rip), after an optional endbr64 and bnd prefix.
    let jump = code.windows(2).position(|bytes| bytes == [0xff, 0x25])?;
    let behind = start.wrapping_add(jump as u64 + 6);
    let offset = elf.endian.u32(&code, jump + 2) as i32;
    code.get(jump + 2..jump + 6)?;
    let slot = behind.wrapping_add_signed(offset.into());
    let name = [b".rela.plt".as_slice(), b".rela.dyn"]
        .iter()
        .find_map(|table| slot_name(elf, elf.section_named(table)?, slot))?;
    Some(Symbol { name: pretty(&name) + "@plt", start })
}

/// The name of the function whose address the relocation puts into `slot`.
fn slot_name(elf: &Elf<'_>, relocations: &Section, slot: u64) -> Option<Vec<u8>> {
    let size = relocations.size.min(RELOCATIONS_BYTES);
    let mut at = 0;
    let index = loop {
        let length = (size - at).min(48 << 10) / RELA_BYTES as u64 * RELA_BYTES as u64;
        let bytes = read_some(elf.data, relocations.offset.checked_add(at)?, length, 48 << 10);
        if bytes.len() < RELA_BYTES {
            return None;
        }
        if let Some(entry) = bytes.chunks_exact(RELA_BYTES).find(|entry| elf.endian.u64(entry, 0) == slot) {
            break elf.endian.u32(entry, 12);
        }
        at += bytes.len() as u64;
    };
    let symbols = elf.section_at(relocations.link as usize)?;
    let strings = elf.section_at(symbols.link as usize)?;
    let entry = read_some(elf.data, symbols.offset.checked_add(u64::from(index) * 24)?, 24, 24);
    name(elf, strings, elf.endian.u32(&entry, 0).into())
}
