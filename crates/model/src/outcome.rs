//! Nothing disappears: what became of each firing of a probe.

use serde::Serialize;
use std::collections::BTreeMap;

/// How a *recorded* stack ended. Its number is stable and part of `bpf/lightfoot.h` (`enum lf_outcome`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum StackOutcome {
    /// The walk reached a root, or the thread has no user part.
    Complete = 0,
    /// The stack is deeper than the frame limit; the frames nearest the root are missing.
    Truncated = 1,
    /// Code that should keep frame pointers (made at run time, or Go), and its frame pointer leads nowhere.
    FramePointerBroken = 2,
    /// The memory that should hold the caller could not be read.
    Unreadable = 3,
    /// The caller's address lies in no executable mapping.
    NotMapped = 4,
    /// The object's unwind table was not ready yet.
    NoRowsYet = 5,
    /// The object says nothing about this code, and its frame pointer leads nowhere.
    NoRows = 6,
    /// The object's unwind information says more than the rules can express.
    UnsupportedRule = 7,
    /// The caller's frame does not lie above the callee's: a damaged stack, or one that turns in circles.
    NotGrowing = 8,
    /// The rule needs a register that could not be recovered.
    RegisterUnknown = 9,
    /// The kernel's tree of mappings could not be read.
    NoMappingFound = 10,
}

impl StackOutcome {
    /// Every outcome in numeric order.
    pub const ALL: [StackOutcome; 11] = [
        StackOutcome::Complete,
        StackOutcome::Truncated,
        StackOutcome::FramePointerBroken,
        StackOutcome::Unreadable,
        StackOutcome::NotMapped,
        StackOutcome::NoRowsYet,
        StackOutcome::NoRows,
        StackOutcome::UnsupportedRule,
        StackOutcome::NotGrowing,
        StackOutcome::RegisterUnknown,
        StackOutcome::NoMappingFound,
    ];

    /// The outcome with this number, if there is one.
    pub fn from_number(number: u32) -> Option<StackOutcome> {
        Self::ALL.get(number as usize).copied()
    }

    /// The name used in every format, for example `not_mapped`.
    pub fn name(self) -> &'static str {
        match self {
            StackOutcome::Complete => "complete",
            StackOutcome::Truncated => "truncated",
            StackOutcome::FramePointerBroken => "frame_pointer_broken",
            StackOutcome::Unreadable => "unreadable",
            StackOutcome::NotMapped => "not_mapped",
            StackOutcome::NoRowsYet => "no_rows_yet",
            StackOutcome::NoRows => "no_rows",
            StackOutcome::UnsupportedRule => "unsupported_rule",
            StackOutcome::NotGrowing => "not_growing",
            StackOutcome::RegisterUnknown => "register_unknown",
            StackOutcome::NoMappingFound => "no_mapping_found",
        }
    }

    /// One sentence for people.
    pub fn sentence(self) -> &'static str {
        match self {
            StackOutcome::Complete => "the walk reached the root of the stack",
            StackOutcome::Truncated => {
                "deeper than the frame limit: the callers nearest the root are missing"
            }
            StackOutcome::FramePointerBroken => {
                "the frame pointer leads nowhere in code that should keep them (made at run time, or Go)"
            }
            StackOutcome::Unreadable => "the memory of the caller's frame could not be read",
            StackOutcome::NotMapped => "the caller's address is in no executable mapping",
            StackOutcome::NoRowsYet => "the unwind table was not ready yet",
            StackOutcome::NoRows => "code without unwind information and without frame pointers",
            StackOutcome::UnsupportedRule => "unwind information that the rules cannot express",
            StackOutcome::NotGrowing => "the caller's frame does not lie above: a damaged stack",
            StackOutcome::RegisterUnknown => "the rule needs a register that could not be recovered",
            StackOutcome::NoMappingFound => "the kernel's tree of mappings could not be read",
        }
    }

    /// What a user can do about it.
    pub fn remedy(self) -> &'static str {
        match self {
            StackOutcome::Complete => "",
            StackOutcome::Truncated => "nothing but a program that recurses less deeply",
            StackOutcome::FramePointerBroken => {
                "Java: -XX:+PreserveFramePointer; elsewhere report it with a file of --save-failed"
            }
            StackOutcome::NoRowsYet => "nothing: only the first stacks through a new file are affected",
            StackOutcome::NoRows => "build it with -fasynchronous-unwind-tables or -fno-omit-frame-pointer",
            StackOutcome::UnsupportedRule | StackOutcome::RegisterUnknown => {
                "report it with a file of --save-failed"
            }
            StackOutcome::Unreadable
            | StackOutcome::NotMapped
            | StackOutcome::NotGrowing
            | StackOutcome::NoMappingFound => "if it is not rare, report it with a file of --save-failed",
        }
    }
}

/// Stacks that did not reach their root, by where they ended and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Debt {
    /// Path of the executable or library of the last frame that was found; `[jit]`, `[vdso]` or empty where there is none.
    pub object: String,
    /// How they ended; never [`StackOutcome::Complete`].
    pub outcome: StackOutcome,
    /// Number of samples.
    pub count: u64,
    /// Time that they stand for, in ns.
    pub weight_ns: u64,
    /// More about why, for example why there is no table; empty if there is no more to say.
    pub detail: String,
    /// What would help, one clause.
    pub remedy: &'static str,
}

/// Why a firing gave no sample at all. Numbers are stable and part of `bpf/lightfoot.h` (`enum lf_failure`);
/// a retired number is kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum FailureReason {
    /// Per-CPU scratch memory was missing. Source: `bpf_map_lookup_elem` on a per-CPU array, which the verifier
    /// demands to be checked but which does not fail in practice.
    NoScratch = 0,
    /// Neither a user nor a kernel frame could be read.
    NoFrames = 1,
    /// The record that the kernel handed over could not be understood (a bug: please report it).
    Malformed = 2,
}

impl FailureReason {
    /// Every reason in numeric order.
    pub const ALL: [FailureReason; 3] =
        [FailureReason::NoScratch, FailureReason::NoFrames, FailureReason::Malformed];

    /// The name used in every format, for example `no_frames`.
    pub fn name(self) -> &'static str {
        match self {
            FailureReason::NoScratch => "no_scratch",
            FailureReason::NoFrames => "no_frames",
            FailureReason::Malformed => "malformed",
        }
    }
}

/// The identity `fired = recorded + filtered + throttled + lost + failed`, in samples.
///
/// Each firing of a probe ends in exactly one of the five. [`Accounting::balanced`] is the identity.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Accounting {
    /// Times the sampling program ran.
    pub fired: u64,
    /// Samples that are in this profile.
    pub recorded: u64,
    /// Not asked for: another process, an idle CPU, before the start or after the end.
    pub filtered: u64,
    /// Held back to keep the budget.
    pub throttled: u64,
    /// No room: a buffer was full.
    pub lost: u64,
    /// No sample could be taken; `reasons` says why.
    pub failed: u64,
    /// `failed`, by [`FailureReason::name`]. Only reasons that occurred.
    pub reasons: BTreeMap<&'static str, u64>,
}

impl Accounting {
    /// Whether each firing is accounted for exactly once.
    pub fn balanced(&self) -> bool {
        self.fired == self.recorded + self.filtered + self.throttled + self.lost + self.failed
            && self.failed == self.reasons.values().sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_numbers_are_their_positions() {
        for (number, outcome) in StackOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, number);
            assert_eq!(StackOutcome::from_number(number as u32), Some(outcome));
        }
        assert_eq!(StackOutcome::from_number(StackOutcome::ALL.len() as u32), None);
        for (number, reason) in FailureReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
        }
    }

    #[test]
    fn identity_needs_every_firing_once() {
        let mut accounting =
            Accounting { fired: 13, recorded: 5, filtered: 4, lost: 1, failed: 3, ..Default::default() };
        assert!(!accounting.balanced(), "failed without reasons");
        accounting.reasons.insert(FailureReason::NoFrames.name(), 3);
        assert!(accounting.balanced());
        accounting.fired += 1;
        assert!(!accounting.balanced());
    }
}
