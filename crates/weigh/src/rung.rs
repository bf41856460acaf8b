//! One step of the ladder: a way to attach, where, what the program does, how many threads run into it.

use lightfoot_model::{Body, Instruction, Mechanism};

/// Where a probe of the ladder stands, and so what is done to run into it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Site {
    /// The kernel function behind the system call getppid.
    SysGetppid,
    /// The tracepoint of the entry to getppid alone.
    SysEnterGetppid,
    /// The tracepoint of the entry to any system call.
    SysEnter,
    /// The first instruction of a user function.
    Function(Instruction),
    /// A timer of the CPU.
    Timer,
}

/// What is repeated in a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Operation {
    /// The system call getppid.
    Getppid,
    /// A call of a function that begins with such an instruction and does nothing.
    Call(Instruction),
    /// Work in registers, for the length of a timer's period.
    Work,
}

/// One step of the ladder.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Rung {
    /// How the probe is attached.
    pub mechanism: Mechanism,
    /// Where.
    pub site: Site,
    /// What its program does.
    pub body: Body,
    /// So many threads run into it at the same time.
    pub threads: u32,
}

/// Programs that every kind of probe is weighed with: those of the published tables.
pub const PROGRAMS: [Body; 3] = [Body::Empty, Body::Simple, Body::Complex];
/// Further programs, weighed on one kind of kernel probe and one of user probe.
const FURTHER: [Body; 6] =
    [Body::Filter, Body::PerCpuCounter, Body::SharedCounter, Body::Event, Body::UserStack, Body::KernelStack];
/// Programs that show what two threads do to each other.
const CONTENDED: [Body; 4] = [Body::Empty, Body::PerCpuCounter, Body::SharedCounter, Body::Simple];
/// Where the further programs run.
const FURTHER_AT: [(Mechanism, Site); 2] =
    [(Mechanism::RawTracepoint, Site::SysEnter), (Mechanism::UprobeMulti, Site::Function(Instruction::Push))];

/// What to weigh; empty lists stand for the usual.
#[derive(Clone, Default, Debug)]
pub struct Selection {
    /// Only these kinds.
    pub mechanisms: Vec<Mechanism>,
    /// These programs, each on every kind.
    pub programs: Vec<Body>,
    /// These numbers of threads, each for every kind.
    pub threads: Vec<u32>,
    /// Fewer rungs.
    pub quick: bool,
}

impl Site {
    /// The name in every format, for example `sys_enter` or `push`.
    pub fn name(self) -> &'static str {
        match self {
            Site::SysGetppid => "sys_getppid",
            Site::SysEnterGetppid => "sys_enter_getppid",
            Site::SysEnter => "sys_enter",
            Site::Function(instruction) => instruction.name(),
            Site::Timer => "cpu_clock",
        }
    }

    /// What is repeated to run into it.
    pub fn operation(self) -> Operation {
        match self {
            Site::SysGetppid | Site::SysEnterGetppid | Site::SysEnter => Operation::Getppid,
            Site::Function(instruction) => Operation::Call(instruction),
            Site::Timer => Operation::Work,
        }
    }

    /// Where a mechanism is weighed, cheapest instruction first.
    pub fn all_of(mechanism: Mechanism) -> Vec<Site> {
        use Mechanism::*;
        match mechanism {
            Kprobe | Kretprobe | KprobeMulti | KretprobeMulti | KprobeSession | Fentry | Fexit => {
                vec![Site::SysGetppid]
            }
            Tracepoint => vec![Site::SysEnterGetppid, Site::SysEnter],
            RawTracepoint | TpBtf => vec![Site::SysEnter],
            Uprobe | UprobeMulti => Instruction::ALL.map(Site::Function).to_vec(),
            // What is at the entry decides here, too, but the classes differ as they do there.
            Uretprobe | UretprobeMulti | UprobeSession => {
                [Instruction::Nop5, Instruction::Push, Instruction::SingleStepped]
                    .map(Site::Function)
                    .to_vec()
            }
            PerfEvent => vec![Site::Timer],
        }
    }
}

impl Operation {
    /// The name in every format.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Getppid => "getppid",
            Operation::Call(_) => "call",
            Operation::Work => "work",
        }
    }
}

/// The rungs of a selection, in the order of reports.
pub fn ladder(selection: &Selection) -> Vec<Rung> {
    let wanted = |m: &Mechanism| selection.mechanisms.is_empty() || selection.mechanisms.contains(m);
    let mut rungs = Vec::new();
    for mechanism in Mechanism::ALL.into_iter().filter(wanted) {
        for site in Site::all_of(mechanism) {
            let further = FURTHER_AT.contains(&(mechanism, site)) && !selection.quick;
            let threads: &[u32] = if selection.threads.is_empty() { &[1] } else { &selection.threads };
            let programs = match (&selection.programs[..], selection.quick, further) {
                ([], true, _) => vec![Body::Empty, Body::Complex],
                ([], false, false) => PROGRAMS.to_vec(),
                ([], false, true) => [&PROGRAMS[..], &FURTHER].concat(),
                (asked, ..) => asked.to_vec(),
            };
            for body in Body::ALL.into_iter().filter(|body| programs.contains(body)) {
                let mut threads = threads.to_vec();
                let usual = selection.threads.is_empty() && selection.programs.is_empty();
                if usual && further && CONTENDED.contains(&body) {
                    threads.push(2);
                }
                // One thread takes timers as well as two: each CPU has its own.
                if mechanism == Mechanism::PerfEvent {
                    threads = vec![1];
                }
                threads.sort_unstable();
                threads.dedup();
                rungs.extend(threads.iter().map(|&threads| Rung { mechanism, site, body, threads }));
            }
        }
    }
    rungs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_every_program() {
        let rungs = ladder(&Selection::default());
        for mechanism in Mechanism::ALL {
            for body in PROGRAMS {
                assert!(
                    rungs.iter().any(|r| r.mechanism == mechanism && r.body == body && r.threads == 1),
                    "{} {}",
                    mechanism.name(),
                    body.name()
                );
            }
        }
        for body in Body::ALL {
            assert!(rungs.iter().any(|r| r.body == body && r.mechanism == Mechanism::UprobeMulti));
        }
        for instruction in Instruction::ALL {
            assert!(rungs.iter().any(|r| r.site == Site::Function(instruction)));
        }
        assert!(rungs.iter().any(|r| r.threads == 2 && r.body == Body::SharedCounter));
        let mut once = rungs.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), rungs.len(), "no rung twice");
    }

    #[test]
    fn a_selection_is_kept() {
        let selection = Selection {
            mechanisms: vec![Mechanism::TpBtf, Mechanism::PerfEvent],
            programs: vec![Body::Event, Body::Empty],
            threads: vec![2, 1, 2],
            quick: false,
        };
        let rungs: Vec<(Mechanism, Body, u32)> =
            ladder(&selection).iter().map(|r| (r.mechanism, r.body, r.threads)).collect();
        assert_eq!(
            rungs,
            [
                (Mechanism::TpBtf, Body::Empty, 1),
                (Mechanism::TpBtf, Body::Empty, 2),
                (Mechanism::TpBtf, Body::Event, 1),
                (Mechanism::TpBtf, Body::Event, 2),
                (Mechanism::PerfEvent, Body::Empty, 1),
                (Mechanism::PerfEvent, Body::Event, 1),
            ]
        );
    }

    #[test]
    fn a_quick_ladder_has_every_kind_and_place() {
        let quick = ladder(&Selection { quick: true, ..Selection::default() });
        let full = ladder(&Selection::default());
        assert!(quick.len() < full.len());
        for rung in full {
            assert!(quick.iter().any(|r| (r.mechanism, r.site) == (rung.mechanism, rung.site)), "{rung:?}");
        }
    }
}
