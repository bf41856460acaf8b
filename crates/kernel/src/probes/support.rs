//! What this kernel has, found by trying; nothing is left attached.

use super::program::{self, Kin};
use super::tracefs::Tracefs;
use crate::perf::{Attr, PerfEvent, Scope, Source};
use crate::{Error, Kind, Result, os};
use lightfoot_model::Mechanism;
use lightfoot_sites::System;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Mutex;

/// `r0 = 0; exit`.
const NOTHING: [libbpf_sys::bpf_insn; 2] = [instruction(0xb7), instruction(0x95)];
/// Functions that can be traced on every kernel that traces functions at all.
const TRACEABLE: [&str; 3] = ["bpf_fentry_test1", "vfs_read", "do_nanosleep"];
/// `ENOTSUPP`: the kernel's own, not known to user space.
pub(super) const ENOTSUPP: i32 = 524;

const fn instruction(code: u8) -> libbpf_sys::bpf_insn {
    libbpf_sys::bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: libbpf_sys::__BindgenBitfieldUnit::new([0]),
        off: 0,
        imm: 0,
    }
}

/// Whether this kernel has a mechanism, by trying it; remembered for the life of the process.
///
/// # Errors
/// [`Kind::Unsupported`] or [`Kind::Privilege`] with the reason.
pub fn check(mechanism: Mechanism) -> Result<()> {
    type Known = HashMap<Mechanism, std::result::Result<(), (Kind, String)>>;
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    let result = known.get_or_insert_default().entry(mechanism).or_insert_with(|| {
        attempt(mechanism).map_err(|error| {
            let why = std::error::Error::source(&error).map(|source| match source.downcast_ref() {
                Some(source) => format!(": {}", os::plain(source)),
                None => format!(": {source}"),
            });
            (error.kind(), format!("{error}{}", why.unwrap_or_default()))
        })
    });
    match result {
        Ok(()) => Ok(()),
        Err((kind, why)) => Err(Error::new(*kind, format!("{}: {why}", mechanism.name()))),
    }
}

fn attempt(mechanism: Mechanism) -> Result<()> {
    use Mechanism::*;
    let load = |btf_id| program::load("nothing", &NOTHING, Kin::of(mechanism, btf_id));
    match mechanism {
        Kprobe | Kretprobe => pmu("kprobe").and(load(0)).map(drop),
        Uprobe | Uretprobe => pmu("uprobe").and(load(0)).map(drop),
        Tracepoint => Tracefs::open().map(drop).and(load(0)).map(drop),
        RawTracepoint => load(0).map(drop),
        PerfEvent => {
            let event = crate::perf::PerfEvent::open(Attr::sampling(Source::CpuClock, 99), Scope::Caller)?;
            link_event(&load(0)?, &event, 0).map(drop)
        }
        Fentry | Fexit => {
            let ids = ids(mechanism, TRACEABLE.into_iter())?;
            let none = || Error::new(Kind::Unsupported, "the kernel's types have no functions");
            let function = TRACEABLE.iter().find_map(|&name| ids.get(name));
            load(*function.ok_or_else(none)?).map(drop)
        }
        TpBtf => {
            let ids = ids(mechanism, ["sched_switch"].into_iter())?;
            let none = || Error::new(Kind::Unsupported, "the kernel's types have no tracepoints");
            load(*ids.get("sched_switch").ok_or_else(none)?).map(drop)
        }
        KprobeMulti | KretprobeMulti | KprobeSession => {
            let name = c"no function has this name";
            let (program, mut options) = (load(0)?, options());
            let names = [name.as_ptr()];
            options.__bindgen_anon_1.kprobe_multi =
                libbpf_sys::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_2 {
                    flags: returns(mechanism),
                    cnt: 1,
                    syms: names.as_ptr().cast_mut(),
                    ..Default::default()
                };
            refused_for_the_place(link(&program, Kin::of(mechanism, 0).attach, &options))
        }
        UprobeMulti | UretprobeMulti | UprobeSession => {
            let (program, mut options) = (load(0)?, options());
            let offsets = [0u64];
            options.__bindgen_anon_1.uprobe_multi =
                libbpf_sys::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_3 {
                    flags: returns(mechanism),
                    cnt: 1,
                    path: c"/".as_ptr(),
                    offsets: offsets.as_ptr().cast(),
                    ..Default::default()
                };
            refused_for_the_place(link(&program, Kin::of(mechanism, 0).attach, &options))
        }
    }
}

/// A kernel that has the mechanism finds fault with the place that it was given: there is no such function, a folder is no file. One that has it
/// not finds fault with the request (EINVAL) or says so (EOPNOTSUPP).
fn refused_for_the_place(result: io::Result<OwnedFd>) -> Result<()> {
    match result.map_err(|error| (error.raw_os_error(), error)) {
        Ok(_) | Err((Some(libc::ESRCH | libc::ENOENT | libc::EBADF), _)) => Ok(()),
        Err((Some(libc::EPERM | libc::EACCES), error)) => {
            Err(Error::io("the kernel refused the link", error))
        }
        Err((_, error)) => {
            Err(Error::io("this kernel has no such links", error).with_kind(Kind::Unsupported))
        }
    }
}

/// Type of the perf events of this kind (`kprobe`, `uprobe`). Source: sysfs, Documentation/ABI/testing/sysfs-bus-event_source-devices.
pub(super) fn pmu(name: &str) -> Result<u32> {
    let path = format!("/sys/bus/event_source/devices/{name}/type");
    let text = std::fs::read_to_string(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::new(Kind::Unsupported, format!("this kernel has no {name}s")),
        _ => Error::io(format!("cannot read {path}"), error),
    })?;
    text.trim().parse().map_err(|_| Error::new(Kind::Other, format!("{path} says {text:?}")))
}

/// Whether attachments carry a number that the program can ask for, on every kernel that has the mechanism.
pub(super) fn has_cookies(mechanism: Mechanism) -> bool {
    use Mechanism::*;
    !matches!(mechanism, RawTracepoint | TpBtf | Fentry | Fexit)
}

/// `BPF_F_KPROBE_MULTI_RETURN`, `BPF_F_UPROBE_MULTI_RETURN`.
pub(super) fn returns(mechanism: Mechanism) -> u32 {
    u32::from(matches!(mechanism, Mechanism::KretprobeMulti | Mechanism::UretprobeMulti))
}

/// Functions or tracepoints by name: their numbers in the kernel's types.
pub(super) type Ids = HashMap<String, u32>;

/// The numbers of those of these names that the kernel's types have; nothing for mechanisms that do not ask. Takes some 2 ms.
pub(super) fn ids<'a>(mechanism: Mechanism, names: impl Iterator<Item = &'a str>) -> Result<Ids> {
    use Mechanism::*;
    if !matches!(mechanism, Fentry | Fexit | TpBtf) {
        return Ok(Ids::new());
    }
    let system = System::new();
    let none = || Error::new(Kind::Unsupported, "this kernel does not tell its types (BTF)");
    let types = system.btf().ok_or_else(none)?;
    let names: HashSet<&str> = names.collect();
    let wanted = |(id, name): (u32, &str)| names.contains(name).then(|| (name.to_string(), id));
    if mechanism == TpBtf {
        return Ok(types.tracepoints().filter_map(wanted).collect());
    }
    let mut ids: Ids = types.functions().filter_map(wanted).collect();
    let missing: HashSet<&str> = names.iter().copied().filter(|&name| !ids.contains_key(name)).collect();
    if !missing.is_empty() {
        let others = other_names(&std::fs::read("/proc/kallsyms").unwrap_or_default(), &missing);
        let known: HashSet<&str> = others.values().flatten().map(String::as_str).collect();
        let known: HashMap<&str, u32> =
            types.functions().filter(|(_, name)| known.contains(name)).map(|(id, name)| (name, id)).collect();
        for (name, others) in &others {
            if let Some(&id) = others.iter().find_map(|other| known.get(other.as_str())) {
                ids.insert(name.clone(), id);
            }
        }
    }
    Ok(ids)
}

/// Other names of functions, from the lines of `/proc/kallsyms`: the types know one of them. On x86-64 a system call without arguments has the
/// names `__x64_sys_getppid` and `__do_sys_getppid`, for example.
fn other_names(kallsyms: &[u8], names: &HashSet<&str>) -> HashMap<String, Vec<String>> {
    let text = String::from_utf8_lossy(kallsyms);
    let symbols = || {
        text.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
            // Zeros: addresses are hidden.
            (matches!(kind, "t" | "T") && address.bytes().any(|byte| byte != b'0')).then_some((address, name))
        })
    };
    let at: HashMap<&str, &str> = symbols().filter(|(_, name)| names.contains(name)).collect();
    let mut others: HashMap<String, Vec<String>> = HashMap::new();
    for (address, name) in symbols() {
        if let Some(&of) = at.get(address).filter(|&&of| of != name) {
            others.entry(of.to_string()).or_default().push(name.to_string());
        }
    }
    others
}

pub(super) fn options() -> libbpf_sys::bpf_link_create_opts {
    libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    }
}

/// Makes a link that needs no descriptor of what it is attached to.
pub(super) fn link(
    program: &OwnedFd,
    attach: libbpf_sys::bpf_attach_type,
    options: &libbpf_sys::bpf_link_create_opts,
) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is open; the options say their size, and what they point to lives in the caller until the call returns.
    descriptor(unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), 0, attach, options) })
}

/// Runs a program each time an event fires.
pub(super) fn link_event(program: &OwnedFd, event: &PerfEvent, cookie: u64) -> Result<OwnedFd> {
    use std::os::fd::AsFd;
    let mut options = options();
    options.__bindgen_anon_1.perf_event.bpf_cookie = cookie;
    let event = event.as_fd().as_raw_fd();
    // SAFETY: as in `link`.
    let result = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            event,
            libbpf_sys::BPF_PERF_EVENT,
            &raw const options,
        )
    };
    descriptor(result).map_err(|e| Error::io("cannot attach the program to a perf event", e))
}

/// The descriptor that a libbpf call returned, or its negative errno.
pub(super) fn descriptor(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_has_several_names() {
        let text =
            b"ff10 t __do_sys_x\nff10 T __x64_sys_x\nff20 T y\nff10 d data\nff10 T __ia32_sys_x\t[mod]\n";
        let others = other_names(text, &HashSet::from(["__x64_sys_x", "y", "z"]));
        assert_eq!(others.len(), 1);
        assert_eq!(others["__x64_sys_x"], ["__do_sys_x", "__ia32_sys_x"]);
        let hidden = b"0000 t a\n0000 T b\n";
        assert!(other_names(hidden, &HashSet::from(["a"])).is_empty());
    }
}
