//! The sampling program: loaded, attached to its events, read.

use crate::abi::{self, Count, Counters, Live, Segment, TargetKind};
use crate::mmap::Shared;
use crate::offcpu::{self, OffCpu, Sums, Watch};
use crate::perf::{Attr, PerfEvent, Scope, Source};
use crate::tables::{Tables, plain_bytes};
use crate::tick::{self, ClockCheck, Tick};
use crate::{Error, Kind, Result, features, maps, os};
use libbpf_rs::{
    Link, Map, MapCore, MapFlags, Object, ObjectBuilder, PrintLevel, ProgramMut, RingBuffer,
    RingBufferBuilder,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sampler.bpf.o"));

/// What libbpf said last. It prints through a callback without context, so this must be global; bounded to the last lines.
static LIBBPF_SAYS: Mutex<Vec<String>> = Mutex::new(Vec::new());
const LIBBPF_LINES: usize = 40;

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
    /// Executable files that can be known at a time.
    pub object_slots: u32,
    /// Code pages (64 KiB of a file each) of all objects.
    pub page_slots: u32,
    /// Distinct unwind rules of all objects, at most 65,536.
    pub rule_slots: u32,
    /// Which walks are sent with what they began with: [`abi::Failed`] before the stack itself.
    pub save: SaveWalks,
    /// How the walk loops.
    pub walk: Walk,
    /// Whether the rate will move: each sample then stands for the time since the event last fired on its CPU.
    pub rate_moves: bool,
    /// What may change later, see [`Sampler::set_live`].
    pub live: Live,
    /// Samples at the scheduler's tick: [`Sampler::attach_tick`]. [`Live::period_ns`] is the tick's period then.
    pub tick: Option<Tick>,
    /// Off-CPU time: [`Sampler::start`] begins to measure it.
    pub off_cpu: Option<OffCpu>,
}

/// Which walks are sent with the registers and the stack that they began with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum SaveWalks {
    /// None.
    #[default]
    Nothing = 0,
    /// Those that failed.
    Failed = 1,
    /// All: for tests.
    All = 2,
}

/// How the walk through a stack loops in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Walk {
    /// `bpf_loop` where the kernel has it (5.17), plain loops otherwise.
    #[default]
    Auto,
    /// Plain loops over functions that the verifier looks at by themselves.
    PlainLoops,
}

/// The loaded program with its maps, events and buffers. Dropping it removes all of them from the kernel.
pub struct Sampler {
    // Fields drop in this order: first what fires, then what is fired.
    events: Vec<PerfEvent>,
    source: Source,
    follows: bool,
    follow: Vec<Link>,
    tick: Option<Link>,
    check: Vec<PerfEvent>,
    off_cpu: Option<OffCpu>,
    watch: Option<Watch>,
    ring: RingBuffer<'static>,
    inbox: Rc<RefCell<Inbox>>,
    counters: Shared,
    possible_cpus: usize,
    banks: Vec<OwnedFd>,
    object: Object,
}

/// Records copied out of the ring, one after the other.
#[derive(Default)]
struct Inbox {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Sampler {
    /// Loads the program. Nothing fires yet.
    ///
    /// # Errors
    /// [`Kind::Privilege`] if the kernel refuses BPF or perf events to this process; otherwise what libbpf and the verifier said.
    pub fn load(config: &Config) -> Result<Sampler> {
        let use_loop = config.walk == Walk::Auto && features::has_loop();
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
        let paging = config.off_cpu.and_then(|off_cpu| off_cpu.paging).unwrap_or_default();
        let switches = abi::Config {
            target: kind as u32,
            kernel_frames: config.kernel_frames.into(),
            count_in_kernel: (config.transfer == Transfer::Counted).into(),
            wakeup_bytes: config.ring_bytes / 4,
            pidns_inode: os::nested_pid_namespace().unwrap_or(0),
            use_loop: use_loop.into(),
            save_failed: config.save as u32,
            rate_moves: config.rate_moves.into(),
            page_shift: os::page_bytes().trailing_zeros(),
            tick_function: config.tick.map_or(0, |tick| tick.function),
            irq_regs: config.tick.map_or(0, |tick| tick.irq_regs),
            page_offset: paging.page_offset,
            physical_mask: paging.physical_mask,
            levels: paging.levels,
            wakers: config.off_cpu.is_some_and(|off_cpu| off_cpu.wakers).into(),
            ..abi::Config::default()
        };
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let result = match name.as_str() {
                "counters" => map.set_max_entries((possible_cpus * abi::SLOTS) as u32),
                "counts" if config.transfer == Transfer::Ring => map.set_max_entries(1),
                "counts" => map.set_max_entries(config.stack_slots.max(1)),
                "records" => map.set_max_entries(config.ring_bytes),
                "objects" => map.set_max_entries(config.object_slots),
                "pages" => map.set_max_entries(config.page_slots),
                "rules" => map.set_max_entries(config.rule_slots),
                name if offcpu::MAPS.contains(&name) => map.set_autocreate(config.off_cpu.is_some()),
                name if tick::MAPS.contains(&name) => map.set_autocreate(config.tick.is_some()),
                "targets" => match config.target {
                    Target::Processes { room, .. } => map.set_max_entries(room),
                    _ => Ok(()),
                },
                name if name.ends_with(".rodata") => map.set_initial_value(plain_bytes(&switches)),
                _ => Ok(()),
            };
            result
                .map_err(|e| Error::libbpf(format!("cannot set up the BPF map {name}"), e, take_lines()))?;
        }
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            // A program that is not needed must not fail the whole object, where the kernel lacks what it attaches to.
            let needed = match name.as_str() {
                "on_sample" | "on_nothing" | "announce_mappings" => true,
                "on_fork" | "on_exit" => kind == TargetKind::Processes,
                "on_waking" => config.off_cpu.is_some_and(|off_cpu| off_cpu.wakers),
                name if offcpu::PROGRAMS.contains(&name) => config.off_cpu.is_some(),
                name if tick::PROGRAMS.contains(&name) => config.tick.is_some(),
                _ => false,
            };
            program.set_autoload(needed);
        }
        let object = open
            .load()
            .map_err(|e| Error::libbpf("the kernel refused the sampling program", e, take_lines()))?;
        let (counters, inbox) = (counters(&object, possible_cpus)?, Rc::default());
        let ring = ring(&object, Rc::clone(&inbox))?;
        let mut sampler = Sampler {
            events: Vec::new(),
            source: Source::CpuClock,
            follows: kind == TargetKind::Processes,
            follow: Vec::new(),
            tick: None,
            check: Vec::new(),
            off_cpu: config.off_cpu,
            watch: None,
            ring,
            inbox,
            counters,
            possible_cpus,
            banks: Vec::new(),
            object,
        };
        sampler.set_live(&config.live)?;
        match &config.target {
            Target::Processes { pids, .. } => {
                sampler.set_follow(true)?;
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
        self.source = source;
        self.events.push(event);
        Ok(())
    }

    /// Changes the period of all events, in ns. The program must be loaded with [`Config::rate_moves`], or weights are wrong.
    ///
    /// # Errors
    /// The errno of the first that could not be changed.
    pub fn set_period(&self, period_ns: u64) -> Result<()> {
        let period_or_rate = match self.source {
            Source::CpuClock => period_ns,
            Source::Cycles => (1_000_000_000 / period_ns.max(1)).max(1),
        };
        self.events.iter().try_for_each(|event| event.set_period(period_or_rate))
    }

    /// Whether there are programs that [`Sampler::set_follow`] attaches.
    pub fn follows(&self) -> bool {
        self.follows
    }

    /// Whether children of wanted processes become wanted; other targets than [`Target::Processes`] follow nobody. While they do not, the end of a process is not seen,
    /// either: one that gets its number would be taken for it.
    ///
    /// # Errors
    /// What libbpf says if the programs cannot be attached.
    pub fn set_follow(&mut self, follow: bool) -> Result<()> {
        if !follow {
            self.follow.clear();
        } else if self.follows && self.follow.is_empty() {
            self.follow = self.follow_forks()?;
        }
        Ok(())
    }

    /// Takes samples at the scheduler's tick from now on. The program must be loaded with [`Config::tick`].
    ///
    /// # Errors
    /// What libbpf says if the tracepoint is missing.
    pub fn attach_tick(&mut self) -> Result<()> {
        let failed = |e| Error::libbpf("cannot attach to the scheduler's tick", e, take_lines());
        tick::set(&self.object, false, false)?;
        self.tick = Some(find_program(&self.object, "on_tick")?.attach_trace().map_err(failed)?);
        Ok(())
    }

    /// What a sample at the tick costs before its stack is walked, in ns: measured while this thread is busy for a few ticks. `None` if
    /// no tick came.
    ///
    /// # Errors
    /// As [`Sampler::attach_tick`].
    pub fn tick_price_ns(&mut self, tick: &Tick) -> Result<Option<u64>> {
        self.attach_tick()?;
        tick::set(&self.object, false, true)?;
        let (start, most_ns) = (os::monotonic_ns(), (4 * tick.period_ns).min(50_000_000));
        while os::monotonic_ns() - start < most_ns {
            std::hint::spin_loop();
        }
        self.tick = None;
        let (ticks, ns) = tick::counted(&self.object)?;
        Ok((ticks > 0).then(|| ns / ticks))
    }

    /// Starts or ends a comparison of tick and timer: while it runs a timer fires on each of `cpus`, and both count where they hit.
    ///
    /// # Errors
    /// As [`PerfEvent::open`] and for every update of a map.
    pub fn compare_clocks(&mut self, cpus: &[u32], rate_hz: u64) -> Result<()> {
        self.check.clear();
        tick::set(&self.object, false, false)?;
        if self.tick.is_none() || cpus.is_empty() {
            return Ok(());
        }
        for &cpu in cpus {
            let event = PerfEvent::open(Attr::sampling(Source::CpuClock, rate_hz), Scope::Cpu(cpu))?;
            event.set_bpf(program(&self.object, "on_check")?)?;
            self.check.push(event);
        }
        tick::set(&self.object, true, false)?;
        self.check.iter().try_for_each(PerfEvent::enable)
    }

    /// Where tick and timer hit in all comparisons so far.
    ///
    /// # Errors
    /// What libbpf says if the map cannot be read.
    pub fn clock_check(&self) -> Result<ClockCheck> {
        ClockCheck::read(&self.object)
    }

    /// Off-CPU time so far, sampled or not. Complete after [`Sampler::stop`].
    ///
    /// # Errors
    /// What libbpf says if the map cannot be read.
    pub fn off_cpu_sums(&self) -> Result<Sums> {
        offcpu::sums(&self.object)
    }

    /// Whether switches are looked at, once [`Sampler::start`] was called with [`Config::off_cpu`]. Time while they are not is missing.
    ///
    /// # Errors
    /// What libbpf says if the program cannot be attached.
    pub fn watch_switches(&mut self, watched: bool) -> Result<()> {
        match &mut self.watch {
            Some(watch) if watched => watch.resume(&self.object),
            Some(watch) => {
                watch.pause();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Wants a process, too ([`Target::Processes`]).
    ///
    /// # Errors
    /// What libbpf says if there is no room.
    pub fn follow(&self, pid: u32) -> Result<()> {
        self.put("targets", &pid.to_ne_bytes(), &1u32.to_ne_bytes())
    }

    /// Starts all events, and begins to measure off-CPU time.
    ///
    /// # Errors
    /// The errno of the first that could not be started.
    pub fn start(&mut self) -> Result<()> {
        if let (Some(off_cpu), None) = (self.off_cpu, &self.watch) {
            self.watch = Some(Watch::start(&self.object, off_cpu)?);
        }
        self.events.iter().try_for_each(PerfEvent::enable)
    }

    /// Stops all events; waits that have not ended are recorded. After this no counter changes any more.
    ///
    /// # Errors
    /// The errno of the first that could not be stopped.
    pub fn stop(&mut self) -> Result<()> {
        self.events.iter().try_for_each(PerfEvent::disable)?;
        self.check.clear();
        self.tick = None;
        match &mut self.watch {
            Some(watch) => watch.stop(&self.object),
            None => Ok(()),
        }
    }

    /// Sleeps until a buffer fills, one of `ends` becomes readable (a process ended, see [`os::process_end`]), a signal arrives or
    /// the time is over. Returns whether one of `ends` is readable.
    ///
    /// # Errors
    /// The errno of `poll(2)`.
    pub fn wait(&self, timeout: Duration, ends: &[OwnedFd]) -> Result<bool> {
        let readable = |fd: i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds: Vec<libc::pollfd> = vec![readable(self.ring.epoll_fd())];
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

    /// The maps of unwind tables.
    pub fn tables(&mut self) -> Tables<'_> {
        Tables::new(&self.object, &mut self.banks)
    }

    /// Changes what may change while the programs run.
    ///
    /// # Errors
    /// As for every update of a map.
    pub fn set_live(&self, live: &Live) -> Result<()> {
        self.put("live", &0u32.to_ne_bytes(), plain_bytes(live))
    }

    /// The counters of all CPUs together: one read of shared memory, no system call. Exact after [`Sampler::stop`].
    pub fn counters(&self) -> Counters {
        self.rows(0..self.possible_cpus * abi::SLOTS)
    }

    /// The counters of the programs on perf events alone: each firing was an interrupt. The others ride on what happens anyway.
    pub fn event_counters(&self) -> Counters {
        self.rows((0..self.possible_cpus * abi::SLOTS).step_by(abi::SLOTS))
    }

    fn rows(&self, rows: impl Iterator<Item = usize>) -> Counters {
        const WORDS: usize = size_of::<Counters>() / 8;
        let mut total = [0u64; WORDS];
        for row in rows {
            for (word, sum) in total.iter_mut().enumerate() {
                *sum += self.counters.relaxed((row * WORDS + word) * 8);
            }
        }
        // SAFETY: Counters is repr(C) and made of u64 only, as many as `total` has.
        unsafe { std::mem::transmute::<[u64; WORDS], Counters>(total) }
    }

    /// The executable mappings of a process, at most the first of 4,096; files among them that are new are announced, without waiting
    /// for stacks through them. `None` where the kernel cannot go through the mappings of one process (before Linux 6.1): files are then
    /// announced one by one, as stacks meet them.
    ///
    /// # Errors
    /// If the object has no such program.
    pub fn mappings(&self, pid: u32) -> Result<Option<Vec<Segment>>> {
        let program = program(&self.object, "announce_mappings")?;
        let mut which = libbpf_sys::bpf_iter_link_info::default();
        which.task.tid = pid;
        let options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
            iter_info: &raw mut which,
            iter_info_len: size_of::<libbpf_sys::bpf_iter_link_info>() as u32,
            ..Default::default()
        };
        // SAFETY: `options` and what it points to live until the call returns; both say their sizes.
        let link = unsafe {
            libbpf_sys::bpf_link_create(
                program.as_raw_fd(),
                0,
                libbpf_sys::BPF_TRACE_ITER,
                &raw const options,
            )
        };
        if link < 0 {
            return Ok(None);
        }
        // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
        let link = unsafe { OwnedFd::from_raw_fd(link) };
        // SAFETY: takes a descriptor that is open.
        let run = unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) };
        if run < 0 {
            return Ok(None);
        }
        // SAFETY: as above.
        let mut run = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(run) });
        // Reading runs the program for each mapping. A process that is gone has none; one that has too many ends in EAGAIN, and what
        // was read until then counts.
        let mut bytes = Vec::new();
        run.read_to_end(&mut bytes).ok();
        Ok(Some(Segment::parse_all(&bytes)))
    }

    /// Stacks counted in the kernel: key ([`abi::RecordHeader::stack`]) -> samples. Read in batches.
    ///
    /// # Errors
    /// What libbpf says if the map cannot be read.
    pub fn counts(&self) -> Result<HashMap<u64, Count>> {
        let map = map(&self.object, "counts")?;
        let mut counts = HashMap::new();
        maps::read_hash(map.as_fd(), "the stack counts", |key: u64, count: Count| {
            counts.insert(key, count);
        })?;
        Ok(counts)
    }

    /// Memory of maps and event buffers in bytes. Source: `memlock` in `/proc/self/fdinfo`.
    pub fn memory_bytes(&self) -> u64 {
        let maps: u64 = self.object.maps().filter_map(|map| memlock(map.as_fd())).sum();
        maps + self.banks.iter().filter_map(|bank| memlock(bank.as_fd())).sum::<u64>()
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
        put(&self.object, name, key, value)
    }
}

pub(crate) fn put(object: &Object, name: &str, key: &[u8], value: &[u8]) -> Result<()> {
    map(object, name)?
        .update(key, value, MapFlags::ANY)
        .map_err(|e| Error::libbpf(format!("cannot write the BPF map {name}"), e, take_lines()))
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler").field("events", &self.events.len()).finish_non_exhaustive()
    }
}

pub(crate) fn map<'o>(object: &'o Object, name: &str) -> Result<Map<'o>> {
    object
        .maps()
        .find(|m| m.name() == name)
        .ok_or_else(|| Error::new(Kind::Other, format!("the BPF object has no map {name}")))
}

pub(crate) fn find_program<'o>(object: &'o Object, name: &str) -> Result<ProgramMut<'o>> {
    object
        .progs_mut()
        .find(|p| p.name() == name)
        .ok_or_else(|| Error::new(Kind::Other, format!("the BPF object has no program {name}")))
}

fn program<'o>(object: &'o Object, name: &str) -> Result<BorrowedFd<'o>> {
    let program = find_program(object, name)?;
    let fd = program.as_fd().as_raw_fd();
    // SAFETY: the descriptor belongs to the object, which outlives the borrow.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

fn counters(object: &Object, possible_cpus: usize) -> Result<Shared> {
    let bytes = (possible_cpus * abi::SLOTS * size_of::<Counters>()).next_multiple_of(os::page_bytes());
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

pub(crate) fn keep_line(_level: PrintLevel, line: String) {
    let mut lines = LIBBPF_SAYS.lock().unwrap_or_else(|e| e.into_inner());
    for line in line.lines() {
        if lines.len() == LIBBPF_LINES {
            lines.remove(0);
        }
        lines.push(line.to_string());
    }
}

/// What libbpf said since the last call, the last lines of it.
pub(crate) fn take_lines() -> String {
    std::mem::take(&mut *LIBBPF_SAYS.lock().unwrap_or_else(|e| e.into_inner())).join("\n")
}
