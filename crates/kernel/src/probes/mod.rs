//! Probes of every kind: loaded with one of a few fixed programs, attached, counted, detached.
//!
//! A [`Group`] is one mechanism with one body: its program, its counters, its links. A run with several kinds of probes has several groups.

pub mod targets;

use crate::{Error, Kind, Result};
use lightfoot_model::{Body, Mechanism};
use lightfoot_sites::Place;

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
}

/// A place with the number of its counters.
#[derive(Clone, Debug)]
pub struct Point {
    /// Index of its counters, below [`Options::slots`].
    pub slot: u32,
    /// Where.
    pub place: Place,
}

/// What became of each firing: `fired = recorded + filtered + throttled + lost`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// The program was run.
    pub fired: u64,
    /// The body was run (and its event sent, its stack taken, its key counted).
    pub recorded: u64,
    /// The sum of the weights (N of 1-in-N) of those recorded: an unbiased estimate of `recorded` without throttling.
    pub weighed: u64,
    /// Another process.
    pub filtered: u64,
    /// Left out by the gate.
    pub throttled: u64,
    /// The ring or the map was full.
    pub lost: u64,
}

/// Firings of one probe in one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hits {
    /// The probe's slot.
    pub slot: u32,
    /// The process (the kernel's tgid).
    pub pid: u32,
    /// Sum of the weights of the firings recorded.
    pub weighed: u64,
}

/// Keeps the kernel's BPF statistics (`BPF_ENABLE_STATS`) on as long as it lives. They cost every BPF program of the machine 55 to 90 ns a
/// run: to be held for moments.
#[derive(Debug)]
pub struct Statistics(());

impl Statistics {
    /// Switches them on.
    ///
    /// # Errors
    /// [`Kind::Privilege`] without CAP_SYS_ADMIN; [`Kind::Unsupported`] before Linux 5.8.
    pub fn on() -> Result<Statistics> {
        Err(Error::new(Kind::Unsupported, "not built yet"))
    }
}

/// A loaded program with its maps and links. Dropping it detaches and frees all; so does the end of the process, however it comes.
pub struct Group {
    _options: Options,
}

impl Group {
    /// Loads the program; nothing is attached yet.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] with the reason where this kernel does not have the mechanism.
    pub fn load(options: &Options) -> Result<Group> {
        Err(Error::new(Kind::Unsupported, format!("{} is not built yet", options.mechanism.name())))
    }

    /// Attaches to all of these places or to none. Multi mechanisms take one link for each file.
    ///
    /// # Errors
    /// Names the place that could not be attached to, and why.
    pub fn attach(&mut self, _points: &[Point]) -> Result<()> {
        Err(Error::new(Kind::Unsupported, "not built yet"))
    }

    /// Detaches everything; counters stay readable.
    ///
    /// # Errors
    /// None so far.
    pub fn detach(&mut self) -> Result<()> {
        Ok(())
    }

    /// Counters of each slot, summed over CPUs.
    ///
    /// # Errors
    /// As reading a map.
    pub fn counts(&self) -> Result<Vec<Counts>> {
        Ok(Vec::new())
    }

    /// From now on the body runs for a random one in `n` firings of this slot, which then weighs `n`. 1: for all.
    ///
    /// # Errors
    /// [`Kind::Usage`] without a gate.
    pub fn set_one_in(&self, _slot: u32, _n: u32) -> Result<()> {
        Ok(())
    }

    /// Fills the circuit breaker of the gate: until the next call each CPU may run the group's programs `firings` times. On the CPU where
    /// they are used up, the body is not run any more (`throttled`), and user space is woken at once, once each call, through [`Group::alarm`].
    /// `u32::MAX`: no breaker (what holds after [`Group::load`]).
    ///
    /// # Errors
    /// [`Kind::Usage`] without a gate.
    pub fn set_tokens(&self, _firings: u32) -> Result<()> {
        Ok(())
    }

    /// Sleeps until the breaker opens on some CPU, at most so long; whether it did. Also takes events out of the ring of [`Body::Event`],
    /// so that it does not run full.
    ///
    /// # Errors
    /// As `epoll_wait(2)`.
    pub fn alarm(&mut self, timeout: std::time::Duration) -> Result<bool> {
        std::thread::sleep(timeout);
        Ok(false)
    }

    /// A descriptor that is readable when [`Group::alarm`] would return at once: to wait for several groups together.
    pub fn alarm_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// What [`Body::Simple`] counted: one entry for each probe and process, in no order. Empty for other bodies.
    ///
    /// # Errors
    /// As reading a map.
    pub fn hits(&self) -> Result<Vec<Hits>> {
        Ok(Vec::new())
    }

    /// What the kernel's statistics say of this group's programs so far: run time in ns, runs.
    ///
    /// # Errors
    /// As reading `/proc/self/fdinfo`.
    pub fn statistics(&self) -> Result<(u64, u64)> {
        Ok((0, 0))
    }
}
