//! A table as bytes, for a cache on disk. Never trusted: damage anywhere is an error, and the table is then built anew.

use crate::bytes::Cursor;
use crate::coding::{self, DecodeError, Writer};
use crate::{Arch, Row, Rule, Segment, Stats, Table};

const MAGIC: [u8; 8] = *b"LFunwind";
/// To be raised whenever the layout changes, or what rows are built.
const VERSION: u32 = 4;
const KEY_MAX: usize = 4096;
/// Rows that are written or read in about a millisecond.
const ROWS_PER_PIECE: usize = 65_536;

impl Table {
    /// The table as bytes, about 2.5 for a row. `key` says what the table is of (build ID, size and the like), at most 4,096 bytes.
    pub fn encode(&self, key: &[u8]) -> Vec<u8> {
        self.encode_in_pieces(key, &|| {})
    }

    /// [`Table::encode`], which calls `pause` about each millisecond.
    pub fn encode_in_pieces(&self, key: &[u8], pause: &dyn Fn()) -> Vec<u8> {
        let mut out = Writer::new(MAGIC, VERSION);
        out.string(&key[..key.len().min(KEY_MAX)]);
        self.write(&mut out, pause);
        let stats = self.stats;
        for number in numbers(stats) {
            out.count(number);
        }
        out.finish()
    }

    /// The table that [`Table::encode`] wrote with the same key.
    ///
    /// # Errors
    /// Anything but exactly such bytes.
    pub fn decode(bytes: &[u8], key: &[u8]) -> Result<Table, DecodeError> {
        Table::decode_in_pieces(bytes, key, &|| {})
    }

    /// [`Table::decode`], which calls `pause` about each millisecond.
    ///
    /// # Errors
    /// As there.
    pub fn decode_in_pieces(bytes: &[u8], key: &[u8], pause: &dyn Fn()) -> Result<Table, DecodeError> {
        let mut at = coding::open(bytes, MAGIC, VERSION)?;
        if coding::string(&mut at, KEY_MAX).ok_or(DecodeError::Inconsistent)?
            != &key[..key.len().min(KEY_MAX)]
        {
            return Err(DecodeError::Key);
        }
        let mut read = || {
            let mut table = Table::read(&mut at, pause)?;
            table.stats = Stats {
                functions: at.uleb()?,
                go_functions: at.uleb()?,
                rows_before_merge: at.uleb()?,
                unsupported_rows: at.uleb()?,
                overlapping: at.uleb()?,
                outside: at.uleb()?,
                malformed: at.uleb()?,
                left_out: at.uleb()?,
            };
            at.is_at_end().then_some(table)
        };
        read().ok_or(DecodeError::Inconsistent)
    }

    /// Everything but the stats.
    pub(crate) fn write(&self, out: &mut Writer, pause: &dyn Fn()) {
        out.u8(self.arch as u8);
        out.string(&self.build_id);
        out.count(self.text.len() as u64);
        for segment in &self.text {
            for number in [segment.file_offset, segment.file_size, segment.address] {
                out.count(number);
            }
        }
        out.count(self.rules.len() as u64);
        for rule in &self.rules {
            out.bytes.extend_from_slice(&rule.to_bytes());
        }
        out.count(self.rows.len() as u64);
        let mut before = 0;
        for (index, row) in self.rows.iter().enumerate() {
            if index % ROWS_PER_PIECE == ROWS_PER_PIECE - 1 {
                pause();
            }
            out.count(u64::from(row.offset.wrapping_sub(before)));
            out.count(u64::from(row.rule));
            before = row.offset;
        }
    }

    pub(crate) fn read(at: &mut Cursor<'_>, pause: &dyn Fn()) -> Option<Table> {
        let arch = Arch::from_number(at.u8()?)?;
        let build_id = coding::string(at, 64)?.to_vec();
        let mut text = Vec::new();
        for _ in 0..coding::count(at, 3)? {
            let (file_offset, file_size, address) = (at.uleb()?, at.uleb()?, at.uleb()?);
            file_offset.checked_add(file_size)?;
            address.checked_add(file_size)?;
            text.push(Segment { file_offset, file_size, address, executable: true });
        }
        let mut rules = Vec::with_capacity(coding::count(at, Rule::BYTES)?);
        for _ in 0..rules.capacity() {
            rules.push(Rule::from_bytes(at.take(Rule::BYTES)?.try_into().ok()?)?);
        }
        if rules.first() != Some(&Rule::NONE) || rules.len() > 1 << 16 {
            return None;
        }
        let count = coding::count(at, 2)?;
        let mut rows: Vec<Row> = Vec::with_capacity(count);
        let mut offset = 0u32;
        for index in 0..count {
            if index % ROWS_PER_PIECE == ROWS_PER_PIECE - 1 {
                pause();
            }
            let step = u32::try_from(at.uleb()?).ok()?;
            let rule = u16::try_from(at.uleb()?).ok()?;
            let repeats = rows.last().is_some_and(|before| before.rule == rule);
            if (index > 0 && step == 0) || repeats || usize::from(rule) >= rules.len() {
                return None;
            }
            offset = offset.checked_add(step)?;
            rows.push(Row { offset, rule });
        }
        if rows.last().is_some_and(|last| last.rule != 0) {
            return None;
        }
        Some(Table { arch, rules, rows, text, build_id, stats: Stats::default() })
    }
}

fn numbers(stats: Stats) -> [u64; 8] {
    // Destructured, so that a new field is not forgotten.
    let Stats {
        functions,
        go_functions,
        rows_before_merge,
        unsupported_rows,
        overlapping,
        outside,
        malformed,
        left_out,
    } = stats;
    [functions, go_functions, rows_before_merge, unsupported_rows, overlapping, outside, malformed, left_out]
}
