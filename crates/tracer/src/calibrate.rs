//! What probes cost on this machine, measured on ourselves, when it is first asked for since the machine was started.
//!
//! A trigger's price: blocks of the same work without and with a probe that runs an empty program, by the thread's CPU clock, compared at a low
//! quantile, since what disturbs a block (other work, the host of a virtual machine) only ever adds. What is attached quickly is attached and detached
//! many times, so that both kinds of blocks see the same weather; a function of ours without a probe takes no time worth that.
//!
//! A body's price: in programs, what the kernel's statistics say of it beyond an empty one, block by block, at the same quantile: the bias of the
//! statistics cancels out. In the kernel, where a probe fires for others, too, and they are in the statistics, the difference of two triggers (but for
//! stacks, which are dear).
//! User stacks are weighed with a handful of frames; a run measures what they cost in the programs that it meets.
//!
//! Interrupts: wall time, since a kernel may keep interrupts out of a thread's CPU time.

use crate::store::Store;
use lightfoot_cost::probes::{Around, Checks, Family, Predicted, Price, Prices, price_of_rounds};
use lightfoot_kernel::probes::{Group, Options, Point, Statistics, support, targets};
use lightfoot_kernel::{Error, Kind, Result, os};
use lightfoot_model::{Body, Instruction, Mechanism, Trigger};
use lightfoot_sites::{Every, Place};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Length of a block, in ns of CPU time.
const BLOCK_NS: u64 = 60_000;
/// Blocks of each kind in a cycle, and cycles, where attaching is quick and where it is not.
const QUICK: (usize, usize) = (10, 12);
const SLOW: (usize, usize) = (60, 2);
/// The same where what is called takes no time without a probe: blocks of each kind, and stretches, of which the cheapest counts.
const BLOCKS: usize = 40;
const STRETCHES: usize = 3;
/// Blocks in which a body is measured by statistics.
const STATISTICS_BLOCKS: usize = 60;
/// Between two blocks of events.
const PAUSE: Duration = Duration::from_millis(1);
/// Frames of the stacks that are weighed.
const FRAMES: u32 = 4;
/// Period of the timer whose interrupts are weighed, in ns, and the length of its blocks.
const TIMER_NS: u64 = 50_000;
const TIMER_BLOCK_NS: u64 = 400_000;

/// The prices of this machine, measured as they are asked for.
#[derive(Debug)]
pub struct Calibration {
    prices: Prices,
    store: Store,
    /// What could not be measured, and why: not tried again.
    failed: BTreeMap<(Trigger, Around, Body), String>,
    /// Triggers measured by this process: once each.
    measured: BTreeSet<(Trigger, Around)>,
    changed: bool,
}

impl Calibration {
    /// With the prices that were measured since the machine was started, if there is a cache.
    pub fn open() -> Calibration {
        Calibration::from(Store::open())
    }

    /// Without a cache: everything is measured anew, nothing is kept.
    pub fn anew() -> Calibration {
        Calibration::from(Store::none())
    }

    fn from(store: Store) -> Calibration {
        let (failed, measured) = (BTreeMap::new(), BTreeSet::new());
        Calibration { prices: store.load(), store, failed, measured, changed: false }
    }

    /// What is known so far.
    pub fn prices(&self) -> &Prices {
        &self.prices
    }

    /// What one firing will cost; measures what is missing for that (some 50 ms for each part). `None` if this machine has no way to measure it:
    /// [`Calibration::why`].
    pub fn predict(
        &mut self,
        trigger: Trigger,
        around: Around,
        checks: Checks,
        body: Body,
    ) -> Option<Predicted> {
        if let Some(predicted) = self.prices.predict(trigger, around, checks, body)
            && !self.wants(trigger, around)
        {
            return Some(predicted);
        }
        let wanted = (trigger, around, body);
        if self.failed.contains_key(&wanted) {
            return None;
        }
        if let Err(error) = self.measure(trigger, around, checks, body) {
            self.failed.insert(wanted, os_words(&error));
        }
        self.prices.predict(trigger, around, checks, body)
    }

    /// What an account needs to read the kernel's statistics of a trigger: their bias, and what they add to a firing while they are on, in ns.
    pub fn statistics(&mut self, trigger: Trigger) -> Option<(f64, f64)> {
        let family = Family::of(trigger.mechanism);
        let empty = options(trigger, Body::Empty);
        let bias = self.know(|prices| &mut prices.bias, trigger, || run_time(trigger, &empty)).ok()?;
        let extra = self.know(|prices| &mut prices.statistics, family, || measure_statistics(family)).ok()?;
        Some((bias.ns, extra.ns))
    }

    /// Why a trigger has no price.
    pub fn why(&self, trigger: Trigger) -> Option<&str> {
        let mut failed = self.failed.iter().filter(|((of, ..), _)| *of == trigger);
        failed.next().map(|(_, why)| why.as_str())
    }

    /// Keeps what was measured for the next run.
    pub fn save(&mut self) {
        if std::mem::take(&mut self.changed) {
            self.store.save(&self.prices);
        }
    }

    /// Whether a trigger has no price, or one from an earlier run that was disturbed: it is measured again until one run finds the machine quiet.
    fn wants(&self, trigger: Trigger, around: Around) -> bool {
        let known = self.prices.triggers.get(&(trigger, around));
        known.is_none_or(|price| price.is_doubtful()) && !self.measured.contains(&(trigger, around))
    }

    fn measure(&mut self, trigger: Trigger, around: Around, checks: Checks, body: Body) -> Result<()> {
        let family = Family::of(trigger.mechanism);
        let empty = Options { bare: around == Around::Bare, ..options(trigger, Body::Empty) };
        self.know(|prices| &mut prices.triggers, (trigger, around), || measure_trigger(trigger, &empty))?;
        if checks.gate {
            let plain = options(sample_of(family), Body::Empty);
            let gated = Options { gate: true, ..plain.clone() };
            self.know(|prices| &mut prices.gate, family, || measure_addition(family, &plain, &gated))?;
        }
        let wanted = [(checks.process && family != Family::User, Body::Filter), (body != Body::Empty, body)];
        for (_, body) in wanted.into_iter().filter(|(wanted, _)| *wanted) {
            self.know(|prices| &mut prices.bodies, (family, body), || measure_body(family, body))?;
        }
        Ok(())
    }

    /// The price in a table; measured if it is not there.
    fn know<K: Ord>(
        &mut self,
        table: impl Fn(&mut Prices) -> &mut BTreeMap<K, Price>,
        key: K,
        measure: impl FnOnce() -> Result<Price>,
    ) -> Result<Price> {
        match table(&mut self.prices).entry(key) {
            Entry::Occupied(known) => Ok(*known.get()),
            Entry::Vacant(place) => {
                self.changed = true;
                Ok(*place.insert(measure()?))
            }
        }
    }
}

impl Drop for Calibration {
    fn drop(&mut self) {
        self.save();
    }
}

fn os_words(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The cheapest trigger of a family that every kernel has: bodies are weighed on it.
fn sample_of(family: Family) -> Trigger {
    let plain = |mechanism| Trigger { mechanism, instruction: None, syscall: false };
    match family {
        Family::Kernel => Trigger { syscall: true, ..plain(Mechanism::RawTracepoint) },
        Family::User => {
            let cheap = [Instruction::Nop, Instruction::Nop5, Instruction::SingleStepped];
            let instruction = cheap.into_iter().find(|&class| targets::of(class).is_some());
            let multi = support::check(Mechanism::UprobeMulti).is_ok();
            let mechanism = if multi { Mechanism::UprobeMulti } else { Mechanism::Uprobe };
            Trigger { instruction, ..plain(mechanism) }
        }
        Family::Event => plain(Mechanism::PerfEvent),
    }
}

/// A group of one probe on ourselves. In programs the kernel filters by process before the trap, which costs nothing of its own; tracepoints fire for
/// all, and others' firings are not in our blocks.
fn options(trigger: Trigger, body: Body) -> Options {
    let pid = trigger.mechanism.is_user().then(std::process::id);
    Options { pid, ..Options::new(trigger.mechanism, body) }
}

/// Something of ours that fires a trigger.
struct Work {
    place: Place,
    call: Box<dyn Fn(u64)>,
    /// Firings of each call.
    firings: f64,
    quick: bool,
    /// What a call takes without a probe is nothing compared with the probe.
    free: bool,
}

fn work_for(trigger: Trigger, bare: bool) -> Result<Work> {
    use Mechanism::*;
    let missing = |what: &str| Error::new(Kind::Unsupported, what.to_string());
    if trigger.mechanism.is_user() {
        let class = trigger.instruction.ok_or_else(|| missing("the instruction is not known"))?;
        let target = targets::of(class)
            .ok_or_else(|| missing("no such instruction among the functions that are measured"))?;
        let call = Box::new(|calls| target.run(calls));
        let firings = if trigger.mechanism == UprobeSession { 2.0 } else { 1.0 };
        return Ok(Work { place: target.place.clone(), call, firings, quick: false, free: true });
    }
    let getppid: Box<dyn Fn(u64)> = Box::new(targets::getppid);
    let firings = if trigger.mechanism == KprobeSession { 2.0 } else { 1.0 };
    let in_kernel = |place, call, quick| Work { place, call, firings, quick, free: false };
    match trigger.mechanism {
        // Told apart by number, where a program counts.
        RawTracepoint | TpBtf if trigger.syscall && bare => {
            let place = Place::Tracepoint { category: String::new(), name: "sys_enter".into() };
            Ok(in_kernel(place, getppid, true))
        }
        RawTracepoint | TpBtf if trigger.syscall => {
            let number = libc::SYS_getppid as u32;
            Ok(in_kernel(Place::Syscall { number, exit: false }, getppid, true))
        }
        Tracepoint if trigger.syscall => {
            let place = Place::Tracepoint { category: "syscalls".into(), name: "sys_enter_getppid".into() };
            Ok(in_kernel(place, getppid, false))
        }
        Tracepoint | RawTracepoint | TpBtf => {
            let place = Place::Tracepoint { category: "task".into(), name: "task_rename".into() };
            Ok(in_kernel(place, Box::new(targets::rename), trigger.mechanism != Tracepoint))
        }
        PerfEvent => Err(missing("interrupts are weighed another way")),
        _ => {
            let function =
                if cfg!(target_arch = "aarch64") { "__arm64_sys_getppid" } else { "__x64_sys_getppid" };
            let place = Place::Kernel { function: function.into(), offset: 0 };
            Ok(in_kernel(place, getppid, !matches!(trigger.mechanism, Kprobe | Kretprobe)))
        }
    }
}

/// The same calls at the end of a stack with frames that can be walked.
fn deep(trigger: Trigger) -> Box<dyn Fn(u64)> {
    let target = trigger.instruction.and_then(targets::of);
    Box::new(move |calls| targets::run_deep(target, FRAMES, calls))
}

fn attached(options: &Options, place: &Place) -> Result<Group> {
    let mut group = Group::load(options)?;
    attach(&mut group, place)?;
    Ok(group)
}

fn attach(group: &mut Group, place: &Place) -> Result<()> {
    group.attach(&[Point { slot: 0, place: place.clone() }])
}

/// CPU time of one block, in ns.
fn block(call: &dyn Fn(u64), calls: u64) -> f64 {
    let start = os::thread_cpu_ns();
    call(calls);
    (os::thread_cpu_ns() - start) as f64
}

/// Calls that take about a block's time; warms up.
fn calls_for(call: &dyn Fn(u64)) -> u64 {
    let mut calls = 8;
    loop {
        let ns = (0..3).map(|_| block(call, calls)).fold(f64::INFINITY, f64::min);
        if ns * 4.0 >= BLOCK_NS as f64 || calls >= 1 << 20 {
            return ((calls as f64 * BLOCK_NS as f64 / ns.max(1.0)) as u64).clamp(4, 1 << 20);
        }
        calls *= 4;
    }
}

fn measure_trigger(trigger: Trigger, options: &Options) -> Result<Price> {
    if trigger.mechanism == Mechanism::PerfEvent {
        return measure_interrupt(options);
    }
    let mut work = work_for(trigger, options.bare)?;
    if matches!(options.body, Body::UserStack | Body::KernelStack) {
        work.call = deep(trigger);
    }
    if !work.free {
        return by_turns(&work, options);
    }
    // A stretch may be disturbed from its begin to its end, and the kernel does not always get to replace a breakpoint by a call.
    let mut best: Option<Price> = None;
    for _ in 0..STRETCHES {
        let price = at_once(&work, options)?;
        best = Some(best.filter(|best| best.ns <= price.ns).unwrap_or(price));
    }
    best.ok_or_else(nothing)
}

/// Attached and detached by turns.
fn by_turns(work: &Work, options: &Options) -> Result<Price> {
    let mut group = attached(options, &work.place)?;
    let calls = calls_for(&work.call);
    let (blocks, cycles) = if work.quick { QUICK } else { SLOW };
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let (before, mut done) = (fired(&group, options)?, 0);
    for cycle in 0..cycles {
        if cycle > 0 {
            attach(&mut group, &work.place)?;
        }
        for _ in 0..blocks {
            with.push(block(&work.call, calls));
            // A full ring would make events cheap.
            group.events(|_| {});
        }
        done += blocks as u64 * calls;
        group.detach()?;
        without.extend((0..blocks).map(|_| block(&work.call, calls)));
    }
    has_fired(&group, before, done, work)?;
    price_of_rounds(&without, &with, calls as f64 * work.firings).ok_or_else(nothing)
}

/// Attached once; what the calls take without a probe is next to nothing, and measured afterwards.
fn at_once(work: &Work, options: &Options) -> Result<Price> {
    let mut group = attached(options, &work.place)?;
    let calls = calls_for(&work.call);
    let before = fired(&group, options)?;
    let with: Vec<f64> = (0..BLOCKS).map(|_| block(&work.call, calls)).collect();
    has_fired(&group, before, BLOCKS as u64 * calls, work)?;
    group.detach()?;
    let without: Vec<f64> = (0..BLOCKS).map(|_| block(&work.call, calls)).collect();
    price_of_rounds(&without, &with, calls as f64 * work.firings).ok_or_else(nothing)
}

fn nothing() -> Error {
    Error::new(Kind::Other, "nothing was measured")
}

/// Firings counted so far; `None` for programs that do not count.
fn fired(group: &Group, options: &Options) -> Result<Option<u64>> {
    if options.bare {
        return Ok(None);
    }
    Ok(Some(group.counts()?.iter().map(|counts| counts.fired).sum()))
}

/// The probe fired as often as it was called; programs that do not count are believed.
fn has_fired(group: &Group, before: Option<u64>, calls: u64, work: &Work) -> Result<()> {
    let Some(before) = before else { return Ok(()) };
    let now: u64 = group.counts()?.iter().map(|counts| counts.fired).sum();
    if (now.saturating_sub(before) as f64) < calls as f64 * work.firings * 0.99 {
        return Err(Error::new(Kind::Other, "the probe that was to be weighed did not fire"));
    }
    Ok(())
}

/// The price of a timer's interrupt with this program: as in `kernel::calibrate`, blocks without and with the timer by turns.
fn measure_interrupt(options: &Options) -> Result<Price> {
    let place = timer();
    let mut group = Group::load(options)?;
    let rounds = spin_rounds();
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..40 {
        without.push(spin(rounds));
        attach(&mut group, &place)?;
        with.push(spin(rounds));
        group.detach()?;
    }
    // One interrupt each period, its own time included.
    let typical = price_of_rounds(&[0.0], &with, 1.0).map_or(0.0, |price| price.ns);
    price_of_rounds(&without, &with, (typical / TIMER_NS as f64).max(1.0)).ok_or_else(nothing)
}

/// `PERF_COUNT_SW_CPU_CLOCK`, fast.
fn timer() -> Place {
    Place::Perf { type_: 1, config: 0, every: Every::Period(TIMER_NS), one_cpu: false }
}

/// Wall time of so many rounds of work in registers, in ns.
fn spin(rounds: u64) -> f64 {
    let start = os::monotonic_ns();
    let mut x = 1u64;
    for _ in 0..rounds {
        x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    std::hint::black_box(x);
    (os::monotonic_ns() - start) as f64
}

fn spin_rounds() -> u64 {
    let each = (0..5).map(|_| spin(20_000) / 20_000.0).fold(f64::INFINITY, f64::min).max(0.05);
    (TIMER_BLOCK_NS as f64 / each) as u64
}

/// What the kernel's statistics say of a run of this program, in ns.
fn run_time(trigger: Trigger, options: &Options) -> Result<Price> {
    let (place, call): (Place, Box<dyn Fn(u64)>) = if trigger.mechanism == Mechanism::PerfEvent {
        let rounds = spin_rounds();
        (
            timer(),
            Box::new(move |_| {
                spin(rounds);
            }),
        )
    } else {
        let work = work_for(trigger, options.bare)?;
        let call = if options.body == Body::UserStack { deep(trigger) } else { work.call };
        (work.place, call)
    };
    let mut group = attached(options, &place)?;
    let _on = Statistics::on()?;
    let calls = calls_for(&call);
    let mut means = Vec::with_capacity(STATISTICS_BLOCKS);
    let mut before = group.statistics()?;
    for _ in 0..STATISTICS_BLOCKS {
        if options.body == Body::Event {
            // Events come with pauses: somebody has to read them.
            std::thread::sleep(PAUSE);
        }
        call(calls);
        // A full ring would make events cheap.
        group.events(|_| {});
        let now = group.statistics()?;
        let runs = now.1.saturating_sub(before.1);
        if runs > 0 {
            means.push(now.0.saturating_sub(before.0) as f64 / runs as f64);
        }
        before = now;
    }
    price_of_rounds(&[0.0], &means, 1.0)
        .ok_or_else(|| Error::new(Kind::Other, "the program that was to be weighed did not run"))
}

/// What statistics add to each firing while they are on.
fn measure_statistics(family: Family) -> Result<Price> {
    // Of an interrupt they are nothing.
    let trigger = sample_of(if family == Family::Event { Family::Kernel } else { family });
    let work = work_for(trigger, false)?;
    let _group = attached(&options(trigger, Body::Empty), &work.place)?;
    let calls = calls_for(&work.call);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..40 {
        without.push(block(&work.call, calls));
        let on = Statistics::on()?;
        with.push(block(&work.call, calls));
        drop(on);
    }
    price_of_rounds(&without, &with, calls as f64 * work.firings).ok_or_else(nothing)
}

fn measure_body(family: Family, body: Body) -> Result<Price> {
    let empty = options(sample_of(family), Body::Empty);
    match body {
        // In programs the kernel compares; only a bare program does so by itself.
        Body::Filter if family == Family::User => {
            let empty = Options { bare: true, ..empty };
            measure_addition(family, &empty, &Options { body, ..empty.clone() })
        }
        // Nobody is process 1 but init.
        Body::Filter => measure_addition(family, &empty, &Options { pid: Some(1), ..empty.clone() }),
        // Others' firings fill no map and no ring.
        body => {
            let pid = (family != Family::Event).then(std::process::id);
            let empty = Options { pid, ..empty };
            measure_addition(family, &empty, &Options { body, ..empty.clone() })
        }
    }
}

/// What one program takes more than another.
fn measure_addition(family: Family, less: &Options, more: &Options) -> Result<Price> {
    let trigger = sample_of(family);
    let (a, b) = match family {
        // Statistics would count others' firings, too, which the program leaves out.
        Family::Kernel => (measure_trigger(trigger, less)?, measure_trigger(trigger, more)?),
        _ => (run_time(trigger, less)?, run_time(trigger, more)?),
    };
    Ok(Price { ns: (b.ns - a.ns).max(0.0), error_ns: (a.error_ns.powi(2) + b.error_ns.powi(2)).sqrt() })
}
