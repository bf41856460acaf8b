//! What must hold for any bytes; called by the fuzz targets and, over their corpus, by plain tests.

use crate::elf::Elf;
use crate::{Named, Options, find_in_bytes, kallsyms, object};

/// Any bytes as `/proc/kallsyms`.
///
/// # Panics
/// If a symbol lies behind the address that it was found for, or has a name that a terminal would obey: that is a bug.
pub fn kallsyms(bytes: &[u8]) {
    let lines = bytes.split(|&byte| byte == b'\n').filter_map(kallsyms::parse_line).take(100);
    let mut addresses: Vec<u64> =
        lines.flat_map(|line| [line.address, line.address.wrapping_add(1)]).collect();
    addresses.extend([0, 0xffff_ffff_8100_0000, u64::MAX]);
    let mut reader = bytes;
    for (address, symbol) in kallsyms::find(&mut reader, &addresses) {
        if let Ok(symbol) = symbol {
            assert!(symbol.start <= address);
            assert!(!symbol.name.is_empty() && !symbol.name.chars().any(char::is_control));
        }
    }
}

/// Any bytes as an ELF file; the offsets asked for are spread over it.
///
/// # Panics
/// If a name is empty or one that a terminal would obey: that is a bug.
pub fn elf_symbols(bytes: &[u8]) {
    let length = bytes.len() as u64;
    let mut offsets: Vec<u64> = (0..32).map(|i| length * i / 32).collect();
    offsets.extend([0, 1, length.wrapping_sub(1), length, u64::MAX]);
    for symbol in find_in_bytes(bytes, &offsets).into_iter().flatten() {
        assert!(!symbol.name.is_empty() && !symbol.name.chars().any(char::is_control));
    }
}

/// Any bytes as an ELF file with debug information.
///
/// # Panics
/// If a name is empty or one that a terminal would obey, or if a parser panicked: that is a bug.
pub fn debug_info(bytes: &[u8]) {
    let Ok(elf) = Elf::parse(&bytes) else { return };
    let length = bytes.len() as u64;
    let offsets: Vec<u64> = (0..64).map(|i| length * i / 64).collect();
    let options =
        Options { debug_info: true, debug_info_limit_bytes: 1 << 20, unpacked_limit_bytes: 1 << 20 };
    let batch = object::names(&elf, None, None, &offsets, &options);
    assert_eq!(batch.named.len(), offsets.len());
    assert_ne!(batch.note, Some("symbolizer failed"));
    for named in batch.named {
        if let Named::Known { frames } = named {
            assert!(!frames.is_empty() && !frames[0].inlined);
            assert!(frames.iter().all(|f| !f.name.is_empty() && !f.name.chars().any(char::is_control)));
        }
    }
}
