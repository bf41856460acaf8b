//! The parts of an ELF file that names come from. Sizes and offsets are foreign: each is checked against the file's length
//! before it is used, and counts have a bound. Source of the layout: System V ABI, chapter "Object Files".

use crate::bytes::{Endian, ReadAt, read_some};

/// Program headers looked at. Executables have about ten.
const SEGMENTS_MAX: usize = 256;
/// Section headers looked at. Executables have about forty.
const SECTIONS_MAX: usize = 4096;
/// Bytes of the section names' table looked at.
const SECTION_NAMES_BYTES: usize = 256 << 10;

pub(crate) const SHT_SYMTAB: u32 = 2;
const SHT_NOBITS: u32 = 8;
pub(crate) const SHT_DYNSYM: u32 = 11;
/// Holds instructions.
const SHF_EXECINSTR: u64 = 0x4;
const SHF_COMPRESSED: u64 = 0x800;
const ELFCOMPRESS_ZLIB: u32 = 1;
const PT_LOAD: u32 = 1;
const PF_X: u32 = 1;

/// A part of the file that is loaded.
#[derive(Clone, Copy, Debug)]
struct Segment {
    executable: bool,
    file_offset: u64,
    address: u64,
    file_size: u64,
}

/// A section, as its header describes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    pub name: Box<[u8]>,
    pub kind: u32,
    flags: u64,
    pub address: u64,
    pub offset: u64,
    pub size: u64,
    /// Index of the section that this one refers to: of a symbol table, its strings.
    pub link: u32,
}

impl Section {
    /// Whether the section holds code.
    pub fn is_code(&self) -> bool {
        self.flags & SHF_EXECINSTR != 0
    }

    /// Whether the section holds a virtual address.
    pub fn covers(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|into| into < self.size)
    }
}

/// An ELF file.
pub(crate) struct Elf<'a> {
    pub data: &'a dyn ReadAt,
    pub endian: Endian,
    /// 64-bit.
    pub wide: bool,
    pub machine: u16,
    segments: Vec<Segment>,
    sections: Vec<Section>,
}

impl<'a> Elf<'a> {
    /// Reads the headers.
    ///
    /// # Errors
    /// `not an ELF file` or `truncated ELF`.
    pub fn parse(data: &'a dyn ReadAt) -> Result<Elf<'a>, &'static str> {
        let header = read_some(data, 0, 64, 64);
        if header.len() < 16 || &header[..4] != b"\x7fELF" {
            return Err("not an ELF file");
        }
        let (wide, little) = match (header[4], header[5]) {
            (1, 1) => (false, true),
            (1, 2) => (false, false),
            (2, 1) => (true, true),
            (2, 2) => (true, false),
            _ => return Err("not an ELF file"),
        };
        let endian = Endian { little };
        if header.len() < if wide { 64 } else { 52 } {
            return Err("truncated ELF");
        }
        let word = if wide { 8 } else { 4 };
        let (segments_at, sections_at, counts) = if wide { (32, 40, 54) } else { (28, 32, 42) };
        let mut elf = Elf {
            data,
            endian,
            wide,
            machine: endian.u16(&header, 18),
            segments: Vec::new(),
            sections: Vec::new(),
        };
        let segments = Headers {
            offset: endian.number(&header, segments_at, word),
            each: usize::from(endian.u16(&header, counts)),
            count: usize::from(endian.u16(&header, counts + 2)),
        };
        let sections = Headers {
            offset: endian.number(&header, sections_at, word),
            each: usize::from(endian.u16(&header, counts + 4)),
            count: usize::from(endian.u16(&header, counts + 6)),
        };
        elf.read_segments(&segments)?;
        elf.read_sections(sections, u32::from(endian.u16(&header, counts + 8)));
        Ok(elf)
    }

    fn read_segments(&mut self, headers: &Headers) -> Result<(), &'static str> {
        let endian = self.endian;
        let size = if self.wide { 56 } else { 32 };
        let count = headers.count.min(SEGMENTS_MAX);
        let bytes = headers.read(self.data, size, count);
        if count > 0 && bytes.len() < count * headers.each.max(size) {
            return Err("truncated ELF");
        }
        for header in bytes.chunks_exact(headers.each.max(size)) {
            let (flags, offset, address, file_size) = if self.wide {
                (endian.u32(header, 4), endian.u64(header, 8), endian.u64(header, 16), endian.u64(header, 32))
            } else {
                let number = |at| u64::from(endian.u32(header, at));
                (endian.u32(header, 24), number(4), number(8), number(16))
            };
            if endian.u32(header, 0) == PT_LOAD {
                let executable = flags & PF_X != 0;
                self.segments.push(Segment { executable, file_offset: offset, address, file_size });
            }
        }
        // Pages of neighbouring segments overlap in the file; code is looked for in executable ones first.
        self.segments.sort_by_key(|segment| !segment.executable);
        Ok(())
    }

    fn read_sections(&mut self, mut headers: Headers, mut names_index: u32) {
        let size = if self.wide { 64 } else { 40 };
        // Counts that do not fit are in section 0.
        if headers.offset != 0 && (headers.count == 0 || names_index == 0xffff) {
            let first = headers.read(self.data, size, 1);
            let first = self.section(&first);
            if headers.count == 0 {
                headers.count = usize::try_from(first.size).unwrap_or(0);
            }
            if names_index == 0xffff {
                names_index = first.link;
            }
        }
        let bytes = headers.read(self.data, size, headers.count.min(SECTIONS_MAX));
        let mut sections: Vec<Section> =
            bytes.chunks_exact(headers.each.max(size)).map(|header| self.section(header)).collect();
        let mut name_offsets =
            bytes.chunks_exact(headers.each.max(size)).map(|header| self.endian.u32(header, 0) as usize);
        let names = sections.get(names_index as usize).map_or(vec![], |section| {
            read_some(self.data, section.offset, section.size, SECTION_NAMES_BYTES)
        });
        for section in &mut sections {
            let name = name_offsets.next().and_then(|offset| names.get(offset..)).unwrap_or_default();
            let length = name.iter().take(64).position(|&byte| byte == 0).unwrap_or(0);
            section.name = name[..length].into();
        }
        self.sections = sections;
    }

    fn section(&self, header: &[u8]) -> Section {
        let endian = self.endian;
        let word = if self.wide { 8 } else { 4 };
        let number = |index: usize| endian.number(header, 8 + index * word, word);
        Section {
            name: Box::default(),
            kind: endian.u32(header, 4),
            flags: number(0),
            address: number(1),
            offset: number(2),
            size: number(3),
            link: endian.u32(header, 8 + 4 * word),
        }
    }

    /// The virtual address of a place in the file, if it is loaded.
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let into = file_offset.checked_sub(segment.file_offset)?;
            (into < segment.file_size).then(|| segment.address.checked_add(into))?
        })
    }

    /// Section `index`.
    pub fn section_at(&self, index: usize) -> Option<&Section> {
        self.sections.get(index)
    }

    /// All sections.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The first section of this name that has bytes in the file.
    pub fn section_named(&self, name: &[u8]) -> Option<&Section> {
        self.sections.iter().find(|section| *section.name == *name && section.kind != SHT_NOBITS)
    }

    /// How a section is compressed, as its header claims.
    pub fn compression(&self, section: &Section) -> Compression {
        if section.flags & SHF_COMPRESSED == 0 {
            return Compression::None;
        }
        let header = read_some(self.data, section.offset, 24, 24);
        if self.endian.u32(&header, 0) != ELFCOMPRESS_ZLIB {
            return Compression::Other;
        }
        let (header_bytes, content_bytes) = if self.wide {
            (24, self.endian.u64(&header, 8))
        } else {
            (12, self.endian.u32(&header, 4).into())
        };
        Compression::Zlib { header_bytes, content_bytes }
    }
}

/// How a section is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compression {
    None,
    /// zlib, behind a header.
    Zlib {
        header_bytes: u64,
        /// Size of the content, uncompressed.
        content_bytes: u64,
    },
    /// zstd, or something newer.
    Other,
}

/// A table of headers.
struct Headers {
    offset: u64,
    each: usize,
    count: usize,
}

impl Headers {
    /// The bytes of the first `count` headers, as far as they are in the file; none if one header is smaller than `size`.
    fn read(&self, data: &dyn ReadAt, size: usize, count: usize) -> Vec<u8> {
        if self.each < size || self.offset == 0 {
            return vec![];
        }
        read_some(data, self.offset, (count * self.each) as u64, SECTIONS_MAX * 128)
    }
}
