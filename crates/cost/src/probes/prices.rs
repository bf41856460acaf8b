//! The prices of this machine.

use lightfoot_model::{Body, Mechanism, Trigger};
use std::collections::BTreeMap;

/// A price for each firing.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Price {
    /// In ns of CPU time.
    pub ns: f64,
    /// How far it may be off, in ns.
    pub error_ns: f64,
}

impl Price {
    /// Whether it was measured among too much else to be kept for good: it may be off by more than a tenth.
    pub fn is_doubtful(&self) -> bool {
        self.error_ns > self.ns / 10.0
    }
}

/// Where a program runs decides what helpers cost there: a user stack is at hand in a breakpoint, and has to be looked for in a system call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Family {
    /// In a kernel function or tracepoint.
    Kernel,
    /// In a trap of a program.
    User,
    /// In an interrupt.
    Event,
}

impl Family {
    /// Every family.
    pub const ALL: [Family; 3] = [Family::Kernel, Family::User, Family::Event];

    /// Where programs of this mechanism run.
    pub fn of(mechanism: Mechanism) -> Family {
        match mechanism {
            Mechanism::PerfEvent => Family::Event,
            mechanism if mechanism.is_user() => Family::User,
            _ => Family::Kernel,
        }
    }

    /// Its name in the cache.
    pub(super) fn name(self) -> &'static str {
        match self {
            Family::Kernel => "kernel",
            Family::User => "user",
            Family::Event => "event",
        }
    }
}

/// What one firing is expected to cost, in ns.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Predicted {
    /// Until the program runs, and back; and counting what became of the firing.
    pub trigger_ns: f64,
    /// Checks before the body: the budget's gate, whether it is the process that is wanted.
    pub checks_ns: f64,
    /// What the program does.
    pub body_ns: f64,
}

impl Predicted {
    /// All of it.
    pub fn total_ns(&self) -> f64 {
        self.floor_ns() + self.body_ns
    }

    /// What a firing costs whose body is held back: nothing but detaching makes it less.
    pub fn floor_ns(&self) -> f64 {
        self.trigger_ns + self.checks_ns
    }
}

/// What a program does besides its body.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Around {
    /// Nothing: for measuring.
    Bare,
    /// It counts what became of each firing.
    Counted,
}

impl Around {
    /// Both.
    pub(super) const ALL: [Around; 2] = [Around::Bare, Around::Counted];

    /// Its name in the cache.
    pub(super) fn name(self) -> &'static str {
        match self {
            Around::Bare => "bare",
            Around::Counted => "counted",
        }
    }
}

/// Checks that a program makes before its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checks {
    /// The budget's gate.
    pub gate: bool,
    /// Whether it is the process that is wanted. Probes in programs are filtered before they fire.
    pub process: bool,
}

/// Prices measured so far. What is missing has not been asked for yet, or this kernel does not have it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Prices {
    /// A firing with an empty program.
    pub triggers: BTreeMap<(Trigger, Around), Price>,
    /// What the kernel's statistics say of an empty program that counts: their own time, and the counting.
    pub bias: BTreeMap<Trigger, Price>,
    /// What a body adds to an empty program. [`Body::Filter`]: comparing the process.
    pub bodies: BTreeMap<(Family, Body), Price>,
    /// What the budget's gate adds to a program that counts.
    pub gate: BTreeMap<Family, Price>,
    /// What statistics add to each firing while they are on.
    pub statistics: BTreeMap<Family, Price>,
}

impl Prices {
    /// What a firing will cost; `None` if a part of it has no price. An empty body costs nothing beyond its trigger.
    pub fn predict(&self, trigger: Trigger, around: Around, checks: Checks, body: Body) -> Option<Predicted> {
        let family = Family::of(trigger.mechanism);
        let body_ns = |body| match body {
            Body::Empty => Some(0.0),
            body => self.bodies.get(&(family, body)).map(|price| price.ns),
        };
        let mut checks_ns = 0.0;
        if checks.gate {
            checks_ns += self.gate.get(&family)?.ns;
        }
        if checks.process && !trigger.mechanism.is_user() {
            checks_ns += body_ns(Body::Filter)?;
        }
        let trigger_ns = self.triggers.get(&(trigger, around))?.ns;
        Some(Predicted { trigger_ns, checks_ns, body_ns: body_ns(body)? })
    }

    /// Takes over what `newer` knows.
    pub fn merge(&mut self, newer: Prices) {
        self.triggers.extend(newer.triggers);
        self.bias.extend(newer.bias);
        self.bodies.extend(newer.bodies);
        self.gate.extend(newer.gate);
        self.statistics.extend(newer.statistics);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightfoot_model::Instruction;

    fn price(ns: f64) -> Price {
        Price { ns, error_ns: 1.0 }
    }

    #[test]
    fn a_prediction_is_the_sum_of_what_was_measured_and_never_a_guess() {
        let push = Trigger {
            mechanism: Mechanism::UprobeMulti,
            instruction: Some(Instruction::Push),
            syscall: false,
        };
        let total = |prices: &Prices, checks, body| {
            prices.predict(push, Around::Counted, checks, body).map(|p| p.total_ns())
        };
        let none = Checks::default();
        let mut prices = Prices::default();
        assert_eq!(total(&prices, none, Body::Empty), None, "unknown is not zero");
        prices.triggers.insert((push, Around::Bare), price(400.0));
        assert_eq!(total(&prices, none, Body::Empty), None, "counting costs, too");
        prices.triggers.insert((push, Around::Counted), price(500.0));
        assert_eq!(total(&prices, none, Body::Empty), Some(500.0));
        assert_eq!(total(&prices, none, Body::Simple), None);
        prices.bodies.insert((Family::Kernel, Body::Simple), price(35.0));
        assert_eq!(total(&prices, none, Body::Simple), None, "a body costs differently in a trap");
        prices.bodies.insert((Family::User, Body::Simple), price(45.0));
        assert_eq!(total(&prices, none, Body::Simple), Some(545.0));
        let gated = Checks { gate: true, process: true };
        assert_eq!(total(&prices, gated, Body::Simple), None);
        prices.gate.insert(Family::User, price(7.0));
        let predicted = prices.predict(push, Around::Counted, gated, Body::Simple).unwrap();
        assert_eq!((predicted.floor_ns(), predicted.total_ns()), (507.0, 552.0), "the kernel compares");
        let call = Trigger { mechanism: Mechanism::TpBtf, instruction: None, syscall: true };
        prices.triggers.insert((call, Around::Counted), price(80.0));
        let process = Checks { process: true, gate: false };
        assert_eq!(prices.predict(call, Around::Counted, process, Body::Empty), None);
        prices.bodies.insert((Family::Kernel, Body::Filter), price(9.0));
        let predicted = prices.predict(call, Around::Counted, process, Body::Simple).unwrap();
        assert_eq!((predicted.floor_ns(), predicted.total_ns()), (89.0, 124.0));
    }
}
