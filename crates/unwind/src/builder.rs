//! From an ELF file's functions to one sorted table of rows.

use crate::bytes::ReadAt;
use crate::elf::{Elf, Section};
use crate::frames::{self, Format, Source};
use crate::{Arch, BuildError, CfaKind, Options, Row, Rule, Segment, Stats, Table};
use std::collections::HashMap;

/// Distinct rules, each with an index.
pub(crate) struct Rules {
    list: Vec<Rule>,
    indices: HashMap<Rule, u16>,
    /// Rules seen lately as one number, by a hash of it: nearly all rows are found here, without comparing field by field.
    recent: Vec<(u128, u16)>,
}

/// Slots of [`Rules::recent`], as a power of two: large objects have several hundred rules.
const RECENT_BITS: u32 = 10;

impl From<Vec<Rule>> for Rules {
    fn from(list: Vec<Rule>) -> Self {
        let indices = list.iter().enumerate().map(|(index, rule)| (*rule, index as u16)).collect();
        let none = u128::from_le_bytes(Rule::NONE.to_bytes());
        Rules { list, indices, recent: vec![(none, 0); 1 << RECENT_BITS] }
    }
}

impl Rules {
    /// The rule's index; `None` if there are too many rules.
    #[inline]
    pub fn index(&mut self, rule: Rule) -> Option<u16> {
        let number = u128::from_le_bytes(rule.to_bytes());
        let folded = (number as u64) ^ ((number >> 64) as u64).rotate_left(23);
        let slot = (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - RECENT_BITS)) as usize;
        let (known, index) = self.recent[slot];
        if known == number {
            return Some(index);
        }
        let index = self.look_up(rule)?;
        self.recent[slot] = (number, index);
        Some(index)
    }

    #[cold]
    fn look_up(&mut self, rule: Rule) -> Option<u16> {
        if let Some(&index) = self.indices.get(&rule) {
            return Some(index);
        }
        let index = u16::try_from(self.list.len()).ok()?;
        self.list.push(rule);
        self.indices.insert(rule, index);
        Some(index)
    }

    pub fn get(&self, index: u16) -> Rule {
        self.list.get(usize::from(index)).copied().unwrap_or(Rule::NONE)
    }

    pub fn into_inner(self) -> Vec<Rule> {
        self.list
    }
}

/// A function and where its rows lie among the raw ones.
#[derive(Clone, Copy)]
struct Function {
    start: u32,
    end: u32,
    first_row: u32,
    rows: u32,
}

/// Gathers functions and their rows, in any order.
pub(crate) struct Builder {
    pub rules: Rules,
    rows: Vec<Row>,
    functions: Vec<Function>,
    /// Functions of sources before the current one, sorted: they win.
    settled: usize,
    pub stats: Stats,
    rows_max: usize,
}

impl Builder {
    pub fn new(options: &Options) -> Builder {
        Builder {
            rules: Rules::from(vec![Rule::NONE]),
            rows: Vec::new(),
            functions: Vec::new(),
            settled: 0,
            stats: Stats::default(),
            rows_max: options.rows_max.min(u32::MAX as usize),
        }
    }

    /// A function at file offsets `start..end`, whose rows `fill` pushes. False if it was not taken.
    pub fn function(&mut self, start: u64, end: u64, fill: impl FnOnce(&mut FunctionRows<'_>)) -> bool {
        let (Ok(start), Ok(end)) = (u32::try_from(start), u32::try_from(end)) else {
            self.stats.outside += 1;
            return false;
        };
        if start >= end || self.is_settled(start, end) {
            return false;
        }
        let first_row = self.rows.len();
        let mut rows = FunctionRows { builder: self, first_row, start, full: false };
        fill(&mut rows);
        let full = rows.full;
        if full || self.rows.len() == first_row {
            self.rows.truncate(first_row);
            self.stats.left_out += u64::from(full);
            return false;
        }
        let rows = (self.rows.len() - first_row) as u32;
        self.functions.push(Function { start, end, first_row: first_row as u32, rows });
        true
    }

    fn is_settled(&self, start: u32, end: u32) -> bool {
        let settled = &self.functions[..self.settled];
        let next = settled.partition_point(|function| function.start < end);
        next > 0 && settled[next - 1].end > start
    }

    /// Ends a source: what comes later is only used where nothing is known yet.
    pub fn settle(&mut self) {
        if !self.functions.is_sorted_by_key(|function| function.start) {
            self.functions.sort_by_key(|function| function.start);
        }
        // Of functions over each other the first stays whole, the next one loses its head.
        let mut end = 0;
        let mut overlapping = 0;
        for function in &mut self.functions {
            if function.start < end {
                overlapping += 1;
                function.start = end.min(function.end);
            }
            end = end.max(function.end);
        }
        self.stats.overlapping += overlapping;
        if overlapping > 0 {
            self.functions.retain(|function| function.start < function.end);
        }
        self.settled = self.functions.len();
    }

    /// The function that covers a file offset, and the start of the next one behind it. After [`Builder::settle`].
    pub fn around(&self, offset: u32) -> (Option<(u32, u32)>, Option<u32>) {
        let next = self.functions.partition_point(|function| function.start <= offset);
        let covering = next.checked_sub(1).map(|index| &self.functions[index]);
        let covering = covering.filter(|function| function.end > offset);
        (
            covering.map(|function| (function.start, function.end)),
            self.functions.get(next).map(|function| function.start),
        )
    }

    /// Gives a whole function, known or new, one rule. After [`Builder::settle`].
    pub fn replace(&mut self, start: u32, end: u32, rule: Rule) {
        let Some(index) = self.rules.index(rule) else { return };
        let first_row = self.rows.len() as u32;
        self.rows.push(Row { offset: start, rule: index });
        let function = Function { start, end, first_row, rows: 1 };
        match self.functions.binary_search_by_key(&start, |function| function.start) {
            Ok(at) => self.functions[at] = function,
            Err(at) => self.functions.insert(at, function),
        }
        self.settled = self.functions.len();
    }

    /// What lies right before the code that starts threads and other stacks, which has no caller. After [`Builder::settle`].
    pub fn mark_before_roots(&mut self, arch: Arch, data: &dyn ReadAt) {
        let mut clones = Vec::new();
        for index in 1..self.functions.len() {
            let (before, root) = (self.functions[index - 1], self.functions[index]);
            let gap = root.start - before.end;
            let first = self.rows.get(root.first_row as usize).map(|row| self.rules.get(row.rule));
            if gap == 0 || first != Some(Rule::STOP) {
                continue;
            }
            let rule = self.rows_of(&before).last().map_or(Rule::NONE, |row| self.rules.get(row.rule));
            if gap <= CLONE_BYTES && rule.cfa == CfaKind::Sp && is_system_call(arch, data, before.end) {
                clones.push((before.end, root.start, Rule { cfa: CfaKind::Clone, ..rule }));
            } else if gap < CLONE_BYTES {
                // Stacks made by hand return to the first byte (glibc's makecontext), and return addresses are looked up one before.
                self.functions[index].start -= 1;
                self.rows[root.first_row as usize].offset -= 1;
            }
        }
        for (start, end, rule) in clones {
            self.replace(start, end, rule);
        }
    }

    /// Functions with one rule for all of their code that `wanted` says: their file offsets. After [`Builder::settle`].
    pub fn with_one_rule(&self, wanted: impl Fn(&Rule) -> bool) -> Vec<(u32, u32)> {
        let one = |function: &&Function| {
            function.rows == 1 && wanted(&self.rules.get(self.rows[function.first_row as usize].rule))
        };
        self.functions.iter().filter(one).map(|function| (function.start, function.end)).collect()
    }

    /// Gives a function that is known other rows: bytes from its start, and rule. After [`Builder::settle`].
    pub fn refine(&mut self, start: u32, list: &[(u32, Rule)]) {
        let Ok(at) = self.functions.binary_search_by_key(&start, |function| function.start) else { return };
        let first_row = self.rows.len();
        for &(into, rule) in list {
            let (Some(rule), Some(offset)) = (self.rules.index(rule), start.checked_add(into)) else {
                return self.rows.truncate(first_row);
            };
            self.rows.push(Row { offset, rule });
        }
        self.functions[at].first_row = first_row as u32;
        self.functions[at].rows = list.len() as u32;
    }

    /// The rule of the code at a file offset. After [`Builder::settle`].
    pub fn rule_at(&self, offset: u32) -> Rule {
        let next = self.functions.partition_point(|function| function.start <= offset);
        let Some(function) = next.checked_sub(1).map(|index| self.functions[index]) else {
            return Rule::NONE;
        };
        let rows = self.rows_of(&function);
        let next = rows.partition_point(|row| row.offset <= offset);
        match next.checked_sub(1) {
            Some(row) if offset < function.end => self.rules.get(rows[row].rule),
            _ => Rule::NONE,
        }
    }

    fn rows_of(&self, function: &Function) -> &[Row] {
        let first = function.first_row as usize;
        self.rows.get(first..first + function.rows as usize).unwrap_or_default()
    }

    /// The finished rows. `pause` is called now and then.
    pub fn finish(mut self, pause: &dyn Fn()) -> (Vec<Rule>, Vec<Row>, Stats) {
        self.settle();
        self.stats.rows_before_merge = self.rows.len() as u64;
        let mut merged: Vec<Row> = Vec::new();
        let mut push = |offset: u32, rule: u16| {
            match merged.last() {
                Some(last) if last.rule == rule => return,
                None if rule == 0 => return,
                _ => {}
            }
            merged.push(Row { offset, rule });
        };
        let mut functions = self.functions.iter().peekable();
        let mut done = 0usize;
        while let Some(function) = functions.next() {
            done += 1;
            if done.is_multiple_of(FUNCTIONS_PER_PIECE) {
                pause();
            }
            let rows = self.rows_of(function);
            // The head may have been cut off: the row that holds at the start comes first.
            let first = rows.partition_point(|row| row.offset <= function.start).saturating_sub(1);
            for row in &rows[first..] {
                if row.offset < function.end {
                    push(row.offset.max(function.start), row.rule);
                }
            }
            if !functions.peek().is_some_and(|next| is_padding(function.end, next.start)) {
                push(function.end, 0);
            }
        }
        merged.shrink_to_fit();
        (self.rules.into_inner(), merged, self.stats)
    }
}

/// Functions that are finished in about a millisecond.
const FUNCTIONS_PER_PIECE: usize = 16_384;

/// glibc's `clone` and `clone3` end their unwind information at the system call, so that debuggers stop there; that of the child begins
/// after a few instructions: at most this many bytes are in between.
const CLONE_BYTES: u32 = 64;

/// Whether the instruction at a file offset is a system call.
fn is_system_call(arch: Arch, data: &dyn ReadAt, offset: u32) -> bool {
    match arch {
        Arch::X86_64 => crate::bytes::array(data, offset.into()) == Some([0x0f, 0x05]),
        Arch::Arm64 => crate::bytes::array(data, offset.into()) == Some([0x01, 0x00, 0x00, 0xd4]),
    }
}

/// Whether the bytes between two functions are there only to align the second one. The last rule of a function then holds up to the
/// next, which needs no row: after `ret` that is mostly the rule that the next one begins with.
fn is_padding(end: u32, next: u32) -> bool {
    let alignment = 1u32 << next.trailing_zeros().min(6);
    next.saturating_sub(end) < alignment
}

/// Where the rows of one function go.
pub(crate) struct FunctionRows<'a> {
    builder: &'a mut Builder,
    first_row: usize,
    start: u32,
    full: bool,
}

impl FunctionRows<'_> {
    /// From `into` bytes into the function on, `rule` holds. Ascending; the last of several at one place counts.
    #[inline]
    pub fn push(&mut self, into: u64, rule: Rule) {
        let offset = u32::try_from(into).ok().and_then(|into| self.start.checked_add(into));
        let (Some(offset), false) = (offset, self.full) else { return };
        let Some(rule) = self.builder.rules.index(rule) else {
            self.full = true;
            return;
        };
        let rows = &mut self.builder.rows;
        if rows.len() > self.first_row {
            let last = rows.len() - 1;
            if rows[last].rule == rule {
                return;
            }
            if rows[last].offset == offset {
                rows[last].rule = rule;
                return;
            }
            if rows[last].offset > offset {
                return;
            }
        }
        if rows.len() >= self.builder.rows_max {
            self.full = true;
            return;
        }
        rows.push(Row { offset, rule });
    }
}

impl Table {
    /// Builds the table of an ELF program or shared object.
    ///
    /// # Errors
    /// The object is none that rows can be made for. Damaged unwind information is not an error: what is good is used, the rest is
    /// counted in [`Table::stats`].
    pub fn build(data: &dyn ReadAt, options: &Options) -> Result<Table, BuildError> {
        let elf = Elf::parse(data)?;
        let first = gather(&elf, data, options, false);
        // Only a few objects ever need rbx (ld.so): elsewhere it would only multiply rules and rows.
        let needs_bx = first.rules.list.iter().any(|rule| rule.cfa == crate::CfaKind::Bx);
        let builder = if needs_bx { gather(&elf, data, options, true) } else { first };
        let (rules, rows, stats) = builder.finish(&|| data.pause());
        let text = elf.segments.iter().filter(|segment| segment.executable).copied().collect();
        Ok(Table { arch: elf.arch, rules, rows, text, build_id: elf.build_id, stats })
    }
}

/// All functions of an object: what `.eh_frame` says counts most, then what Go says, then `.debug_frame` (Go's has no frame pointers), then
/// what is known about PLT sections.
fn gather(elf: &Elf, data: &dyn ReadAt, options: &Options, track_bx: bool) -> Builder {
    let mut builder = Builder::new(options);
    if let Some((section, format)) = eh_frame(elf, data) {
        call_frames(&mut builder, elf, data, &section, format, track_bx);
        builder.settle();
    }
    for section in
        elf.sections.iter().filter(|section| section.name.ends_with(".gopclntab") && !section.absent)
    {
        crate::go::functions(&mut builder, elf, data, section);
        builder.settle();
    }
    debug_frame(&mut builder, elf, data, options, track_bx);
    builder.settle();
    crate::plt::functions(&mut builder, elf, data);
    builder.settle();
    mark_entry(&mut builder, elf);
    if elf.arch == Arch::X86_64 {
        crate::pushes::mend(&mut builder, data);
    }
    builder.mark_before_roots(elf.arch, data);
    builder
}

fn eh_frame(elf: &Elf, data: &dyn ReadAt) -> Option<(Section, Format)> {
    match elf.section(".eh_frame") {
        Some(section) => Some((section.clone(), Format::EhFrame { until_zero: false })),
        None => Some((eh_frame_by_header(elf, data)?, Format::EhFrame { until_zero: true })),
    }
}

fn debug_frame(builder: &mut Builder, elf: &Elf, data: &dyn ReadAt, options: &Options, track_bx: bool) {
    let packed = |section: &Section| section.compressed || section.name.starts_with(".z");
    let section = elf.section(".debug_frame").or_else(|| elf.section(".zdebug_frame"));
    match section {
        Some(section) if packed(section) => {
            match crate::unpack::unpack(data, section, options.unpacked_limit_bytes) {
                Some(bytes) => {
                    let size = bytes.len() as u64;
                    let section = Section { file_offset: 0, size, ..section.clone() };
                    call_frames(builder, elf, &bytes, &section, Format::DebugFrame, track_bx);
                }
                None => builder.stats.malformed += 1,
            }
        }
        Some(section) => call_frames(builder, elf, data, section, Format::DebugFrame, track_bx),
        None => {}
    }
}

/// File offsets of the function that covers a file offset, by `.eh_frame`. Goes through all functions: for a few questions about an object.
///
/// # Errors
/// As [`Table::build`].
pub fn function_range(data: &dyn ReadAt, offset: u64) -> Result<Option<std::ops::Range<u64>>, BuildError> {
    let elf = Elf::parse(data)?;
    let segment = elf.segments.iter().find(|segment| {
        segment.executable
            && offset.checked_sub(segment.file_offset).is_some_and(|into| into < segment.file_size)
    });
    let (Some(segment), Some((section, format))) = (segment, eh_frame(&elf, data)) else { return Ok(None) };
    let address = offset.wrapping_add(segment.bias());
    let source = source(&elf, data, &section, format, false);
    let mut found = None;
    frames::functions(&source, &mut |function| {
        if (function.start..function.end).contains(&address) {
            let to_offset = |address: u64| address.wrapping_sub(segment.bias());
            found = Some(to_offset(function.start)..to_offset(function.end));
        }
        found.is_none()
    });
    Ok(found)
}

fn source<'a>(
    elf: &Elf,
    data: &'a dyn ReadAt,
    section: &Section,
    format: Format,
    track_bx: bool,
) -> Source<'a> {
    Source {
        data,
        offset: section.file_offset,
        size: section.size,
        address: section.address,
        format,
        arch: elf.arch,
        track_bx,
    }
}

/// `.eh_frame` of a file without section headers: its address is in `.eh_frame_hdr`, its end is an entry of length 0.
fn eh_frame_by_header(elf: &Elf, data: &dyn ReadAt) -> Option<Section> {
    let header = elf.eh_frame_header?;
    let bytes: [u8; 12] = crate::bytes::array(data, header.file_offset)?;
    if bytes[0] != 1 {
        return None;
    }
    let mut at = crate::bytes::Cursor::new(&bytes[4..]);
    let address = frames::pointer(&mut at, bytes[1], header.address.wrapping_add(4))?;
    let segment = elf.segments.iter().find(|segment| segment.offset_of(address).is_some())?;
    let file_offset = segment.offset_of(address)?;
    let size = segment.file_offset + segment.file_size - file_offset;
    Some(Section { name: ".eh_frame".into(), file_offset, size, address, compressed: false, absent: false })
}

pub(crate) fn call_frames(
    builder: &mut Builder,
    elf: &Elf,
    data: &dyn ReadAt,
    section: &Section,
    format: Format,
    track_bx: bool,
) {
    let source = source(elf, data, section, format, track_bx);
    let mut segment: Option<&Segment> = None;
    let mut functions = 0;
    let (mut unsupported, mut damaged) = (0, 0);
    let trouble = frames::functions(&source, &mut |function| {
        if segment.is_none_or(|segment| segment.offset_of(function.start).is_none()) {
            segment = elf.code_segment(function.start);
        }
        let last = function.end.wrapping_sub(1);
        let Some(segment) = segment.filter(|segment| segment.offset_of(last).is_some()) else {
            builder.stats.outside += 1;
            return true;
        };
        let to_offset = |address: u64| address.wrapping_sub(segment.bias());
        let taken = builder.function(to_offset(function.start), to_offset(function.end), |rows| {
            let common = function.common;
            let result =
                common.run(function.instructions, function.start, function.end, &mut |address, state| {
                    let rule = common.rule(state);
                    unsupported += u64::from(rule.cfa == crate::CfaKind::Unsupported);
                    rows.push(address - function.start, rule);
                });
            damaged += u64::from(result.is_none());
        });
        functions += u64::from(taken);
        true
    });
    builder.stats.functions += functions;
    builder.stats.unsupported_rows += unsupported;
    builder.stats.malformed += trouble.malformed + damaged;
}

/// The program's first code has no caller. glibc's `_start` says so itself.
fn mark_entry(builder: &mut Builder, elf: &Elf) {
    /// What an entry point without unwind information is taken to be long, at most.
    const ENTRY_BYTES: u32 = 64;
    let Some(offset) = elf.code_segment(elf.entry).and_then(|segment| segment.offset_of(elf.entry)) else {
        return;
    };
    let Ok(offset) = u32::try_from(offset) else { return };
    if elf.entry == 0 || builder.rule_at(offset) == Rule::STOP {
        return;
    }
    match builder.around(offset) {
        (Some((start, end)), _) => {
            if start == offset {
                builder.replace(start, end, Rule::STOP);
            }
        }
        (None, next) => {
            let end = offset.saturating_add(ENTRY_BYTES).min(next.unwrap_or(u32::MAX));
            builder.replace(offset, end, Rule::STOP);
        }
    }
}
