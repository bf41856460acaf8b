//! An instruction sequence (iseq): label, file, and the lines of its instructions.

use super::offsets as o;
use super::values::Values;
use crate::memory::{u32_at, u64_at};

/// Larger tables of lines are not read: the first line is told instead.
const MAX_TABLE_BYTES: usize = 512 << 10;
/// Positions that the table's head answers by itself. Source: `IMMEDIATE_TABLE_SIZE`, iseq.c.
const IMMEDIATE: u64 = 54;
const HEAD_BYTES: usize = 48;
const BLOCK_BYTES: usize = 80;
const BLOCK_POSITIONS: u64 = 512;
/// All fields of a body that tell its names lie there.
const BODY_BYTES: usize = 256;

/// The fields by which an iseq is recognised: another one at the same address differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    body: u64,
    encoded: u64,
    size: u32,
    label: u64,
    path: u64,
}

/// An iseq that was read.
#[derive(Debug)]
pub struct Code {
    pub label: String,
    pub base_label: String,
    pub file: String,
    /// The method (or program) that this is a block of; itself if it is none.
    pub local: u64,
    first_line: u32,
    encoded: u64,
    size: u32,
    lines: Vec<u32>,
    index: Index,
}

/// Which entry of `lines` an instruction has.
#[derive(Debug)]
enum Index {
    None,
    /// Sorted positions.
    Positions(Vec<u32>),
    /// A bit for each position that begins an entry, with counts: `struct succ_index_table`, iseq.c.
    Bits(Vec<u8>),
}

/// What tells whether an iseq is the same as before. None: it is none, or gone.
pub fn identity(values: &Values, iseq: u64) -> Option<(Identity, Vec<u8>)> {
    let body = values.field(iseq, o::ISEQ_BODY)?;
    let bytes = values.reader.bytes(body, BODY_BYTES as u64, BODY_BYTES)?;
    let long = |place| u64_at(&bytes, values.offset(place) as usize);
    let identity = Identity {
        body,
        encoded: long(o::BODY_ENCODED),
        size: u32_at(&bytes, values.offset(o::BODY_SIZE) as usize),
        label: long(o::BODY_LABEL),
        path: long(o::BODY_PATH),
    };
    Some((identity, bytes))
}

impl Code {
    /// Reads an iseq whose body's first bytes are `bytes`. None: it is none.
    pub fn read(values: &Values, iseq: u64, identity: &Identity, bytes: &[u8]) -> Option<Code> {
        let long = |place| u64_at(bytes, values.offset(place) as usize);
        let first = values.offset(o::BODY_FIRST_LINE) as usize;
        // A number is an object before 3.3: twice itself and one.
        let first_line = match values.offset(o::BODY_FIRST_LINE_SIZE) {
            8 => (u64_at(bytes, first) >> 1) as u32,
            _ => u32_at(bytes, first),
        };
        let label = values.string(identity.label)?;
        let base_label = values.string(long(o::BODY_BASE_LABEL))?;
        let file = values.path(identity.path).unwrap_or_default();
        let local = Some(long(o::BODY_LOCAL_ISEQ)).filter(|&local| local != 0).unwrap_or(iseq);
        let count = u32_at(bytes, values.offset(o::BODY_INFO_SIZE) as usize);
        let (lines, index) = lines(values, bytes, identity.size, count).unwrap_or((Vec::new(), Index::None));
        let (encoded, size) = (identity.encoded, identity.size);
        Some(Code { label, base_label, file, local, first_line, encoded, size, lines, index })
    }

    /// The line of the instruction before `pc`, which is the one that comes next.
    pub fn line(&self, pc: u64) -> u32 {
        let Some(position) = pc.checked_sub(self.encoded).map(|bytes| bytes / 8) else {
            return self.first_line;
        };
        if position > self.size.into() {
            return self.first_line;
        }
        let position = position.saturating_sub(1);
        let entry = match &self.index {
            Index::None => None,
            Index::Positions(positions) => {
                Some(positions.partition_point(|&begin| u64::from(begin) <= position))
            }
            Index::Bits(bytes) => rank(bytes, position),
        };
        let line = entry.and_then(|entry| entry.checked_sub(1)).and_then(|entry| self.lines.get(entry));
        line.copied().filter(|&line| line != 0).unwrap_or(self.first_line)
    }

    /// Bytes in memory, about.
    pub fn bytes(&self) -> usize {
        let index = match &self.index {
            Index::None => 0,
            Index::Positions(positions) => positions.len() * 4,
            Index::Bits(bytes) => bytes.len(),
        };
        size_of::<Code>()
            + self.label.len()
            + self.base_label.len()
            + self.file.len()
            + self.lines.len() * 4
            + index
    }
}

/// Number of entries that begin at or before `position`.
fn rank(bytes: &[u8], position: u64) -> Option<usize> {
    if position < IMMEDIATE {
        // Nine counts of seven bits in each word.
        let word = u64_at(bytes, (position / 9 * 8) as usize);
        return Some((word >> (position % 9 * 7) & 0x7f) as usize);
    }
    let block = (position - IMMEDIATE) / BLOCK_POSITIONS;
    let at = usize::try_from(block).ok()?.checked_mul(BLOCK_BYTES)?.checked_add(HEAD_BYTES)?;
    let block = bytes.get(at..at.checked_add(BLOCK_BYTES)?)?;
    let bit = (position - IMMEDIATE) % BLOCK_POSITIONS;
    let word = bit / 64;
    let before = match word {
        0 => 0,
        word => u64_at(block, 8) >> ((word - 1) * 9) & 0x1ff,
    };
    let within = (u64_at(block, 16 + word as usize * 8) << (63 - bit % 64)).count_ones();
    Some(u32_at(block, 0) as usize + before as usize + within as usize)
}

fn lines(values: &Values, body: &[u8], size: u32, count: u32) -> Option<(Vec<u32>, Index)> {
    let long = |place| u64_at(body, values.offset(place) as usize);
    let entry = values.offset(o::INFO_SIZE).max(4);
    let at = values.offset(o::INFO_LINE) as usize;
    let table = values.reader.bytes(long(o::BODY_INFO), entry.checked_mul(count.into())?, MAX_TABLE_BYTES)?;
    let lines = table.chunks_exact(entry as usize).map(|entry| u32_at(entry, at)).collect();
    let (positions, index) = (long(o::BODY_POSITIONS), long(o::BODY_INDEX));
    let index = if index != 0 {
        let blocks = u64::from(size).saturating_sub(IMMEDIATE).div_ceil(BLOCK_POSITIONS);
        // The head is shorter where there are fewer positions; what is read behind it is not asked for. A table at the end of
        // the memory may be all there is.
        let head = if blocks == 0 { u64::from(size).div_ceil(9) * 8 } else { HEAD_BYTES as u64 };
        let bytes = head.min(HEAD_BYTES as u64) + blocks * BLOCK_BYTES as u64;
        Index::Bits(values.reader.bytes(index, bytes, MAX_TABLE_BYTES)?)
    } else if positions != 0 {
        let bytes = values.reader.bytes(positions, u64::from(count) * 4, MAX_TABLE_BYTES)?;
        Index::Positions(bytes.chunks_exact(4).map(|position| u32_at(position, 0)).collect())
    } else {
        return None;
    };
    Some((lines, index))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table as Ruby makes it, for entries that begin at `starts`.
    fn table(size: u64, starts: &[u64]) -> Vec<u8> {
        let begins = |position: u64| starts.iter().filter(|&&start| start <= position).count() as u64;
        let mut bytes = Vec::new();
        for word in 0..6 {
            let counts = (0..9).fold(0, |word_value, at| word_value | begins(word * 9 + at) << (at * 7));
            bytes.extend(counts.to_le_bytes());
        }
        for block in 0..size.saturating_sub(IMMEDIATE).div_ceil(BLOCK_POSITIONS) {
            let first = IMMEDIATE + block * BLOCK_POSITIONS;
            bytes.extend(begins(first - 1).to_le_bytes());
            let inside = |word: u64| begins(first + word * 64 - 1) - begins(first - 1);
            bytes
                .extend((1..8).fold(0, |ranks, word| ranks | inside(word) << ((word - 1) * 9)).to_le_bytes());
            for word in 0..8 {
                let bits = (0..64).fold(0u64, |bits, bit| {
                    bits | u64::from(starts.contains(&(first + word * 64 + bit))) << bit
                });
                bytes.extend(bits.to_le_bytes());
            }
        }
        bytes
    }

    #[test]
    fn rank_counts_the_entries_that_have_begun() {
        let starts: Vec<u64> = (0..2000).filter(|position| position * 7 % 13 < 3).collect();
        let bytes = table(2000, &starts);
        for position in 0..2000 {
            let expected = starts.iter().filter(|&&start| start <= position).count();
            // Counts in the head have seven bits.
            assert_eq!(rank(&bytes, position), Some(expected), "{position}");
        }
        assert_eq!(rank(&bytes, 1 << 40), None);
    }
}
