//! Python strings in the memory of a process.

use super::offsets::Offset;
use crate::Interpreter;
use crate::memory::{Reader, u32_at, u64_at};

/// Characters of a name that are kept.
const MAX_CHARS: u64 = 1024;

/// The string object at `address`; what a terminal would obey is replaced. None if there is no string, or it is empty.
pub fn read(reader: &Reader<'_>, interpreter: &Interpreter, address: u64) -> Option<String> {
    let field = |offset: Offset| interpreter.offsets[offset as usize];
    let head: [u8; 48] = reader.array(address)?;
    let length = u64_at(&head, field(Offset::TextLength) as usize);
    let state = u32_at(&head, field(Offset::TextState) as usize) >> (field(Offset::TextKindShift) & 31);
    let (width, compact, ascii) = (u64::from(state & 7), state & 8 != 0, state & 16 != 0);
    // A legacy string keeps its characters elsewhere; names in code are never of that kind.
    if !compact || length == 0 || length > 1 << 24 || !matches!(width, 1 | 2 | 4) || (ascii && width != 1) {
        return None;
    }
    let header = field(if ascii { Offset::TextAsciiHeader } else { Offset::TextCompactHeader });
    let bytes = length.min(MAX_CHARS) * width;
    let bytes = reader.bytes(address.checked_add(u64::from(header))?, bytes, MAX_CHARS as usize * 4)?;
    let characters = bytes.chunks_exact(width as usize).map(|character| {
        let number = character.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
        // Lone surrogates (bytes of file names that are no text) and control characters.
        char::from_u32(number).filter(|character| !character.is_control()).unwrap_or('\u{fffd}')
    });
    Some(characters.collect())
}
