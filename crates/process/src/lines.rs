//! Lines of a stream in bounded memory.

use std::io::{self, Read};
use std::ops::ControlFlow;

/// Longest line that is passed on, in bytes. A path has at most 4,095 bytes; escaped four times as many.
const LINE_BYTES: usize = 32 << 10;
/// Bytes read at once. The kernel hands out at most a page of a `/proc` file at once anyway.
const CHUNK_BYTES: usize = 32 << 10;

/// Calls `visit` for each line of `reader` (without its end), until the end of the stream, `limit_bytes`, or
/// [`ControlFlow::Break`]. Memory: at most 64 KiB whatever the stream holds; a line longer than 32 KiB is skipped. A
/// last line without an end is visited.
///
/// Returns the number of lines skipped and whether the stream was cut at `limit_bytes`.
///
/// # Errors
/// What reading returned; interrupted reads are repeated.
pub fn for_each_line(
    reader: &mut dyn Read,
    limit_bytes: u64,
    visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> io::Result<(u64, bool)> {
    let mut buffer = vec![0u8; CHUNK_BYTES + LINE_BYTES];
    let mut kept = 0;
    let mut total = 0u64;
    let mut skipped = 0;
    let mut skipping = false;
    loop {
        let room = (buffer.len() - kept).min(CHUNK_BYTES);
        let read = match reader.read(&mut buffer[kept..kept + room]) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if read == 0 {
            if kept > 0 && !skipping {
                let _ = visit(&buffer[..kept]);
            }
            return Ok((skipped, false));
        }
        total += read as u64;
        let filled = kept + read;
        let mut from = 0;
        // Only the new bytes can hold a line end.
        let mut search = kept;
        while let Some(at) = buffer[search..filled].iter().position(|&byte| byte == b'\n') {
            let end = search + at;
            if !std::mem::take(&mut skipping) && visit(&buffer[from..end]).is_break() {
                return Ok((skipped, false));
            }
            from = end + 1;
            search = from;
        }
        if total >= limit_bytes {
            return Ok((skipped, true));
        }
        if skipping || filled - from > LINE_BYTES {
            skipped += u64::from(!skipping);
            skipping = true;
            kept = 0;
        } else {
            buffer.copy_within(from..filled, 0);
            kept = filled - from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8], limit: u64) -> (Vec<Vec<u8>>, u64, bool) {
        let mut seen = Vec::new();
        let (skipped, cut) = for_each_line(&mut &*text, limit, &mut |line| {
            seen.push(line.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
        (seen, skipped, cut)
    }

    #[test]
    fn lines_of_any_length_in_bounded_memory() {
        assert_eq!(lines(b"a\n\nbc", u64::MAX).0, [&b"a"[..], b"", b"bc"]);
        let mut long = vec![b'x'; 1 << 20];
        long.extend(b"\nafter\n");
        let (seen, skipped, _) = lines(&long, u64::MAX);
        assert_eq!((seen, skipped), (vec![b"after".to_vec()], 1));
        let exact = [vec![b'y'; LINE_BYTES], b"\nz\n".to_vec()].concat();
        assert_eq!(lines(&exact, u64::MAX).0.len(), 2);
    }

    #[test]
    fn stops_at_the_limit() {
        let text = b"line\n".repeat(100_000);
        let (seen, _, cut) = lines(&text, 1000);
        assert!(cut && seen.len() * 5 <= CHUNK_BYTES + 1000);
    }
}
