//! Probes: how they are attached, what stands under them, what they do. The words that sites, kernel, prices and reports share.

use serde::{Deserialize, Serialize};

/// How a probe is attached. The kernel's own names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// A breakpoint or jump at an instruction of the kernel, one perf event each.
    Kprobe,
    /// The return of a kernel function, one perf event each.
    Kretprobe,
    /// Entries of many kernel functions in one link (Linux 5.18).
    KprobeMulti,
    /// Returns of many kernel functions in one link.
    KretprobeMulti,
    /// Entry and return of many kernel functions in one link, with a word shared by both (Linux 6.10).
    KprobeSession,
    /// Entry of a kernel function through a trampoline.
    Fentry,
    /// Return of a kernel function through a trampoline.
    Fexit,
    /// A tracepoint through its perf event.
    Tracepoint,
    /// A tracepoint itself; arguments as the kernel passes them.
    RawTracepoint,
    /// A tracepoint itself; arguments typed by BTF.
    TpBtf,
    /// An instruction of a program or library, one perf event each.
    Uprobe,
    /// The return of a user function, one perf event each.
    Uretprobe,
    /// Many instructions of one file in one link (Linux 6.6). USDT probes are attached so, too.
    UprobeMulti,
    /// Returns of many user functions of one file in one link.
    UretprobeMulti,
    /// Entry and return of many user functions in one link (Linux 6.13).
    UprobeSession,
    /// A perf event on each CPU: software, hardware, profile and interval timers.
    PerfEvent,
}

/// What the kernel does with the instruction under a uprobe; it decides the price.
/// Source: arch/x86/kernel/uprobes.c, Linux 6.18.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Instruction {
    /// A five-byte nop, which Linux 6.18 replaces by a call: no trap.
    Nop5,
    /// Emulated after the trap: other nops.
    Nop,
    /// Emulated after the trap: `push` of a register.
    Push,
    /// Emulated after the trap: direct jumps and calls.
    Jump,
    /// Anything else: executed out of line, with a second trap after it.
    SingleStepped,
}

/// What makes a program run: the part of a probe's price that the kernel's statistics leave out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Trigger {
    /// How the probe is attached.
    pub mechanism: Mechanism,
    /// What stands under a uprobe; `None` for everything else.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub instruction: Option<Instruction>,
    /// Whether it is a tracepoint of system calls: these make the kernel take its slow way into each system call.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub syscall: bool,
}

/// What a program does when it runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// Nothing.
    Empty,
    /// Compares the process and leaves (it is another one).
    Filter,
    /// Counts in a slot of the CPU.
    PerCpuCounter,
    /// Counts in a slot that all CPUs share, atomically.
    SharedCounter,
    /// Counts in a hash map by process.
    Simple,
    /// Counts in a hash map by process, time and command name.
    Complex,
    /// Sends 64 bytes through a ring buffer.
    Event,
    /// Takes the user stack by frame pointers.
    UserStack,
    /// Takes the kernel stack.
    KernelStack,
}

impl Mechanism {
    /// Every mechanism, in the order of reports.
    pub const ALL: [Mechanism; 16] = [
        Mechanism::Kprobe,
        Mechanism::Kretprobe,
        Mechanism::KprobeMulti,
        Mechanism::KretprobeMulti,
        Mechanism::KprobeSession,
        Mechanism::Fentry,
        Mechanism::Fexit,
        Mechanism::Tracepoint,
        Mechanism::RawTracepoint,
        Mechanism::TpBtf,
        Mechanism::Uprobe,
        Mechanism::Uretprobe,
        Mechanism::UprobeMulti,
        Mechanism::UretprobeMulti,
        Mechanism::UprobeSession,
        Mechanism::PerfEvent,
    ];

    /// The name in every format, for example `uprobe_multi`.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Kprobe => "kprobe",
            Mechanism::Kretprobe => "kretprobe",
            Mechanism::KprobeMulti => "kprobe_multi",
            Mechanism::KretprobeMulti => "kretprobe_multi",
            Mechanism::KprobeSession => "kprobe_session",
            Mechanism::Fentry => "fentry",
            Mechanism::Fexit => "fexit",
            Mechanism::Tracepoint => "tracepoint",
            Mechanism::RawTracepoint => "raw_tracepoint",
            Mechanism::TpBtf => "tp_btf",
            Mechanism::Uprobe => "uprobe",
            Mechanism::Uretprobe => "uretprobe",
            Mechanism::UprobeMulti => "uprobe_multi",
            Mechanism::UretprobeMulti => "uretprobe_multi",
            Mechanism::UprobeSession => "uprobe_session",
            Mechanism::PerfEvent => "perf_event",
        }
    }

    /// Whether one link takes many places.
    pub fn is_multi(self) -> bool {
        use Mechanism::*;
        matches!(
            self,
            KprobeMulti | KretprobeMulti | KprobeSession | UprobeMulti | UretprobeMulti | UprobeSession
        )
    }

    /// Whether it stands in a program or library, not in the kernel.
    pub fn is_user(self) -> bool {
        use Mechanism::*;
        matches!(self, Uprobe | Uretprobe | UprobeMulti | UretprobeMulti | UprobeSession)
    }
}

impl Instruction {
    /// Every class, cheapest first.
    pub const ALL: [Instruction; 5] = [
        Instruction::Nop5,
        Instruction::Nop,
        Instruction::Push,
        Instruction::Jump,
        Instruction::SingleStepped,
    ];

    /// The name in every format, for example `nop5`.
    pub fn name(self) -> &'static str {
        match self {
            Instruction::Nop5 => "nop5",
            Instruction::Nop => "nop",
            Instruction::Push => "push",
            Instruction::Jump => "jump",
            Instruction::SingleStepped => "single_stepped",
        }
    }
}

impl Body {
    /// Every body, in the order of reports.
    pub const ALL: [Body; 9] = [
        Body::Empty,
        Body::Filter,
        Body::PerCpuCounter,
        Body::SharedCounter,
        Body::Simple,
        Body::Complex,
        Body::Event,
        Body::UserStack,
        Body::KernelStack,
    ];

    /// The name in every format, for example `per_cpu_counter`.
    pub fn name(self) -> &'static str {
        match self {
            Body::Empty => "empty",
            Body::Filter => "filter",
            Body::PerCpuCounter => "per_cpu_counter",
            Body::SharedCounter => "shared_counter",
            Body::Simple => "simple",
            Body::Complex => "complex",
            Body::Event => "event",
            Body::UserStack => "user_stack",
            Body::KernelStack => "kernel_stack",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_serialised() {
        fn json(value: &impl Serialize) -> Option<String> {
            serde_json::to_string(value).ok()
        }
        for mechanism in Mechanism::ALL {
            assert_eq!(json(&mechanism), Some(format!("\"{}\"", mechanism.name())));
        }
        for instruction in Instruction::ALL {
            assert_eq!(json(&instruction), Some(format!("\"{}\"", instruction.name())));
        }
        for body in Body::ALL {
            assert_eq!(json(&body), Some(format!("\"{}\"", body.name())));
        }
    }
}
