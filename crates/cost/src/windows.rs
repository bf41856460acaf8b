//! What each ten seconds of a run cost: the measure of a budget, kept with or without one.

use crate::governor::Observed;
use crate::{Governor, WINDOW_NS};
use lightfoot_model::{BudgetAccount, Cost, CostWindow};
use std::collections::VecDeque;

const SECOND_NS: u64 = 1_000_000_000;
/// A window begins each second.
const SECONDS: usize = (WINDOW_NS / SECOND_NS) as usize;
/// Windows kept: those of the last hour. Older ones stay in the counts.
const KEPT_MAX: usize = 3_600;

/// What was spent, as a sum since the begin or as a part of it. Interrupts are kept as a count: their price gets better known with each measurement,
/// and holds for the past, too.
#[derive(Clone, Copy, Default, Debug)]
struct Spent {
    interrupts: f64,
    other_ns: f64,
}

impl Spent {
    fn minus(self, before: Spent) -> Spent {
        Spent { interrupts: self.interrupts - before.interrupts, other_ns: self.other_ns - before.other_ns }
    }

    fn ns(self, interrupt_each_ns: u64) -> u64 {
        (self.interrupts * interrupt_each_ns as f64 + self.other_ns) as u64
    }
}

/// Windows of ten seconds, one beginning with each second of the run; those that would reach beyond its end are left out.
#[derive(Clone, Debug)]
pub struct WindowLog {
    budget_ns_per_s: Option<u64>,
    last: (u64, Spent),
    /// Spent so far at the last full seconds; the latest is at `full_seconds`.
    at_second: VecDeque<Spent>,
    full_seconds: u64,
    /// Start in ns, and what was spent in it.
    kept: VecDeque<(u64, Spent)>,
    interrupt_each_ns: u64,
    older: Count,
}

/// Windows that are counted.
#[derive(Clone, Copy, Default, Debug)]
struct Count {
    windows: u64,
    over: u64,
    dearest_ns: u64,
}

impl Count {
    fn add(&mut self, cost_ns: u64, budget_ns_per_s: Option<u64>) {
        self.windows += 1;
        self.dearest_ns = self.dearest_ns.max(cost_ns);
        let over = |ns: u64| cost_ns > ns.saturating_mul(SECONDS as u64);
        self.over += u64::from(budget_ns_per_s.is_some_and(over));
    }
}

impl WindowLog {
    /// A log that begins when sampling does.
    pub fn new(budget_ns_per_s: Option<u64>) -> WindowLog {
        WindowLog {
            budget_ns_per_s,
            last: (0, Spent::default()),
            at_second: VecDeque::from([Spent::default()]),
            full_seconds: 0,
            kept: VecDeque::new(),
            interrupt_each_ns: 0,
            older: Count::default(),
        }
    }

    /// What was spent since the begin, `seen.now_ns` after it. Between two calls it is taken to have grown evenly. Sums that shrink count as
    /// unchanged.
    pub fn observe(&mut self, seen: &Observed) {
        let elapsed_ns = seen.now_ns;
        let (last_ns, last) = self.last;
        if elapsed_ns < last_ns {
            return;
        }
        self.interrupt_each_ns = seen.interrupt_each_ns.unwrap_or(self.interrupt_each_ns);
        let now = Spent {
            interrupts: last.interrupts.max(seen.interrupts as f64),
            other_ns: last.other_ns.max(seen.other_ns() as f64),
        };
        let grown = now.minus(last);
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
            let part = part.clamp(0.0, 1.0);
            let at = Spent {
                interrupts: last.interrupts + grown.interrupts * part,
                other_ns: last.other_ns + grown.other_ns * part,
            };
            self.at_second.push_back(at);
            if self.at_second.len() > SECONDS {
                let before = self.at_second[self.at_second.len() - 1 - SECONDS];
                self.close((self.full_seconds - SECONDS as u64) * SECOND_NS, at.minus(before));
                self.at_second.pop_front();
            }
        }
        self.last = (elapsed_ns, now);
    }

    fn close(&mut self, start_ns: u64, spent: Spent) {
        if self.kept.len() == KEPT_MAX
            && let Some((_, oldest)) = self.kept.pop_front()
        {
            self.older.add(oldest.ns(self.interrupt_each_ns), self.budget_ns_per_s);
        }
        self.kept.push_back((start_ns, spent));
    }

    /// Enters the windows into the ledger, and the account of the budget if there is one. Interrupts at the price that was told last.
    pub fn enter(self, cost: &mut Cost, governor: Option<&Governor>) {
        let window = |&(start_ns, spent): &(u64, Spent)| CostWindow {
            start_ns,
            length_ns: WINDOW_NS,
            cost_ns: spent.ns(self.interrupt_each_ns),
        };
        cost.windows = self.kept.iter().map(window).collect();
        let mut count = self.older;
        cost.windows.iter().for_each(|window| count.add(window.cost_ns, self.budget_ns_per_s));
        cost.budget = self.budget_ns_per_s.map(|ns_per_s| BudgetAccount {
            ns_per_s,
            windows: count.windows,
            windows_over: count.over,
            dearest_window_ns: count.dearest_ns,
            samples_not_taken: governor.map_or(0, Governor::samples_not_taken),
            held_back: governor.map(Governor::held_back).unwrap_or_default(),
            rates: governor.map(|governor| governor.rates().to_vec()).unwrap_or_default(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(now_ns: u64, ns: u64) -> Observed {
        Observed { now_ns, collect_ns: ns, ..Observed::default() }
    }

    #[test]
    fn a_new_price_of_interrupts_holds_for_the_past_too() {
        let mut log = WindowLog::new(Some(2_000));
        for second in 0..=30u64 {
            let each = if second < 25 { 100 } else { 150 };
            log.observe(&Observed {
                now_ns: second * SECOND_NS,
                interrupts: second * 10,
                interrupt_each_ns: Some(each),
                ..Observed::default()
            });
        }
        let cost = entered(log);
        assert!(cost.windows.len() == 21 && cost.windows.iter().all(|w| w.cost_ns == 15_000), "{cost:?}");
        assert_eq!(
            cost.budget.map(|b| (b.windows, b.windows_over)),
            Some((21, 0)),
            "no window holds the change"
        );
    }

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
            log.observe(&spent(step * 100_000_000 + 7, step * 100 + extra));
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
        log.observe(&spent(30 * SECOND_NS, 30_000));
        let cost = entered(log);
        assert_eq!(cost.windows.len(), 21);
        assert!(cost.windows.iter().all(|w| w.cost_ns == 10_000), "{cost:?}");
        assert!(cost.budget.is_none());
    }

    #[test]
    fn the_log_is_bounded_and_bears_anything() {
        let mut log = WindowLog::new(Some(1));
        log.observe(&spent(5 * SECOND_NS, 100));
        log.observe(&spent(4 * SECOND_NS, 50));
        log.observe(&spent(6 * SECOND_NS, 20));
        log.observe(&spent(u64::MAX - 1, u64::MAX));
        log.observe(&spent(u64::MAX, u64::MAX));
        assert!(entered(log).windows.len() <= KEPT_MAX);
        let mut short = WindowLog::new(Some(1));
        short.observe(&spent(9_999_999_999, 1_000));
        assert_eq!(entered(short).windows.len(), 0, "no full window");
    }
}
