//! Off-CPU time: what the programs of `bpf/offcpu.h` are told and what they have added up.

use crate::remote::{self, Paging};
use crate::sampler::{find_program, map, put};
use crate::{Error, Result, os};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, Object};
use std::io::Read;

/// Programs of `bpf/offcpu.h`.
pub(crate) const PROGRAMS: [&str; 4] = ["on_switch", "on_waking", "mark_threads", "end_waits"];
/// Maps of `bpf/offcpu.h`.
pub(crate) const MAPS: [&str; 3] = ["off_cpus", "off_cpu_settings", "off_cpu_sums"];
/// `LF_WAITS`.
pub const WAITS: usize = 5;

/// What off-CPU time needs to be loaded with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffCpu {
    /// How memory of threads that do not run is read; `None`: their user stacks are not taken.
    pub paging: Option<Paging>,
    /// The wanted cgroup's id: the inode of its folder. 0 for other targets.
    pub cgroup: u64,
    /// Whether stacks of those who wake sleepers are taken, too.
    pub wakers: bool,
}

impl OffCpu {
    /// Finds out how memory is mapped.
    ///
    /// # Errors
    /// As [`remote::find`].
    pub fn find(cgroup: u64) -> Result<OffCpu> {
        Ok(OffCpu { paging: Some(remote::find()?), cgroup, wakers: false })
    }
}

/// Off-CPU time of all wanted threads, whether it was sampled or not. By `enum lf_wait`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// Blocked time in ns.
    pub blocked_ns: [u64; WAITS],
    /// Waits.
    pub waits: [u64; WAITS],
    /// Threads that were not followed for lack of memory.
    pub unmarked: u64,
}

/// Off-CPU time is being measured.
#[derive(Debug)]
pub(crate) struct Watch {
    link: Option<Link>,
    /// Only where wakers are asked for.
    waking: Option<Link>,
    off_cpu: OffCpu,
    from_ns: u64,
    /// `lf_off_cpu_settings::stretch`.
    stretch: u32,
}

impl Watch {
    /// Attaches, marks all threads that exist and starts.
    pub fn start(object: &Object, off_cpu: OffCpu) -> Result<Watch> {
        Watch::start_stretch(object, off_cpu, 1)
    }

    fn start_stretch(object: &Object, off_cpu: OffCpu, stretch: u32) -> Result<Watch> {
        let attach = |program: &str, to: &str| {
            find_program(object, program)?
                .attach_trace()
                .map_err(|e| Error::libbpf(format!("cannot attach to {to}"), e, String::new()))
        };
        let link = attach("on_switch", "sched_switch")?;
        let waking = off_cpu.wakers.then(|| attach("on_waking", "sched_waking")).transpose()?;
        let watch = Watch { link: Some(link), waking, off_cpu, from_ns: os::monotonic_ns(), stretch };
        watch.set(object, 0, 0)?;
        for_each_task(object, "mark_threads")?;
        Ok(watch)
    }

    /// Stops to look; waits that go on are forgotten.
    pub fn pause(&mut self) {
        self.waking = None;
        self.link = None;
    }

    /// Goes on after a pause: waits that go on begin now.
    pub fn resume(&mut self, object: &Object) -> Result<()> {
        if self.link.is_none() {
            *self = Watch::start_stretch(object, self.off_cpu, self.stretch + 1)?;
        }
        Ok(())
    }

    /// Ends all waits as of now. Nothing counts afterwards.
    pub fn stop(&mut self, object: &Object) -> Result<()> {
        if self.link.is_none() {
            return Ok(());
        }
        self.set(object, os::monotonic_ns(), clock_offset(object)?)?;
        // Detached first: what iterates uses the same scratch memory.
        self.waking = None;
        self.link = None;
        for_each_task(object, "end_waits")
    }

    fn set(&self, object: &Object, until_ns: u64, clock_offset: u64) -> Result<()> {
        let words = [self.from_ns, until_ns, self.off_cpu.cgroup, clock_offset, self.stretch.into()];
        put(object, "off_cpu_settings", &0u32.to_ne_bytes(), words.map(u64::to_ne_bytes).as_flattened())
    }
}

/// Runs an iterator program over all tasks.
fn for_each_task(object: &Object, name: &str) -> Result<()> {
    let failed = |e| Error::libbpf(format!("cannot look at all threads ({name})"), e, String::new());
    let link = find_program(object, name)?.attach().map_err(failed)?;
    let mut iterator = Iter::new(&link).map_err(failed)?;
    let mut nothing = [0u8; 64];
    // The programs write nothing: it is over when the first read returns.
    while iterator
        .read(&mut nothing)
        .map_err(|e| Error::io(format!("cannot look at all threads ({name})"), e))?
        > 0
    {}
    Ok(())
}

/// Words of `struct lf_off_cpu_sums`.
const SUMS_WORDS: usize = 19;
/// Place of `lf_off_cpu_sums::timed_ns`; the clock that waits are measured with comes next.
const TIMED_NS: usize = 17;

/// Each CPU's `struct lf_off_cpu_sums`.
fn rows(object: &Object) -> Result<Vec<[u64; SUMS_WORDS]>> {
    let rows = map(object, "off_cpu_sums")?
        .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(|e| Error::libbpf("cannot read the off-CPU sums", e, String::new()))?
        .unwrap_or_default();
    let words = |row: &Vec<u8>| {
        let words: Vec<u64> = row.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect();
        words.first_chunk().copied()
    };
    Ok(rows.iter().filter_map(words).collect())
}

/// `lf_off_cpu_settings::clock_offset`, as of the switch that was looked at last; 0 if there was none, and so no wait that began.
fn clock_offset(object: &Object) -> Result<u64> {
    let last = rows(object)?.into_iter().max_by_key(|row| row[TIMED_NS]);
    Ok(last.map_or(0, |row| row[TIMED_NS].wrapping_sub(row[TIMED_NS + 1])))
}

/// What was added up so far.
pub(crate) fn sums(object: &Object) -> Result<Sums> {
    let mut sums = Sums::default();
    for words in rows(object)? {
        for wait in 0..WAITS {
            sums.blocked_ns[wait] += words[wait];
            sums.waits[wait] += words[WAITS + wait];
        }
        sums.unmarked += words[2 * WAITS];
    }
    Ok(sums)
}
