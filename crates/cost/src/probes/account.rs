//! The account of a run: counts and prices -> what each probe has cost.

use super::Predicted;

/// What became of the firings of a probe: `fired = recorded + filtered + throttled + lost`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// The program was run.
    pub fired: u64,
    /// The body was run.
    pub recorded: u64,
    /// Sum of the weights (N of 1-in-N) of those recorded.
    pub weighed: u64,
    /// Another process.
    pub filtered: u64,
    /// Left out by the gate.
    pub throttled: u64,
    /// The ring or the map was full.
    pub lost: u64,
}

impl Counts {
    /// Whether each firing ended in exactly one outcome.
    pub fn adds_up(&self) -> bool {
        self.fired == self.recorded + self.filtered + self.throttled + self.lost
    }

    /// What came on top of `before`; a counter that shrank counts as no change.
    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            fired: self.fired.saturating_sub(before.fired),
            recorded: self.recorded.saturating_sub(before.recorded),
            weighed: self.weighed.saturating_sub(before.weighed),
            filtered: self.filtered.saturating_sub(before.filtered),
            throttled: self.throttled.saturating_sub(before.throttled),
            lost: self.lost.saturating_sub(before.lost),
        }
    }

    /// Firings that ran the body, to its end or to a full ring or map.
    pub fn bodies(&self) -> u64 {
        self.recorded + self.lost
    }
}

/// What the kernel's statistics said while they were on, of one group of probes.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct StatisticsWindow {
    /// Run time of the programs, in ns; it includes the bias.
    pub run_ns: u64,
    /// Runs of the programs.
    pub runs: u64,
    /// Of these, those that ran the body ([`Counts::bodies`]).
    pub bodies: u64,
}

/// With so many bodies in the statistics the measured price counts as much as the predicted one.
const BODIES_HALF: f64 = 30.0;

/// The account of one probe.
#[derive(Clone, Debug)]
pub struct Line {
    /// All counts so far.
    pub counts: Counts,
    /// What was predicted of a firing.
    pub predicted: Predicted,
    /// The kernel's statistics of an empty program that counts, in ns.
    bias_ns: f64,
    /// What statistics add to a firing, in ns.
    statistics_ns: f64,
    /// Price of a body as measured while it runs: sum of what bodies took, in ns, and their number.
    measured: (f64, f64),
    /// Firings while statistics were on.
    watched: f64,
    /// Sum of N - 1 over all firings that were kept with probability 1/N: the variance of the estimate.
    variance: f64,
    /// The N that holds.
    one_in: f64,
}

impl Line {
    /// An account without firings.
    pub fn new(predicted: Predicted, bias_ns: f64, statistics_ns: f64) -> Line {
        Line {
            counts: Counts::default(),
            predicted,
            bias_ns,
            statistics_ns,
            measured: (0.0, 0.0),
            watched: 0.0,
            variance: 0.0,
            one_in: 1.0,
        }
    }

    /// Price of a body in ns: what the statistics measured, and the prediction as long as they have seen few of them.
    pub fn body_ns(&self) -> f64 {
        let (sum, bodies) = self.measured;
        (sum + BODIES_HALF * self.predicted.body_ns) / (bodies + BODIES_HALF)
    }

    /// Bodies that the statistics have measured.
    pub fn bodies_measured(&self) -> u64 {
        self.measured.1 as u64
    }

    /// Cost so far, in ns of CPU time: triggers, bodies, and what measuring the bodies added.
    pub fn cost_ns(&self) -> f64 {
        self.price_of(&self.counts) + self.watched * self.statistics_ns
    }

    /// Cost of each firing, in ns, without what measuring the bodies added; `None` without firings.
    pub fn live_ns(&self) -> Option<f64> {
        (self.counts.fired > 0).then(|| self.price_of(&self.counts) / self.counts.fired as f64)
    }

    fn price_of(&self, counts: &Counts) -> f64 {
        counts.fired as f64 * self.predicted.floor_ns() + counts.bodies() as f64 * self.body_ns()
    }

    /// How many firings of the target there were, as far as the gate let us see: the estimate, and its standard error. Each firing was kept with
    /// probability 1/N and then weighs N, which adds N - 1 to the variance.
    pub fn estimate(&self) -> (f64, f64) {
        (self.counts.weighed as f64, self.variance.sqrt())
    }

    fn observe(&mut self, now: Counts) -> f64 {
        let new = now.since(&self.counts);
        let n = match new.recorded {
            0 => self.one_in,
            recorded => new.weighed as f64 / recorded as f64,
        };
        // By all that could have been kept, not by what was: nothing kept is no certainty.
        self.variance += (new.recorded + new.throttled) as f64 * (n - 1.0).max(0.0);
        self.counts = now;
        self.price_of(&new)
    }

    fn learn(&mut self, window: &StatisticsWindow, share: f64) {
        self.watched += window.runs as f64 * share;
        if window.bodies == 0 {
            return;
        }
        let bodies_ns = window.run_ns as f64 - window.runs as f64 * (self.bias_ns + self.predicted.checks_ns);
        self.measured.0 += bodies_ns.max(0.0);
        self.measured.1 += window.bodies as f64;
    }
}

/// The account of all probes of a run.
#[derive(Clone, Debug, Default)]
pub struct Account {
    lines: Vec<Line>,
}

impl Account {
    /// One line for each probe.
    pub fn new(lines: Vec<Line>) -> Account {
        Account { lines }
    }

    /// The lines, in order.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Takes in the counters of a probe as they are now; what it cost since the last time, in ns.
    pub fn observe(&mut self, probe: usize, now: Counts) -> f64 {
        self.lines.get_mut(probe).map_or(0.0, |line| line.observe(now))
    }

    /// From now on the body of a probe runs for one in `n` firings.
    pub fn set_one_in(&mut self, probe: usize, n: u32) {
        if let Some(line) = self.lines.get_mut(probe) {
            line.one_in = f64::from(n.max(1));
        }
    }

    /// Takes in what the statistics measured of a group of probes, with the firings of each of its probes meanwhile.
    pub fn learn(&mut self, window: &StatisticsWindow, probes: &[(usize, u64)]) {
        let fired: u64 = probes.iter().map(|(_, fired)| fired).sum();
        for &(probe, of_it) in probes {
            if let Some(line) = self.lines.get_mut(probe) {
                line.learn(window, of_it as f64 / fired.max(1) as f64);
            }
        }
    }

    /// Cost of all so far, in ns.
    pub fn cost_ns(&self) -> f64 {
        self.lines.iter().map(Line::cost_ns).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        let predicted = Predicted { trigger_ns: 500.0, checks_ns: 10.0, body_ns: 40.0 };
        Line::new(predicted, 50.0, 70.0)
    }

    fn counts(fired: u64, recorded: u64, filtered: u64, throttled: u64, weighed: u64) -> Counts {
        Counts { fired, recorded, weighed, filtered, throttled, lost: 0 }
    }

    #[test]
    fn a_firing_costs_its_trigger_whatever_becomes_of_it() {
        let mut account = Account::new(vec![line()]);
        assert_eq!(account.observe(0, counts(100, 10, 60, 30, 40)), 100.0 * 510.0 + 10.0 * 40.0);
        assert_eq!(account.observe(0, counts(200, 10, 60, 130, 40)), 100.0 * 510.0, "all throttled");
        assert_eq!(account.cost_ns(), 200.0 * 510.0 + 10.0 * 40.0);
        assert_eq!(
            account.observe(0, counts(150, 10, 60, 80, 40)),
            0.0,
            "a counter that shrinks is no refund"
        );
        assert_eq!(account.observe(7, counts(1, 1, 0, 0, 1)), 0.0, "no such probe");
    }

    #[test]
    fn bodies_are_measured_without_bias_and_checks() {
        let mut account = Account::new(vec![line(), line()]);
        account.observe(0, counts(100_000, 40_000, 60_000, 0, 40_000));
        // 100,000 runs of 50 ns bias and 10 ns of checks, 40,000 bodies of 80 ns.
        let run_ns = 100_000 * 60 + 40_000 * 80;
        let window = StatisticsWindow { run_ns, runs: 100_000, bodies: 40_000 };
        account.learn(&window, &[(0, 75_000), (1, 25_000)]);
        assert!((account.lines()[0].body_ns() - 80.0).abs() < 0.1, "{}", account.lines()[0].body_ns());
        assert!((account.lines()[1].body_ns() - 80.0).abs() < 0.1, "the same program");
        let watched = 75_000.0 * 70.0;
        let expected = 100_000.0 * 510.0 + 40_000.0 * account.lines()[0].body_ns();
        assert!(
            (account.lines()[0].cost_ns() - expected - watched).abs() < 1.0,
            "statistics are part of the cost"
        );
        assert!(
            (account.lines()[0].live_ns().unwrap() - expected / 100_000.0).abs() < 0.001,
            "not of the price"
        );
    }

    #[test]
    fn few_measured_bodies_do_not_overrule_the_prediction() {
        let mut account = Account::new(vec![line()]);
        account.learn(&StatisticsWindow { run_ns: 10_060, runs: 1, bodies: 1 }, &[(0, 1)]);
        let body_ns = account.lines()[0].body_ns();
        assert!(body_ns < 400.0, "one body that was interrupted: {body_ns}");
        assert_eq!(account.lines()[0].live_ns(), None, "no firing, no price");
    }

    #[test]
    fn the_estimate_says_how_sure_it_is() {
        let mut account = Account::new(vec![line()]);
        account.observe(0, counts(1_000, 1_000, 0, 0, 1_000));
        assert_eq!(account.lines()[0].estimate(), (1_000.0, 0.0), "all were seen");
        // 10,000 more, one in 100 of them.
        account.observe(0, counts(11_000, 1_100, 0, 9_900, 11_000));
        let (estimate, error) = account.lines()[0].estimate();
        assert_eq!(estimate, 11_000.0);
        assert!((error - (100.0f64 * 100.0 * 99.0).sqrt()).abs() < 1e-6, "{error}");
        assert!(account.lines()[0].counts.adds_up());
    }
}
