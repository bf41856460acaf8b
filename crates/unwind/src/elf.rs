//! What unwinding needs of an ELF file: segments, a few sections, entry point, build ID.

use crate::bytes::{Cursor, ReadAt, array, exact};
use crate::{Arch, BuildError};

/// The bytes every ELF file starts with.
const MAGIC: [u8; 4] = *b"\x7fELF";
/// More program or section headers than any real file has: a file that claims more is refused.
const MAX_HEADERS: u64 = 65_536;
const MAX_NAMES_BYTES: u64 = 1 << 20;

/// A loaded part of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Where its bytes start in the file.
    pub file_offset: u64,
    /// Number of bytes in the file.
    pub file_size: u64,
    /// Address that the linker gave it (`p_vaddr`).
    pub address: u64,
    /// Whether code may run in it.
    pub executable: bool,
}

impl Segment {
    /// `p_vaddr - p_offset`: what is added to a file offset to get the linker's address.
    pub fn bias(&self) -> u64 {
        self.address.wrapping_sub(self.file_offset)
    }

    /// The file offset of a linker's address in this segment.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        let into = address.checked_sub(self.address)?;
        (into < self.file_size).then(|| self.file_offset + into)
    }
}

/// A section that may hold unwind information or code without it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Section {
    pub name: String,
    pub file_offset: u64,
    pub size: u64,
    pub address: u64,
    pub compressed: bool,
    /// `SHT_NOBITS`: nothing of it is in the file.
    pub absent: bool,
}

/// The headers of an ELF file for a CPU that rows can be made for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Elf {
    /// CPU.
    pub arch: Arch,
    /// `PT_LOAD` segments, in the file's order.
    pub segments: Vec<Segment>,
    /// Linker's address of the first instruction, 0 if there is none.
    pub entry: u64,
    /// Content of the GNU build ID note; empty if there is none.
    pub build_id: Vec<u8>,
    pub(crate) sections: Vec<Section>,
    /// File offset, size and address of `.eh_frame_hdr` by the program headers.
    pub(crate) eh_frame_header: Option<Segment>,
}

/// Whether the data starts as every ELF file does.
pub fn is_elf(data: &dyn ReadAt) -> bool {
    array::<4>(data, 0) == Some(MAGIC)
}

impl Elf {
    /// Reads the headers. A damaged section table is treated as absent: rows can be made without it.
    ///
    /// # Errors
    /// Not ELF, 32-bit, big-endian, another CPU, or damaged headers.
    pub fn parse(data: &dyn ReadAt) -> Result<Elf, BuildError> {
        let header: [u8; 64] = array(data, 0).ok_or(BuildError::NotElf)?;
        if header[..4] != MAGIC {
            return Err(BuildError::NotElf);
        }
        if header[4] != 2 {
            return Err(BuildError::ThirtyTwoBit);
        }
        if header[5] != 1 {
            return Err(BuildError::BigEndian);
        }
        let u16_at = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| header[at + i]));
        // e_type: ET_EXEC or ET_DYN.
        if !matches!(u16_at(16), 2 | 3) {
            return Err(BuildError::NotLoadable(u16_at(16)));
        }
        let arch = Arch::from_elf_machine(u16_at(18)).ok_or(BuildError::Machine(u16_at(18)))?;
        let mut elf = Elf {
            arch,
            segments: Vec::new(),
            entry: u64_at(24),
            build_id: Vec::new(),
            sections: Vec::new(),
            eh_frame_header: None,
        };
        elf.program_headers(data, u64_at(32), u64::from(u16_at(54)), u64::from(u16_at(56)))
            .ok_or(BuildError::DamagedHeaders)?;
        elf.section_headers(
            data,
            u64_at(40),
            u64::from(u16_at(58)),
            u64::from(u16_at(60)),
            u64::from(u16_at(62)),
        );
        Ok(elf)
    }

    fn program_headers(&mut self, data: &dyn ReadAt, offset: u64, size: u64, count: u64) -> Option<()> {
        if size < 56 {
            return None;
        }
        let bytes = exact(data, offset, size * count, MAX_HEADERS * 56)?;
        for header in bytes.chunks_exact(usize::try_from(size).ok()?) {
            let mut at = Cursor::new(header);
            let (kind, flags) = (at.u32()?, at.u32()?);
            let (file_offset, address, _, file_size) = (at.u64()?, at.u64()?, at.u64()?, at.u64()?);
            // What lies past the end of the file is not there; sums must not overflow later.
            let file_size = file_size.min(data.len().saturating_sub(file_offset));
            let segment = Segment { file_offset, file_size, address, executable: flags & 1 != 0 };
            if file_size == 0 || address.checked_add(file_size).is_none() {
                continue;
            }
            match kind {
                1 => self.segments.push(segment),
                4 => self.note(data, &segment),
                0x6474_e550 => self.eh_frame_header = Some(segment),
                _ => {}
            }
        }
        Some(())
    }

    /// A `PT_NOTE` segment: takes the build ID out of it.
    fn note(&mut self, data: &dyn ReadAt, segment: &Segment) {
        let Some(bytes) = exact(data, segment.file_offset, segment.file_size.min(64 << 10), 64 << 10) else {
            return;
        };
        let mut at = Cursor::new(&bytes);
        let mut next = || -> Option<Option<Vec<u8>>> {
            let (name_size, size, kind) = (at.u32()?, at.u32()?, at.u32()?);
            let name = at.take((name_size as usize).checked_next_multiple_of(4)?)?;
            let content = at.take((size as usize).checked_next_multiple_of(4)?)?.get(..size as usize)?;
            let is_id = kind == 3 && name.starts_with(b"GNU\0") && (1..=64).contains(&content.len());
            Some(is_id.then(|| content.to_vec()))
        };
        while let Some(found) = next() {
            if let Some(id) = found {
                self.build_id = id;
                return;
            }
        }
    }

    fn section_headers(
        &mut self,
        data: &dyn ReadAt,
        offset: u64,
        size: u64,
        count: u64,
        names: u64,
    ) -> Option<()> {
        if size < 64 || offset == 0 {
            return None;
        }
        let bytes = exact(data, offset, size * count, MAX_HEADERS * 64)?;
        let headers: Vec<&[u8]> = bytes.chunks_exact(usize::try_from(size).ok()?).collect();
        let field =
            |header: &[u8], at: usize| Some(u64::from_le_bytes(header.get(at..at + 8)?.try_into().ok()?));
        let names = headers.get(usize::try_from(names).ok()?)?;
        let names = exact(data, field(names, 24)?, field(names, 32)?, MAX_NAMES_BYTES)?;
        for header in headers {
            let mut at = Cursor::new(header);
            let (name, kind, flags) = (at.u32()?, at.u32()?, at.u64()?);
            let (address, file_offset, size) = (at.u64()?, at.u64()?, at.u64()?);
            let name = Cursor::new(names.get(name as usize..).unwrap_or_default()).until_zero();
            let name = String::from_utf8_lossy(name.unwrap_or_default());
            let wanted = matches!(
                &*name,
                ".eh_frame"
                    | ".debug_frame"
                    | ".zdebug_frame"
                    | ".init"
                    | ".fini"
                    | ".plt"
                    | ".plt.got"
                    | ".plt.sec"
                    | ".iplt"
                    | ".text"
                    | ".rela.dyn"
                    | ".go.module"
            );
            if (wanted || name.ends_with(".gopclntab")) && self.sections.len() < 64 {
                let compressed = flags & 0x800 != 0;
                let name = name.into_owned();
                self.sections.push(Section {
                    name,
                    file_offset,
                    size,
                    address,
                    compressed,
                    absent: kind == 8,
                });
            }
        }
        Some(())
    }

    /// The section of this name, if its bytes are in the file.
    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name && !section.absent)
    }

    /// The executable segment that holds this linker's address.
    pub(crate) fn code_segment(&self, address: u64) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.executable && segment.offset_of(address).is_some())
    }

    /// The file offset of a linker's address in any segment.
    pub(crate) fn offset_of(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| segment.offset_of(address))
    }
}
