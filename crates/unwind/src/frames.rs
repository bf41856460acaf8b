//! The entries of `.eh_frame` and `.debug_frame`: which functions there are, and the instructions for each.
//!
//! Sources: Linux Standard Base Core 5.0, section 10.6 (`.eh_frame`); DWARF 5, section 6.4.1.

use crate::Arch;
use crate::bytes::{Cursor, ReadAt, Window};
use crate::interpreter::Common;
use std::collections::HashMap;
use std::rc::Rc;

/// Where the entries lie.
pub(crate) struct Source<'a> {
    pub data: &'a dyn ReadAt,
    /// File offset of the section.
    pub offset: u64,
    pub size: u64,
    /// Linker's address of the section: what pc-relative pointers count from.
    pub address: u64,
    pub format: Format,
    pub arch: Arch,
    pub track_bx: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    EhFrame {
        /// Ends at an entry of length zero: the size is not that of the section.
        until_zero: bool,
    },
    DebugFrame,
}

/// One function's unwind information.
pub(crate) struct Function<'a> {
    /// Linker's addresses.
    pub start: u64,
    pub end: u64,
    pub common: &'a Common,
    pub instructions: &'a [u8],
}

/// What could not be used.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Trouble {
    /// Entries that contradict the format.
    pub malformed: u64,
}

/// A common information entry, as far as functions need it.
struct Cie {
    common: Common,
    pointer_encoding: u8,
    /// Functions have augmentation data, preceded by its length.
    has_data: bool,
}

/// A common entry has tens of bytes.
const COMMON_MAX_BYTES: usize = 1 << 10;
/// Common entries kept; a linked file has tens.
const COMMON_KEPT: usize = 1024;
/// Bytes of common entries read at most, one after the other: a hostile file could make each function ask for another one.
const COMMON_BYTES_MAX: u64 = 64 << 20;
/// Functions gone through at most: ten times what the largest programs have.
const ENTRIES_MAX: u64 = 16 << 20;

struct Header {
    /// Of the bytes after the length.
    content: u64,
    length: u64,
    /// Number in place of the CIE pointer, its width, and where it lies.
    id: u64,
    id_bytes: u64,
    is_common: bool,
}

fn header(window: &mut Window<'_>, at: u64, format: Format) -> Option<Header> {
    let mut length = u64::from(window.u32(at)?);
    let mut content = at.checked_add(4)?;
    let wide = length == 0xffff_ffff;
    if wide {
        length = window.u64(content)?;
        content = content.checked_add(8)?;
    }
    if length == 0 {
        return Some(Header { content, length, id: 0, id_bytes: 0, is_common: false });
    }
    let (id, id_bytes) = if wide && format == Format::DebugFrame {
        (window.u64(content)?, 8)
    } else {
        (u64::from(window.u32(content)?), 4)
    };
    let is_common = match format {
        Format::EhFrame { .. } => id == 0,
        Format::DebugFrame => id == if id_bytes == 8 { u64::MAX } else { 0xffff_ffff },
    };
    (length >= id_bytes).then_some(Header { content, length, id, id_bytes, is_common })
}

/// Goes through all entries and calls `found` for each function, in the order of the file, until it returns false.
pub(crate) fn functions(source: &Source<'_>, found: &mut dyn FnMut(&Function<'_>) -> bool) -> Trouble {
    let mut trouble = Trouble::default();
    let Some(end) = source.offset.checked_add(source.size) else { return trouble };
    let mut window = Window::new(source.data, end);
    // Common entries may lie anywhere: reading them must not move the window.
    let mut other = Window::with_capacity(source.data, end, COMMON_MAX_BYTES);
    let mut commons: HashMap<u64, Option<Rc<Cie>>> = HashMap::new();
    // Most functions have the one before's.
    let mut last: Option<(u64, Option<Rc<Cie>>)> = None;
    let mut common_bytes_left = COMMON_BYTES_MAX;
    let mut at = source.offset;
    for _ in 0..ENTRIES_MAX {
        if at >= end {
            break;
        }
        let Some(header) = header(&mut window, at, source.format) else {
            trouble.malformed += 1;
            break;
        };
        if header.length == 0 {
            if source.format == (Format::EhFrame { until_zero: true }) {
                break;
            }
            at = header.content;
            continue;
        }
        let Some(next) = header.content.checked_add(header.length) else {
            trouble.malformed += 1;
            break;
        };
        if !header.is_common {
            let common_at = match source.format {
                Format::EhFrame { .. } => header.content.checked_sub(header.id),
                Format::DebugFrame => source.offset.checked_add(header.id),
            };
            if common_at != last.as_ref().map(|(at, _)| *at) {
                if commons.len() >= COMMON_KEPT {
                    commons.clear();
                }
                last = common_at.filter(|&at| at >= source.offset).map(|common_at| {
                    let read = || {
                        common_bytes_left = common_bytes_left.checked_sub(COMMON_MAX_BYTES as u64)?;
                        read_common(source, &mut other, common_at).map(Rc::new)
                    };
                    (common_at, commons.entry(common_at).or_insert_with(read).clone())
                });
            }
            let used = last.as_ref().and_then(|(_, cie)| cie.as_deref());
            let body = header.content + header.id_bytes;
            let bytes = usize::try_from(header.length - header.id_bytes).ok();
            let function = used.and_then(|cie| {
                let bytes = window.get(body, bytes?)?;
                let address = source.address.wrapping_add(body.wrapping_sub(source.offset));
                function(cie, bytes, address)
            });
            match function {
                Some(function) if !found(&function) => break,
                Some(_) => {}
                None => trouble.malformed += 1,
            }
        }
        at = next;
    }
    trouble
}

/// `bytes` after the CIE pointer; `address` is the linker's address of the first of them.
fn function<'a>(cie: &'a Cie, bytes: &'a [u8], address: u64) -> Option<Function<'a>> {
    let mut at = Cursor::new(bytes);
    let start = pointer(&mut at, cie.pointer_encoding, address)?;
    // The length is written like the address, but is never relative.
    let length = pointer(&mut at, cie.pointer_encoding & 0x0f, 0)?;
    if cie.has_data {
        let length = at.uleb()?;
        at.take(usize::try_from(length).ok()?)?;
    }
    let end = start.checked_add(length)?;
    Some(Function { start, end, common: &cie.common, instructions: at.rest() })
}

fn read_common(source: &Source<'_>, window: &mut Window<'_>, at: u64) -> Option<Cie> {
    let header = header(window, at, source.format)?;
    if !header.is_common {
        return None;
    }
    let length = usize::try_from(header.length - header.id_bytes).ok()?;
    let body = header.content + header.id_bytes;
    let bytes = window.get(body, length)?;
    let mut at = Cursor::new(bytes);
    let version = at.u8()?;
    if !matches!(version, 1 | 3 | 4) {
        return None;
    }
    let augmentation = at.until_zero()?;
    if augmentation.starts_with(b"eh") {
        at.u64()?;
    }
    if version == 4 {
        let (address_size, segment_size) = (at.u8()?, at.u8()?);
        if address_size != 8 || segment_size != 0 {
            return None;
        }
    }
    let code_alignment = at.uleb()?;
    let data_alignment = at.sleb()?;
    let ra_register = if version == 1 { u64::from(at.u8()?) } else { at.uleb()? };
    let mut cie = Cie {
        common: Common::new(source.arch, code_alignment, data_alignment, ra_register),
        pointer_encoding: 0,
        has_data: augmentation.starts_with(b"z"),
    };
    if cie.has_data {
        let length = at.uleb()?;
        let mut data = Cursor::new(at.take(usize::try_from(length).ok()?)?);
        for letter in &augmentation[1..] {
            match letter {
                b'L' => {
                    data.u8()?;
                }
                b'P' => {
                    let encoding = data.u8()?;
                    // Its value does not matter, its length does.
                    pointer(&mut data, encoding & 0x0f, 0)?;
                }
                b'R' => cie.pointer_encoding = data.u8()?,
                b'S' => cie.common.signal_frame = true,
                // B: arm64, return addresses are signed with key B. G: arm64, memory tagging.
                b'B' | b'G' => {}
                // What follows is unknown, but its length is not.
                _ => break,
            }
        }
    } else if !augmentation.is_empty() && !augmentation.starts_with(b"eh") {
        return None;
    }
    cie.common.track_bx = source.track_bx;
    cie.common.address_bytes = match cie.pointer_encoding {
        // Absolute.
        0x00 | 0x04 | 0x0c => 8,
        0x03 | 0x0b => 4,
        _ => 0,
    };
    cie.common.run_initial(at.rest())?;
    Some(cie)
}

/// A pointer in one of the encodings `DW_EH_PE_*`; `address` is the linker's address of the bytes that `at` goes through.
pub(crate) fn pointer(at: &mut Cursor<'_>, encoding: u8, address: u64) -> Option<u64> {
    // DW_EH_PE_omit
    if encoding == 0xff {
        return None;
    }
    let place = address.wrapping_add(at.position() as u64);
    let value = match encoding & 0x0f {
        0x00 | 0x04 | 0x0c | 0x08 => at.u64()?,
        0x01 => at.uleb()?,
        0x02 => u64::from(at.u16()?),
        0x03 => u64::from(at.u32()?),
        0x09 => at.sleb()? as u64,
        0x0a => i64::from(at.u16()? as i16) as u64,
        0x0b => i64::from(at.u32()? as i32) as u64,
        _ => return None,
    };
    match encoding & 0xf0 {
        0x00 => Some(value),
        // DW_EH_PE_pcrel
        0x10 => Some(place.wrapping_add(value)),
        // Relative to text, data, function, aligned, indirect: nobody writes these for functions.
        _ => None,
    }
}
