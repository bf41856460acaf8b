//! ELF symbols by streaming: each symbol table is read once, in pieces, and only the symbols nearest to the addresses asked
//! for are kept. 64 KiB and about 300 bytes per address, whatever the size of the table.

use crate::bytes::read_some;
use crate::elf::{Elf, SHT_DYNSYM, SHT_SYMTAB, Section};
use crate::names::{plainer, pretty};
use crate::nearest::{Candidate, Nearest};

/// Longest name read from a string table, in bytes.
const NAME_BYTES: usize = 4096;
/// Bytes of a symbol table read at once; a multiple of both sizes of an entry (24 and 16).
const CHUNK_BYTES: usize = 48 << 10;

/// Bytes of a symbol table read: 11 million symbols. A sparse file of terabytes costs its maker nothing.
const TABLE_BYTES_MAX: u64 = 256 << 20;

const STT_NOTYPE: u8 = 0;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
const STB_LOCAL: u8 = 0;
const STB_GLOBAL: u8 = 1;
const SHN_UNDEF: u16 = 0;
const SHN_LORESERVE: u16 = 0xff00;

/// Reason for an offset that the program headers do not load.
pub(crate) const NOT_LOADED: &str = "offset is not loaded by the object";

/// A function found in a symbol table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// Name, demangled.
    pub name: String,
    /// First address, as an ELF virtual address.
    pub start: u64,
}

/// Names for virtual addresses (sorted, distinct) from the symbol tables of `files`, in the order of the addresses. All files
/// must describe the same object: itself and its separate debug files.
pub(crate) fn find(files: &[&Elf<'_>], addresses: &[u64]) -> Vec<Result<Symbol, &'static str>> {
    let mut search = Nearest::new(addresses.to_vec());
    let mut tables = Vec::new();
    let (mut truncated, mut full) = (false, false);
    for &elf in files {
        // A file has at most one table of each kind.
        let table = |kind| elf.sections().iter().find(|section| section.kind == kind);
        for section in [SHT_SYMTAB, SHT_DYNSYM].into_iter().filter_map(table) {
            let Some(strings) = elf.section_at(section.link as usize) else { continue };
            let number = tables.len() as u8;
            tables.push((elf, strings));
            full |= section.kind == SHT_SYMTAB;
            truncated |= !stream(elf, section, number, &mut search);
        }
    }
    let missing = match (tables.is_empty(), truncated, full) {
        (true, _, _) => "no symbol table",
        (_, true, _) => "truncated ELF",
        (_, _, true) => "address between symbols",
        (_, _, false) => "stripped: only exported symbols",
    };
    let found = search.finish();
    let named = found.into_iter().map(|(address, symbol)| {
        let symbol = symbol.filter(|(symbol, label)| {
            // A symbol without size ends with its section.
            let elf = tables[usize::from(symbol.table)].0;
            !label || elf.section_at(symbol.section.into()).is_some_and(|section| section.covers(address))
        });
        let (symbol, _) = symbol.ok_or(missing)?;
        let (elf, strings) = tables[usize::from(symbol.table)];
        let name = symbol
            .names
            .iter()
            .flatten()
            .filter_map(|&at| name(elf, strings, at))
            .min_by(|a, b| plainer(a, b));
        Ok(Symbol { name: pretty(&name.ok_or("truncated ELF")?), start: symbol.start })
    });
    named.collect()
}

/// Passes each function of a symbol table to the search. Whether the whole table was in the file.
fn stream(elf: &Elf<'_>, section: &Section, table: u8, search: &mut Nearest) -> bool {
    let each: usize = if elf.wide { 24 } else { 16 };
    let available = elf.data.size().saturating_sub(section.offset).min(TABLE_BYTES_MAX);
    let end = section.offset.saturating_add(section.size.min(available));
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut offset = section.offset;
    while end.saturating_sub(offset) >= each as u64 {
        let length = (end - offset).min(CHUNK_BYTES as u64) as usize / each * each;
        if elf.data.read_at(offset, &mut buffer[..length]).is_err() {
            return false;
        }
        buffer[..length]
            .chunks_exact(each)
            .filter_map(|entry| function(elf, entry, table))
            .for_each(|s| search.add(s));
        offset += length as u64;
    }
    section.size <= available
}

/// The function that a symbol table's entry describes.
fn function(elf: &Elf<'_>, entry: &[u8], table: u8) -> Option<Candidate> {
    let endian = elf.endian;
    let info = entry[if elf.wide { 4 } else { 12 }];
    let kind = info & 0xf;
    if !matches!(kind, STT_NOTYPE | STT_FUNC | STT_GNU_IFUNC) {
        return None;
    }
    let (section, start, size) = if elf.wide {
        (endian.u16(entry, 6), endian.u64(entry, 8), endian.u64(entry, 16))
    } else {
        (endian.u16(entry, 14), u64::from(endian.u32(entry, 4)), u64::from(endian.u32(entry, 8)))
    };
    let name = u64::from(endian.u32(entry, 0));
    if section == SHN_UNDEF || section >= SHN_LORESERVE || start == 0 || name == 0 {
        return None;
    }
    let rank = match (kind, info >> 4) {
        (STT_NOTYPE, _) => 0,
        (_, STB_LOCAL) => 1,
        (_, STB_GLOBAL) => 3,
        _ => 2,
    };
    // 32-bit Arm marks Thumb code in the lowest bit.
    let start = if elf.machine == EM_ARM { start & !1 } else { start };
    Some(Candidate {
        start,
        end: start.saturating_add(size),
        rank,
        table,
        section,
        names: [Some(name), None, None],
    })
}

const EM_ARM: u16 = 40;

/// A name in a string table, without its version (`memcpy@@GLIBC_2.14`).
pub(crate) fn name(elf: &Elf<'_>, strings: &Section, at: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    // Most names are short.
    for limit in [128, NAME_BYTES] {
        let rest = strings.size.checked_sub(at)?;
        bytes = read_some(elf.data, strings.offset.checked_add(at)?, rest, limit);
        if let Some(length) = bytes.iter().position(|&byte| byte == 0) {
            bytes.truncate(length);
            break;
        }
    }
    if let Some(version) = bytes.iter().skip(1).position(|&byte| byte == b'@') {
        bytes.truncate(version + 1);
    }
    (!bytes.is_empty()).then_some(bytes)
}

/// Names for file offsets (any order) in an object, from the symbol tables of `files`, of which the first is the object itself.
pub(crate) fn find_at_offsets(files: &[&Elf<'_>], file_offsets: &[u64]) -> Vec<Result<Symbol, &'static str>> {
    let address_of = |offset: &u64| files.first().and_then(|elf| elf.address_of(*offset));
    let mut addresses: Vec<u64> = file_offsets.iter().filter_map(address_of).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let found = find(files, &addresses);
    let named = |offset: &u64| match address_of(offset).map(|address| addresses.binary_search(&address)) {
        Some(Ok(at)) => found[at].clone(),
        _ => Err(NOT_LOADED),
    };
    file_offsets.iter().map(named).collect()
}

/// Names for file offsets in any bytes that may or may not be an ELF file, in their order: the whole path from foreign bytes
/// to names. Never panics; time and memory are bounded by the number of bytes and of offsets.
pub fn find_in_bytes(bytes: &[u8], file_offsets: &[u64]) -> Vec<Result<Symbol, &'static str>> {
    match Elf::parse(&bytes) {
        Ok(elf) => find_at_offsets(&[&elf], file_offsets),
        Err(reason) => vec![Err(reason); file_offsets.len()],
    }
}
