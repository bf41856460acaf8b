//! Clocks, limits, capabilities, namespaces: the small questions to the operating system.

use crate::{Error, Kind, Result};
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Inode of the initial pid namespace. Source: `PROC_PID_INIT_INO`, include/linux/proc_ns.h.
const INITIAL_PIDNS_INODE: u32 = 0xEFFF_FFFC;

/// Capabilities that profiling needs, by bit number (include/uapi/linux/capability.h).
const CAP_SYS_PTRACE: (u32, &str) = (19, "CAP_SYS_PTRACE");
const CAP_SYS_ADMIN: (u32, &str) = (21, "CAP_SYS_ADMIN");
const CAP_PERFMON: (u32, &str) = (38, "CAP_PERFMON");
const CAP_BPF: (u32, &str) = (39, "CAP_BPF");

/// CPU time of this process so far, all threads, user and system, in ns.
pub fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of the calling thread so far, user and system, in ns.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of another process, all its threads, up to now and to the nanosecond; `None` if it is gone.
/// Source: its clock, `clock_getcpuclockid(3)`.
pub fn cpu_ns_of(pid: u32) -> Option<u64> {
    // MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED), include/linux/posix-timers_types.h
    let clock = (!(libc::clockid_t::try_from(pid).ok()?) << 3) | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a place for the time.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (result == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// CLOCK_MONOTONIC, in ns: the clock of records.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live timespec that the call fills.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Between two ticks of the scheduler on a busy CPU, in ns: the resolution of the coarse clocks (`KTIME_LOW_RES`,
/// kernel/time/posix-timers.c), which the tick moves on.
pub fn tick_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live timespec that the call fills.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Size of a page, in bytes.
pub fn page_bytes() -> usize {
    // SAFETY: takes a number, returns a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// Numbers of the CPUs that are online.
///
/// # Errors
/// If `/sys/devices/system/cpu/online` cannot be read or understood.
pub fn online_cpus() -> Result<Vec<u32>> {
    let path = "/sys/devices/system/cpu/online";
    let text = fs::read_to_string(path).map_err(|e| Error::io(format!("cannot read {path}"), e))?;
    parse_cpu_list(text.trim()).ok_or_else(|| Error::new(Kind::Other, format!("{path} says {text:?}")))
}

/// A list of CPUs as the kernel writes it, for example `0-3,8`.
fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse().ok()?..=last.parse::<u32>().ok()?);
    }
    Some(cpus)
}

/// Peak resident memory of this process, in bytes; 0 if the kernel does not say. Source: `VmHWM` in `/proc/self/status`.
pub fn peak_rss_bytes() -> u64 {
    status_field("VmHWM:").and_then(|v| v.trim_end_matches(" kB").trim().parse::<u64>().ok()).unwrap_or(0)
        * 1024
}

/// Resident memory of this process now, in bytes; 0 if the kernel does not say. Source: `/proc/self/statm`.
pub fn rss_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * page_bytes() as u64
}

/// Gives memory that was freed back to the kernel, as far as the allocator can (glibc's; others keep it).
pub fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Context switches and forks of the whole machine since it started, also threads. Source: `ctxt` and `processes` in `/proc/stat`.
pub fn switches_and_forks() -> Option<(u64, u64)> {
    // In one piece: the kernel writes it anew for each read from the start, and a growing buffer would take a dozen reads.
    let mut bytes = vec![0; 64 << 10];
    let read = fs::File::open("/proc/stat").ok()?.read(&mut bytes).ok()?;
    let stat = String::from_utf8_lossy(&bytes[..read]);
    let number = |name: &str| {
        stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok())
    };
    Some((number("ctxt")?, number("processes")?))
}

fn status_field(name: &str) -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_string())
}

/// Capabilities that profiling needs and this process does not have; CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON.
pub fn missing_capabilities() -> Vec<&'static str> {
    let effective =
        status_field("CapEff:").and_then(|v| u64::from_str_radix(&v, 16).ok()).unwrap_or(u64::MAX);
    missing_in(effective)
}

fn missing_in(effective: u64) -> Vec<&'static str> {
    let has = |(bit, _): (u32, &str)| effective >> bit & 1 == 1;
    let mut missing = Vec::new();
    for capability in [CAP_BPF, CAP_PERFMON] {
        if !has(capability) && !has(CAP_SYS_ADMIN) {
            missing.push(capability.1);
        }
    }
    if !has(CAP_SYS_PTRACE) {
        missing.push(CAP_SYS_PTRACE.1);
    }
    missing
}

/// Allows this process as many descriptors as its hard limit; returns that number.
pub fn raise_descriptor_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live rlimit that the first call fills and the second reads.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            let wanted = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) == 0 {
                limit = wanted;
            }
        }
    }
    limit.rlim_cur
}

/// Inode of this process's pid namespace if it is not the initial one.
pub fn nested_pid_namespace() -> Option<u32> {
    let inode = u32::try_from(fs::metadata("/proc/self/ns/pid").ok()?.ino()).ok()?;
    (inode != INITIAL_PIDNS_INODE).then_some(inode)
}

/// What an I/O error says, without the number and in lower case: part of a line for people.
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// Where cgroup version 2 is mounted, if it is.
pub fn cgroup2_mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (folder, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(folder))
    })
}

/// Highest sampling rate that the kernel allows, in Hz. Source: `kernel.perf_event_max_sample_rate`.
pub fn max_sample_rate_hz() -> Option<u64> {
    fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").ok()?.trim().parse().ok()
}

/// Kernel release and machine, for example `6.12.0` and `x86_64`.
pub fn uname() -> (String, String) {
    // SAFETY: utsname is plain bytes, for which zero is a value; the call fills it with NUL-terminated strings.
    unsafe {
        let mut name: libc::utsname = std::mem::zeroed();
        if libc::uname(&raw mut name) != 0 {
            return ("unknown".into(), "unknown".into());
        }
        let text =
            |field: &[libc::c_char]| std::ffi::CStr::from_ptr(field.as_ptr()).to_string_lossy().into_owned();
        (text(&name.release), text(&name.machine))
    }
}

/// Number of CPUs that could ever come online: what per-CPU maps are sized by.
///
/// # Errors
/// If libbpf cannot find out.
pub fn possible_cpus() -> Result<usize> {
    libbpf_rs::num_possible_cpus()
        .map_err(|e| Error::libbpf("cannot find out the number of CPUs", e, String::new()))
}

/// A descriptor that becomes readable when the process ends. `None` if it has ended already or the kernel has no pidfd (before 5.3).
pub fn process_end(pid: u32) -> Option<OwnedFd> {
    // SAFETY: takes two numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// The calling thread is scheduled before others, as long as this lives. To be dropped by the same thread.
#[derive(Debug)]
pub struct Hurry {
    before: i32,
}

impl Hurry {
    /// `niceness` below 0, see setpriority(2). `None` if that is not allowed (CAP_SYS_NICE).
    pub fn new(niceness: i32) -> Option<Hurry> {
        // SAFETY: both take numbers only. On Linux "process" 0 is the calling thread; asking about it cannot fail.
        unsafe {
            let before = libc::getpriority(libc::PRIO_PROCESS, 0);
            (libc::setpriority(libc::PRIO_PROCESS, 0, niceness.min(before)) == 0).then_some(Hurry { before })
        }
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        // SAFETY: as above. Being scheduled later is always allowed.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, self.before) };
    }
}

/// The calling thread runs before all ordinary ones (`SCHED_FIFO`), as long as this lives: for a thread that mostly sleeps and must not come late.
/// Threads and processes that it makes are ordinary. To be dropped by the same thread.
#[derive(Debug)]
pub struct Urgent(());

impl Urgent {
    /// `None` if that is not allowed (CAP_SYS_NICE).
    pub fn new() -> Option<Urgent> {
        let least = libc::sched_param { sched_priority: 1 };
        // SAFETY: 0 is the calling thread; `least` lives until the call returns.
        let result = unsafe {
            libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const least)
        };
        (result == 0).then_some(Urgent(()))
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        let none = libc::sched_param { sched_priority: 0 };
        // SAFETY: as above. Becoming ordinary is always allowed.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const none) };
    }
}

/// Has the calling thread run on this CPU alone from now on; whether that was allowed.
pub fn run_on(cpu: u32) -> bool {
    // SAFETY: cpu_set_t is plain bits, for which zero is a value. CPU_SET stays inside it: what lies beyond is ignored.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if cpu as usize >= 8 * size_of::<libc::cpu_set_t>() {
            return false;
        }
        libc::CPU_SET(cpu as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) == 0
    }
}

/// Columns of the terminal behind a descriptor; `None` if it is no terminal or does not know.
pub fn terminal_columns(terminal: BorrowedFd<'_>) -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: `size` is a live winsize that the call fills.
    let result = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (result == 0 && size.ws_col > 0).then_some(size.ws_col.into())
}

/// Sends a signal to a process that the caller started.
pub fn signal(pid: u32, signal: i32) -> bool {
    // SAFETY: takes two numbers.
    unsafe { libc::kill(pid as libc::pid_t, signal) == 0 }
}

/// The first page of a file, mapped as code. Never executed; undone on drop.
#[derive(Debug)]
pub struct MappedCode(std::ptr::NonNull<libc::c_void>);

impl MappedCode {
    /// Maps the file.
    ///
    /// # Errors
    /// The errno of `mmap(2)`: EPERM on file systems mounted noexec.
    pub fn map(file: &std::fs::File) -> io::Result<MappedCode> {
        let (length, access) = (page_bytes(), libc::PROT_READ | libc::PROT_EXEC);
        let fd = std::os::fd::AsRawFd::as_raw_fd(file);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_PRIVATE, fd, 0) };
        match std::ptr::NonNull::new(start).filter(|_| start != libc::MAP_FAILED) {
            Some(start) => Ok(MappedCode(start)),
            None => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for MappedCode {
    fn drop(&mut self) {
        // SAFETY: made in `map`, and nobody has a reference into it.
        unsafe { libc::munmap(self.0.as_ptr(), page_bytes()) };
    }
}

/// Fills `into` with the memory of a process from `address` on; false if not all of it could be read.
/// Source: `process_vm_readv(2)`; needs CAP_SYS_PTRACE for processes of others.
pub fn read_memory(pid: u32, address: u64, into: &mut [u8]) -> bool {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: `local` is memory of ours of that length; `remote` is an address in the other process, which the kernel checks.
    let read =
        unsafe { libc::process_vm_readv(pid as libc::pid_t, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read) == Ok(into.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_cpu_lists() {
        assert_eq!(parse_cpu_list("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse_cpu_list("0"), Some(vec![0]));
        assert_eq!(parse_cpu_list(""), None);
    }

    #[test]
    fn names_the_missing_capability() {
        let all = [CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE];
        let set = |capabilities: &[(u32, &str)]| capabilities.iter().fold(0u64, |set, c| set | 1 << c.0);
        assert!(missing_in(set(&all)).is_empty());
        assert!(missing_in(set(&[CAP_SYS_ADMIN, CAP_SYS_PTRACE])).is_empty());
        assert_eq!(missing_in(set(&[CAP_BPF, CAP_SYS_PTRACE])), ["CAP_PERFMON"]);
        assert_eq!(missing_in(0), ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE"]);
    }

    #[test]
    fn a_process_has_a_clock_as_long_as_it_lives() {
        let before = process_cpu_ns();
        let own = cpu_ns_of(std::process::id()).unwrap();
        assert!((before..=process_cpu_ns()).contains(&own), "{own}");
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(cpu_ns_of(child.id()), None);
    }

    #[test]
    fn clocks_move_forward() {
        let (cpu, wall) = (process_cpu_ns(), monotonic_ns());
        let sum: u64 = std::hint::black_box((0..1_000_000u64).map(std::hint::black_box).sum());
        assert!(sum > 0 && process_cpu_ns() > cpu && monotonic_ns() > wall);
    }
}
