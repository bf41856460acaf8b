//! Perf events: `perf_event_open(2)` and its ioctls.

use crate::{Error, Kind, Result};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `struct perf_event_attr` up to `PERF_ATTR_SIZE_VER5`, include/uapi/linux/perf_event.h.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct Attr {
    pub(crate) type_: u32,
    pub(crate) size: u32,
    pub(crate) config: u64,
    pub(crate) sample_period_or_freq: u64,
    pub(crate) sample_type: u64,
    pub(crate) read_format: u64,
    pub(crate) flags: u64,
    pub(crate) wakeup_events_or_watermark: u32,
    pub(crate) bp_type: u32,
    pub(crate) config1: u64,
    pub(crate) config2: u64,
    pub(crate) branch_sample_type: u64,
    pub(crate) sample_regs_user: u64,
    pub(crate) sample_stack_user: u32,
    pub(crate) clockid: i32,
    pub(crate) sample_regs_intr: u64,
    pub(crate) aux_watermark: u32,
    pub(crate) sample_max_stack: u16,
    pub(crate) reserved: u16,
}
const _: () = assert!(size_of::<Attr>() == 112);

/// Bits of `perf_event_attr::flags`, in the order of the kernel's bit fields.
pub(crate) mod flag {
    pub const DISABLED: u64 = 1 << 0;
    pub const FREQ: u64 = 1 << 10;
}

const PERF_TYPE_HARDWARE: u32 = 0;
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_HW_CPU_CYCLES: u64 = 0;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
/// `_IO('$', 0)`, `_IO('$', 1)`, `_IOW('$', 4, __u64)`, `_IOW('$', 8, __u32)`.
const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;
const IOC_PERIOD: libc::c_ulong = 0x4008_2404;
const IOC_SET_BPF: libc::c_ulong = 0x4004_2408;

/// What makes a sampling event fire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A timer on CPU time. Works everywhere.
    CpuClock,
    /// The hardware's cycle counter, its period steered by the kernel to the asked rate.
    Cycles,
}

/// What an event is attached to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// All that runs on this CPU.
    Cpu(u32),
    /// The calling thread, wherever it runs.
    Caller,
    /// This thread, wherever it runs.
    Thread(u32),
}

impl Attr {
    pub(crate) fn new(type_: u32, config: u64) -> Attr {
        Attr { type_, config, size: size_of::<Attr>() as u32, ..Attr::default() }
    }

    /// An event that fires `rate_hz` times per second of CPU time. Disabled until [`PerfEvent::enable`].
    pub fn sampling(source: Source, rate_hz: u64) -> Attr {
        let mut attr = match source {
            Source::CpuClock => Attr::new(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK),
            Source::Cycles => Attr::new(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES),
        };
        attr.sample_period_or_freq = rate_hz;
        attr.flags = flag::DISABLED | flag::FREQ;
        attr
    }

    /// An event that fires each `period_ns` of CPU time. Disabled until [`PerfEvent::enable`].
    pub fn sampling_period(period_ns: u64) -> Attr {
        let mut attr = Attr::new(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK);
        attr.sample_period_or_freq = period_ns;
        attr.flags = flag::DISABLED;
        attr
    }
}

/// An open perf event. Closing it ends it.
#[derive(Debug)]
pub struct PerfEvent {
    fd: OwnedFd,
}

impl PerfEvent {
    /// Opens an event.
    ///
    /// # Errors
    /// The errno of `perf_event_open(2)`: ENODEV (no such CPU) as [`Kind::NotFound`], EPERM and EACCES as
    /// [`Kind::Privilege`], ENOENT and EOPNOTSUPP (no such event here) as [`Kind::Unsupported`].
    pub fn open(attr: Attr, scope: Scope) -> Result<PerfEvent> {
        let (pid, cpu) = match scope {
            Scope::Cpu(cpu) => (-1, cpu as i32),
            Scope::Caller => (0, -1),
            Scope::Thread(tid) => (tid as i32, -1),
        };
        // SAFETY: `attr` is a live perf_event_attr whose `size` field is its size; the kernel copies it.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attr,
                pid as libc::c_long,
                cpu as libc::c_long,
                -1 as libc::c_long,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        if fd < 0 {
            let error = io::Error::last_os_error();
            let what = match scope {
                Scope::Cpu(cpu) => format!("cannot open a perf event on CPU {cpu}"),
                Scope::Caller => "cannot open a perf event on the calling thread".into(),
                Scope::Thread(tid) => format!("cannot open a perf event on thread {tid}"),
            };
            let kind = match error.raw_os_error() {
                Some(libc::ENOENT | libc::EOPNOTSUPP) => Some(Kind::Unsupported),
                Some(libc::ENODEV) => Some(Kind::NotFound),
                _ => None,
            };
            let error = Error::io(what, error);
            return Err(match kind {
                Some(kind) => error.with_kind(kind),
                None => error,
            });
        }
        // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
        Ok(PerfEvent { fd: unsafe { OwnedFd::from_raw_fd(fd as i32) } })
    }

    /// Runs the BPF program each time the event fires.
    ///
    /// # Errors
    /// The errno of the ioctl: EEXIST if a program is attached already.
    pub fn set_bpf(&self, program: BorrowedFd<'_>) -> Result<()> {
        self.ioctl(
            IOC_SET_BPF,
            program.as_raw_fd() as libc::c_ulong,
            "cannot attach the BPF program to a perf event",
        )
    }

    /// Starts the event.
    ///
    /// # Errors
    /// The errno of the ioctl.
    pub fn enable(&self) -> Result<()> {
        self.ioctl(IOC_ENABLE, 0, "cannot start a perf event")
    }

    /// Stops the event. When it returns, no attached program is running any more: the
    /// timer interrupt is masked or cancelled on the event's CPU by then.
    ///
    /// # Errors
    /// The errno of the ioctl.
    pub fn disable(&self) -> Result<()> {
        self.ioctl(IOC_DISABLE, 0, "cannot stop a perf event")
    }

    /// Changes the event's period in ns of CPU time, or, for events of [`Source::Cycles`], its rate in Hz. The timer begins anew.
    ///
    /// # Errors
    /// The errno of the ioctl.
    pub fn set_period(&self, period_or_rate: u64) -> Result<()> {
        // SAFETY: this request takes a pointer to a u64, which lives until the call returns.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_PERIOD as _, &raw const period_or_rate) };
        if result < 0 { Err(Error::last_os("cannot change the period of a perf event")) } else { Ok(()) }
    }

    fn ioctl(&self, request: libc::c_ulong, argument: libc::c_ulong, what: &str) -> Result<()> {
        // SAFETY: the three requests used take an integer, not a pointer.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), request as _, argument) };
        if result < 0 { Err(Error::last_os(what)) } else { Ok(()) }
    }
}

impl AsFd for PerfEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
