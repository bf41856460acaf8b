//! What must hold for any bytes; called by the fuzz targets and, over their corpus, by plain tests.

use crate::builder::{Builder, call_frames};
use crate::elf::{Elf, Section};
use crate::frames::Format;
use crate::{Arch, CfaKind, Frozen, Options, Row, Rule, Segment, Table, function_range, replay};

const OPTIONS: Options = Options { rows_max: 1 << 16, unpacked_limit_bytes: 1 << 20 };

/// What every table must be.
fn consistent(table: &Table) {
    assert_eq!(table.rules.first(), Some(&Rule::NONE));
    assert!(table.rows.iter().all(|row| usize::from(row.rule) < table.rules.len()));
    assert!(table.rows.windows(2).all(|pair| pair[0].offset < pair[1].offset));
    pages_say_the_same(table);
}

/// Pages hold each row once, and at their start what holds there.
fn pages_say_the_same(table: &Table) {
    let mut rows: Vec<Row> = Vec::new();
    let mut last = None;
    for page in table.pages() {
        assert!(last < Some(page.number));
        last = Some(page.number);
        let mut before = None;
        for (low, rule) in page.rows() {
            assert!(before < Some(low));
            before = Some(low);
            let offset = page.number << 16 | u32::from(low);
            assert_eq!(table.rule_at(offset.into()), table.rules[usize::from(rule)]);
            // What a page repeats is no row of its own.
            if low != 0 || rows.last().map(|row| row.rule) != Some(rule) {
                rows.push(Row { offset, rule });
            }
        }
        assert!(before.is_some());
    }
    assert_eq!(rows.len(), table.rows.len());
    assert_eq!(rows, table.rows);
}

/// Neighbouring rows of a table that was just built differ.
fn merged(table: &Table) {
    consistent(table);
    assert!(table.rows.windows(2).all(|pair| pair[0].rule != pair[1].rule));
    let last = table.rows.last();
    assert!(last.is_none_or(|row| row.rule == 0), "the last function ends");
}

/// Any bytes as an ELF file.
///
/// # Panics
/// If the table contradicts itself, its pages or its own bytes: that is a bug.
pub fn elf(bytes: &[u8]) {
    let Ok(mut table) = Table::build(&bytes, &OPTIONS) else { return };
    merged(&table);
    assert_eq!(Table::decode(&table.encode(b"key"), b"key").as_ref(), Ok(&table));
    let middle = table.rows.get(table.rows.len() / 2).map_or(0, |row| u64::from(row.offset));
    if let Ok(Some(range)) = function_range(&bytes, middle) {
        assert!(range.contains(&middle));
    }
    let range = middle.saturating_sub(3)..middle + 5;
    let before: Vec<Rule> = (range.start..range.end + 8).map(|offset| table.rule_at(offset)).collect();
    table.mark(std::slice::from_ref(&range), Rule::INTERPRETER);
    consistent(&table);
    for (offset, before) in (range.start..).zip(before) {
        let marked = range.contains(&offset) && before.cfa != CfaKind::None && table.rules.len() < 1 << 16;
        let flags = if marked { before.flags | Rule::INTERPRETER } else { before.flags };
        assert_eq!(table.rule_at(offset), Rule { flags, ..before });
    }
}

/// A file that is all code, so that every address is somewhere.
fn all_code(arch: Arch, section: Section) -> Elf {
    let text = Segment { file_offset: 0, file_size: 1 << 40, address: 0, executable: true };
    Elf {
        arch,
        segments: vec![text],
        entry: 0,
        build_id: vec![],
        sections: vec![section],
        eh_frame_header: None,
    }
}

fn whole(name: &str, bytes: &[u8]) -> Section {
    let size = bytes.len() as u64;
    Section { name: name.into(), file_offset: 0, size, address: 0x10_0000, compressed: false, absent: false }
}

fn finish(builder: Builder, arch: Arch) -> Table {
    let (rules, rows, stats) = builder.finish(&|| {});
    let table = Table { arch, rules, rows, text: vec![], build_id: vec![], stats };
    merged(&table);
    table
}

/// Any bytes as `.eh_frame` or `.debug_frame`, of either CPU.
///
/// # Panics
/// If the table contradicts itself: that is a bug.
pub fn eh_frame(bytes: &[u8]) {
    for arch in [Arch::X86_64, Arch::Arm64] {
        for format in [Format::EhFrame { until_zero: false }, Format::DebugFrame] {
            let section = whole(".eh_frame", bytes);
            let elf = all_code(arch, section.clone());
            let mut builder = Builder::new(&OPTIONS);
            call_frames(&mut builder, &elf, &bytes, &section, format, true);
            finish(builder, arch);
        }
    }
}

/// Any bytes as `.gopclntab`, of either CPU.
///
/// # Panics
/// If the table contradicts itself: that is a bug.
pub fn gopclntab(bytes: &[u8]) {
    for arch in [Arch::X86_64, Arch::Arm64] {
        go_table(bytes, arch);
    }
}

pub(crate) fn go_table(bytes: &[u8], arch: Arch) -> Table {
    let section = whole(".gopclntab", bytes);
    let mut elf = all_code(arch, section.clone());
    elf.sections.push(Section { name: ".text".into(), ..section.clone() });
    let mut builder = Builder::new(&OPTIONS);
    crate::go::functions(&mut builder, &elf, &bytes, &section);
    finish(builder, arch)
}

/// The bytes, and the bytes with a checksum that fits: a fuzzer does not find one by itself.
fn with_checksum(bytes: &[u8]) -> [Vec<u8>; 2] {
    let content = &bytes[..bytes.len().saturating_sub(4)];
    let mut mended = content.to_vec();
    mended.extend_from_slice(&crc32fast::hash(content).to_le_bytes());
    [bytes.to_vec(), mended]
}

/// Any bytes as a cached table.
///
/// # Panics
/// If the table contradicts itself or its own bytes: that is a bug.
pub fn cache(bytes: &[u8]) {
    for bytes in with_checksum(bytes) {
        if let Ok(table) = Table::decode(&bytes, b"key") {
            consistent(&table);
            assert_eq!(Table::decode(&table.encode(b"key"), b"key"), Ok(table));
        }
    }
}

/// Any bytes as a frozen walk.
///
/// # Panics
/// If a walk has more frames than asked for, or less of it after [`Frozen::shrink`]: that is a bug.
pub fn frozen(bytes: &[u8]) {
    for bytes in with_checksum(bytes) {
        let Ok(mut frozen) = Frozen::decode(&bytes) else { continue };
        let walked = replay(&frozen);
        assert!(walked.frames.len() <= frozen.frames_max);
        assert_eq!(Frozen::decode(&frozen.encode()).as_ref(), Ok(&frozen));
        frozen.shrink();
        assert_eq!(replay(&frozen), walked);
    }
}
