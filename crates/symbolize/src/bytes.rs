//! Reading foreign bytes in pieces, never as a whole.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that are read where they are needed. Files are read with `pread`, not mapped: pages of a mapping would count as
/// lightfoot's memory, and a file that shrinks under a mapping kills the reader.
pub trait ReadAt {
    /// Number of bytes.
    fn size(&self) -> u64;

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// The bytes are not all there, or reading failed.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

impl ReadAt for File {
    fn size(&self) -> u64 {
        self.metadata().map_or(0, |metadata| metadata.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
}

impl ReadAt for &[u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let bytes = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)?.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Up to `length` bytes at `offset`: fewer if the data ends before, at most `limit`.
pub(crate) fn read_some(data: &dyn ReadAt, offset: u64, length: u64, limit: usize) -> Vec<u8> {
    let length = length.min(data.size().saturating_sub(offset)).min(limit as u64) as usize;
    let mut bytes = vec![0; length];
    match data.read_at(offset, &mut bytes) {
        Ok(()) => bytes,
        Err(_) => vec![],
    }
}

/// Numbers of one byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Endian {
    pub little: bool,
}

impl Endian {
    /// The unsigned number in `bytes[at..at + width]`, `width` at most 8; 0 outside of `bytes`.
    pub fn number(self, bytes: &[u8], at: usize, width: usize) -> u64 {
        let field = bytes.get(at..at + width).unwrap_or_default();
        let add = |number: u64, &byte: &u8| number << 8 | u64::from(byte);
        if self.little { field.iter().rev().fold(0, add) } else { field.iter().fold(0, add) }
    }

    pub fn u16(self, bytes: &[u8], at: usize) -> u16 {
        self.number(bytes, at, 2) as u16
    }

    pub fn u32(self, bytes: &[u8], at: usize) -> u32 {
        self.number(bytes, at, 4) as u32
    }

    pub fn u64(self, bytes: &[u8], at: usize) -> u64 {
        self.number(bytes, at, 8)
    }
}
