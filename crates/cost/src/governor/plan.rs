//! One step's decisions, each from what the ones before have left.

use super::held::Lever;
use super::pace::Pace;
use super::tap::{Probe, Tap};
use super::{DEPTH_FLOOR, Governor, Level, RATE_FLOOR_HZ, SURPRISE};

/// Shallower stacks than this on average are not made cheaper by a limit on depth.
const DEEP: f64 = 48.0;
/// Share of the pace that is kept for work while it waits: the lower one where the asked rate needs all, at most the higher one where it does not.
const WORK_SHARE_LOW: f64 = 0.06;
const WORK_SHARE: f64 = 0.25;
/// Share of the budget that work gets in the end even if there is nothing left.
const WORK_LEAST: f64 = 0.02;
/// Share that off-CPU gets at least if it is wanted.
const OFF_CPU_SHARE: f64 = 0.4;
/// Programs on fork, exec and exit may cost this share of the budget.
const FOLLOW_SHARE: f64 = 0.5;
/// Between two raises of the same lever, in ns.
const SETTLE_NS: u64 = 250_000_000;
/// At most this much faster in one raise.
const RAISE_MAX: f64 = 4.0;
/// After a change this much room is left, so that it need not be taken back at once.
const ROOM: f64 = 0.97;
/// A raise of less is not worth a change of the period: each makes the kernel start the timer anew.
const RAISE_MIN: f64 = 1.05;
/// At the floor for so long, in ns, languages and then kernel frames are left out.
const PATIENCE_NS: u64 = 2_000_000_000;
/// At the floor for so long, in ns, the budget is said not to hold.
const FLOOR_NS: u64 = 1_000_000_000;
/// Off-CPU: blocked time per sample is never more than this, in ns.
const OFF_CPU_INTERVAL_MAX_NS: u64 = 10_000_000_000;
/// Memory: above this share of the limit something is given back, down to the other.
const MEMORY_HIGH: f64 = 0.95;
const MEMORY_LOW: f64 = 0.90;

impl Governor {
    /// Decides what holds until the next step.
    pub(super) fn plan(&mut self, now: u64, s: f64) {
        let budget = self.setup.budget_ns_per_s.max(1) as f64;
        let pause_s = self.calibration_pause_ns() as f64 / 1e9;
        let calibrated_s = now.saturating_sub(self.calibrated_ns.unwrap_or(0)) as f64 / 1e9;
        let due_s = if self.calibrated_ns.is_some() { (pause_s - calibrated_s).max(0.0) } else { 0.0 };
        let due = (due_s, self.calibration_ns);
        let pace = Pace::new(&self.window, now, self.interrupt_each_ns, self.window_budget_ns, due);
        let room_ns =
            pace.burst(Pace::CEILING, self.collect.slow() + self.sampling_ns_per_s(self.rate_hz), 0.0);
        if let Some(tap) = &mut self.follow {
            let probe = self.last.forks_outside.is_none().then_some(Probe { room_ns, extra_ns: 0.0 });
            tap.decide(now, FOLLOW_SHARE * budget, probe);
        }
        let (follow, follow_excess) = self.follow.as_ref().map_or((0.0, 0.0), Tap::forecast);
        let sampling_excess = self.rate_hz * self.cpus() * self.sample_ns.excess();
        let mut excess = follow_excess + sampling_excess + self.collect.excess();
        let fixed = follow + self.collect.slow();

        // For sampling, off-CPU and work together.
        let shared = pace.sustainable(excess) - fixed;
        let work_share = self.work_share(shared);
        let kept_for_work = work_share * self.waiting.slow() * shared.max(0.0);
        let off_cpu = self.plan_off_cpu(now, shared - kept_for_work, room_ns);
        excess += self.switch.as_ref().map_or(0.0, |tap| tap.forecast().1);
        let shared = pace.sustainable(excess) - fixed;
        let available = shared - kept_for_work - off_cpu;
        self.plan_depth(now, available);
        self.plan_rate(now, available);
        self.plan_languages(now, available);
        self.plan_work(&pace, s, fixed + off_cpu, excess, work_share);
        self.plan_memory();
        self.keep_account(now);
    }

    /// Share of what is left for sampling, off-CPU and work together that work gets while it waits. What waits is late; samples that are not taken never
    /// come back: work does not lower the rate by more than its lower share.
    fn work_share(&self, shared: f64) -> f64 {
        let sampling = self.sampling_ns_per_s(self.setup.rate_hz.max(1) as f64);
        (1.0 - sampling / shared.max(1.0)).clamp(WORK_SHARE_LOW, WORK_SHARE)
    }

    /// Blocked time per sample, and whether the programs stay attached. Returns what off-CPU will cost, in ns per second.
    fn plan_off_cpu(&mut self, now: u64, shared: f64, room_ns: f64) -> f64 {
        let wanted = self.sampling_ns_per_s(self.setup.rate_hz.max(1) as f64);
        let asked = self.setup.off_cpu_interval_ns.unwrap_or(0).max(1);
        let Some(tap) = &mut self.switch else { return 0.0 };
        let allowed = (shared - wanted).max(OFF_CPU_SHARE * shared).max(0.0);
        let extra_ns = SURPRISE * self.window_budget_ns;
        let probe = self.last.switches_outside.is_none().then_some(Probe { room_ns, extra_ns });
        tap.decide(now, 0.7 * allowed, probe);
        if !tap.attached() {
            self.switch_stacks = Level::default();
            return tap.probing();
        }
        let (events, _) = tap.forecast();
        let room = ROOM * (allowed - events).max(0.01 * allowed).max(1.0);
        let stacks = self.switch_stacks.high();
        let interval = self.off_cpu_interval_ns.max(1) as f64;
        let settled = now.saturating_sub(self.interval_changed_ns) >= SETTLE_NS;
        // Fewer stacks than in inverse proportion cannot come from a longer interval, nor more from a shorter one.
        let factor = if stacks > allowed - events {
            (stacks / room).max(RAISE_MIN)
        } else if settled && stacks > 0.0 {
            (stacks / room * RAISE_MIN).clamp(1.0 / RAISE_MAX, 1.0)
        } else if settled {
            1.0 / RAISE_MAX
        } else {
            1.0
        };
        let worth = !(1.0 / RAISE_MIN..=1.0).contains(&factor) || interval * factor <= asked as f64;
        if worth {
            let longest = (OFF_CPU_INTERVAL_MAX_NS.max(asked)) as f64;
            let new = (interval * factor).clamp(asked as f64, longest);
            if new != interval {
                self.off_cpu_interval_ns = new as u64;
                self.interval_changed_ns = now;
                self.switch_stacks = Level::guess(stacks * interval / new);
            }
        }
        (events + self.switch_stacks.high()).min(allowed.max(events))
    }

    fn plan_depth(&mut self, now: u64, available: f64) {
        let asked = self.setup.max_user_frames;
        let settled = now.saturating_sub(self.depth_changed_ns) >= SETTLE_NS;
        let rate = self.setup.rate_hz.max(1) as f64 * self.cpus();
        let price = |more_ns: f64| rate * (self.interrupt_each_ns + self.sample_ns.slow() + more_ns);
        // Twice the frames cost nothing where no stack was cut, and at most as much as the present frames of those that were.
        let frame_ns = self.sample_ns.slow() / self.frames.slow().max(1.0);
        let doubled_ns = self.truncated.slow() * f64::from(self.depth) * frame_ns;
        let lower = (self.depth / 2).max(DEPTH_FLOOR).min(self.depth);
        let depth = if settled && price(0.0) > available && self.frames.slow() >= DEEP {
            lower
        } else if settled && price(doubled_ns) <= 0.95 * available {
            self.depth.saturating_mul(2).min(asked)
        } else {
            return;
        };
        if depth != self.depth {
            self.depth = depth;
            self.depth_changed_ns = now;
        }
    }

    fn plan_rate(&mut self, now: u64, available: f64) {
        let asked = self.setup.rate_hz.max(1) as f64;
        let each = self.cpus() * (self.interrupt_each_ns + self.sample_ns.slow());
        let highest = available / each.max(1e-3);
        if highest < self.rate_hz {
            self.rate_hz = (highest * ROOM).max(RATE_FLOOR_HZ.min(asked));
            self.rate_raised_ns = now;
        } else if self.rate_hz < asked && now.saturating_sub(self.rate_raised_ns) >= SETTLE_NS {
            // Reading the buffers gets dearer with the rate, in proportion at most.
            let collect = self.collect.slow();
            let factor = (available + collect) / (self.rate_hz * each + collect).max(1e-3);
            let new = (self.rate_hz * (factor * ROOM).min(RAISE_MAX)).min(asked);
            if new >= self.rate_hz * RAISE_MIN || new == asked {
                self.rate_hz = new;
                self.rate_raised_ns = now;
            }
        }
    }

    fn plan_languages(&mut self, now: u64, available: f64) {
        let floor = RATE_FLOOR_HZ.min(self.setup.rate_hz.max(1) as f64);
        let (cpus, interrupt) = (self.cpus(), self.interrupt_each_ns);
        let at_floor = |sample: f64| floor * cpus * (interrupt + sample);
        if self.rate_hz <= floor && at_floor(self.sample_ns.slow()) > available {
            let since = *self.floor_since_ns.get_or_insert(now);
            if now - since >= PATIENCE_NS + FLOOR_NS {
                self.floor_since_ns = Some(now - FLOOR_NS);
                let full = (self.setup.interpreters, self.setup.kernel_frames);
                if (self.interpreters, self.kernel_frames) == full {
                    self.full_sample_ns = self.sample_ns.slow();
                }
                if self.interpreters {
                    self.interpreters = false;
                } else {
                    self.kernel_frames = false;
                }
            }
            return;
        }
        self.floor_since_ns = None;
        // What they cost is only known from before; that belief fades by half each 10 s, or they would never be tried again.
        self.full_sample_ns *= 0.993;
        if at_floor(self.full_sample_ns.max(self.sample_ns.slow())) <= available {
            self.interpreters = self.setup.interpreters;
            self.kernel_frames = self.setup.kernel_frames;
        }
    }

    /// All that neither sampling at the asked rate nor the ceiling of work forbids; or, if that is more, what work has not used of its own share.
    /// Not the rate of the moment: work would fill the room that the rate needs to recover.
    fn plan_work(&mut self, pace: &Pace, s: f64, fixed: f64, excess: f64, work_share: f64) {
        let piece = self.work_piece_ns();
        let sampling = self.sampling_ns_per_s(self.setup.rate_hz.max(1) as f64);
        let spare = pace.burst(Pace::WORK_CEILING, fixed + sampling, excess);
        let steady = Pace::CEILING * self.setup.budget_ns_per_s as f64 - fixed;
        let share = ((1.0 - work_share) * steady).max(self.sampling_ns_per_s(self.rate_hz));
        let quota = work_share * Pace::CEILING * self.window_budget_ns - self.worked.spent_ns(0.0);
        let own = pace.burst(Pace::WORK_SHARE_CEILING, fixed + sampling.min(share), excess).min(quota);
        // Never quite nothing: what waits must get done in the end, a piece now and then.
        let owed = WORK_LEAST * self.setup.budget_ns_per_s as f64 * s;
        self.work_credit_ns = (self.work_credit_ns + owed).clamp(-100.0 * piece, piece);
        let work = spare.max(own).max(self.work_credit_ns);
        self.work_ns = if work >= piece { work as u64 } else { 0 };
    }

    fn plan_memory(&mut self) {
        let used = self.last.rss_bytes.saturating_add(self.last.map_bytes) as f64;
        self.evict_bytes = match self.setup.memory_bytes {
            Some(limit) if used > MEMORY_HIGH * limit as f64 => (used - MEMORY_LOW * limit as f64) as u64,
            _ => 0,
        };
    }

    fn keep_account(&mut self, now: u64) {
        let (setup, held) = (&self.setup, &mut self.held);
        let onoff = |on: bool| f64::from(u8::from(on));
        held.set(Lever::Rate, setup.rate_hz.max(1) as f64, self.rate_hz);
        held.set(Lever::Depth, f64::from(setup.max_user_frames), f64::from(self.depth));
        let interval = setup.off_cpu_interval_ns.unwrap_or(0);
        held.set(Lever::OffCpuInterval, interval as f64, self.off_cpu_interval_ns as f64);
        held.set(
            Lever::OffCpuPrograms,
            onoff(self.switch.is_some()),
            onoff(self.switch.as_ref().is_some_and(Tap::attached)),
        );
        held.set(Lever::Interpreters, onoff(setup.interpreters), onoff(self.interpreters));
        held.set(Lever::KernelFrames, onoff(setup.kernel_frames), onoff(self.kernel_frames));
        held.set(Lever::Follow, onoff(setup.follow), onoff(self.follow.as_ref().is_some_and(Tap::attached)));
        held.set(Lever::Memory, 0.0, self.evict_bytes as f64);
        held.set(Lever::Floor, 1.0, onoff(self.floor_since_ns.is_none_or(|since| now - since < FLOOR_NS)));
        if held.reasons().next().is_some() || self.last.work_waits {
            self.busy_ns = now;
        }
    }
}
