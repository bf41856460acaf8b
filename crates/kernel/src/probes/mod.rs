//! Probes of every kind: loaded with one of a few fixed programs, attached, counted, detached.
//!
//! A [`Group`] is one mechanism with one body: its program, its counters, its links. A run with several kinds of probes has several groups.
//! Everything is a descriptor of this process: when it ends, however it ends, nothing is left.

mod abi;
mod events;
mod links;
mod multi;
mod nop5;
mod program;
mod ring;
mod statistics;
pub mod support;
mod syscalls;
pub mod targets;
pub mod tls;
pub mod tracefs;

use crate::mmap::Shared;
use crate::{Error, Kind, Result, maps, os};
use abi::row;
use lightfoot_model::{Body, Mechanism};
use lightfoot_sites::Place;
use links::{Attached, Programs};
use program::{Kin, Template};
use ring::Ring;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub use abi::Event;
pub use nop5::capabilities;
pub use statistics::Statistics;

/// Bytes of the ring that carries alarms: `alarms` in `bpf/probes.bpf.c`.
const ALARM_BYTES: usize = 4096;
/// Threads that close links, at most.
const CLOSERS: usize = 64;
/// More probes than these may need more descriptors than the soft limit allows: two or three each.
const FEW: usize = 100;

/// What a group is loaded with.
#[derive(Clone, Debug)]
pub struct Options {
    /// How it is attached.
    pub mechanism: Mechanism,
    /// What its program does.
    pub body: Body,
    /// Only this process (the kernel's tgid, in our pid namespace); `None`: all. User probes are filtered by the kernel before the trap
    /// where it can, everything else by the program's first instructions, and counted as `filtered`.
    pub pid: Option<u32>,
    /// Number of probes: each has counters of its own.
    pub slots: u32,
    /// Bytes of the ring of [`Body::Event`]: a power of two, at least a page.
    pub ring_bytes: u32,
    /// Entries of the hash maps of [`Body::Simple`] and [`Body::Complex`].
    pub hash_entries: u32,
    /// Whether the programs keep the budget's gate as their first instructions ([`Group::set_one_in`]).
    pub gate: bool,
    /// The body alone, for prices: nothing is counted ([`Group::counts`] says 0), no gate, no process. [`Body::Filter`] compares with `pid`.
    pub bare: bool,
}

impl Options {
    /// One probe for all processes, without a gate; a ring of 1 MiB, hash maps of 10,240 entries.
    pub fn new(mechanism: Mechanism, body: Body) -> Options {
        let (ring_bytes, hash_entries) = (1 << 20, 10_240);
        Options { mechanism, body, pid: None, slots: 1, ring_bytes, hash_entries, gate: false, bare: false }
    }
}

/// A place with the number of its counters.
#[derive(Clone, Debug)]
pub struct Point {
    /// Index of its counters, below [`Options::slots`].
    pub slot: u32,
    /// Where.
    pub place: Place,
}

/// What became of each firing: `fired = recorded + filtered + throttled + lost`. Each is counted once, at its way out; `fired` is their sum.
/// Sessions fire twice for each call, at the entry and at the return.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// The program was run.
    pub fired: u64,
    /// The body was run (and its event sent, its stack taken, its key counted).
    pub recorded: u64,
    /// The sum of the weights (N of 1-in-N) of those recorded: an unbiased estimate of what would have been recorded without 1-in-N.
    pub weighed: u64,
    /// Another process.
    pub filtered: u64,
    /// Left out by the gate.
    pub throttled: u64,
    /// Of these, left out by the open breaker ([`Group::set_tokens`]): no weight stands for them.
    pub cut: u64,
    /// The ring or the map was full.
    pub lost: u64,
}

/// Firings of one probe in one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hits {
    /// The probe's slot.
    pub slot: u32,
    /// The process (the kernel's tgid, in our pid namespace).
    pub pid: u32,
    /// Sum of the weights of the firings recorded.
    pub weighed: u64,
}

/// A loaded program with its maps and links. Dropping it detaches and frees all; so does the end of the process, however it comes.
pub struct Group {
    // Fields drop in this order: first what fires, then what is fired.
    attached: Vec<Attached>,
    programs: Programs,
    rows: Option<Shared>,
    gates: Option<Shared>,
    breaker: Option<Shared>,
    alarms: Option<Ring>,
    ring: Option<Ring>,
    epoch: AtomicU32,
    cpus: usize,
    options: Options,
    template: Template,
}

impl Group {
    /// Loads the program; nothing is attached yet.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] with the reason where this kernel does not have the mechanism.
    pub fn load(options: &Options) -> Result<Group> {
        support::check(options.mechanism)?;
        if options.slots == 0 {
            return Err(Error::new(Kind::Usage, "a group of probes without probes"));
        }
        let mut options = options.clone();
        options.gate &= !options.bare;
        let cpus = os::possible_cpus()?;
        let template = Template::new(&options, cpus)?;
        let shared = |name: &str, entries: usize, bytes: usize, writable| {
            let bytes = (entries * bytes).next_multiple_of(os::page_bytes());
            Shared::map(template.map(name)?, bytes, writable, name)
        };
        let owned = |name: &str, bytes: usize| {
            let fd = template.map(name)?.try_clone_to_owned();
            Ring::new(fd.map_err(|e| Error::io("cannot keep a ring", e))?, bytes)
        };
        let slots = options.slots as usize;
        let rows =
            if options.bare { None } else { Some(shared("rows", cpus * (slots + 1), row::BYTES, false)?) };
        let (gates, breaker, alarms) = if options.gate {
            let alarms = owned("alarms", ALARM_BYTES)?;
            (Some(shared("gates", slots, 8, true)?), Some(shared("breaker", 1, 8, true)?), Some(alarms))
        } else {
            (None, None, None)
        };
        let ring = if options.body == Body::Event {
            Some(owned("ring", options.ring_bytes as usize)?)
        } else {
            None
        };
        let mut programs = Programs::default();
        if support::has_cookies(options.mechanism) {
            let kin = Kin::of(options.mechanism, 0);
            programs.get(&template, links::role(&options), kin, 0)?;
        }
        let attached = Vec::new();
        Ok(Group {
            attached,
            programs,
            rows,
            gates,
            breaker,
            alarms,
            ring,
            epoch: AtomicU32::new(0),
            cpus,
            options,
            template,
        })
    }

    /// Attaches to all of these places or to none. Multi mechanisms take one link for each file. Raw tracepoints that are no system calls, and
    /// functions under fentry and fexit, take a program each and want slots of their own.
    ///
    /// # Errors
    /// Names the place that could not be attached to, and why.
    pub fn attach(&mut self, points: &[Point]) -> Result<()> {
        if let Some(point) = points.iter().find(|point| point.slot >= self.options.slots) {
            let what = format!("slot {} of {}", point.slot, self.options.slots);
            return Err(Error::new(Kind::Usage, what));
        }
        if let Some(point) = points.iter().find(|point| {
            matches!(point.place, Place::Syscall { .. })
                && self.points().any(|other| other.place == point.place)
        }) {
            let what = format!("{}: asked for twice", links::describe(&point.place));
            return Err(Error::new(Kind::Usage, what));
        }
        if points.len() > FEW && !self.options.mechanism.is_multi() {
            os::raise_descriptor_limit();
        }
        match links::attach(&self.template, &mut self.programs, &self.options, &self.attached, points) {
            Ok(attached) => {
                for new in attached {
                    // System calls that a dispatcher serves which runs already.
                    match self.attached.iter_mut().find(|old| new.link.is_none() && old.dispatches(&new)) {
                        Some(old) => old.points.extend(new.points),
                        None => self.attached.push(new),
                    }
                }
                Ok(())
            }
            Err(error) => {
                syscalls::forget(&self.template, &self.options, points)?;
                Err(error)
            }
        }
    }

    fn points(&self) -> impl Iterator<Item = &Point> {
        self.attached.iter().flat_map(|attached| &attached.points)
    }

    /// From the moment that this returns no program runs any more. What the kernel keeps of single perf events (a breakpoint that leads nowhere)
    /// goes with [`Group::detach`].
    pub fn stop(&mut self) {
        let links: Vec<OwnedFd> =
            self.attached.iter_mut().filter_map(|attached| attached.link.take()).collect();
        let on_events = self.attached.iter().any(|attached| attached.event.is_some());
        if !on_events || links.len() < 2 {
            return;
        }
        // To close the link of a perf event takes a grace period of RCU, 30 ms; all wait for the same one if they wait together.
        let part = links.len().div_ceil(CLOSERS);
        let mut links = links.into_iter().peekable();
        std::thread::scope(|scope| {
            while links.peek().is_some() {
                let some: Vec<OwnedFd> = links.by_ref().take(part).collect();
                let close = std::thread::Builder::new().stack_size(64 << 10);
                // Without a thread they are closed here.
                let _ = close.spawn_scoped(scope, move || drop(some));
            }
        });
    }

    /// Detaches everything; counters stay readable. Single perf events take the kernel up to 100 ms each.
    ///
    /// # Errors
    /// As writing a map.
    pub fn detach(&mut self) -> Result<()> {
        self.stop();
        for attached in self.attached.drain(..) {
            syscalls::forget(&self.template, &self.options, &attached.points)?;
        }
        Ok(())
    }

    /// Detaches the probes of one slot. A multi link is made anew without them, and so misses what happens in between (20 ms).
    ///
    /// # Errors
    /// As [`Group::attach`]: if the others cannot be attached again, they are detached, too.
    pub fn detach_slot(&mut self, slot: u32) -> Result<()> {
        for mut attached in std::mem::take(&mut self.attached) {
            let (gone, kept): (Vec<Point>, Vec<Point>) =
                std::mem::take(&mut attached.points).into_iter().partition(|point| point.slot == slot);
            let dispatched = gone.iter().any(|point| matches!(point.place, Place::Syscall { .. }));
            syscalls::forget(&self.template, &self.options, &gone)?;
            // A dispatcher has been told already; where nothing is left to dispatch it goes.
            if gone.is_empty() || (dispatched && !kept.is_empty()) {
                attached.points = kept;
                self.attached.push(attached);
                continue;
            }
            drop(attached);
            if !kept.is_empty() {
                self.attach(&kept)?;
            }
        }
        Ok(())
    }

    /// Counters of each slot, summed over CPUs: a read of shared memory. Exact when nothing fires any more.
    ///
    /// # Errors
    /// None so far.
    pub fn counts(&self) -> Result<Vec<Counts>> {
        let mut all = vec![Counts::default(); self.options.slots as usize];
        let Some(rows) = &self.rows else { return Ok(all) };
        for cpu in 0..self.cpus {
            for (slot, counts) in all.iter_mut().enumerate() {
                let at = (cpu * (self.options.slots as usize + 1) + slot) * row::BYTES;
                let word = |index: usize| rows.relaxed(at + index * 8);
                let recorded = word(row::RECORDED);
                counts.recorded += recorded;
                counts.weighed += if self.options.gate { word(row::WEIGHED) } else { recorded };
                counts.filtered += word(row::FILTERED);
                counts.throttled += word(row::THROTTLED) + word(row::CUT);
                counts.cut += word(row::CUT);
                counts.lost += word(row::LOST);
            }
        }
        for counts in &mut all {
            counts.fired = counts.recorded + counts.filtered + counts.throttled + counts.lost;
        }
        Ok(all)
    }

    /// System calls that nobody asked for and that a dispatcher saw: each costs about what one that was asked for costs.
    pub fn passed(&self) -> u64 {
        let Some(rows) = &self.rows else { return 0 };
        let slots = self.options.slots as usize;
        let at = |cpu: usize| (cpu * (slots + 1) + slots) * row::BYTES + row::PASSED * 8;
        (0..self.cpus).map(|cpu| rows.relaxed(at(cpu))).sum()
    }

    /// From now on the body runs for a random one in `n` firings of this slot, which then weighs `n`. 0, 1: for all. The kernel's random numbers
    /// have 32 bits: the sum of weights is off by at most n / 2^32 of itself.
    ///
    /// # Errors
    /// [`Kind::Usage`] without a gate.
    pub fn set_one_in(&self, slot: u32, n: u32) -> Result<()> {
        let Some(gates) = self.gates.as_ref().filter(|_| slot < self.options.slots) else {
            return Err(Error::new(Kind::Usage, format!("slot {slot} has no gate")));
        };
        gates.word(slot as usize * 8).store(gate(n), Ordering::Relaxed);
        Ok(())
    }

    /// Fills the circuit breaker of the gate: until the next call each CPU may run the group's programs `firings` times. On the CPU where
    /// they are used up, the body is not run any more (`throttled`, `cut`), and user space is woken at once, once each call, through
    /// [`Group::alarm`]. `u32::MAX`: no breaker (what holds after [`Group::load`]).
    ///
    /// # Errors
    /// [`Kind::Usage`] without a gate.
    pub fn set_tokens(&self, firings: u32) -> Result<()> {
        let Some(breaker) = &self.breaker else {
            return Err(Error::new(Kind::Usage, "a group without a gate has no breaker"));
        };
        let epoch = self.epoch.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let word = if firings == u32::MAX { 0 } else { u64::from(firings) << 32 | u64::from(epoch.max(1)) };
        breaker.word(0).store(word, Ordering::Relaxed);
        Ok(())
    }

    /// Sleeps until the breaker opens on some CPU, at most so long; whether it did. Also takes events out of the ring of [`Body::Event`],
    /// so that it does not run full.
    ///
    /// # Errors
    /// As `poll(2)`.
    pub fn alarm(&mut self, timeout: Duration) -> Result<bool> {
        if let Some(ring) = &mut self.ring {
            ring.drain(|_| {});
        }
        let Some(alarms) = &mut self.alarms else {
            std::thread::sleep(timeout);
            return Ok(false);
        };
        if alarms.is_empty() {
            wait(alarms.as_fd(), timeout)?;
        }
        Ok(alarms.drain(|_| {}) > 0)
    }

    /// A descriptor that is readable when [`Group::alarm`] would return at once: to wait for several groups together.
    pub fn alarm_fd(&self) -> Option<BorrowedFd<'_>> {
        self.alarms.as_ref().map(Ring::as_fd)
    }

    /// Hands the events of [`Body::Event`] that wait in the ring to `take`, oldest first; how many. Nobody is woken for them: to be called often
    /// enough that the ring does not run full, or they are `lost`.
    pub fn events(&mut self, mut take: impl FnMut(&Event)) -> usize {
        let Some(ring) = &mut self.ring else { return 0 };
        ring.drain(|bytes| {
            if let Some(event) = Event::parse(bytes) {
                take(&event);
            }
        })
    }

    /// What [`Body::Simple`] counted: one entry for each probe and process, in no order. Empty for other bodies.
    ///
    /// # Errors
    /// As reading a map.
    pub fn hits(&self) -> Result<Vec<Hits>> {
        let mut hits = Vec::new();
        if self.options.body == Body::Simple {
            maps::read_hash(self.template.map("counts_simple")?, "counts", |key: [u32; 2], weighed: u64| {
                hits.push(Hits { slot: key[0], pid: key[1], weighed });
            })?;
        }
        Ok(hits)
    }

    /// What the maps of bodies that count say all together, also with [`Options::bare`]: firings, or weights of them. 0 for other bodies.
    ///
    /// # Errors
    /// As reading a map.
    pub fn body_total(&self) -> Result<u64> {
        let mut total = 0;
        match self.options.body {
            Body::PerCpuCounter | Body::Filter => {
                let values = maps::read_first(self.template.map("counter_per_cpu")?, self.cpus)?;
                total = values.iter().sum();
            }
            Body::SharedCounter => total = maps::read_first(self.template.map("counter_shared")?, 1)?[0],
            Body::Simple => {
                maps::read_hash(self.template.map("counts_simple")?, "counts", |_: [u32; 2], value: u64| {
                    total += value
                })?;
            }
            Body::Complex => {
                maps::read_hash(
                    self.template.map("counts_complex")?,
                    "counts",
                    |_: [u32; 6], value: u64| total += value,
                )?;
            }
            Body::Empty | Body::Event | Body::UserStack | Body::KernelStack => {}
        }
        Ok(total)
    }

    /// What the kernel's statistics say of this group's programs so far: run time in ns, runs. They count while [`Statistics`] are on.
    ///
    /// # Errors
    /// The errno of asking.
    pub fn statistics(&self) -> Result<(u64, u64)> {
        let (mut time_ns, mut runs) = (0, 0);
        for program in self.programs.iter() {
            let run = statistics::of(program.as_fd())?;
            time_ns += run.time_ns;
            runs += run.count;
        }
        Ok((time_ns, runs))
    }

    /// Firings that ran no program, since one was running on that CPU already: no counter of ours can know them.
    ///
    /// # Errors
    /// The errno of asking.
    pub fn missed(&self) -> Result<u64> {
        self.programs.iter().map(|program| Ok(statistics::of(program.as_fd())?.missed)).sum()
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("options", &self.options).finish_non_exhaustive()
    }
}

/// `struct lf_probe_gate` as a word.
fn gate(n: u32) -> u64 {
    let threshold = if n > 1 { (1u64 << 32) / u64::from(n) } else { 0 };
    threshold << 32 | u64::from(n)
}

fn wait(fd: BorrowedFd<'_>, timeout: Duration) -> Result<()> {
    let milliseconds = i32::try_from(timeout.as_millis().max(1)).unwrap_or(i32::MAX);
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd that lives until the call returns.
    if unsafe { libc::poll(&raw mut poll, 1, milliseconds) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(Error::io("cannot wait for an alarm", error));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_keeps_one_in_n_of_all_random_numbers() {
        assert_eq!(gate(1), 1, "no number is drawn");
        for n in [2u32, 3, 7, 1000, 1 << 20] {
            let (threshold, weight) = (gate(n) >> 32, gate(n) & 0xffff_ffff);
            let kept = threshold as f64 / 4_294_967_296.0 * weight as f64;
            assert!((kept - 1.0).abs() <= f64::from(n) / 4_294_967_296.0, "{n}: {kept}");
        }
    }
}
