//! Perf maps: the names that JIT compilers write for the code they make, one line `START SIZE NAME` each, numbers
//! hexadecimal. Source of the format: `tools/perf/Documentation/jit-interface.txt` in the kernel.

use crate::lines::for_each_line;
use crate::maps::hex;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::rc::Rc;

/// Longest name kept, in bytes.
const NAME_BYTES: usize = 1024;
/// Assignments of a name to an address in one reading: entries that cover each other over and over would otherwise take
/// (lines x addresses) steps.
const ASSIGNMENTS_MAX: u64 = 16 << 20;

/// One entry: a piece of code with a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// First address, absolute.
    pub start: u64,
    /// Length in bytes.
    pub size: u64,
    /// The name, at most 1,024 bytes, control characters replaced.
    pub name: Rc<str>,
}

/// Parses one line; `None` if it is not understood. The name may contain blanks. Never panics.
pub fn parse_line(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (start, rest) = word(line.trim_ascii())?;
    let (size, name) = word(rest)?;
    let number = |digits: &[u8]| hex(digits.strip_prefix(b"0x").unwrap_or(digits));
    let (start, size) = (number(start)?, number(size)?);
    (size > 0 && !name.is_empty() && start.checked_add(size).is_some()).then_some((start, size, name))
}

fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = text.iter().position(u8::is_ascii_whitespace)?;
    Some((&text[..length], text[length..].trim_ascii_start()))
}

/// Text that can be shown: at most `limit` bytes, broken UTF-8 and control characters (a terminal would obey them)
/// replaced by `U+FFFD`.
pub fn printable(bytes: &[u8], limit: usize) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(limit)]);
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Finds the entries for `addresses` (sorted) in one pass over `reader`, of which at most `limit_bytes` are read. Where
/// entries overlap the later one wins: compilers reuse memory. Returns one entry or none per address, and whether the
/// map was longer than the limit. Memory: proportional to the addresses.
///
/// # Errors
/// What reading returned.
pub fn find(
    reader: &mut dyn Read,
    addresses: &[u64],
    limit_bytes: u64,
) -> io::Result<(Vec<Option<Entry>>, bool)> {
    let mut found: Vec<Option<Entry>> = vec![None; addresses.len()];
    let mut assignments = 0;
    let (_, cut) = for_each_line(reader, limit_bytes, &mut |line| {
        let Some((start, size, name)) = parse_line(line) else { return ControlFlow::Continue(()) };
        let from = addresses.partition_point(|&address| address < start);
        let to = from + addresses[from..].partition_point(|&address| address < start + size);
        if from < to {
            let entry = Entry { start, size, name: Rc::from(printable(name, NAME_BYTES)) };
            found[from..to].fill(Some(entry));
            assignments += (to - from) as u64;
            if assignments > ASSIGNMENTS_MAX {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    })?;
    Ok((found, cut || assignments > ASSIGNMENTS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(map: &[u8], addresses: &[u64]) -> Vec<Option<String>> {
        let (found, _) = find(&mut &*map, addresses, u64::MAX).unwrap();
        found.into_iter().map(|entry| entry.map(|entry| entry.name.to_string())).collect()
    }

    #[test]
    fn later_entries_win_and_bad_lines_are_skipped() {
        let map = b"1000 100 first\n\
            0x1080 0x40 LazyCompile:~f /a b.js:1\n\
            junk\n1000\n1000 zz bad\n1000 0 empty\nffffffffffffffff 10 over\n10000000000000000 1 over\n\
            1090 10 second \xff\x1b[2J\n3000 10";
        assert_eq!(
            names(map, &[0xfff, 0x1000, 0x1080, 0x1095, 0x10a0, 0x10c0, 0x1100, 0x3000]),
            [
                None,
                Some("first".into()),
                Some("LazyCompile:~f /a b.js:1".into()),
                Some("second \u{fffd}\u{fffd}[2J".into()),
                Some("LazyCompile:~f /a b.js:1".into()),
                Some("first".into()),
                None,
                None
            ]
        );
    }

    #[test]
    fn entries_that_cover_each_other_end() {
        let map = b"0 ffffffffffff x\n".repeat(40_000);
        let addresses: Vec<u64> = (0..16_384).collect();
        let (found, cut) = find(&mut &map[..], &addresses, u64::MAX).unwrap();
        assert!(cut && found.iter().all(Option::is_some));
    }
}
