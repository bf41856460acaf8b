//! Lines and inlined functions from debug information (DWARF), through gimli.
//!
//! Only what the addresses need is read: the units that hold them, in pieces of 16 KiB. Memory stays at a few MiB whatever the
//! size of the debug information, except for compressed sections, which have to be unpacked as a whole. (blazesym, which maps the
//! file and indexes all units, took 17 to 33 MiB for 10 MB of debug information.)

mod names;
mod piece;
mod sections;
mod unit;

use crate::elf::Elf;
use crate::{Named, Options};
use gimli::Dwarf;
use names::Names;
use piece::Piece;
use sections::Sections;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Note when a bound was reached.
const TOO_LARGE: &str = "debug information above the limit: some names without lines and inlined functions";

/// Longest time for one object, wall time: for forged files, in which a few bytes refer to much work over and over. 32 MB of honest
/// debug information take about 0.1 s.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// How much more may be looked at.
pub(crate) struct Budget {
    /// Entries, ranges and lines.
    steps: u64,
    /// Bytes of units.
    bytes: u64,
    end: Instant,
}

impl Budget {
    fn new(bytes: u64) -> Budget {
        Budget { steps: bytes, bytes, end: Instant::now() + TIME_LIMIT }
    }

    /// Counts one step.
    fn step(&mut self) -> gimli::Result<()> {
        self.steps = self.steps.saturating_sub(1);
        if self.steps.is_multiple_of(4096) { self.check() } else { Ok(()) }
    }

    /// Counts one unit.
    fn unit(&mut self, bytes: u64) -> gimli::Result<()> {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.check()
    }

    fn check(&mut self) -> gimli::Result<()> {
        if Instant::now() >= self.end {
            self.steps = 0;
        }
        // Any error will do: what it was is read from the budget.
        if self.spent() { Err(gimli::Error::TooManyRegisterRules) } else { Ok(()) }
    }

    fn spent(&self) -> bool {
        self.steps == 0 || self.bytes == 0
    }
}

/// Whether the file has debug information.
pub(crate) fn present(elf: &Elf<'_>) -> bool {
    Sections::present(elf)
}

/// Adds lines and inlined functions to what is known about `addresses` (ELF virtual addresses, sorted and distinct) where the
/// debug information in `elf` has them. `shared` is the supplementary file that it refers to, if there is one.
///
/// # Errors
/// A note for people, if something was left out.
pub(crate) fn improve(
    elf: &Elf<'_>,
    shared: Option<&Elf<'_>>,
    addresses: &[u64],
    named: &mut [Named],
    options: &Options,
) -> Result<(), &'static str> {
    let mut unpacked_left = options.unpacked_limit_bytes;
    let sections = Sections::open(elf, &mut unpacked_left)?;
    // Without the shared part some inlined functions have no name; their lines are right all the same.
    let shared = shared.and_then(|elf| Sections::open(elf, &mut unpacked_left).ok());
    let mut budget = Budget::new(options.debug_info_limit_bytes);
    // The bytes are foreign: a panic in a parser must not end the run.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut dwarf = sections.dwarf();
        if let Some(shared) = &shared {
            dwarf.set_sup(shared.dwarf());
        }
        let units = units_of(&dwarf, addresses, &mut budget);
        let mut names = Names::new(&dwarf);
        let mut complete = true;
        for (offset, indices) in units {
            complete &=
                unit::improve(&dwarf, offset, addresses, &indices, named, &mut names, &mut budget).is_ok();
        }
        complete
    }));
    match outcome {
        Err(_) => Err("symbolizer failed"),
        Ok(_) if budget.spent() => Err(TOO_LARGE),
        Ok(false) => Err("debug information is damaged: some names without lines"),
        Ok(true) => Ok(()),
    }
}

/// The units that hold the addresses: offset of the unit in `.debug_info` to indices of addresses.
fn units_of(dwarf: &Dwarf<Piece<'_>>, addresses: &[u64], budget: &mut Budget) -> BTreeMap<usize, Vec<usize>> {
    let mut unit_of: Vec<Option<usize>> = vec![None; addresses.len()];
    // Damage ends the search, not the naming of what was found before.
    let _ = from_aranges(dwarf, addresses, &mut unit_of, budget);
    if unit_of.iter().any(Option::is_none) {
        let _ = from_units(dwarf, addresses, &mut unit_of, budget);
    }
    let mut units: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, unit) in unit_of.iter().enumerate() {
        if let Some(unit) = unit {
            units.entry(*unit).or_default().push(index);
        }
    }
    units
}

/// By the index that some compilers write (`.debug_aranges`).
fn from_aranges(
    dwarf: &Dwarf<Piece<'_>>,
    addresses: &[u64],
    unit_of: &mut [Option<usize>],
    budget: &mut Budget,
) -> gimli::Result<()> {
    let mut headers = dwarf.debug_aranges.headers();
    while let Some(header) = headers.next()? {
        let unit = header.debug_info_offset().0;
        let mut entries = header.entries();
        while let Some(entry) = entries.next()? {
            budget.step()?;
            let end = entry.address().saturating_add(entry.length());
            for index in unit::within(addresses, entry.address(), end) {
                unit_of[index].get_or_insert(unit);
            }
        }
    }
    Ok(())
}

/// By the ranges that each unit says it has.
fn from_units(
    dwarf: &Dwarf<Piece<'_>>,
    addresses: &[u64],
    unit_of: &mut [Option<usize>],
    budget: &mut Budget,
) -> gimli::Result<()> {
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        let Some(offset) = header.debug_info_offset() else { continue };
        budget.unit(0)?;
        // A unit that cannot be understood does not hide the others.
        let covered = dwarf.unit(header).and_then(|unit| unit::covered(dwarf, &unit, addresses, budget));
        for index in covered.unwrap_or_default() {
            unit_of[index].get_or_insert(offset.0);
        }
        if unit_of.iter().all(Option::is_some) {
            break;
        }
    }
    Ok(())
}
