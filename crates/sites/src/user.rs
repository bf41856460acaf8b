//! Probes of programs and libraries.

use crate::choose::{self, Code, Needs, Offer};
use crate::demangle::{demangle, is_called};
use crate::elf::{Elf, Function, read};
use crate::error::{Error, Kind, Result};
use crate::files::{self, Found};
use crate::glob;
use crate::instruction;
use crate::near::{did_you_mean, nearest};
use crate::place::{Place, Site};
use crate::resolve::{Options, too_many};
use crate::scan::{self, Window};
use crate::spec::{At, Spec};
use crate::system::System;
use crate::usdt;
use lightfoot_model::{Instruction, Mechanism};
use lightfoot_unwind::ReadAt;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};

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

/// A place that was asked for, before the cheapest one with its meaning is looked for.
struct Asked {
    /// Number of the spec.
    spec: usize,
    name: String,
    object: usize,
    /// Address of the function, and its end.
    start: u64,
    end: u64,
    /// Bytes from its start.
    offset: u64,
    returns: bool,
    /// An address was given: that instruction is meant.
    literal: bool,
    /// Of a USDT probe: its semaphore as an offset in the file. `Some(None)`: it has none.
    usdt: Option<Option<u64>>,
    warnings: Vec<String>,
}

/// The sites of all user probes among `specs`, each with the number of its spec.
pub(crate) fn resolve(system: &System, specs: &[Spec], options: &Options) -> Result<Vec<(usize, Site)>> {
    let mut objects: Vec<Object> = Vec::new();
    let mut by_file: HashMap<(u64, u64), usize> = HashMap::new();
    let mut all: Vec<Asked> = Vec::new();
    for (index, spec) in specs.iter().enumerate() {
        let (Spec::Uprobe { file, .. } | Spec::Usdt { file, .. }) = spec else { continue };
        let files = files::find(system, file, options.pid)?;
        let before = all.len();
        let mut first_error = None;
        for found in &files {
            let metadata = std::fs::metadata(&found.path).map_err(|error| Error::io(&found.shown, &error))?;
            let object = match by_file.get(&(metadata.dev(), metadata.ino())) {
                Some(object) => *object,
                None => match Object::open(system, found) {
                    Ok(object) => {
                        objects.push(object);
                        by_file.insert((metadata.dev(), metadata.ino()), objects.len() - 1);
                        objects.len() - 1
                    }
                    Err(error) => {
                        first_error.get_or_insert(error);
                        continue;
                    }
                },
            };
            match asked(spec, &objects[object], object) {
                Ok(more) => all.extend(more.into_iter().map(|asked| Asked { spec: index, ..asked })),
                Err(error) => drop(first_error.get_or_insert(error)),
            }
            if all.len() > options.limit {
                return Err(too_many(&spec.to_string(), all.len() - before, options));
            }
        }
        // Of several files it is enough that one has what was asked for.
        if all.len() == before {
            return Err(
                first_error.unwrap_or_else(|| Error::not_found(format!("{spec}: nothing matches it")))
            );
        }
    }
    let mut sites = Vec::new();
    for (number, object) in objects.iter().enumerate() {
        let asked: Vec<&Asked> = all.iter().filter(|asked| asked.object == number).collect();
        place(object, &asked, options, &mut sites)?;
    }
    Ok(sites)
}

/// What a spec asks for in one file.
fn asked(spec: &Spec, object: &Object, number: usize) -> Result<Vec<Asked>> {
    match spec {
        Spec::Uprobe { returns, at, .. } => match at {
            At::Address(address) => Ok(vec![at_address(spec, object, number, *address)?]),
            At::Function { name, offset, demangled } => {
                let found = functions(object, name, *demangled);
                if found.is_empty() {
                    return Err(no_function(spec, object, name));
                }
                let kind = if *returns { "uretprobe" } else { "uprobe" };
                let each = |(shown, function): (String, &Function)| {
                    let plus = if *offset == 0 { String::new() } else { format!("+{offset}") };
                    let (start, end) = (function.address, object.elf.end(function));
                    let mut asked = Asked {
                        spec: 0,
                        name: format!("{kind}:{}:{shown}{plus}", object.found.shown),
                        object: number,
                        start,
                        end,
                        offset: *offset,
                        returns: *returns,
                        literal: false,
                        usdt: None,
                        warnings: Vec::new(),
                    };
                    if function.chooser {
                        asked.warnings.push(format!("{shown} is chosen among several when the program is loaded: only that choice is probed, not its calls"));
                    }
                    if *offset >= end.saturating_sub(start).max(1) {
                        let message = format!(
                            "{spec}: {shown} has {} bytes, +{offset} lies behind its end",
                            end.saturating_sub(start)
                        );
                        return Err(Error::new(Kind::Offset, message));
                    }
                    Ok(asked)
                };
                found.into_iter().map(each).collect()
            }
        },
        Spec::Usdt { provider, name, .. } => usdt_places(spec, object, number, provider.as_deref(), name),
        _ => Ok(Vec::new()),
    }
}

fn at_address(spec: &Spec, object: &Object, number: usize, address: u64) -> Result<Asked> {
    let elf = &object.elf;
    let outside = || {
        let message = format!(
            "{spec}: {address:#x} is not in the code of {}; give an address as nm prints it",
            object.found.shown
        );
        Error::new(Kind::Offset, message)
    };
    elf.offset_of(address).ok_or_else(outside)?;
    let (start, end) = bounds(object, address).ok_or_else(|| {
        let message = format!(
            "{spec}: {address:#x} is in no function of {}, so it is not known where its instructions begin",
            object.found.shown
        );
        Error::new(Kind::Offset, message)
    })?;
    Ok(Asked {
        spec: 0,
        name: spec.to_string(),
        object: number,
        start,
        end,
        offset: address - start,
        returns: false,
        literal: true,
        usdt: None,
        warnings: Vec::new(),
    })
}

/// The function around an address: by symbols, otherwise by the table of frames.
fn bounds(object: &Object, address: u64) -> Option<(u64, u64)> {
    if let Some(function) = object.elf.holding(address) {
        return Some((function.address, object.elf.end(function)));
    }
    let range = lightfoot_unwind::function_range(&object.data, object.elf.offset_of(address)?).ok()??;
    let start = object.elf.address_of(range.start)?;
    Some((start, start + (range.end - range.start)))
}

fn usdt_places(
    spec: &Spec,
    object: &Object,
    number: usize,
    provider: Option<&str>,
    name: &str,
) -> Result<Vec<Asked>> {
    let notes = usdt::notes(&object.elf, &object.data);
    if notes.is_empty() {
        return Err(Error::new(
            Kind::NoProvider,
            format!("{spec}: {} has no USDT probes", object.found.shown),
        ));
    }
    let of_provider =
        |note: &&usdt::Note| provider.is_none_or(|provider| glob::matches(provider, &note.provider));
    let mut providers: Vec<&str> = notes.iter().map(|note| note.provider.as_str()).collect();
    providers.sort_unstable();
    providers.dedup();
    if !notes.iter().any(|note| of_provider(&note)) {
        let message = format!(
            "{spec}: {} has no provider \"{}\", only {}",
            object.found.shown,
            provider.unwrap_or_default(),
            providers.join(", ")
        );
        return Err(Error::new(Kind::NoProvider, message));
    }
    let mut all = Vec::new();
    for note in notes.iter().filter(of_provider).filter(|note| glob::matches(name, &note.name)) {
        let full = format!("usdt:{}:{}:{}", object.found.shown, note.provider, note.name);
        let mut warnings = Vec::new();
        let semaphore = note.semaphore.and_then(|semaphore| object.elf.data_offset_of(semaphore));
        if note.semaphore.is_some() && semaphore.is_none() {
            warnings
                .push(format!("{full}: its semaphore is not in the file, the probe may stay switched off"));
        }
        if object.elf.offset_of(note.address).is_none() {
            let message = format!("{full}: its address {:#x} is not in the code of the file", note.address);
            return Err(Error::new(Kind::Offset, message));
        }
        let (start, end) = bounds(object, note.address).unwrap_or((note.address, note.address));
        let offset = note.address - start;
        all.push(Asked {
            spec: 0,
            name: full,
            object: number,
            start,
            end,
            offset,
            returns: false,
            literal: false,
            usdt: Some(semaphore),
            warnings,
        });
    }
    if all.is_empty() {
        let near = nearest(name, notes.iter().filter(of_provider).map(|note| note.name.as_str()), 3);
        return Err(Error::not_found(format!(
            "{spec}: {} has no such USDT probe{}",
            object.found.shown,
            did_you_mean(&near)
        )));
    }
    Ok(all)
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

fn no_function(spec: &Spec, object: &Object, name: &str) -> Error {
    let (elf, shown) = (&object.elf, &object.found.shown);
    let id: String = elf.build_id().iter().map(|byte| format!("{byte:02x}")).collect();
    let next = if id.is_empty() {
        "give an address".to_owned()
    } else {
        format!("install its debug symbols (build ID {id}) or give an address")
    };
    if elf.functions().is_empty() {
        return Error::new(Kind::Stripped, format!("{spec}: {shown} is stripped, it has no symbols; {next}"));
    }
    let mut near = nearest(name, elf.functions().iter().map(|function| elf.name(function)), 3);
    if near.is_empty() && name.contains("::") {
        let sources: Vec<String> = elf
            .functions()
            .iter()
            .take(200_000)
            .filter_map(|function| demangle(elf.name(function)))
            .collect();
        near = nearest(name, sources.iter().map(|source| crate::demangle::without_arguments(source)), 3);
    }
    if near.is_empty() && !elf.symbols {
        let message = format!(
            "{spec}: {shown} is stripped, only its exported functions are known, and none is called so; {next}"
        );
        return Error::new(Kind::Stripped, message);
    }
    let what = if glob::is_glob(name) { "no function matches it" } else { "no such function" };
    Error::not_found(format!("{spec}: {what} in {shown}{}", did_you_mean(&near)))
}

/// Chooses the places in one file.
fn place(object: &Object, asked: &[&Asked], options: &Options, sites: &mut Vec<(usize, Site)>) -> Result<()> {
    let codes: Vec<Vec<u8>> = asked.iter().map(|asked| bytes_of(object, asked)).collect();
    let mut offers: Vec<Option<Offer>> = Vec::new();
    for (asked, bytes) in asked.iter().zip(&codes) {
        let movable = !options.naive
            && !asked.literal
            && asked.offset == 0
            && asked.usdt.is_none()
            && !(asked.returns && is_go(object, asked.start));
        offers.push(movable.then(|| offer(object, asked, bytes, options)).transpose()?);
    }
    bound_by_jumps(object, asked, &codes, options, &mut offers);
    let mut refused: Vec<Error> = Vec::new();
    let before = sites.len();
    for ((asked, bytes), offer) in asked.iter().zip(&codes).zip(offers) {
        match chosen(object, asked, bytes, offer, options) {
            Ok(more) => sites.extend(more.into_iter().map(|site| (asked.spec, site))),
            // Of many functions those that cannot be probed are left out, and it is said.
            Err(error) if codes.len() > 1 && matches!(error.kind(), Kind::Refused) => refused.push(error),
            Err(error) => return Err(error),
        }
    }
    match (refused.first(), sites.get_mut(before)) {
        (Some(first), Some((_, site))) => {
            site.warnings.push(format!(
                "{} functions of {} are left out, the first because {first}",
                refused.len(),
                object.found.shown
            ));
        }
        (Some(first), None) => return Err(first.clone()),
        _ => {}
    }
    Ok(())
}

/// Up to `length` bytes at an address.
fn data_at(object: &Object, address: u64, length: u64) -> Option<Vec<u8>> {
    let offset = object.elf.data_offset_of(address)?;
    read(&object.data, offset, length.min(object.data.len().saturating_sub(offset)))
}

/// The function's code; of one whose end is not known, one instruction at the place.
fn bytes_of(object: &Object, asked: &Asked) -> Vec<u8> {
    let Some(offset) = object.elf.offset_of(asked.start) else { return Vec::new() };
    let known = asked.end.saturating_sub(asked.start).min(1 << 20);
    let length = if known == 0 { asked.offset + instruction::LONGEST as u64 } else { known };
    let length = length.min(object.data.len().saturating_sub(offset));
    read(&object.data, offset, length).unwrap_or_default()
}

fn code<'a>(object: &Object, asked: &Asked, bytes: &'a [u8], options: &Options) -> Result<Code<'a>> {
    let outside = || Error::new(Kind::Offset, format!("{}: its code is not in the file", asked.name));
    Ok(Code {
        arch: object.elf.arch(),
        bytes,
        address: asked.start,
        file_offset: object.elf.offset_of(asked.start).ok_or_else(outside)?,
        go: is_go(object, asked.start),
        nop5: options.capabilities.nop5,
    })
}

/// Whether the function at this address is Go's.
fn is_go(object: &Object, address: u64) -> bool {
    object.go.as_ref().is_some_and(|go| go.contains(&address))
}

/// Where the code of Go is: in a file of Go all between `runtime.text` and `runtime.etext`, or everything.
fn go_code(elf: &Elf) -> Option<Range<u64>> {
    let of =
        |name: &str| elf.functions().iter().find(|function| elf.name(function) == name).map(|f| f.address);
    elf.go.then(|| of("runtime.text").zip(of("runtime.etext")).map_or(0..u64::MAX, |(start, end)| start..end))
}

fn offer(object: &Object, asked: &Asked, bytes: &[u8], options: &Options) -> Result<Offer> {
    let needs = Needs { arguments: !asked.returns, return_address: asked.returns };
    let mut offer = choose::offer(&code(object, asked, bytes, options)?, needs);
    // Another function that begins within this one.
    let next = object
        .elf
        .functions()
        .get(object.elf.names_at(asked.start).end)
        .map_or(u64::MAX, |next| next.address - asked.start);
    keep_below(&mut offer, next, "another function begins");
    Ok(offer)
}

/// Keeps the candidates before `limit`, and says why the others are gone.
fn keep_below(offer: &mut Offer, limit: u64, why: &str) {
    let all = offer.candidates.len();
    offer.candidates.retain(|candidate| candidate.offset < limit);
    if offer.candidates.len() < all {
        offer.end = format!("{why} at +{limit}");
    }
}

/// Takes away the candidates behind places that something jumps to.
fn bound_by_jumps(
    object: &Object,
    asked: &[&Asked],
    codes: &[Vec<u8>],
    options: &Options,
    offers: &mut [Option<Offer>],
) {
    let data = |address: u64, length: u64| data_at(object, address, length);
    let mut windows: Vec<Window> = Vec::new();
    for ((asked, bytes), offer) in asked.iter().zip(codes).zip(offers.iter_mut()) {
        let Some(offer) = offer.as_mut().filter(|offer| !offer.candidates.is_empty()) else { continue };
        let Ok(code) = code(object, asked, bytes, options) else { continue };
        let targets = choose::targets(&code, 0, &data);
        if let Some(why) = targets.unknown {
            offer.candidates.clear();
            offer.end = why;
            continue;
        }
        keep_below(offer, targets.lowest, "a branch of the function leads behind it,");
        if let Some(last) = offer.candidates.last() {
            let near = neighbours(object, asked, asked.start + last.offset);
            keep_below(offer, near, "code beside the function leads behind it,");
        }
        if let Some(last) = offer.candidates.last() {
            windows.push(Window { function: asked.start, place: asked.start + last.offset, target: None });
        }
    }
    windows.sort_by_key(|window| (window.function, window.place));
    windows.dedup_by_key(|window| window.function);
    let readable = scan::jumps(&object.data, object.elf.code(), &mut windows);
    for (asked, offer) in asked.iter().zip(offers.iter_mut()) {
        let Some(offer) = offer.as_mut().filter(|offer| !offer.candidates.is_empty()) else { continue };
        let window =
            windows.binary_search_by_key(&asked.start, |window| window.function).map(|at| windows[at]);
        match window {
            Ok(Window { target: Some(target), .. }) => {
                keep_below(offer, target - asked.start, "code elsewhere in the file leads behind it,")
            }
            Ok(_) if readable => {}
            _ => {
                offer.candidates.clear();
                offer.end = "the rest of the file could not be read".to_owned();
            }
        }
    }
}

/// The lowest offset that short jumps of the code before and after lead to. They reach 128 bytes far; longer ones are looked for in the whole
/// file. It is not known where instructions begin there, so each beginning is tried: one of fifteen neighbours is right.
fn neighbours(object: &Object, asked: &Asked, place: u64) -> u64 {
    const REACH: u64 = 128 + instruction::LONGEST as u64;
    let mut lowest = u64::MAX;
    for from in [asked.start.saturating_sub(REACH), asked.end] {
        let Some(bytes) = data_at(object, from, REACH + instruction::LONGEST as u64) else { continue };
        for at in 0..instruction::LONGEST.min(bytes.len()) {
            for target in choose::branches(&bytes[at..], from + at as u64) {
                if target > asked.start && target <= place {
                    lowest = lowest.min(target - asked.start);
                }
            }
        }
    }
    lowest
}

/// The sites of one place that was asked for: one, or one for each return of a Go function.
fn chosen(
    object: &Object,
    asked: &Asked,
    bytes: &[u8],
    offer: Option<Offer>,
    options: &Options,
) -> Result<Vec<Site>> {
    let code = code(object, asked, bytes, options)?;
    let refused = |why: String| Error::new(Kind::Refused, format!("{}: {why}", asked.name));
    let mut choices = object.found.choices.clone();
    let mut warnings = object.found.warnings.clone();
    warnings.extend(asked.warnings.clone());
    if asked.returns && code.go && !options.naive {
        return returns_of_go(object, asked, &code, choices, warnings, options);
    }
    if asked.returns && code.go {
        return Err(refused("a uretprobe in Go breaks the program, whose stacks move; without --naive its return instructions are probed".to_owned()));
    }
    let mut offset = asked.offset;
    if asked.offset > 0 && asked.usdt.is_none() && !instruction::is_start(code.arch, bytes, asked.offset) {
        let message = format!(
            "{}: +{} is in the middle of an instruction; objdump -d shows where they begin",
            asked.name, asked.offset
        );
        return Err(Error::new(Kind::Offset, message));
    }
    let classify = |offset: u64| {
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        instruction::classify(code.arch, rest, code.file_offset + offset, code.nop5)
    };
    let mut here = classify(offset);
    if let Some(offer) = &offer {
        match offer.candidates.first() {
            Some(better) => {
                let why = match offer.first {
                    Err(why) => format!("at the first byte {why}"),
                    Ok(_) => {
                        format!("{} at the first byte would be single-stepped", first_word(&better.passed))
                    }
                };
                let (at, class, passed) = (better.offset, better.class.name(), &better.passed);
                choices.push(format!(
                    "at +{at} ({class}): {why}; passing {passed} changes nothing that the probe sees"
                ));
                if better.stack_lower > 0 {
                    let lower = better.stack_lower;
                    choices.push(format!("the stack pointer is {lower} bytes lower there: arguments on the stack are {lower} bytes further from it"));
                }
                if better.after_read {
                    choices.push("memory that an argument leads to is read before: a call that faults there is not seen".to_owned());
                }
                offset = better.offset;
                here = classify(offset);
            }
            None if here.is_ok_and(|here| here.class == Instruction::SingleStepped) => {
                choices.push(format!("the first byte, though it is single-stepped: {}", offer.end));
            }
            None => {}
        }
    }
    let mut here = here.map_err(|why| refused(why.to_string()))?;
    let middle = here.class == Instruction::Nop5 && offset > 0 && offer.is_none();
    if middle
        && !choose::still_at_entry(&code, offset)
        && (choose::uses_red_zone(&code) || asked.end == asked.start)
    {
        let harm = "this kernel replaces a five-byte nop by a call, which would destroy what the function keeps below its stack pointer";
        let behind = offset + here.length as u64;
        let data = |address: u64, length: u64| data_at(object, address, length);
        let known = asked.end > asked.start + behind && asked.usdt.is_some() && !options.naive;
        let targets = choose::targets(&code, offset, &data);
        match classify(behind) {
            Ok(next)
                if known && targets.unknown.is_none() && !leads_to(object, &code, offset, behind, &data) =>
            {
                choices.push(format!("{} bytes behind the nop: {harm}", here.length));
                offset = behind;
                here = next;
            }
            _ => return Err(refused(harm.to_owned())),
        }
    }
    let multi = if asked.returns { Mechanism::UretprobeMulti } else { Mechanism::UprobeMulti };
    let single = if asked.returns { Mechanism::Uretprobe } else { Mechanism::Uprobe };
    let mechanism = user_mechanism(asked, options, single, multi)?;
    let semaphore = asked.usdt.flatten();
    if semaphore.is_some_and(|semaphore| !semaphore.is_multiple_of(2)) {
        return Err(refused(
            "its semaphore stands at an odd offset, which the kernel does not take".to_owned(),
        ));
    }
    Ok(vec![Site {
        name: asked.name.clone(),
        mechanism,
        place: Place::User { file: object.found.path.clone(), offset: code.file_offset + offset, semaphore },
        instruction: Some(here.class),
        choices,
        warnings,
    }])
}

/// Whether anything jumps into the bytes from behind `after` up to `place`.
fn leads_to(
    object: &Object,
    code: &Code<'_>,
    after: u64,
    place: u64,
    data: &dyn Fn(u64, u64) -> Option<Vec<u8>>,
) -> bool {
    if choose::targets(code, after, data).lowest <= place {
        return true;
    }
    let mut windows = [Window { function: code.address + after, place: code.address + place, target: None }];
    !scan::jumps(&object.data, object.elf.code(), &mut windows) || windows[0].target.is_some()
}

fn user_mechanism(
    asked: &Asked,
    options: &Options,
    single: Mechanism,
    multi: Mechanism,
) -> Result<Mechanism> {
    let order = if options.naive { [single, multi] } else { [multi, single] };
    let found = order.into_iter().find(|&mechanism| options.capabilities.has(mechanism));
    found.ok_or_else(|| {
        let message = format!(
            "{}: {} does not work on this kernel; lightfoot system-info shows what does",
            asked.name,
            single.name()
        );
        Error::new(Kind::Unsupported, message)
    })
}

fn returns_of_go(
    object: &Object,
    asked: &Asked,
    code: &Code<'_>,
    mut choices: Vec<String>,
    warnings: Vec<String>,
    options: &Options,
) -> Result<Vec<Site>> {
    let returns = choose::returns(code);
    if returns.is_empty() {
        return Err(Error::new(
            Kind::Refused,
            format!("{}: the function has no return instruction, the probe would never fire", asked.name),
        ));
    }
    choices.push(format!(
        "{} return instructions instead of a uretprobe: that breaks Go programs, whose stacks move",
        returns.len()
    ));
    let mechanism = user_mechanism(asked, options, Mechanism::Uprobe, Mechanism::UprobeMulti)?;
    let mut sites = Vec::new();
    for offset in returns {
        let rest = code.bytes.get(offset as usize..).unwrap_or_default();
        let here = instruction::classify(code.arch, rest, code.file_offset + offset, code.nop5)
            .map_err(|why| Error::new(Kind::Refused, format!("{}: {why}", asked.name)))?;
        sites.push(Site {
            name: asked.name.clone(),
            mechanism,
            place: Place::User {
                file: object.found.path.clone(),
                offset: code.file_offset + offset,
                semaphore: None,
            },
            instruction: Some(here.class),
            choices: choices.clone(),
            warnings: warnings.clone(),
        });
    }
    Ok(sites)
}

fn first_word(words: &str) -> &str {
    words.split(", ").next().unwrap_or_default()
}
