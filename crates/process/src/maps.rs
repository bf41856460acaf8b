//! `/proc/PID/maps`, line by line. Source of the format: `show_map_vma` in the kernel's `fs/proc/task_mmu.c`.

use crate::mapping::{Device, Mapping};
use std::borrow::Cow;

/// Parses one line, for example `7f0c3f028000-7f0c3f1bd000 r-xp 00028000 fe:00 1835 /usr/lib/libc.so.6`.
///
/// `Ok(None)` for a mapping that is not executable, `Err` for a line that is not understood. Never panics.
#[allow(clippy::result_unit_err)]
pub fn parse_line(line: &[u8]) -> Result<Option<Mapping<'_>>, ()> {
    let mut fields = Fields { rest: line };
    let range = fields.next().ok_or(())?;
    let permissions = fields.next().ok_or(())?;
    if permissions.len() < 4 {
        return Err(());
    }
    if permissions[2] != b'x' {
        return Ok(None);
    }
    let (start, end) = split_once(range, b'-').ok_or(())?;
    let (start, end) = (hex(start).ok_or(())?, hex(end).ok_or(())?);
    if start >= end {
        return Err(());
    }
    let file_offset = hex(fields.next().ok_or(())?).ok_or(())?;
    let (major, minor) = split_once(fields.next().ok_or(())?, b':').ok_or(())?;
    let major = u32::try_from(hex(major).ok_or(())?).map_err(|_| ())?;
    let minor = u32::try_from(hex(minor).ok_or(())?).map_err(|_| ())?;
    let inode = decimal(fields.next().ok_or(())?).ok_or(())?;
    // The rest of the line is the path, blanks included; the kernel pads before it.
    let path = unescape(fields.rest.trim_ascii_start());
    Ok(Some(Mapping { start, end, file_offset, device: Device { major, minor }, inode, path }))
}

struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let length = self.rest.iter().position(|&byte| byte == b' ').unwrap_or(self.rest.len());
        let (field, rest) = self.rest.split_at(length);
        self.rest = rest.strip_prefix(b" ").unwrap_or(rest);
        (!field.is_empty()).then_some(field)
    }
}

fn split_once(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|&byte| byte == separator)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

/// A hexadecimal number without a prefix; `None` if it is empty, has another character, or needs more than 64 bits.
pub(crate) fn hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &digit| {
        let value = (digit as char).to_digit(16)?;
        (number >> 60 == 0).then_some(number << 4 | u64::from(value))
    })
}

/// A decimal number; `None` if it is empty, has another character, or needs more than 64 bits.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &digit| {
        let value = (digit as char).to_digit(10)?;
        number.checked_mul(10)?.checked_add(u64::from(value))
    })
}

/// The kernel writes a line feed in a path as `\012` and escapes nothing else (`seq_path` with `"\n"`), so a name that
/// contains these four characters cannot be told apart; the inode number decides when the file is opened.
fn unescape(path: &[u8]) -> Cow<'_, [u8]> {
    const ESCAPED: &[u8] = b"\\012";
    if !path.windows(ESCAPED.len()).any(|window| window == ESCAPED) {
        return Cow::Borrowed(path);
    }
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(ESCAPED) {
            plain.push(b'\n');
            rest = tail;
        } else {
            plain.push(first);
            rest = tail;
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Numbers = (u64, u64, u64, (u32, u32), u64);

    fn check(line: &str, expected: Option<(Numbers, &str)>) {
        let parsed = parse_line(line.as_bytes()).unwrap();
        let expected = expected.map(|((start, end, file_offset, (major, minor), inode), path)| Mapping {
            start,
            end,
            file_offset,
            device: Device { major, minor },
            inode,
            path: Cow::Owned(path.as_bytes().to_vec()),
        });
        assert_eq!(parsed, expected, "{line}");
    }

    #[test]
    fn lines_as_the_kernel_writes_them() {
        check(
            "7f0c3f028000-7f0c3f1bd000 r-xp 00028000 fe:00 1835                       /usr/lib/libc.so.6",
            Some(((0x7f0c3f028000, 0x7f0c3f1bd000, 0x28000, (0xfe, 0), 1835), "/usr/lib/libc.so.6")),
        );
        check("7f0c3f000000-7f0c3f028000 r--p 00000000 fe:00 1835  /usr/lib/libc.so.6", None);
        check(
            "7ffd1000-7ffd3000 r-xp 00000000 00:00 0     [vdso]",
            Some(((0x7ffd1000, 0x7ffd3000, 0, (0, 0), 0), "[vdso]")),
        );
        check("1000-2000 rwxp 00000000 00:00 0 ", Some(((0x1000, 0x2000, 0, (0, 0), 0), "")));
        check("1000-2000 rwxp 00000000 00:00 0", Some(((0x1000, 0x2000, 0, (0, 0), 0), "")));
        check(
            "1000-2000 r-xp 0 08:01 7  /a b/c\\012d (deleted)",
            Some(((0x1000, 0x2000, 0, (8, 1), 7), "/a b/c\nd (deleted)")),
        );
        check(
            "1000-2000 r-xs 0 00:01 9  /memfd:jit x (deleted)",
            Some(((0x1000, 0x2000, 0, (0, 1), 9), "/memfd:jit x (deleted)")),
        );
        check(
            "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]",
            Some(((0xffffffffff600000, 0xffffffffff601000, 0, (0, 0), 0), "[vsyscall]")),
        );
    }

    #[test]
    fn other_lines_are_refused() {
        for line in [
            "",
            " ",
            "1000",
            "1000-2000",
            "1000-2000 r-x",
            "2000-1000 r-xp 0 0:0 0",
            "1000-1000 r-xp 0 0:0 0",
            "10000000000000000-20000000000000000 r-xp 0 0:0 0",
            "1000-2000 r-xp 0 1ffffffff:0 0 /a",
            "1000-2000 r-xp 0 0:0 99999999999999999999 /a",
            "1000-2000 r-xp x 0:0 0 /a",
            "1000-2000 r-xp 0 00 0 /a",
            "+1000-2000 r-xp 0 0:0 0 /a",
        ] {
            assert_eq!(parse_line(line.as_bytes()), Err(()), "{line:?}");
        }
    }
}
