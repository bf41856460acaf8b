//! What each ten seconds of a run cost: the measure of a budget, kept with or without one.

use crate::{Governor, WINDOW_NS};
use lightfoot_model::{BudgetAccount, Cost, CostWindow};
use std::collections::VecDeque;

const SECOND_NS: u64 = 1_000_000_000;
/// A window begins each second.
const SECONDS: usize = (WINDOW_NS / SECOND_NS) as usize;
/// Windows kept: those of the last hour. Older ones stay in the counts.
const KEPT_MAX: usize = 3_600;

/// Windows of ten seconds, one beginning with each second of the run; those that would reach beyond its end are left out.
#[derive(Clone, Debug)]
pub struct WindowLog {
    budget_ns_per_s: Option<u64>,
    last: (u64, u64),
    /// Cost so far at the last full seconds; the latest is at `full_seconds`.
    at_second: VecDeque<u64>,
    full_seconds: u64,
    kept: VecDeque<CostWindow>,
    windows: u64,
    over: u64,
    dearest_ns: u64,
}

impl WindowLog {
    /// A log that begins when sampling does.
    pub fn new(budget_ns_per_s: Option<u64>) -> WindowLog {
        WindowLog {
            budget_ns_per_s,
            last: (0, 0),
            at_second: VecDeque::from([0]),
            full_seconds: 0,
            kept: VecDeque::new(),
            windows: 0,
            over: 0,
            dearest_ns: 0,
        }
    }

    /// `elapsed_ns` after the begin all costs add up to `cost_ns`. Between two calls the cost is taken to have grown evenly. A sum that
    /// shrinks (a new price for interrupts) counts as unchanged.
    pub fn observe(&mut self, elapsed_ns: u64, cost_ns: u64) {
        let (last_ns, last_cost) = self.last;
        if elapsed_ns < last_ns {
            return;
        }
        let cost_ns = cost_ns.max(last_cost);
        // After a pause of hours only the seconds that a window can still hold need to be gone through one by one.
        let skip_to = (elapsed_ns / SECOND_NS).saturating_sub((KEPT_MAX + 2 * SECONDS) as u64);
        if self.full_seconds < skip_to {
            self.full_seconds = skip_to;
            self.at_second.clear();
        }
        while self.full_seconds < elapsed_ns / SECOND_NS {
            self.full_seconds += 1;
            let part = (self.full_seconds * SECOND_NS).saturating_sub(last_ns) as f64
                / (elapsed_ns - last_ns).max(1) as f64;
            let at = last_cost + ((cost_ns - last_cost) as f64 * part.clamp(0.0, 1.0)) as u64;
            self.at_second.push_back(at);
            if self.at_second.len() > SECONDS {
                let before = self.at_second[self.at_second.len() - 1 - SECONDS];
                self.close((self.full_seconds - SECONDS as u64) * SECOND_NS, at.saturating_sub(before));
                self.at_second.pop_front();
            }
        }
        self.last = (elapsed_ns, cost_ns);
    }

    fn close(&mut self, start_ns: u64, cost_ns: u64) {
        self.windows += 1;
        self.dearest_ns = self.dearest_ns.max(cost_ns);
        if self.budget_ns_per_s.is_some_and(|ns| cost_ns > ns.saturating_mul(SECONDS as u64)) {
            self.over += 1;
        }
        if self.kept.len() == KEPT_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(CostWindow { start_ns, length_ns: WINDOW_NS, cost_ns });
    }

    /// Enters the windows into the ledger, and the account of the budget if there is one.
    pub fn enter(self, cost: &mut Cost, governor: Option<&Governor>) {
        cost.budget = self.budget_ns_per_s.map(|ns_per_s| BudgetAccount {
            ns_per_s,
            windows: self.windows,
            windows_over: self.over,
            dearest_window_ns: self.dearest_ns,
            samples_not_taken: governor.map_or(0, Governor::samples_not_taken),
            held_back: governor.map(Governor::held_back).unwrap_or_default(),
            rates: governor.map(|governor| governor.rates().to_vec()).unwrap_or_default(),
        });
        cost.windows = self.kept.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entered(log: WindowLog) -> Cost {
        let mut cost = Cost::default();
        log.enter(&mut cost, None);
        cost
    }

    #[test]
    fn a_window_begins_each_second_whenever_one_looks() {
        let mut log = WindowLog::new(Some(1_000));
        // 1,000 ns each second, but in the thirteenth 5,000 more.
        for step in 0..=150u64 {
            let extra = if step >= 130 { 5_000 } else { 0 };
            log.observe(step * 100_000_000 + 7, step * 100 + extra);
        }
        let cost = entered(log);
        let starts: Vec<u64> = cost.windows.iter().map(|w| w.start_ns / SECOND_NS).collect();
        assert_eq!(starts, [0, 1, 2, 3, 4, 5]);
        let near = |at: usize, ns: u64| assert!(cost.windows[at].cost_ns.abs_diff(ns) <= 2, "{at}: {cost:?}");
        near(0, 10_000);
        near(2, 10_000);
        near(3, 15_000);
        near(5, 15_000);
        let budget = cost.budget.unwrap();
        assert_eq!(budget.windows, 6);
        assert!(budget.windows_over >= 3 && budget.dearest_window_ns >= 14_998);
    }

    #[test]
    fn looking_rarely_spreads_evenly() {
        let mut log = WindowLog::new(None);
        log.observe(30 * SECOND_NS, 30_000);
        let cost = entered(log);
        assert_eq!(cost.windows.len(), 21);
        assert!(cost.windows.iter().all(|w| w.cost_ns == 10_000), "{cost:?}");
        assert!(cost.budget.is_none());
    }

    #[test]
    fn the_log_is_bounded_and_bears_anything() {
        let mut log = WindowLog::new(Some(1));
        log.observe(5 * SECOND_NS, 100);
        log.observe(4 * SECOND_NS, 50);
        log.observe(6 * SECOND_NS, 20);
        log.observe(u64::MAX - 1, u64::MAX);
        log.observe(u64::MAX, u64::MAX);
        assert!(entered(log).windows.len() <= KEPT_MAX);
        let mut short = WindowLog::new(Some(1));
        short.observe(9_999_999_999, 1_000);
        assert_eq!(entered(short).windows.len(), 0, "no full window");
    }
}
