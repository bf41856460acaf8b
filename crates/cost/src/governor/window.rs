//! What was spent in the last ten seconds, and what may be spent from now on so that no ten seconds get too dear.

use crate::WINDOW_NS;
use std::collections::VecDeque;

const WINDOW_S: f64 = WINDOW_NS as f64 / 1e9;
/// Steps closer together than this share a slot, which bounds their number to 200.
const SLOT_NS: u64 = 50_000_000;

/// Interrupts are kept as a count, so that a better price for them holds for the past, too.
#[derive(Clone, Copy, Debug)]
struct Slot {
    end_ns: u64,
    interrupts: u64,
    other_ns: f64,
}

/// The last ten seconds.
#[derive(Clone, Debug, Default)]
pub struct Window {
    slots: VecDeque<Slot>,
}

/// A moment to come: `after_s` from now, when of all that was spent until now `old_ns` is still in the window.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub after_s: f64,
    pub old_ns: f64,
}

impl Window {
    /// Adds what was spent since the last call.
    pub fn push(&mut self, now_ns: u64, interrupts: u64, other_ns: f64) {
        while self.slots.front().is_some_and(|slot| slot.end_ns.saturating_add(WINDOW_NS) <= now_ns) {
            self.slots.pop_front();
        }
        // The last slot takes more until it is SLOT_NS long, measured from the end of the one before it.
        let before_last =
            self.slots.len().checked_sub(2).and_then(|at| self.slots.get(at)).map(|slot| slot.end_ns);
        match (self.slots.back_mut(), before_last) {
            (Some(last), Some(before)) if now_ns.saturating_sub(before) <= SLOT_NS => {
                last.end_ns = now_ns;
                last.interrupts += interrupts;
                last.other_ns += other_ns;
            }
            _ => self.slots.push_back(Slot { end_ns: now_ns, interrupts, other_ns }),
        }
    }

    /// What was spent in the last ten seconds, in ns, with interrupts at `each_ns`. A slot counts until its end has left.
    pub fn spent_ns(&self, each_ns: f64) -> f64 {
        self.slots.iter().map(|slot| slot.cost(each_ns)).sum()
    }

    /// The moments at which a plan must hold: now, and just before each slot leaves. Between two of them the past weighs the same and the
    /// plan costs less, so that these are all. The last one is a whole window away.
    pub fn moments(&self, now_ns: u64, each_ns: f64) -> Vec<Moment> {
        let mut old_ns = self.spent_ns(each_ns);
        let mut moments = vec![Moment { after_s: 0.0, old_ns }, Moment { after_s: WINDOW_S, old_ns: 0.0 }];
        for slot in &self.slots {
            let after_s = slot.end_ns.saturating_add(WINDOW_NS).saturating_sub(now_ns) as f64 / 1e9;
            moments.push(Moment { after_s: after_s.min(WINDOW_S), old_ns });
            old_ns = (old_ns - slot.cost(each_ns)).max(0.0);
        }
        moments
    }
}

impl Slot {
    fn cost(&self, each_ns: f64) -> f64 {
        self.interrupts as f64 * each_ns + self.other_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_is_forgotten() {
        let mut window = Window::default();
        for second in 1..=30u64 {
            window.push(second * 1_000_000_000, 2, 5.0);
        }
        assert_eq!(window.spent_ns(10.0), 250.0, "ten seconds of 25");
        window.push(60_000_000_000, 0, 1.0);
        assert_eq!(window.spent_ns(10.0), 1.0);
    }

    #[test]
    fn the_number_of_slots_is_bounded() {
        let mut window = Window::default();
        for ms in 0..20_000u64 {
            window.push(ms * 1_000_000, 1, 0.0);
        }
        assert!(window.slots.len() <= 201, "{}", window.slots.len());
        let spent = window.spent_ns(1.0);
        assert!((10_000.0..=10_060.0).contains(&spent), "{spent}");
    }

    #[test]
    fn moments_see_a_burst_until_it_leaves() {
        let mut window = Window::default();
        window.push(1_000_000_000, 0, 100.0);
        window.push(2_000_000_000, 0, 7.0);
        let old_at = |s: f64| {
            let found = window.moments(5_000_000_000, 0.0).into_iter().find(|m| (m.after_s - s).abs() < 1e-9);
            found.map(|m| m.old_ns)
        };
        assert_eq!(old_at(0.0), Some(107.0));
        assert_eq!(old_at(6.0), Some(107.0), "just before the burst leaves");
        assert_eq!(old_at(7.0), Some(7.0));
        assert_eq!(old_at(10.0), Some(0.0));
    }
}
