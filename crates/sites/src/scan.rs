//! Who jumps to the first bytes of a function? Asked of the whole file, once for many functions.
//!
//! No instruction is decoded: wherever the bytes of a direct jump or call could begin, the place that it would lead to is looked up. What is
//! found so is all there is and, once in about a billion bytes, something that is no jump: then a probe stays at the first byte for nothing.

use lightfoot_unwind::ReadAt;

/// Bytes read at once.
const CHUNK: u64 = 1 << 20;
/// Bytes of the longest direct jump.
const LONGEST: u64 = 6;

/// The bytes of a function behind its first one, up to and with the place that a probe would move to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    /// Address of the function.
    pub function: u64,
    /// Address of the place.
    pub place: u64,
    /// The lowest address in the window that something jumps to.
    pub target: Option<u64>,
}

/// Looks through `parts` (address, file offset, bytes) for jumps into the windows, which are sorted by address and do not overlap.
/// `false` if the file could not be read.
pub(crate) fn jumps(
    data: &dyn ReadAt,
    parts: impl Iterator<Item = (u64, u64, u64)>,
    windows: &mut [Window],
) -> bool {
    let (Some(first), Some(last)) =
        (windows.first().map(|window| window.function), windows.last().map(|window| window.place))
    else {
        return true;
    };
    let mut note = |target: u64| {
        if target <= first || target > last {
            return;
        }
        let at = windows.partition_point(|window| window.function < target);
        if let Some(window) =
            at.checked_sub(1).and_then(|at| windows.get_mut(at)).filter(|window| target <= window.place)
        {
            window.target = Some(window.target.map_or(target, |lowest| lowest.min(target)));
        }
    };
    let mut bytes = Vec::new();
    for (address, offset, size) in parts {
        let mut done = 0;
        while done < size {
            // Jumps may begin in one chunk and end in the next.
            let length = (size - done).min(CHUNK + LONGEST);
            bytes.resize(length as usize, 0);
            if data.read_at(offset + done, &mut bytes).is_none() {
                return false;
            }
            for (at, pair) in bytes.windows(2).enumerate().take(CHUNK as usize) {
                let skipped = match pair {
                    [0xe8 | 0xe9, _] => 1,
                    [0x0f, 0x80..=0x8f] => 2,
                    _ => continue,
                };
                let Some(distance) = bytes[at + skipped..].first_chunk() else { continue };
                let next = address.wrapping_add(done + (at + skipped + 4) as u64);
                note(next.wrapping_add_signed(i64::from(i32::from_le_bytes(*distance))));
            }
            done += CHUNK;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &[u8], address: u64) -> Vec<Option<u64>> {
        let mut windows = [(0x100, 0x104), (0x200, 0x208)].map(|(function, place)| Window {
            function,
            place,
            target: None,
        });
        assert!(jumps(&code, [(address, 0, code.len() as u64)].into_iter(), &mut windows));
        windows.iter().map(|window| window.target).collect()
    }

    #[test]
    fn jumps_into_windows() {
        assert_eq!(found(&[0xe9, 0xfb, 0, 0, 0], 0), [None, None], "to the first byte");
        assert_eq!(found(&[0xe9, 0xff, 0, 0, 0], 0), [Some(0x104), None]);
        assert_eq!(found(&[0xe9, 0x00, 1, 0, 0], 0), [None, None], "behind the place");
        assert_eq!(found(&[0x0f, 0x84, 0x02, 0xff, 0xff, 0xff], 0x300), [None, Some(0x208)]);
        assert_eq!(found(&[0xe8, 0x02, 0xff, 0xff, 0xff], 0x300), [None, Some(0x207)], "a call");
        assert_eq!(found(&[0xe9, 0xff, 0], 0), [None, None], "cut");
    }

    #[test]
    fn a_jump_across_two_chunks() {
        let mut code = vec![0; CHUNK as usize + 16];
        let at = CHUNK as usize - 2;
        code[at] = 0xe9;
        let next = at as i64 + 5;
        code[at + 1..at + 5].copy_from_slice(&((0x102 - next) as i32).to_le_bytes());
        assert_eq!(found(&code, 0)[0], Some(0x102));
    }
}
