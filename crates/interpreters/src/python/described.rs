//! How CPython 3.13 and later describe themselves: `_Py_DebugOffsets`, `Include/internal/pycore_debug_offsets.h` of CPython.

use super::offsets::{Kind, LineFormat, Offset};
use crate::{OFFSETS, Version};

/// The words of the description, and where its parts begin in this version. Each part begins with the size of what it describes.
pub struct Described<'a> {
    words: &'a [u64],
    parts: &'static Parts,
    minor: u8,
}

/// Index of each part's first word.
struct Parts {
    runtime: usize,
    interpreter: usize,
    thread: usize,
    frame: usize,
    code: usize,
    object: usize,
    bytes: usize,
    text: usize,
    collector: usize,
    /// Place in the part on interpreters.
    collector_in_interpreter: usize,
    /// Place of the thread's own number in the part on threads; the kernel's number comes next, the status two places later.
    id_in_thread: usize,
}

const PARTS_3_13: Parts = Parts {
    runtime: 3,
    interpreter: 6,
    thread: 19,
    frame: 28,
    code: 34,
    object: 44,
    bytes: 64,
    text: 67,
    collector: 71,
    collector_in_interpreter: 4,
    id_in_thread: 5,
};
const PARTS_3_14: Parts = Parts {
    runtime: 3,
    interpreter: 6,
    thread: 22,
    frame: 31,
    code: 39,
    object: 50,
    bytes: 74,
    text: 77,
    collector: 81,
    collector_in_interpreter: 5,
    id_in_thread: 5,
};
const PARTS_3_15: Parts = Parts {
    runtime: 3,
    interpreter: 6,
    thread: 22,
    frame: 39,
    code: 47,
    object: 58,
    bytes: 86,
    text: 89,
    collector: 94,
    collector_in_interpreter: 5,
    id_in_thread: 8,
};

impl<'a> Described<'a> {
    /// None for versions whose description is not known.
    pub fn new(words: &'a [u64], version: Version) -> Option<Described<'a>> {
        let parts = match version.minor {
            13 => &PARTS_3_13,
            14 => &PARTS_3_14,
            15 => &PARTS_3_15,
            _ => return None,
        };
        (words.len() > parts.collector + 1).then_some(Described { words, parts, minor: version.minor })
    }

    /// Whether it is a build without the global lock.
    fn free_threaded(&self) -> bool {
        self.words[2] != 0
    }

    /// All offsets.
    ///
    /// # Errors
    /// The description cannot be true.
    pub fn offsets(&self) -> Result<[u32; OFFSETS], String> {
        let parts = self.parts;
        let mut offsets = [0; OFFSETS];
        let mut set = |offset: Offset, value: u64| match u32::try_from(value) {
            Ok(value) => {
                offsets[offset as usize] = value;
                Ok(())
            }
            Err(_) => Err("an offset in its description of itself is too large".to_owned()),
        };
        let word = |part: usize, index: usize| self.words.get(part + index).copied().unwrap_or(u64::MAX);
        // In a part, the size comes first.
        let fields = [
            (Offset::RuntimeInterpretersHead, parts.runtime, 2),
            (Offset::InterpreterNext, parts.interpreter, 2),
            (Offset::InterpreterThreadsHead, parts.interpreter, 3),
            (Offset::ThreadPrevious, parts.thread, 1),
            (Offset::ThreadNext, parts.thread, 2),
            (Offset::ThreadInterpreter, parts.thread, 3),
            (Offset::ThreadFrame, parts.thread, 4),
            (Offset::ThreadId, parts.thread, parts.id_in_thread),
            (Offset::ThreadNativeId, parts.thread, parts.id_in_thread + 1),
            (Offset::ThreadStatus, parts.thread, parts.id_in_thread + 3),
            (Offset::FramePrevious, parts.frame, 1),
            (Offset::FrameCode, parts.frame, 2),
            (Offset::FrameInstruction, parts.frame, 3),
            (Offset::FrameOwner, parts.frame, 5),
            (Offset::CodeFilename, parts.code, 1),
            (Offset::CodeName, parts.code, 2),
            (Offset::CodeQualname, parts.code, 3),
            (Offset::CodeLines, parts.code, 4),
            (Offset::CodeFirstLine, parts.code, 5),
            (Offset::CodeInstructions, parts.code, 9),
            (Offset::ObjectType, parts.object, 1),
            (Offset::BytesLength, parts.bytes, 1),
            (Offset::BytesData, parts.bytes, 2),
            (Offset::TextState, parts.text, 1),
            (Offset::TextLength, parts.text, 2),
            (Offset::TextAsciiHeader, parts.text, 3),
        ];
        for (offset, part, index) in fields {
            set(offset, word(part, index))?;
        }
        if self.minor >= 14 {
            set(Offset::CodeLocalCopies, word(parts.code, 10))?;
        }
        // Before 3.15 it does not say so: a string that is not ASCII has two more words before its characters,
        // Include/cpython/unicodeobject.h.
        let compact_header = match self.minor {
            15.. => word(parts.text, 4),
            _ => word(parts.text, 3).saturating_add(16),
        };
        set(Offset::TextCompactHeader, compact_header)?;
        let collector = word(parts.interpreter, parts.collector_in_interpreter);
        set(Offset::Collecting, collector.saturating_add(word(parts.collector, 1)))?;
        // What follows is not in the description: Include/internal/pycore_frame.h, Include/cpython/{pystate,unicodeobject}.h.
        set(Offset::OwnerStack, 3)?;
        set(Offset::StatusActiveBit, 4)?;
        set(Offset::TextKindShift, self.kind_shift())?;
        set(Offset::Kind, Kind::Direct as u64)?;
        set(Offset::LineFormat, LineFormat::Locations as u64)?;
        Ok(offsets)
    }

    /// Bits before the kind of characters in a string's state: two of `interned`, which is a byte without the global lock from 3.14 on.
    fn kind_shift(&self) -> u64 {
        if self.minor >= 14 && self.free_threaded() { 8 } else { 2 }
    }
}
