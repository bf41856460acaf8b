//! The trial of 100 ms before a run: would these probes fire too often?

use super::Predicted;

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

/// Judges probes by what they did in a trial of `trial_ns`: `fired` firings each, whose price was predicted. `limit_ns_per_s` is the budget, or
/// [`WARN_NS_PER_S`].
pub fn judge(trial_ns: u64, probes: &[(u64, Option<Predicted>)], limit_ns_per_s: u64) -> Vec<Verdict> {
    let seconds = trial_ns.max(1) as f64 / 1e9;
    let one = |&(fired, predicted): &(u64, Option<Predicted>)| {
        let firings_per_s = fired as f64 / seconds;
        let ns_per_s = predicted.map(|p| p.total_ns() * firings_per_s);
        let exceeds = fired >= FIRINGS_MIN && ns_per_s.is_some_and(|ns| ns > limit_ns_per_s as f64);
        Verdict { firings_per_s, ns_per_s, exceeds }
    };
    probes.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_seen_and_a_lonely_firing_is_none() {
        let price = Some(Predicted { trigger_ns: 500.0, ..Predicted::default() });
        let verdicts =
            judge(100_000_000, &[(1_000_000, price), (900, price), (1, price), (500, None)], 5_000_000);
        assert_eq!(verdicts[0].firings_per_s, 1e7);
        assert_eq!(verdicts[0].ns_per_s, Some(5e9));
        assert!(verdicts[0].exceeds);
        assert!(!verdicts[1].exceeds, "4.5 ms per second of 5");
        assert_eq!((verdicts[3].ns_per_s, verdicts[3].exceeds), (None, false), "no price, no warning");
        assert!(!judge(1_000, &[(1, price)], 5_000_000)[0].exceeds, "one firing is no rate");
        assert!(!judge(0, &[(0, price)], 1)[0].exceeds);
    }
}
