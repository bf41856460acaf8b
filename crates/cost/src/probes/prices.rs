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
    /// Until the program runs, and back.
    pub trigger_ns: f64,
    /// Counting what became of the firing.
    pub counting_ns: f64,
    /// The check of the budget, where there is one.
    pub gate_ns: f64,
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
        self.trigger_ns + self.counting_ns + self.gate_ns
    }
}

/// What a program does besides its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Around {
    /// Nothing: for measuring.
    Bare,
    /// It counts what became of each firing.
    Counted,
    /// It counts, and keeps the budget's gate.
    Gated,
}

/// Prices measured so far. What is missing has not been asked for yet, or this kernel does not have it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Prices {
    /// A firing with a bare empty program.
    pub triggers: BTreeMap<Trigger, Price>,
    /// What a program adds to an empty one.
    pub bodies: BTreeMap<(Family, Body), Price>,
    /// What counting adds to a bare program.
    pub counting: BTreeMap<Family, Price>,
    /// What the budget's gate adds to a program that counts.
    pub gate: BTreeMap<Family, Price>,
    /// What the kernel's statistics say of a bare empty program: their own time.
    pub bias: BTreeMap<Family, Price>,
    /// What statistics add to each firing while they are on.
    pub statistics: BTreeMap<Family, Price>,
}

impl Prices {
    /// What a firing will cost; `None` if the trigger or the body has no price. An empty body costs nothing beyond its trigger.
    pub fn predict(&self, trigger: Trigger, body: Body, around: Around) -> Option<Predicted> {
        let family = Family::of(trigger.mechanism);
        let body_ns = match body {
            Body::Empty => 0.0,
            body => self.bodies.get(&(family, body))?.ns,
        };
        let counting_ns = if around == Around::Bare { 0.0 } else { self.counting.get(&family)?.ns };
        let gate_ns = if around == Around::Gated { self.gate.get(&family)?.ns } else { 0.0 };
        Some(Predicted { trigger_ns: self.triggers.get(&trigger)?.ns, counting_ns, gate_ns, body_ns })
    }

    /// Takes over what `newer` knows.
    pub fn merge(&mut self, newer: Prices) {
        self.triggers.extend(newer.triggers);
        self.bodies.extend(newer.bodies);
        self.counting.extend(newer.counting);
        self.gate.extend(newer.gate);
        self.bias.extend(newer.bias);
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
        let mut prices = Prices::default();
        assert_eq!(prices.predict(push, Body::Empty, Around::Bare), None, "unknown is not zero");
        prices.triggers.insert(push, price(500.0));
        assert_eq!(prices.predict(push, Body::Empty, Around::Bare).map(|p| p.total_ns()), Some(500.0));
        assert_eq!(prices.predict(push, Body::Simple, Around::Bare), None);
        prices.bodies.insert((Family::Kernel, Body::Simple), price(35.0));
        assert_eq!(
            prices.predict(push, Body::Simple, Around::Bare),
            None,
            "a body costs differently in a trap"
        );
        prices.bodies.insert((Family::User, Body::Simple), price(45.0));
        assert_eq!(prices.predict(push, Body::Simple, Around::Bare).map(|p| p.total_ns()), Some(545.0));
        assert_eq!(prices.predict(push, Body::Simple, Around::Counted), None);
        prices.counting.insert(Family::User, price(4.0));
        assert_eq!(prices.predict(push, Body::Simple, Around::Gated), None);
        prices.gate.insert(Family::User, price(7.0));
        let predicted = prices.predict(push, Body::Simple, Around::Gated).unwrap();
        assert_eq!((predicted.floor_ns(), predicted.total_ns()), (511.0, 556.0));
    }
}
