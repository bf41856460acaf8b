//! Where functions start, for objects that do not name them: the sorted table of `.eh_frame_hdr`, which stripping leaves.
//!
//! Layout: Linux Standard Base, "Exception Frames", `.eh_frame_hdr`: version 1, three encodings, the encoded address of `.eh_frame`, a count, and
//! that many pairs (first address of a function, address of its unwind entry). All linkers write the table with 4-byte numbers relative to
//! the section (`DW_EH_PE_datarel | DW_EH_PE_sdata4`) and the count with 4 bytes; anything else is left alone.

use crate::bytes::read_some;
use crate::elf::Elf;

/// Bytes of the table that are read: a million functions.
const TABLE_BYTES: usize = 8 << 20;
const UDATA4: u8 = 0x03;
const DATAREL_SDATA4: u8 = 0x3b;
/// Header with 4-byte fields: version, encodings, address of `.eh_frame`, count.
const HEADER_BYTES: usize = 12;

/// First addresses of the functions around `addresses` (ELF virtual addresses), in their order; `None` where the table does not say.
pub(crate) fn function_starts(elf: &Elf<'_>, addresses: &[u64]) -> Vec<Option<u64>> {
    let Some(starts) = table(elf) else { return vec![None; addresses.len()] };
    addresses
        .iter()
        .map(|&address| {
            let behind = starts.partition_point(|&start| start <= address);
            let start = *starts.get(behind.checked_sub(1)?)?;
            let within = |at: u64| elf.sections().iter().position(|s| s.is_code() && s.covers(at));
            // The last function of a section does not reach into the next one.
            (within(start).is_some() && within(start) == within(address)).then_some(start)
        })
        .collect()
}

fn table(elf: &Elf<'_>) -> Option<Vec<u64>> {
    let section = elf.section_named(b".eh_frame_hdr")?;
    let bytes = read_some(elf.data, section.offset, section.size, TABLE_BYTES);
    let head = bytes.get(..HEADER_BYTES)?;
    // The address of .eh_frame has an encoding of its own; all 4-byte ones are as long.
    if head[0] != 1 || head[1] & 0x0f != 0x0b || head[2] != UDATA4 || head[3] != DATAREL_SDATA4 {
        return None;
    }
    let count = elf.endian.u32(head, 8) as usize;
    let entries = bytes[HEADER_BYTES..].chunks_exact(8).take(count);
    let mut starts: Vec<u64> = entries
        .map(|entry| section.address.wrapping_add_signed(i64::from(elf.endian.u32(entry, 0) as i32)))
        .collect();
    // The format promises it; a forged file need not.
    starts.sort_unstable();
    Some(starts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn finds_the_starts_of_our_own_functions() {
        let file = File::open("/proc/self/exe").unwrap();
        let elf = Elf::parse(&file).unwrap();
        let starts = table(&elf).expect("every Linux executable has the table");
        assert!(starts.len() > 100 && starts.is_sorted());
        let some = starts[starts.len() / 2];
        assert_eq!(function_starts(&elf, &[some, some + 1, 0]), [Some(some), Some(some), None]);
    }

    #[test]
    fn a_forged_table_is_no_table() {
        let whole = std::fs::read("/proc/self/exe").unwrap();
        let bytes: &[u8] = &whole;
        let header = Elf::parse(&bytes).unwrap().section_named(b".eh_frame_hdr").unwrap().offset as usize;
        for (at, value) in [(0, 9u8), (1, 0xff), (2, 0x04), (3, 0x1b)] {
            let mut forged = whole.clone();
            forged[header + at] = value;
            let bytes: &[u8] = &forged;
            assert_eq!(table(&Elf::parse(&bytes).unwrap()), None);
        }
        let mut forged = whole.clone();
        forged[header + 8..header + 12].fill(0xff);
        let bytes: &[u8] = &forged;
        assert!(table(&Elf::parse(&bytes).unwrap()).is_some_and(|starts| starts.len() * 8 <= TABLE_BYTES));
    }
}
