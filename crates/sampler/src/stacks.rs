//! Stacks as they arrive: addresses brought to (object, offset), equal ones counted.
//!
//! The kernel's key of a stack (`lf_record::stack`) covers thread, program, name and addresses, so a key seen before is the same stack and
//! nothing of it needs to be looked at again.

use crate::interpreted::{Interpreted, Interpreters, Kind};
use crate::library::Library;
use lightfoot_interpreters::{python, ruby};
use lightfoot_kernel::abi::{Count, ObjectKey, Record, RecordHeader, Segment, VDSO_DEVICE, frame};
use lightfoot_model::{StackOutcome, Thread, ThreadId, Wait};
use lightfoot_process::{
    Code, CodeAddress, Content, Device, FileKey, JitId, ObjectId, Process, Processes, Resolved,
};
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
    /// Index into [`Stacks::interpreted`].
    Interpreted(u32),
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
    /// Time that they stand for, in ns.
    pub weight_ns: u64,
    /// Why the thread did not run, if it did not.
    pub wait: Wait,
    /// Key of the stack that ended the wait; 0: not known, or not asked for.
    waker: u64,
    /// What went wrong with an interpreter's frames, see [`lightfoot_kernel::abi::interpreter_outcome`].
    pub interpreter_outcome: u32,
    /// What the outermost frame lies in, where it is not complete and that is known.
    pub ended_in: Option<ObjectKey>,
    start: u32,
    kernel: u32,
    user: u32,
}

/// What stacks are told apart by of which only the innermost frame is kept.
type Leaf = (ThreadId, Wait, Option<PlaceId>);

/// All stacks of a run. Grows with the number of distinct stacks, until [`Stacks::keep_leaves`].
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    stacks: Vec<Stack>,
    by_key: HashMap<u64, u32>,
    /// Places of all stacks, leaf first, kernel before user.
    frames: Vec<PlaceId>,
    places: Vec<Place>,
    place_index: HashMap<Place, PlaceId>,
    interpreted: Vec<Interpreted>,
    interpreted_index: HashMap<Interpreted, u32>,
    threads: Vec<Thread>,
    thread_index: HashMap<Thread, ThreadId>,
    /// Where new stacks have only their innermost frame: by thread, wait and that frame.
    leaves: Option<HashMap<Leaf, u32>>,
    /// Samples whose stacks were cut so.
    pub shortened: u64,
    /// Time of the earliest sample, CLOCK_MONOTONIC in ns.
    pub first_time_ns: Option<u64>,
    /// Samples in records that could not be understood.
    pub malformed: u64,
}

impl Stacks {
    /// Has no memory for more: stacks that are new from now on keep their innermost frame only, and count as truncated.
    pub fn keep_leaves(&mut self) {
        self.leaves.get_or_insert_default();
    }

    /// Adds what the kernel sent, while the process may still be there.
    pub fn add(
        &mut self,
        record: &Record<'_>,
        processes: &mut Processes,
        interpreters: &mut Interpreters,
        library: &Library,
    ) {
        let header = &record.header;
        self.first_time_ns = Some(self.first_time_ns.map_or(header.time_ns, |t| t.min(header.time_ns)));
        if let Some(&known) = self.by_key.get(&header.stack) {
            self.count(known, header);
            return;
        }
        let (Some(outcome), Some(wait)) =
            (StackOutcome::from_number(header.outcome), Wait::from_number(header.wait))
        else {
            self.malformed += u64::from(header.count);
            return;
        };
        let thread = self.thread(record);
        let who = Process { pid: header.pid, start_ns: header.process_start_ns, exec_id: header.exec_id };
        let start = self.frames.len() as u32;
        for (depth, address) in record.kernel().enumerate() {
            self.push(Place::Kernel(CodeAddress::at_depth(depth, address).lookup()));
        }
        let kernel = self.frames.len() as u32 - start;
        let segments: Vec<Segment> = record.segments().collect();
        let mut ended_in = None;
        let mut words: Vec<u64> = record.user().collect();
        ruby::align(&mut words, matches!(outcome, StackOutcome::Complete));
        python::align(&mut words);
        let process =
            lightfoot_interpreters::Process { pid: who.pid, start_ns: who.start_ns, exec_id: who.exec_id };
        interpreters.learn(library, &segments, process, &words);
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let address = word & frame::ADDRESS;
            let place = match (word >> 56) as u8 {
                frame::RETURN | frame::EXACT => {
                    let address = if (word >> 56) as u8 == frame::EXACT {
                        CodeAddress::Instruction(address)
                    } else {
                        CodeAddress::Return(address)
                    };
                    let lookup = address.lookup();
                    let segment = segments.iter().find(|s| (s.start..s.end).contains(&lookup));
                    ended_in = segment.map(Segment::key);
                    place(processes.resolve(who, header.time_ns, lookup, segment.map(code).as_ref()), address)
                }
                kind => {
                    let position = if kind == frame::GC { 0 } else { words.next().unwrap_or_default() };
                    match interpreters.resolve(library, &segments, process, word, position) {
                        Some(frame) => self.interpreted(frame),
                        None => continue,
                    }
                }
            };
            self.push(place);
        }
        let user = self.frames.len() as u32 - start - kernel;
        let places = self.frames[start as usize..].iter().map(|place| self.places[place.0 as usize]);
        let (mut has_ruby, mut has_compiled) = (false, false);
        for place in places {
            match place {
                Place::Interpreted(frame) => has_ruby |= self.interpreted[frame as usize].kind == Kind::Ruby,
                Place::Jit(..) => has_compiled = true,
                _ => {}
            }
        }
        if has_ruby && has_compiled {
            interpreters.met_compiled(library, &segments);
        }
        let (mut outcome, mut kernel, mut user) = (outcome, kernel, user);
        if let Some(leaves) = &mut self.leaves {
            let leaf = self.frames.get(start as usize).copied();
            let fresh = self.stacks.len() as u32;
            let stack = *leaves.entry((thread, wait, leaf)).or_insert(fresh);
            self.shortened += u64::from(header.count);
            if stack != fresh {
                self.frames.truncate(start as usize);
                self.by_key.insert(header.stack, stack);
                self.count(stack, header);
                return;
            }
            self.frames.truncate(start as usize + 1);
            outcome = StackOutcome::Truncated;
            (kernel, user) = (kernel.min(1), (1 - kernel.min(1)).min(user));
            ended_in = None;
        }
        self.by_key.insert(header.stack, self.stacks.len() as u32);
        self.stacks.push(Stack {
            thread,
            outcome,
            count: u64::from(header.count),
            weight_ns: header.weight_ns,
            wait,
            waker: header.waker,
            interpreter_outcome: header.interpreter_outcome,
            ended_in,
            start,
            kernel,
            user,
        });
    }

    fn count(&mut self, stack: u32, header: &RecordHeader) {
        let stack = &mut self.stacks[stack as usize];
        stack.count += u64::from(header.count);
        stack.weight_ns += header.weight_ns;
    }

    /// Adds samples that were counted in the kernel.
    pub fn add_counts(&mut self, counts: &HashMap<u64, Count>) {
        for (key, count) in counts {
            match self.by_key.get(key) {
                Some(&stack) => {
                    let stack = &mut self.stacks[stack as usize];
                    stack.count += count.samples;
                    stack.weight_ns += count.weight_ns;
                }
                None => self.malformed += count.samples,
            }
        }
    }

    /// Every distinct stack.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Stack> {
        self.stacks.iter()
    }

    /// The stack that ended a stack's wait, and the name of its thread.
    pub fn waker(&self, stack: &Stack) -> Option<(&Stack, &str)> {
        let waker = &self.stacks[*self.by_key.get(&stack.waker).filter(|_| stack.waker != 0)? as usize];
        Some((waker, self.threads[waker.thread.0 as usize].comm.as_str()))
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

    /// Every distinct frame of an interpreter, see [`Place::Interpreted`].
    pub fn all_interpreted(&self) -> &[Interpreted] {
        &self.interpreted
    }

    fn interpreted(&mut self, frame: Interpreted) -> Place {
        let next = self.interpreted.len() as u32;
        let list = &mut self.interpreted;
        Place::Interpreted(*self.interpreted_index.entry(frame).or_insert_with_key(|frame| {
            list.push(frame.clone());
            next
        }))
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

fn place(resolved: Resolved, address: CodeAddress) -> Place {
    match resolved {
        Resolved::File { object, file_offset } => Place::File(object, file_offset),
        Resolved::Vdso { offset } => Place::Vdso(offset),
        Resolved::Jit { jit, address } => Place::Jit(jit, address),
        Resolved::Special { name, offset } => Place::Special(name, offset),
        Resolved::Unknown { reason } => Place::Unknown(address.raw(), reason),
    }
}

/// A file as crate `process` identifies it.
pub(crate) fn file_key(key: &ObjectKey) -> FileKey {
    // The kernel keeps major and minor number in 12 and 20 bits: include/linux/kdev_t.h.
    let device = Device { major: key.device >> 20, minor: key.device & 0xf_ffff };
    FileKey { device, inode: key.inode, generation: key.generation }
}

fn code(segment: &Segment) -> Code {
    let content = match (segment.inode, segment.device) {
        (0, VDSO_DEVICE) => Content::Vdso,
        (0, _) => Content::Anonymous,
        _ => Content::File { key: file_key(&segment.key()), offset: segment.file_offset },
    };
    Code { start: segment.start, end: segment.end, content }
}
