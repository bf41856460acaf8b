//! What a user allows lightfoot to cost.

/// Length of the window that a budget is promised for, in ns: in no ten seconds is more spent than the budget gives in ten seconds.
pub const WINDOW_NS: u64 = 10_000_000_000;

/// What a percentage is a percentage of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// One CPU, whatever the machine has: the default, and the unit of all percentages that lightfoot prints.
    OneCpu,
    /// All CPUs of the machine that are online.
    Machine,
}

/// A share of CPU time, interrupts included.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Budget {
    percent: f64,
    base: Base,
}

impl Budget {
    /// `percent` of `base`; `None` unless it is above 0 and at most 100.
    pub fn new(percent: f64, base: Base) -> Option<Budget> {
        (percent > 0.0 && percent <= 100.0).then_some(Budget { percent, base })
    }

    /// CPU time allowed, in ns per second of wall time, on a machine with `cpus` CPUs online. At least 1.
    pub fn ns_per_s(&self, cpus: u32) -> u64 {
        let of = match self.base {
            Base::OneCpu => 1,
            Base::Machine => cpus.max(1),
        };
        ((self.percent * 1e7 * f64::from(of)) as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_of_one_cpu_unless_said() {
        assert_eq!(Budget::new(0.5, Base::OneCpu).map(|b| b.ns_per_s(64)), Some(5_000_000));
        assert_eq!(Budget::new(0.5, Base::Machine).map(|b| b.ns_per_s(64)), Some(320_000_000));
        assert_eq!(Budget::new(1e-9, Base::OneCpu).map(|b| b.ns_per_s(1)), Some(1), "never nothing");
        for wrong in [0.0, -1.0, 100.1, f64::NAN, f64::INFINITY] {
            assert!(Budget::new(wrong, Base::OneCpu).is_none(), "{wrong}");
        }
    }
}
