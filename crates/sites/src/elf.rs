//! What probes need of an ELF file: its functions, where their code lies in the file, whether it is Go, whether it is stripped.
//!
//! Foreign bytes: each size and offset is checked, counts have a bound, nothing here panics.

use lightfoot_unwind::{Arch, ReadAt};
use std::ops::Range;

/// Section headers looked at. Executables have about forty.
const SECTIONS_MAX: usize = 4096;
/// Bytes of the section names' table looked at.
const SECTION_NAMES_BYTES: u64 = 1 << 20;
/// Symbols of one table that are looked at.
const SYMBOLS_MAX: u64 = 4 << 20;
/// Bytes of one table of names that are looked at.
const NAMES_BYTES: u64 = 512 << 20;
/// Bytes of one function that are ever looked at.
const CODE_BYTES: u64 = 1 << 20;

const SHT_SYMTAB: u32 = 2;
const SHT_NOBITS: u32 = 8;
const SHT_DYNSYM: u32 = 11;
const STT_NOTYPE: u8 = 0;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
const SHF_EXECINSTR: u64 = 4;

/// A section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// Its name, `.text`.
    pub name: String,
    kind: u32,
    flags: u64,
    /// Address, as the linker gave it; 0 for what is not loaded.
    pub address: u64,
    /// Where its bytes are in the file.
    pub file_offset: u64,
    /// Number of bytes.
    pub size: u64,
    link: u32,
}

/// A function. Names of one function at one address are one function with several names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Address of its first byte, as the linker gave it.
    pub address: u64,
    /// Bytes; 0 if the file does not say.
    pub size: u64,
    /// Whether the symbol stands for a choice made when the program is loaded (`STT_GNU_IFUNC`): its code is the chooser.
    pub chooser: bool,
    name: Range<usize>,
}

/// An ELF file as far as probes need it.
pub struct Elf {
    headers: lightfoot_unwind::Elf,
    sections: Vec<Section>,
    functions: Vec<Function>,
    names: Vec<u8>,
    /// Whether there is a table of local symbols, not only of exported ones.
    pub symbols: bool,
    /// Whether anything in it was written in Go: `go.buildinfo`, a Go build ID or Go's table of functions.
    pub go: bool,
}

impl Elf {
    /// Reads headers and symbols; `debug` is the separate file with the symbols that were stripped off, if there is one.
    ///
    /// # Errors
    /// What kind of file it is instead, in a few words.
    pub fn parse(data: &dyn ReadAt, debug: Option<&dyn ReadAt>) -> Result<Elf, String> {
        let headers = lightfoot_unwind::Elf::parse(data).map_err(|error| error.to_string())?;
        let sections = read_sections(data);
        let go = sections.iter().any(|section| {
            matches!(
                section.name.as_str(),
                ".go.buildinfo" | ".note.go.buildid" | ".gopclntab" | ".data.rel.ro.gopclntab"
            )
        });
        let mut elf = Elf { headers, sections, functions: Vec::new(), names: Vec::new(), symbols: false, go };
        let own = std::mem::take(&mut elf.sections);
        elf.read_symbols(data, &own, None);
        if let Some(debug) = debug {
            elf.read_symbols(debug, &read_sections(debug), Some(&own));
        }
        elf.sections = own;
        elf.functions.sort_by(|a, b| {
            let name = |function: &Function| elf.names.get(function.name.clone()).unwrap_or_default();
            a.address.cmp(&b.address).then_with(|| name(a).cmp(name(b))).then_with(|| b.size.cmp(&a.size))
        });
        let names = &elf.names;
        elf.functions.dedup_by(|a, b| {
            a.address == b.address && names.get(a.name.clone()) == names.get(b.name.clone())
        });
        Ok(elf)
    }

    /// The CPU that it is for.
    pub fn arch(&self) -> Arch {
        self.headers.arch
    }

    /// The build ID; empty if there is none.
    pub fn build_id(&self) -> &[u8] {
        &self.headers.build_id
    }

    /// Every name of every function, by address.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// A function's symbol, as it stands in the file.
    pub fn name(&self, function: &Function) -> &str {
        std::str::from_utf8(self.names.get(function.name.clone()).unwrap_or_default()).unwrap_or_default()
    }

    /// All sections.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The first section of this name.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// Where the code at this address lies in the file; `None` if no executable part of the file holds it.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        self.headers
            .segments
            .iter()
            .filter(|segment| segment.executable)
            .find_map(|segment| segment.offset_of(address))
    }

    /// Where anything at this address, code or data, lies in the file.
    pub fn data_offset_of(&self, address: u64) -> Option<u64> {
        self.headers.segments.iter().find_map(|segment| segment.offset_of(address))
    }

    /// The address of a place in the file, if it is executable.
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        let within = |segment: &&lightfoot_unwind::Segment| {
            segment.executable
                && file_offset.checked_sub(segment.file_offset).is_some_and(|into| into < segment.file_size)
        };
        self.headers
            .segments
            .iter()
            .find(within)
            .map(|segment| segment.address + (file_offset - segment.file_offset))
    }

    /// Executable parts: address, place in the file, bytes.
    pub fn code(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let executable = self.headers.segments.iter().filter(|segment| segment.executable);
        executable.map(|segment| (segment.address, segment.file_offset, segment.file_size))
    }

    /// Indices of the names of the function at this address.
    pub fn names_at(&self, address: u64) -> Range<usize> {
        let start = self.functions.partition_point(|function| function.address < address);
        let end = self.functions.partition_point(|function| function.address <= address);
        start..end
    }

    /// The name of the function whose code holds this address, with the address of its start.
    pub fn holding(&self, address: u64) -> Option<&Function> {
        let after = self.functions.partition_point(|function| function.address <= address);
        let start = self.functions.get(after.checked_sub(1)?)?.address;
        self.functions[self.names_at(start)].iter().find(|function| address < self.end(function))
    }

    /// Where a function ends. One without a size ends where the next one, its section or its segment does.
    pub fn end(&self, function: &Function) -> u64 {
        if function.size > 0 {
            return function.address.saturating_add(function.size);
        }
        let same = &self.functions[self.names_at(function.address)];
        if let Some(size) = same.iter().map(|function| function.size).max().filter(|&size| size > 0) {
            return function.address.saturating_add(size);
        }
        let next = self.functions.get(self.names_at(function.address).end).map(|next| next.address);
        let holds =
            |start: u64, size: u64| function.address.checked_sub(start).is_some_and(|into| into < size);
        let section = self
            .sections
            .iter()
            .find(|section| section.flags & SHF_EXECINSTR != 0 && holds(section.address, section.size));
        let section = section.map(|section| section.address.saturating_add(section.size));
        let segment =
            self.code().find(|(start, _, size)| holds(*start, *size)).map(|(start, _, size)| start + size);
        [next, section, segment].into_iter().flatten().min().unwrap_or(function.address)
    }

    /// The bytes of a function, at most [`CODE_BYTES`] of them.
    pub fn bytes(&self, data: &dyn ReadAt, function: &Function) -> Option<Vec<u8>> {
        let offset = self.offset_of(function.address)?;
        read(data, offset, (self.end(function) - function.address).min(CODE_BYTES))
    }

    fn read_symbols(&mut self, data: &dyn ReadAt, sections: &[Section], main: Option<&[Section]>) {
        for kind in [SHT_SYMTAB, SHT_DYNSYM] {
            let Some(table) = sections.iter().find(|section| section.kind == kind) else { continue };
            let Some(strings) = sections.get(table.link as usize) else { continue };
            let count = (table.size / 24).min(SYMBOLS_MAX);
            let (Some(entries), Some(strings)) = (
                read(data, table.file_offset, count * 24),
                read(data, strings.file_offset, strings.size.min(NAMES_BYTES)),
            ) else {
                continue;
            };
            self.symbols |= kind == SHT_SYMTAB;
            for entry in entries.chunks_exact(24) {
                self.symbol(entry, &strings, main.unwrap_or(sections));
            }
        }
    }

    fn symbol(&mut self, entry: &[u8], strings: &[u8], sections: &[Section]) {
        let (name, info, section) = (u32_at(entry, 0) as usize, entry[4], u16_at(entry, 6));
        let (address, size, kind) = (u64_at(entry, 8), u64_at(entry, 16), info & 0xf);
        // Undefined, absolute and common symbols are not in this file.
        if section == 0 || section >= 0xff00 || address == 0 || self.offset_of(address).is_none() {
            return;
        }
        // Assembly leaves the type out; mapping symbols of arm64 ($x, $d) and local labels are no functions.
        let global = info >> 4 != 0;
        let in_code =
            sections.get(usize::from(section)).is_none_or(|section| section.flags & SHF_EXECINSTR != 0);
        if !(matches!(kind, STT_FUNC | STT_GNU_IFUNC) || kind == STT_NOTYPE && global && in_code) {
            return;
        }
        let Some(name) = strings.get(name..) else { return };
        let end = name.iter().take(64 << 10).position(|&byte| byte == 0 || byte == b'@').unwrap_or(0);
        let name = &name[..end];
        if name.is_empty() || std::str::from_utf8(name).is_err() || name.iter().any(u8::is_ascii_control) {
            return;
        }
        let start = self.names.len();
        self.names.extend_from_slice(name);
        let name = start..self.names.len();
        self.functions.push(Function { address, size, chooser: kind == STT_GNU_IFUNC, name });
    }
}

/// The section headers of a 64-bit little-endian file; none if they are damaged.
fn read_sections(data: &dyn ReadAt) -> Vec<Section> {
    let Some(header) = read(data, 0, 64) else { return Vec::new() };
    if header.get(..6) != Some(b"\x7fELF\x02\x01") {
        return Vec::new();
    }
    let (offset, each) = (u64_at(&header, 40), usize::from(u16_at(&header, 58)));
    let (mut count, mut names) = (usize::from(u16_at(&header, 60)), u32::from(u16_at(&header, 62)));
    if offset == 0 || each < 64 {
        return Vec::new();
    }
    // Counts that do not fit are in section 0.
    if let Some(first) = read(data, offset, 64).filter(|_| count == 0 || names == 0xffff) {
        count = if count == 0 { usize::try_from(u64_at(&first, 32)).unwrap_or(0) } else { count };
        names = if names == 0xffff { u32_at(&first, 40) } else { names };
    }
    let count = count.min(SECTIONS_MAX);
    let Some(bytes) = read(data, offset, (count * each) as u64) else { return Vec::new() };
    let mut sections: Vec<(u32, Section)> = bytes
        .chunks_exact(each)
        .map(|header| {
            let section = Section {
                name: String::new(),
                kind: u32_at(header, 4),
                flags: u64_at(header, 8),
                address: u64_at(header, 16),
                file_offset: u64_at(header, 24),
                size: u64_at(header, 32),
                link: u32_at(header, 40),
            };
            (u32_at(header, 0), section)
        })
        .collect();
    let strings = sections
        .get(names as usize)
        .and_then(|(_, names)| read(data, names.file_offset, names.size.min(SECTION_NAMES_BYTES)))
        .unwrap_or_default();
    for (name, section) in &mut sections {
        let name = strings.get(*name as usize..).unwrap_or_default();
        let end = name.iter().take(256).position(|&byte| byte == 0).unwrap_or(0);
        section.name = String::from_utf8_lossy(&name[..end]).into_owned();
    }
    sections.into_iter().map(|(_, section)| section).collect()
}

impl Section {
    /// The section's bytes, at most so many; `None` if they are not in the file.
    pub fn bytes(&self, data: &dyn ReadAt, most: u64) -> Option<Vec<u8>> {
        (self.kind != SHT_NOBITS).then(|| read(data, self.file_offset, self.size.min(most)))?
    }
}

/// `length` bytes at `offset`; `None` if they are not all there.
pub(crate) fn read(data: &dyn ReadAt, offset: u64, length: u64) -> Option<Vec<u8>> {
    if offset.checked_add(length)? > data.len() {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    data.read_at(offset, &mut bytes)?;
    Some(bytes)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}
