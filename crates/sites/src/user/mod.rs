//! Probes of programs and libraries.

mod object;
mod place;

pub(crate) use object::{Object, functions};

use crate::demangle::demangle;
use crate::elf::Function;
use crate::error::{Error, Kind, Result};
use crate::files;
use crate::glob;
use crate::near::{did_you_mean, nearest};
use crate::place::Site;
use crate::resolve::{Options, too_many};
use crate::spec::{At, Spec};
use crate::system::System;
use crate::usdt;
use object::bounds;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;

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
    /// One of several that the spec stands for.
    of_many: bool,
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
                Ok(more) => {
                    let of_many = more.len() > 1 || files.len() > 1;
                    all.extend(more.into_iter().map(|asked| Asked { spec: index, of_many, ..asked }));
                }
                Err(error) => drop(first_error.get_or_insert(error)),
            }
            if all.len() > options.limit {
                return Err(too_many(&spec.to_string(), all.len() - before, options));
            }
        }
        // Of several files it is enough that one has what was asked for.
        if all.len() == before && files.len() > 1 {
            let message = format!("{spec}: none of the {} files that match has it", files.len());
            return Err(Error::not_found(message));
        }
        if all.len() == before {
            return Err(
                first_error.unwrap_or_else(|| Error::not_found(format!("{spec}: nothing matches it")))
            );
        }
    }
    let mut sites = Vec::new();
    for (number, object) in objects.iter().enumerate() {
        let asked: Vec<&Asked> = all.iter().filter(|asked| asked.object == number).collect();
        place::choose_all(object, &asked, options, &mut sites)?;
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
                        of_many: false,
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
        of_many: false,
        literal: true,
        usdt: None,
        warnings: Vec::new(),
    })
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
            of_many: false,
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
