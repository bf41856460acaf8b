//! Links of many places: one for each file, one for all functions of the kernel.

use super::links::{Attached, describe, failed, misplaced};
use super::program::Kin;
use super::support::{self, link, returns};
use super::{Options, Point};
use crate::{Error, Kind, Result};
use lightfoot_sites::Place;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// One link for all places of one file.
pub(super) fn uprobe_multi(program: &OwnedFd, options: &Options, points: Vec<Point>) -> Result<Attached> {
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
pub(super) fn kprobe_multi(program: &OwnedFd, options: &Options, points: Vec<Point>) -> Result<Attached> {
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
