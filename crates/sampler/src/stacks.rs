//! Stacks as they arrive: addresses brought to (object, offset), equal ones counted.
//!
//! The kernel's key of a stack (`lf_record::stack`) covers thread, program, name and addresses, so a key seen before is the same stack and
//! nothing of it needs to be looked at again.

use lightfoot_kernel::abi::Record;
use lightfoot_model::{StackOutcome, Thread, ThreadId};
use lightfoot_process::{CodeAddress, JitId, ObjectId, Processes, Resolved};
use std::collections::HashMap;

/// A place in code, before it has a name. Look-up addresses: a return address already points into its call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Place {
    /// Kernel address.
    Kernel(u64),
    /// Offset in a file.
    File(ObjectId, u64),
    /// Offset in the vDSO's image.
    Vdso(u64),
    /// Address in code made at run time.
    Jit(JitId, u64),
    /// Offset in a page such as `[vsyscall]`.
    Special(&'static str, u64),
    /// An address that belongs to nothing known, and why.
    Unknown(u64, &'static str),
}

/// Index into [`Stacks::places`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PlaceId(pub u32);

/// One distinct stack of one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack {
    pub thread: ThreadId,
    pub outcome: StackOutcome,
    /// Samples counted here so far.
    pub count: u64,
    start: u32,
    kernel: u32,
    user: u32,
}

/// All stacks of a run. Grows with the number of distinct stacks.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    stacks: Vec<Stack>,
    by_key: HashMap<u64, u32>,
    /// Places of all stacks, leaf first, kernel before user.
    frames: Vec<PlaceId>,
    places: Vec<Place>,
    place_index: HashMap<Place, PlaceId>,
    threads: Vec<Thread>,
    thread_index: HashMap<Thread, ThreadId>,
    /// Time of the earliest sample, CLOCK_MONOTONIC in ns.
    pub first_time_ns: Option<u64>,
    /// Samples in records that could not be understood.
    pub malformed: u64,
}

impl Stacks {
    /// Adds what the kernel sent. Events before the record's time must have been applied to `processes`.
    pub fn add(&mut self, record: &Record<'_>, processes: &mut Processes) {
        let header = &record.header;
        self.first_time_ns = Some(self.first_time_ns.map_or(header.time_ns, |t| t.min(header.time_ns)));
        if let Some(&known) = self.by_key.get(&header.stack) {
            self.stacks[known as usize].count += u64::from(header.count);
            return;
        }
        let Some(mut outcome) = StackOutcome::from_number(header.outcome) else {
            self.malformed += u64::from(header.count);
            return;
        };
        let thread = self.thread(record);
        let start = self.frames.len() as u32;
        for (depth, address) in record.kernel().enumerate() {
            self.push(Place::Kernel(CodeAddress::at_depth(depth, address).lookup()));
        }
        let kernel = self.frames.len() as u32 - start;
        for (depth, address) in record.user().enumerate() {
            let place =
                match processes.resolve(header.pid, header.time_ns, CodeAddress::at_depth(depth, address)) {
                    Resolved::File { object, file_offset } => Place::File(object, file_offset),
                    Resolved::Vdso { offset } => Place::Vdso(offset),
                    Resolved::Jit { jit, address } => Place::Jit(jit, address),
                    Resolved::Special { name, offset } => Place::Special(name, offset),
                    // A "return address" that is not in executable memory is none: the chain of frame pointers led astray.
                    Resolved::Unknown { reason: NOT_MAPPED } if depth > 0 => {
                        outcome = StackOutcome::FramePointerBroken;
                        break;
                    }
                    Resolved::Unknown { reason } => Place::Unknown(address, reason),
                };
            self.push(place);
        }
        let user = self.frames.len() as u32 - start - kernel;
        self.by_key.insert(header.stack, self.stacks.len() as u32);
        self.stacks.push(Stack { thread, outcome, count: u64::from(header.count), start, kernel, user });
    }

    /// Adds samples that were counted in the kernel.
    pub fn add_counts(&mut self, counts: &HashMap<u64, u64>) {
        for (key, &count) in counts {
            match self.by_key.get(key) {
                Some(&stack) => self.stacks[stack as usize].count += count,
                None => self.malformed += count,
            }
        }
    }

    /// Every distinct stack.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Stack> {
        self.stacks.iter()
    }

    /// Kernel frames, then user frames of a stack, each leaf first.
    pub fn frames(&self, stack: &Stack) -> (&[PlaceId], &[PlaceId]) {
        let (start, kernel, user) = (stack.start as usize, stack.kernel as usize, stack.user as usize);
        self.frames[start..start + kernel + user].split_at(kernel)
    }

    /// Every distinct place, in the order of [`PlaceId`].
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Every thread, in the order of [`ThreadId`].
    pub fn into_threads(self) -> Vec<Thread> {
        self.threads
    }

    fn push(&mut self, place: Place) {
        let next = PlaceId(self.places.len() as u32);
        let id = *self.place_index.entry(place).or_insert_with(|| {
            self.places.push(place);
            next
        });
        self.frames.push(id);
    }

    fn thread(&mut self, record: &Record<'_>) -> ThreadId {
        let thread = Thread {
            pid: record.header.pid,
            tid: record.header.tid,
            comm: record.comm(),
            start_ns: record.header.thread_start_ns,
        };
        if let Some(&id) = self.thread_index.get(&thread) {
            return id;
        }
        let id = ThreadId(self.threads.len() as u32);
        self.threads.push(thread.clone());
        self.thread_index.insert(thread, id);
        id
    }
}

/// The reason that crate `process` gives for an address outside all executable mappings of a known process.
const NOT_MAPPED: &str = "not mapped";
