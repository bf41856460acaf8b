//! Foreign bytes, read in pieces, never as a whole and never past their end.

/// Bytes that are read where they are needed: a file through `pread`, or a slice.
pub trait ReadAt {
    /// Number of bytes.
    fn len(&self) -> u64;

    /// Whether there are no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `into` from `offset`. `None` if the bytes are not all there, or reading failed.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Option<()>;

    /// Called about each millisecond of work that reads nothing, so that the work can be spread over time. Does nothing unless it is written anew.
    fn pause(&self) {}
}

impl ReadAt for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        into.copy_from_slice(self.get(usize::try_from(offset).ok()?..)?.get(..into.len())?);
        Some(())
    }
}

impl ReadAt for &[u8] {
    fn len(&self) -> u64 {
        ReadAt::len(*self)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        ReadAt::read_at(*self, offset, into)
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> u64 {
        ReadAt::len(self.as_slice())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        ReadAt::read_at(self.as_slice(), offset, into)
    }
}

/// `N` bytes at `offset`.
pub(crate) fn array<const N: usize>(data: &dyn ReadAt, offset: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    data.read_at(offset, &mut bytes)?;
    Some(bytes)
}

/// Exactly `length` bytes at `offset`; `None` if that is more than `limit` or not all there.
pub(crate) fn exact(data: &dyn ReadAt, offset: u64, length: u64, limit: u64) -> Option<Vec<u8>> {
    if length > limit || offset.checked_add(length)? > data.len() {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    data.read_at(offset, &mut bytes)?;
    Some(bytes)
}

/// A range of the data that is gone through from front to back, with a window of it in memory.
pub(crate) struct Window<'a> {
    data: &'a dyn ReadAt,
    end: u64,
    start: u64,
    bytes: Vec<u8>,
    capacity: usize,
}

impl<'a> Window<'a> {
    /// Bytes kept in memory; what is longer cannot be had from [`Window::get`].
    pub const BYTES: usize = 256 << 10;

    /// The bytes before `end`, which is cut to the data's own end.
    pub fn new(data: &'a dyn ReadAt, end: u64) -> Self {
        Window::with_capacity(data, end, Self::BYTES)
    }

    pub fn with_capacity(data: &'a dyn ReadAt, end: u64, capacity: usize) -> Self {
        Window { data, end: end.min(data.len()), start: 0, bytes: Vec::new(), capacity }
    }

    /// The `length` bytes at `offset`.
    pub fn get(&mut self, offset: u64, length: usize) -> Option<&[u8]> {
        let end = offset.checked_add(length as u64)?;
        if length > self.capacity || end > self.end {
            return None;
        }
        if offset < self.start || end > self.start + self.bytes.len() as u64 {
            let size = (self.end - offset).min(self.capacity as u64) as usize;
            self.bytes.resize(size, 0);
            self.start = offset;
            if self.data.read_at(offset, &mut self.bytes).is_none() {
                self.bytes.clear();
                return None;
            }
        }
        let at = (offset - self.start) as usize;
        self.bytes.get(at..at + length)
    }

    /// The little-endian number of 4 bytes at `offset`.
    pub fn u32(&mut self, offset: u64) -> Option<u32> {
        Some(u32::from_le_bytes(self.get(offset, 4)?.try_into().ok()?))
    }

    /// The little-endian number of 8 bytes at `offset`.
    pub fn u64(&mut self, offset: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.get(offset, 8)?.try_into().ok()?))
    }
}

/// A range of the data that is read here and there, a byte at a time, with recently used pages of it in memory.
pub(crate) struct Pages<'a> {
    data: &'a dyn ReadAt,
    end: u64,
    /// By page number modulo their count: (page number, bytes).
    pages: Vec<(u64, Vec<u8>)>,
}

impl<'a> Pages<'a> {
    const COUNT: u64 = 64;
    const BYTES: u64 = 8 << 10;

    pub fn new(data: &'a dyn ReadAt, end: u64) -> Self {
        let pages = (0..Self::COUNT).map(|_| (u64::MAX, Vec::new())).collect();
        Pages { data, end: end.min(data.len()), pages }
    }

    #[inline]
    pub fn u8(&mut self, offset: u64) -> Option<u8> {
        let number = offset / Self::BYTES;
        let (held, bytes) = &mut self.pages[(number % Self::COUNT) as usize];
        if *held != number {
            let start = number * Self::BYTES;
            bytes.resize(self.end.checked_sub(start)?.min(Self::BYTES) as usize, 0);
            *held = u64::MAX;
            self.data.read_at(start, bytes)?;
            *held = number;
        }
        bytes.get((offset % Self::BYTES) as usize).copied()
    }

    /// An unsigned LEB128 number of at most 32 bits; moves `at` behind it.
    pub fn uleb32(&mut self, at: &mut u64) -> Option<u32> {
        let mut number = 0u32;
        for shift in (0..35).step_by(7) {
            let byte = self.u8(*at)?;
            *at = at.checked_add(1)?;
            number |= u32::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// Bytes up to the next zero byte, at most `limit`.
    pub fn name(&mut self, mut at: u64, limit: usize) -> Option<Vec<u8>> {
        let mut name = Vec::new();
        while name.len() < limit {
            match self.u8(at)? {
                0 => return Some(name),
                byte => name.push(byte),
            }
            at = at.checked_add(1)?;
        }
        Some(name)
    }
}

/// A place in bytes that are in memory. All numbers are little-endian.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, at: 0 }
    }

    pub fn position(&self) -> usize {
        self.at
    }

    pub fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    pub fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    pub fn rest(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.at = self.bytes.len();
        rest
    }

    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// An unsigned LEB128 number; `None` if it does not end or does not fit.
    #[inline]
    pub fn uleb(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// A signed LEB128 number; `None` if it does not end or does not fit.
    #[inline]
    pub fn sleb(&mut self) -> Option<i64> {
        let mut number = 0i64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = i64::from(byte & 0x7f);
            if shift == 63 && bits != 0 && bits != 0x7f {
                return None;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                if byte & 0x40 != 0 && shift < 57 {
                    number |= -1 << (shift + 7);
                }
                return Some(number);
            }
        }
        None
    }

    /// Bytes up to the next zero byte, which is skipped.
    pub fn until_zero(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let length = rest.iter().position(|&byte| byte == 0)?;
        self.at += length + 1;
        rest.get(..length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leb128() {
        let signed = |bytes: &[u8]| Cursor::new(bytes).sleb();
        assert_eq!(signed(&[0x7f]), Some(-1));
        assert_eq!(signed(&[0x78]), Some(-8));
        assert_eq!(signed(&[0x80, 0x7f]), Some(-128));
        assert_eq!(signed(&[0x80; 11]), None);
        let lowest = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f];
        assert_eq!(signed(&lowest), Some(i64::MIN));
        let unsigned = |bytes: &[u8]| Cursor::new(bytes).uleb();
        assert_eq!(unsigned(&[0xe5, 0x8e, 0x26]), Some(624_485));
        assert_eq!(unsigned(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), Some(u64::MAX));
        assert_eq!(unsigned(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]), None);
        assert_eq!(unsigned(&[0x80]), None);
    }

    #[test]
    fn a_window_moves_and_ends_where_the_data_does() {
        let data: Vec<u8> = (0..100).collect();
        let mut window = Window::with_capacity(&data, 1000, 16);
        assert_eq!(window.get(0, 4), Some(&[0, 1, 2, 3][..]));
        assert_eq!(window.get(14, 4), Some(&[14, 15, 16, 17][..]));
        assert_eq!(window.get(3, 1), Some(&[3][..]));
        assert_eq!(window.get(96, 4), Some(&[96, 97, 98, 99][..]));
        assert_eq!(window.get(97, 4), None);
        assert_eq!(window.get(0, 17), None);
        assert_eq!(window.get(u64::MAX, 4), None);
    }
}
