//! The programs of `bpf/probes.bpf.c`: prepared by libbpf (maps made, addresses of maps filled in), then loaded here, as often as it
//! takes, with the type that the way of attaching wants.

use super::abi::{self, Config, flag};
use super::{Options, support};
use crate::sampler::{keep_line, take_lines};
use crate::tables::plain_bytes;
use crate::{Error, Kind, Result, os};
use libbpf_rs::{AsRawLibbpf, ObjectBuilder, OpenObject, PrintLevel};
use lightfoot_model::{Body, Mechanism};
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/probes.bpf.o"));
/// With dispatchers of system calls.
static OBJECT_TYPES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/probes_types.bpf.o"));
/// For a pid namespace of one's own.
static OBJECT_NESTED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/probes_nested.bpf.o"));

/// Exists where the kernel has 32-bit system calls (`CONFIG_IA32_EMULATION`).
const COMPAT_SIGN: &str = "/proc/sys/abi/vsyscall32";
/// Log of the verifier that is looked at after a refusal.
const LOG_BYTES: usize = 1 << 16;
const LOG_LINES: usize = 12;

/// What a program is loaded as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kin {
    pub type_: libbpf_sys::bpf_prog_type,
    pub attach: libbpf_sys::bpf_attach_type,
    /// The function or tracepoint in the kernel's types; 0: none.
    pub btf_id: u32,
}

impl Kin {
    /// What a mechanism wants.
    pub fn of(mechanism: Mechanism, btf_id: u32) -> Kin {
        use Mechanism::*;
        let (type_, attach) = match mechanism {
            Kprobe | Kretprobe | Uprobe | Uretprobe => {
                (libbpf_sys::BPF_PROG_TYPE_KPROBE, libbpf_sys::BPF_PERF_EVENT)
            }
            KprobeMulti | KretprobeMulti => {
                (libbpf_sys::BPF_PROG_TYPE_KPROBE, libbpf_sys::BPF_TRACE_KPROBE_MULTI)
            }
            KprobeSession => (libbpf_sys::BPF_PROG_TYPE_KPROBE, libbpf_sys::BPF_TRACE_KPROBE_SESSION),
            UprobeMulti | UretprobeMulti => {
                (libbpf_sys::BPF_PROG_TYPE_KPROBE, libbpf_sys::BPF_TRACE_UPROBE_MULTI)
            }
            UprobeSession => (libbpf_sys::BPF_PROG_TYPE_KPROBE, libbpf_sys::BPF_TRACE_UPROBE_SESSION),
            Fentry => (libbpf_sys::BPF_PROG_TYPE_TRACING, libbpf_sys::BPF_TRACE_FENTRY),
            Fexit => (libbpf_sys::BPF_PROG_TYPE_TRACING, libbpf_sys::BPF_TRACE_FEXIT),
            TpBtf => (libbpf_sys::BPF_PROG_TYPE_TRACING, libbpf_sys::BPF_TRACE_RAW_TP),
            Tracepoint => (libbpf_sys::BPF_PROG_TYPE_TRACEPOINT, libbpf_sys::BPF_PERF_EVENT),
            RawTracepoint => (libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT, 0),
            PerfEvent => (libbpf_sys::BPF_PROG_TYPE_PERF_EVENT, libbpf_sys::BPF_PERF_EVENT),
        };
        Kin { type_, attach, btf_id }
    }

    /// The attach type that the program itself must say at load; links of perf events need none.
    fn expected(self) -> libbpf_sys::bpf_attach_type {
        if self.attach == libbpf_sys::BPF_PERF_EVENT { 0 } else { self.attach }
    }
}

/// Which program of a body.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Role {
    /// A probe, counted.
    On,
    /// The dispatcher of entries into system calls.
    Enter,
    /// The dispatcher of exits from system calls.
    Exit,
    /// The body alone.
    Bare,
}

/// The object with its maps; programs are made from it.
pub(super) struct Template {
    object: OpenObject,
    body: Body,
}

impl Template {
    /// Makes the maps.
    pub fn new(options: &Options, cpus: usize) -> Result<Template> {
        libbpf_rs::set_print(Some((PrintLevel::Info, keep_line)));
        take_lines();
        let failed =
            |what: &str, e| Error::libbpf(format!("cannot {what} the probes' BPF object"), e, take_lines());
        let namespace = os::nested_pid_namespace();
        let mut object = ObjectBuilder::default()
            .open_memory(match namespace {
                Some(_) => OBJECT_NESTED,
                None if dispatches(options.mechanism) && !options.bare => OBJECT_TYPES,
                None => OBJECT,
            })
            .map_err(|e| failed("open", e))?;
        let config = config(options, namespace.unwrap_or(0));
        let (mut flags, body) = (config.flags, options.body);
        if options.bare {
            flags = 0;
        }
        for mut map in object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let wanted = match name.as_str() {
                "rows" => !options.bare,
                "gates" | "breaker" | "alarms" => flags & flag::GATE != 0,
                "entered" | "exited" => !options.bare && dispatches(options.mechanism),
                "counter_per_cpu" => matches!(body, Body::PerCpuCounter | Body::Filter),
                "counter_shared" => body == Body::SharedCounter,
                "counts_simple" => body == Body::Simple,
                "counts_complex" => body == Body::Complex,
                "ring" => body == Body::Event,
                "stacks" => matches!(body, Body::UserStack | Body::KernelStack),
                _ => true,
            };
            let result = match name.as_str() {
                _ if !wanted => map.set_autocreate(false),
                "rows" => map.set_max_entries(cpus as u32 * (options.slots + 1)),
                "gates" => map.set_max_entries(options.slots),
                "counts_simple" | "counts_complex" => map.set_max_entries(options.hash_entries.max(1)),
                "ring" => map.set_max_entries(options.ring_bytes),
                name if name.ends_with(".rodata") => map.set_initial_value(plain_bytes(&config)),
                _ => Ok(()),
            };
            result.map_err(|e| failed("set up", e))?;
        }
        for mut program in object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let role = name.split_once('_').filter(|(_, of)| *of == body.name()).map(|(role, _)| role);
            program.set_autoload(match role {
                Some("bare") => options.bare,
                Some("on") => !options.bare,
                Some(_) => !options.bare && dispatches(options.mechanism),
                None => false,
            });
        }
        // SAFETY: the object is open and nobody else has it.
        let result = unsafe { libbpf_sys::bpf_object__prepare(object.as_libbpf_object().as_ptr()) };
        if result < 0 {
            let error = io::Error::from_raw_os_error(-result);
            let what = match take_lines() {
                lines if lines.is_empty() => "cannot make the probes' BPF maps".to_string(),
                lines => {
                    format!("cannot make the probes' BPF maps: {}", lines.lines().last().unwrap_or_default())
                }
            };
            return Err(Error::io(what, error));
        }
        Ok(Template { object, body })
    }

    /// A map's descriptor.
    pub fn map(&self, name: &str) -> Result<BorrowedFd<'_>> {
        let map = self.object.maps().find(|map| map.name() == name);
        let fd = map.map_or(-1, |map| {
            let map = map.as_libbpf_object().as_ptr();
            // SAFETY: both take a map of the object, which is alive. A map that was not made has a descriptor that is none of a map.
            unsafe { if libbpf_sys::bpf_map__autocreate(map) { libbpf_sys::bpf_map__fd(map) } else { -1 } }
        });
        if fd < 0 {
            return Err(Error::new(Kind::Other, format!("these probes have no map {name}")));
        }
        // SAFETY: the descriptor belongs to the object, which outlives the borrow.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// The program of a role, ready to be loaded.
    pub fn program(&self, role: Role) -> Result<Program> {
        let role = match role {
            Role::On => "on",
            Role::Enter => "enter",
            Role::Exit => "exit",
            Role::Bare => "bare",
        };
        let name = format!("{role}_{}", self.body.name());
        let missing = || Error::new(Kind::Other, format!("the probes' BPF object has no program {name}"));
        let program = self.object.progs().find(|program| *program.name() == *name).ok_or_else(missing)?;
        Ok(Program { name: format!("lf_{name}"), instructions: program.insns().to_vec() })
    }
}

/// Instructions with the maps' descriptors in them.
pub(super) struct Program {
    name: String,
    instructions: Vec<libbpf_sys::bpf_insn>,
}

impl Program {
    /// Loads it. `slot` is written into it: the one that it counts in unless attachments have cookies.
    ///
    /// # Errors
    /// What the verifier said; [`Kind::Unsupported`] where the kernel refuses the type although nothing is missing.
    pub fn load(&self, kin: Kin, slot: u32) -> Result<OwnedFd> {
        let mut instructions = self.instructions.clone();
        for instruction in &mut instructions {
            // mov r, imm in 64 bits: nothing else has this constant.
            if instruction.code == 0xb7 && instruction.imm == abi::SLOT {
                instruction.imm = slot as i32;
            }
        }
        load(&self.name, &instructions, kin)
    }
}

/// Whether it may be a tracepoint of all system calls, of which some are asked for.
fn dispatches(mechanism: Mechanism) -> bool {
    matches!(mechanism, Mechanism::RawTracepoint | Mechanism::TpBtf)
}

fn config(options: &Options, pidns_inode: u32) -> Config {
    let mut flags = 0;
    let mut set = |bit, on| flags |= if on { bit } else { 0 };
    set(flag::GATE, options.gate);
    set(flag::FILTER, options.pid.is_some());
    set(flag::COOKIE, support::has_cookies(options.mechanism) && options.slots > 1);
    set(flag::ATOMIC, options.mechanism.is_user());
    set(flag::COMPAT, Path::new(COMPAT_SIGN).exists());
    Config {
        flags,
        // Without a process of their own `bare` filters compare with one that nobody is.
        pid: options.pid.unwrap_or(u32::MAX),
        slots: options.slots,
        wakeup_bytes: 0,
        pidns_inode,
        reserved: 0,
    }
}

/// Loads instructions; after a refusal once more, for the verifier's reasons.
pub(super) fn load(name: &str, instructions: &[libbpf_sys::bpf_insn], kin: Kin) -> Result<OwnedFd> {
    let attempt = |log: &mut [u8]| {
        let mut options = libbpf_sys::bpf_prog_load_opts {
            sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
            expected_attach_type: kin.expected(),
            attach_btf_id: kin.btf_id,
            attempts: 5,
            log_level: u32::from(!log.is_empty()),
            log_size: log.len() as u32,
            log_buf: if log.is_empty() { std::ptr::null_mut() } else { log.as_mut_ptr().cast() },
            ..Default::default()
        };
        // The kernel takes 15 letters, digits, dots and underlines.
        let name: Vec<u8> = name.bytes().take(15).chain([0]).collect();
        // SAFETY: name and licence are NUL-terminated; instructions and log have the lengths given and live until the call returns.
        unsafe {
            libbpf_sys::bpf_prog_load(
                kin.type_,
                name.as_ptr().cast(),
                c"Dual MIT/GPL".as_ptr(),
                instructions.as_ptr(),
                instructions.len() as libbpf_sys::size_t,
                &raw mut options,
            )
        }
    };
    let fd = attempt(&mut []);
    if fd >= 0 {
        // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    let mut log = vec![0u8; LOG_BYTES];
    let again = attempt(&mut log);
    if again >= 0 {
        // SAFETY: as above.
        return Ok(unsafe { OwnedFd::from_raw_fd(again) });
    }
    let said =
        String::from_utf8_lossy(&log[..log.iter().position(|&byte| byte == 0).unwrap_or(0)]).into_owned();
    let error = io::Error::from_raw_os_error(-fd);
    let lines: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
    if lines.is_empty() && -fd == libc::EPERM && os::missing_capabilities().is_empty() {
        let why = "the kernel refuses programs of this type, although no capability is missing";
        return Err(Error::new(Kind::Unsupported, why));
    }
    let reason = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
    let what = match reason.as_str() {
        "" => format!("the kernel refused the program {name}"),
        reason => format!("the verifier refused the program {name}: {reason}"),
    };
    let refused = Error::io(what, error);
    // The verifier refuses with EACCES, too.
    Err(if lines.is_empty() { refused } else { refused.with_kind(Kind::Other) })
}
