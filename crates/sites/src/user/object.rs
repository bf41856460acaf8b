//! A program or library that is open: its functions, its code.

use crate::demangle::{demangle, is_called};
use crate::elf::{Elf, Function, read};
use crate::error::{Error, Kind, Result};
use crate::files::{self, Found};
use crate::glob;
use crate::system::System;
use lightfoot_unwind::ReadAt;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Where distributions put the symbols that they strip off.
const DEBUG_FOLDER: &str = "/usr/lib/debug/.build-id";

/// A file that is read where it is needed.
pub(crate) struct Bytes(pub File);

impl ReadAt for Bytes {
    fn len(&self) -> u64 {
        self.0.metadata().map_or(0, |metadata| metadata.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        self.0.read_exact_at(into, offset).ok()
    }
}

/// A file that is open and understood.
pub(crate) struct Object {
    pub found: Found,
    pub elf: Elf,
    pub data: Bytes,
    /// Where the code of Go is, if there is any.
    go: Option<Range<u64>>,
}

impl Object {
    /// Opens a file and reads its symbols, also those that were stripped off it if they are installed.
    pub fn open(system: &System, found: &Found) -> Result<Object> {
        let (file, _) = files::open(found)?;
        let data = Bytes(file);
        let not_elf = |why: String| {
            Error::new(Kind::Io, format!("{}: {why}; give a program or a library", found.shown))
        };
        let mut elf = Elf::parse(&data, None).map_err(not_elf)?;
        if !elf.symbols
            && let Some(debug) = debug_file(system, elf.build_id())
            && let Ok(whole) = Elf::parse(&data, Some(&debug))
        {
            elf = whole;
        }
        let go = go_code(&elf);
        Ok(Object { found: found.clone(), elf, data, go })
    }
}

/// The separate file of symbols with this build ID.
fn debug_file(system: &System, id: &[u8]) -> Option<Bytes> {
    let (first, rest) = id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let file = Bytes(File::open(system.file(format!("{DEBUG_FOLDER}/{first:02x}/{rest}.debug"))).ok()?);
    (lightfoot_unwind::Elf::parse(&file).ok()?.build_id == id).then_some(file)
}

/// The function around an address: by symbols, otherwise by the table of frames.
pub(super) fn bounds(object: &Object, address: u64) -> Option<(u64, u64)> {
    if let Some(function) = object.elf.holding(address) {
        return Some((function.address, object.elf.end(function)));
    }
    let range = lightfoot_unwind::function_range(&object.data, object.elf.offset_of(address)?).ok()??;
    let start = object.elf.address_of(range.start)?;
    Some((start, start + (range.end - range.start)))
}

/// Up to `length` bytes at an address.
pub(super) fn data_at(object: &Object, address: u64, length: u64) -> Option<Vec<u8>> {
    let offset = object.elf.data_offset_of(address)?;
    read(&object.data, offset, length.min(object.data.len().saturating_sub(offset)))
}

/// Whether the function at this address is Go's.
pub(super) fn is_go(object: &Object, address: u64) -> bool {
    object.go.as_ref().is_some_and(|go| go.contains(&address))
}

/// Where the code of Go is: in a file of Go all between `runtime.text` and `runtime.etext`, or everything.
fn go_code(elf: &Elf) -> Option<Range<u64>> {
    let of =
        |name: &str| elf.functions().iter().find(|function| elf.name(function) == name).map(|f| f.address);
    elf.go.then(|| of("runtime.text").zip(of("runtime.etext")).map_or(0..u64::MAX, |(start, end)| start..end))
}

/// The functions that a name stands for: one for each address, with the name it is shown by. A symbol comes before names of the source.
pub(crate) fn functions<'a>(object: &'a Object, name: &str, demangled: bool) -> Vec<(String, &'a Function)> {
    let elf = &object.elf;
    let mut by_address: BTreeMap<u64, (String, &Function)> = BTreeMap::new();
    let mut add = |shown: String, function: &'a Function| {
        by_address
            .entry(function.address)
            .and_modify(|known| {
                // Of the names of one place the plainest is shown.
                if (leading(&shown), shown.len(), shown.as_str())
                    < (leading(&known.0), known.0.len(), known.0.as_str())
                {
                    *known = (shown.clone(), function);
                }
            })
            .or_insert_with(|| (shown, function));
    };
    let pattern = glob::is_glob(name);
    if !demangled {
        for function in elf.functions() {
            let symbol = elf.name(function);
            if if pattern { glob::matches(name, symbol) } else { symbol == name } {
                add(symbol.to_owned(), function);
            }
        }
    }
    if by_address.is_empty() {
        // Most symbols cannot be it: they do not contain its last part.
        let plain = name.split(['<', '(']).next().unwrap_or_default();
        let words = plain.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
        let part = words.max_by_key(|word| word.len());
        let mut add = |shown: String, function: &'a Function| {
            by_address.entry(function.address).or_insert((shown, function));
        };
        for function in elf.functions() {
            let symbol = elf.name(function);
            if !pattern && part.is_some_and(|part| !symbol.contains(part)) {
                continue;
            }
            let Some(source) = demangle(symbol) else { continue };
            if if pattern { glob::matches(name, &source) } else { is_called(&source, name) } {
                add(symbol.to_owned(), function);
            }
        }
    }
    let mut found: Vec<(String, &Function)> = by_address.into_values().collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn leading(name: &str) -> usize {
    name.bytes().take_while(|&byte| byte == b'_').count()
}
