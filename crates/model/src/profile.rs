//! Samples, stacks, frames and threads of one run.

use crate::{Accounting, Cost, Debt, StackOutcome, StringId, StringTable};
use serde::Serialize;
use std::collections::HashMap;

/// Where the code of a frame lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum FrameKind {
    /// Machine code of an executable, a library or the vDSO, with a name.
    Native = 0,
    /// Kernel code.
    Kernel = 1,
    /// A function that the compiler inlined into its caller (no stack frame of its own). Source: DWARF.
    Inlined = 2,
    /// Code made at run time, named by a perf map.
    Jit = 3,
    /// No name was found; [`Frame::note`] says why.
    Unknown = 4,
    /// A Python function.
    Python = 5,
    /// A Ruby method or block.
    Ruby = 6,
}

impl FrameKind {
    /// Every kind in numeric order.
    pub const ALL: [FrameKind; 7] = [
        FrameKind::Native,
        FrameKind::Kernel,
        FrameKind::Inlined,
        FrameKind::Jit,
        FrameKind::Unknown,
        FrameKind::Python,
        FrameKind::Ruby,
    ];

    /// The name used in every format, for example `inlined`.
    pub fn name(self) -> &'static str {
        match self {
            FrameKind::Native => "native",
            FrameKind::Kernel => "kernel",
            FrameKind::Inlined => "inlined",
            FrameKind::Jit => "jit",
            FrameKind::Unknown => "unknown",
            FrameKind::Python => "python",
            FrameKind::Ruby => "ruby",
        }
    }
}

/// One entry of a stack, named.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Frame {
    /// Demangled function name; for [`FrameKind::Unknown`] `[file+0xoffset]`, for example `[libc.so.6+0x29d90]`.
    pub name: StringId,
    /// Source file as the debug information gives it; empty if not known.
    pub file: StringId,
    /// Line in `file`, from 1; 0 if not known. For a native frame the line being executed, for a frame that has inlined
    /// callees the line of the call.
    pub line: u32,
    /// Path of the executable or library, `[kernel]`, `[vdso]` or the perf map; for Python and Ruby the source file, so that functions of
    /// one name in two files are two; empty if not known.
    pub object: StringId,
    /// Offset of the function's address in `object` as the object's symbol table counts (ELF virtual address, not a process
    /// address); kernel address for kernel frames. For [`FrameKind::Unknown`] the address itself. 0 if not known.
    pub address: u64,
    /// Kind of code.
    pub kind: FrameKind,
    /// Why there is no name, as a short phrase (for example `no symbol table`); empty for named frames.
    pub note: StringId,
}

/// Index into a [`FrameTable`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
#[serde(transparent)]
pub struct FrameId(pub u32);

/// Distinct frames. Two frames are the same if all fields are.
#[derive(Debug, Clone, Default)]
pub struct FrameTable {
    frames: Vec<Frame>,
    index: HashMap<Frame, FrameId>,
}

impl FrameTable {
    /// The id of `frame`; adds it if it is new.
    pub fn intern(&mut self, frame: Frame) -> FrameId {
        *self.index.entry(frame).or_insert_with(|| {
            self.frames.push(frame);
            FrameId(self.frames.len() as u32 - 1)
        })
    }

    /// The frame of `id`.
    ///
    /// # Panics
    /// If `id` is of another table.
    pub fn get(&self, id: FrameId) -> &Frame {
        &self.frames[id.0 as usize]
    }

    /// All frames in index order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Frame> {
        self.frames.iter()
    }

    /// Number of distinct frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

/// Index into a [`StackTable`]: the leaf of a stack, and through its parents the whole stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
#[serde(transparent)]
pub struct StackId(pub u32);

/// A tree of stacks: one row is (parent, frame); a parent's index is always smaller than its children's.
#[derive(Debug, Clone, Default)]
pub struct StackTable {
    nodes: Vec<(Option<StackId>, FrameId)>,
    index: HashMap<(Option<StackId>, FrameId), StackId>,
}

impl StackTable {
    /// The stack that is `frame` called by `parent` (`None`: `frame` is a root); adds it if it is new.
    pub fn push(&mut self, parent: Option<StackId>, frame: FrameId) -> StackId {
        *self.index.entry((parent, frame)).or_insert_with(|| {
            self.nodes.push((parent, frame));
            StackId(self.nodes.len() as u32 - 1)
        })
    }

    /// The stack of `frames`, root first; `None` if there are none.
    pub fn intern(&mut self, frames: impl IntoIterator<Item = FrameId>) -> Option<StackId> {
        frames.into_iter().fold(None, |parent, frame| Some(self.push(parent, frame)))
    }

    /// Parent and frame of one row.
    ///
    /// # Panics
    /// If `id` is of another table.
    pub fn get(&self, id: StackId) -> (Option<StackId>, FrameId) {
        self.nodes[id.0 as usize]
    }

    /// Frames from the leaf to the root.
    pub fn leaf_first(&self, id: StackId) -> impl Iterator<Item = FrameId> + '_ {
        let mut next = Some(id);
        std::iter::from_fn(move || {
            let (parent, frame) = self.get(next?);
            next = parent;
            Some(frame)
        })
    }

    /// Frames from the root to the leaf.
    pub fn root_first(&self, id: StackId) -> Vec<FrameId> {
        let mut frames: Vec<FrameId> = self.leaf_first(id).collect();
        frames.reverse();
        frames
    }

    /// All rows in index order: parents before children.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Option<StackId>, FrameId)> + '_ {
        self.nodes.iter().copied()
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// Index into [`Profile::threads`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
#[serde(transparent)]
pub struct ThreadId(pub u32);

/// A thread that was seen. A thread that changes its name or executes another program appears once per name.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize)]
pub struct Thread {
    /// Process id (the kernel's tgid), in lightfoot's own pid namespace where it has one there.
    pub pid: u32,
    /// Thread id (the kernel's pid); equal to `pid` for the main thread.
    pub tid: u32,
    /// Thread name, at most 15 bytes. Source: `task_struct::comm`.
    pub comm: String,
    /// Start of the thread in ns since boot: tells apart threads that had the same tid one after the other.
    pub start_ns: u64,
}

/// Equal stacks of one thread, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Sample {
    /// The stack; `None` if not one frame is known.
    pub stack: Option<StackId>,
    /// The thread.
    pub thread: ThreadId,
    /// How the stack ended.
    pub outcome: StackOutcome,
    /// Number of samples.
    pub count: u64,
    /// Time that they stand for, in ns: CPU time, each sample the period that it was taken with; time off the CPU where `wait` is one.
    pub weight_ns: u64,
    /// Why the thread did not run; [`Wait::None`] if it did.
    #[serde(skip_serializing_if = "Wait::is_none")]
    pub wait: Wait,
}

/// Why a thread did not run. Its number is stable and part of `bpf/lightfoot.h` (`enum lf_wait`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Wait {
    /// It ran: the sample is of CPU time.
    #[default]
    None = 0,
    /// It could have run, but another thread did.
    Runnable = 1,
    /// It waited for a timer, a lock, a socket, a pipe (interruptible).
    Sleep = 2,
    /// It waited for a disk or the like (uninterruptible).
    Uninterruptible = 3,
    /// It was stopped by a signal or a debugger.
    Stopped = 4,
}

impl Wait {
    /// Every reason in numeric order.
    pub const ALL: [Wait; 5] =
        [Wait::None, Wait::Runnable, Wait::Sleep, Wait::Uninterruptible, Wait::Stopped];

    /// The reason with this number, if there is one.
    pub fn from_number(number: u32) -> Option<Wait> {
        Self::ALL.get(number as usize).copied()
    }

    /// Whether the thread ran.
    pub fn is_none(&self) -> bool {
        *self == Wait::None
    }

    /// The name used in every format, for example `runnable`.
    pub fn name(self) -> &'static str {
        match self {
            Wait::None => "none",
            Wait::Runnable => "runnable",
            Wait::Sleep => "sleep",
            Wait::Uninterruptible => "uninterruptible",
            Wait::Stopped => "stopped",
        }
    }

    /// Name of the frame that stands as the leaf of a stack that waits; empty if it ran.
    pub fn frame(self) -> &'static str {
        match self {
            Wait::None => "",
            Wait::Runnable => "[runnable]",
            Wait::Sleep => "[sleeping]",
            Wait::Uninterruptible => "[disk wait]",
            Wait::Stopped => "[stopped]",
        }
    }
}

/// Time off the CPU of all threads of the target within the run, whether samples were taken of it or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct OffCpu {
    /// By [`Wait`], in ns.
    pub blocked_ns: [u64; Wait::ALL.len()],
    /// Waits, by [`Wait`].
    pub waits: [u64; Wait::ALL.len()],
    /// Blocked time that one sample stands for on average, in ns; longer waits are all taken.
    pub block_ns: u64,
}

impl OffCpu {
    /// All of it, in ns.
    pub fn total_ns(&self) -> u64 {
        self.blocked_ns.iter().sum()
    }
}

/// What made the samples fire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// A timer on CPU time (`PERF_COUNT_SW_CPU_CLOCK`): works everywhere.
    CpuClock,
    /// The hardware's cycle counter.
    Cycles,
    /// The scheduler's tick, one of N kept at random: no interrupt of our own.
    Tick,
}

impl Clock {
    /// The name used in every format: `cpu-clock`, `cycles` or `tick`.
    pub fn name(self) -> &'static str {
        match self {
            Clock::CpuClock => "cpu-clock",
            Clock::Cycles => "cycles",
            Clock::Tick => "tick",
        }
    }
}

/// The run and the machine it was made on.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Meta {
    /// Version of lightfoot, for example `0.1.0`.
    pub version: String,
    /// What was profiled, in words, for example `process 1234 (xz)` or `whole machine`.
    pub target: String,
    /// lightfoot's own command line, words separated by blanks.
    pub command_line: String,
    /// Start of sampling, ns since the Unix epoch.
    pub started_unix_ns: u64,
    /// Length of sampling, wall time in ns.
    pub duration_ns: u64,
    /// Asked sampling rate, in Hz per CPU.
    pub rate_hz: u64,
    /// CPU time that one sample stands for, in ns (1e9 / rate).
    pub period_ns: u64,
    /// What fired the samples.
    pub clock: Clock,
    /// CPUs that were online.
    pub cpus: u32,
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    pub machine: String,
    /// Whether kernel frames were asked for and could be named.
    pub kernel_frames: bool,
    /// Remarks for people: what was not possible and what it costs. One sentence each.
    pub notes: Vec<String>,
    /// Time off the CPU, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_cpu: Option<OffCpu>,
}

/// One run, complete: what was seen, what was not, and what it cost.
#[derive(Debug, Clone)]
pub struct Profile {
    /// The run.
    pub meta: Meta,
    /// Texts of frames.
    pub strings: StringTable,
    /// Distinct frames.
    pub frames: FrameTable,
    /// Distinct stacks.
    pub stacks: StackTable,
    /// Threads that were seen.
    pub threads: Vec<Thread>,
    /// Samples, heaviest first.
    pub samples: Vec<Sample>,
    /// What became of each firing.
    pub accounting: Accounting,
    /// Stacks that did not reach their root, most samples first.
    pub debt: Vec<Debt>,
    /// What the run cost.
    pub cost: Cost,
}

impl Profile {
    /// Whether samples of CPU time were asked for: off-CPU runs may go without.
    pub fn has_on_cpu(&self) -> bool {
        self.meta.off_cpu.is_none() || self.samples.iter().any(|s| s.wait.is_none())
    }

    /// Number of recorded samples.
    pub fn total_count(&self) -> u64 {
        self.samples.iter().map(|s| s.count).sum()
    }

    /// CPU time that the samples stand for, in ns.
    pub fn total_weight_ns(&self) -> u64 {
        self.samples.iter().map(|s| s.weight_ns).sum()
    }

    /// The name of a frame.
    pub fn frame_name(&self, id: FrameId) -> &str {
        self.strings.get(self.frames.get(id).name)
    }

    /// Functions by weight: for each distinct (name, object, kind) its self and total weight and count. A function that occurs more
    /// than once in a stack (recursion) counts once in the total. Sorted by self weight, then total weight, then name.
    pub fn functions(&self) -> Vec<FunctionTotals> {
        let mut key_of_frame: Vec<usize> = Vec::with_capacity(self.frames.len());
        let mut keys: HashMap<(StringId, StringId, FrameKind), usize> = HashMap::new();
        let mut totals: Vec<FunctionTotals> = Vec::new();
        for frame in self.frames.iter() {
            let key = *keys.entry((frame.name, frame.object, frame.kind)).or_insert_with(|| {
                totals.push(FunctionTotals {
                    name: frame.name,
                    object: frame.object,
                    kind: frame.kind,
                    self_ns: 0,
                    self_count: 0,
                    total_ns: 0,
                    total_count: 0,
                });
                totals.len() - 1
            });
            key_of_frame.push(key);
        }
        let mut seen_in: Vec<usize> = vec![usize::MAX; totals.len()];
        for (number, sample) in self.samples.iter().enumerate() {
            let Some(stack) = sample.stack else { continue };
            for (depth, frame) in self.stacks.leaf_first(stack).enumerate() {
                let key = key_of_frame[frame.0 as usize];
                if depth == 0 {
                    totals[key].self_ns += sample.weight_ns;
                    totals[key].self_count += sample.count;
                }
                if seen_in[key] != number {
                    seen_in[key] = number;
                    totals[key].total_ns += sample.weight_ns;
                    totals[key].total_count += sample.count;
                }
            }
        }
        totals.retain(|t| t.total_count > 0);
        totals.sort_by(|a, b| {
            (b.self_ns, b.total_ns)
                .cmp(&(a.self_ns, a.total_ns))
                .then_with(|| self.strings.get(a.name).cmp(self.strings.get(b.name)))
        });
        totals
    }
}

/// One row of the top table. See [`Profile::functions`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FunctionTotals {
    /// Function name.
    pub name: StringId,
    /// Executable or library.
    pub object: StringId,
    /// Kind of code.
    pub kind: FrameKind,
    /// CPU time in the function itself (an inlined callee counts as itself), in ns.
    pub self_ns: u64,
    /// Samples whose leaf is the function.
    pub self_count: u64,
    /// CPU time in the function and all that it called, in ns.
    pub total_ns: u64,
    /// Samples with the function anywhere in the stack.
    pub total_count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(strings: &mut StringTable, name: &str) -> Frame {
        Frame {
            name: strings.intern(name),
            file: StringId::EMPTY,
            line: 0,
            object: StringId::EMPTY,
            address: 0,
            kind: FrameKind::Native,
            note: StringId::EMPTY,
        }
    }

    #[test]
    fn equal_stacks_share_rows_and_prefixes() {
        let mut stacks = StackTable::default();
        let (a, b, c) = (FrameId(0), FrameId(1), FrameId(2));
        let abc = stacks.intern([a, b, c]).unwrap();
        let ab = stacks.intern([a, b]).unwrap();
        assert_eq!(stacks.intern([a, b, c]), Some(abc));
        assert_eq!(stacks.len(), 3);
        assert_eq!(stacks.get(abc).0, Some(ab));
        assert_eq!(stacks.root_first(abc), [a, b, c]);
        assert_eq!(stacks.intern([]), None);
        for (row, (parent, _)) in stacks.iter().enumerate() {
            assert!(parent.is_none_or(|p| (p.0 as usize) < row), "parents come first");
        }
    }

    #[test]
    fn recursion_counts_once_in_the_total() {
        let mut profile = Profile {
            meta: crate::tests_support::meta(),
            strings: StringTable::default(),
            frames: FrameTable::default(),
            stacks: StackTable::default(),
            threads: vec![Thread { pid: 1, tid: 1, comm: "t".into(), start_ns: 0 }],
            samples: vec![],
            accounting: Accounting::default(),
            debt: vec![],
            cost: Cost::default(),
        };
        let main = profile.frames.intern(frame(&mut profile.strings, "main"));
        let fib = profile.frames.intern(frame(&mut profile.strings, "fib"));
        let mut add = |frames: &[FrameId], count: u64| {
            let stack = profile.stacks.intern(frames.iter().copied());
            profile.samples.push(Sample {
                stack,
                thread: ThreadId(0),
                outcome: StackOutcome::Complete,
                count,
                weight_ns: count * 10,
                wait: Wait::None,
            });
        };
        add(&[main, fib, fib, fib], 7);
        add(&[main], 3);
        let functions = profile.functions();
        let of = |name: &str| *functions.iter().find(|f| profile.strings.get(f.name) == name).unwrap();
        assert_eq!((of("fib").self_count, of("fib").total_count), (7, 7));
        assert_eq!((of("main").self_count, of("main").total_count), (3, 10));
        assert_eq!(of("main").total_ns, profile.total_weight_ns());
        assert_eq!(profile.strings.get(functions[0].name), "fib", "heaviest self first");
    }
}
