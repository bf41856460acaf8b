//! What a profile is. Pure: opens no file, makes no system call, has no unsafe code.
//!
//! A [`Profile`] is columnar and interned: strings, frames and stacks are stored once and named by index, so that
//! 100,000 distinct stacks cost megabytes, not hundreds of them. Stacks form a tree of parent pointers
//! ([`StackTable`]); a leaf's index stands for the whole stack.
//!
//! Not here: addresses as the kernel gave them (crate `sampler`), names (crate `symbolize`), file formats (crate `export`).
#![forbid(unsafe_code)]

mod cost;
mod intern;
mod outcome;
mod probe;
mod profile;

pub use cost::{BudgetAccount, Cost, CostWindow, HeldBack, PhaseCost, RateChange, RunTimes};
pub use intern::{StringId, StringTable};
pub use outcome::{Accounting, Debt, FailureReason, StackOutcome};
pub use probe::{Body, Instruction, Mechanism, Trigger};
pub use profile::FunctionTotals;
pub use profile::{
    Clock, Frame, FrameId, FrameKind, FrameTable, Meta, OffCpu, Profile, Sample, StackId, StackTable, Thread,
    ThreadId, Wait,
};

#[cfg(test)]
mod tests_support {
    pub fn meta() -> crate::Meta {
        crate::Meta {
            version: "0".into(),
            target: "test".into(),
            command_line: "lightfoot".into(),
            started_unix_ns: 0,
            duration_ns: 1,
            rate_hz: 99,
            period_ns: 10_101_010,
            clock: crate::Clock::CpuClock,
            cpus: 1,
            kernel: "0".into(),
            machine: "x86_64".into(),
            kernel_frames: true,
            notes: vec![],
            off_cpu: None,
        }
    }
}
