//! A section that is read in pieces: gimli's view of bytes that are not in memory. At most 256 KiB of each section are, so that
//! debug information of any size can be looked into.

use crate::bytes::{Endian, ReadAt};
use gimli::{Error, Reader, ReaderOffsetId, Result, RunTimeEndian};
use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

const PAGE_BYTES: usize = 16 << 10;
const PAGES_MAX: usize = 16;
/// Longest text or block that is handed out as a whole.
const SLICE_BYTES_MAX: usize = 64 << 10;

/// A section: a range of a file, or memory (if it had to be decompressed).
pub(crate) struct Source<'a> {
    data: Option<(&'a dyn ReadAt, u64)>,
    memory: Rc<[u8]>,
    length: usize,
    endian: RunTimeEndian,
    cache: RefCell<Cache>,
}

/// Pages read last.
#[derive(Default)]
struct Cache {
    /// With their number.
    pages: Vec<(usize, Rc<[u8]>)>,
    /// Which one gives way next.
    next: usize,
}

impl<'a> Source<'a> {
    fn new(
        data: Option<(&'a dyn ReadAt, u64)>,
        memory: Rc<[u8]>,
        length: usize,
        endian: Endian,
    ) -> Source<'a> {
        let endian = if endian.little { RunTimeEndian::Little } else { RunTimeEndian::Big };
        Source { data, memory, length, endian, cache: RefCell::default() }
    }

    /// `size` bytes of `data` at `offset`, as far as they are there.
    pub fn file(data: &'a dyn ReadAt, offset: u64, size: u64, endian: Endian) -> Source<'a> {
        let length = size.min(data.size().saturating_sub(offset));
        Source::new(Some((data, offset)), Rc::default(), usize::try_from(length).unwrap_or(0), endian)
    }

    /// Bytes in memory.
    pub fn memory(bytes: Vec<u8>, endian: Endian) -> Source<'a> {
        let length = bytes.len();
        Source::new(None, bytes.into(), length, endian)
    }

    /// The whole section.
    pub fn reader(&'a self) -> Piece<'a> {
        Piece { source: self, page: Rc::clone(&self.memory), page_start: 0, at: 0, end: self.length }
    }

    /// The page that holds the byte at `at`, and where it starts.
    fn page(&self, at: usize) -> Option<(Rc<[u8]>, usize)> {
        let Some((data, offset)) = self.data else { return Some((Rc::clone(&self.memory), 0)) };
        let number = at / PAGE_BYTES;
        let start = number * PAGE_BYTES;
        let Cache { pages, next } = &mut *self.cache.borrow_mut();
        if let Some((_, page)) = pages.iter().find(|(cached, _)| *cached == number) {
            return Some((Rc::clone(page), start));
        }
        let mut bytes = vec![0; PAGE_BYTES.min(self.length.checked_sub(start)?)];
        data.read_at(offset + start as u64, &mut bytes).ok()?;
        let page: Rc<[u8]> = bytes.into();
        if pages.len() < PAGES_MAX {
            pages.push((number, Rc::clone(&page)));
        } else {
            pages[*next] = (number, Rc::clone(&page));
            *next = (*next + 1) % PAGES_MAX;
        }
        Some((page, start))
    }
}

/// A range of a section.
#[derive(Clone)]
pub(crate) struct Piece<'a> {
    source: &'a Source<'a>,
    page: Rc<[u8]>,
    /// Where `page` starts in the section.
    page_start: usize,
    /// The range, as offsets in the section.
    at: usize,
    end: usize,
}

impl fmt::Debug for Piece<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.at, self.end)
    }
}

impl Piece<'_> {
    /// The bytes from `at` to the end of its page, at least one.
    fn chunk(&mut self, at: usize) -> Result<&[u8]> {
        let mut into = at.wrapping_sub(self.page_start);
        if into >= self.page.len() {
            (self.page, self.page_start) =
                self.source.page(at).ok_or(Error::UnexpectedEof(self.offset_id()))?;
            into = at - self.page_start;
        }
        self.page
            .get(into..)
            .filter(|chunk| !chunk.is_empty())
            .ok_or(Error::UnexpectedEof(ReaderOffsetId(at as u64)))
    }
}

impl<'a> Reader for Piece<'a> {
    type Endian = RunTimeEndian;
    type Offset = usize;

    fn endian(&self) -> RunTimeEndian {
        self.source.endian
    }

    fn len(&self) -> usize {
        self.end - self.at
    }

    fn empty(&mut self) {
        self.end = self.at;
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        if len > self.len() {
            return Err(Error::UnexpectedEof(self.offset_id()));
        }
        self.end = self.at + len;
        Ok(())
    }

    fn offset_from(&self, base: &Self) -> usize {
        self.at - base.at
    }

    fn offset_id(&self) -> ReaderOffsetId {
        ReaderOffsetId(self.at as u64)
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        let at = usize::try_from(id.0).ok()?;
        (self.at..=self.end).contains(&at).then(|| at - self.at)
    }

    fn find(&self, byte: u8) -> Result<usize> {
        let mut piece = self.clone();
        let mut at = self.at;
        while at < self.end {
            let chunk = piece.chunk(at)?;
            let chunk = &chunk[..chunk.len().min(self.end - at)];
            if let Some(found) = chunk.iter().position(|&b| b == byte) {
                return Ok(at + found - self.at);
            }
            at += chunk.len();
        }
        Err(Error::UnexpectedEof(self.offset_id()))
    }

    fn skip(&mut self, len: usize) -> Result<()> {
        if len > self.len() {
            return Err(Error::UnexpectedEof(self.offset_id()));
        }
        self.at += len;
        Ok(())
    }

    fn split(&mut self, len: usize) -> Result<Self> {
        let mut first = self.clone();
        first.truncate(len)?;
        self.at += len;
        Ok(first)
    }

    fn to_slice(&self) -> Result<Cow<'_, [u8]>> {
        if self.len() > SLICE_BYTES_MAX {
            return Err(Error::UnexpectedEof(self.offset_id()));
        }
        let mut bytes = vec![0; self.len()];
        self.clone().read_slice(&mut bytes)?;
        Ok(Cow::Owned(bytes))
    }

    fn to_string(&self) -> Result<Cow<'_, str>> {
        String::from_utf8(self.to_slice()?.into_owned()).map(Cow::Owned).map_err(|_| Error::BadUtf8)
    }

    fn to_string_lossy(&self) -> Result<Cow<'_, str>> {
        Ok(Cow::Owned(String::from_utf8_lossy(&self.to_slice()?).into_owned()))
    }

    // The next three are most of what gimli asks for; the trait's own versions go through `read_slice` byte by byte.

    #[inline]
    fn read_u8(&mut self) -> Result<u8> {
        if self.at < self.end
            && let Some(&byte) = self.page.get(self.at.wrapping_sub(self.page_start))
        {
            self.at += 1;
            return Ok(byte);
        }
        let mut byte = [0];
        self.read_slice(&mut byte)?;
        Ok(byte[0])
    }

    #[inline]
    fn read_uleb128(&mut self) -> Result<u64> {
        let (mut number, mut shift) = (0u64, 0);
        loop {
            let byte = self.read_u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift > 63 || shift == 63 && bits > 1 {
                return Err(Error::BadUnsignedLeb128);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
            shift += 7;
        }
    }

    #[inline]
    fn skip_leb128(&mut self) -> Result<()> {
        while self.read_u8()? >= 0x80 {}
        Ok(())
    }

    #[inline]
    fn read_slice(&mut self, buffer: &mut [u8]) -> Result<()> {
        if buffer.len() > self.len() {
            return Err(Error::UnexpectedEof(self.offset_id()));
        }
        let into = self.at.wrapping_sub(self.page_start);
        if into < self.page.len() && self.page.len() - into >= buffer.len() {
            buffer.copy_from_slice(&self.page[into..into + buffer.len()]);
            self.at += buffer.len();
            return Ok(());
        }
        let mut filled = 0;
        while filled < buffer.len() {
            let chunk = self.chunk(self.at)?;
            let length = chunk.len().min(buffer.len() - filled);
            buffer[filled..filled + length].copy_from_slice(&chunk[..length]);
            filled += length;
            self.at += length;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_across_pages_and_forgets_old_ones() {
        let bytes: Vec<u8> = (0..PAGE_BYTES * 40).map(|i| (i * 7 + i / 251) as u8 | 1).collect();
        let data = &bytes[..];
        let source = Source::file(&data, 3, u64::MAX, Endian { little: true });
        let whole = source.reader();
        assert_eq!(whole.len(), bytes.len() - 3);
        let mut piece = whole.clone();
        piece.skip(PAGE_BYTES - 2).unwrap();
        let mut middle = piece.split(PAGE_BYTES * 2).unwrap();
        assert_eq!(piece.offset_from(&whole), PAGE_BYTES * 3 - 2);
        let mut buffer = vec![0; PAGE_BYTES + 5];
        middle.read_slice(&mut buffer).unwrap();
        assert_eq!(buffer, bytes[PAGE_BYTES + 1..][..PAGE_BYTES + 5]);
        assert!(middle.clone().skip(PAGE_BYTES).is_err());
        assert!(whole.find(0).is_err());
        assert_eq!(whole.find(bytes[3]).unwrap(), 0);
        assert!(source.cache.borrow().pages.len() <= PAGES_MAX);
    }

    #[test]
    fn numbers_of_variable_length_across_pages() {
        let mut bytes = vec![0x80; PAGE_BYTES - 1];
        bytes.extend([0x81, 0x82, 0x03, 0x7f]);
        bytes.extend([0xff; 9]);
        bytes.extend([0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]);
        let data = &bytes[..];
        let source = Source::file(&data, 0, u64::MAX, Endian { little: true });
        let mut piece = source.reader();
        piece.skip(PAGE_BYTES - 1).unwrap();
        assert_eq!(piece.read_uleb128().unwrap(), 1 | 2 << 7 | 3 << 14);
        assert_eq!(piece.read_uleb128().unwrap(), 0x7f);
        assert_eq!(piece.read_uleb128().unwrap(), u64::MAX);
        assert!(piece.clone().read_uleb128().is_err(), "more than 64 bits");
        piece.skip_leb128().unwrap();
        assert!(piece.is_empty() && piece.read_u8().is_err() && piece.skip_leb128().is_err());
    }
}
