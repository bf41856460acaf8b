//! The budget governor: from what was spent, what may be done next. A pure state machine: no clock, no I/O, the same answers to the same
//! observations.
//!
//! The promise: in no ten seconds does lightfoot cost more than the budget gives in ten seconds. Each step (about 100 ms):
//!
//! 1. What was spent goes into a sliding window (`window`). Interrupts are kept as a count: a better price for them holds for the past, too.
//! 2. What can be foreseen is: a sample costs interrupt + program (feed-forward), and what nobody can hold back (fork, exec and exit programs, reading
//!    the buffers) is estimated, quick to see more and slower to believe in less (`forecast`).
//! 3. The *pace* is the highest constant spending that keeps every window up to ten seconds from now under the ceiling. The past is part of
//!    it, so an excess is paid back, and a burst counts until it leaves the window.
//! 4. The pace is shared out. Work (unwind tables, processes, names) gets all that sampling does not need, in one piece if it is there: the
//!    window is a token bucket. What is left over decides depth, off-CPU and rate.
//!
//! What is held back first, and why: work, because what waits is late but not lost; depth, down to [`DEPTH_FLOOR`], because few stacks are deeper and each
//! of them costs as much as ten others; then the rate, because fewer samples widen the error bars but shift no share; languages and kernel frames last,
//! because without them the profile says something else. While work waits, a quarter of the pace is kept for it: a sample that cannot be unwound for
//! lack of tables costs as much as one that can.
//!
//! No oscillation: a cut assumes that only the interrupts and programs get cheaper by it, a raise that everything gets dearer. Between the two lies a
//! band in which nothing moves.

mod forecast;
mod held;
mod io;
mod pace;
mod plan;
mod tap;
mod window;

pub use held::{Lever, Reason};
pub use io::{Controls, Observed, Setup};

use crate::WINDOW_NS;
use forecast::{Despike, Level};
use held::Held;
use lightfoot_model::{HeldBack, RateChange};
use tap::Tap;
use window::Window;

/// Assumed price of an interrupt until it has been measured, in ns: the dearest seen so far was 25 us.
const INTERRUPT_GUESS_NS: f64 = 25_000.0;
/// Time over which measured prices of the interrupt are averaged, in seconds.
const PRICE_S: f64 = 2.0;
/// First guess of the sampling program's run time, in ns.
const SAMPLE_GUESS_NS: f64 = 10_000.0;
/// What the entry to a program on a raw tracepoint costs beyond what the program can measure itself, in ns (70 to 105 measured).
const TRACEPOINT_NS: f64 = 90.0;
/// First guess of such a program's own time, in ns.
const EVENT_GUESS_NS: f64 = 60.0;
/// First guess of what reading the buffers and the control itself cost, in ns per second: 100 to 200 us a step, ten steps a second, were measured.
const COLLECT_GUESS_NS: f64 = 1_500_000.0;
/// Run time of the programs on context switches when they take no stack, in ns.
const SWITCH_SKIP_NS: f64 = 60.0;

/// Least samples per second and CPU.
const RATE_FLOOR_HZ: f64 = 1.0;
/// Depth is not limited below this.
pub const DEPTH_FLOOR: u32 = 128;
/// Largest piece of work, in ns.
const WORK_PIECE_NS: f64 = 1e6;
/// What may happen between two steps, as a share of the window's budget, before someone should look.
const SURPRISE: f64 = 0.04;
/// Calibration may cost this share of the budget; one burst is about 3 ms (crate `kernel`).
const CALIBRATION_SHARE: f64 = 0.04;
const CALIBRATION_BURST_NS: f64 = 3e6;
const CALIBRATION_PAUSE_NS: (f64, f64) = (5e9, 120e9);

/// Changes of the rate that are remembered.
const RATES_MAX: usize = 1_024;

/// Steps while anything moves, and while nothing does, in ns. With programs on context switches they are shorter: a storm of those costs some ten
/// times the budget at once, one of forks or mappings a part of it.
const SWITCH_STEP_NS: u64 = 100_000_000;
const STEP_NS: u64 = 200_000_000;
const CALM_STEP_NS: u64 = 250_000_000;
/// So long nothing must have been held back to be calm, in ns.
const CALM_AFTER_NS: u64 = 2_000_000_000;

/// See the module.
#[derive(Clone, Debug)]
pub struct Governor {
    setup: Setup,
    /// The budget for one window, in ns.
    window_budget_ns: f64,
    window: Window,
    /// The part of it that was work.
    worked: Window,
    last: Observed,
    /// Whether [`Governor::step`] was called.
    begun: bool,
    interrupt_each_ns: f64,
    /// Cost of the last calibration, and when it was.
    calibration_ns: f64,
    calibrated_ns: Option<u64>,
    sample_ns: Level,
    frames: Level,
    /// Share of samples whose stack was cut.
    truncated: Level,
    collect: Level,
    collect_spikes: Despike,
    waiting: Level,
    follow: Option<Tap>,
    switch: Option<Tap>,
    /// Off-CPU stacks, in ns per second at the present interval.
    switch_stacks: Level,
    /// Price of one of them, in ns.
    switch_stack_ns: Level,
    rate_hz: f64,
    rate_raised_ns: u64,
    depth: u32,
    depth_changed_ns: u64,
    off_cpu_interval_ns: u64,
    interval_changed_ns: u64,
    floor_since_ns: Option<u64>,
    /// Price of a sample when languages or kernel frames were left out, in ns.
    full_sample_ns: f64,
    interpreters: bool,
    kernel_frames: bool,
    work_ns: u64,
    /// What waiting work is owed however bad the times, in ns.
    work_credit_ns: f64,
    evict_bytes: u64,
    busy_ns: u64,
    held: Held,
    not_taken: f64,
    begun_ns: u64,
    rates: Vec<RateChange>,
}

impl Governor {
    /// A governor for a run that is about to begin. The window starts empty: what was spent before sampling is reported as the phase `start` and is not
    /// in any window.
    pub fn new(setup: Setup) -> Governor {
        let mut governor = Governor {
            window_budget_ns: setup.budget_ns_per_s.max(1) as f64 * (WINDOW_NS as f64 / 1e9),
            window: Window::default(),
            worked: Window::default(),
            last: Observed::default(),
            begun: false,
            interrupt_each_ns: INTERRUPT_GUESS_NS,
            calibration_ns: CALIBRATION_BURST_NS,
            calibrated_ns: None,
            sample_ns: Level::guess(SAMPLE_GUESS_NS),
            frames: Level::default(),
            truncated: Level::default(),
            collect: Level::known(COLLECT_GUESS_NS),
            collect_spikes: Despike::after(COLLECT_GUESS_NS),
            waiting: Level::default(),
            follow: setup.follow.then(|| Tap::new(EVENT_GUESS_NS + TRACEPOINT_NS)),
            switch: setup.off_cpu_interval_ns.map(|_| Tap::new(SWITCH_SKIP_NS + TRACEPOINT_NS)),
            switch_stacks: Level::default(),
            switch_stack_ns: Level::guess(SAMPLE_GUESS_NS),
            rate_hz: setup.rate_hz.max(1) as f64,
            rate_raised_ns: 0,
            depth: setup.max_user_frames,
            depth_changed_ns: 0,
            off_cpu_interval_ns: setup.off_cpu_interval_ns.unwrap_or(0),
            interval_changed_ns: 0,
            floor_since_ns: None,
            full_sample_ns: 0.0,
            interpreters: setup.interpreters,
            kernel_frames: setup.kernel_frames,
            work_ns: 0,
            work_credit_ns: 0.0,
            evict_bytes: 0,
            busy_ns: 0,
            held: Held::default(),
            not_taken: 0.0,
            begun_ns: 0,
            rates: Vec::new(),
            setup,
        };
        governor.plan(0, 0.0);
        governor
    }

    /// What holds now; before the first step, what to start with.
    pub fn controls(&self) -> Controls {
        let calm = self.last.now_ns.saturating_sub(self.busy_ns) >= CALM_AFTER_NS;
        Controls {
            period_ns: self.period_ns(),
            max_user_frames: self.depth,
            interpreters: self.interpreters,
            kernel_frames: self.kernel_frames,
            work_ns: self.work_ns,
            work_piece_ns: self.work_piece_ns() as u64,
            off_cpu_interval_ns: self.off_cpu_interval_ns,
            off_cpu_samples_max: self.off_cpu_samples_max(),
            switch_attached: self.switch.as_ref().is_some_and(Tap::attached),
            follow_attached: self.follow.as_ref().is_some_and(Tap::attached),
            evict_bytes: self.evict_bytes,
            calibration_pause_ns: self.calibration_pause_ns(),
            next_step_ns: match self.switch {
                Some(_) => SWITCH_STEP_NS,
                None if calm => CALM_STEP_NS,
                None => STEP_NS,
            },
            alarm_bpf_ns: ((SURPRISE * self.window_budget_ns / self.cpus()) as u64).max(50_000),
        }
    }

    /// Why less is done than was asked for, just now.
    pub fn reasons(&self) -> impl Iterator<Item = Reason> + '_ {
        self.held.reasons()
    }

    /// What was held back so far in the run.
    pub fn held_back(&self) -> Vec<HeldBack> {
        self.held.report()
    }

    /// Samples that the asked rate would have taken and the governed one did not: throttled before they fired.
    pub fn samples_not_taken(&self) -> u64 {
        self.not_taken as u64
    }

    /// The rate and its changes since the first step.
    pub fn rates(&self) -> &[RateChange] {
        &self.rates
    }

    fn log_rate(&mut self, now: u64) {
        let rate_hz = self.rate_hz;
        if self.setup.rate_hz == 0 {
            return;
        }
        let same = self.rates.last().is_some_and(|last| last.rate_hz == rate_hz);
        if !same && self.rates.len() < RATES_MAX {
            self.rates.push(RateChange { at_ns: now - self.begun_ns, rate_hz });
        }
    }

    /// Spent in the last ten seconds, in ns.
    pub fn spent_ns(&self) -> u64 {
        self.window.spent_ns(self.interrupt_each_ns) as u64
    }

    /// One control step. Sums that shrink (a counter that was reset) count as no change.
    pub fn step(&mut self, seen: &Observed) -> Controls {
        let now = seen.now_ns.max(self.last.now_ns);
        let ns = if self.begun { now - self.last.now_ns } else { 0 };
        self.price_interrupts(seen.interrupt_each_ns, ns as f64 / 1e9);
        if ns > 0 {
            self.learn(seen, now, ns as f64 / 1e9);
            self.held.pass(ns);
            self.not_taken +=
                (self.setup.rate_hz.max(1) as f64 - self.rate_hz) * self.cpus() * ns as f64 / 1e9;
        }
        let first = !self.begun;
        if first {
            self.begun_ns = now;
            self.log_rate(now);
        }
        self.begun = true;
        self.last = Observed { now_ns: now, ..seen.clone() };
        if ns > 0 || first {
            self.plan(now, ns as f64 / 1e9);
            self.log_rate(now);
        }
        self.controls()
    }

    /// The calibrated price spreads by some percent from one measurement to the next, which is smoothed; what differs more is a change.
    fn price_interrupts(&mut self, measured: Option<u64>, s: f64) {
        let Some(new) = measured.map(|ns| ns as f64) else { return };
        let old = self.interrupt_each_ns;
        let similar = (new - old).abs() <= 0.25 * old;
        self.interrupt_each_ns = if similar { old + (new - old) * (1.0 - (-s / PRICE_S).exp()) } else { new };
    }

    /// Takes in what happened in the last `s` seconds.
    fn learn(&mut self, seen: &Observed, now: u64, s: f64) {
        let last = &self.last;
        let interrupts = seen.interrupts.saturating_sub(last.interrupts);
        let sample_ns = seen.bpf_sample_ns.saturating_sub(last.bpf_sample_ns) as f64;
        let frames = seen.user_frames.saturating_sub(last.user_frames);
        let truncated = seen.truncated.saturating_sub(last.truncated);
        let events = |new: u64, old: u64, ns_new: u64, ns_old: u64| {
            let events = new.saturating_sub(old);
            (events, ns_new.saturating_sub(ns_old) as f64 + events as f64 * TRACEPOINT_NS)
        };
        let (forks, follow_ns) =
            events(seen.follow_events, last.follow_events, seen.bpf_follow_ns, last.bpf_follow_ns);
        let (switches, switch_ns) =
            events(seen.switch_events, last.switch_events, seen.bpf_switch_ns, last.bpf_switch_ns);
        let outside = |new: Option<u64>, old: Option<u64>| Some(new?.saturating_sub(old?));
        let switches_outside = outside(seen.switches_outside, last.switches_outside);
        let forks_outside = outside(seen.forks_outside, last.forks_outside);
        let collect_ns = seen.collect_ns.saturating_sub(last.collect_ns) as f64;
        let worked_ns = (seen.objects_ns.saturating_sub(last.objects_ns) as f64)
            + seen.names_ns.saturating_sub(last.names_ns) as f64;
        let calibrate_ns = seen.calibrate_ns.saturating_sub(last.calibrate_ns) as f64;

        if calibrate_ns > 0.0 {
            self.calibration_ns = calibrate_ns;
            self.calibrated_ns = Some(now);
        }
        let user_ns = collect_ns + calibrate_ns + worked_ns;
        self.window.push(now, interrupts, sample_ns + follow_ns + switch_ns + user_ns);
        if interrupts > 0 {
            let n = interrupts as f64;
            self.sample_ns.update_mean(sample_ns / n, n, s);
            self.frames.update_mean(frames as f64 / n, n, s);
            self.truncated.update_mean(truncated as f64 / n, n, s);
        }
        self.collect.update(self.collect_spikes.filter(collect_ns / s), s);
        self.waiting.update(f64::from(u8::from(seen.work_waits)), s);
        if let Some(tap) = &mut self.follow {
            tap.observe(s, forks, follow_ns, forks_outside);
        }
        if let Some(tap) = &mut self.switch {
            let skip_ns = (switches as f64 * (SWITCH_SKIP_NS + TRACEPOINT_NS)).min(switch_ns);
            let attached = tap.attached();
            tap.observe(s, switches, skip_ns, switches_outside);
            if attached {
                self.switch_stacks.update((switch_ns - skip_ns) / s, s);
                let stacks = seen.switch_samples.saturating_sub(last.switch_samples) as f64;
                if stacks > 0.0 {
                    self.switch_stack_ns.update_mean((switch_ns - skip_ns) / stacks, stacks, s);
                }
            }
        }
        self.worked.push(now, 0, worked_ns);
        self.work_credit_ns -= worked_ns;
        let used_up = self.work_ns == 0 || worked_ns >= 0.8 * self.work_ns as f64;
        let waits = seen.work_waits && used_up;
        self.held.set(Lever::Work, 1.0, f64::from(u8::from(!waits)));
    }

    /// A twenty-fifth of the window's budget at most until the next step.
    fn off_cpu_samples_max(&self) -> u32 {
        let each = self.switch_stack_ns.high().max(100.0);
        (SURPRISE * self.window_budget_ns / self.cpus() / each).clamp(1.0, 1e9) as u32
    }

    fn calibration_pause_ns(&self) -> u64 {
        let allowed = CALIBRATION_SHARE * self.setup.budget_ns_per_s.max(1) as f64;
        let pause = self.calibration_ns / allowed * 1e9;
        pause.clamp(CALIBRATION_PAUSE_NS.0, CALIBRATION_PAUSE_NS.1) as u64
    }

    fn work_piece_ns(&self) -> f64 {
        (self.window_budget_ns * 0.02).clamp(1.0, WORK_PIECE_NS)
    }

    /// Interrupts and programs at a rate, in ns per second.
    fn sampling_ns_per_s(&self, rate_hz: f64) -> f64 {
        rate_hz * self.cpus() * (self.interrupt_each_ns + self.sample_ns.slow())
    }

    fn cpus(&self) -> f64 {
        f64::from(self.setup.cpus.max(1))
    }

    fn period_ns(&self) -> u64 {
        // Rounded up: a period that is too short would cost more than was planned.
        (1e9 / self.rate_hz.max(RATE_FLOOR_HZ)).ceil().max(1.0) as u64
    }
}
