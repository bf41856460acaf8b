//! Recognising CPython in an ELF file.

use std::ops::Range;

use lightfoot_unwind::{Elf, ReadAt};

use super::offsets::{Kind, LineFormat, Offset, SYMBOL_CODE_TYPE, SYMBOL_RUNTIME};
use crate::symbols::{self, Symbol, Table};
use crate::{Detected, Interpreter, Language, Layout, Layouts, OFFSETS, SYMBOLS, Version};

const RUNTIME: &str = "_PyRuntime";
const CODE_TYPE: &str = "PyCode_Type";
/// `.cold` parts are functions of their own, with names that begin so.
const LOOP: &str = "_PyEval_EvalFrameDefault*";
const VERSION: &str = "Py_Version";

/// Whether an object is CPython. See [`crate::detect`].
pub fn detect(data: &dyn ReadAt, path: &str, layouts: &Layouts) -> Detected {
    let wanted = [RUNTIME, CODE_TYPE, LOOP, VERSION];
    let mut found = symbols::find(data, Table::Dynamic, &wanted);
    let file = path.rsplit('/').next().unwrap_or_default();
    // A program that exports nothing may still hold an interpreter; only names tell which ones to look at closely.
    if named(&found, RUNTIME).is_none() && !file.contains("python") {
        return Detected::Nothing;
    }
    for symbol in symbols::find(data, Table::Full, &wanted) {
        if !found.contains(&symbol) {
            found.push(symbol);
        }
    }
    if named(&found, RUNTIME).is_none()
        || !found.iter().any(|symbol| symbol.name.starts_with(LOOP.trim_end_matches('*')))
    {
        return Detected::Nothing;
    }
    match interpreter(data, file, layouts, &found) {
        Ok(interpreter) => Detected::Interpreter(Box::new(interpreter)),
        Err(reason) => Detected::Unsupported { language: Language::Python, reason },
    }
}

fn named<'a>(symbols: &'a [Symbol], name: &str) -> Option<&'a Symbol> {
    symbols.iter().find(|symbol| symbol.name == name)
}

fn interpreter(
    data: &dyn ReadAt,
    file: &str,
    layouts: &Layouts,
    found: &[Symbol],
) -> Result<Interpreter, String> {
    let elf = Elf::parse(data).map_err(|error| error.to_string())?;
    let runtime = named(found, RUNTIME).ok_or("no _PyRuntime")?;
    let code_type = named(found, CODE_TYPE).ok_or("no PyCode_Type")?;
    let version = version(data, &elf, file, found).ok_or("its version is not to be found")?;
    if version.major != 3 || version.minor < 8 {
        return Err(format!("Python {version} is too old (3.8 and later are known)"));
    }
    let mut offsets = if version.minor >= 13 {
        described(data, &elf, runtime, version)?
    } else {
        let layout = layouts.find("python", version).ok_or_else(|| {
            format!("the layout of Python {version} is not known: cargo xtask interpreter-offsets python can tell it")
        })?;
        from_layout(layout, version)?
    };
    // Fields at 0 stand for "not there" where that is possible, and a frame is read in one piece.
    let last = [Offset::FrameCode, Offset::FramePrevious, Offset::FrameInstruction, Offset::FrameOwner]
        .map(|offset| offsets[offset as usize]);
    let bytes = last.into_iter().max().unwrap_or_default().saturating_add(8);
    if bytes > MAX_FRAME_BYTES || offsets.iter().any(|&offset| offset > MAX_OFFSET) {
        return Err(format!("Python {version} describes itself in a way that cannot be true"));
    }
    offsets[Offset::FrameBytes as usize] = bytes;
    let mut symbols = [0; SYMBOLS];
    symbols[SYMBOL_RUNTIME] = symbols::relative(&elf, runtime.address).ok_or("no code")?;
    symbols[SYMBOL_CODE_TYPE] = symbols::relative(&elf, code_type.address).ok_or("no code")?;
    let loop_code = loop_code(data, &elf, found);
    if loop_code.is_empty() {
        return Err("the code of its loop is not to be found".to_owned());
    }
    Ok(Interpreter { language: Language::Python, version, symbols, offsets, loop_code })
}

/// What the kernel side can read of a frame in one piece. Keep in step with `bpf/python.h`.
const MAX_FRAME_BYTES: u32 = 128;
/// No field lies further from the begin of its structure: the runtime's state has 0.5 MB at most.
const MAX_OFFSET: u32 = 16 << 20;

/// The loop and its cold parts.
fn loop_code(data: &dyn ReadAt, elf: &Elf, found: &[Symbol]) -> Vec<Range<u64>> {
    let parts =
        found.iter().filter(|symbol| symbol.function && symbol.name.starts_with(LOOP.trim_end_matches('*')));
    let mut ranges: Vec<Range<u64>> = parts.filter_map(|symbol| symbols::code_range(elf, symbol)).collect();
    ranges.sort_by_key(|range| (range.start, range.end));
    ranges.dedup();
    if let [whole] = ranges.as_slice() {
        let cold = super::cold::parts(data, elf, whole);
        ranges.extend(cold);
    }
    ranges
}

/// From `Py_Version` (3.11 and later), else from the text of the version, which must agree with the file's name if that has one.
fn version(data: &dyn ReadAt, elf: &Elf, file: &str, found: &[Symbol]) -> Option<Version> {
    if let Some(symbol) = named(found, VERSION) {
        let mut bytes = [0; 8];
        symbols::read(data, elf, symbol.address, &mut bytes)?;
        return Some(from_hex(u64::from_le_bytes(bytes)));
    }
    let named = file.find("python3.").map(|at| &file[at + "python3.".len()..]);
    let named = named.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u8>().ok());
    let texts = version_texts(data, elf);
    let mut fitting = texts.iter().filter(|version| named.is_none_or(|minor| version.minor == minor));
    fitting
        .next()
        .copied()
        .or_else(|| Some(Version { major: 3, minor: named.filter(|&minor| minor < 8)?, patch: 0 }))
}

fn from_hex(number: u64) -> Version {
    Version { major: (number >> 24) as u8, minor: (number >> 16) as u8, patch: (number >> 8) as u8 }
}

/// Texts that are or end in a version from 3.8 to 3.10: a linker lets the version be the tail of another text.
fn version_texts(data: &dyn ReadAt, elf: &Elf) -> Vec<Version> {
    const WINDOW: u64 = 256 << 10;
    const TEXT: u64 = 16;
    let mut found = Vec::new();
    for segment in elf.segments.iter().filter(|segment| !segment.executable) {
        let end = segment.file_offset.saturating_add(segment.file_size).min(data.len());
        let mut start = segment.file_offset;
        while start < end {
            let length = (end - start).min(WINDOW);
            let mut bytes = vec![0; length as usize];
            if data.read_at(start, &mut bytes).is_none() {
                break;
            }
            let starts = bytes
                .windows(3)
                .enumerate()
                .filter(|(_, text)| text[1..] == *b"3." && !b".0123456789".contains(&text[0]));
            for (at, _) in starts {
                if let Some(version) = version_text(&bytes[at + 1..])
                    && !found.contains(&version)
                    && found.len() < 16
                {
                    found.push(version);
                }
            }
            if length < WINDOW {
                break;
            }
            start += length - TEXT;
        }
    }
    found
}

/// `3.9.18` or `3.9.18+` up to its NUL.
fn version_text(bytes: &[u8]) -> Option<Version> {
    let end = bytes.iter().take(12).position(|&byte| byte == 0)?;
    let mut parts = str::from_utf8(&bytes[..end]).ok()?.trim_end_matches('+').split('.');
    let (major, minor, patch) = (parts.next()?, parts.next()?, parts.next()?);
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let version = Version { major: number(major)?, minor: number(minor)?, patch: number(patch)? };
    (parts.next().is_none() && version.major == 3 && (8..=10).contains(&version.minor)).then_some(version)
}

/// The offsets of a version from its layout.
pub(crate) fn from_layout(layout: &Layout, version: Version) -> Result<[u32; OFFSETS], String> {
    let minor = version.minor;
    let kind = match minor {
        ..=10 => Kind::Objects,
        11 => Kind::Entry,
        _ => Kind::Shim,
    };
    let format = match minor {
        ..=9 => LineFormat::Notes,
        10 => LineFormat::Ranges,
        _ => LineFormat::Locations,
    };
    let frame = if minor <= 10 { "PyFrameObject" } else { "_PyInterpreterFrame" };
    let fields: &[(Offset, &str)] = &[
        (Offset::RuntimeInterpretersHead, "_PyRuntimeState.interpreters.head"),
        (Offset::InterpreterNext, "PyInterpreterState.next"),
        (Offset::ThreadPrevious, "PyThreadState.prev"),
        (Offset::ThreadNext, "PyThreadState.next"),
        (Offset::ThreadInterpreter, "PyThreadState.interp"),
        (Offset::ThreadId, "PyThreadState.thread_id"),
        (Offset::ObjectType, "PyObject.ob_type"),
        (Offset::CodeFilename, "PyCodeObject.co_filename"),
        (Offset::CodeName, "PyCodeObject.co_name"),
        (Offset::CodeFirstLine, "PyCodeObject.co_firstlineno"),
        (Offset::TextLength, "PyASCIIObject.length"),
        (Offset::TextState, "PyASCIIObject.state"),
        (Offset::TextAsciiHeader, "sizeof PyASCIIObject"),
        (Offset::TextCompactHeader, "sizeof PyCompactUnicodeObject"),
        (Offset::TextKindShift, "PyASCIIObject.state.kind bit"),
        (Offset::BytesLength, "PyBytesObject.ob_size"),
        (Offset::BytesData, "PyBytesObject.ob_sval"),
        (
            Offset::InterpreterThreadsHead,
            if minor <= 10 { "PyInterpreterState.tstate_head" } else { "PyInterpreterState.threads.head" },
        ),
        (Offset::ThreadFrame, if minor <= 10 { "PyThreadState.frame" } else { "PyThreadState.cframe" }),
        (Offset::CodeLines, if minor <= 9 { "PyCodeObject.co_lnotab" } else { "PyCodeObject.co_linetable" }),
    ];
    let of_frame: &[(Offset, &str)] = match kind {
        Kind::Objects => &[
            (Offset::FrameCode, "f_code"),
            (Offset::FramePrevious, "f_back"),
            (Offset::FrameInstruction, "f_lasti"),
        ],
        Kind::Entry => &[
            (Offset::FrameCode, "f_code"),
            (Offset::FramePrevious, "previous"),
            (Offset::FrameInstruction, "prev_instr"),
            (Offset::FrameOwner, "is_entry"),
        ],
        _ => &[
            (Offset::FrameCode, "f_code"),
            (Offset::FramePrevious, "previous"),
            (Offset::FrameInstruction, "prev_instr"),
            (Offset::FrameOwner, "owner"),
        ],
    };
    let later: &[(Offset, &str)] = &[
        (Offset::CFrameFrame, "_PyCFrame.current_frame"),
        (Offset::CFramePrevious, "_PyCFrame.previous"),
        (Offset::CodeQualname, "PyCodeObject.co_qualname"),
        (Offset::CodeInstructions, "PyCodeObject.co_code_adaptive"),
        (Offset::ThreadNativeId, "PyThreadState.native_thread_id"),
    ];
    let mut offsets = [0; OFFSETS];
    let mut set = |offset: Offset, name: &str| match layout.get(name) {
        Some(value) => {
            offsets[offset as usize] = value;
            Ok(())
        }
        None => Err(format!("the layout of Python {} does not have {name}", layout.version)),
    };
    for (offset, name) in fields {
        set(*offset, name)?;
    }
    for (offset, name) in of_frame {
        set(*offset, &format!("{frame}.{name}"))?;
    }
    if minor >= 11 {
        for (offset, name) in later {
            set(*offset, name)?;
        }
    }
    if minor <= 11 {
        set(Offset::RuntimeThreadCurrent, "_PyRuntimeState.gilstate.tstate_current")?;
    }
    if minor == 12 {
        set(Offset::ThreadStatus, "PyThreadState._status")?;
        set(Offset::StatusActiveBit, "PyThreadState._status.active bit")?;
        set(Offset::OwnerStack, "FRAME_OWNED_BY_CSTACK")?;
    }
    let collecting =
        if minor == 8 { "_PyRuntimeState.gc.collecting" } else { "PyInterpreterState.gc.collecting" };
    set(Offset::Collecting, collecting)?;
    offsets[Offset::CollectingInRuntime as usize] = u32::from(minor == 8);
    offsets[Offset::Kind as usize] = kind as u32;
    offsets[Offset::LineFormat as usize] = format as u32;
    Ok(offsets)
}

/// What 3.13 and later say about themselves: `_Py_DebugOffsets`, at the begin of `_PyRuntime`, in the file's own data.
fn described(
    data: &dyn ReadAt,
    elf: &Elf,
    runtime: &Symbol,
    version: Version,
) -> Result<[u32; OFFSETS], String> {
    let mut bytes = [0; 1024];
    let damaged = || format!("Python {version} does not describe itself");
    symbols::read(data, elf, runtime.address, &mut bytes).ok_or_else(damaged)?;
    if bytes[..8] != *b"xdebugpy" {
        return Err(damaged());
    }
    let words: Vec<u64> = bytes.chunks_exact(8).map(|word| crate::memory::u64_at(word, 0)).collect();
    if words[1] >> 16 != u64::from(version.number()) >> 8 {
        return Err(damaged());
    }
    let table = super::described::Described::new(&words, version).ok_or_else(|| {
        format!("Python {version} is newer than what is known about how it describes itself")
    })?;
    table.offsets()
}
