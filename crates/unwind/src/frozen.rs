//! A walk frozen into a small file: registers, stack, mappings and the rows of the code that it passes through, and what the kernel
//! side found. It can be walked again anywhere, and becomes a test.

use crate::coding::{self, DecodeError, Writer};
use crate::walk::{
    Code, Frame, Knowledge, Mappings, Memory, NoMapping, Outcome, Registers, Step, Walked, walk, walk_noting,
};
use crate::{Arch, Row, Rule, Table};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

const MAGIC: [u8; 8] = *b"LFfrozen";
const VERSION: u32 = 1;
const PATH_MAX: usize = 4096;

/// What a frozen mapping's object is known as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// There are rows: [`FrozenMapping::table`].
    Ready = 0,
    /// They were being prepared.
    NotYet = 1,
    /// There are none.
    Nothing = 2,
}

/// An executable mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrozenMapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// File offset of `start`.
    pub file_offset: u64,
    /// Whether a file is mapped.
    pub is_file: bool,
    /// What was known about it.
    pub state: State,
    /// Index in [`Frozen::tables`], with [`State::Ready`].
    pub table: usize,
    /// Path as the process saw it, for people.
    pub path: String,
}

/// Everything a walk depends on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frozen {
    /// CPU.
    pub arch: Arch,
    /// At the leaf.
    pub registers: Registers,
    /// Frames asked for.
    pub frames_max: usize,
    /// Memory of the process: (first address, bytes), most of it stack.
    pub memory: Vec<(u64, Vec<u8>)>,
    /// Executable mappings.
    pub mappings: Vec<FrozenMapping>,
    /// Rows of objects; after [`Frozen::shrink`] only those of the code pages that the walk touches.
    pub tables: Vec<Table>,
    /// What the kernel side found.
    pub found: Walked,
}

impl Memory for Frozen {
    fn word(&self, address: u64) -> Option<u64> {
        self.memory.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
        })
    }
}

impl Mappings for Frozen {
    fn find(&self, address: u64) -> Result<Code, NoMapping> {
        let found = self.mappings.iter().find(|m| (m.start..m.end).contains(&address));
        let mapping = found.ok_or(NoMapping::NotMapped)?;
        let knowledge = match (mapping.state, self.tables.get(mapping.table)) {
            (State::Ready, Some(table)) => {
                Knowledge::Rule(table.rule_at((address - mapping.start).wrapping_add(mapping.file_offset)))
            }
            (State::NotYet, _) => Knowledge::NotYet,
            _ => Knowledge::Nothing,
        };
        Ok(Code { is_file: mapping.is_file, knowledge })
    }
}

/// Walks a frozen stack again.
pub fn replay(frozen: &Frozen) -> Walked {
    walk(frozen.arch, &frozen.registers, frozen, frozen, frozen.frames_max)
}

/// Whether the walk in user space found what the kernel side did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Agreement {
    /// The same frames and the same end.
    Same,
    /// The same frames up to where memory is needed that is not in the file.
    MemoryEnds,
    /// This frame, counted from the leaf, is the first that differs; as many as there are frames if only the end does.
    Differs(usize),
}

/// Memory that tells whether more was asked for than there is.
struct Bounded<'a> {
    frozen: &'a Frozen,
    missed: Cell<bool>,
}

impl Memory for Bounded<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let word = self.frozen.word(address);
        self.missed.set(self.missed.get() || word.is_none());
        word
    }
}

/// Walks a frozen stack again and compares; with the steps of the walk.
pub fn compare(frozen: &Frozen) -> (Walked, Vec<Step>, Agreement) {
    let memory = Bounded { frozen, missed: Cell::new(false) };
    let mut steps = Vec::new();
    let walked =
        walk_noting(frozen.arch, &frozen.registers, &memory, frozen, frozen.frames_max, &mut |step| {
            steps.push(step);
        });
    let found = &frozen.found;
    let same = walked.frames.iter().zip(&found.frames).take_while(|(ours, theirs)| ours == theirs).count();
    // Of a frozen walk all mappings can be read.
    let end = if found.outcome == Outcome::NoMappingFound { Outcome::NotMapped } else { found.outcome };
    let agreement = if walked.frames == found.frames && walked.outcome == end {
        Agreement::Same
    } else if memory.missed.get() && same == walked.frames.len() {
        Agreement::MemoryEnds
    } else {
        Agreement::Differs(same)
    };
    (walked, steps, agreement)
}

/// Notes which addresses are asked for.
struct Noting<'a> {
    frozen: &'a Frozen,
    asked: RefCell<Vec<u64>>,
}

impl Mappings for Noting<'_> {
    fn find(&self, address: u64) -> Result<Code, NoMapping> {
        self.asked.borrow_mut().push(address);
        self.frozen.find(address)
    }
}

impl Frozen {
    /// Leaves out mappings that neither the walk in user space nor the one in the kernel touches, and rows of other code pages.
    pub fn shrink(&mut self) {
        let noting = Noting { frozen: self, asked: RefCell::new(Vec::new()) };
        walk(self.arch, &self.registers, self, &noting, self.frames_max);
        let mut asked = noting.asked.into_inner();
        asked.extend(self.found.frames.iter().map(|f| f.address.wrapping_sub(u64::from(!f.exact))));
        let mut pages: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
        let mut mappings = Vec::new();
        for mapping in &self.mappings {
            let range = mapping.start..mapping.end;
            let inside: Vec<u64> = asked.iter().copied().filter(|address| range.contains(address)).collect();
            if inside.is_empty() {
                continue;
            }
            let offset = |address: u64| (address - mapping.start).wrapping_add(mapping.file_offset);
            if mapping.state == State::Ready && mapping.table < self.tables.len() {
                pages.entry(mapping.table).or_default().extend(inside.iter().map(|&a| offset(a) >> 16));
            }
            mappings.push(mapping.clone());
        }
        for mapping in mappings.iter_mut().filter(|mapping| mapping.state == State::Ready) {
            mapping.table = pages.keys().position(|index| *index == mapping.table).unwrap_or(usize::MAX);
        }
        let tables = pages.iter().filter_map(|(index, pages)| Some(excerpt(self.tables.get(*index)?, pages)));
        self.tables = tables.collect();
        self.mappings = mappings;
    }

    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new(MAGIC, VERSION);
        out.u8(self.arch as u8);
        out.u64(self.registers.ip);
        for register in self.registers.general {
            out.u64(register);
        }
        out.count(self.frames_max as u64);
        out.count(self.memory.len() as u64);
        for (start, bytes) in &self.memory {
            out.u64(*start);
            out.string(bytes);
        }
        out.count(self.mappings.len() as u64);
        for mapping in &self.mappings {
            for number in [mapping.start, mapping.end, mapping.file_offset] {
                out.u64(number);
            }
            out.u8(u8::from(mapping.is_file));
            out.u8(mapping.state as u8);
            out.count(mapping.table as u64);
            let path = mapping.path.as_bytes();
            out.string(&path[..path.len().min(PATH_MAX)]);
        }
        out.count(self.tables.len() as u64);
        for table in &self.tables {
            table.write(&mut out, &|| {});
        }
        out.u8(self.found.outcome as u8);
        out.count(self.found.frames.len() as u64);
        for frame in &self.found.frames {
            out.u64(frame.address);
            out.u8(u8::from(frame.exact));
        }
        out.finish()
    }

    /// The walk that [`Frozen::encode`] wrote.
    ///
    /// # Errors
    /// Anything but exactly such bytes.
    pub fn decode(bytes: &[u8]) -> Result<Frozen, DecodeError> {
        let mut at = coding::open(bytes, MAGIC, VERSION)?;
        let frozen = Self::read(&mut at).filter(|_| at.is_at_end());
        frozen.ok_or(DecodeError::Inconsistent)
    }

    fn read(at: &mut crate::bytes::Cursor<'_>) -> Option<Frozen> {
        /// More than the kernel side ever keeps.
        const FRAMES_MAX: u64 = 4096;
        const RANGES_MAX: usize = 256;
        let flag = |at: &mut crate::bytes::Cursor<'_>| match at.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        let arch = Arch::from_number(at.u8()?)?;
        let mut registers = Registers { ip: at.u64()?, general: [0; 32] };
        for register in &mut registers.general {
            *register = at.u64()?;
        }
        let frames_max = usize::try_from(at.uleb()?).ok().filter(|&max| max as u64 <= FRAMES_MAX)?;
        let mut memory = Vec::new();
        for _ in 0..coding::count(at, 9).filter(|&count| count <= RANGES_MAX)? {
            memory.push((at.u64()?, coding::string(at, usize::MAX)?.to_vec()));
        }
        let mut mappings = Vec::new();
        for _ in 0..coding::count(at, 28)? {
            let (start, end, file_offset) = (at.u64()?, at.u64()?, at.u64()?);
            let is_file = flag(at)?;
            let state = match at.u8()? {
                0 => State::Ready,
                1 => State::NotYet,
                2 => State::Nothing,
                _ => return None,
            };
            let table = usize::try_from(at.uleb()?).ok()?;
            let path = String::from_utf8_lossy(coding::string(at, PATH_MAX)?).into_owned();
            mappings.push(FrozenMapping { start, end, file_offset, is_file, state, table, path });
        }
        let mut tables = Vec::new();
        for _ in 0..coding::count(at, 20)? {
            tables.push(Table::read(at, &|| {})?);
        }
        let outcome = Outcome::ALL.get(usize::from(at.u8()?)).copied()?;
        let mut frames = Vec::new();
        for _ in 0..coding::count(at, 9)? {
            frames.push(Frame { address: at.u64()?, exact: flag(at)? });
        }
        let found = Walked { frames, outcome };
        Some(Frozen { arch, registers, frames_max, memory, mappings, tables, found })
    }
}

/// The rows of some code pages of a table; everywhere else it says nothing.
fn excerpt(table: &Table, pages: &BTreeSet<u64>) -> Table {
    let mut rules = vec![Rule::NONE];
    let mut rows: Vec<Row> = Vec::new();
    let mut push = |offset: u64, rule: Rule| {
        let Ok(offset) = u32::try_from(offset) else { return };
        let index = rules.iter().position(|known| *known == rule).unwrap_or_else(|| {
            rules.push(rule);
            rules.len() - 1
        });
        rows.push(Row { offset, rule: index as u16 });
    };
    for page in table.pages().filter(|page| pages.contains(&u64::from(page.number))) {
        let start = u64::from(page.number) << 16;
        for (low, rule) in page.rows() {
            let rule = table.rules.get(usize::from(rule)).copied().unwrap_or(Rule::NONE);
            push(start | u64::from(low), rule);
        }
        if !pages.contains(&(u64::from(page.number) + 1)) {
            push(start + (1 << 16), Rule::NONE);
        }
    }
    rows.dedup_by_key(|row| row.rule);
    Table { rules, rows, stats: crate::Stats::default(), ..table.clone() }
}
