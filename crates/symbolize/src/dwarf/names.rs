//! Names of functions by the place of their entry.

use super::piece::Piece;
use crate::names::pretty;
use gimli::{AttributeValue, DebugInfoOffset, Dwarf, Reader, Unit, UnitOffset};
use std::collections::HashMap;
use std::rc::Rc;

/// An entry refers to the entry that has the name through at most so many others.
const REFERENCES_MAX: usize = 8;
/// Units kept that names were taken from but that hold no address themselves.
const OTHER_UNITS_MAX: usize = 8;

/// A unit, and whether it is in the supplementary file that several debug files share (`dwz`).
type Other<'a> = (Rc<Unit<Piece<'a>>>, bool);

/// Finds names, and remembers them while one object is named.
pub(crate) struct Names<'d, 'a> {
    dwarf: &'d Dwarf<Piece<'a>>,
    /// By offset in `.debug_info`. At most one per function found.
    known: HashMap<usize, Option<Rc<str>>>,
    others: Vec<Other<'a>>,
}

impl<'d, 'a> Names<'d, 'a> {
    pub fn new(dwarf: &'d Dwarf<Piece<'a>>) -> Self {
        Names { dwarf, known: HashMap::new(), others: Vec::new() }
    }

    /// The name of the function whose entry is at `offset` of `unit`, demangled.
    pub fn of(&mut self, unit: &Unit<Piece<'a>>, offset: UnitOffset<usize>) -> Option<Rc<str>> {
        let place = offset.to_debug_info_offset(&unit.header)?.0;
        if let Some(known) = self.known.get(&place) {
            return known.clone();
        }
        let name = self.search(unit, offset).map(|name| Rc::from(pretty(&name)));
        self.known.insert(place, name.clone());
        name
    }

    /// Follows references until a linkage name is found; failing that, the plain name nearest to the start.
    fn search(&mut self, unit: &Unit<Piece<'a>>, mut offset: UnitOffset<usize>) -> Option<Vec<u8>> {
        let mut plain = None;
        let mut other: Option<Other<'a>> = None;
        for _ in 0..REFERENCES_MAX {
            let (unit, shared) = other.as_ref().map_or((unit, false), |(unit, shared)| (&**unit, *shared));
            let Ok(entry) = unit.entry(offset) else { break };
            let mut next = None;
            for attribute in entry.attrs() {
                match attribute.name() {
                    gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                        let name = self.text(unit, shared, attribute.value());
                        return name.or(plain);
                    }
                    gimli::DW_AT_name if plain.is_none() => {
                        plain = self.text(unit, shared, attribute.value())
                    }
                    gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                        next = Some(attribute.value())
                    }
                    _ => {}
                }
            }
            let found = match next {
                Some(AttributeValue::UnitRef(target)) => {
                    offset = target;
                    continue;
                }
                Some(AttributeValue::DebugInfoRef(target)) => self.elsewhere(target, shared),
                Some(AttributeValue::DebugInfoRefSup(target)) => self.elsewhere(target, true),
                _ => break,
            };
            let Some((unit, target)) = found else { break };
            (other, offset) = (Some(unit), target);
        }
        plain
    }

    fn file(&self, shared: bool) -> Option<&'d Dwarf<Piece<'a>>> {
        if shared { self.dwarf.sup() } else { Some(self.dwarf) }
    }

    fn text(
        &self,
        unit: &Unit<Piece<'a>>,
        shared: bool,
        value: AttributeValue<Piece<'a>>,
    ) -> Option<Vec<u8>> {
        let text = self.file(shared)?.attr_string(unit, value).ok()?;
        Some(text.to_slice().ok()?.into_owned()).filter(|text| !text.is_empty())
    }

    /// The unit that holds a place in `.debug_info` of this file or the supplementary one.
    fn elsewhere(
        &mut self,
        target: DebugInfoOffset<usize>,
        shared: bool,
    ) -> Option<(Other<'a>, UnitOffset<usize>)> {
        let within = |other: &Other<'a>| {
            let at = target.to_unit_offset(&other.0.header).filter(|_| other.1 == shared)?;
            Some((other.clone(), at))
        };
        if let Some(found) = self.others.iter().find_map(within) {
            return Some(found);
        }
        let dwarf = self.file(shared)?;
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            if target.to_unit_offset(&header).is_some() {
                let other = (Rc::new(dwarf.unit(header).ok()?), shared);
                if self.others.len() >= OTHER_UNITS_MAX {
                    self.others.remove(0);
                }
                self.others.push(other.clone());
                return within(&other);
            }
        }
        None
    }
}
