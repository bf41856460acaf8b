//! The budget of a run of probes: from counts and prices, which bodies are held back and which probes go. A pure state machine.
//!
//! The promise: within the budget again at most a second after anything happened, and after the first second never more than 1.2 times the
//! budget in any one second.
//!
//! 1. A check in the programs themselves (`tokens`) stops bodies and wakes user space as soon as a few percent of the budget were spent faster than
//!    foreseen: floods are seen in less than a tick.
//! 2. Each look enters what was spent into a window of a second. The *pace* is the highest constant spending that keeps all windows to come below
//!    the ceiling.
//! 3. What the triggers cost (the *floor*) and our own CPU time come first; nothing but detaching makes them less. What is left of the pace is
//!    shared out to bodies: equal shares, and who needs less leaves it to the others, so rare probes stay whole. Who needs more runs its body for a
//!    random one in N.
//! 4. Where the floor alone breaks the pace, the dearest probe is detached, and then the next one: at once if what it would cost until the next look
//!    does not fit, else when it has lasted.
//!
//! What cannot be had: a flood costs what it costs until it is seen and the probe is gone ([`Unit::reaction_ns`]), on each CPU at the same time. Where
//! that alone is more than a fifth of the budget the promise cannot hold for the second in which it began.

mod window;

pub use window::WINDOW_NS;

use window::Window;

/// Share of the budget that is planned to be spent.
const CEILING: f64 = 0.85;
/// Share that floors may take before probes are detached.
const FLOOR_CEILING: f64 = 1.05;
/// Share that must not be passed, nor by what is spent until a probe is gone.
const HARD: f64 = 1.1;
/// Where bodies have spent the budget, an urgent detach needs at least this share of it to be at stake.
const URGENT: f64 = 0.1;
/// A floor below this share never leads to a detach, whatever bodies have spent before.
const HARMLESS: f64 = 0.5;
/// So long a floor must have been above the pace, in ns.
const LASTED_NS: u64 = 60_000_000;
/// Time over which rates are averaged, in ns: quick to see more ...
const UP_NS: f64 = 30e6;
/// ... and slower to believe in less.
const DOWN_NS: f64 = 400e6;
/// N goes down when the plan for it needs no more than this share of what there is, for so long, in ns.
const CALM: f64 = 0.75;
const CALM_NS: u64 = 500_000_000;
/// Highest N.
pub const ONE_IN_MAX: u32 = 1 << 16;
/// From the alarm of a group to the look, in ns.
const WAKE_NS: u64 = 1_000_000;
/// Between two looks, in ns.
const LOOK_NS: (u64, u64) = (50_000_000, 1_000_000_000);
/// Our own looks may take this share of the budget.
const LOOKING: f64 = 0.08;
/// Tokens are worth at least and at most this share of the budget, for all CPUs together.
const TOKENS: (f64, f64) = (0.04, 0.20);
/// Fewer tokens are not worth a wake-up.
const TOKENS_MIN: f64 = 16.0;

/// Probes that can only be detached together, or one that stands alone.
pub type Unit = usize;

/// One probe, as the governor knows it.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Its group: one set of tokens each.
    pub group: usize,
    /// What it is detached together with: numbers from 0 on, the same for those that go together.
    pub unit: Unit,
    /// A firing without its body, in ns.
    pub floor_ns: f64,
    /// What the body adds, in ns.
    pub body_ns: f64,
    /// From the decision to detach until it fires no more, in ns.
    pub reaction_ns: u64,
}

/// What there is to govern.
#[derive(Clone, Debug)]
pub struct Setup {
    /// CPU time allowed, in ns per second.
    pub budget_ns_per_s: u64,
    /// CPUs that probes can fire on at the same time.
    pub cpus: u32,
    /// The probes.
    pub probes: Vec<Probe>,
}

/// Counters of a probe since the begin.
#[derive(Clone, Copy, Default, Debug)]
pub struct Seen {
    /// See [`super::Counts::fired`].
    pub fired: u64,
    /// See [`super::Counts::bodies`].
    pub bodies: u64,
    /// See [`super::Counts::filtered`].
    pub filtered: u64,
}

/// What was seen at a look. All sums are since the begin.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Clock, in ns.
    pub now_ns: u64,
    /// Our own CPU time, in ns.
    pub own_ns: u64,
    /// What measuring (statistics) and detaching (traps that lead nowhere any more) cost the probed programs besides, in ns.
    pub measuring_ns: u64,
    /// Each probe's counters, in the order of the setup.
    pub probes: Vec<Seen>,
    /// Prices of the bodies as they are known now, in ns, in the same order; empty: as before.
    pub body_ns: Vec<f64>,
    /// Groups whose tokens were used up on some CPU.
    pub alarms: Vec<usize>,
}

/// What to do until the next look.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Orders {
    /// Run the body of each probe for a random one in so many firings.
    pub one_in: Vec<u32>,
    /// Units to be detached now, dearest first.
    pub detach: Vec<Unit>,
    /// Tokens for each CPU, by group.
    pub tokens: Vec<u32>,
    /// The next look, in ns from now.
    pub next_ns: u64,
}

/// What the budget did, for the report.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// Most that was spent in any second that began after the first, in ns; `None` for runs of less than two seconds.
    pub dearest_window_ns: Option<u64>,
    /// Most that was spent in any second, in ns.
    pub dearest_ns: u64,
    /// Time with some N above 1, in ns.
    pub throttled_ns: u64,
    /// Highest N of each probe.
    pub one_in_max: Vec<u32>,
    /// When each probe was detached for the budget, in ns since the begin.
    pub detached_ns: Vec<Option<u64>>,
    /// Times that tokens were used up.
    pub alarms: u64,
    /// Looks.
    pub looks: u64,
}

/// What is known of a probe.
#[derive(Clone, Debug)]
struct State {
    probe: Probe,
    seen: Seen,
    /// Firings per second: in the time since the last look, and averaged.
    now_per_s: f64,
    per_s: f64,
    /// Share of firings let through by the gate that ran the body: the others were other processes.
    passing: f64,
    one_in: u32,
    calm_ns: u64,
    gone: bool,
}

impl State {
    fn floor_per_s(&self) -> f64 {
        if self.gone { 0.0 } else { self.per_s * self.probe.floor_ns }
    }

    /// What its bodies would cost if all were run.
    fn bodies_per_s(&self) -> f64 {
        if self.gone { 0.0 } else { self.per_s * self.passing * self.probe.body_ns }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Governor {
    budget_ns: f64,
    cpus: f64,
    states: Vec<State>,
    groups: usize,
    window: Window,
    /// The part of it that only detaching could have saved.
    floors: Window,
    own_ns: u64,
    measuring_ns: u64,
    own_per_s: f64,
    own_each_ns: f64,
    begun_ns: Option<u64>,
    last_ns: u64,
    over_since_ns: Option<u64>,
    /// How unevenly firings fall on CPUs, by group: 1 evenly, number of CPUs: all on one.
    skew: Vec<f64>,
    tokens: Vec<u32>,
    report: Report,
}

impl Governor {
    /// A governor for probes that are about to be attached.
    pub fn new(setup: Setup) -> Governor {
        let groups = setup.probes.iter().map(|p| p.group + 1).max().unwrap_or(0);
        let state = |&probe: &Probe| State {
            probe,
            seen: Seen::default(),
            now_per_s: 0.0,
            per_s: 0.0,
            passing: 1.0,
            one_in: 1,
            calm_ns: 0,
            gone: false,
        };
        let mut governor = Governor {
            budget_ns: setup.budget_ns_per_s.max(1) as f64,
            cpus: f64::from(setup.cpus.max(1)),
            states: setup.probes.iter().map(state).collect(),
            groups,
            window: Window::default(),
            floors: Window::default(),
            own_ns: 0,
            measuring_ns: 0,
            own_per_s: 0.0,
            own_each_ns: 50_000.0,
            begun_ns: None,
            last_ns: 0,
            over_since_ns: None,
            skew: vec![1.0; groups],
            tokens: Vec::new(),
            report: Report {
                one_in_max: vec![1; setup.probes.len()],
                detached_ns: vec![None; setup.probes.len()],
                ..Report::default()
            },
        };
        governor.tokens = (0..groups).map(|group| governor.tokens_for(group, 0.0)).collect();
        governor
    }

    /// What holds before the first look: all bodies, few tokens, the first look soon.
    pub fn first(&self) -> Orders {
        Orders {
            one_in: vec![1; self.states.len()],
            detach: Vec::new(),
            tokens: self.tokens.clone(),
            next_ns: LOOK_NS.0,
        }
    }

    /// What the budget did so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Firings of a probe per second, at the last look.
    pub fn firings_per_s(&self, probe: usize) -> f64 {
        self.states.get(probe).map_or(0.0, |state| state.now_per_s)
    }

    /// Spent in the last second, in ns.
    pub fn spent_ns(&self) -> f64 {
        self.window.sum_ns()
    }

    /// A look. The first one only sets the marks.
    pub fn look(&mut self, seen: &Observed) -> Orders {
        let now = seen.now_ns.max(self.last_ns);
        let Some(begun) = self.begun_ns else {
            self.begun_ns = Some(now);
            self.last_ns = now;
            (self.own_ns, self.measuring_ns) = (seen.own_ns, seen.measuring_ns);
            for (state, seen) in self.states.iter_mut().zip(&seen.probes) {
                state.seen = *seen;
            }
            return self.first();
        };
        let elapsed_ns = now - self.last_ns;
        self.last_ns = now;
        self.report.looks += 1;
        self.report.alarms += seen.alarms.len() as u64;
        self.learn(seen, elapsed_ns.max(1));
        if self.states.iter().any(|s| s.one_in > 1 && !s.gone) {
            self.report.throttled_ns += elapsed_ns;
        }
        let spent = self.window.sum_ns() as u64;
        self.report.dearest_ns = self.report.dearest_ns.max(spent);
        if now - begun >= 2 * WINDOW_NS {
            self.report.dearest_window_ns = self.report.dearest_window_ns.max(Some(spent));
        }
        let detach = self.detach(now, begun);
        self.share_out(now, elapsed_ns);
        let next_ns = self.next_ns();
        self.tokens = (0..self.groups).map(|group| self.tokens_for(group, next_ns as f64 / 1e9)).collect();
        Orders {
            one_in: self.states.iter().map(|s| s.one_in).collect(),
            detach,
            tokens: self.tokens.clone(),
            next_ns,
        }
    }

    fn learn(&mut self, seen: &Observed, elapsed_ns: u64) {
        let s = elapsed_ns as f64 / 1e9;
        let own = seen.own_ns.saturating_sub(self.own_ns) as f64;
        let measuring = seen.measuring_ns.saturating_sub(self.measuring_ns) as f64;
        (self.own_ns, self.measuring_ns) =
            (seen.own_ns.max(self.own_ns), seen.measuring_ns.max(self.measuring_ns));
        self.own_each_ns += (own - self.own_each_ns) * 0.2;
        self.own_per_s += (own / s - self.own_per_s) * (1.0 - (-(elapsed_ns as f64) / DOWN_NS).exp());
        let (mut floors, mut bodies_ns) = (0.0, 0.0);
        let mut fired_in_group = vec![0.0; self.groups];
        for (index, (state, new)) in self.states.iter_mut().zip(&seen.probes).enumerate() {
            if let Some(&body_ns) = seen.body_ns.get(index) {
                state.probe.body_ns = body_ns;
            }
            let fired = new.fired.saturating_sub(state.seen.fired) as f64;
            let bodies = new.bodies.saturating_sub(state.seen.bodies) as f64;
            let filtered = new.filtered.saturating_sub(state.seen.filtered) as f64;
            state.seen = *new;
            floors += fired * state.probe.floor_ns;
            bodies_ns += bodies * state.probe.body_ns;
            fired_in_group[state.probe.group] += fired;
            state.now_per_s = fired / s;
            state.per_s = follow(state.per_s, state.now_per_s, elapsed_ns);
            if bodies + filtered >= 10.0 {
                state.passing += (bodies / (bodies + filtered) - state.passing) * 0.5;
            }
        }
        for &group in &seen.alarms {
            let (Some(skew), Some(&tokens)) = (self.skew.get_mut(group), self.tokens.get(group)) else {
                continue;
            };
            // So many CPUs' worth of tokens were used when the first of them ran out.
            let used = (fired_in_group[group] / f64::from(tokens.max(1))).clamp(1.0, self.cpus);
            *skew += (self.cpus / used - *skew) * 0.3;
        }
        self.window.push(self.last_ns, own + measuring + floors + bodies_ns);
        self.floors.push(self.last_ns, floors);
    }

    /// Which units have to go.
    fn detach(&mut self, now: u64, begun: u64) -> Vec<Unit> {
        let mut units = Vec::new();
        loop {
            let here = || self.states.iter().filter(|s| !s.gone);
            let floor_now: f64 = here().map(|s| s.now_per_s * s.probe.floor_ns).sum();
            // What was a burst and is over is in the average still; what has just begun is not yet.
            let lasting: f64 = here().map(|s| s.now_per_s.min(s.per_s) * s.probe.floor_ns).sum();
            let Some((unit, reaction_ns)) = self.dearest() else { break };
            let left = HARD * self.budget_ns - self.window.sum_ns();
            // What bodies have spent does not go on: they are held back already.
            let by_bodies = self.floors.sum_ns() < HARMLESS * self.budget_ns;
            let left = if by_bodies { left.max(URGENT * self.budget_ns) } else { left };
            // Until the next look some tokens are spent, and then waking up and detaching take their time.
            let ahead = floor_now * (reaction_ns + WAKE_NS) as f64 / 1e9
                + (TOKENS.0 * self.budget_ns).min(floor_now * LOOK_NS.0 as f64 / 1e9);
            let urgent = ahead > left && floor_now > HARMLESS * self.budget_ns;
            let pace = self.window.pace(now, FLOOR_CEILING * self.budget_ns, LOOK_NS.0);
            let over = lasting > (pace - self.own_per_s).max(HARMLESS * self.budget_ns);
            if !over {
                self.over_since_ns = None;
            }
            let since = *self.over_since_ns.get_or_insert(now);
            let lasted = over && now - since >= LASTED_NS;
            if !urgent && !lasted {
                break;
            }
            for (index, state) in self.states.iter_mut().enumerate() {
                if state.probe.unit == unit && !state.gone {
                    state.gone = true;
                    self.report.detached_ns[index] = Some(now - begun);
                }
            }
            units.push(unit);
        }
        units
    }

    /// The unit whose triggers cost most now.
    fn dearest(&self) -> Option<(Unit, u64)> {
        let mut costs: std::collections::BTreeMap<Unit, (f64, u64)> = std::collections::BTreeMap::new();
        for state in self.states.iter().filter(|s| !s.gone) {
            let entry = costs.entry(state.probe.unit).or_default();
            entry.0 += state.now_per_s.max(state.per_s) * state.probe.floor_ns;
            entry.1 = entry.1.max(state.probe.reaction_ns);
        }
        let most = costs.into_iter().max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
        (most.1.0 > 0.0).then_some((most.0, most.1.1))
    }

    /// Shares what is left of the pace out to bodies.
    fn share_out(&mut self, now: u64, elapsed_ns: u64) {
        let floor = self.own_per_s + self.states.iter().map(State::floor_per_s).sum::<f64>();
        let pace = self.window.pace(now, CEILING * self.budget_ns, LOOK_NS.0);
        let left = (pace - floor).clamp(0.0, CEILING * self.budget_ns);
        let share = level(left, self.states.iter().map(State::bodies_per_s));
        let calm = level(left * CALM, self.states.iter().map(State::bodies_per_s));
        for (index, state) in self.states.iter_mut().enumerate().filter(|(_, s)| !s.gone) {
            let needed = one_in(state.bodies_per_s(), share);
            let relaxed = one_in(state.bodies_per_s(), calm);
            if needed > state.one_in {
                // A little more than needed, or the next look would need more again.
                state.one_in = needed.saturating_add(needed / 4).min(ONE_IN_MAX);
                state.calm_ns = 0;
            } else if relaxed < state.one_in {
                state.calm_ns += elapsed_ns;
                if state.calm_ns >= CALM_NS {
                    state.one_in = relaxed.max(state.one_in / 4).max(1);
                    state.calm_ns = CALM_NS / 2;
                }
            } else {
                state.calm_ns = 0;
            }
            self.report.one_in_max[index] = self.report.one_in_max[index].max(state.one_in);
        }
    }

    fn next_ns(&self) -> u64 {
        let allowed = LOOKING * self.budget_ns;
        ((self.own_each_ns / allowed * 1e9) as u64).clamp(LOOK_NS.0, LOOK_NS.1)
    }

    /// Tokens of a group for each CPU until a look in `s` seconds: twice what is expected, within bounds.
    fn tokens_for(&self, group: usize, s: f64) -> u32 {
        let of_group = || self.states.iter().filter(|state| state.probe.group == group && !state.gone);
        let each = |state: &State| {
            state.probe.floor_ns + state.passing * state.probe.body_ns / f64::from(state.one_in)
        };
        let dearest_ns = of_group().map(each).fold(1.0, f64::max);
        let expected_ns: f64 = of_group().map(|state| state.per_s * each(state)).sum::<f64>() * s;
        let room = (HARD * self.budget_ns - self.window.sum_ns()) / 2.0;
        let (least, most) = (TOKENS.0 * self.budget_ns, TOKENS.1 * self.budget_ns);
        // What does not fit anyhow is watched closely.
        let worth = if expected_ns > most { least } else { (2.0 * expected_ns).min(room).clamp(least, most) };
        // The mean firing is cheaper than the dearest: an alarm too early is better than one too late.
        let firings = worth / dearest_ns / self.cpus * self.skew.get(group).copied().unwrap_or(1.0);
        firings.clamp(TOKENS_MIN, f64::from(u32::MAX - 1)) as u32
    }
}

/// An average that is quick to see more and slower to believe in less.
fn follow(average: f64, new: f64, elapsed_ns: u64) -> f64 {
    let time = if new > average { UP_NS } else { DOWN_NS };
    average + (new - average) * (1.0 - (-(elapsed_ns as f64) / time).exp())
}

/// The share that each gets of `left` if nobody gets more than he needs.
fn level(left: f64, needs: impl Iterator<Item = f64>) -> f64 {
    let mut needs: Vec<f64> = needs.filter(|&need| need > 0.0).collect();
    needs.sort_by(f64::total_cmp);
    let (mut left, mut takers) = (left, needs.len());
    for need in needs {
        let share = left / takers as f64;
        if need > share {
            return share;
        }
        left -= need;
        takers -= 1;
    }
    f64::INFINITY
}

fn one_in(need: f64, share: f64) -> u32 {
    if need <= share {
        return 1;
    }
    let n = (need / share.max(1.0)).ceil();
    n.clamp(1.0, f64::from(ONE_IN_MAX)) as u32
}

#[cfg(test)]
mod tests;
