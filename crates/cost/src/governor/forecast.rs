//! Estimates of what will be, from what was: quick to see more, slower to believe in less.

/// Time constants of the two averages, in seconds.
const FAST_S: f64 = 0.15;
const SLOW_S: f64 = 0.8;

/// A quantity that is measured again and again: a slow average for plans over seconds, and what a fast one is above it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Level {
    fast: f64,
    slow: f64,
    known: bool,
}

impl Level {
    /// A level that starts from a guess, which the first measurement replaces.
    pub fn guess(value: f64) -> Level {
        Level { fast: value, slow: value, known: false }
    }

    /// A level that is known from elsewhere: measurements change it as they would any other.
    pub fn known(value: f64) -> Level {
        Level { fast: value, slow: value, known: true }
    }

    /// Takes in `value`, which held for `s` seconds.
    pub fn update(&mut self, value: f64, s: f64) {
        self.blend(value, 1.0 - (-s / FAST_S).exp(), 1.0 - (-s / SLOW_S).exp());
    }

    /// Takes in a mean of `count` single values seen in `s` seconds: a few values are not worth more for having been waited for, unless
    /// that was long.
    pub fn update_mean(&mut self, value: f64, count: f64, s: f64) {
        let by = |n: f64, tau: f64| 1.0 - (-(count / n).max(s / tau)).exp();
        self.blend(value, by(16.0, 4.0 * FAST_S), by(64.0, SLOW_S));
    }

    fn blend(&mut self, value: f64, fast: f64, slow: f64) {
        if !value.is_finite() {
            return;
        }
        let (fast, slow) = if self.known { (fast, slow) } else { (1.0, 1.0) };
        self.known = true;
        self.fast += (value - self.fast) * fast;
        self.slow += (value - self.slow) * slow;
    }

    /// For plans over seconds.
    pub fn slow(&self) -> f64 {
        self.slow
    }

    /// How much more it is just now; not below 0. Plans count it for a second.
    pub fn excess(&self) -> f64 {
        (self.fast - self.slow).max(0.0)
    }

    /// For quantities that are known exactly, where only the last moments count.
    pub fn fast(&self) -> f64 {
        self.fast
    }

    /// The higher of the two.
    pub fn high(&self) -> f64 {
        self.fast.max(self.slow)
    }
}

/// Lets single outliers through only when the next value is as high: a spike says nothing about the next second.
#[derive(Clone, Copy, Debug)]
pub struct Despike {
    last: Option<f64>,
}

impl Despike {
    /// One that has seen `value`.
    pub fn after(value: f64) -> Despike {
        Despike { last: Some(value) }
    }

    /// The lower of this value and the one before.
    pub fn filter(&mut self, value: f64) -> f64 {
        value.min(self.last.replace(value).unwrap_or(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_seen_at_once_and_forgotten_within_seconds() {
        let mut level = Level::default();
        level.update(10.0, 0.1);
        assert_eq!((level.slow(), level.excess()), (10.0, 0.0), "the first measurement counts in full");
        level.update(1010.0, 0.1);
        assert!(level.high() > 400.0, "{level:?}");
        assert!(level.slow() < 200.0, "{level:?}");
        for _ in 0..40 {
            level.update(10.0, 0.1);
        }
        assert!(level.high() < 20.0, "{level:?}");
    }

    #[test]
    fn a_spike_is_not_a_level() {
        let mut despike = Despike::after(1.0);
        let seen: Vec<f64> = [9.0, 1.0, 90.0, 1.0, 90.0, 80.0].map(|v| despike.filter(v)).into();
        assert_eq!(seen, [1.0, 1.0, 1.0, 1.0, 1.0, 80.0]);
    }

    #[test]
    fn few_values_count_little_until_time_has_passed() {
        let mut level = Level::guess(5.0);
        level.update_mean(10.0, 100.0, 0.1);
        level.update_mean(300.0, 1.0, 0.1);
        assert!(level.slow() < 50.0, "{level:?}");
        level.update_mean(10.0, 1.0, 4.0);
        assert!(level.slow() < 12.0, "{level:?}");
        level.update(f64::NAN, 1.0);
        assert!(level.slow().is_finite());
    }
}
