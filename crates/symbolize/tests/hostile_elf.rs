//! Forged and damaged ELF files: a reason or a right name, never a panic, a long wait or much memory.
//!
//! The base is `fuzz/corpus/elf_symbols/minimal`, made by hand: 64-bit, loaded at 0x400000; `.text` at file offset 120 with
//! `outer` (0..32, also called `__alias_of_outer`), `core::fmt::write` (32..48), a gap, and `label` without size (52..).

use lightfoot_symbolize::find_in_bytes;

const TEXT: u64 = 120;
const SYMBOLS: usize = 184;
/// File offset of the section headers; 64 bytes each: none, .text, .symtab, .strtab, .shstrtab.
const SECTIONS: usize = 408;

fn minimal() -> Vec<u8> {
    std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/elf_symbols/minimal")).unwrap()
}

/// Names at the five places of the base.
fn names(elf: &[u8]) -> Vec<Result<String, &'static str>> {
    let offsets = [TEXT, TEXT + 31, TEXT + 32, TEXT + 49, TEXT + 60];
    find_in_bytes(elf, &offsets).into_iter().map(|symbol| symbol.map(|symbol| symbol.name)).collect()
}

fn patched(patches: &[(usize, &[u8])]) -> Vec<u8> {
    let mut elf = minimal();
    for (at, bytes) in patches {
        elf[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
    elf
}

#[test]
fn the_base_is_understood() {
    let write = "core::fmt::write".to_owned();
    assert_eq!(
        names(&minimal()),
        [
            Ok("outer".into()),
            Ok("outer".into()),
            Ok(write),
            Err("address between symbols"),
            Ok("label".into())
        ]
    );
}

#[test]
fn the_other_width_and_byte_order() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/elf_symbols/minimal-32-big");
    let names = find_in_bytes(&std::fs::read(path).unwrap(), &[84, 84 + 31, 84 + 32, 84 + 60]);
    let names: Vec<_> =
        names.iter().map(|symbol| symbol.as_ref().map(|symbol| symbol.name.as_str())).collect();
    assert_eq!(names, [Ok("outer"), Ok("outer"), Err(&"address between symbols"), Ok("label")]);
}

/// Sizes and offsets far outside of the file, and sections over each other.
#[test]
fn forged_headers() {
    const HUGE: [u8; 8] = u64::MAX.to_le_bytes();
    let symtab = SECTIONS + 2 * 64;
    let strtab = SECTIONS + 3 * 64;
    let missing = |elf: &[u8]| names(elf).iter().all(Result::is_err);
    assert_eq!(
        names(&patched(&[(symtab + 32, &HUGE)]))[0],
        Ok("outer".into()),
        "the size is cut to the file's"
    );
    assert!(missing(&patched(&[(symtab + 24, &HUGE)])), "offset of the table");
    assert_eq!(names(&patched(&[(symtab + 24, &HUGE)]))[0], Err("truncated ELF"));
    assert!(missing(&patched(&[(strtab + 24, &HUGE)])), "offset of the strings");
    assert_eq!(names(&patched(&[(strtab + 32, &HUGE)]))[0], Ok("outer".into()), "size of the strings");
    assert_eq!(
        names(&patched(&[(symtab + 56, &[0; 8])]))[0],
        Ok("outer".into()),
        "an entry size of 0 is not used"
    );
    assert!(
        names(&patched(&[(symtab + 40, &[2, 0, 0, 0])])).len() == 5,
        "a table that is its own string table"
    );
    assert_eq!(names(&patched(&[(symtab + 40, &[0xff; 4])]))[0], Err("no symbol table"), "a link to nowhere");
    assert_eq!(
        names(&patched(&[(symtab + 24, &0u64.to_le_bytes())])).len(),
        5,
        "the table lies over the header"
    );
    assert_eq!(names(&patched(&[(40, &HUGE)]))[0], Err("no symbol table"), "offset of the section headers");
    assert_eq!(
        names(&patched(&[(60, &[0xff; 2])]))[0],
        Ok("outer".into()),
        "more sections than the file has"
    );
    assert_eq!(names(&patched(&[(58, &[0; 2])]))[0], Err("no symbol table"), "sections of size 0");
    assert_eq!(
        names(&patched(&[(56, &[0xff; 2])]))[0],
        Err("truncated ELF"),
        "more segments than the file has"
    );
    assert_eq!(
        names(&patched(&[(60, &[0; 2])])).len(),
        5,
        "the number of sections is in section 0, and is 0"
    );
}

#[test]
fn forged_symbols() {
    // Each symbol covers everything.
    let mut elf = minimal();
    for symbol in 1..5 {
        let at = SYMBOLS + symbol * 24;
        elf[at + 8..at + 16].copy_from_slice(&1u64.to_le_bytes());
        elf[at + 16..at + 24].copy_from_slice(&u64::MAX.to_le_bytes());
    }
    assert!(names(&elf).iter().all(Result::is_ok));
    // A name outside of the strings, and one that never ends.
    assert_eq!(
        names(&patched(&[(SYMBOLS + 24, &[0xff; 4]), (SYMBOLS + 48, &[0xff; 4])]))[0],
        Err("truncated ELF")
    );
    let strings = minimal().len() - 1;
    let _ = names(&patched(&[(SYMBOLS + 24, &(strings as u32).to_le_bytes())]));
}

#[test]
fn cut_at_every_length() {
    let elf = minimal();
    for length in 0..elf.len() {
        assert_eq!(find_in_bytes(&elf[..length], &[TEXT]).len(), 1);
    }
    assert_eq!(names(b"")[0], Err("not an ELF file"));
    assert_eq!(names(b"#!/bin/sh\n")[0], Err("not an ELF file"));
    assert_eq!(names(&elf[..40])[0], Err("truncated ELF"));
}

/// A hundred symbol tables in the same place.
#[test]
fn overlapping_tables_end() {
    let mut elf = minimal();
    let headers = elf.len();
    let symtab = elf[SECTIONS + 128..SECTIONS + 192].to_vec();
    let others = elf[SECTIONS..SECTIONS + 5 * 64].to_vec();
    elf.extend(&others);
    for _ in 0..100 {
        elf.extend(&symtab);
    }
    elf[40..48].copy_from_slice(&(headers as u64).to_le_bytes());
    elf[60..62].copy_from_slice(&105u16.to_le_bytes());
    assert_eq!(names(&elf)[0], Ok("outer".into()));
}

/// A sparse file of a terabyte that is one symbol table.
#[test]
fn a_sparse_file_of_a_terabyte() {
    use std::io::Write;
    let mut elf = patched(&[(SECTIONS + 2 * 64 + 32, &(1u64 << 40).to_le_bytes())]);
    let mut file = tempfile::tempfile().unwrap();
    elf.resize(4096, 0);
    file.write_all(&elf).unwrap();
    if file.set_len(1 << 40).is_err() {
        return;
    }
    let start = std::time::Instant::now();
    let source = lightfoot_symbolize::ObjectSource { file: &file, display_path: "/x".as_ref() };
    let batch = lightfoot_symbolize::object(&source, &[TEXT], &lightfoot_symbolize::Options::default());
    assert!(matches!(batch.named[..], [lightfoot_symbolize::Named::Known { .. }]));
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}
