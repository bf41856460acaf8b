//! Where a probe goes, in the kernel's terms: what `kernel::probes` attaches.

use lightfoot_model::{Instruction, Mechanism, Trigger};
use std::path::PathBuf;

/// One place to attach to, chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// The probe's full name as it was asked for, globs resolved: `uprobe:/bin/x:main`, `tracepoint:syscalls:sys_enter_read`.
    pub name: String,
    /// How it is attached.
    pub mechanism: Mechanism,
    /// Where.
    pub place: Place,
    /// What stands under a user probe.
    pub instruction: Option<Instruction>,
    /// Why this place and this mechanism, for people: one sentence for each choice made (`--explain`).
    pub choices: Vec<String>,
    /// What users should know before attaching, one sentence each.
    pub warnings: Vec<String>,
}

/// Where a probe stands.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// An instruction of a kernel function.
    Kernel {
        /// The function's name in kallsyms.
        function: String,
        /// Bytes from its start.
        offset: u64,
    },
    /// A tracepoint: `category` is the folder in tracefs (`syscalls`), `name` the one below (`sys_enter_read`). Attached through its
    /// perf event, or by `name` alone (raw tracepoints).
    Tracepoint {
        /// Folder in tracefs; empty where only the raw name is known.
        category: String,
        /// Name of the event.
        name: String,
    },
    /// One system call of the raw tracepoint `sys_enter` or `sys_exit`: one program serves all of them by number.
    Syscall {
        /// Number of the system call on this architecture.
        number: u32,
        /// `sys_exit`, not `sys_enter`.
        exit: bool,
    },
    /// An instruction in a file.
    User {
        /// The file, as this process reaches it.
        file: PathBuf,
        /// Offset in the file, in bytes (not the address).
        offset: u64,
        /// File offset of the USDT semaphore, a 16-bit counter that the kernel raises while the probe is attached.
        semaphore: Option<u64>,
    },
    /// A perf event: `type_` and `config` as in perf_event_open(2).
    Perf {
        /// `PERF_TYPE_*`.
        type_: u32,
        /// `PERF_COUNT_*`.
        config: u64,
        /// How often it fires.
        every: Every,
        /// Only on one CPU (`interval` timers), not on each.
        one_cpu: bool,
    },
}

/// How often a perf event fires.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Every {
    /// Each so many events (for clocks: ns).
    Period(u64),
    /// So many times a second.
    Hertz(u64),
}

impl Site {
    /// What makes its program run: the key of its price.
    pub fn trigger(&self) -> Trigger {
        let syscall = match &self.place {
            Place::Syscall { .. } => true,
            Place::Tracepoint { category, name } => {
                category == "syscalls" || matches!(name.as_str(), "sys_enter" | "sys_exit")
            }
            _ => false,
        };
        Trigger { mechanism: self.mechanism, instruction: self.instruction, syscall }
    }
}
