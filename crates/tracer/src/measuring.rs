//! What bodies cost while they run: the kernel's statistics, on for a moment now and then.

use crate::plan::Planned;
use lightfoot_cost::probes::{Account, StatisticsWindow};
use lightfoot_kernel::Result;
use lightfoot_kernel::probes::Statistics;
use std::time::{Duration, Instant};

/// The first time, counted from the start.
const FIRST: Duration = Duration::from_millis(150);
/// How long, and how often.
const ON: Duration = Duration::from_millis(50);
const EACH: Duration = Duration::from_secs(5);
/// With a budget it may take this share of it.
const SHARE: f64 = 0.02;
/// Statistics add about this much to each firing, in ns, where it was not measured.
const EXTRA_NS: f64 = 90.0;

/// Counters of one group when the statistics were switched on.
struct Mark {
    run_ns: u64,
    runs: u64,
    bodies: u64,
    fired: Vec<u64>,
}

/// Statistics by turns on and off.
pub(crate) struct Measuring {
    due: Instant,
    on: Option<(Statistics, Vec<Mark>)>,
    cost_ns: f64,
    /// Why there are none.
    refused: Option<String>,
    last: Option<(Instant, u64)>,
}

impl Measuring {
    pub fn new() -> Measuring {
        Measuring { due: Instant::now() + FIRST, on: None, cost_ns: 0.0, refused: None, last: None }
    }

    /// When it wants its turn.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// What it has cost the probed programs, in ns.
    pub fn cost_ns(&self) -> f64 {
        self.cost_ns
    }

    /// Why there are no statistics.
    pub fn refused(&self) -> Option<String> {
        self.refused.clone()
    }

    /// Switches on or off. `allowed_ns_per_s`: the budget.
    pub fn turn(
        &mut self,
        now: Instant,
        groups: &[Planned],
        account: &mut Account,
        allowed_ns_per_s: Option<u64>,
    ) -> Result<()> {
        if self.on.is_some() {
            self.end(groups, account)?;
            self.due = now + EACH;
            return Ok(());
        }
        self.due = now + EACH;
        let fired: u64 = account.lines().iter().map(|line| line.counts.fired).sum();
        let before = self.last.replace((now, fired));
        if let (Some(allowed), Some((at, then))) = (allowed_ns_per_s, before.or(Some((now - FIRST, 0)))) {
            let per_s = (fired - then.min(fired)) as f64 / (now - at).as_secs_f64().max(1e-3);
            if per_s * ON.as_secs_f64() * EXTRA_NS > SHARE * allowed as f64 {
                return Ok(());
            }
        }
        match Statistics::on() {
            Ok(statistics) => {
                let marks = groups.iter().map(mark).collect::<Result<_>>()?;
                self.on = Some((statistics, marks));
                self.due = now + ON;
            }
            Err(error) => {
                self.refused = Some(error.to_string());
                self.due = now + Duration::from_secs(3600);
            }
        }
        Ok(())
    }

    /// Takes in what was measured, if it was on.
    pub fn end(&mut self, groups: &[Planned], account: &mut Account) -> Result<()> {
        let Some((statistics, marks)) = self.on.take() else { return Ok(()) };
        for (group, before) in groups.iter().zip(marks) {
            let now = mark(group)?;
            let window = StatisticsWindow {
                run_ns: now.run_ns.saturating_sub(before.run_ns),
                runs: now.runs.saturating_sub(before.runs),
                bodies: now.bodies.saturating_sub(before.bodies),
            };
            let fired = now.fired.iter().zip(&before.fired).map(|(now, before)| now.saturating_sub(*before));
            let probes: Vec<(usize, u64)> = group.sites.iter().copied().zip(fired).collect();
            account.learn(&window, &probes);
            self.cost_ns += window.runs as f64 * EXTRA_NS;
        }
        drop(statistics);
        Ok(())
    }
}

fn mark(group: &Planned) -> Result<Mark> {
    let (run_ns, runs) = group.group.statistics()?;
    let counts = group.group.counts()?;
    Ok(Mark {
        run_ns,
        runs,
        bodies: counts.iter().map(|counts| counts.recorded + counts.lost).sum(),
        fired: counts.iter().map(|counts| counts.fired).collect(),
    })
}
