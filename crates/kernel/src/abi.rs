//! The mirror of `bpf/lightfoot.h`. Sizes and offsets are asserted on both sides.

use std::mem::{offset_of, size_of};

/// Frames kept of one user stack.
pub const MAX_USER_FRAMES: usize = 1024;
/// Frames kept of one kernel stack.
pub const MAX_KERNEL_FRAMES: usize = 127;

/// `enum lf_target`: which tasks the sampling program wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum TargetKind {
    /// Every task but the idle ones.
    All = 0,
    /// Processes in the map `targets`, and their children.
    Processes = 1,
    /// Tasks below a cgroup.
    Cgroup = 2,
}

/// `struct lf_config`.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct Config {
    /// [`TargetKind`].
    pub target: u32,
    /// 1: kernel stacks are taken.
    pub kernel_frames: u32,
    /// 1: equal stacks are counted in the kernel.
    pub count_in_kernel: u32,
    /// Bytes in the ring that wake user space.
    pub wakeup_bytes: u32,
    /// Inode of user space's own pid namespace; 0 in the initial one.
    pub pidns_inode: u32,
    /// 1: `bpf_loop`; 0: plain loops.
    pub use_loop: u32,
    /// 1: failed walks are sent; 2: all walks.
    pub save_failed: u32,
    /// 1: a sample stands for the time since the last firing on its CPU.
    pub rate_moves: u32,
    /// Off-CPU: start of the kernel's linear mapping.
    pub page_offset: u64,
    /// Tick clock: address of the tick's timer function.
    pub tick_function: u64,
    /// Of a page of memory: 12 on x86-64.
    pub page_shift: u32,
    /// Off-CPU: levels of page tables.
    pub levels: u32,
    /// Off-CPU: bits of a page table entry that are a physical address.
    pub physical_mask: u64,
    /// Tick clock: distance of `__irq_regs` from `runqueues` among each CPU's variables, in bytes.
    pub irq_regs: i64,
    /// Off-CPU: 1: stacks of those who wake sleepers are taken, too.
    pub wakers: u32,
    /// Unused.
    pub reserved: u32,
}

/// `struct lf_counters`: one row per CPU and slot; all in samples unless said. See the header for each field.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Counters {
    pub fired: u64,
    pub recorded: u64,
    pub filtered: u64,
    pub throttled: u64,
    pub lost: u64,
    pub no_scratch: u64,
    pub no_frames: u64,
    pub run_ns: u64,
    pub sent: u64,
    pub sent_bytes: u64,
    pub uncounted: u64,
    pub user_frames: u64,
    pub follow_ns: u64,
    pub unfollowed: u64,
    pub objects_unannounced: u64,
    pub mappings_walked: u64,
    pub rules_searched: u64,
    pub rules_cached: u64,
    pub interpreter_frames: u64,
    pub switches: u64,
    pub switch_ns: u64,
    pub blocked_ns: u64,
    pub ticks_skipped: u64,
    pub last_fired_ns: u64,
    pub truncated: u64,
    pub follow_events: u64,
    pub reserved: [u64; 6],
    /// Samples recorded by what each cost, see [`lightfoot_model::RunTimes`].
    pub run_times: [[u64; 4]; 16],
}

/// `LF_SLOTS`: rows of counters per CPU.
pub const SLOTS: usize = 3;

/// `struct lf_live`: what may change while the programs run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Live {
    /// Weight of a sample in ns, where the rate does not move.
    pub period_ns: u64,
    /// Off-CPU: blocked time in ns that one sample stands for on average.
    pub block_ns: u64,
    /// Depth of user stacks in words, at most [`MAX_USER_FRAMES`].
    pub user_frames_max: u32,
    /// 0: native frames only.
    pub interpreters: u32,
    /// Tick clock: share of ticks kept, of 2^32; 0 keeps all.
    pub tick_keep: u32,
    /// Off-CPU: samples on each CPU until `step` changes; further ones are throttled. 0: no limit.
    pub waits_max: u32,
    /// Changes each time user space looks.
    pub step: u64,
    /// 1: walks that end in a file which is not prepared yet are sent with what they began with ([`Failed`]).
    pub deferred: u32,
    /// A stack with an interpreter's frames wakes user space if that last was 1/`prompt` of its process's age ago; 0: never.
    pub prompt: u32,
}

/// `struct lf_rule`: 16 bytes, laid out as `unwind::Rule::to_bytes` does.
pub const RULE_BYTES: usize = 16;
/// Rows in a bank.
pub const BANK_ROWS: u32 = 65_536;
/// Banks at most.
pub const BANKS: u32 = 256;
/// Device number of the vDSO, whose inode number is 0.
pub const VDSO_DEVICE: u32 = u32::MAX;
/// Interpreters at most.
pub const INTERPRETERS: u32 = 64;

/// `struct lf_page`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Page {
    /// Bank << 16 | row in the bank.
    pub first_row: u32,
    /// Number of rows.
    pub rows: u32,
}

/// `struct lf_object_key`: a file as the kernel knows it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(C)]
pub struct ObjectKey {
    /// Inode number.
    pub inode: u64,
    /// Major number << 20 | minor number.
    pub device: u32,
    /// Of the inode, mixed with the time of its last change.
    pub generation: u32,
}

/// `enum lf_object_state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ObjectState {
    /// User space has been told.
    Announced = 0,
    /// Rows are there.
    Ready = 1,
    /// There are no rows and will be none.
    NoTable = 2,
}

/// `struct lf_object`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Object {
    /// Never used again in a run; 0: none yet.
    pub id: u32,
    /// [`ObjectState`].
    pub state: u32,
    /// Index of its first code page.
    pub first_page: u32,
    /// Code pages.
    pub pages: u32,
    /// Number of its lowest code page.
    pub page_base: u32,
    /// Index of its interpreter + 1; 0: none.
    pub interpreter: u32,
    /// When a stack last passed through it, CLOCK_MONOTONIC in ns.
    pub used_ns: u64,
    /// Stacks that ended in it before it was ready.
    pub missed: u64,
}

/// `struct lf_interpreter`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Interpreter {
    /// `enum lf_language`: 1 Python, 2 Ruby.
    pub kind: u32,
    /// Major << 16 | minor << 8 | patch.
    pub version: u32,
    /// Addresses, relative to where the file would begin in the mapping of the code.
    pub symbols: [u64; 8],
    /// Offsets in the interpreter's structures; which is which is the language's business.
    pub offsets: [u32; 64],
}

/// First word of a ring entry, `enum lf_entry`.
pub mod entry {
    /// A stack: [`super::Record`].
    pub const STACK: u32 = 0;
    /// A file not seen before: [`super::ObjectSeen`].
    pub const OBJECT: u32 = 1;
    /// What a failed walk began with: [`super::Failed`].
    pub const FAILED: u32 = 2;
    /// A name that a language's walker sends.
    pub const NAME: u32 = 3;
}

/// Kind of a user frame, `enum lf_frame`: top byte of its first word.
pub mod frame {
    /// A return address.
    pub const RETURN: u8 = 0;
    /// The address of an instruction.
    pub const EXACT: u8 = 1;
    /// Python: this word has the code object, the next one the position.
    pub const PYTHON: u8 = 2;
    /// Ruby: this word has the iseq or method entry, the next one the position.
    pub const RUBY: u8 = 3;
    /// The interpreter collects garbage.
    pub const GC: u8 = 4;
    /// Bits of the address in a frame's first word.
    pub const ADDRESS: u64 = (1 << 56) - 1;
}

/// What went wrong with the frames of an interpreter, `enum lf_interpreter_outcome`.
pub mod interpreter_outcome {
    /// Nothing.
    pub const FINE: u32 = 0;
    /// The state of this thread was not found.
    pub const NO_THREAD: u32 = 1;
    /// Its memory could not be read.
    pub const UNREADABLE: u32 = 2;
    /// More frames than are kept, or a cycle.
    pub const TOO_MANY: u32 = 3;
    /// Caught in the middle of a change.
    pub const INCONSISTENT: u32 = 4;
    /// It was not known yet when the walk came by.
    pub const NOT_YET: u32 = 5;
    /// As many as there are.
    pub const COUNT: usize = 6;
}

/// `struct lf_segment`: a mapping of code that a stack passes through.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
#[repr(C)]
pub struct Segment {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Offset in the file of the byte at `start`.
    pub file_offset: u64,
    /// Inode number of the file; 0 without a file.
    pub inode: u64,
    /// Device of the file, [`VDSO_DEVICE`] for the vDSO, 0 without a file.
    pub device: u32,
    /// As in [`ObjectKey`].
    pub generation: u32,
    /// [`Object::id`]; 0 if it had none yet.
    pub object: u32,
    /// Unused.
    pub reserved: u32,
}

impl Segment {
    /// Which file it is of.
    pub fn key(&self) -> ObjectKey {
        ObjectKey { inode: self.inode, device: self.device, generation: self.generation }
    }

    /// Those in a list of them; what is left over at its end is ignored.
    pub fn parse_all(bytes: &[u8]) -> Vec<Segment> {
        bytes.chunks_exact(size_of::<Segment>()).filter_map(Segment::parse).collect()
    }

    /// Whether both are of the same file, mapped at the same place: one may be a part of the other.
    pub fn is_same(&self, other: &Segment) -> bool {
        let origin = |s: &Segment| (s.key(), s.start.wrapping_sub(s.file_offset));
        origin(self) == origin(other) && self.start < other.end && other.start < self.end
    }

    fn put(&self, into: &mut Vec<u8>) {
        for long in [self.start, self.end, self.file_offset, self.inode] {
            into.extend(long.to_ne_bytes());
        }
        for word in [self.device, self.generation, self.object, self.reserved] {
            into.extend(word.to_ne_bytes());
        }
    }

    fn parse(bytes: &[u8]) -> Option<Segment> {
        let mut at = Reader(bytes);
        Some(Segment {
            start: at.u64()?,
            end: at.u64()?,
            file_offset: at.u64()?,
            inode: at.u64()?,
            device: at.u32()?,
            generation: at.u32()?,
            object: at.u32()?,
            reserved: at.u32()?,
        })
    }
}

/// Mappings kept of one stack.
pub const MAX_SEGMENTS: usize = 32;
/// Bytes of a file's path.
pub const MAX_PATH_BYTES: usize = 1024;
/// Bytes of stack that go with what a walk began with, at most.
pub const FAILED_STACK_BYTES: usize = 65_536;

/// `struct lf_record`: the header of one stack in the ring; kernel addresses, user words and segments follow.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RecordHeader {
    /// [`entry::STACK`].
    pub entry: u32,
    /// `enum lf_sample_kind`: 0 on the CPU, 1 off the CPU, 2 no sample but who woke a thread.
    pub kind: u32,
    /// CLOCK_MONOTONIC, ns.
    pub time_ns: u64,
    /// Key in `counts`.
    pub stack: u64,
    /// Start of the process, ns since boot.
    pub process_start_ns: u64,
    /// Start of the thread, ns since boot.
    pub thread_start_ns: u64,
    /// Counts the programs that the process has executed.
    pub exec_id: u64,
    /// Time that this record itself stands for, in ns; 0 if it is in `counts`.
    pub weight_ns: u64,
    /// Off the CPU: [`RecordHeader::stack`] of who ended the wait; 0: not known.
    pub waker: u64,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Samples that this record itself stands for; 0 if they are in `counts`.
    pub count: u32,
    /// `enum lf_outcome`.
    pub outcome: u32,
    /// Kernel addresses that follow.
    pub kernel_frames: u32,
    /// User words that follow those.
    pub user_words: u32,
    /// Segments that follow those.
    pub segments: u32,
    /// `enum lf_wait`.
    pub wait: u32,
    /// `enum lf_interpreter_outcome`.
    pub interpreter_outcome: u32,
    /// Unused.
    pub reserved: u32,
    /// Thread name, NUL-terminated.
    pub comm: [u8; 16],
}

/// `struct lf_count`: a value in `counts`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Count {
    /// Samples.
    pub samples: u64,
    /// Time that they stand for, in ns.
    pub weight_ns: u64,
}

const _: () = assert!(size_of::<Config>() == 80);
const _: () = assert!(size_of::<Counters>() == 768 && offset_of!(Counters, user_frames) == 88);
const _: () = assert!(size_of::<Live>() == 48);
const _: () = assert!(size_of::<Object>() == 40 && size_of::<ObjectKey>() == 16 && size_of::<Page>() == 8);
const _: () = assert!(size_of::<Interpreter>() == 328 && size_of::<Segment>() == 48);
const _: () = assert!(size_of::<RecordHeader>() == 120 && offset_of!(RecordHeader, comm) == 104);

/// Takes numbers from the front of bytes.
#[derive(Clone, Copy, Debug)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(head)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.take(8)?.try_into().ok()?))
    }
}

impl Stack {
    /// A copy of what the kernel sent.
    pub fn of(record: &Record<'_>) -> Stack {
        Stack {
            header: record.header,
            kernel: record.kernel.to_vec(),
            user: record.user().collect(),
            segments: record.segments().collect(),
        }
    }

    /// Hands it over as if the kernel had sent it.
    pub fn with_record<T>(&self, take: impl FnOnce(&Record<'_>) -> T) -> T {
        let user: Vec<u8> = self.user.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut segments = Vec::with_capacity(self.segments.len() * size_of::<Segment>());
        self.segments.iter().for_each(|segment| segment.put(&mut segments));
        let header = RecordHeader {
            user_words: self.user.len() as u32,
            segments: self.segments.len() as u32,
            ..self.header
        };
        take(&Record { header, kernel: &self.kernel, user: &user, segments: &segments })
    }
}

/// What a ring entry is; `None` if it is too short to say.
pub fn entry_of(bytes: &[u8]) -> Option<u32> {
    Reader(bytes).u32()
}

/// One stack as the kernel sent it.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Who, when and how it ended.
    pub header: RecordHeader,
    kernel: &'a [u8],
    user: &'a [u8],
    segments: &'a [u8],
}

/// A stack that is kept and may be changed.
#[derive(Clone, Debug)]
pub struct Stack {
    /// Who, when and how it ended.
    pub header: RecordHeader,
    kernel: Vec<u8>,
    /// User words, leaf first; see [`frame`].
    pub user: Vec<u64>,
    /// Mappings that the stack passes through.
    pub segments: Vec<Segment>,
}

impl<'a> Record<'a> {
    /// Reads one ring entry; `None` if it is shorter than it says or says more than the limits allow.
    pub fn parse(bytes: &'a [u8]) -> Option<Record<'a>> {
        let mut at = Reader(bytes);
        let header = RecordHeader {
            entry: at.u32()?,
            kind: at.u32()?,
            time_ns: at.u64()?,
            stack: at.u64()?,
            process_start_ns: at.u64()?,
            thread_start_ns: at.u64()?,
            exec_id: at.u64()?,
            weight_ns: at.u64()?,
            waker: at.u64()?,
            pid: at.u32()?,
            tid: at.u32()?,
            count: at.u32()?,
            outcome: at.u32()?,
            kernel_frames: at.u32()?,
            user_words: at.u32()?,
            segments: at.u32()?,
            wait: at.u32()?,
            interpreter_outcome: at.u32()?,
            reserved: at.u32()?,
            comm: at.take(16)?.try_into().ok()?,
        };
        let (kernel, user) = (header.kernel_frames as usize, header.user_words as usize);
        let segments = header.segments as usize;
        if kernel > MAX_KERNEL_FRAMES || user > MAX_USER_FRAMES || segments > MAX_SEGMENTS {
            return None;
        }
        Some(Record {
            header,
            kernel: at.take(kernel * 8)?,
            user: at.take(user * 8)?,
            segments: at.take(segments * size_of::<Segment>())?,
        })
    }

    /// Kernel addresses, leaf first.
    pub fn kernel(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        words(self.kernel)
    }

    /// User words, leaf first; see [`frame`].
    pub fn user(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        words(self.user)
    }

    /// Mappings that the stack passes through.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = Segment> + use<'a> {
        self.segments
            .chunks_exact(size_of::<Segment>())
            .map(|bytes| Segment::parse(bytes).expect("as many bytes as a segment has"))
    }

    /// Thread name.
    pub fn comm(&self) -> String {
        let end = self.header.comm.iter().position(|&b| b == 0).unwrap_or(self.header.comm.len());
        String::from_utf8_lossy(&self.header.comm[..end]).into_owned()
    }
}

/// `struct lf_object_seen`: a file not seen before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectSeen {
    /// A process that has it mapped.
    pub pid: u32,
    /// Where.
    pub segment: Segment,
    /// Its path from the root of all mounts of that process; empty if it could not be read.
    pub path: Vec<u8>,
}

impl ObjectSeen {
    /// Reads one ring entry; `None` if it is not what it says.
    pub fn parse(bytes: &[u8]) -> Option<ObjectSeen> {
        let mut at = Reader(bytes);
        let (entry, pid, path_bytes, _) = (at.u32()?, at.u32()?, at.u32()? as usize, at.u32()?);
        let segment = Segment::parse(at.take(size_of::<Segment>())?)?;
        if entry != entry::OBJECT || path_bytes > MAX_PATH_BYTES {
            return None;
        }
        // Names come leaf first, each with a NUL behind it.
        let names = at.take(path_bytes)?;
        let mut path = Vec::with_capacity(path_bytes);
        for name in names.split(|&b| b == 0).rev().filter(|name| !name.is_empty()) {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        Some(ObjectSeen { pid, segment, path })
    }
}

/// `struct lf_failed`: what a walk began with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    /// Key of the stack, as in [`RecordHeader::stack`].
    pub stack: u64,
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer.
    pub fp: u64,
    /// By DWARF number, x86-64; arm64: the first is the link register.
    pub registers: [u64; 16],
    /// Memory from the stack pointer upwards.
    pub bytes: Vec<u8>,
}

impl Failed {
    /// Reads one ring entry; `None` if it is not what it says.
    pub fn parse(bytes: &[u8]) -> Option<Failed> {
        let mut at = Reader(bytes);
        let (entry, stack_bytes) = (at.u32()?, at.u32()? as usize);
        let (stack, ip, sp, fp) = (at.u64()?, at.u64()?, at.u64()?, at.u64()?);
        let mut registers = [0; 16];
        for register in &mut registers {
            *register = at.u64()?;
        }
        if entry != entry::FAILED || stack_bytes > FAILED_STACK_BYTES {
            return None;
        }
        Some(Failed { stack, ip, sp, fp, registers, bytes: at.take(stack_bytes)?.to_vec() })
    }
}

fn words(bytes: &[u8]) -> impl ExactSizeIterator<Item = u64> + use<'_> {
    bytes.chunks_exact(8).map(|chunk| u64::from_ne_bytes(chunk.try_into().expect("8 bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(kernel: u32, user: u32, segments: u32, rest: &[u64]) -> Vec<u8> {
        let mut bytes = vec![0u8; size_of::<RecordHeader>()];
        bytes[offset_of!(RecordHeader, kernel_frames)..][..4].copy_from_slice(&kernel.to_ne_bytes());
        bytes[offset_of!(RecordHeader, user_words)..][..4].copy_from_slice(&user.to_ne_bytes());
        bytes[offset_of!(RecordHeader, segments)..][..4].copy_from_slice(&segments.to_ne_bytes());
        bytes[offset_of!(RecordHeader, comm)..][..3].copy_from_slice(b"abc");
        bytes.extend(rest.iter().flat_map(|a| a.to_ne_bytes()));
        bytes
    }

    #[test]
    fn splits_addresses_and_segments() {
        let bytes = bytes(1, 2, 1, &[7, 8, 9, 0x1000, 0x2000, 0x40, 77, 9 << 32 | 3, 5]);
        let record = Record::parse(&bytes).unwrap();
        assert_eq!(record.kernel().collect::<Vec<_>>(), [7]);
        assert_eq!(record.user().collect::<Vec<_>>(), [8, 9]);
        let segment = Segment {
            start: 0x1000,
            end: 0x2000,
            file_offset: 0x40,
            inode: 77,
            device: 3,
            generation: 9,
            object: 5,
            reserved: 0,
        };
        assert_eq!(record.segments().collect::<Vec<_>>(), [segment]);
        assert_eq!(record.comm(), "abc");
    }

    #[test]
    fn a_stack_that_was_kept_is_the_one_that_was_sent() {
        let bytes = bytes(1, 2, 1, &[7, 8, 9, 0x1000, 0x2000, 0x40, 77, 9 << 32 | 3, 5]);
        let record = Record::parse(&bytes).unwrap();
        let mut kept = Stack::of(&record);
        kept.with_record(|again| {
            assert_eq!(again.header, record.header);
            assert_eq!(
                (again.kernel, again.user, again.segments),
                (record.kernel, record.user, record.segments)
            );
        });
        kept.user.push(10);
        kept.with_record(|longer| {
            assert_eq!((longer.header.user_words, longer.user().last()), (3, Some(10)));
        });
    }

    #[test]
    fn refuses_records_that_are_not_what_they_say() {
        assert!(Record::parse(&bytes(1, 2, 0, &[7, 8])).is_none(), "too short");
        assert!(Record::parse(&bytes(0, 0, 1, &[7, 8])).is_none(), "half a segment");
        assert!(Record::parse(&bytes(u32::MAX, 2, 0, &[7; 9])).is_none(), "over the limit");
        assert!(Record::parse(&[0; 79]).is_none(), "no header");
    }

    #[test]
    fn paths_are_turned_around() {
        let mut bytes: Vec<u8> = [entry::OBJECT, 42, 16, 0].iter().flat_map(|n| n.to_ne_bytes()).collect();
        bytes.extend([0; size_of::<Segment>()]);
        bytes.extend(b"libc.so\0lib\0usr\0 and more");
        let seen = ObjectSeen::parse(&bytes).unwrap();
        assert_eq!((seen.pid, seen.path.as_slice()), (42, b"/usr/lib/libc.so".as_slice()));
        bytes[8] = 200;
        assert!(ObjectSeen::parse(&bytes).is_none(), "shorter than it says");
    }
}
