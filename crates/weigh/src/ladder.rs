//! How the ladder is climbed: short blocks of the same work, without and with a probe, close together in time and many times over.
//!
//! A *block* repeats one operation and is timed as a whole. A *visit* to a rung is some blocks without the probe, then it is attached and warmed up,
//! some blocks with it, it is detached, and some blocks without it again. A *round* visits every rung once, each round in another order. So
//! whatever the machine does meanwhile (clock speed, neighbours, other work) comes to every rung alike, and to both sides of a difference.
//!
//! Other work can only ever add time to a block, so a visit is judged by its fastest blocks (but for timers). Visits are judged by their median, and what differs
//! between them gives the interval.

use crate::random::Random;
use crate::rung::{Operation, Rung};
use crate::stats;
use std::collections::HashMap;
use std::time::Duration;

/// What the ladder stands on: the machine, or a simulation of one.
pub trait Rig {
    /// A probe that is attached.
    type Probe;

    /// Why the kernel cannot attach here, if it cannot.
    fn missing(&mut self, rung: &Rung) -> Option<String>;

    /// Attaches.
    ///
    /// # Errors
    /// Why not, for people.
    fn attach(&mut self, rung: &Rung) -> Result<Self::Probe, String>;

    /// Detaches, and returns when nothing is left of it.
    fn detach(&mut self, probe: Self::Probe);

    /// Repeats an operation so many times on so many threads at once.
    fn block(&mut self, operation: Operation, threads: u32, times: u64) -> Block;

    /// Repeats the operation at least so many times on one thread while the kernel keeps statistics of the probe's program. `None` if it keeps none.
    fn claim(&mut self, probe: &Self::Probe, times: u64) -> Option<Claim>;

    /// Time since some start.
    fn now(&self) -> Duration;
}

/// The time of one block.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Block {
    /// CPU time of one operation, in ns; the mean over the threads.
    pub ns: f64,
    /// Whether all threads ran at the same time, from beginning to end, and time that is not CPU time was not interrupted by others.
    pub together: bool,
}

/// What the kernel's statistics say.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Claim {
    /// Run time of the program for each run, in ns.
    pub ns_per_run: f64,
    /// Runs for each operation; of a timer, for each of its periods, on all CPUs together.
    pub runs: f64,
}

/// How long and how often.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pace {
    /// When to stop; one round is made in any case.
    pub limit: Duration,
    /// At most so many rounds.
    pub rounds: u32,
    /// Length of a block with one thread, in ns.
    pub block_ns: f64,
    /// Blocks with the probe in a visit; half as many before and after it without.
    pub blocks: u32,
}

impl Pace {
    /// For figures: as many rounds as there is time for.
    pub fn figures(limit: Duration) -> Pace {
        Pace { limit, rounds: u32::MAX, block_ns: 300_000.0, blocks: 10 }
    }

    /// Roughly, in seconds.
    pub fn quick() -> Pace {
        Pace { limit: Duration::from_secs(60), rounds: 3, block_ns: 100_000.0, blocks: 4 }
    }
}

/// Blocks with several threads are so many times as long: threads take time to come together.
const TOGETHER_TIMES: f64 = 4.0;
/// Of blocks in which not all threads ran together so many times as many as wanted are tried.
const PATIENCE: u32 = 4;
/// Fewest and most operations of a block.
const TIMES: (u64, u64) = (16, 4_000_000);
/// Operations that warm up a probe: its entries in maps are made, its code comes into the caches, the kernel writes its jumps.
const WARM: u64 = 64;
/// Operations until nearly all keys of the complex program are there: 1,024 at random.
const WARM_KEYS: u64 = 4_096;
/// No warming up takes longer than this, in ns.
const WARM_NS: f64 = 20e6;
/// Period of the timer under [`Operation::Work`], in ns.
pub const TIMER_PERIOD_NS: u64 = 100_000;
/// Periods in a block: one firing more or less, as the block begins, is a small part of them.
const TIMER_PERIODS: f64 = 10.0;

/// One visit to a rung: undisturbed blocks, in ns for each operation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Visit {
    /// Without the probe, before and after.
    pub base_ns: f64,
    /// With it.
    pub probed_ns: f64,
}

impl Visit {
    /// What one firing added.
    pub fn overhead_ns(&self) -> f64 {
        self.probed_ns - self.base_ns
    }
}

/// What was measured of a rung.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// Which.
    pub rung: Rung,
    /// Why it could not be measured.
    pub missing: Option<String>,
    /// All visits that came off, in order.
    pub visits: Vec<Visit>,
    /// Blocks timed, with the probe and without.
    pub blocks: u32,
    /// Blocks left out, since not all threads ran together.
    pub apart: u32,
    /// What the kernel claimed at each visit.
    pub claims: Vec<Claim>,
}

/// How far the ladder is climbed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress {
    /// Rounds that are done.
    pub rounds: u32,
    /// Visits made in this round.
    pub visits: usize,
    /// Visits of a round.
    pub of: usize,
    /// Time so far.
    pub elapsed: Duration,
}

/// Climbs. `go_on` is asked before each visit; once it says no, what was measured is returned.
pub fn climb<R: Rig>(
    rig: &mut R,
    rungs: &[Rung],
    pace: &Pace,
    seed: u64,
    mut go_on: impl FnMut(&Progress) -> bool,
) -> Vec<Measured> {
    let start = rig.now();
    let mut random = Random::new(seed);
    let mut base = Base { pace, times: HashMap::new() };
    let mut all: Vec<Measured> = rungs
        .iter()
        .map(|rung| {
            let missing = rig.missing(rung);
            Measured { rung: *rung, missing, visits: Vec::new(), blocks: 0, apart: 0, claims: Vec::new() }
        })
        .collect();
    for round in 0..pace.rounds {
        let mut order: Vec<usize> = (0..all.len()).filter(|&at| all[at].missing.is_none()).collect();
        random.shuffle(&mut order);
        for (visits, &at) in order.iter().enumerate() {
            let elapsed = rig.now().saturating_sub(start);
            let progress = Progress { rounds: round, visits, of: order.len(), elapsed };
            if !go_on(&progress) || (round > 0 && elapsed >= pace.limit) {
                return all;
            }
            visit(rig, &mut base, &mut all[at]);
        }
        if order.is_empty() {
            break;
        }
    }
    all
}

/// Blocks without probes.
struct Base<'a> {
    pace: &'a Pace,
    /// Operations of a block, by operation and threads.
    times: HashMap<(Operation, u32), u64>,
}

impl Base<'_> {
    fn times(&mut self, rig: &mut impl Rig, operation: Operation, threads: u32) -> u64 {
        if let Some(times) = self.times.get(&(operation, threads)) {
            return *times;
        }
        let (mut times, mut ns) = (WARM, rig.block(operation, 1, WARM).ns);
        // Until a block is long enough to be timed.
        while ns * (times as f64) < self.pace.block_ns / 4.0 && times < TIMES.1 {
            times *= 4;
            ns = rig.block(operation, 1, times).ns;
        }
        let times = times_for(self.pace, operation, threads, ns);
        self.times.insert((operation, threads), times);
        times
    }
}

fn times_for(pace: &Pace, operation: Operation, threads: u32, ns: f64) -> u64 {
    let wanted = match operation {
        Operation::Work => TIMER_PERIODS * TIMER_PERIOD_NS as f64,
        _ if threads > 1 => pace.block_ns * TOGETHER_TIMES,
        _ => pace.block_ns,
    };
    ((wanted / ns.max(0.1)) as u64).clamp(TIMES.0, TIMES.1)
}

fn visit<R: Rig>(rig: &mut R, base: &mut Base<'_>, measured: &mut Measured) {
    let (rung, pace) = (measured.rung, base.pace);
    let operation = rung.site.operation();
    let base_times = base.times(rig, operation, rung.threads);
    let half = pace.blocks.div_ceil(2);

    let before = undisturbed(rig, &rung, base_times, half, measured);
    let probe = match rig.attach(&rung) {
        Ok(probe) => probe,
        Err(why) => {
            // The first time it is not possible here; later the machine has changed, and what was measured holds.
            if measured.visits.is_empty() {
                measured.missing = Some(why);
            }
            return;
        }
    };
    rig.block(operation, 1, WARM);
    let ns = rig.block(operation, 1, WARM).ns;
    if rung.body == lightfoot_model::Body::Complex {
        rig.block(operation, 1, WARM_KEYS.min((WARM_NS / ns.max(1.0)) as u64).max(1));
    }
    let times = match operation {
        // The same work: how often the timer fires in it is for the clock to say.
        Operation::Work => base_times,
        _ => times_for(pace, operation, rung.threads, ns),
    };
    let probed = undisturbed(rig, &rung, times, pace.blocks, measured);
    measured.claims.extend(rig.claim(&probe, times));
    rig.detach(probe);
    let after = undisturbed(rig, &rung, base_times, half, measured);

    let unprobed = match (before, after) {
        (Some(before), Some(after)) => Some(before.min(after)),
        (before, after) => before.or(after),
    };
    if let (Some(base_ns), Some(probed_ns)) = (unprobed, probed) {
        measured.visits.push(per_firing(operation, Visit { base_ns, probed_ns }));
    }
}

/// The time of one operation in so many blocks in which all threads ran together; `None` if there was none.
///
/// The fastest block's, since whatever disturbs a block adds to it. Of a timer's blocks the mean of the middle half: one firing more or less is chance,
/// and the fastest ones would be those with one less.
fn undisturbed(
    rig: &mut impl Rig,
    rung: &Rung,
    times: u64,
    blocks: u32,
    measured: &mut Measured,
) -> Option<f64> {
    let operation = rung.site.operation();
    let mut all = Vec::new();
    for _ in 0..blocks * PATIENCE {
        let block = rig.block(operation, rung.threads, times);
        if block.together {
            all.push(block.ns);
        } else {
            measured.apart += 1;
        }
        if all.len() == blocks as usize {
            break;
        }
    }
    measured.blocks += all.len() as u32;
    match operation {
        Operation::Work => stats::midmean(&all),
        Operation::Getppid | Operation::Call(_) => stats::minimum(&all),
    }
}

/// A timer fires once each period of time, not once each operation: what the work takes longer is shared out to the firings.
fn per_firing(operation: Operation, visit: Visit) -> Visit {
    match operation {
        Operation::Getppid | Operation::Call(_) => visit,
        Operation::Work => {
            let firings = visit.probed_ns / TIMER_PERIOD_NS as f64;
            Visit { base_ns: visit.base_ns / firings, probed_ns: TIMER_PERIOD_NS as f64 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rung::{Selection, Site, ladder};
    use lightfoot_model::{Body, Mechanism};

    /// A machine whose prices are known: a probe costs [`price`], blocks are slowed down by other work more often than not, and the clock speed
    /// drifts by a tenth.
    struct Simulation {
        random: Random,
        now_ns: f64,
        attached: Option<Rung>,
        visits: u32,
    }

    fn price(rung: &Rung) -> f64 {
        100.0 + 10.0 * rung.mechanism as u32 as f64 + 3.0 * rung.body as u32 as f64
    }

    impl Rig for Simulation {
        type Probe = Rung;

        fn missing(&mut self, rung: &Rung) -> Option<String> {
            (rung.mechanism == Mechanism::Kprobe).then(|| "not built in".to_string())
        }

        fn attach(&mut self, rung: &Rung) -> Result<Rung, String> {
            assert_eq!(self.attached, None, "one probe at a time");
            if rung.mechanism == Mechanism::Fentry {
                return Err("refused".into());
            }
            (self.attached, self.visits) = (Some(*rung), self.visits + 1);
            self.now_ns += 1e6;
            Ok(*rung)
        }

        fn detach(&mut self, probe: Rung) {
            assert_eq!(self.attached.take(), Some(probe));
        }

        fn block(&mut self, operation: Operation, threads: u32, times: u64) -> Block {
            let mut ns = match operation {
                Operation::Getppid => 120.0,
                Operation::Call(_) => 1.5,
                Operation::Work => 1_000.0,
            };
            match (&self.attached, operation) {
                (Some(rung), Operation::Work) => {
                    ns += ns * price(rung) / (TIMER_PERIOD_NS as f64 - price(rung))
                }
                (Some(rung), _) => ns += price(rung),
                (None, _) => {}
            }
            ns *= 1.0 + 0.05 * (self.now_ns / 1e9).sin();
            let disturbed = self.random.below(3) > 0;
            if disturbed {
                ns *= 1.0 + self.random.unit();
            }
            self.now_ns += ns * times as f64;
            // It is seen when wall time was not this thread's own.
            let alone = operation != Operation::Work || !disturbed;
            Block { ns, together: alone && (threads == 1 || self.random.below(2) == 0) }
        }

        fn claim(&mut self, rung: &Rung, _: u64) -> Option<Claim> {
            Some(Claim { ns_per_run: price(rung) - 40.0, runs: 1.0 })
        }

        fn now(&self) -> Duration {
            Duration::from_nanos(self.now_ns as u64)
        }
    }

    fn simulation() -> Simulation {
        Simulation { random: Random::new(3), now_ns: 0.0, attached: None, visits: 0 }
    }

    #[test]
    fn known_prices_are_found_under_noise() {
        let rungs = ladder(&Selection::default());
        let pace = Pace { rounds: 12, ..Pace::figures(Duration::from_secs(3_600)) };
        let all = climb(&mut simulation(), &rungs, &pace, 1, |_| true);
        assert_eq!(all.len(), rungs.len());
        let mut within = 0;
        let mut measured = 0;
        for one in &all {
            if matches!(one.rung.mechanism, Mechanism::Kprobe | Mechanism::Fentry) {
                assert!(one.missing.is_some() && one.visits.is_empty(), "{one:?}");
                continue;
            }
            assert_eq!(one.visits.len(), 12);
            // The drift of the clock speed alone is more than a timer's interrupts are of the time between them.
            if one.rung.site == Site::Timer {
                continue;
            }
            measured += 1;
            let overheads: Vec<f64> = one.visits.iter().map(Visit::overhead_ns).collect();
            let middle = stats::median(&overheads).unwrap();
            let truth = price(&one.rung);
            assert!((middle / truth - 1.0).abs() < 0.06, "{:?}: {middle}, not {truth}", one.rung);
            let [low, high] = stats::interval95(&overheads).unwrap();
            within += u32::from((low..=high).contains(&truth));
        }
        // The drift of the clock speed is no noise to be averaged out, but is on both sides of the truth.
        assert!(f64::from(within) >= 0.9 * f64::from(measured), "{within} of {measured}");
    }

    #[test]
    fn it_stops_when_the_time_is_up_or_it_is_told_to() {
        let rungs = ladder(&Selection { mechanisms: vec![Mechanism::TpBtf], ..Selection::default() });
        let pace = Pace::figures(Duration::from_nanos(1));
        let all = climb(&mut simulation(), &rungs, &pace, 1, |_| true);
        assert!(all.iter().all(|one| one.visits.len() == 1), "one round in any case");

        let mut left = 5;
        let pace = Pace::figures(Duration::from_secs(3_600));
        let mut rig = simulation();
        climb(&mut rig, &rungs, &pace, 1, |_| {
            left -= 1;
            left >= 0
        });
        assert_eq!((rig.visits, rig.attached), (5, None), "and leaves nothing");
    }

    #[test]
    fn blocks_of_threads_that_did_not_run_together_do_not_count() {
        let selection = Selection {
            mechanisms: vec![Mechanism::TpBtf],
            programs: vec![Body::SharedCounter],
            threads: vec![2],
            quick: false,
        };
        let pace = Pace { rounds: 3, ..Pace::figures(Duration::from_secs(3_600)) };
        let all = climb(&mut simulation(), &ladder(&selection), &pace, 1, |_| true);
        assert_eq!(all[0].visits.len(), 3);
        assert!(all[0].apart > 10 && all[0].blocks > 30, "{:?}", all[0]);
    }

    #[test]
    fn timers_are_shared_out_to_their_firings() {
        let selection = Selection {
            mechanisms: vec![Mechanism::PerfEvent],
            programs: vec![Body::Empty],
            ..Selection::default()
        };
        let rungs = ladder(&selection);
        let pace = Pace { rounds: 9, ..Pace::figures(Duration::from_secs(3_600)) };
        let all = climb(&mut simulation(), &rungs, &pace, 1, |_| true);
        let overheads: Vec<f64> = all[0].visits.iter().map(Visit::overhead_ns).collect();
        let middle = stats::median(&overheads).unwrap();
        // A 400th of the work's time, under noise of the simulation's drift.
        assert!((middle - price(&rungs[0])).abs() < 1_000.0, "{middle}");
        assert!(all[0].visits.iter().all(|visit| visit.probed_ns == TIMER_PERIOD_NS as f64));
    }
}
