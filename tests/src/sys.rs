//! System calls that the standard library does not have. The only unsafe code of the tests.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

/// Kind of BPF object with an id of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum BpfKind {
    /// A loaded program.
    Program,
    /// A map.
    Map,
    /// An attachment that is a BPF link.
    Link,
}

/// One BPF object of the running kernel: ids are not reused before they wrap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct BpfObject {
    /// Program, map or link.
    pub kind: BpfKind,
    /// The kernel's id.
    pub id: u32,
}

/// The part of `union bpf_attr` that the id commands use. Source: `include/uapi/linux/bpf.h`.
#[repr(C)]
#[derive(Default)]
struct IdAttr {
    id: u32,
    next_id: u32,
    open_flags: u32,
    padding: [u32; 29],
}

fn bpf(command: libc::c_long, attr: &mut IdAttr) -> Result<i32, i32> {
    // SAFETY: attr is an initialised, writable buffer of the size given; the id commands read and write only their fields in it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr as *mut IdAttr, size_of::<IdAttr>()) };
    if result < 0 {
        Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    } else {
        Ok(result as i32)
    }
}

/// Whether the kernel still has the object.
///
/// # Panics
/// If the kernel answers anything but yes and no (privileges are missing).
pub fn bpf_exists(object: BpfObject) -> bool {
    let command = match object.kind {
        BpfKind::Program => 13,
        BpfKind::Map => 14,
        BpfKind::Link => 30,
    };
    match bpf(command, &mut IdAttr { id: object.id, ..Default::default() }) {
        Ok(fd) => {
            // SAFETY: fd was opened by the call above and is owned by nobody else.
            unsafe { libc::close(fd) };
            true
        }
        Err(libc::ENOENT) => false,
        // A link that is being torn down.
        Err(libc::EAGAIN) => true,
        Err(errno) => panic!("bpf({object:?}): errno {errno}"),
    }
}

/// Every id of one kind that the kernel has now, of any owner.
pub fn bpf_ids(kind: BpfKind) -> Vec<u32> {
    let command = match kind {
        BpfKind::Program => 11,
        BpfKind::Map => 12,
        BpfKind::Link => 31,
    };
    let mut attr = IdAttr::default();
    let mut ids = Vec::new();
    while bpf(command, &mut attr).is_ok() {
        ids.push(attr.next_id);
        attr = IdAttr { id: attr.next_id, ..Default::default() };
    }
    ids
}

/// Whether this process is root.
pub fn is_root() -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Sends a signal to one process that the caller has started. Returns whether it still existed.
///
/// # Panics
/// For pid 0 and 1, which are never ours.
pub fn signal(pid: u32, number: i32) -> bool {
    assert!(pid > 1, "not a process of ours");
    // SAFETY: kill takes two integers; a positive pid names one process.
    unsafe { libc::kill(pid as i32, number) == 0 }
}

/// CPU time (user, system) of all children waited for so far, in ns. Source: `getrusage(RUSAGE_CHILDREN)`.
pub fn children_reaped() -> (u64, u64) {
    // SAFETY: an all-zero rusage is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: usage is a valid, writable rusage.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
    (ns(usage.ru_utime), ns(usage.ru_stime))
}

/// Waits until `condition` holds, at most `limit`; says whether it does.
pub fn wait_for(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
