//! The cold part of a function whose name was stripped.
//!
//! Compilers move code that is hardly ever run out of a function, into one of its own with its own unwind information, under a local name
//! (`.cold`). Its frame is the function's frame. It is found by the jumps that lead there: the only direct jumps out of a function
//! lead to its cold part or, as tail calls, to the first byte of other functions.

use std::collections::BTreeMap;
use std::ops::Range;

use lightfoot_unwind::{Arch, Elf, ReadAt};

/// A larger function is not looked at.
const MAX_CODE_BYTES: u64 = 4 << 20;
/// Most functions that jumps lead to are looked up: each lookup goes through the object's unwind information.
const MAX_LOOKUPS: usize = 24;
/// Jumps into the same function behind its first byte that make it a cold part. One could be bytes that only look like a jump.
const JUMPS_MIN: usize = 3;

/// The cold parts of the function at `whole` (file offsets).
pub fn parts(data: &dyn ReadAt, elf: &Elf, whole: &Range<u64>) -> Vec<Range<u64>> {
    let targets = match elf.arch {
        Arch::X86_64 => jumps(data, whole),
        Arch::Arm64 => branches(data, whole),
    };
    let code = elf.segments.iter().filter(|segment| segment.executable);
    let code: Vec<Range<u64>> =
        code.map(|segment| segment.file_offset..segment.file_offset + segment.file_size).collect();
    let mut targets: BTreeMap<u64, usize> = targets
        .into_iter()
        .filter(|(target, _)| !whole.contains(target) && code.iter().any(|code| code.contains(target)))
        .collect();
    let mut found = Vec::new();
    for _ in 0..MAX_LOOKUPS {
        // Where most targets are near each other is the best place to look.
        let near =
            |at: u64| targets.range(at..at.saturating_add(4096)).map(|(_, count)| count).sum::<usize>();
        let Some(best) = targets.keys().copied().max_by_key(|&at| near(at)) else { break };
        if near(best) < JUMPS_MIN {
            break;
        }
        let range = lightfoot_unwind::function_range(data, best).ok().flatten();
        let range = range.unwrap_or(best..best.saturating_add(1));
        let inside: usize =
            targets.range(range.start.saturating_add(1)..range.end).map(|(_, count)| count).sum();
        if inside >= JUMPS_MIN {
            found.push(range.clone());
        }
        targets.retain(|target, _| !range.contains(target));
    }
    found
}

/// Targets of what may be jumps of x86-64 with 32-bit distances: E9, 0F 80 to 0F 8F.
fn jumps(data: &dyn ReadAt, whole: &Range<u64>) -> BTreeMap<u64, usize> {
    let mut targets = BTreeMap::new();
    for (at, bytes) in windows(data, whole).iter().flat_map(|(start, bytes)| {
        bytes.windows(6).enumerate().map(move |(at, bytes)| (start + at as u64, bytes))
    }) {
        let (length, distance) = match *bytes {
            [0xe9, a, b, c, d, _] => (5, [a, b, c, d]),
            [0x0f, 0x80..=0x8f, a, b, c, d] => (6, [a, b, c, d]),
            _ => continue,
        };
        let target = (at + length).wrapping_add_signed(i64::from(i32::from_le_bytes(distance)));
        *targets.entry(target).or_default() += 1;
    }
    targets
}

/// Targets of branches of arm64: B, B.cond, CBZ and CBNZ, TBZ and TBNZ.
fn branches(data: &dyn ReadAt, whole: &Range<u64>) -> BTreeMap<u64, usize> {
    let mut targets = BTreeMap::new();
    for (at, word) in windows(data, whole).iter().flat_map(|(start, bytes)| {
        let words = bytes.chunks_exact(4).enumerate();
        words.map(move |(at, word)| {
            (start + at as u64 * 4, u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        })
    }) {
        // The distance in instructions, as a signed number of so many bits from bit `low` on.
        let (low, bits) = match word {
            _ if word & 0xfc00_0000 == 0x1400_0000 => (0, 26),
            _ if word & 0xff00_0010 == 0x5400_0000 || word & 0x7e00_0000 == 0x3400_0000 => (5, 19),
            _ if word & 0x7e00_0000 == 0x3600_0000 => (5, 14),
            _ => continue,
        };
        let distance = i64::from((word << (32 - low - bits)) as i32 >> (32 - bits)) * 4;
        *targets.entry(at.wrapping_add_signed(distance)).or_default() += 1;
    }
    targets
}

/// The code, in one piece.
fn windows(data: &dyn ReadAt, whole: &Range<u64>) -> Option<(u64, Vec<u8>)> {
    let length = whole.end.checked_sub(whole.start).filter(|&length| length <= MAX_CODE_BYTES)?;
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    data.read_at(whole.start, &mut bytes)?;
    Some((whole.start, bytes))
}
