//! The trial of 100 ms before a run: would these probes fire too often?

use super::{Counts, Predicted};

/// Without a budget a warning is given above this: 5 % of one CPU, in ns per second.
pub const WARN_NS_PER_S: u64 = 50_000_000;
/// With fewer firings a rate is no more than a guess: no warning.
const FIRINGS_MIN: u64 = 20;

/// What the trial says of one probe.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Verdict {
    /// Firings per second.
    pub firings_per_s: f64,
    /// What they would cost, in ns per second; `None` if the probe has no price.
    pub ns_per_s: Option<f64>,
    /// Whether this probe alone would exceed the limit.
    pub exceeds: bool,
}

/// Judges a probe by what became of its firings in a trial of `trial_ns`, and by the price that was predicted: firings of other processes run no
/// body, those held back would have run it. `limit_ns_per_s` is the budget, or [`WARN_NS_PER_S`].
pub fn judge(trial_ns: u64, counts: &Counts, predicted: Option<Predicted>, limit_ns_per_s: u64) -> Verdict {
    let seconds = trial_ns.max(1) as f64 / 1e9;
    let (bodies, others) = (counts.bodies() as f64, counts.filtered as f64);
    let passing = if bodies + others > 0.0 { bodies / (bodies + others) } else { 1.0 };
    let firings_per_s = counts.fired as f64 / seconds;
    let ns_per_s = predicted.map(|p| (p.floor_ns() + passing * p.body_ns) * firings_per_s);
    let exceeds = counts.fired >= FIRINGS_MIN && ns_per_s.is_some_and(|ns| ns > limit_ns_per_s as f64);
    Verdict { firings_per_s, ns_per_s, exceeds }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(fired: u64, filtered: u64, throttled: u64) -> Counts {
        let recorded = fired - filtered - throttled;
        Counts { fired, recorded, weighed: recorded, filtered, throttled, lost: 0 }
    }

    #[test]
    fn a_flood_is_seen_and_a_lonely_firing_is_none() {
        let price = Some(Predicted { trigger_ns: 500.0, ..Predicted::default() });
        let judged = |ns, fired, price, limit| judge(ns, &tried(fired, 0, 0), price, limit);
        let flood = judged(100_000_000, 1_000_000, price, 5_000_000);
        assert_eq!((flood.firings_per_s, flood.ns_per_s, flood.exceeds), (1e7, Some(5e9), true));
        assert!(!judged(100_000_000, 900, price, 5_000_000).exceeds, "4.5 ms per second of 5");
        let unpriced = judged(100_000_000, 500, None, 5_000_000);
        assert_eq!((unpriced.ns_per_s, unpriced.exceeds), (None, false), "no price, no warning");
        assert!(!judged(1_000, 1, price, 5_000_000).exceeds, "one firing is no rate");
        assert!(!judged(0, 0, price, 1).exceeds);
    }

    #[test]
    fn bodies_are_foreseen_for_the_process_that_is_wanted() {
        let price = Some(Predicted { trigger_ns: 50.0, checks_ns: 0.0, body_ns: 1_000.0 });
        let second = 1_000_000_000;
        let of = |counts| judge(second, &counts, price, u64::MAX).ns_per_s;
        assert_eq!(of(tried(1_000, 0, 0)), Some(1_050_000.0));
        assert_eq!(of(tried(1_000, 1_000, 0)), Some(50_000.0), "others run no body");
        assert_eq!(
            of(tried(1_000, 100, 800)),
            Some(550_000.0),
            "half of those that were let through are others'"
        );
        assert_eq!(of(tried(1_000, 0, 1_000)), Some(1_050_000.0), "nothing is known of those held back");
    }
}
