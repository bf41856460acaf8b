//! Links: where programs are attached. Each is a descriptor of this process and ends with it, however that ends.

use super::program::{Kin, Role, Template};
use super::support::{self, ENOTSUPP, Ids, link, link_event, returns};
use super::tracefs::Tracefs;
use super::{Options, Point};
use crate::perf::{Attr, PerfEvent, Scope, flag};
use crate::{Error, Kind, Result, os};
use lightfoot_model::Mechanism;
use lightfoot_sites::{Every, Place};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const PERF_TYPE_TRACEPOINT: u32 = 2;
/// `PERF_UPROBE_REF_CTR_OFFSET_SHIFT`.
const SEMAPHORE_SHIFT: u32 = 32;

/// Raw tracepoints of all system calls.
const SYSCALL_TRACEPOINTS: [&str; 2] = ["sys_enter", "sys_exit"];

/// A program attached. The link goes first: after that the program does not run any more.
#[derive(Debug)]
pub(super) struct Attached {
    /// `None`: stopped, or, with system calls, the dispatcher of another one serves these, too.
    pub link: Option<OwnedFd>,
    /// The perf event under it. Closing it may take the kernel 100 ms.
    #[allow(dead_code, reason = "held open")]
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

fn failed(place: &Place, error: io::Error) -> Error {
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
            files.into_values().map(|points| uprobe_multi(program, options, points)).collect()
        }
        KprobeMulti | KretprobeMulti | KprobeSession => {
            let program = programs.get(template, role(options), Kin::of(options.mechanism, 0), 0)?;
            Ok(vec![kprobe_multi(program, options, points.to_vec())?])
        }
        RawTracepoint | TpBtf => {
            let (calls, others): (Vec<&Point>, Vec<&Point>) =
                points.iter().partition(|point| matches!(point.place, Place::Syscall { .. }));
            one_program_each(options, &others)?;
            let ahead: Vec<_> =
                others.iter().filter_map(|point| program_of(options, &types, point)).collect();
            programs.load_ahead(template, role(options), &ahead)?;
            let mut attached = syscalls(template, programs, &types, options, before, &calls)?;
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
            let tracefs = if options.mechanism == Tracepoint { Some(Tracefs::open()?) } else { None };
            let open = |point: &Point| perf_events(program, options, point, tracefs.as_ref());
            Ok(points.iter().map(open).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
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

fn misplaced(options: &Options, point: &Point) -> Error {
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

/// One link for all places of one file.
fn uprobe_multi(program: &OwnedFd, options: &Options, points: Vec<Point>) -> Result<Attached> {
    let made = uprobe_link(program, options, &points);
    match made {
        Ok(link) => Ok(Attached { link: Some(link), event: None, points }),
        Err(error) => Err(culprit(&points, error, |points| uprobe_link(program, options, points))),
    }
}

fn uprobe_link(program: &OwnedFd, options: &Options, points: &[Point]) -> io::Result<OwnedFd> {
    let (mut offsets, mut semaphores, mut cookies) = (Vec::new(), Vec::new(), Vec::new());
    let mut path = CString::default();
    for point in points {
        if let Place::User { file, offset, semaphore } = &point.place {
            path = CString::new(file.as_os_str().as_bytes())?;
            offsets.push(*offset);
            semaphores.push(semaphore.unwrap_or(0));
            cookies.push(u64::from(point.slot));
        }
    }
    let mut all = support::options();
    all.__bindgen_anon_1.uprobe_multi = libbpf_sys::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_3 {
        flags: returns(options.mechanism),
        cnt: offsets.len() as u32,
        path: path.as_ptr(),
        offsets: offsets.as_ptr().cast(),
        ref_ctr_offsets: if semaphores.iter().any(|&at| at != 0) {
            semaphores.as_ptr().cast()
        } else {
            std::ptr::null()
        },
        cookies: cookies.as_ptr().cast(),
        pid: options.pid.unwrap_or(0),
        ..Default::default()
    };
    link(program, Kin::of(options.mechanism, 0).attach, &all)
}

/// One link for all functions.
fn kprobe_multi(program: &OwnedFd, options: &Options, points: Vec<Point>) -> Result<Attached> {
    for point in &points {
        match &point.place {
            Place::Kernel { offset: 0, .. } => {}
            Place::Kernel { .. } => {
                let what =
                    format!("{}: {} takes functions only", describe(&point.place), options.mechanism.name());
                return Err(Error::new(Kind::Usage, what));
            }
            _ => return Err(misplaced(options, point)),
        }
    }
    match kprobe_link(program, options, &points) {
        Ok(link) => Ok(Attached { link: Some(link), event: None, points }),
        Err(error) => Err(culprit(&points, error, |points| kprobe_link(program, options, points))),
    }
}

fn kprobe_link(program: &OwnedFd, options: &Options, points: &[Point]) -> io::Result<OwnedFd> {
    let (mut names, mut cookies) = (Vec::new(), Vec::new());
    for point in points {
        if let Place::Kernel { function, .. } = &point.place {
            names.push(CString::new(function.as_str())?);
            cookies.push(u64::from(point.slot));
        }
    }
    let pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
    let mut all = support::options();
    all.__bindgen_anon_1.kprobe_multi = libbpf_sys::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_2 {
        flags: returns(options.mechanism),
        cnt: names.len() as u32,
        syms: pointers.as_ptr().cast_mut(),
        cookies: cookies.as_ptr(),
        ..Default::default()
    };
    link(program, Kin::of(options.mechanism, 0).attach, &all)
}

/// The kernel does not say which of many places it refused: found by halves.
fn culprit(points: &[Point], error: io::Error, attempt: impl Fn(&[Point]) -> io::Result<OwnedFd>) -> Error {
    let mut rest = points;
    let mut error = error;
    while rest.len() > 1 {
        let (left, right) = rest.split_at(rest.len() / 2);
        let tried = attempt(left).err().map(|error| (left, error));
        match tried.or_else(|| attempt(right).err().map(|error| (right, error))) {
            Some(found) => (rest, error) = found,
            // Each half is fine by itself: it is their number, or it was for a moment only.
            None => return Error::io(format!("cannot attach to {} places at once", rest.len()), error),
        }
    }
    match rest.first() {
        Some(point) => failed(&point.place, error),
        None => Error::new(Kind::Usage, "nothing to attach to"),
    }
}

/// Tables of the dispatchers, by whether they are of exits.
fn table(exit: bool) -> &'static str {
    if exit { "exited" } else { "entered" }
}

/// System calls: one program for entries and one for exits, whatever their number.
fn syscalls(
    template: &Template,
    programs: &mut Programs,
    types: &Ids,
    options: &Options,
    before: &[Attached],
    points: &[&Point],
) -> Result<Vec<Attached>> {
    let mut attached = Vec::new();
    for exit in [false, true] {
        let of_this: Vec<Point> = points
            .iter()
            .filter(|point| matches!(point.place, Place::Syscall { exit: is, .. } if is == exit))
            .map(|point| (*point).clone())
            .collect();
        if of_this.is_empty() {
            continue;
        }
        if options.bare {
            let what = "system calls are told apart by a program that counts, not by a bare one";
            return Err(Error::new(Kind::Usage, what));
        }
        fill(template.map(table(exit))?, &of_this)?;
        let name = SYSCALL_TRACEPOINTS[usize::from(exit)];
        let role = if exit { Role::Exit } else { Role::Enter };
        let mut new = Attached { link: None, event: None, points: of_this };
        // A second link would run the dispatcher twice.
        if !before.iter().any(|old| old.dispatches(&new)) {
            let link = on_tracepoint(template, programs, types, options, role, name, 0);
            new.link = Some(link.map_err(|error| unreached(error, &new.points[0].place))?);
        }
        attached.push(new);
    }
    Ok(attached)
}

/// An error of a tracepoint that stands for a place that was asked for.
fn unreached(error: Error, place: &Place) -> Error {
    let kind = error.kind();
    Error::new(kind, format!("cannot attach to {}: {error}", describe(place)))
}

/// Tells a dispatcher which slots its system calls have.
fn fill(map: BorrowedFd<'_>, points: &[Point]) -> Result<()> {
    let mut seen = HashSet::new();
    for point in points {
        let Place::Syscall { number, .. } = point.place else { continue };
        if number >= super::abi::SYSCALLS || !seen.insert(number) {
            let why = if number >= super::abi::SYSCALLS { "no such number" } else { "asked for twice" };
            return Err(Error::new(Kind::Usage, format!("{}: {why}", describe(&point.place))));
        }
        write(map, number, point.slot + 1)?;
    }
    Ok(())
}

/// Takes system calls out of the dispatchers' tables.
pub(super) fn forget(template: &Template, options: &Options, points: &[Point]) -> Result<()> {
    for point in points {
        if let (Place::Syscall { number, exit }, Mechanism::RawTracepoint | Mechanism::TpBtf) =
            (&point.place, options.mechanism)
            && *number < super::abi::SYSCALLS
            && !options.bare
        {
            write(template.map(table(*exit))?, *number, 0)?;
        }
    }
    Ok(())
}

fn write(map: BorrowedFd<'_>, key: u32, value: u32) -> Result<()> {
    // SAFETY: the map has keys and values of 4 bytes, which live until the call returns.
    let result = unsafe {
        libbpf_sys::bpf_map_update_elem(
            map.as_raw_fd(),
            (&raw const key).cast(),
            (&raw const value).cast(),
            libbpf_sys::BPF_ANY.into(),
        )
    };
    if result < 0 {
        return Err(Error::io("cannot write a table of system calls", io::Error::from_raw_os_error(-result)));
    }
    Ok(())
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

fn on_tracepoint(
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

/// One perf event each, or one for each CPU.
fn perf_events(
    program: &OwnedFd,
    options: &Options,
    point: &Point,
    tracefs: Option<&Tracefs>,
) -> Result<Vec<Attached>> {
    use Mechanism::*;
    let returns = u64::from(matches!(options.mechanism, Kretprobe | Uretprobe));
    // What the attribute points to lives until the events are open.
    let (text, mut attr, scopes);
    match (&point.place, options.mechanism) {
        (Place::Kernel { function, offset }, Kprobe | Kretprobe) => {
            text = CString::new(function.as_str())
                .map_err(|_| Error::new(Kind::Usage, format!("{function:?} is no function")))?;
            attr = Attr::new(support::pmu("kprobe")?, returns);
            (attr.config1, attr.config2) = (text.as_ptr() as u64, *offset);
            scopes = vec![Scope::Cpu(0)];
        }
        (Place::User { file, offset, semaphore }, Uprobe | Uretprobe) => {
            text = CString::new(file.as_os_str().as_bytes())
                .map_err(|_| Error::new(Kind::Usage, format!("{} is no file", file.display())))?;
            let semaphore = semaphore.unwrap_or(0);
            if semaphore >> (64 - SEMAPHORE_SHIFT) != 0 {
                let what = format!("{}: its semaphore lies beyond 4 GiB of the file", describe(&point.place));
                return Err(Error::new(Kind::Unsupported, what));
            }
            attr = Attr::new(support::pmu("uprobe")?, returns | semaphore << SEMAPHORE_SHIFT);
            (attr.config1, attr.config2) = (text.as_ptr() as u64, *offset);
            // The event is one thread's; its breakpoint is seen by all that share the memory, and so is the program.
            scopes = vec![options.pid.map_or(Scope::Cpu(0), Scope::Thread)];
        }
        (Place::Tracepoint { category, name }, Tracepoint) => {
            let tracefs = tracefs.ok_or_else(|| misplaced(options, point))?;
            attr = Attr::new(PERF_TYPE_TRACEPOINT, tracefs.id(category, name)?);
            scopes = vec![Scope::Cpu(0)];
        }
        (Place::Perf { type_, config, every, one_cpu }, PerfEvent) => {
            attr = Attr::new(*type_, *config);
            (attr.sample_period_or_freq, attr.flags) = match *every {
                Every::Period(events) => (events, 0),
                Every::Hertz(rate) => (rate, flag::FREQ),
            };
            let cpus = os::online_cpus()?;
            let cpus = if *one_cpu { &cpus[..cpus.len().min(1)] } else { &cpus[..] };
            scopes = cpus.iter().map(|&cpu| Scope::Cpu(cpu)).collect();
        }
        _ => return Err(misplaced(options, point)),
    }
    let mut attached = Vec::with_capacity(scopes.len());
    for scope in scopes {
        let wrong = |error: Error| {
            let source =
                std::error::Error::source(&error).and_then(|source| source.downcast_ref::<io::Error>());
            let errno = source.and_then(io::Error::raw_os_error).unwrap_or(0);
            match (&point.place, errno) {
                // The probes' perf events answer so for a function that is not there, or an offset that is none.
                (Place::Kernel { .. }, libc::ENOENT | libc::EINVAL) => Error::io(
                    format!("cannot attach to {}", describe(&point.place)),
                    io::Error::from_raw_os_error(errno),
                )
                .with_kind(Kind::NotFound),
                (Place::Perf { .. }, _) => {
                    let what = format!("cannot open {}", describe(&point.place));
                    Error::io(what, io::Error::from_raw_os_error(errno)).with_kind(error.kind())
                }
                _ => failed(&point.place, io::Error::from_raw_os_error(errno)),
            }
        };
        // Not disabled at first: what fires before there is a program is nobody's, and to enable it would take another interrupt of its CPU.
        let event = crate::perf::PerfEvent::open(attr, scope).map_err(wrong)?;
        let link =
            link_event(program, &event, point.slot.into()).map_err(|error| unreached(error, &point.place))?;
        attached.push(Attached { link: Some(link), event: Some(event), points: vec![point.clone()] });
    }
    Ok(attached)
}
