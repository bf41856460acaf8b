//! A machine to govern: timers that fire, events that cost, work that waits. Deterministic; what it costs is known exactly.

use lightfoot_cost::governor::{Controls, Governor, Observed, Setup};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;
/// The truth is added up in pieces of this length.
const PIECE: u64 = 100 * MS;

/// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in 0..1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn coin(&mut self) -> bool {
        self.next() >> 63 == 0
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.share()
    }

    /// Poisson, by the normal approximation above 30.
    pub fn count(&mut self, mean: f64) -> u64 {
        if mean > 30.0 {
            let normal: f64 = (0..12).map(|_| self.share()).sum::<f64>() - 6.0;
            return (mean + normal * mean.sqrt()).max(0.0).round() as u64;
        }
        let (limit, mut product, mut n) = ((-mean).exp(), self.share(), 0);
        while product > limit {
            product *= self.share();
            n += 1;
        }
        n
    }
}

/// What the machine does at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub forks_per_s: f64,
    pub switches_per_s: f64,
    pub blocked_threads: f64,
    /// Share of stacks that are deep, and how deep.
    pub deep_share: f64,
    pub deep_frames: u32,
    /// Work that arrives, in ns of CPU time per second.
    pub work_ns_per_s: f64,
    /// Share of the waiting work that each second is not needed any more: its processes have ended.
    pub work_gone_per_s: f64,
    pub interrupt_ns: f64,
}

pub const CALM: Weather = Weather {
    forks_per_s: 5.0,
    switches_per_s: 2_000.0,
    blocked_threads: 100.0,
    deep_share: 0.01,
    deep_frames: 200,
    work_ns_per_s: 0.0,
    work_gone_per_s: 0.0,
    interrupt_ns: 8_000.0,
};

/// How the machine and its observation deviate from what one would wish.
#[derive(Clone, Copy, Debug)]
pub struct Flaws {
    /// Spread of single prices: each is multiplied by a number from 1 - noise to 1 + noise.
    pub noise: f64,
    /// Spread of the calibrated price of an interrupt.
    pub calibration: f64,
    /// A step may come up to so much later, in ns.
    pub late_ns: u64,
    /// Whether forks and switches are counted elsewhere, too.
    pub outside: bool,
}

pub const FLAWS: Flaws = Flaws { noise: 0.3, calibration: 0.06, late_ns: 30 * MS, outside: true };

/// Prices of this machine, in ns.
const FRAME: f64 = 60.0;
const SAMPLE: f64 = 1_800.0;
const INTERPRETER: f64 = 2_000.0;
const ENTRY: f64 = 90.0;
const SWITCH: f64 = 60.0;
const SWITCH_STACK: f64 = 6_000.0;
const FOLLOW: f64 = 350.0;
const EVENTS_PER_FORK: f64 = 3.0;
const STEP: f64 = 40_000.0;
const COLLECT_EACH: f64 = 1_200.0;

/// What came out.
pub struct Outcome {
    /// Cost of each 100 ms, in ns.
    pub pieces: Vec<f64>,
    /// Time and controls of each step.
    pub steps: Vec<(u64, Controls)>,
    /// For each second of the run: CPU time that samples stand for, by the time since the CPU's sample before (`elapsed`), and by the period at the
    /// moment of the sample (`period`).
    pub elapsed: Vec<f64>,
    pub period: Vec<f64>,
    pub samples: u64,
    pub work_left_ns: f64,
    pub work_done_ns: f64,
    pub governor: Governor,
    pub budget_ns_per_s: f64,
}

impl Outcome {
    /// Every window of ten seconds, one beginning each 100 ms, as a share of the budget.
    pub fn windows(&self) -> Vec<f64> {
        let size = (10 * SECOND / PIECE) as usize;
        let budget = self.budget_ns_per_s * 10.0;
        self.pieces.windows(size).map(|w| w.iter().sum::<f64>() / budget).collect()
    }

    pub fn worst(&self) -> f64 {
        self.windows().into_iter().fold(0.0, f64::max)
    }

    pub fn share_under(&self) -> f64 {
        let windows = self.windows();
        windows.iter().filter(|&&w| w <= 1.0).count() as f64 / windows.len() as f64
    }

    /// Mean rate between two moments, in s.
    pub fn rate(&self, from_s: f64, to_s: f64) -> f64 {
        let in_it = |at: u64| (from_s..to_s).contains(&(at as f64 / SECOND as f64));
        let rates: Vec<f64> = self.steps.iter().filter(|s| in_it(s.0)).map(|s| s.1.rate_hz()).collect();
        rates.iter().sum::<f64>() / rates.len() as f64
    }

    /// Seconds after `from_s` until `done` first holds and goes on to hold for a second.
    pub fn until(&self, from_s: f64, done: impl Fn(&Controls) -> bool) -> Option<f64> {
        let mut since = None;
        for (at, controls) in &self.steps {
            let s = *at as f64 / SECOND as f64 - from_s;
            if s < 0.0 || !done(controls) {
                since = None;
                continue;
            }
            let begun = *since.get_or_insert(s);
            if s - begun >= 1.0 {
                return Some(begun);
            }
        }
        None
    }

    /// Times that the period changed.
    pub fn rate_changes(&self) -> usize {
        self.steps.windows(2).filter(|w| w[0].1.period_ns != w[1].1.period_ns).count()
    }
}

struct Timer {
    next_ns: u64,
    last_ns: u64,
}

/// Runs a governor on a machine with this weather for `seconds`. `arrivals`: (time, ns of work that is there at once).
pub fn run(
    setup: Setup,
    flaws: Flaws,
    seconds: u64,
    seed: u64,
    arrivals: &[(u64, f64)],
    weather: impl Fn(f64) -> Weather,
) -> Outcome {
    let mut random = Random(seed);
    let mut governor = Governor::new(setup.clone());
    let mut controls = governor.controls();
    let mut seen = Observed::default();
    let period = controls.period_ns;
    let mut timers: Vec<Timer> = (0..setup.cpus)
        .map(|cpu| Timer { next_ns: period / 2 + u64::from(cpu) * 1_000 + 1, last_ns: 0 })
        .collect();
    let mut outcome = Outcome {
        pieces: vec![0.0; (seconds * SECOND / PIECE) as usize],
        steps: vec![],
        elapsed: vec![0.0; seconds as usize],
        period: vec![0.0; seconds as usize],
        samples: 0,
        work_left_ns: 0.0,
        work_done_ns: 0.0,
        governor: governor.clone(),
        budget_ns_per_s: setup.budget_ns_per_s as f64,
    };
    let mut arrivals = arrivals.to_vec();
    let (mut next_step, mut calibrated, mut work_left) = (0u64, 0u64, controls.work_ns as f64);
    let (mut samples_since, mut switch_room) = (0u64, 0u64);
    let mut now = 0u64;
    while now < seconds * SECOND {
        let w = weather(now as f64 / SECOND as f64);
        let noise = |random: &mut Random| random.between(1.0 - flaws.noise, 1.0 + flaws.noise);
        let mut cost = 0.0;
        // A control step.
        if now >= next_step {
            if now == 0 || now - calibrated >= controls.calibration_pause_ns {
                calibrated = now;
                seen.interrupt_each_ns = Some(
                    (w.interrupt_ns * random.between(1.0 - flaws.calibration, 1.0 + flaws.calibration))
                        as u64,
                );
                cost += 3e6;
                seen.calibrate_ns += 3_000_000;
            }
            let collect = STEP * noise(&mut random) + samples_since as f64 * COLLECT_EACH;
            samples_since = 0;
            seen.collect_ns += collect as u64;
            cost += collect;
            seen.now_ns = now + 1;
            seen.work_waits = outcome.work_left_ns > 0.0;
            let before = controls.period_ns;
            controls = governor.step(&seen);
            outcome.steps.push((now, controls.clone()));
            if controls.period_ns != before {
                // The kernel starts the timer anew: what had passed of the old period stands for nothing.
                for timer in &mut timers {
                    timer.next_ns = now + controls.period_ns;
                }
            }
            work_left = controls.work_ns as f64;
            switch_room = u64::from(controls.off_cpu_samples_max) * u64::from(setup.cpus);
            next_step = now + controls.next_step_ns + (random.share() * flaws.late_ns as f64) as u64;
        }
        // One millisecond of the machine.
        for timer in &mut timers {
            while timer.next_ns < now + MS {
                let deep = random.share() < w.deep_share;
                let frames = if deep { w.deep_frames } else { 20 + (random.next() % 20) as u32 };
                seen.truncated += u64::from(frames > controls.max_user_frames);
                let frames = frames.min(controls.max_user_frames);
                let mut ns = SAMPLE + f64::from(frames) * FRAME;
                if controls.interpreters {
                    ns += INTERPRETER;
                }
                ns *= noise(&mut random);
                cost += ns + w.interrupt_ns * noise(&mut random);
                seen.bpf_sample_ns += ns as u64;
                seen.user_frames += u64::from(frames);
                seen.interrupts += 1;
                samples_since += 1;
                outcome.samples += 1;
                let second = ((timer.next_ns / SECOND) as usize).min(seconds as usize - 1);
                outcome.elapsed[second] += (timer.next_ns - timer.last_ns) as f64;
                outcome.period[second] += controls.period_ns as f64;
                timer.last_ns = timer.next_ns;
                timer.next_ns += controls.period_ns;
            }
        }
        let forks = random.count(w.forks_per_s / 1e3);
        seen.forks_outside = flaws.outside.then(|| seen.forks_outside.unwrap_or(0) + forks);
        if controls.follow_attached {
            let events = (forks as f64 * EVENTS_PER_FORK) as u64;
            let ns = events as f64 * FOLLOW * noise(&mut random);
            seen.follow_events += events;
            seen.bpf_follow_ns += ns as u64;
            cost += ns + events as f64 * ENTRY;
        }
        let switches = random.count(w.switches_per_s / 1e3);
        seen.switches_outside = flaws.outside.then(|| seen.switches_outside.unwrap_or(0) + switches);
        if controls.switch_attached {
            let interval_s = controls.off_cpu_interval_ns.max(1) as f64 / 1e9;
            let stacks = random.count((w.switches_per_s.min(w.blocked_threads / interval_s)) / 1e3);
            let stacks = stacks.min(switch_room);
            switch_room -= stacks;
            let ns = (switches as f64 * SWITCH + stacks as f64 * SWITCH_STACK) * noise(&mut random);
            seen.switch_events += switches;
            seen.switch_samples += stacks;
            seen.bpf_switch_ns += ns as u64;
            cost += ns + switches as f64 * ENTRY;
        }
        // Work: what is allowed until the next step, in pieces.
        arrivals.retain(|&(at, ns)| {
            if at <= now {
                outcome.work_left_ns += ns;
            }
            at > now
        });
        outcome.work_left_ns += w.work_ns_per_s / 1e3;
        outcome.work_left_ns *= 1.0 - w.work_gone_per_s / 1e3;
        if outcome.work_left_ns < 1e3 {
            outcome.work_left_ns = 0.0;
        }
        if work_left > 0.0 && outcome.work_left_ns > 0.0 {
            let piece = (controls.work_piece_ns as f64).min(outcome.work_left_ns);
            work_left -= piece;
            outcome.work_left_ns -= piece;
            outcome.work_done_ns += piece;
            seen.objects_ns += piece as u64;
            cost += piece;
        }
        outcome.pieces[(now / PIECE) as usize] += cost;
        now += MS;
    }
    outcome.governor = governor;
    outcome
}

/// A whole-machine run on two CPUs at 99 Hz.
pub fn setup(percent: f64) -> Setup {
    Setup {
        budget_ns_per_s: (percent * 1e7) as u64,
        cpus: 2,
        rate_hz: 99,
        max_user_frames: 1_024,
        off_cpu_interval_ns: None,
        follow: true,
        interpreters: true,
        kernel_frames: true,
        memory_bytes: None,
    }
}
