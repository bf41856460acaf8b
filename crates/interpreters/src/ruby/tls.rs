//! Thread-local variables of an ELF object: from which word of the global offset table they are reached.

use lightfoot_unwind::{Arch, Elf, ReadAt};

const MAX_SECTIONS: u64 = 65_536;
const MAX_BYTES: u64 = 16 << 20;
const SHT_RELA: u32 = 4;
const SHT_DYNSYM: u32 = 11;
const PT_INTERP: u32 = 3;
const PT_TLS: u32 = 7;
const PT_GNU_RELRO: u32 = 0x6474_e552;
const ET_EXEC: u16 = 2;
/// Relocations that put a module's number or a distance into a word: (x86-64, arm64). ELF TLS ABI; AAELF64.
const DTPMOD: [u32; 2] = [16, 1028];
const TPOFF: [u32; 2] = [18, 1030];
const TLSDESC_ARM64: u32 = 1031;

/// How a variable in the object's own thread-local block is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The word at `slot` has the object's module number.
    Module { slot: u64 },
    /// The word at `slot` has a distance from the thread pointer; the variable lies `behind` bytes behind that.
    InTable { slot: u64, behind: i64 },
    /// A program's own block lies at a distance from the thread pointer that the linker knows.
    Fixed { distance: i64 },
}

/// A relocation: linker's address of the word, type, symbol's value (own symbols) or none (another object's), addend.
struct Relocation {
    address: u64,
    kind: u32,
    value: Option<u64>,
    addend: i64,
}

/// Linker's addresses of words that get this object's module number.
pub fn modules(data: &dyn ReadAt) -> Vec<u64> {
    let own = relocations(data).unwrap_or_default().into_iter();
    own.filter(|one| DTPMOD.contains(&one.kind) && one.value.is_some()).map(|one| one.address).collect()
}

/// How the variable at `offset` in the object's block is reached.
pub fn place(data: &dyn ReadAt, elf: &Elf, offset: u64) -> Option<Place> {
    let relocations = relocations(data).unwrap_or_default();
    for one in relocations.iter().filter(|one| TPOFF.contains(&one.kind) || one.kind == TLSDESC_ARM64) {
        if let Some(value) = one.value {
            // A descriptor's second word has the distance, if the block is part of what the thread began with.
            let slot = one.address.wrapping_add(if one.kind == TLSDESC_ARM64 { 8 } else { 0 });
            let behind = (offset as i64).wrapping_sub((value as i64).wrapping_add(one.addend));
            return Some(Place::InTable { slot, behind });
        }
    }
    if let Some(one) = relocations.iter().find(|one| DTPMOD.contains(&one.kind) && one.value.is_some()) {
        return Some(Place::Module { slot: one.address });
    }
    let headers = program_headers(data)?;
    let program = headers.program || headers.interpreter;
    let (size, align) = headers.block.filter(|_| program)?;
    let align = align.max(1);
    let distance = match elf.arch {
        // The block ends at the thread pointer; or begins behind the thread control block of two words.
        Arch::X86_64 => {
            (offset as i64).checked_sub(i64::try_from(size.checked_next_multiple_of(align)?).ok()?)?
        }
        Arch::Arm64 => i64::try_from(16u64.checked_next_multiple_of(align)?.checked_add(offset)?).ok()?,
    };
    Some(Place::Fixed { distance })
}

/// Linker's address from which on an object's variables lie.
pub fn variables(data: &dyn ReadAt) -> Option<u64> {
    program_headers(data).map(|headers| headers.relocated_end)
}

/// Whether the object needs musl's libc.
pub fn is_musl(data: &dyn ReadAt) -> bool {
    let found = || {
        let sections = sections(data)?;
        let symbols = sections.iter().find(|section| section.kind == SHT_DYNSYM)?;
        let strings = sections.get(symbols.link as usize)?.bytes(data)?;
        Some(strings.windows(9).any(|name| name == b"libc.musl"))
    };
    found().unwrap_or(false)
}

struct Section {
    kind: u32,
    offset: u64,
    size: u64,
    link: u32,
}

impl Section {
    fn bytes(&self, data: &dyn ReadAt) -> Option<Vec<u8>> {
        let end = self.offset.checked_add(self.size)?;
        let mut bytes =
            vec![0; usize::try_from(self.size).ok().filter(|_| self.size <= MAX_BYTES && end <= data.len())?];
        data.read_at(self.offset, &mut bytes)?;
        Some(bytes)
    }
}

fn header(data: &dyn ReadAt) -> Option<[u8; 64]> {
    let mut header = [0; 64];
    data.read_at(0, &mut header)?;
    (header[..6] == *b"\x7fELF\x02\x01").then_some(header)
}

/// A table of headers: `count` entries of `size` bytes, at least `least`.
fn table(data: &dyn ReadAt, offset: u64, size: u16, count: u16, least: u16) -> Option<(Vec<u8>, usize)> {
    let bytes = u64::from(size) * u64::from(count);
    if size < least || offset.checked_add(bytes)? > data.len() || u64::from(count) > MAX_SECTIONS {
        return None;
    }
    let mut table = vec![0; usize::try_from(bytes).ok()?];
    data.read_at(offset, &mut table)?;
    Some((table, size.into()))
}

fn sections(data: &dyn ReadAt) -> Option<Vec<Section>> {
    let header = header(data)?;
    let (bytes, size) = table(data, long(&header, 40)?, short(&header, 58)?, short(&header, 60)?, 64)?;
    let section = |entry: &[u8]| {
        Some(Section {
            kind: word(entry, 4)?,
            offset: long(entry, 24)?,
            size: long(entry, 32)?,
            link: word(entry, 40)?,
        })
    };
    bytes.chunks_exact(size).map(section).collect()
}

struct ProgramHeaders {
    program: bool,
    interpreter: bool,
    /// Size in memory and alignment of the thread-local block.
    block: Option<(u64, u64)>,
    /// End of what is read-only after relocation.
    relocated_end: u64,
}

fn program_headers(data: &dyn ReadAt) -> Option<ProgramHeaders> {
    let header = header(data)?;
    let (bytes, size) = table(data, long(&header, 32)?, short(&header, 54)?, short(&header, 56)?, 56)?;
    let mut found = ProgramHeaders {
        program: short(&header, 16)? == ET_EXEC,
        interpreter: false,
        block: None,
        relocated_end: 0,
    };
    for entry in bytes.chunks_exact(size) {
        match word(entry, 0)? {
            PT_INTERP => found.interpreter = true,
            PT_GNU_RELRO => found.relocated_end = long(entry, 16)?.saturating_add(long(entry, 40)?),
            PT_TLS => found.block = Some((long(entry, 40)?, long(entry, 48)?)),
            _ => {}
        }
    }
    Some(found)
}

fn relocations(data: &dyn ReadAt) -> Option<Vec<Relocation>> {
    let sections = sections(data)?;
    let symbols =
        sections.iter().find(|section| section.kind == SHT_DYNSYM).and_then(|section| section.bytes(data))?;
    let mut found = Vec::new();
    for section in sections.iter().filter(|section| section.kind == SHT_RELA) {
        let Some(bytes) = section.bytes(data) else { continue };
        for entry in bytes.chunks_exact(24) {
            let kind = word(entry, 8)?;
            if !DTPMOD.contains(&kind) && !TPOFF.contains(&kind) && kind != TLSDESC_ARM64 {
                continue;
            }
            let number = word(entry, 12)? as usize;
            let symbol = symbols.get(number * 24..).filter(|rest| rest.len() >= 24);
            let value = match symbol {
                _ if number == 0 => Some(0),
                Some(symbol) if short(symbol, 6)? != 0 => long(symbol, 8),
                _ => None,
            };
            found.push(Relocation { address: long(entry, 0)?, kind, value, addend: long(entry, 16)? as i64 });
        }
    }
    Some(found)
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}
