//! Walks that end later. A stack through a file that has no unwind table yet cannot be walked to its root in the kernel. It is kept here
//! with the registers and the stack memory that the walk began with, and is ended by the walk in user space as soon as the table is
//! there. So the first stacks through a file are as whole as all others; what they lack are an interpreter's own frames.

use crate::library::{Known, Library};
use lightfoot_interpreters::{Language, ruby};
use lightfoot_kernel::abi::{self, Failed, Record, Segment, VDSO_DEVICE, frame, interpreter_outcome};
use lightfoot_kernel::tables::{Rows, Tables};
use lightfoot_unwind::{
    Arch, Code, Frame, Knowledge, Mappings, Memory, NoMapping, Outcome, Registers, Rule, walk,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A walk that waits.
#[derive(Debug)]
struct Waiting {
    began: Failed,
    stack: abi::Stack,
    /// The executable mappings of the process, once they were asked for; empty if it was too late.
    mappings: Option<Rc<[Segment]>>,
}

impl Waiting {
    fn bytes(&self) -> usize {
        self.began.bytes.len() + self.stack.user.len() * 8 + size_of::<Waiting>()
    }
}

/// Walks that wait for tables.
#[derive(Debug)]
pub(crate) struct Deferred {
    waiting: Vec<Waiting>,
    bytes: usize,
    bytes_max: usize,
    /// What the walk of the stack that comes next began with.
    began: Option<Failed>,
    /// State of the library when the walks were last tried.
    tried_at: Option<u64>,
}

impl Deferred {
    /// Room for walks of so many bytes together.
    pub fn new(bytes_max: usize) -> Deferred {
        Deferred { waiting: Vec::new(), bytes: 0, bytes_max, began: None, tried_at: None }
    }

    /// Whether there is room for one more.
    pub fn has_room(&self) -> bool {
        self.bytes + abi::FAILED_STACK_BYTES <= self.bytes_max
    }

    /// Whether walks wait.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// What a walk began with. Its stack comes next.
    pub fn began(&mut self, began: Failed) {
        self.began = Some(began);
    }

    /// Keeps a stack that lacks a table; false if this is not one, or there is no room.
    pub fn take(&mut self, record: &Record<'_>) -> bool {
        let Some(began) = self.began.take().filter(|began| began.stack == record.header.stack) else {
            return false;
        };
        // Only those that were sent one by one: how often the others were met is counted in the kernel.
        let lacks = record.header.outcome == Outcome::NoRowsYet as u32 && record.header.count > 0;
        if !lacks || !self.has_room() {
            return false;
        }
        let waiting = Waiting { began, stack: abi::Stack::of(record), mappings: None };
        self.bytes += waiting.bytes();
        self.waiting.push(waiting);
        true
    }

    /// Processes whose mappings are not known yet.
    pub fn unknown_processes(&self) -> BTreeSet<u32> {
        self.waiting.iter().filter(|w| w.mappings.is_none()).map(|w| w.stack.header.pid).collect()
    }

    /// The executable mappings of a process as they are now; `None` if they cannot be read.
    pub fn learn(&mut self, pid: u32, mappings: Option<Vec<Segment>>) {
        let mappings: Rc<[Segment]> = mappings.unwrap_or_default().into();
        for waiting in self.waiting.iter_mut().filter(|w| w.mappings.is_none() && w.stack.header.pid == pid) {
            // The process may have executed another program meanwhile, or its number may be another's by now.
            let as_then =
                waiting.stack.segments.iter().all(|then| mappings.iter().any(|now| now.is_same(then)));
            waiting.mappings = Some(if as_then { Rc::clone(&mappings) } else { Rc::default() });
        }
    }

    /// Walks on where that has become possible, and hands each stack that is ended to `done`. With `finally` all are.
    pub fn walk(
        &mut self,
        library: &Library,
        tables: &Tables<'_>,
        frames_max: usize,
        finally: bool,
        mut done: impl FnMut(&Record<'_>),
    ) {
        if self.waiting.is_empty() || !finally && self.tried_at == Some(library.changes()) {
            return;
        }
        self.tried_at = Some(library.changes());
        let rows = tables.rows();
        let mut kept = Vec::new();
        for mut waiting in std::mem::take(&mut self.waiting) {
            match walk_on(&waiting, library, &rows, frames_max) {
                Some(further) => further.enter(&mut waiting.stack),
                None if !finally => {
                    kept.push(waiting);
                    continue;
                }
                None => {}
            }
            waiting.stack.with_record(&mut done);
        }
        self.bytes = kept.iter().map(Waiting::bytes).sum();
        self.waiting = kept;
    }
}

/// What a walk found beyond what the kernel side did.
struct Further {
    frames: Vec<Frame>,
    segments: Vec<Segment>,
    outcome: Outcome,
    /// Of the frame at which the kernel side stopped, and of each of these: the language whose interpreter's loop it is.
    loops: Vec<Option<Language>>,
}

impl Further {
    fn nothing() -> Further {
        Further { frames: vec![], segments: vec![], outcome: Outcome::NoRowsYet, loops: vec![] }
    }

    fn enter(self, stack: &mut abi::Stack) {
        let further = self.frames.iter().zip(self.loops.iter().skip(1)).map(|(frame, language)| {
            let kind = if frame.exact { frame::EXACT } else { frame::RETURN };
            (u64::from(kind) << 56 | frame.address & frame::ADDRESS, *language == Some(Language::Ruby))
        });
        let has_ruby = ruby::go_on(&mut stack.user, &further.collect::<Vec<_>>());
        let mut loops = self.loops.iter().enumerate().filter_map(|(at, language)| Some((at, (*language)?)));
        // The kernel side did not know that it had stopped in a loop.
        let lacks_frames = loops.any(|(at, language)| at == 0 || language != Language::Ruby || !has_ruby);
        for segment in self.segments {
            if stack.segments.len() < abi::MAX_SEGMENTS && !stack.segments.iter().any(|s| s.is_same(&segment))
            {
                stack.segments.push(segment);
            }
        }
        stack.header.outcome = self.outcome as u32;
        if lacks_frames && stack.header.interpreter_outcome == interpreter_outcome::FINE {
            stack.header.interpreter_outcome = interpreter_outcome::NOT_YET;
        }
        // Of equal beginnings the ends may differ: another stack, another key.
        for &word in &stack.user {
            stack.header.stack =
                (stack.header.stack ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }
}

/// Walks again from the leaf; `None` if a table is still missing.
fn walk_on(waiting: &Waiting, library: &Library, rows: &Rows<'_>, frames_max: usize) -> Option<Further> {
    let mappings = Readable {
        mappings: waiting.mappings.as_deref().unwrap_or_default(),
        then: &waiting.stack.segments,
        library,
        rows,
        asked: Cell::new(0),
        loops: RefCell::default(),
    };
    let memory = Copied { began: &waiting.began, missed: Cell::new(false) };
    let arch = if cfg!(target_arch = "aarch64") { Arch::Arm64 } else { Arch::X86_64 };
    let walked = walk(arch, &registers(&waiting.began), &memory, &mappings, frames_max);
    if walked.outcome == Outcome::NoRowsYet {
        return None;
    }
    let known = native_frames(&waiting.stack.user).len();
    // What lies above the copy of the stack, or in mappings that were not told in time, says nothing about the stack.
    let cut = memory.missed.get() && walked.outcome != Outcome::Complete
        || walked.outcome == Outcome::NoMappingFound;
    if known == 0
        || !walked.frames.starts_with(&native_frames(&waiting.stack.user))
        || cut && walked.frames.len() == known
    {
        return Some(Further::nothing());
    }
    let frames = walked.frames[known..].to_vec();
    let lookups = frames.iter().map(|f| f.address.wrapping_sub(u64::from(!f.exact)));
    let found = mappings.loops.borrow();
    let loops = (known - 1..walked.frames.len()).map(|frame| found.get(&frame).copied()).collect();
    let segments = lookups.filter_map(|at| mappings.segment(at).copied()).collect();
    Some(Further { frames, segments, outcome: if cut { Outcome::NoRowsYet } else { walked.outcome }, loops })
}

/// The stack as it was when the walk began.
struct Copied<'a> {
    began: &'a Failed,
    missed: Cell<bool>,
}

impl Memory for Copied<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let word = address.checked_sub(self.began.sp).and_then(|at| {
            let at = usize::try_from(at).ok()?;
            Some(u64::from_ne_bytes(self.began.bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
        });
        self.missed.set(self.missed.get() || word.is_none());
        word
    }
}

/// Mappings with the tables in the kernel's maps.
struct Readable<'a> {
    /// Empty: not known.
    mappings: &'a [Segment],
    /// Those that the kernel side passed through.
    then: &'a [Segment],
    library: &'a Library,
    rows: &'a Rows<'a>,
    /// Frames looked up so far, and those of them that are an interpreter's loop.
    asked: Cell<usize>,
    loops: RefCell<BTreeMap<usize, Language>>,
}

impl Readable<'_> {
    fn segment(&self, address: u64) -> Option<&Segment> {
        self.mappings.iter().chain(self.then).find(|segment| (segment.start..segment.end).contains(&address))
    }
}

impl Mappings for Readable<'_> {
    fn find(&self, address: u64) -> Result<Code, NoMapping> {
        let frame = self.asked.replace(self.asked.get() + 1);
        let missing = if self.mappings.is_empty() { NoMapping::Unreadable } else { NoMapping::NotMapped };
        let segment = self.segment(address).ok_or(missing)?;
        let is_file = segment.inode != 0;
        if !is_file && segment.device != VDSO_DEVICE {
            return Ok(Code { is_file, knowledge: Knowledge::Nothing });
        }
        let knowledge = match self.library.known(&segment.key()) {
            Known::Nothing => Knowledge::Nothing,
            Known::NotYet => Knowledge::NotYet,
            Known::Pages { first, base, count } => {
                let offset = (address - segment.start).wrapping_add(segment.file_offset);
                let page = (offset >> 16).checked_sub(base.into()).filter(|&page| page < count.into());
                let bytes = page.and_then(|page| self.rows.rule(first + page as u32, offset));
                let rule = bytes.and_then(|bytes| Rule::from_bytes(&bytes)).unwrap_or(Rule::NONE);
                if rule.flags & Rule::INTERPRETER != 0 {
                    let interpreter = self.library.interpreter(&segment.key());
                    self.loops.borrow_mut().extend(interpreter.map(|found| (frame, found.language)));
                }
                Knowledge::Rule(rule)
            }
        };
        Ok(Code { is_file, knowledge })
    }
}

/// Native frames among the words of a user stack.
pub(crate) fn native_frames(words: &[u64]) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match (word >> 56) as u8 {
            kind @ (frame::RETURN | frame::EXACT) => {
                frames.push(Frame { address: word & frame::ADDRESS, exact: kind == frame::EXACT });
            }
            frame::GC => {}
            _ => {
                words.next();
            }
        }
    }
    frames
}

/// The registers that a walk began with.
pub(crate) fn registers(began: &Failed) -> Registers {
    let mut general = [0; 32];
    if cfg!(target_arch = "aarch64") {
        (general[30], general[0]) = (began.registers[0], began.registers[1]);
        (general[29], general[31]) = (began.fp, began.sp);
    } else {
        general[..16].copy_from_slice(&began.registers);
    }
    Registers { ip: began.ip, general }
}
