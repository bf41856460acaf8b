//! What was held back, how far and for how long: a promise that is kept by doing less must say so.

use lightfoot_model::HeldBack;

/// What the governor can hold back, in the order in which it does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lever {
    /// Process, object and name work waits.
    Work,
    /// Fewer user frames of each stack.
    Depth,
    /// Off-CPU: each sample stands for more blocked time.
    OffCpuInterval,
    /// Off-CPU: the programs on context switches are detached.
    OffCpuPrograms,
    /// A lower rate.
    Rate,
    /// No frames of interpreters.
    Interpreters,
    /// No kernel frames.
    KernelFrames,
    /// The programs on fork, exec and exit are detached.
    Follow,
    /// Memory was given back.
    Memory,
    /// Everything is held back, and it still costs more than the budget.
    Floor,
}

impl Lever {
    /// Every lever, in order.
    pub const ALL: [Lever; 10] = [
        Lever::Work,
        Lever::Depth,
        Lever::OffCpuInterval,
        Lever::OffCpuPrograms,
        Lever::Rate,
        Lever::Interpreters,
        Lever::KernelFrames,
        Lever::Follow,
        Lever::Memory,
        Lever::Floor,
    ];

    /// The name used in every format.
    pub fn name(self) -> &'static str {
        match self {
            Lever::Work => "work",
            Lever::Depth => "depth",
            Lever::OffCpuInterval => "off_cpu_interval",
            Lever::OffCpuPrograms => "off_cpu_programs",
            Lever::Rate => "rate",
            Lever::Interpreters => "interpreters",
            Lever::KernelFrames => "kernel_frames",
            Lever::Follow => "follow",
            Lever::Memory => "memory",
            Lever::Floor => "floor",
        }
    }
}

/// Why something is held back just now: the lever, what was asked for and what is given, in the lever's unit (Hz, frames, ns, bytes; 1 and 0
/// for on and off).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reason {
    /// What is held back.
    pub lever: Lever,
    /// Asked for.
    pub asked: f64,
    /// Given.
    pub given: f64,
}

/// One lever over the run.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    now: Option<(f64, f64)>,
    asked: f64,
    /// The value farthest from what was asked.
    worst: f64,
    total_ns: u64,
    episodes: u64,
}

/// All levers over the run.
#[derive(Clone, Debug, Default)]
pub struct Held {
    accounts: [Account; Lever::ALL.len()],
}

impl Held {
    /// Time passes with everything as it is.
    pub fn pass(&mut self, ns: u64) {
        for account in self.accounts.iter_mut().filter(|account| account.now.is_some()) {
            account.total_ns = account.total_ns.saturating_add(ns);
        }
    }

    /// From now on `given` of `asked`; held back if they differ.
    pub fn set(&mut self, lever: Lever, asked: f64, given: f64) {
        let account = &mut self.accounts[lever as usize];
        if asked == given {
            account.now = None;
            return;
        }
        if account.now.is_none() {
            account.episodes += 1;
        }
        if account.episodes == 1 && account.now.is_none()
            || (given - asked).abs() > (account.worst - account.asked).abs()
        {
            account.worst = given;
        }
        account.asked = asked;
        account.now = Some((asked, given));
    }

    /// What is held back now.
    pub fn reasons(&self) -> impl Iterator<Item = Reason> + '_ {
        let all = Lever::ALL.into_iter().zip(&self.accounts);
        all.filter_map(|(lever, account)| account.now.map(|(asked, given)| Reason { lever, asked, given }))
    }

    /// What was held back in the run, for the report.
    pub fn report(&self) -> Vec<HeldBack> {
        let all = Lever::ALL.into_iter().zip(&self.accounts);
        all.filter(|(_, account)| account.episodes > 0)
            .map(|(lever, account)| HeldBack {
                what: lever.name(),
                sentence: account.sentence(lever),
                total_ns: account.total_ns,
                episodes: account.episodes,
            })
            .collect()
    }
}

impl Account {
    fn sentence(&self, lever: Lever) -> String {
        let seconds = self.total_ns as f64 / 1e9;
        let (asked, worst) = (self.asked, self.worst);
        let what = match lever {
            Lever::Work => "process and object work waited".to_string(),
            Lever::Depth => format!("stacks {asked:.0} -> {worst:.0} frames"),
            Lever::OffCpuInterval => {
                format!("off-CPU: one sample for {:.1} -> {:.1} ms of blocked time", asked / 1e6, worst / 1e6)
            }
            Lever::OffCpuPrograms => "off-CPU not recorded".to_string(),
            Lever::Rate => format!("rate {asked:.0} -> {} Hz", hz(worst)),
            Lever::Interpreters => "no interpreter frames".to_string(),
            Lever::KernelFrames => "no kernel frames".to_string(),
            Lever::Follow => "new processes not followed".to_string(),
            Lever::Memory => "memory given back".to_string(),
            Lever::Floor => "the least that can be done costs more than the budget".to_string(),
        };
        format!("{what} for {seconds:.1} s")
    }
}

fn hz(rate: f64) -> String {
    if rate < 9.95 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_depth_of_each_episode_add_up() {
        let mut held = Held::default();
        held.set(Lever::Rate, 999.0, 999.0);
        held.pass(1_000_000_000);
        held.set(Lever::Rate, 999.0, 700.0);
        held.pass(2_000_000_000);
        held.set(Lever::Rate, 999.0, 420.0);
        held.pass(1_000_000_000);
        assert_eq!(
            held.reasons().collect::<Vec<_>>(),
            [Reason { lever: Lever::Rate, asked: 999.0, given: 420.0 }]
        );
        held.set(Lever::Rate, 999.0, 999.0);
        held.pass(5_000_000_000);
        held.set(Lever::Rate, 999.0, 900.0);
        held.pass(100_000_000);
        let report = held.report();
        assert_eq!(report.len(), 1, "nothing else was held back");
        assert_eq!(report[0].sentence, "rate 999 -> 420 Hz for 3.1 s");
        assert_eq!((report[0].total_ns, report[0].episodes), (3_100_000_000, 2));
    }

    #[test]
    fn levers_are_indexed_by_their_number() {
        for (at, lever) in Lever::ALL.into_iter().enumerate() {
            assert_eq!(lever as usize, at, "{}", lever.name());
        }
    }
}
