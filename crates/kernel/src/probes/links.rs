//! Links: where programs are attached. Each is a descriptor of this process and ends with it, however that ends.

use super::program::{Kin, Role, Template};
use super::support::{self, ENOTSUPP, Ids, link};
use super::{Options, Point, events, multi, syscalls};
use crate::perf::PerfEvent;
use crate::{Error, Kind, Result};
use lightfoot_model::Mechanism;
use lightfoot_sites::Place;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Raw tracepoints of all system calls.
pub(super) const SYSCALL_TRACEPOINTS: [&str; 2] = ["sys_enter", "sys_exit"];

/// A program attached. The link goes first: after that the program does not run any more.
#[derive(Debug)]
pub(super) struct Attached {
    /// `None`: stopped, or, with system calls, the dispatcher of another one serves these, too.
    pub link: Option<OwnedFd>,
    /// The perf event under it. Closing it may take the kernel 100 ms.
    pub event: Option<PerfEvent>,
    /// Where, to make a link of many places again without some of them.
    pub points: Vec<Point>,
}

impl Attached {
    /// Whether this is the dispatcher that serves the system calls of `other`.
    pub fn dispatches(&self, other: &Attached) -> bool {
        let exits = |of: &Attached| match of.points.first().map(|point| &point.place) {
            Some(Place::Syscall { exit, .. }) => Some(*exit),
            _ => None,
        };
        self.link.is_some() && exits(self).is_some() && exits(self) == exits(other)
    }
}

/// Programs loaded so far.
#[derive(Default)]
pub(super) struct Programs {
    loaded: HashMap<Which, OwnedFd>,
}

/// A program: its role, the slot that is written into it, what it is loaded for in the kernel's types (0: nothing).
type Which = (Role, u32, u32);

impl Programs {
    pub fn iter(&self) -> impl Iterator<Item = &OwnedFd> {
        self.loaded.values()
    }

    /// Loads the programs of these slots that are not loaded yet, on all CPUs: the verifier takes 0.1 ms for each.
    fn load_ahead(&mut self, template: &Template, role: Role, wanted: &[(u32, Kin)]) -> Result<()> {
        let missing: Vec<_> = wanted
            .iter()
            .filter(|(slot, kin)| !self.loaded.contains_key(&(role, *slot, kin.btf_id)))
            .collect();
        let program = template.program(role)?;
        let threads =
            std::thread::available_parallelism().map_or(1, usize::from).min(missing.len() / 16).max(1);
        let part = missing.len().div_ceil(threads).max(1);
        let load = |part: &[&(u32, Kin)]| -> Result<Vec<(Which, OwnedFd)>> {
            part.iter()
                .map(|(slot, kin)| Ok(((role, *slot, kin.btf_id), program.load(*kin, *slot)?)))
                .collect()
        };
        let loaded: Vec<Result<_>> = std::thread::scope(|scope| {
            let threads: Vec<_> = missing.chunks(part).map(|part| scope.spawn(move || load(part))).collect();
            threads
                .into_iter()
                .map(|thread| {
                    let died = |_| Err(Error::new(Kind::Other, "a thread that loads programs has ended"));
                    thread.join().unwrap_or_else(died)
                })
                .collect()
        });
        for part in loaded {
            self.loaded.extend(part?);
        }
        Ok(())
    }

    /// The program of a slot, loaded when it is asked for first. 0 in `btf_id`: none.
    pub fn get(&mut self, template: &Template, role: Role, kin: Kin, slot: u32) -> Result<&OwnedFd> {
        use std::collections::hash_map::Entry;
        match self.loaded.entry((role, slot, kin.btf_id)) {
            Entry::Occupied(found) => Ok(found.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(template.program(role)?.load(kin, slot)?)),
        }
    }
}

/// A place in words, for errors.
pub(super) fn describe(place: &Place) -> String {
    match place {
        Place::Kernel { function, offset: 0 } => function.clone(),
        Place::Kernel { function, offset } => format!("{function}+{offset}"),
        Place::Tracepoint { category, name } if category.is_empty() => format!("tracepoint {name}"),
        Place::Tracepoint { category, name } => format!("tracepoint {category}:{name}"),
        Place::Syscall { number, exit } => {
            format!("the {} of system call {number}", if *exit { "exit" } else { "entry" })
        }
        Place::User { file, offset, .. } => format!("{} at file offset {offset:#x}", file.display()),
        Place::Perf { type_, config, .. } => format!("perf event {type_}:{config}"),
    }
}

pub(super) fn failed(place: &Place, error: io::Error) -> Error {
    let kind = match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | ENOTSUPP) => Some(Kind::Unsupported),
        Some(libc::ENODEV) => Some(Kind::NotFound),
        _ => None,
    };
    let error = Error::io(format!("cannot attach to {}", describe(place)), error);
    match kind {
        Some(kind) => error.with_kind(kind),
        None => error,
    }
}

/// An error of a tracepoint that stands for a place that was asked for.
pub(super) fn unreached(error: Error, place: &Place) -> Error {
    let kind = error.kind();
    Error::new(kind, format!("cannot attach to {}: {error}", describe(place)))
}

/// Attaches to all of these or to none. `before`: what is attached already.
pub(super) fn attach(
    template: &Template,
    programs: &mut Programs,
    options: &Options,
    before: &[Attached],
    points: &[Point],
) -> Result<Vec<Attached>> {
    use Mechanism::*;
    let types = support::ids(options.mechanism, points.iter().filter_map(name_in_types))?;
    match options.mechanism {
        UprobeMulti | UretprobeMulti | UprobeSession => {
            let mut files: BTreeMap<&Path, Vec<Point>> = BTreeMap::new();
            for point in points {
                let Place::User { file, .. } = &point.place else { return Err(misplaced(options, point)) };
                files.entry(file).or_default().push(point.clone());
            }
            let program = programs.get(template, role(options), Kin::of(options.mechanism, 0), 0)?;
            files.into_values().map(|points| multi::uprobe_multi(program, options, points)).collect()
        }
        KprobeMulti | KretprobeMulti | KprobeSession => {
            let program = programs.get(template, role(options), Kin::of(options.mechanism, 0), 0)?;
            Ok(vec![multi::kprobe_multi(program, options, points.to_vec())?])
        }
        RawTracepoint | TpBtf => {
            let (calls, others): (Vec<&Point>, Vec<&Point>) =
                points.iter().partition(|point| matches!(point.place, Place::Syscall { .. }));
            one_program_each(options, &others)?;
            let ahead: Vec<_> =
                others.iter().filter_map(|point| program_of(options, &types, point)).collect();
            programs.load_ahead(template, role(options), &ahead)?;
            let mut attached = syscalls::attach(template, programs, &types, options, before, &calls)?;
            for point in others {
                attached.push(tracepoint(template, programs, &types, options, point)?);
            }
            Ok(attached)
        }
        Fentry | Fexit => {
            one_program_each(options, &points.iter().collect::<Vec<_>>())?;
            let ahead: Vec<_> =
                points.iter().filter_map(|point| program_of(options, &types, point)).collect();
            programs.load_ahead(template, role(options), &ahead)?;
            points.iter().map(|point| trampoline(template, programs, &types, options, point)).collect()
        }
        Kprobe | Kretprobe | Tracepoint | Uprobe | Uretprobe | PerfEvent => {
            let program = programs.get(template, role(options), Kin::of(options.mechanism, 0), 0)?;
            events::attach(program, options, points)
        }
    }
}

pub(super) fn role(options: &Options) -> Role {
    if options.bare { Role::Bare } else { Role::On }
}

/// What a place is called in the kernel's types.
fn name_in_types(point: &Point) -> Option<&str> {
    match &point.place {
        Place::Kernel { function, .. } => Some(function),
        Place::Tracepoint { name, .. } => Some(name),
        Place::Syscall { exit, .. } => Some(SYSCALL_TRACEPOINTS[usize::from(*exit)]),
        Place::User { .. } | Place::Perf { .. } => None,
    }
}

/// The program that a tracepoint or a function needs for itself: its slot and what it is loaded as. `None` if there is no such place.
fn program_of(options: &Options, types: &Ids, point: &Point) -> Option<(u32, Kin)> {
    let id = match options.mechanism {
        Mechanism::RawTracepoint => 0,
        _ => *types.get(name_in_types(point)?)?,
    };
    Some((point.slot, Kin::of(options.mechanism, id)))
}

pub(super) fn misplaced(options: &Options, point: &Point) -> Error {
    let what = format!("{} is not attached to {}", options.mechanism.name(), describe(&point.place));
    Error::new(Kind::Usage, what)
}

/// Two programs that count in one row would lose counts when an interrupt brings one into the other.
fn one_program_each(options: &Options, points: &[&Point]) -> Result<()> {
    let mut slots = HashSet::new();
    match points.iter().find(|point| !options.bare && !slots.insert(point.slot)) {
        Some(point) => {
            let what = format!("{}: slot {} is another probe's", describe(&point.place), point.slot);
            Err(Error::new(Kind::Usage, what))
        }
        None => Ok(()),
    }
}

/// A tracepoint that is no system call.
fn tracepoint(
    template: &Template,
    programs: &mut Programs,
    types: &Ids,
    options: &Options,
    point: &Point,
) -> Result<Attached> {
    let Place::Tracepoint { name, .. } = &point.place else { return Err(misplaced(options, point)) };
    let link = on_tracepoint(template, programs, types, options, role(options), name, point.slot)?;
    Ok(Attached { link: Some(link), event: None, points: vec![point.clone()] })
}

pub(super) fn on_tracepoint(
    template: &Template,
    programs: &mut Programs,
    types: &Ids,
    options: &Options,
    role: Role,
    name: &str,
    slot: u32,
) -> Result<OwnedFd> {
    let missing = || Error::new(Kind::NotFound, format!("there is no raw tracepoint {name}"));
    let by_types = options.mechanism == Mechanism::TpBtf;
    let id = if by_types { *types.get(name).ok_or_else(missing)? } else { 0 };
    let program = programs.get(template, role, Kin::of(options.mechanism, id), slot)?;
    let c_name = CString::new(name).map_err(|_| missing())?;
    let name_or_null = if by_types { std::ptr::null() } else { c_name.as_ptr() };
    // SAFETY: the descriptor is open, the name NUL-terminated or null.
    let link = unsafe { libbpf_sys::bpf_raw_tracepoint_open(name_or_null, program.as_raw_fd()) };
    support::descriptor(link).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT) => missing(),
        _ => Error::io(format!("cannot attach to the raw tracepoint {name}"), error),
    })
}

/// Entry or exit of a kernel function: the program is made for that function.
fn trampoline(
    template: &Template,
    programs: &mut Programs,
    types: &Ids,
    options: &Options,
    point: &Point,
) -> Result<Attached> {
    let Place::Kernel { function, offset: 0 } = &point.place else { return Err(misplaced(options, point)) };
    let id = types.get(function).ok_or_else(|| {
        Error::new(Kind::NotFound, format!("{function}: the kernel's types have no such function"))
    })?;
    let kin = Kin::of(options.mechanism, *id);
    let program = programs.get(template, role(options), kin, point.slot)?;
    let link = link(program, kin.attach, &support::options()).map_err(|error| failed(&point.place, error))?;
    Ok(Attached { link: Some(link), event: None, points: vec![point.clone()] })
}
