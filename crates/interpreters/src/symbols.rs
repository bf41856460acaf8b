//! A few symbols of an ELF file by name, found without holding its symbol table in memory.

use std::ops::Range;

use lightfoot_unwind::{Elf, ReadAt};

/// Bytes of a file that are in memory at a time.
const WINDOW: usize = 256 << 10;
/// A name that begins as wanted is read up to here.
const NAME_BYTES: usize = 128;
/// More sections than any real file has.
const MAX_SECTIONS: u64 = 65_536;
/// More symbols of one file are not kept.
const MAX_FOUND: usize = 1024;

/// A defined symbol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// Linker's address; of a thread-local one the offset in the object's block.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Whether it is a function.
    pub function: bool,
}

/// Which symbol tables to look through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Table {
    /// `.dynsym`: small, never stripped.
    Dynamic,
    /// `.symtab`: large, often stripped.
    Full,
}

/// An ELF section header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Section {
    kind: u32,
    offset: u64,
    size: u64,
    link: u32,
}

/// All defined symbols in a table whose names are one of `names`, or begin with one of them that ends in `*`, in the table's order.
/// Empty as well if there is no such table, or it is damaged.
pub fn find(data: &dyn ReadAt, table: Table, names: &[&str]) -> Vec<Symbol> {
    let mut found = Vec::new();
    // A damaged table gives what was found before the damage.
    let _ = sections(data).and_then(|sections| collect(data, &sections, table, names, &mut found));
    found
}

fn collect(
    data: &dyn ReadAt,
    sections: &[Section],
    table: Table,
    names: &[&str],
    found: &mut Vec<Symbol>,
) -> Option<()> {
    let kind = match table {
        Table::Dynamic => 11,
        Table::Full => 2,
    };
    let symbols = sections.iter().find(|section| section.kind == kind)?;
    let strings = sections.get(symbols.link as usize).filter(|section| section.kind == 3)?;
    let places = places(data, strings, names);
    if places.is_empty() {
        return Some(());
    }
    let mut at = symbols.offset;
    let end = at.checked_add(symbols.size)?.min(data.len());
    let mut window = vec![0; WINDOW - WINDOW % 24];
    while at < end && found.len() < MAX_FOUND {
        let length = usize::try_from((end - at).min(window.len() as u64)).ok()?;
        let bytes = window.get_mut(..length)?;
        data.read_at(at, bytes)?;
        for entry in bytes.chunks_exact(24) {
            // st_name, st_info, st_other, st_shndx, st_value, st_size: gABI, chapter "Symbol Table".
            let name = u64::from(u32::from_le_bytes(*entry.first_chunk()?));
            let defined = entry[6..8] != [0, 0];
            if defined && let Ok(place) = places.binary_search_by_key(&name, |(place, _)| *place) {
                let address = u64::from_le_bytes(*entry[8..].first_chunk()?);
                let size = u64::from_le_bytes(*entry[16..].first_chunk()?);
                let function = entry[4] & 15 == 2;
                found.push(Symbol { name: places[place].1.clone(), address, size, function });
            }
        }
        at += length as u64;
    }
    Some(())
}

/// Where wanted names are in a string table: (offset in it, name), sorted.
fn places(data: &dyn ReadAt, strings: &Section, names: &[&str]) -> Vec<(u64, String)> {
    let mut places = Vec::new();
    let end = strings.offset.saturating_add(strings.size).min(data.len());
    let mut start = strings.offset;
    let mut window = vec![0; WINDOW];
    while start < end && places.len() < MAX_FOUND {
        let length = (end - start).min(WINDOW as u64) as usize;
        let Some(bytes) = window.get_mut(..length) else { break };
        if data.read_at(start, bytes).is_none() {
            break;
        }
        // Names that begin in the last bytes of a window are looked at in the next one, which begins there.
        let last = start + length as u64 == end;
        let usable = if last { length } else { length - NAME_BYTES };
        for wanted in names {
            let (text, open) = wanted.strip_suffix('*').map_or((*wanted, false), |text| (text, true));
            for at in occurrences(bytes, text.as_bytes()).take_while(|&at| at < usable) {
                let rest = &bytes[at..];
                let Some(length) = rest.iter().take(NAME_BYTES).position(|&byte| byte == 0) else { continue };
                if (length == text.len() || open)
                    && let Ok(name) = str::from_utf8(&rest[..length])
                {
                    places.push((start - strings.offset + at as u64, name.to_owned()));
                }
            }
        }
        start += usable as u64;
    }
    places.sort();
    places.dedup();
    places
}

/// Where `wanted` is in `bytes`.
fn occurrences<'a>(bytes: &'a [u8], wanted: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let first = wanted.first().copied().unwrap_or_default();
    let starts = bytes.iter().enumerate().filter(move |(_, byte)| **byte == first);
    starts.map(|(at, _)| at).filter(move |&at| bytes[at..].starts_with(wanted))
}

fn sections(data: &dyn ReadAt) -> Option<Vec<Section>> {
    let mut header = [0; 64];
    data.read_at(0, &mut header)?;
    if header[..6] != *b"\x7fELF\x02\x01" {
        return None;
    }
    let offset = u64::from_le_bytes(*header[40..].first_chunk()?);
    let size = u64::from(u16::from_le_bytes(*header[58..].first_chunk()?));
    let count = u64::from(u16::from_le_bytes(*header[60..].first_chunk()?));
    if size < 64 || offset == 0 || count > MAX_SECTIONS || offset.checked_add(size * count)? > data.len() {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(size * count).ok()?];
    data.read_at(offset, &mut bytes)?;
    let section = |entry: &[u8]| {
        Some(Section {
            kind: u32::from_le_bytes(*entry.get(4..)?.first_chunk()?),
            offset: u64::from_le_bytes(*entry.get(24..)?.first_chunk()?),
            size: u64::from_le_bytes(*entry.get(32..)?.first_chunk()?),
            link: u32::from_le_bytes(*entry.get(40..)?.first_chunk()?),
        })
    };
    bytes.chunks_exact(usize::try_from(size).ok()?).map(section).collect()
}

/// A linker's address as distance from where the file would begin in the mapping of the code ([`crate::Interpreter::symbols`]).
/// None if there is no code.
pub fn relative(elf: &Elf, address: u64) -> Option<u64> {
    let code = elf.segments.iter().find(|segment| segment.executable)?;
    Some(address.wrapping_sub(code.bias()))
}

/// File offsets of a function's code, if it lies in an executable segment.
pub fn code_range(elf: &Elf, symbol: &Symbol) -> Option<Range<u64>> {
    let code = elf
        .segments
        .iter()
        .find(|segment| segment.executable && segment.offset_of(symbol.address).is_some())?;
    let start = code.offset_of(symbol.address)?;
    let end = start.checked_add(symbol.size)?.min(code.file_offset + code.file_size);
    (start < end).then_some(start..end)
}

/// Bytes at a linker's address, from the file.
pub fn read(data: &dyn ReadAt, elf: &Elf, address: u64, into: &mut [u8]) -> Option<()> {
    let segment = elf.segments.iter().find(|segment| segment.offset_of(address).is_some())?;
    data.read_at(segment.offset_of(address)?, into)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with one string table and one symbol table: (name, index of section, value).
    fn file(symbols: &[(&str, u16, u64)]) -> Vec<u8> {
        let mut strings = vec![0];
        let mut table = vec![0; 24];
        for (name, section, value) in symbols {
            table.extend((strings.len() as u32).to_le_bytes());
            table.extend([2, 0]);
            table.extend(section.to_le_bytes());
            table.extend(value.to_le_bytes());
            table.extend(16u64.to_le_bytes());
            strings.extend(name.as_bytes());
            strings.push(0);
        }
        let mut file = b"\x7fELF\x02\x01".to_vec();
        file.resize(64, 0);
        let sections = 64 + strings.len() + table.len();
        file[40..48].copy_from_slice(&(sections as u64).to_le_bytes());
        file[58..62].copy_from_slice(&[64, 0, 2, 0]);
        let (strings_at, table_at) = (64, 64 + strings.len());
        file.extend(&strings);
        file.extend(&table);
        for (kind, offset, size) in [(3u32, strings_at, strings.len()), (2, table_at, table.len())] {
            let mut header = [0; 64];
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[24..32].copy_from_slice(&(offset as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(size as u64).to_le_bytes());
            file.extend(header);
        }
        file
    }

    #[test]
    fn finds_names_prefixes_and_tails_but_nothing_undefined() {
        let file = file(&[
            ("a_PyRuntime", 1, 1),
            ("loop.cold", 1, 2),
            ("loop", 1, 3),
            ("other", 0, 4),
            ("loop", 0, 5),
        ]);
        let named = |names: &[&str]| -> Vec<(String, u64)> {
            find(&file, Table::Full, names).into_iter().map(|symbol| (symbol.name, symbol.address)).collect()
        };
        assert_eq!(named(&["a_PyRuntime"]), [("a_PyRuntime".to_owned(), 1)]);
        // A linker may let a name be the tail of another; the symbol here begins before it.
        assert_eq!(named(&["_PyRuntime"]), []);
        assert_eq!(named(&["loop*"]), [("loop.cold".to_owned(), 2), ("loop".to_owned(), 3)]);
        assert_eq!(named(&["loop"]), [("loop".to_owned(), 3)]);
        assert_eq!(named(&["other"]), []);
        assert_eq!(find(&file, Table::Dynamic, &["loop"]), []);
    }

    #[test]
    fn a_name_on_the_border_of_two_windows_is_found_once() {
        for before in WINDOW - NAME_BYTES - 8..WINDOW + 8 {
            let filler = "x".repeat(before);
            let file = file(&[(&filler, 1, 1), ("wanted", 1, 7)]);
            assert_eq!(find(&file, Table::Full, &["wanted"]).len(), 1, "{before}");
        }
    }

    #[test]
    fn a_cut_file_gives_less_but_no_panic() {
        let file = file(&[("one", 1, 1), ("two", 1, 2)]);
        for length in 0..file.len() {
            assert!(find(&file[..length].to_vec(), Table::Full, &["one", "two"]).len() <= 2);
        }
    }
}
