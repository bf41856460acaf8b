//! Go's own table of functions, `.gopclntab`: exact distances of the stack pointer for all code that Go's compiler and assembler made.
//!
//! Sources: Go's `internal/abi/symtab.go`, `runtime/symtab.go` and `debug/gosym/pclntab.go`, versions 1.2 to 1.26. Frame pointers:
//! `cmd/internal/obj/x86/obj6.go` (rbp is saved right below the return address where the frame is not empty) and
//! `cmd/internal/obj/arm64/obj7.go` (x30 at the stack pointer, x29 right below it).

use crate::builder::Builder;
use crate::bytes::{Pages, ReadAt, Window, array};
use crate::elf::{Elf, Section};
use crate::{Arch, CfaKind, Rule, Saved, Segment};

/// Flags of a function since Go 1.17.
const TOP_FRAME: u8 = 1;
const WRITES_SP: u8 = 2;
const ASSEMBLY: u8 = 4;

/// Where to find things in a version of the table. Offsets in bytes; of the header's words by index behind its first 8 bytes.
struct Layout {
    version: u32,
    /// Bytes of a number in the table of functions.
    entry_bytes: u64,
    /// Linker's address that entries count from.
    text: u64,
    /// File offsets: of the table of functions, of what function offsets, names and stack pointer tables count from.
    functions: u64,
    details: u64,
    names: u64,
    tables: u64,
    count: u64,
    /// In a function's details: name, table of the stack pointer, flags (0: none).
    name_at: u64,
    table_at: u64,
    flags_at: u64,
    quantum: u64,
}

/// `moduledata.minpc` and `.text`, the same since Go 1.16: a pointer, six slices, a pointer before them.
const MODULE_MIN_PC: u64 = 160;
const MODULE_TEXT: u64 = 176;

/// Adds what Go's table says to the builder. Counts what contradicts the format.
pub(crate) fn functions(builder: &mut Builder, elf: &Elf, data: &dyn ReadAt, section: &Section) {
    match layout(elf, data, section) {
        Some(layout) => Walk::new(elf, data, section, layout).run(builder),
        None => builder.stats.malformed += 1,
    }
}

fn layout(elf: &Elf, data: &dyn ReadAt, section: &Section) -> Option<Layout> {
    let base = section.file_offset;
    let header: [u8; 8] = array(data, base)?;
    let version = match u32::from_le_bytes([header[0], header[1], header[2], header[3]]) {
        0xffff_fffb => 102,
        0xffff_fffa => 116,
        0xffff_fff0 => 118,
        0xffff_fff1 => 120,
        _ => return None,
    };
    let quantum = u64::from(header[6]);
    if header[4..6] != [0, 0] || !matches!(quantum, 1 | 4) || header[7] != 8 {
        return None;
    }
    let word = |index: u64| Some(u64::from_le_bytes(array(data, base.checked_add(8 + 8 * index)?)?));
    let part = |index: u64| base.checked_add(word(index)?);
    let count = word(0)?;
    let mut layout = Layout {
        version,
        entry_bytes: 8,
        text: 0,
        functions: base + 16,
        details: base,
        names: base,
        tables: base,
        count,
        name_at: 8,
        table_at: 20,
        flags_at: 0,
        quantum,
    };
    if version == 116 {
        // Functions begin with the same word as their details; 1.17 has flags, and zeros were there before.
        (layout.names, layout.tables, layout.functions) = (part(2)?, part(5)?, part(6)?);
        layout.details = layout.functions;
        layout.flags_at = 41;
    } else if version >= 118 {
        (layout.names, layout.tables, layout.functions) = (part(3)?, part(6)?, part(7)?);
        layout.details = layout.functions;
        (layout.entry_bytes, layout.name_at, layout.table_at) = (4, 4, 16);
        layout.flags_at = if version == 118 { 37 } else { 41 };
        let first: [u8; 4] = array(data, layout.functions)?;
        layout.text = text_start(elf, data, section, word(2)?, u64::from(u32::from_le_bytes(first)))?;
    }
    let room = section.size.checked_sub(layout.functions.checked_sub(base)?)?;
    (count <= room / (2 * layout.entry_bytes)).then_some(layout)
}

/// The address that function entries count from: in the header up to Go 1.25 (where a position-independent program has a relocation
/// for it), in `moduledata` always.
fn text_start(elf: &Elf, data: &dyn ReadAt, section: &Section, in_header: u64, first: u64) -> Option<u64> {
    if in_header != 0 {
        return Some(in_header);
    }
    let pointers = Pointers { elf, data };
    let confirmed = |module: u64| {
        let text = pointers.at(module.checked_add(MODULE_TEXT)?)?;
        let lowest = pointers.at(module.checked_add(MODULE_MIN_PC)?)?;
        (text.checked_add(first)? == lowest && elf.code_segment(text).is_some()).then_some(text)
    };
    if let Some(text) = elf.section(".go.module").and_then(|module| confirmed(module.address)) {
        return Some(text);
    }
    if let Some(text) = pointers.to(section.address, &confirmed) {
        return Some(text);
    }
    // A program that Go linked by itself begins with it.
    elf.section(".text").map(|text| text.address)
}

/// Pointers in data, which the linker may have left to relocations.
struct Pointers<'a> {
    elf: &'a Elf,
    data: &'a dyn ReadAt,
}

impl Pointers<'_> {
    /// The pointer at a linker's address.
    fn at(&self, address: u64) -> Option<u64> {
        let offset = self.elf.offset_of(address)?;
        let value = u64::from_le_bytes(array(self.data, offset)?);
        if value != 0 {
            return Some(value);
        }
        let mut found = None;
        self.relocations(&mut |place, value| {
            found = (place == address).then_some(value);
            found.is_some()
        });
        found
    }

    /// The first address with a pointer to `target` that `confirm` makes something of.
    fn to<T>(&self, target: u64, confirm: &dyn Fn(u64) -> Option<T>) -> Option<T> {
        let mut candidates = Vec::new();
        self.relocations(&mut |place, value| {
            if value == target {
                candidates.push(place);
            }
            candidates.len() >= 16
        });
        for segment in self.elf.segments.iter().filter(|segment| !segment.executable) {
            let end = segment.file_offset + segment.file_size;
            let mut window = Window::new(self.data, end);
            let mut offset = segment.file_offset.next_multiple_of(8);
            while let Some(block) = window.get(offset, 4096.min(end.saturating_sub(offset) as usize & !7)) {
                if block.is_empty() || candidates.len() >= 32 {
                    break;
                }
                let words = block.chunks_exact(8).enumerate();
                let hits = words.filter(|(_, word)| **word == target.to_le_bytes());
                candidates.extend(
                    hits.map(|(index, _)| {
                        segment.address + (offset - segment.file_offset) + 8 * index as u64
                    }),
                );
                offset += block.len() as u64;
            }
        }
        candidates.into_iter().find_map(confirm)
    }

    /// Calls `each` with place and value of each relative relocation until it returns true.
    fn relocations(&self, each: &mut dyn FnMut(u64, u64) -> bool) {
        // R_X86_64_RELATIVE, R_AARCH64_RELATIVE
        let relative = if self.elf.arch == Arch::X86_64 { 8 } else { 1027 };
        let Some(section) = self.elf.section(".rela.dyn").or_else(|| self.elf.section(".rela")) else {
            return;
        };
        let Some(end) = section.file_offset.checked_add(section.size) else { return };
        let mut window = Window::new(self.data, end);
        let mut at = section.file_offset;
        while let (Some(place), Some(kind), Some(value)) =
            (window.u64(at), window.u64(at + 8), window.u64(at + 16))
        {
            if kind == relative && each(place, value) {
                return;
            }
            at += 24;
        }
    }
}

/// What is known about a function besides its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// Follow the table.
    Ordinary,
    /// It leaves its stack: only frame pointers lead on.
    SwitchesStacks,
    Outermost,
    SignalReturn,
}

/// Functions that matter to an unwinder, all written in assembly.
fn role(name: &[u8], flags: u8) -> Role {
    match name {
        b"runtime.sigreturn" | b"runtime.sigreturn__sigaction" => Role::SignalReturn,
        // Flagged as outermost, but the kernel's signal frame is right above it.
        b"runtime.sigtramp" | b"runtime.cgoSigtramp" => Role::Ordinary,
        b"runtime.goexit" | b"runtime.rt0_go" | b"runtime.mstart" | b"runtime.mcall" | b"_rt0_amd64"
        | b"_rt0_amd64_linux" | b"_rt0_arm64_linux" => Role::Outermost,
        b"runtime.systemstack" | b"runtime.asmcgocall" | b"runtime.morestack" | b"runtime.gogo" => {
            Role::SwitchesStacks
        }
        _ if flags & TOP_FRAME != 0 => Role::Outermost,
        _ if flags & WRITES_SP != 0 => Role::SwitchesStacks,
        _ => Role::Ordinary,
    }
}

struct Walk<'a> {
    layout: Layout,
    arch: Arch,
    elf: &'a Elf,
    end: u64,
    entries: Window<'a>,
    details: Window<'a>,
    names: Pages<'a>,
    tables: Pages<'a>,
    /// Steps through tables that may still be taken: many functions may share one table, a hostile file could make all share a long one.
    steps_left: u64,
}

impl<'a> Walk<'a> {
    fn new(elf: &'a Elf, data: &'a dyn ReadAt, section: &Section, layout: Layout) -> Self {
        let end = section.file_offset.saturating_add(section.size);
        Walk {
            layout,
            arch: elf.arch,
            elf,
            end,
            entries: Window::with_capacity(data, end, 64 << 10),
            details: Window::with_capacity(data, end, 64 << 10),
            names: Pages::new(data, end),
            tables: Pages::new(data, end),
            steps_left: 64 << 20,
        }
    }

    /// Linker's address of function `index` and file offset of its details. The address past the last function has no details.
    fn entry(&mut self, index: u64) -> Option<(u64, u64)> {
        let width = self.layout.entry_bytes;
        let at = self.layout.functions.checked_add(index.checked_mul(2 * width)?)?;
        let (entry, details) = if width == 8 {
            let entry = self.entries.u64(at)?;
            (entry, if index < self.layout.count { self.entries.u64(at + 8)? } else { 0 })
        } else {
            let entry = self.layout.text.checked_add(u64::from(self.entries.u32(at)?))?;
            (entry, if index < self.layout.count { u64::from(self.entries.u32(at + 4)?) } else { 0 })
        };
        Some((entry, self.layout.details.checked_add(details)?))
    }

    fn role_of(&mut self, details: u64) -> Option<(Role, u64)> {
        let layout = &self.layout;
        let name = u64::from(self.details.u32(details.checked_add(layout.name_at)?)?);
        let table = self.details.u32(details.checked_add(layout.table_at)?)?;
        let flags = match layout.flags_at {
            0 => 0,
            at => self.details.get(details.checked_add(at)?, 1)?[0],
        };
        // Names take reading; since Go 1.17 only assembly has any that matter. Go 1.16 has the same layout without flags.
        let names_matter = layout.version <= 116 || flags & ASSEMBLY != 0;
        let role = if names_matter {
            let name = self.names.name(self.layout.names.checked_add(name)?, 64).unwrap_or_default();
            role(&name, flags)
        } else {
            role(b"", flags)
        };
        let table = if table == 0 { 0 } else { self.layout.tables.checked_add(u64::from(table))? };
        Some((role, table.min(self.end)))
    }

    fn run(mut self, builder: &mut Builder) {
        let mut functions = 0;
        let mut next = self.entry(0).map(|(start, details)| (start, self.role_of(details)));
        for index in 0..self.layout.count {
            let Some((start, function)) = next else {
                builder.stats.malformed += 1;
                break;
            };
            let Some((end, details)) = self.entry(index + 1) else {
                builder.stats.malformed += 1;
                break;
            };
            let following = if index + 1 < self.layout.count { self.role_of(details) } else { None };
            next = Some((end, following));
            let Some((role, table)) = function.filter(|_| start < end) else {
                builder.stats.malformed += 1;
                continue;
            };
            // The kernel returns to the first byte of the signal's return code, and return addresses are looked up one byte before.
            let ends_early = following.is_some_and(|(role, _)| role == Role::SignalReturn);
            let end = end - u64::from(ends_early);
            let start = start - u64::from(role == Role::SignalReturn && start > 0);
            let Some(segment) = self.elf.code_segment(start).filter(|s| s.offset_of(end - 1).is_some())
            else {
                builder.stats.outside += 1;
                continue;
            };
            let segment: &Segment = segment;
            let (from, to) = (start.wrapping_sub(segment.bias()), end.wrapping_sub(segment.bias()));
            let mut damaged = false;
            let taken = builder.function(from, to, |rows| match role {
                Role::Outermost => rows.push(0, Rule::STOP),
                Role::SignalReturn => rows.push(0, Rule::SIGNAL),
                Role::SwitchesStacks => rows.push(0, Rule::STACK_SWITCH),
                Role::Ordinary if table == 0 => rows.push(0, self.rule(0)),
                Role::Ordinary => {
                    damaged =
                        self.table(table, end - start, &mut |into, rule| rows.push(into, rule)).is_none()
                }
            });
            builder.stats.malformed += u64::from(damaged);
            functions += u64::from(taken);
        }
        builder.stats.go_functions += functions;
    }

    /// Goes through a table of stack pointer distances: pairs of (change of the distance, length of the code it holds for).
    fn table(&mut self, mut at: u64, length: u64, row: &mut dyn FnMut(u64, Rule)) -> Option<()> {
        let (mut distance, mut into) = (-1i64, 0u64);
        let mut first = true;
        while into < length {
            let change = self.tables.uleb32(&mut at)?;
            if change == 0 && !first {
                break;
            }
            self.steps_left = self.steps_left.checked_sub(1)?;
            first = false;
            distance += i64::from((change >> 1) as i32 ^ -((change & 1) as i32));
            row(into, self.rule(distance));
            let code = u64::from(self.tables.uleb32(&mut at)?);
            into = into.checked_add(code.checked_mul(self.layout.quantum)?)?;
        }
        Some(())
    }

    /// The rule where the stack pointer is `distance` bytes below its place at the function's entry.
    fn rule(&self, distance: i64) -> Rule {
        let Ok(cfa_offset) = i32::try_from(distance) else { return Rule::UNSUPPORTED };
        if cfa_offset < 0 {
            return Rule::UNSUPPORTED;
        }
        let mut rule = Rule { cfa: CfaKind::Sp, bx: Saved::Undefined, ..Rule::default() };
        match self.arch {
            Arch::X86_64 => {
                let Some(cfa_offset) = cfa_offset.checked_add(8) else { return Rule::UNSUPPORTED };
                rule.cfa_offset = cfa_offset;
                (rule.ra, rule.ra_offset) = (Saved::AtCfa, -8);
                if distance > 0 {
                    (rule.fp, rule.fp_offset) = (Saved::AtCfa, -16);
                }
            }
            Arch::Arm64 => {
                rule.cfa_offset = cfa_offset;
                if distance > 0 {
                    // Frames too large for the rule's numbers have a frame record all the same.
                    let Ok(fp_offset) = i16::try_from(-distance - 8) else { return Rule::FRAME_POINTER };
                    (rule.ra, rule.ra_offset) = (Saved::AtCfa, fp_offset + 8);
                    (rule.fp, rule.fp_offset) = (Saved::AtCfa, fp_offset);
                }
            }
        }
        rule
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::go_table;

    /// The tables of `fuzz/corpus/gopclntab` describe the same five functions in four formats.
    #[test]
    fn every_version_says_the_same() {
        let at_sp = |distance: i32| Rule {
            cfa: CfaKind::Sp,
            cfa_offset: distance + 8,
            ra: Saved::AtCfa,
            ra_offset: -8,
            fp: if distance > 0 { Saved::AtCfa } else { Saved::Same },
            fp_offset: if distance > 0 { -16 } else { 0 },
            bx: Saved::Undefined,
            ..Rule::default()
        };
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/gopclntab");
        for version in ["go-1.2", "go-1.16", "go-1.18", "go-1.20"] {
            let bytes = std::fs::read(folder.join(version)).unwrap();
            let table = go_table(&bytes, Arch::X86_64);
            assert_eq!((table.stats.go_functions, table.stats.malformed), (5, 0), "{version}");
            let rows: Vec<_> = table
                .rows
                .iter()
                .map(|row| (row.offset - 0x10_0000, table.rules[usize::from(row.rule)]))
                .collect();
            let expected = [
                // main.main
                (0, at_sp(0)),
                (4, at_sp(0x28)),
                (64, at_sp(0)),
                (68, at_sp(0x28)),
                // runtime.goexit
                (128, Rule::STOP),
                // runtime.sigreturn__sigaction: one byte early
                (159, Rule::SIGNAL),
                // runtime.systemstack
                (192, Rule::STACK_SWITCH),
                // main.leaf
                (224, at_sp(0)),
                (227, at_sp(8)),
                (229, at_sp(0x108)),
                (352, Rule::NONE),
            ];
            assert_eq!(rows, expected, "{version}");
        }
    }

    #[test]
    fn names_decide_where_flags_do_not() {
        assert_eq!(role(b"runtime.sigtramp", TOP_FRAME | ASSEMBLY), Role::Ordinary);
        assert_eq!(role(b"runtime.goexit", 0), Role::Outermost);
        assert_eq!(role(b"", TOP_FRAME), Role::Outermost);
        assert_eq!(role(b"runtime.nanotime1", WRITES_SP | ASSEMBLY), Role::SwitchesStacks);
        assert_eq!(role(b"main.main", 0), Role::Ordinary);
    }
}
