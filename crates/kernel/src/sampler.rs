//! The sampling program: loaded, attached to its events, read.

use crate::abi::{self, Counters, TargetKind};
use crate::mmap::Shared;
use crate::perf::{Attr, PerfEvent, Scope, Source};
use crate::sideband::Sideband;
use crate::{Error, Kind, Result, os};
use libbpf_rs::{
    Link, Map, MapCore, MapFlags, Object, ObjectBuilder, PrintLevel, RingBuffer, RingBufferBuilder,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sampler.bpf.o"));

/// What libbpf said last. It prints through a callback without context, so this must be global; bounded to the last lines.
static LIBBPF_SAYS: Mutex<Vec<String>> = Mutex::new(Vec::new());
const LIBBPF_LINES: usize = 40;
/// Entries read from `counts` in one system call. More than any bucket holds, or the kernel answers ENOSPC.
const COUNTS_BATCH: usize = 8192;

/// Which tasks to sample.
#[derive(Debug)]
pub enum Target {
    /// Everything but idle CPUs.
    All,
    /// These processes and the children that they create from now on; room for so many at a time.
    Processes {
        /// Process ids.
        pids: Vec<u32>,
        /// Processes that can be followed at a time.
        room: u32,
    },
    /// What runs below a cgroup (v2), given as a descriptor of its folder.
    Cgroup(OwnedFd),
}

/// How samples come to user space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transfer {
    /// Equal stacks are counted in the kernel; each is sent once, and the counts are read at the end in batches.
    #[default]
    Counted,
    /// Each sample goes through the ring.
    Ring,
}

/// What the program is loaded with.
#[derive(Debug)]
pub struct Config {
    /// Which tasks.
    pub target: Target,
    /// Whether kernel stacks are taken.
    pub kernel_frames: bool,
    /// How samples come to user space.
    pub transfer: Transfer,
    /// Size of the ring in bytes: a power of two, at least one page.
    pub ring_bytes: u32,
    /// Distinct stacks that can be counted in the kernel. What does not fit goes through the ring.
    pub stack_slots: u32,
}

/// The loaded program with its maps, events and buffers. Dropping it removes all of them from the kernel.
pub struct Sampler {
    // Fields drop in this order: first what fires, then what is fired.
    events: Vec<PerfEvent>,
    _links: Vec<Link>,
    sideband: Sideband,
    ring: RingBuffer<'static>,
    inbox: Rc<RefCell<Inbox>>,
    counters: Shared,
    possible_cpus: usize,
    object: Object,
}

/// Records copied out of the ring, one after the other.
#[derive(Default)]
struct Inbox {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Sampler {
    /// Loads the program and opens the sideband buffers. Nothing fires yet.
    ///
    /// # Errors
    /// [`Kind::Privilege`] if the kernel refuses BPF or perf events to this process; otherwise what libbpf and the verifier said.
    pub fn load(config: &Config) -> Result<Sampler> {
        libbpf_rs::set_print(Some((PrintLevel::Info, keep_line)));
        take_lines();
        let possible_cpus = os::possible_cpus()?;
        let mut open = ObjectBuilder::default()
            .open_memory(OBJECT)
            .map_err(|e| Error::libbpf("cannot open the BPF object", e, take_lines()))?;
        let kind = match config.target {
            Target::All => TargetKind::All,
            Target::Processes { .. } => TargetKind::Processes,
            Target::Cgroup(_) => TargetKind::Cgroup,
        };
        let switches = abi::Config {
            target: kind as u32,
            kernel_frames: config.kernel_frames.into(),
            count_in_kernel: (config.transfer == Transfer::Counted).into(),
            wakeup_bytes: config.ring_bytes / 4,
            pidns_inode: os::nested_pid_namespace().unwrap_or(0),
            reserved: 0,
        };
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let result = match name.as_str() {
                "counters" => map.set_max_entries(possible_cpus as u32),
                "counts" if config.transfer == Transfer::Ring => map.set_max_entries(1),
                "counts" => map.set_max_entries(config.stack_slots.max(1)),
                "records" => map.set_max_entries(config.ring_bytes),
                "targets" => match config.target {
                    Target::Processes { room, .. } => map.set_max_entries(room),
                    _ => Ok(()),
                },
                name if name.ends_with(".rodata") => map.set_initial_value(bytes_of(&switches)),
                _ => Ok(()),
            };
            result
                .map_err(|e| Error::libbpf(format!("cannot set up the BPF map {name}"), e, take_lines()))?;
        }
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if matches!(name.as_str(), "on_fork" | "on_exit") && kind != TargetKind::Processes {
                program.set_autoload(false);
            }
        }
        let object = open
            .load()
            .map_err(|e| Error::libbpf("the kernel refused the sampling program", e, take_lines()))?;
        let (sideband, counters, inbox) =
            (Sideband::open()?, counters(&object, possible_cpus)?, Rc::default());
        let ring = ring(&object, Rc::clone(&inbox))?;
        let mut sampler = Sampler {
            events: Vec::new(),
            _links: Vec::new(),
            sideband,
            ring,
            inbox,
            counters,
            possible_cpus,
            object,
        };
        match &config.target {
            Target::Processes { pids, .. } => {
                sampler._links = sampler.follow_forks()?;
                pids.iter().try_for_each(|&pid| sampler.follow(pid))?;
            }
            Target::Cgroup(folder) => {
                sampler.put("target_cgroup", &0u32.to_ne_bytes(), &folder.as_raw_fd().to_ne_bytes())?;
            }
            Target::All => {}
        }
        Ok(sampler)
    }

    /// Adds an event on a CPU, not yet started.
    ///
    /// # Errors
    /// As [`PerfEvent::open`].
    pub fn attach_cpu(&mut self, cpu: u32, source: Source, rate_hz: u64) -> Result<()> {
        let event = PerfEvent::open(Attr::sampling(source, rate_hz), Scope::Cpu(cpu))?;
        event.set_bpf(program(&self.object, "on_sample")?)?;
        self.events.push(event);
        Ok(())
    }

    /// Wants a process, too ([`Target::Processes`]).
    ///
    /// # Errors
    /// What libbpf says if there is no room.
    pub fn follow(&self, pid: u32) -> Result<()> {
        self.put("targets", &pid.to_ne_bytes(), &1u32.to_ne_bytes())
    }

    /// Starts all events.
    ///
    /// # Errors
    /// The errno of the first that could not be started.
    pub fn start(&self) -> Result<()> {
        self.events.iter().try_for_each(PerfEvent::enable)
    }

    /// Stops all events. After this no counter changes any more.
    ///
    /// # Errors
    /// The errno of the first that could not be stopped.
    pub fn stop(&self) -> Result<()> {
        self.events.iter().try_for_each(PerfEvent::disable)
    }

    /// Sleeps until a buffer fills, one of `ends` becomes readable (a process ended, see [`os::process_end`]), a signal arrives or
    /// the time is over. Returns whether one of `ends` is readable.
    ///
    /// # Errors
    /// The errno of `poll(2)`.
    pub fn wait(&self, timeout: Duration, ends: &[OwnedFd]) -> Result<bool> {
        let readable = |fd: i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds: Vec<libc::pollfd> = vec![readable(self.ring.epoll_fd())];
        fds.extend(self.sideband.descriptors().map(|fd| readable(fd.as_raw_fd())));
        fds.extend(ends.iter().map(|fd| readable(fd.as_raw_fd())));
        // Rounded up: rounding down would spin through the last millisecond.
        let timeout_ms = i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        // SAFETY: `fds` is a live array of as many entries as we say.
        let result = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) };
        if result >= 0 {
            return Ok(fds[fds.len() - ends.len()..].iter().any(|fd| fd.revents != 0));
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            error => Err(Error::io("cannot wait for samples", error)),
        }
    }

    /// Moves all waiting stacks out of the ring, to be taken by [`Sampler::take`].
    ///
    /// # Errors
    /// What libbpf says if the ring cannot be read.
    pub fn collect(&mut self) -> Result<()> {
        self.ring.consume().map_err(|e| Error::libbpf("cannot read the ring", e, take_lines()))
    }

    /// Hands each collected stack to `take` as the kernel sent it (see [`abi::Record::parse`]), oldest first.
    pub fn take(&mut self, mut take: impl FnMut(&[u8])) {
        let mut inbox = self.inbox.borrow_mut();
        let mut start = 0;
        for &end in &inbox.ends {
            take(&inbox.bytes[start..end]);
            start = end;
        }
        inbox.bytes.clear();
        inbox.ends.clear();
    }

    /// The sideband buffers.
    pub fn sideband(&mut self) -> &mut Sideband {
        &mut self.sideband
    }

    /// The counters of all CPUs together: one read of shared memory, no system call. Exact after [`Sampler::stop`].
    pub fn counters(&self) -> Counters {
        let mut total = Counters::default();
        let row_bytes = size_of::<Counters>();
        for cpu in 0..self.possible_cpus {
            let mut row = [0u64; size_of::<Counters>() / 8];
            for (i, word) in row.iter_mut().enumerate() {
                *word = self.counters.relaxed(cpu * row_bytes + i * 8);
            }
            // SAFETY: Counters is repr(C) and made of u64 only, as many as `row` has.
            total.add(&unsafe { std::mem::transmute::<[u64; size_of::<Counters>() / 8], Counters>(row) });
        }
        total
    }

    /// Stacks counted in the kernel: key ([`abi::RecordHeader::stack`]) -> samples. Read in batches.
    ///
    /// # Errors
    /// What libbpf says if the map cannot be read.
    pub fn counts(&self) -> Result<HashMap<u64, u64>> {
        let map = map(&self.object, "counts")?;
        let mut counts = HashMap::new();
        let (mut keys, mut values) = (vec![0u64; COUNTS_BATCH], vec![0u64; COUNTS_BATCH]);
        // Where the next batch starts: the kernel's business, a bucket number for hash maps.
        let (mut position, mut next) = (0u64, 0u64);
        let mut first = true;
        loop {
            let mut count = COUNTS_BATCH as u32;
            let start = if first { std::ptr::null_mut() } else { (&raw mut position).cast() };
            // SAFETY: `keys` and `values` have room for `count` entries of the map's sizes (8 and 8 bytes); `position` and
            // `next` for a u32 bucket number. All live until the call returns.
            let result = unsafe {
                libbpf_sys::bpf_map_lookup_batch(
                    map.as_fd().as_raw_fd(),
                    start,
                    (&raw mut next).cast(),
                    keys.as_mut_ptr().cast(),
                    values.as_mut_ptr().cast(),
                    &raw mut count,
                    std::ptr::null(),
                )
            };
            // ENOENT: that was the last batch; it may still have entries.
            if result < 0 && result != -libc::ENOENT {
                return Err(Error::io("cannot read the stack counts", io::Error::from_raw_os_error(-result)));
            }
            counts.extend(keys.iter().copied().zip(values.iter().copied()).take(count as usize));
            if result < 0 {
                return Ok(counts);
            }
            (position, first) = (next, false);
        }
    }

    /// Memory of maps and event buffers in bytes. Source: `memlock` in `/proc/self/fdinfo`.
    pub fn memory_bytes(&self) -> u64 {
        let maps: u64 = self.object.maps().filter_map(|map| memlock(map.as_fd())).sum();
        maps + self.sideband.memory_bytes()
    }

    /// The program that does nothing, for [`crate::calibrate::interrupt_ns`].
    ///
    /// # Errors
    /// If the object has none.
    pub fn empty_program(&self) -> Result<BorrowedFd<'_>> {
        program(&self.object, "on_nothing")
    }

    fn follow_forks(&self) -> Result<Vec<Link>> {
        [("on_fork", "sched_process_fork"), ("on_exit", "sched_process_exit")]
            .into_iter()
            .map(|(name, tracepoint)| {
                let program = self.object.progs_mut().find(|p| p.name() == name).ok_or_else(|| {
                    Error::new(Kind::Other, format!("the BPF object has no program {name}"))
                })?;
                program
                    .attach_raw_tracepoint(tracepoint)
                    .map_err(|e| Error::libbpf(format!("cannot attach to {tracepoint}"), e, take_lines()))
            })
            .collect()
    }

    fn put(&self, name: &str, key: &[u8], value: &[u8]) -> Result<()> {
        map(&self.object, name)?
            .update(key, value, MapFlags::ANY)
            .map_err(|e| Error::libbpf(format!("cannot write the BPF map {name}"), e, take_lines()))
    }
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler").field("events", &self.events.len()).finish_non_exhaustive()
    }
}

fn map<'o>(object: &'o Object, name: &str) -> Result<Map<'o>> {
    object
        .maps()
        .find(|m| m.name() == name)
        .ok_or_else(|| Error::new(Kind::Other, format!("the BPF object has no map {name}")))
}

fn program<'o>(object: &'o Object, name: &str) -> Result<BorrowedFd<'o>> {
    let program = object
        .progs_mut()
        .find(|p| p.name() == name)
        .ok_or_else(|| Error::new(Kind::Other, format!("the BPF object has no program {name}")))?;
    let fd = program.as_fd().as_raw_fd();
    // SAFETY: the descriptor belongs to the object, which outlives the borrow.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

fn counters(object: &Object, possible_cpus: usize) -> Result<Shared> {
    let bytes = (possible_cpus * size_of::<Counters>()).next_multiple_of(os::page_bytes());
    Shared::map(map(object, "counters")?.as_fd(), bytes, false, "the counters")
}

fn ring(object: &Object, inbox: Rc<RefCell<Inbox>>) -> Result<RingBuffer<'static>> {
    let records = map(object, "records")?;
    let mut builder = RingBufferBuilder::new();
    let take = move |bytes: &[u8]| {
        let inbox = &mut *inbox.borrow_mut();
        inbox.bytes.extend_from_slice(bytes);
        inbox.ends.push(inbox.bytes.len());
        0
    };
    builder.add(&records, take).map_err(|e| Error::libbpf("cannot read the ring", e, take_lines()))?;
    builder.build().map_err(|e| Error::libbpf("cannot map the ring", e, take_lines()))
}

fn memlock(fd: BorrowedFd<'_>) -> Option<u64> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    info.lines().find_map(|line| line.strip_prefix("memlock:"))?.trim().parse().ok()
}

fn bytes_of(config: &abi::Config) -> &[u8] {
    // SAFETY: repr(C) without padding (asserted by its size in abi.rs), so every byte is initialised.
    unsafe { std::slice::from_raw_parts((&raw const *config).cast(), size_of::<abi::Config>()) }
}

fn keep_line(_level: PrintLevel, line: String) {
    let mut lines = LIBBPF_SAYS.lock().unwrap_or_else(|e| e.into_inner());
    for line in line.lines() {
        if lines.len() == LIBBPF_LINES {
            lines.remove(0);
        }
        lines.push(line.to_string());
    }
}

/// What libbpf said since the last call, the last lines of it.
fn take_lines() -> String {
    std::mem::take(&mut *LIBBPF_SAYS.lock().unwrap_or_else(|e| e.into_inner())).join("\n")
}
