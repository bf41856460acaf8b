//! The cheapest place with the same meaning, for all that was asked for in one file.

use super::Asked;
use super::object::{Object, data_at, is_go};
use crate::choose::{self, Code, Needs, Offer};
use crate::elf::read;
use crate::error::{Error, Kind, Result};
use crate::instruction;
use crate::place::{Place, Site};
use crate::resolve::Options;
use crate::scan::{self, Window};
use lightfoot_model::{Instruction, Mechanism};
use lightfoot_unwind::ReadAt;

/// Chooses the places in one file.
pub(super) fn choose_all(
    object: &Object,
    asked: &[&Asked],
    options: &Options,
    sites: &mut Vec<(usize, Site)>,
) -> Result<()> {
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
            Err(error) if asked.of_many && error.kind() == Kind::Refused => refused.push(error),
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

fn offer(object: &Object, asked: &Asked, bytes: &[u8], options: &Options) -> Result<Offer> {
    let arguments = options.arguments && !asked.returns;
    let needs = Needs { arguments, return_address: asked.returns };
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
        if let Some(last) = offer.candidates.last()
            && let Some(near) =
                neighbours(object, (asked.start, asked.end), asked.start, asked.start + last.offset)
        {
            keep_below(offer, near - asked.start, "code beside the function leads behind it,");
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

/// The lowest address above `low`, up to `place`, that short jumps of the code before and after a function lead to. They reach 128 bytes far; longer ones are looked for in the whole
/// file. It is not known where instructions begin there, so each beginning is tried: one of fifteen neighbours is right.
fn neighbours(object: &Object, function: (u64, u64), low: u64, place: u64) -> Option<u64> {
    const REACH: u64 = 128 + instruction::LONGEST as u64;
    let mut lowest: Option<u64> = None;
    for from in [function.0.saturating_sub(REACH), function.1] {
        let Some(bytes) = data_at(object, from, REACH + instruction::LONGEST as u64) else { continue };
        for at in 0..instruction::LONGEST.min(bytes.len()) {
            for target in choose::branches(&bytes[at..], from + at as u64) {
                if target > low && target <= place {
                    lowest = Some(lowest.map_or(target, |lowest| lowest.min(target)));
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
                if !options.arguments && !asked.returns {
                    choices.push("the program reads no arguments, so they may have changed there".to_owned());
                } else if better.stack_lower > 0 {
                    let lower = better.stack_lower;
                    choices.push(format!("the stack pointer is {lower} bytes lower there: arguments on the stack are {lower} bytes further from it"));
                }
                if better.after_read {
                    choices.push("memory that an argument may lead to is touched before: a call that faults there is not seen".to_owned());
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
    if instruction::repeats(code.arch, bytes.get(offset as usize..).unwrap_or_default()) {
        warnings.push(format!(
            "{}: the instruction repeats itself, the probe fires at each repetition",
            asked.name
        ));
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
    let (start, low, place) = (code.address, code.address + after, code.address + place);
    if neighbours(object, (start, start + code.bytes.len() as u64), low, place).is_some() {
        return true;
    }
    let mut windows = [Window { function: low, place, target: None }];
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
