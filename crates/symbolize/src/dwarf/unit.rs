//! One unit (about one source file, or one crate's part): the functions and lines at addresses in it. Two passes, over its entries
//! and over its line table, and only what covers an address is kept.

use super::Budget;
use super::names::Names;
use super::piece::Piece;
use crate::names::printable;
use crate::{Named, NamedFrame};
use gimli::{AttributeValue, DebugInfoOffset, Dwarf, EntriesRaw, Reader, Unit, UnitOffset};
use std::collections::HashMap;

/// Functions inlined into each other at one address; deeper ones are left out.
const INLINED_MAX: usize = 64;
/// Longest path of a source file, in bytes.
const PATH_BYTES: usize = 4096;

/// A function that covers an address.
struct Function {
    /// Its entry, relative to the unit.
    entry: UnitOffset<usize>,
    /// First address.
    start: u64,
    /// Where it was called, if it is inlined: file (index in the line table) and line.
    call: (u64, u32),
}

/// What is known about one address.
#[derive(Default)]
struct Place {
    /// The real function first, then inlined ones, innermost last.
    functions: Vec<Function>,
    /// File (index in the line table) and line.
    line: Option<(u64, u32)>,
}

/// Adds to `named` what the unit at `offset` knows about the addresses with these indices.
pub(crate) fn improve<'a>(
    dwarf: &Dwarf<Piece<'a>>,
    offset: usize,
    addresses: &[u64],
    indices: &[usize],
    named: &mut [Named],
    names: &mut Names<'_, 'a>,
    budget: &mut Budget,
) -> gimli::Result<()> {
    let header = dwarf.debug_info.header_from_offset(DebugInfoOffset(offset))?;
    budget.unit(header.length_including_self() as u64)?;
    let unit = dwarf.unit(header)?;
    let mut places: Vec<Place> = indices.iter().map(|_| Place::default()).collect();
    let wanted: Vec<u64> = indices.iter().map(|&index| addresses[index]).collect();
    // What was found before damage is used all the same.
    let functions = find_functions(dwarf, &unit, &wanted, &mut places, budget);
    let lines = find_lines(&unit, &wanted, &mut places, budget);
    let mut files = Files { dwarf, unit: &unit, paths: HashMap::new() };
    for (&index, place) in indices.iter().zip(&places) {
        if let Some(frames) = frames(place, &named[index], &unit, names, &mut files) {
            named[index] = Named::Known { frames };
        }
    }
    functions.and(lines)
}

/// Indices of the addresses in `wanted` (sorted) from `begin` up to `end`.
pub(crate) fn within(wanted: &[u64], begin: u64, end: u64) -> std::ops::Range<usize> {
    let from = wanted.partition_point(|&address| address < begin);
    from..from + wanted[from..].partition_point(|&address| address < end)
}

/// Indices of the addresses in `wanted` (sorted) that a unit says it covers.
pub(crate) fn covered<'a>(
    dwarf: &Dwarf<Piece<'a>>,
    unit: &Unit<Piece<'a>>,
    wanted: &[u64],
    budget: &mut Budget,
) -> gimli::Result<Vec<usize>> {
    let mut entries = unit.header.entries_raw(&unit.abbreviations, None)?;
    let Some(root) = entries.read_abbreviation()? else { return Ok(vec![]) };
    let extent = Extent::read(dwarf, unit, &mut entries, root.attributes())?;
    extent.covered(dwarf, unit, wanted, budget)
}

/// The functions that cover each of `wanted` (sorted).
fn find_functions<'a>(
    dwarf: &Dwarf<Piece<'a>>,
    unit: &Unit<Piece<'a>>,
    wanted: &[u64],
    places: &mut [Place],
    budget: &mut Budget,
) -> gimli::Result<()> {
    let mut entries = unit.header.entries_raw(&unit.abbreviations, None)?;
    // Functions that are open here: their depth, and the addresses that they cover.
    let mut open: Vec<(isize, Vec<usize>)> = Vec::new();
    while !entries.is_empty() {
        let (entry, depth) = (entries.next_offset(), entries.next_depth());
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        budget.step()?;
        while open.last().is_some_and(|(function, _)| *function >= depth) {
            open.pop();
        }
        let inlined = abbreviation.tag() == gimli::DW_TAG_inlined_subroutine;
        if !(inlined && !open.is_empty() || abbreviation.tag() == gimli::DW_TAG_subprogram) {
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        let extent = Extent::read(dwarf, unit, &mut entries, abbreviation.attributes())?;
        let covered = extent.covered(dwarf, unit, wanted, budget)?;
        // An inlined function covers only addresses of the function around it.
        let around = open.last().map(|(_, around)| around.as_slice()).filter(|_| inlined);
        let covered: Vec<usize> =
            covered.into_iter().filter(|index| around.is_none_or(|around| around.contains(index))).collect();
        for &index in &covered {
            let functions = &mut places[index].functions;
            if !inlined {
                functions.clear();
            }
            if functions.len() < INLINED_MAX {
                functions.push(Function { entry, start: extent.start, call: extent.call });
            }
        }
        if !covered.is_empty() && abbreviation.has_children() {
            open.push((depth, covered));
        }
    }
    Ok(())
}

/// The part of a function's entry that says where it is.
#[derive(Default)]
struct Extent<'a> {
    start: u64,
    end: u64,
    ranges: Option<AttributeValue<Piece<'a>>>,
    call: (u64, u32),
}

impl<'a> Extent<'a> {
    fn read(
        dwarf: &Dwarf<Piece<'a>>,
        unit: &Unit<Piece<'a>>,
        entries: &mut EntriesRaw<'_, Piece<'a>>,
        attributes: &[gimli::AttributeSpecification],
    ) -> gimli::Result<Extent<'a>> {
        let mut extent = Extent::default();
        let mut size = None;
        for &attribute in attributes {
            let attribute = entries.read_attribute(attribute)?;
            match attribute.name() {
                gimli::DW_AT_low_pc => {
                    extent.start = dwarf.attr_address(unit, attribute.value())?.unwrap_or(0);
                }
                gimli::DW_AT_high_pc => match attribute.value() {
                    AttributeValue::Udata(bytes) => size = Some(bytes),
                    value => extent.end = dwarf.attr_address(unit, value)?.unwrap_or(0),
                },
                gimli::DW_AT_ranges => extent.ranges = Some(attribute.value()),
                gimli::DW_AT_call_file => match attribute.value() {
                    AttributeValue::FileIndex(file) => extent.call.0 = file,
                    value => extent.call.0 = value.udata_value().unwrap_or(0),
                },
                gimli::DW_AT_call_line => {
                    let line = attribute.value().udata_value().unwrap_or(0);
                    extent.call.1 = u32::try_from(line).unwrap_or(0);
                }
                _ => {}
            }
        }
        if let Some(size) = size {
            extent.end = extent.start.saturating_add(size);
        }
        Ok(extent)
    }

    /// Indices of the addresses in `wanted` that the function covers.
    fn covered(
        &self,
        dwarf: &Dwarf<Piece<'a>>,
        unit: &Unit<Piece<'a>>,
        wanted: &[u64],
        budget: &mut Budget,
    ) -> gimli::Result<Vec<usize>> {
        let Some(ranges) = self.ranges.clone() else {
            return Ok(within(wanted, self.start, self.end).collect());
        };
        let mut covered = Vec::new();
        if let Some(mut ranges) = dwarf.attr_ranges(unit, ranges)? {
            while let Some(range) = ranges.next()? {
                budget.step()?;
                covered.extend(within(wanted, range.begin, range.end));
            }
        }
        covered.sort_unstable();
        covered.dedup();
        Ok(covered)
    }
}

/// The line of each of `wanted` (sorted).
fn find_lines(
    unit: &Unit<Piece<'_>>,
    wanted: &[u64],
    places: &mut [Place],
    budget: &mut Budget,
) -> gimli::Result<()> {
    let Some(program) = unit.line_program.clone() else { return Ok(()) };
    let mut rows = program.rows();
    // A row holds from its address to the next row's.
    let mut before: Option<(u64, u64, u32)> = None;
    while let Some((_, row)) = rows.next_row()? {
        budget.step()?;
        if let Some((start, file, line)) = before
            && start < row.address()
        {
            for place in &mut places[within(wanted, start, row.address())] {
                place.line = Some((file, line));
            }
        }
        let line = row.line().map_or(0, |line| u32::try_from(line.get()).unwrap_or(0));
        before = (!row.end_sequence()).then(|| (row.address(), row.file_index(), line));
    }
    Ok(())
}

/// The frames at a place; `None` if nothing is known that `before` (the symbol table's answer) does not say.
fn frames<'a>(
    place: &Place,
    before: &Named,
    unit: &Unit<Piece<'a>>,
    names: &mut Names<'_, 'a>,
    files: &mut Files<'_, 'a>,
) -> Option<Vec<NamedFrame>> {
    let symbol = match before {
        Named::Known { frames } => frames.first(),
        Named::Unknown { .. } => None,
    };
    let outer = place.functions.first();
    // The symbol table's name is kept where there is one: it tells apart the copies of a function that compilers make.
    let name = match (symbol, outer) {
        (Some(symbol), _) => symbol.name.clone(),
        (None, Some(outer)) => names.of(unit, outer.entry)?.to_string(),
        (None, None) => return None,
    };
    let address = symbol.map_or_else(|| outer.map_or(0, |outer| outer.start), |symbol| symbol.address);
    let mut frames = vec![NamedFrame { name, file: None, line: 0, address, inlined: false }];
    for function in place.functions.iter().skip(1) {
        let name = names.of(unit, function.entry).map_or_else(|| "[inlined]".into(), |name| name.to_string());
        // The call is in the function around it.
        if let Some(caller) = frames.last_mut() {
            (caller.file, caller.line) = (files.path(function.call.0), function.call.1);
        }
        frames.push(NamedFrame { name, file: None, line: 0, address, inlined: true });
    }
    if let (Some((file, line)), Some(innermost)) = (place.line, frames.last_mut()) {
        (innermost.file, innermost.line) = (files.path(file), line);
    }
    Some(frames)
}

/// Paths of source files.
struct Files<'u, 'a> {
    dwarf: &'u Dwarf<Piece<'a>>,
    unit: &'u Unit<Piece<'a>>,
    paths: HashMap<u64, Option<String>>,
}

impl Files<'_, '_> {
    /// The path of a file by its index in the line table.
    fn path(&mut self, index: u64) -> Option<String> {
        if let Some(path) = self.paths.get(&index) {
            return path.clone();
        }
        let path = self.join(index);
        self.paths.insert(index, path.clone());
        path
    }

    fn join(&self, index: u64) -> Option<String> {
        let header = self.unit.line_program.as_ref()?.header();
        let file = header.file(index)?;
        let text = |value| {
            let text = self.dwarf.attr_string(self.unit, value).ok()?;
            Some(printable(&text.to_slice().ok()?, PATH_BYTES))
        };
        let name = text(file.path_name())?;
        let folder = file.directory(header).and_then(text).unwrap_or_default();
        let compiled_in = || {
            let folder = self.unit.comp_dir.as_ref()?.to_slice().ok()?;
            Some(printable(&folder, PATH_BYTES))
        };
        let mut path = name;
        for folder in [Some(folder), compiled_in()].into_iter().flatten() {
            if path.starts_with('/') {
                break;
            }
            if !folder.is_empty() && folder != "." {
                path = format!("{}/{path}", folder.trim_end_matches('/'));
            }
        }
        (!path.is_empty()).then_some(path)
    }
}
