//! What was spent in the last second.

use std::collections::VecDeque;

/// The window of the promise, in ns.
pub const WINDOW_NS: u64 = 1_000_000_000;
/// Entries nearer to each other than this are one.
const GRAIN_NS: u64 = 2_000_000;

/// Spendings of the last second.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    /// When and how much, oldest first.
    entries: VecDeque<(u64, f64)>,
    sum_ns: f64,
}

impl Window {
    /// Enters `ns` spent until `now_ns`, and forgets what is older than a second.
    pub fn push(&mut self, now_ns: u64, ns: f64) {
        match self.entries.back_mut() {
            Some((at, sum)) if now_ns.saturating_sub(*at) < GRAIN_NS => *sum += ns,
            _ => self.entries.push_back((now_ns, ns)),
        }
        self.sum_ns += ns;
        while let Some(&(at, old)) = self.entries.front() {
            if now_ns.saturating_sub(at) <= WINDOW_NS {
                break;
            }
            self.sum_ns -= old;
            self.entries.pop_front();
        }
    }

    /// Spent in the last second, in ns.
    pub fn sum_ns(&self) -> f64 {
        self.sum_ns.max(0.0)
    }

    /// The highest constant spending from now on, in ns per second, that keeps each window of a second from now on below `limit_ns`. Nearer than
    /// `near_ns` the future is not looked at. Below 0 if more was spent already than fits.
    pub fn pace(&self, now_ns: u64, limit_ns: f64, near_ns: u64) -> f64 {
        // Just before an entry leaves the window, all that came with and after it is still there.
        let mut remaining = self.sum_ns;
        let mut pace = limit_ns / (WINDOW_NS as f64 / 1e9);
        for &(at, ns) in &self.entries {
            let leaves_ns = (at + WINDOW_NS).saturating_sub(now_ns).max(near_ns);
            pace = pace.min((limit_ns - remaining) / (leaves_ns as f64 / 1e9));
            remaining -= ns;
        }
        pace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_window_holds_a_second() {
        let mut window = Window::default();
        for i in 0..300 {
            window.push(i * 10 * MS, 1.0);
        }
        assert!((100.0..=101.0).contains(&window.sum_ns()), "{}", window.sum_ns());
        window.push(10_000 * MS, 5.0);
        assert_eq!(window.sum_ns(), 5.0);
    }

    #[test]
    fn what_may_be_spent_depends_on_what_leaves_when() {
        let mut window = Window::default();
        assert_eq!(window.pace(0, 100.0, MS), 100.0);
        for i in 0..100 {
            window.push(i * 10 * MS, 0.9);
        }
        let steady = window.pace(990 * MS, 100.0, 10 * MS);
        assert!((90.0..=110.0).contains(&steady), "{steady}");
        // A burst just now leaves no room until it leaves.
        window.push(1_000 * MS, 20.0);
        assert!(window.pace(1_000 * MS, 100.0, 10 * MS) < 0.0);
    }
}
