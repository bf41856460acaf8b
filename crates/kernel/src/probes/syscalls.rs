//! System calls: one program for all entries and one for all exits finds the probe by the number of the call.

use super::links::{Attached, Programs, SYSCALL_TRACEPOINTS, describe, on_tracepoint, unreached};
use super::program::{Role, Template};
use super::support::Ids;
use super::{Options, Point, abi};
use crate::{Error, Kind, Result};
use lightfoot_model::Mechanism;
use lightfoot_sites::Place;
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Tables of the dispatchers, by whether they are of exits.
fn table(exit: bool) -> &'static str {
    if exit { "exited" } else { "entered" }
}

/// System calls: one program for entries and one for exits, whatever their number.
pub(super) fn attach(
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

/// Tells a dispatcher which slots its system calls have.
fn fill(map: BorrowedFd<'_>, points: &[Point]) -> Result<()> {
    let mut seen = HashSet::new();
    for point in points {
        let Place::Syscall { number, .. } = point.place else { continue };
        if number >= abi::SYSCALLS || !seen.insert(number) {
            let why = if number >= abi::SYSCALLS { "no such number" } else { "asked for twice" };
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
            && *number < abi::SYSCALLS
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
