//! The sections of debug information.

use super::piece::{Piece, Source};
use crate::elf::{Compression, Elf};
use flate2::read::ZlibDecoder;
use gimli::{Dwarf, SectionId};
use std::io::{self, Read};

/// Sections that naming reads.
const READ: [SectionId; 10] = [
    SectionId::DebugInfo,
    SectionId::DebugAbbrev,
    SectionId::DebugLine,
    SectionId::DebugStr,
    SectionId::DebugLineStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
];

/// Sections, where the file has them.
pub(crate) struct Sections<'a> {
    sources: Vec<(SectionId, Source<'a>)>,
    empty: Source<'a>,
}

impl<'a> Sections<'a> {
    /// Whether the file has debug information at all.
    pub fn present(elf: &Elf<'_>) -> bool {
        elf.section_named(b".debug_info").is_some_and(|section| section.size > 0)
    }

    /// Opens the sections. Compressed ones are decompressed into memory, at most `left` bytes together.
    ///
    /// # Errors
    /// A note for people.
    pub fn open(elf: &Elf<'a>, left: &mut u64) -> Result<Sections<'a>, &'static str> {
        let mut sources = Vec::new();
        for id in READ {
            let Some(section) = elf.section_named(id.name().as_bytes()) else { continue };
            let source = match elf.compression(section) {
                Compression::None => Source::file(elf.data, section.offset, section.size, elf.endian),
                Compression::Other => {
                    return Err("debug information is compressed in an unknown way: no lines");
                }
                Compression::Zlib { header_bytes, content_bytes } => {
                    if content_bytes > *left {
                        return Err(
                            "compressed debug information above the limit: no lines, no inlined functions",
                        );
                    }
                    *left -= content_bytes;
                    let packed = Source::file(
                        elf.data,
                        section.offset.saturating_add(header_bytes),
                        section.size.saturating_sub(header_bytes),
                        elf.endian,
                    );
                    let mut bytes = Vec::with_capacity(content_bytes as usize);
                    ZlibDecoder::new(Stream(packed.reader()))
                        .take(content_bytes)
                        .read_to_end(&mut bytes)
                        .map_err(|_| "debug information is damaged: no lines")?;
                    Source::memory(bytes, elf.endian)
                }
            };
            sources.push((id, source));
        }
        Ok(Sections { sources, empty: Source::memory(vec![], elf.endian) })
    }

    /// gimli's view of the sections.
    pub fn dwarf(&'a self) -> Dwarf<Piece<'a>> {
        let section = |id: SectionId| {
            let source =
                self.sources.iter().find(|(present, _)| *present == id).map_or(&self.empty, |(_, s)| s);
            Ok::<_, std::convert::Infallible>(source.reader())
        };
        match Dwarf::load(section) {
            Ok(dwarf) => dwarf,
        }
    }
}

/// A piece as a stream of bytes.
struct Stream<'a>(Piece<'a>);

impl Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use gimli::Reader;
        let length = buffer.len().min(self.0.len());
        self.0.read_slice(&mut buffer[..length]).map_err(io::Error::other)?;
        Ok(length)
    }
}
