//! Names of code objects, kept by process and address for as long as the object there is the same.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::lines;
use super::offsets::{LineFormat, Offset, SYMBOL_CODE_TYPE};
use super::text;
use crate::memory::{Reader, u32_at, u64_at};
use crate::{Interpreter, Memory, Name, Process, Resolved, Unknown, Version};

/// Bytes of a code object that are read: all fields that tell its name lie there (3.14: 208 with the instructions' begin).
const HEAD_BYTES: usize = 256;
/// Most entries of a table of thread-local copies of instructions.
const MAX_COPIES: u64 = 4096;
/// Frames without code, and none with it, that make a version distrusted.
const DISTRUST_AFTER: u64 = 16;

/// What names may cost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of names and line tables that are kept. At the bound the half that was not used lately is forgotten, and read again
    /// when needed.
    pub kept_bytes: usize,
    /// A larger line table is not read: the function's first line is told instead.
    pub table_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { kept_bytes: 8 << 20, table_bytes: 256 << 10 }
    }
}

/// A code object that was read.
#[derive(Debug)]
struct Code {
    /// Its first bytes without the reference count and what the interpreter changes: to see whether it is still the same.
    identity: Identity,
    /// Round in which that was looked at.
    round: u64,
    function: Arc<str>,
    file: Arc<str>,
    first_line: u32,
    format: LineFormat,
    lines: Box<[u8]>,
}

impl Code {
    fn bytes(&self) -> usize {
        size_of::<Code>() + self.function.len() + self.lines.len() + 64
    }

    fn line(&self, position: u64) -> u32 {
        // A frame that has not begun stands before its first instruction.
        let position = if position >> 63 == 1 { 0 } else { u32::try_from(position).unwrap_or(u32::MAX) };
        // f_lasti counts instructions in 3.10, bytes before.
        let position = if self.format == LineFormat::Ranges { position.saturating_mul(2) } else { position };
        lines::line(self.format, &self.lines, self.first_line, position).unwrap_or(self.first_line)
    }
}

/// The fields by which a code object is recognised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Identity {
    kind: u64,
    file: u64,
    name: u64,
    qualname: u64,
    lines: u64,
    first_line: u32,
}

/// Resolves code objects to names.
#[derive(Debug)]
pub struct Names {
    limits: Limits,
    round: u64,
    used: HashMap<(Process, u64), Arc<Code>>,
    used_bytes: usize,
    /// What was used before: kept until `used` is half full again.
    older: HashMap<(Process, u64), Arc<Code>>,
    /// File names are shared by many code objects.
    files: HashMap<String, Arc<str>>,
    /// By version: frames that had a name, and frames where no code was.
    told: BTreeMap<Version, (u64, u64)>,
}

impl Default for Names {
    fn default() -> Self {
        Names::new(Limits::default())
    }
}

impl Names {
    /// No names yet.
    pub fn new(limits: Limits) -> Names {
        let (used, older) = (HashMap::new(), HashMap::new());
        Names { limits, round: 1, used, used_bytes: 0, older, files: HashMap::new(), told: BTreeMap::new() }
    }

    /// A new look at the processes: code objects known from before are compared with memory once more when they are next asked for.
    /// To be called before each batch of stacks.
    pub fn next_round(&mut self) {
        self.round += 1;
    }

    /// Bytes of names and tables in memory, about.
    pub fn kept_bytes(&self) -> usize {
        self.used_bytes + self.older.values().map(|code| code.bytes()).sum::<usize>()
    }

    /// Versions whose frames make no sense: of many not one led to code. Their layout does not fit, so their frames are hidden, and
    /// native frames are all there is.
    pub fn distrusted(&self) -> impl Iterator<Item = Version> {
        self.told.iter().filter(|(_, told)| is_distrusted(**told)).map(|(version, _)| *version)
    }

    /// The name of a frame.
    ///
    /// `code` and `position` are the two words that the kernel side gave; `base` is where the interpreter's file would begin in the
    /// mapping of its code (`segment.start - segment.file_offset`).
    pub fn resolve(
        &mut self,
        memory: &dyn Memory,
        process: Process,
        interpreter: &Interpreter,
        base: u64,
        code: u64,
        position: u64,
    ) -> Resolved {
        let reader = Reader { memory, pid: process.pid };
        let known = self.take(process, code);
        let found = match known {
            Some(known) if known.round == self.round => Ok(known),
            known => match (head(&reader, interpreter, base, code), known) {
                // Gone, or freed since the stack was taken: what it was called before is the best there is.
                (Err(_), Some(known)) => Ok(known),
                (Err(unknown), None) => Err(unknown),
                (Ok(identity), Some(known)) if known.identity == identity => {
                    Ok(Arc::new(Code { round: self.round, ..Code::clone_of(&known) }))
                }
                (Ok(identity), _) => self.read(&reader, interpreter, identity).map(Arc::new),
            },
        };
        let told = self.told.entry(interpreter.version).or_default();
        match found {
            Ok(found) => {
                told.0 += 1;
                let position = local_position(&reader, interpreter, code, position);
                let resolved = if &*found.function == "__init__" && &*found.file == "__init__" {
                    // Between a class's call and its __init__ stands a frame without source (3.12 and later).
                    Resolved::Hidden
                } else {
                    let (function, file) = (found.function.clone(), found.file.clone());
                    Resolved::Named(Name { function, file, line: found.line(position) })
                };
                self.keep(process, code, found);
                resolved
            }
            Err(Unknown::NotCode) => {
                told.1 += 1;
                if is_distrusted(*told) { Resolved::Hidden } else { Resolved::Unknown(Unknown::NotCode) }
            }
            Err(unknown) => Resolved::Unknown(unknown),
        }
    }

    fn take(&mut self, process: Process, code: u64) -> Option<Arc<Code>> {
        let key = (process, code);
        self.used.get(&key).or_else(|| self.older.get(&key)).cloned()
    }

    fn keep(&mut self, process: Process, address: u64, code: Arc<Code>) {
        let bytes = code.bytes();
        if self.used_bytes + bytes > self.limits.kept_bytes / 2 {
            self.older = std::mem::take(&mut self.used);
            self.used_bytes = 0;
            self.files.retain(|_, file| Arc::strong_count(file) > 1);
        }
        match self.used.insert((process, address), code) {
            Some(replaced) => self.used_bytes = (self.used_bytes + bytes).saturating_sub(replaced.bytes()),
            None => self.used_bytes += bytes,
        }
    }

    fn read(
        &mut self,
        reader: &Reader<'_>,
        interpreter: &Interpreter,
        identity: Identity,
    ) -> Result<Code, Unknown> {
        let text = |address: u64| (address != 0).then(|| text::read(reader, interpreter, address)).flatten();
        let function = text(identity.qualname).or_else(|| text(identity.name)).ok_or(Unknown::NotCode)?;
        let file = text(identity.file).unwrap_or_default();
        let file = match self.files.get(&file) {
            Some(file) => file.clone(),
            None => {
                let shared: Arc<str> = file.as_str().into();
                self.files.insert(file, shared.clone());
                shared
            }
        };
        let field = |offset: Offset| u64::from(interpreter.offsets[offset as usize]);
        let format = match interpreter.offsets[Offset::LineFormat as usize] {
            1 => LineFormat::Notes,
            2 => LineFormat::Ranges,
            _ => LineFormat::Locations,
        };
        let lines = identity.lines.checked_add(field(Offset::BytesLength)).and_then(|at| reader.u64(at));
        let data = identity.lines.checked_add(field(Offset::BytesData));
        let lines =
            lines.zip(data).and_then(|(length, data)| reader.bytes(data, length, self.limits.table_bytes));
        Ok(Code {
            identity,
            round: self.round,
            function: function.into(),
            file,
            first_line: identity.first_line,
            format,
            lines: lines.unwrap_or_default().into(),
        })
    }
}

/// Whether so many named frames and frames without code mean that nothing is where it should be.
fn is_distrusted((named, not_code): (u64, u64)) -> bool {
    named == 0 && not_code >= DISTRUST_AFTER
}

impl Code {
    fn clone_of(code: &Code) -> Code {
        Code {
            identity: code.identity,
            round: code.round,
            function: code.function.clone(),
            file: code.file.clone(),
            first_line: code.first_line,
            format: code.format,
            lines: code.lines.clone(),
        }
    }
}

/// Reads the fields of what should be a code object.
fn head(reader: &Reader<'_>, interpreter: &Interpreter, base: u64, code: u64) -> Result<Identity, Unknown> {
    let field = |offset: Offset| interpreter.offsets[offset as usize] as usize;
    if code == 0 || !code.is_multiple_of(8) {
        return Err(Unknown::NotCode);
    }
    let end = field(Offset::CodeInstructions).min(HEAD_BYTES);
    let mut head = [0; HEAD_BYTES];
    let Some(wanted) = head.get_mut(..if end == 0 { 128 } else { end }) else { return Err(Unknown::NotCode) };
    if !reader.memory.read(reader.pid, code, wanted) {
        return Err(Unknown::Unreadable);
    }
    let qualname = match field(Offset::CodeQualname) {
        0 => 0,
        offset => u64_at(&head, offset),
    };
    let identity = Identity {
        kind: u64_at(&head, field(Offset::ObjectType)),
        file: u64_at(&head, field(Offset::CodeFilename)),
        name: u64_at(&head, field(Offset::CodeName)),
        qualname,
        lines: u64_at(&head, field(Offset::CodeLines)),
        first_line: u32_at(&head, field(Offset::CodeFirstLine)),
    };
    if identity.kind != base.wrapping_add(interpreter.symbols[SYMBOL_CODE_TYPE]) {
        return Err(Unknown::NotCode);
    }
    Ok(identity)
}

/// The position in a code object of an instruction in one of its thread-local copies (free-threaded 3.14 and later).
fn local_position(reader: &Reader<'_>, interpreter: &Interpreter, code: u64, position: u64) -> u64 {
    let field = |offset: Offset| u64::from(interpreter.offsets[offset as usize]);
    let table = field(Offset::CodeLocalCopies);
    // Code objects are smaller than this; copies are somewhere else altogether.
    if table == 0 || position < 1 << 20 || position.wrapping_neg() < 16 {
        return position;
    }
    let instruction = position.wrapping_add(code).wrapping_add(field(Offset::CodeInstructions));
    let nearest = || {
        let table = reader.u64(code.checked_add(table)?)?;
        let count = reader.u64(table)?.min(MAX_COPIES);
        let copies = reader.bytes(table.checked_add(8)?, count * 8, MAX_COPIES as usize * 8)?;
        let starts = copies.chunks_exact(8).map(|start| u64_at(start, 0));
        starts.filter(|&start| start != 0 && start <= instruction).max()
    };
    nearest().map_or(position, |start| instruction - start)
}
