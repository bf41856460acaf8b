//! Whole tables: what must not matter does not, and what is promised holds.

use lightfoot_unwind::{
    Arch, BuildError, CfaKind, DecodeError, Elf, Options, ReadAt, Rule, Saved, Table, function_range, is_elf,
};
use std::cell::Cell;
use std::path::Path;
use std::process::Command;

fn build(bytes: &[u8]) -> Table {
    Table::build(&bytes, &Options::default()).unwrap()
}

fn corpus(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/unwind_elf");
    std::fs::read(folder.join(name)).unwrap()
}

fn libraries() -> Vec<Vec<u8>> {
    ["libc.so.6", "libstdc++.so.6", "libm.so.6", "libcrypto.so.3", "libgcc_s.so.1"]
        .iter()
        .filter_map(|name| std::fs::read(Path::new("/usr/lib/x86_64-linux-gnu").join(name)).ok())
        .chain(std::fs::read(std::env::current_exe().unwrap()))
        .collect()
}

#[test]
fn without_section_headers_the_rows_are_the_same() {
    for mut bytes in libraries() {
        let whole = build(&bytes);
        let sections = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
        bytes[40..48].fill(0);
        bytes[60..64].fill(0);
        bytes.truncate(sections);
        let stripped = build(&bytes);
        // But for PLT sections that LLVM's linker left without unwind information (this test), and .init and .fini: nobody says where they
        // are.
        for row in stripped.rows.iter().filter(|row| row.rule != 0) {
            assert_eq!(whole.rule_at(row.offset.into()), stripped.rules[usize::from(row.rule)]);
        }
        let (fewer, all) = (stripped.rows.len(), whole.rows.len());
        assert!(fewer + 6 + 8 >= all, "{fewer} of {all} rows");
        assert_eq!(stripped.stats.functions, whole.stats.functions);
        assert_eq!(stripped.build_id, whole.build_id);
    }
    assert!(build(&corpus("no-sections")).stats.functions >= 5);
}

#[test]
fn debug_frame_counts_where_eh_frame_is_silent_packed_or_not() {
    let plain = build(&corpus("debug-frame"));
    assert!(plain.stats.functions >= 4, "{:?}", plain.stats);
    assert_eq!(build(&corpus("debug-frame-zlib")).rows, plain.rows);
    let packed = corpus("debug-frame-zlib");
    let tight = Options { unpacked_limit_bytes: 100, ..Options::default() };
    let table = Table::build(&packed.as_slice(), &tight).unwrap();
    assert_eq!((table.stats.functions, table.stats.malformed), (0, 1));
}

#[test]
fn a_function_that_aligns_its_stack() {
    let table = build(&corpus("lazy-plt-and-drap"));
    let drap: Vec<&Rule> = table.rules.iter().filter(|rule| rule.cfa == CfaKind::DerefFp).collect();
    assert!(!drap.is_empty());
    assert!(drap.iter().all(|rule| rule.fp == Saved::AtFp && rule.fp_offset == 0 && rule.cfa_offset < 0));
    assert!(table.rules.iter().any(|rule| rule.cfa == CfaKind::Plt && rule.cfa_offset == 11));
}

/// GNU ld can leave out what LLVM's linker always leaves out.
#[test]
fn plt_sections_without_unwind_information() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("plt.c");
    std::fs::write(&source, "int f(int); int g(int); int h(int a) { return f(a) + g(a + 1); }\n").unwrap();
    let mut tables = vec![];
    for option in ["--ld-generated-unwind-info", "--no-ld-generated-unwind-info"] {
        for marked in ["-fcf-protection=none", "-fcf-protection=branch"] {
            let library = folder.path().join(format!("plt{option}{marked}.so"));
            let ibt = if marked.ends_with("branch") { "-Wl,-z,ibtplt" } else { "-Wl,-z,lazy" };
            let built = Command::new("cc")
                .args(["-O2", "-shared", "-fPIC", "-nostdlib", "-Wl,-z,lazy", ibt, marked])
                .args([&format!("-Wl,{option}"), "-o"])
                .args([&library, &source])
                .status();
            if !cfg!(target_arch = "x86_64") || !built.is_ok_and(|status| status.success()) {
                return;
            }
            tables.push(build(&std::fs::read(&library).unwrap()));
        }
    }
    for (with, without) in [(&tables[0], &tables[2]), (&tables[1], &tables[3])] {
        let plt = with.rows.iter().find(|row| with.rules[usize::from(row.rule)].cfa == CfaKind::Plt);
        let start = u64::from(plt.unwrap().offset) - 16;
        for offset in start..start + 0x40 {
            assert_eq!(with.rule_at(offset), without.rule_at(offset), "{offset:#x}");
        }
    }
}

#[test]
fn a_cached_table_is_the_same_table_or_refused() {
    for bytes in libraries() {
        let table = build(&bytes);
        let encoded = table.encode(b"key");
        assert_eq!(Table::decode(&encoded, b"key").as_ref(), Ok(&table));
        assert_eq!(Table::decode(&encoded, b"Key"), Err(DecodeError::Key));
        // Small: about half of what the rows take in memory.
        assert!(encoded.len() < table.rows.len() * 4 + table.rules.len() * 16 + 200);
    }
    let encoded = build(&corpus("lazy-plt-and-drap")).encode(b"key");
    for at in 0..encoded.len() {
        for bit in 0..8 {
            let mut damaged = encoded.clone();
            damaged[at] ^= 1 << bit;
            assert!(Table::decode(&damaged, b"key").is_err(), "byte {at}, bit {bit}");
        }
        assert!(Table::decode(&encoded[..at], b"key").is_err(), "cut at {at}");
    }
    let mut longer = encoded.clone();
    longer.push(0);
    assert!(Table::decode(&longer, b"key").is_err());
}

#[test]
fn a_mark_covers_its_range_and_nothing_else() {
    let mut table = build(&corpus("lazy-plt-and-drap"));
    let before = table.clone();
    let first = u64::from(table.rows[2].offset) + 1;
    table.mark(std::slice::from_ref(&(first..first + 40)), Rule::INTERPRETER);
    for offset in 0..0x2000 {
        let old = before.rule_at(offset);
        let inside = (first..first + 40).contains(&offset) && old.cfa != CfaKind::None;
        assert_eq!(table.rule_at(offset), Rule { flags: u8::from(inside), ..old }, "{offset:#x}");
    }
    table.mark(&[5..5, 0..u64::MAX], Rule::INTERPRETER);
    assert!(table.rules.iter().any(|rule| rule.flags == 1));
    assert!(table.rows.iter().all(|row| row.rule == 0 || table.rules[usize::from(row.rule)].flags == 1));
}

#[test]
fn functions_are_found_by_any_of_their_bytes() {
    let bytes = corpus("lazy-plt-and-drap");
    let table = build(&bytes);
    let offset = u64::from(table.rows[table.rows.len() - 3].offset);
    let range = function_range(&bytes.as_slice(), offset).unwrap().unwrap();
    assert!(range.contains(&offset));
    for inside in range.clone() {
        assert_eq!(function_range(&bytes.as_slice(), inside).unwrap().as_ref(), Some(&range));
    }
    assert_eq!(function_range(&bytes.as_slice(), 0).unwrap(), None);
    assert_eq!(function_range(&bytes.as_slice(), u64::MAX).unwrap(), None);
}

#[test]
fn what_has_no_table_says_why() {
    let good = corpus("lazy-plt-and-drap");
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Table::build(&bytes.as_slice(), &Options::default()).unwrap_err()
    };
    assert_eq!(with(0, 0), BuildError::NotElf);
    assert_eq!(with(4, 1), BuildError::ThirtyTwoBit);
    assert_eq!(with(5, 2), BuildError::BigEndian);
    assert_eq!(with(16, 1), BuildError::NotLoadable(1));
    assert_eq!(with(18, 8), BuildError::Machine(8));
    assert_eq!(with(54, 1), BuildError::DamagedHeaders);
    assert_eq!(Table::build(&b"#!/bin/sh".as_slice(), &Options::default()).unwrap_err(), BuildError::NotElf);
    assert!(is_elf(&good.as_slice()) && !is_elf(&b"#!/bin/sh".as_slice()));
}

/// Notes how the bytes are read.
struct Noting<'a> {
    bytes: &'a [u8],
    largest: Cell<usize>,
    total: Cell<u64>,
}

impl ReadAt for Noting<'_> {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        self.largest.set(self.largest.get().max(into.len()));
        self.total.set(self.total.get() + into.len() as u64);
        self.bytes.read_at(offset, into)
    }
}

#[test]
fn sections_are_read_once_and_in_pieces() {
    for bytes in libraries() {
        let noting = Noting { bytes: &bytes, largest: Cell::new(0), total: Cell::new(0) };
        build_from(&noting);
        assert!(noting.largest.get() <= 256 << 10, "{} bytes at once", noting.largest.get());
        let size = bytes.len() as u64;
        assert!(noting.total.get() < size + (1 << 20), "{} of {size} bytes read", noting.total.get());
    }
}

fn build_from(data: &dyn ReadAt) -> Table {
    Table::build(data, &Options::default()).unwrap()
}

#[test]
fn rows_are_bounded_and_what_is_left_out_is_counted() {
    let Some(bytes) = libraries().into_iter().next() else { return };
    let whole = build(&bytes);
    let few = Table::build(&bytes.as_slice(), &Options { rows_max: 1000, ..Options::default() }).unwrap();
    assert!(few.rows.len() <= 2000 && few.stats.left_out > 100, "{:?}", few.stats);
    assert_eq!(few.stats.functions + few.stats.left_out, whole.stats.functions);
}

/// What the kernel side keeps: 4 bytes for a row, 8 for a page, 16 for a rule, and rules are shared by all objects.
#[test]
fn bytes_per_row() {
    let (mut rows, mut bytes) = (0, 0);
    let mut rules = std::collections::HashSet::new();
    for library in libraries() {
        let table = build(&library);
        rows += table.rows.len();
        bytes += table.pages().map(|page| 8 + 4 * page.rows().len()).sum::<usize>();
        rules.extend(table.rules);
    }
    bytes += 16 * rules.len();
    let each = bytes as f64 / rows as f64;
    assert!(rows < 50_000 || each <= 4.2, "{each} bytes for each of {rows} rows");
}

#[test]
fn the_vdso_of_this_process() {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let Some(line) = maps.lines().find(|line| line.ends_with("[vdso]")) else { return };
    let (start, rest) = line.split_once('-').unwrap();
    let end = rest.split(' ').next().unwrap();
    let (start, end) = (u64::from_str_radix(start, 16).unwrap(), u64::from_str_radix(end, 16).unwrap());
    let mut image = vec![0; (end - start) as usize];
    std::fs::File::open("/proc/self/mem").unwrap().read_exact_at(&mut image, start).unwrap();
    let table = build(&image);
    assert!(table.stats.functions > 3 && table.rows.len() > 3, "{:?}", table.stats);
}

#[test]
fn biases_and_build_ids() {
    let bytes = corpus("lazy-plt-and-drap");
    let elf = Elf::parse(&bytes.as_slice()).unwrap();
    let table = build(&bytes);
    assert_eq!((elf.arch, &elf.build_id), (Arch::X86_64, &table.build_id));
    assert_eq!(table.build_id.len(), 20);
    assert_eq!(table.text.len(), 1);
    assert_eq!(table.text[0].offset_of(table.text[0].address), Some(table.text[0].file_offset));
}
