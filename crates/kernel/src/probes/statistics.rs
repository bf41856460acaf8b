//! The kernel's own statistics of BPF programs.

use crate::{Error, Kind, Result};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Keeps the kernel's BPF statistics (`BPF_ENABLE_STATS`) on as long as it lives. They cost every BPF program of the machine 55 to 90 ns a
/// run: to be held for moments.
#[derive(Debug)]
pub struct Statistics(#[allow(dead_code, reason = "held open")] OwnedFd);

impl Statistics {
    /// Switches them on.
    ///
    /// # Errors
    /// [`Kind::Privilege`] without CAP_SYS_ADMIN; [`Kind::Unsupported`] before Linux 5.8.
    pub fn on() -> Result<Statistics> {
        // SAFETY: takes a number. The statistics end when the descriptor is closed.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            let error = io::Error::from_raw_os_error(-fd);
            let unknown = error.raw_os_error() == Some(libc::EINVAL);
            let error = Error::io("the kernel's BPF statistics cannot be switched on", error);
            return Err(if unknown { error.with_kind(Kind::Unsupported) } else { error });
        }
        // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
        Ok(Statistics(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

/// What the kernel says of one program.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub time_ns: u64,
    pub count: u64,
    /// It would have run, but was running on this CPU already.
    pub missed: u64,
}

pub(super) fn of(program: BorrowedFd<'_>) -> Result<Run> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut bytes = size_of_val(&info) as u32;
    // SAFETY: `info` has room for as many bytes as are said; its pointers are null, with lengths of 0.
    let result =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut bytes) };
    if result < 0 {
        return Err(Error::io(
            "cannot ask for a program's statistics",
            io::Error::from_raw_os_error(-result),
        ));
    }
    Ok(Run { time_ns: info.run_time_ns, count: info.run_cnt, missed: info.recursion_misses })
}
