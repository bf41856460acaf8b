//! What works here, found by trying: a kernel's version says little about what a distribution compiled in, a container forbids or
//! a hypervisor lacks.

use crate::os::plain;
use crate::perf::{Attr, PerfEvent, Scope, Source};
use crate::probes::support;
use crate::{Error, Kind, os};
use lightfoot_model::Mechanism;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Something that profiling uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feature {
    /// Short name.
    pub name: &'static str,
    /// `Ok` with a detail worth knowing (may be empty), or why it does not work.
    pub result: Result<String, String>,
    /// Whether nothing can be profiled without it.
    pub essential: bool,
    /// What the user loses without it, and what is used instead.
    pub without: &'static str,
}

/// Tries everything. Takes some 100 ms and leaves nothing behind.
pub fn probe() -> Vec<Feature> {
    let feature = |name, essential, without, result| Feature { name, result, essential, without };
    let mut features = vec![
        feature("capabilities", true, "the kernel refuses BPF and perf events; run as root", capabilities()),
        feature("kernel types (BTF)", true, "programs cannot be fitted to this kernel", btf()),
        feature("BPF programs on perf events", true, "no sampling in the kernel", perf_program()),
        feature(
            "BPF loops (bpf_loop)",
            false,
            "nothing: stacks are walked in plain loops, which take longer to load",
            helper(libbpf_sys::BPF_FUNC_loop),
        ),
        feature("BPF ring buffer", true, "no way for stacks to user space", ring_buffer()),
        feature("CPU clock events", true, "no samples", perf_event(Source::CpuClock)),
        feature(
            "hardware cycle counter",
            false,
            "the CPU clock is used: a timer interrupt per sample, and code that masks interrupts is seen late",
            perf_event(Source::Cycles),
        ),
        feature("kernel symbols", false, "kernel frames are shown as addresses", kernel_symbols()),
        feature(
            "files of mappings (map_files)",
            false,
            "deleted programs and programs in other mount namespaces may have no names",
            map_files(),
        ),
        feature(
            "raw tracepoints",
            true,
            "children of profiled processes cannot be followed",
            raw_tracepoint(),
        ),
        feature("cgroup version 2", false, "--cgroup cannot be used", cgroup2()),
        feature(
            "BPF statistics",
            false,
            "nothing for profiles; what probes do is priced from calibration alone",
            statistics(),
        ),
    ];
    features.extend(Mechanism::ALL.into_iter().map(|mechanism| {
        let (name, without) = probes(mechanism);
        let result = support::check(mechanism).map(|()| String::new()).map_err(|e| e.to_string());
        // The name stands before it already.
        let why =
            |text: String| text.trim_start_matches(mechanism.name()).trim_start_matches(": ").to_string();
        feature(name, false, without, result.map_err(why))
    }));
    features
}

/// The row of a kind of probe: its name, and what is used instead.
fn probes(mechanism: Mechanism) -> (&'static str, &'static str) {
    let functions =
        "kernel functions: fentry or kprobe_multi are used where there are any, tracepoints otherwise";
    let returns = "returns of kernel functions: fexit or kretprobe_multi are used where there are any";
    match mechanism {
        Mechanism::Kprobe => ("probes: kprobe", "instructions inside of kernel functions cannot be probed"),
        Mechanism::Kretprobe => ("probes: kretprobe", returns),
        Mechanism::KprobeMulti => ("probes: kprobe_multi", functions),
        Mechanism::KretprobeMulti => ("probes: kretprobe_multi", returns),
        Mechanism::KprobeSession => ("probes: kprobe_session", "an entry and a return probe are used"),
        Mechanism::Fentry => {
            ("probes: fentry", "kernel functions: kprobe_multi or kprobe is used where there are any")
        }
        Mechanism::Fexit => {
            ("probes: fexit", "returns of kernel functions: kretprobe_multi is used where there is any")
        }
        Mechanism::Tracepoint => ("probes: tracepoint", "raw tracepoints are used, which are cheaper anyway"),
        Mechanism::RawTracepoint => {
            ("probes: raw_tracepoint", "tracepoints cost more, and take long to detach")
        }
        Mechanism::TpBtf => ("probes: tp_btf", "raw tracepoints are used"),
        Mechanism::Uprobe => ("probes: uprobe", "programs and libraries cannot be probed"),
        Mechanism::Uretprobe => {
            ("probes: uretprobe", "returns of user functions: their return instructions are probed")
        }
        Mechanism::UprobeMulti => {
            ("probes: uprobe_multi", "uprobes are used, which take 0.1 s each to detach")
        }
        Mechanism::UretprobeMulti => {
            ("probes: uretprobe_multi", "uretprobes are used, which take 0.1 s each to detach")
        }
        Mechanism::UprobeSession => ("probes: uprobe_session", "an entry and a return probe are used"),
        Mechanism::PerfEvent => ("probes: perf_event", "no timers, no software and hardware events"),
    }
}

fn capabilities() -> Result<String, String> {
    let missing = os::missing_capabilities();
    if missing.is_empty() { Ok(String::new()) } else { Err(format!("missing: {}", missing.join(", "))) }
}

fn btf() -> Result<String, String> {
    let path = "/sys/kernel/btf/vmlinux";
    let size = fs::metadata(path).map_err(|e| format!("{path}: {}", plain(&e)))?.len();
    Ok(format!("{:.1} MiB", size as f64 / f64::from(1 << 20)))
}

/// `r0 = 0; exit`, as the little-endian words of two `struct bpf_insn`.
const NOTHING: [u64; 2] = [0xb7, 0x95];

/// Loads a program that does nothing.
fn load_nothing(kind: libbpf_sys::bpf_prog_type) -> Result<OwnedFd, String> {
    // SAFETY: name and licence are NUL-terminated, NOTHING has two instructions of 8 bytes, no options are given.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            kind,
            c"nothing".as_ptr(),
            c"GPL".as_ptr(),
            NOTHING.as_ptr().cast(),
            NOTHING.len() as libbpf_sys::size_t,
            std::ptr::null_mut(),
        )
    };
    descriptor(fd, "refused")
}

/// The descriptor that a libbpf call returned, or its negative errno.
fn descriptor(fd: i32, what: &str) -> Result<OwnedFd, String> {
    if fd < 0 {
        return Err(format!("{what}: {}", plain(&io::Error::from_raw_os_error(-fd))));
    }
    // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn perf_program() -> Result<String, String> {
    let program = load_nothing(libbpf_sys::BPF_PROG_TYPE_PERF_EVENT)?;
    let event = own_event(Source::CpuClock).map_err(|e| plain_error(&e))?;
    use std::os::fd::AsFd;
    event.set_bpf(program.as_fd()).map_err(|e| plain_error(&e))?;
    Ok(String::new())
}

/// Whether the kernel has `bpf_loop`.
pub(crate) fn has_loop() -> bool {
    helper(libbpf_sys::BPF_FUNC_loop).is_ok()
}

fn helper(helper: libbpf_sys::bpf_func_id) -> Result<String, String> {
    libbpf_rs::set_print(None);
    // SAFETY: takes two numbers; the last argument must be null.
    match unsafe {
        libbpf_sys::libbpf_probe_bpf_helper(libbpf_sys::BPF_PROG_TYPE_PERF_EVENT, helper, std::ptr::null())
    } {
        1 => Ok(String::new()),
        0 => Err("this kernel has none (Linux 5.17 or later has)".into()),
        error => Err(plain(&io::Error::from_raw_os_error(-error))),
    }
}

fn ring_buffer() -> Result<String, String> {
    let bytes = os::page_bytes() as u32;
    // SAFETY: the name is NUL-terminated, no options are given.
    let fd = unsafe {
        libbpf_sys::bpf_map_create(
            libbpf_sys::BPF_MAP_TYPE_RINGBUF,
            c"probe".as_ptr(),
            0,
            0,
            bytes,
            std::ptr::null(),
        )
    };
    descriptor(fd, "refused").map(|_| String::new())
}

fn own_event(source: Source) -> crate::Result<PerfEvent> {
    PerfEvent::open(Attr::sampling(source, 99), Scope::Caller)
}

fn perf_event(source: Source) -> Result<String, String> {
    own_event(source).map_err(|e| match e.kind() {
        Kind::Unsupported => "this machine has none (common in virtual machines)".into(),
        _ => plain_error(&e),
    })?;
    let limit = os::max_sample_rate_hz().map_or("unknown".into(), |hz| format!("{hz} Hz"));
    Ok(format!("highest rate that the kernel allows: {limit}"))
}

fn kernel_symbols() -> Result<String, String> {
    let path = "/proc/kallsyms";
    let file = File::open(path).map_err(|e| format!("{path}: {}", plain(&e)))?;
    let mut symbols = 0u64;
    let mut shown = false;
    for line in BufReader::with_capacity(1 << 16, file).split(b'\n') {
        let line = line.map_err(|e| format!("{path}: {}", plain(&e)))?;
        symbols += 1;
        shown |= line.iter().take_while(|b| b.is_ascii_hexdigit()).any(|&b| b != b'0');
    }
    if shown {
        Ok(format!("{symbols} symbols"))
    } else {
        Err("the kernel hides addresses (sysctl kernel.kptr_restrict)".into())
    }
}

fn map_files() -> Result<String, String> {
    let entries = fs::read_dir("/proc/self/map_files").map_err(|e| plain(&e))?;
    let first = entries.flatten().next().ok_or("no entries")?;
    File::open(first.path()).map_err(|e| plain(&e))?;
    Ok(String::new())
}

fn raw_tracepoint() -> Result<String, String> {
    let program = load_nothing(libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT)?;
    // SAFETY: the name is NUL-terminated and the descriptor open.
    let fd =
        unsafe { libbpf_sys::bpf_raw_tracepoint_open(c"sched_process_exit".as_ptr(), program.as_raw_fd()) };
    descriptor(fd, "refused").map(|_| String::new())
}

fn cgroup2() -> Result<String, String> {
    let mount = os::cgroup2_mount().ok_or("not mounted")?;
    Ok(format!("at {}", mount.display()))
}

fn statistics() -> Result<String, String> {
    // SAFETY: takes a number. The statistics end when the descriptor is closed, here at once.
    descriptor(unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) }, "refused")
        .map(|_| String::new())
}

fn plain_error(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => match source.downcast_ref::<io::Error>() {
            Some(source) => format!("{error}: {}", plain(source)),
            None => format!("{error}: {source}"),
        },
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_says_what_its_absence_costs() {
        let features = probe();
        assert!(features.iter().any(|f| f.essential));
        for feature in features {
            assert!(!feature.without.is_empty(), "{}", feature.name);
            assert!(feature.result.err().is_none_or(|why| !why.is_empty()), "{}", feature.name);
        }
    }
}
