//! Lines of instructions, from the tables of three generations.

use super::offsets::LineFormat;

/// The line of the instruction at byte `position`; None if it has none (code made by the compiler) or the table does not reach it.
/// `first` is the code object's first line.
pub fn line(format: LineFormat, table: &[u8], first: u32, position: u32) -> Option<u32> {
    match format {
        LineFormat::Notes => notes(table, first, position),
        LineFormat::Ranges => ranges(table, first, position),
        LineFormat::Locations => locations(table, first, position),
    }
}

/// `co_lnotab`: pairs (bytes of code, lines) that are both added up; a pair of 0 bytes only moves the line.
/// Source: `Objects/lnotab_notes.txt` of CPython 3.9.
fn notes(table: &[u8], first: u32, position: u32) -> Option<u32> {
    let (mut at, mut line) = (0u32, i64::from(first));
    for pair in table.chunks_exact(2) {
        at = at.saturating_add(u32::from(pair[0]));
        if at > position {
            break;
        }
        line += i64::from(pair[1] as i8);
    }
    u32::try_from(line).ok()
}

/// 3.10: pairs (bytes of code, lines): the line is moved first and then holds for these bytes; -128 means that they have none.
/// Source: `Objects/lnotab_notes.txt` of CPython 3.10.
fn ranges(table: &[u8], first: u32, position: u32) -> Option<u32> {
    let (mut end, mut line) = (0u32, i64::from(first));
    for pair in table.chunks_exact(2) {
        let none = pair[1] == 0x80;
        if !none {
            line += i64::from(pair[1] as i8);
        }
        end = end.saturating_add(u32::from(pair[0]));
        if position < end {
            return if none { None } else { u32::try_from(line).ok() };
        }
    }
    None
}

/// 3.11 and later: entries of a first byte 1CCCCLLL (code C, L + 1 units of 2 bytes of instructions) and what C says.
/// Source: `Objects/locations.md` of CPython 3.11.
fn locations(table: &[u8], first: u32, position: u32) -> Option<u32> {
    let (mut end, mut line) = (0u32, i64::from(first));
    let mut at = table.iter().copied();
    while let Some(head) = at.next() {
        let code = head >> 3 & 15;
        let mut none = false;
        match code {
            // Short forms: one more byte of columns, same line.
            0..=9 => {
                at.next()?;
            }
            // One line, 0 to 2 further; two bytes of columns.
            10..=12 => {
                line += i64::from(code - 10);
                at.nth(1)?;
            }
            13 => line = line.checked_add(signed(&mut at)?)?,
            14 => {
                line = line.checked_add(signed(&mut at)?)?;
                for _ in 0..3 {
                    unsigned(&mut at)?;
                }
            }
            _ => none = true,
        }
        end = end.saturating_add((u32::from(head & 7) + 1) * 2);
        if position < end {
            return if none { None } else { u32::try_from(line).ok() };
        }
    }
    None
}

/// Six bits a byte, least first; bit 6 says that more follow.
fn unsigned(at: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..60).step_by(6) {
        let byte = at.next()?;
        number |= u64::from(byte & 63) << shift;
        if byte & 64 == 0 {
            return Some(number);
        }
    }
    None
}

/// The sign is the lowest bit.
fn signed(at: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let number = unsigned(at)?;
    let size = i64::try_from(number >> 1).ok()?;
    Some(if number & 1 == 1 { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(format: LineFormat, table: &[u8], positions: impl Iterator<Item = u32>) -> Vec<Option<u32>> {
        positions.map(|position| line(format, table, 10, position)).collect()
    }

    #[test]
    fn notes_add_up_and_may_go_back() {
        let table = [0, 1, 6, 1, 50, 0, 0, 127, 2, 0xfe];
        let found = lines(LineFormat::Notes, &table, [0, 5, 6, 55, 56, 58].into_iter());
        assert_eq!(found, [11, 11, 12, 12, 139, 137].map(Some));
    }

    #[test]
    fn ranges_end_and_may_have_no_line() {
        let table = [2, 1, 4, 0x80, 2, 0xff];
        let found = lines(LineFormat::Ranges, &table, (0..10).step_by(2));
        assert_eq!(found, [Some(11), None, None, Some(10), None]);
    }

    #[test]
    fn locations_of_each_form() {
        // Short; one line of +1; no columns, -2 lines; long, +70 lines; none; no more.
        let table = [
            0x80 | 1,
            0,
            0x80 | 11 << 3,
            0,
            0,
            0x80 | 13 << 3,
            5,
            0x80 | 14 << 3,
            64 | 12,
            2,
            0,
            1,
            1,
            0x80 | 15 << 3,
        ];
        let found = lines(LineFormat::Locations, &table, (0..14).step_by(2));
        assert_eq!(found, [Some(10), Some(10), Some(11), Some(9), Some(79), None, None]);
    }

    #[test]
    fn cut_and_endless_tables_have_no_line() {
        for format in [LineFormat::Notes, LineFormat::Ranges, LineFormat::Locations] {
            for byte in 0..=255 {
                for length in 0..32 {
                    let _ = line(format, &vec![byte; length], u32::MAX, u32::MAX);
                }
            }
        }
        assert_eq!(
            line(LineFormat::Locations, &[0x80 | 13 << 3, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64], 1, 0),
            None
        );
    }
}
