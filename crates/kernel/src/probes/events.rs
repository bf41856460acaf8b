//! Probes that are perf events: one each, or one on each CPU.

use super::links::{Attached, describe, failed, misplaced, unreached};
use super::support::{self, link_event};
use super::tracefs::Tracefs;
use super::{Options, Point};
use crate::perf::{Attr, PerfEvent, Scope, flag};
use crate::{Error, Kind, Result, os};
use lightfoot_model::Mechanism;
use lightfoot_sites::{Every, Place};
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

const PERF_TYPE_TRACEPOINT: u32 = 2;
/// `PERF_UPROBE_REF_CTR_OFFSET_SHIFT`.
const SEMAPHORE_SHIFT: u32 = 32;
/// Timers and counters on each CPU that are worth a thread there: to open one from elsewhere interrupts the CPU.
const MANY: usize = 16;

/// Attaches to all of these or to none.
pub(super) fn attach(program: &OwnedFd, options: &Options, points: &[Point]) -> Result<Vec<Attached>> {
    let tracefs = if options.mechanism == Mechanism::Tracepoint { Some(Tracefs::open()?) } else { None };
    let all = |only: Option<u32>| {
        let open = |point: &Point| open(program, options, point, tracefs.as_ref(), only);
        Ok(points.iter().map(open).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    };
    if options.mechanism != Mechanism::PerfEvent || points.len() < MANY {
        return all(None);
    }
    let all = &all;
    let on = |cpu: u32| {
        // Where that is not allowed it takes longer, no more.
        os::run_on(cpu);
        all(Some(cpu))
    };
    let parts: Vec<Result<Vec<Attached>>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            os::online_cpus()?.into_iter().map(|cpu| scope.spawn(move || on(cpu))).collect();
        let died = |_| Err(Error::new(Kind::Other, "a thread that opens perf events has ended"));
        Ok::<_, Error>(threads.into_iter().map(|thread| thread.join().unwrap_or_else(died)).collect())
    })?;
    Ok(parts.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// One perf event, or one for each CPU; with `only` none but that CPU's.
fn open(
    program: &OwnedFd,
    options: &Options,
    point: &Point,
    tracefs: Option<&Tracefs>,
    only: Option<u32>,
) -> Result<Vec<Attached>> {
    use Mechanism::{Kprobe, Kretprobe, Tracepoint, Uprobe, Uretprobe};
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
        (Place::Perf { type_, config, every, one_cpu }, Mechanism::PerfEvent) => {
            attr = Attr::new(*type_, *config);
            (attr.sample_period_or_freq, attr.flags) = match *every {
                Every::Period(events) => (events, 0),
                Every::Hertz(rate) => (rate, flag::FREQ),
            };
            let cpus = os::online_cpus()?;
            let cpus = if *one_cpu { &cpus[..cpus.len().min(1)] } else { &cpus[..] };
            let wanted = |cpu: &&u32| only.is_none_or(|only| only == **cpu);
            scopes = cpus.iter().filter(wanted).map(|&cpu| Scope::Cpu(cpu)).collect();
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
                (Place::Kernel { .. }, libc::EILSEQ) => {
                    let what = format!("{}: no instruction begins there", describe(&point.place));
                    Error::new(Kind::Usage, what)
                }
                (Place::Perf { .. }, _) => {
                    let what = format!("cannot open {}", describe(&point.place));
                    Error::io(what, io::Error::from_raw_os_error(errno)).with_kind(error.kind())
                }
                _ => failed(&point.place, io::Error::from_raw_os_error(errno)),
            }
        };
        // Not disabled at first: what fires before there is a program is nobody's, and to enable it would take another interrupt of its CPU.
        let event = PerfEvent::open(attr, scope).map_err(wrong)?;
        let link =
            link_event(program, &event, point.slot.into()).map_err(|error| unreached(error, &point.place))?;
        attached.push(Attached { link: Some(link), event: Some(event), points: vec![point.clone()] });
    }
    Ok(attached)
}
