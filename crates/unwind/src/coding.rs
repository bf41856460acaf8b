//! Numbers and byte strings of our own files: little-endian, counts as unsigned LEB128, a CRC-32 over everything at the end.

use crate::bytes::Cursor;

/// Why bytes are not one of our files. They are made anew then, never mended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// Too short, or another kind of file.
    #[error("not a file of this kind")]
    Magic,
    /// Written by another version of lightfoot.
    #[error("version {0} is not the one written today")]
    Version(u32),
    /// The checksum does not fit: damaged or cut short.
    #[error("damaged: the checksum does not fit")]
    Checksum,
    /// About another object than the one asked for.
    #[error("about another object")]
    Key,
    /// The checksum fits, but the content contradicts itself.
    #[error("inconsistent content")]
    Inconsistent,
}

pub(crate) struct Writer {
    pub bytes: Vec<u8>,
}

impl Writer {
    pub fn new(magic: [u8; 8], version: u32) -> Writer {
        let mut bytes = magic.to_vec();
        bytes.extend_from_slice(&version.to_le_bytes());
        Writer { bytes }
    }

    pub fn u8(&mut self, number: u8) {
        self.bytes.push(number);
    }

    pub fn u64(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    pub fn count(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// Its length and the bytes themselves.
    pub fn string(&mut self, bytes: &[u8]) {
        self.count(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    pub fn finish(mut self) -> Vec<u8> {
        let checksum = crc32fast::hash(&self.bytes);
        self.bytes.extend_from_slice(&checksum.to_le_bytes());
        self.bytes
    }
}

/// The content between header and checksum, if both are good.
pub(crate) fn open(bytes: &[u8], magic: [u8; 8], version: u32) -> Result<Cursor<'_>, DecodeError> {
    let (header, rest) = bytes.split_at_checked(12).ok_or(DecodeError::Magic)?;
    if header[..8] != magic {
        return Err(DecodeError::Magic);
    }
    let found = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    if found != version {
        return Err(DecodeError::Version(found));
    }
    let end = rest.len().checked_sub(4).ok_or(DecodeError::Checksum)?;
    let (content, checksum) = rest.split_at(end);
    if crc32fast::hash(&bytes[..12 + end]).to_le_bytes() != checksum {
        return Err(DecodeError::Checksum);
    }
    Ok(Cursor::new(content))
}

/// A count of things that take at least `each` bytes, so that no more room is made than there can be things.
pub(crate) fn count(at: &mut Cursor<'_>, each: usize) -> Option<usize> {
    let count = usize::try_from(at.uleb()?).ok()?;
    (count <= at.left() / each.max(1)).then_some(count)
}

pub(crate) fn string<'a>(at: &mut Cursor<'a>, limit: usize) -> Option<&'a [u8]> {
    let length = count(at, 1)?;
    if length > limit {
        return None;
    }
    at.take(length)
}
