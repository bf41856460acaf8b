//! Compressed sections, as a whole and only up to a limit.

use crate::bytes::{ReadAt, array};
use crate::elf::Section;
use std::io::{self, Read};

/// The content of a compressed section (`SHF_COMPRESSED` with zlib, or GNU's `.zdebug_*`). `None` if it is larger than `limit` bytes,
/// compressed otherwise, or damaged.
pub(crate) fn unpack(data: &dyn ReadAt, section: &Section, limit: u64) -> Option<Vec<u8>> {
    let (size, header) = if section.compressed {
        let header: [u8; 24] = array(data, section.file_offset)?;
        // ELFCOMPRESS_ZLIB
        if header[..4] != [1, 0, 0, 0] {
            return None;
        }
        (u64::from_le_bytes(header[8..16].try_into().ok()?), 24)
    } else {
        let header: [u8; 12] = array(data, section.file_offset)?;
        if header[..4] != *b"ZLIB" {
            return None;
        }
        (u64::from_be_bytes(header[4..].try_into().ok()?), 12)
    };
    if size > limit {
        return None;
    }
    let start = section.file_offset.checked_add(header)?;
    let end = section.file_offset.checked_add(section.size)?.min(data.len());
    let packed = Packed { data, at: start, end };
    let mut unpacked = Vec::new();
    // Grows with what is really there: the size that the header claims may be a lie.
    flate2::read::ZlibDecoder::new(packed).take(size).read_to_end(&mut unpacked).ok()?;
    (unpacked.len() as u64 == size).then_some(unpacked)
}

struct Packed<'a> {
    data: &'a dyn ReadAt,
    at: u64,
    end: u64,
}

impl Read for Packed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.end.saturating_sub(self.at).min(into.len() as u64) as usize;
        self.data.read_at(self.at, &mut into[..length]).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.at += length as u64;
        Ok(length)
    }
}
