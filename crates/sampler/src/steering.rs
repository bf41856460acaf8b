//! The budget in a run: what was spent is told to the governor (crate `cost`), and what it answers is done.

use lightfoot_cost::governor::{Controls, Observed, Setup};
use lightfoot_cost::{Governor, WindowLog};
use lightfoot_model::Cost;
use std::time::Duration;

/// Without a budget: how often the cost of the run is written down.
const LOOK: Duration = Duration::from_millis(500);
/// Without a budget: pause between two measurements of the interrupt's price.
const CALIBRATION_PAUSE: Duration = Duration::from_secs(5);
/// What an entry to a program costs that rides on the scheduler's tick, in ns: 70 to 105 were measured.
pub(crate) const TICK_ENTRY_NS: u64 = 90;

/// CPU time of user space that was spent on purpose, each a sum in ns.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Spent {
    /// For the price of an interrupt.
    pub calibrate_ns: u64,
    /// For unwind tables.
    pub objects_ns: u64,
    /// For names that must be found while the process lives.
    pub names_ns: u64,
}

/// The governor, if there is a budget, and what each ten seconds cost.
#[derive(Debug)]
pub(crate) struct Steering {
    governor: Option<Governor>,
    controls: Option<Controls>,
    log: WindowLog,
    next: Duration,
    pub spent: Spent,
}

impl Steering {
    /// With `setup` there is a budget.
    pub fn new(setup: Option<Setup>) -> Steering {
        let log = WindowLog::new(setup.as_ref().map(|setup| setup.budget_ns_per_s));
        let governor = setup.map(Governor::new);
        let controls = governor.as_ref().map(Governor::controls);
        Steering { governor, controls, log, next: Duration::ZERO, spent: Spent::default() }
    }

    /// What holds now; `None` without a budget: nothing is held back.
    pub fn controls(&self) -> Option<&Controls> {
        self.controls.as_ref()
    }

    /// How long one may sleep, `elapsed` after sampling began.
    pub fn patience(&self, elapsed: Duration) -> Duration {
        match self.governor {
            Some(_) => self.next.saturating_sub(elapsed),
            None => Duration::MAX,
        }
    }

    /// Whether it is time for [`Steering::step`].
    pub fn is_due(&self, elapsed: Duration) -> bool {
        elapsed >= self.next
    }

    /// Pause between two measurements of the interrupt's price.
    pub fn calibration_pause(&self) -> Duration {
        self.controls().map_or(CALIBRATION_PAUSE, |c| Duration::from_nanos(c.calibration_pause_ns))
    }

    /// Takes in what was seen; returns what holds from now on, if there is a budget.
    pub fn step(&mut self, seen: &Observed) -> Option<&Controls> {
        self.log.observe(seen);
        let now = Duration::from_nanos(seen.now_ns);
        match &mut self.governor {
            Some(governor) => {
                let controls = governor.step(seen);
                self.next = now + Duration::from_nanos(controls.next_step_ns);
                self.controls = Some(controls);
            }
            None => self.next = now + LOOK,
        }
        self.controls()
    }

    /// Takes in what was seen when sampling had stopped.
    pub fn last(&mut self, seen: &Observed) {
        self.log.observe(seen);
    }

    /// Samples that the asked rate would have taken and the lowered one did not.
    pub fn samples_not_taken(&self) -> u64 {
        self.governor.as_ref().map_or(0, Governor::samples_not_taken)
    }

    /// Enters windows and budget into the ledger.
    pub fn enter(self, cost: &mut Cost) {
        self.log.enter(cost, self.governor.as_ref());
    }
}
