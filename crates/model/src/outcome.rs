//! Nothing disappears: what became of each firing of a probe.

use serde::Serialize;
use std::collections::BTreeMap;

/// How a *recorded* stack ended. Its number is stable and part of `bpf/lightfoot.h` (`enum lf_outcome`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum StackOutcome {
    /// The walk reached a root: a frame pointer of zero, or the thread has no user part.
    Complete = 0,
    /// The stack is deeper than the frame limit; the frames nearest the root are missing.
    Truncated = 1,
    /// The chain of frame pointers broke: a register that is not a frame pointer, or a frame built without one.
    FramePointerBroken = 2,
    /// A frame pointer led to memory that could not be read.
    Unreadable = 3,
}

impl StackOutcome {
    /// Every outcome in numeric order.
    pub const ALL: [StackOutcome; 4] = [
        StackOutcome::Complete,
        StackOutcome::Truncated,
        StackOutcome::FramePointerBroken,
        StackOutcome::Unreadable,
    ];

    /// The outcome with this number, if there is one.
    pub fn from_number(number: u32) -> Option<StackOutcome> {
        Self::ALL.get(number as usize).copied()
    }

    /// The name used in every format, for example `frame_pointer_broken`.
    pub fn name(self) -> &'static str {
        match self {
            StackOutcome::Complete => "complete",
            StackOutcome::Truncated => "truncated",
            StackOutcome::FramePointerBroken => "frame_pointer_broken",
            StackOutcome::Unreadable => "unreadable",
        }
    }

    /// One sentence for people.
    pub fn sentence(self) -> &'static str {
        match self {
            StackOutcome::Complete => "the walk reached the root of the stack",
            StackOutcome::Truncated => {
                "deeper than the frame limit: the callers nearest the root are missing"
            }
            StackOutcome::FramePointerBroken => "code without frame pointers: callers are missing",
            StackOutcome::Unreadable => "a frame pointer led to unreadable memory: callers are missing",
        }
    }
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
