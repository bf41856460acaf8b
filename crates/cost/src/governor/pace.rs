//! How fast money may be spent from now on, given what was spent.

use super::window::{Moment, Window};
use crate::WINDOW_NS;

const WINDOW_S: f64 = WINDOW_NS as f64 / 1e9;
/// For so long an excess over the slow averages is expected to last, in seconds.
const EXCESS_S: f64 = 1.0;

/// Nearer than this the future is not planned: a cut is spread over so long, or every little excess would stop the sampling.
const NEAR_S: f64 = 0.5;

/// The moments to come, and the budget of a window.
#[derive(Clone, Debug)]
pub struct Pace {
    moments: Vec<Moment>,
    budget_ns: f64,
}

impl Pace {
    /// Share of the budget that is planned to be spent in steady state.
    pub const CEILING: f64 = 0.90;
    /// Share that a window may reach that holds an unforeseen excess, while it is being paid back.
    const TOLERATED: f64 = 0.96;
    /// Share that work may fill up at once: the rest stays for what nobody foresees.
    pub const WORK_CEILING: f64 = 0.80;
    /// The same for the share that is kept for work: below what the rate is cut at, or each piece of work would cut it.
    pub const WORK_SHARE_CEILING: f64 = 0.87;

    /// From `window` at `now_ns`, with interrupts at `each_ns`. `due`: something that will cost `.1` ns at once, `.0` seconds from now.
    pub fn new(window: &Window, now_ns: u64, each_ns: f64, budget_ns: f64, due: (f64, f64)) -> Pace {
        let mut moments = window.moments(now_ns, each_ns);
        for moment in moments.iter_mut().filter(|m| m.after_s >= due.0) {
            moment.old_ns += due.1;
        }
        Pace { moments, budget_ns }
    }

    /// The highest constant spending, in ns per second, that keeps all windows up to ten seconds from now below the ceiling, if `excess` ns per
    /// second come on top for a while. Below 0 if too much was spent already.
    pub fn sustainable(&self, excess: f64) -> f64 {
        let pace = |m: Moment| {
            let ceiling = Self::TOLERATED - (Self::TOLERATED - Self::CEILING) * m.after_s / WINDOW_S;
            (self.budget_ns * ceiling - m.old_ns - excess * m.after_s.min(EXCESS_S)) / m.after_s
        };
        let far = self.moments.iter().copied().filter(|m| m.after_s >= NEAR_S);
        let near_ns = far.clone().map(|m| m.old_ns).fold(0.0, f64::max);
        far.chain([Moment { after_s: NEAR_S, old_ns: near_ns }]).map(pace).fold(f64::INFINITY, f64::min)
    }

    /// What may be spent at once, in ns, if `steady` ns per second are spent besides; not below 0.
    pub fn burst(&self, ceiling: f64, steady: f64, excess: f64) -> f64 {
        let room = |m: &Moment| {
            self.budget_ns * ceiling - m.old_ns - steady * m.after_s - excess * m.after_s.min(EXCESS_S)
        };
        self.moments.iter().map(room).fold(f64::INFINITY, f64::min).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: f64 = 50e6;

    fn after(spendings: impl Iterator<Item = f64>) -> Pace {
        let mut window = Window::default();
        let mut now = 0;
        for ns in spendings {
            now += 100_000_000;
            window.push(now, 0, ns);
        }
        Pace::new(&window, now, 0.0, BUDGET, (20.0, 0.0))
    }

    #[test]
    fn an_empty_window_may_be_filled_once() {
        let pace = after(std::iter::empty());
        assert!((pace.sustainable(0.0) - 4.5e6).abs() < 1.0);
        assert!((pace.burst(0.8, 0.0, 0.0) - 40e6).abs() < 1.0);
        assert!((pace.burst(0.8, 3e6, 0.0) - 10e6).abs() < 1.0);
        assert_eq!(pace.burst(0.8, 5e6, 0.0), 0.0);
    }

    #[test]
    fn steady_spending_at_the_ceiling_goes_on() {
        let pace = after((0..300).map(|_| 0.445e6));
        let sustainable = pace.sustainable(0.0);
        assert!((4.4e6..4.7e6).contains(&sustainable), "{sustainable}");
    }

    #[test]
    fn a_burst_takes_room_until_it_leaves() {
        let early = after((0..50).map(|i| if i == 0 { 20e6 } else { 0.2e6 }));
        let sustainable = early.sustainable(0.0);
        assert!(sustainable < 4.1e6, "{sustainable}");
        let late = after((0..150).map(|i| if i == 0 { 20e6 } else { 0.2e6 }));
        assert!(late.sustainable(0.0) > 4.2e6);
    }

    #[test]
    fn an_excess_is_paid_back_over_half_a_second_not_by_stopping() {
        let little = after((0..100).map(|_| 0.485e6)).sustainable(0.0);
        assert!((2e6..4.5e6).contains(&little), "a window of 97 %: {little}");
        assert!(after((0..100).map(|_| 0.6e6)).sustainable(0.0) < 0.0, "a window of 120 %");
        let calm = after((0..100).map(|_| 0.2e6));
        assert!(calm.sustainable(10e6) < calm.sustainable(0.0), "an excess takes room");
    }
}
