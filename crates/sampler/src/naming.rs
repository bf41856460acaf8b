//! From places to frames with names, when the run is over: object by object, so that the tables of one object only are in memory.

use crate::interpreted::{Interpreted, Kind};
use crate::stacks::{Place, PlaceId, Stack, Stacks};
use lightfoot_model::{
    Frame, FrameId, FrameKind, FrameTable, Sample, StackTable, StringId, StringTable, Wait,
};
use lightfoot_process::{JitId, JitName, ObjectId, Processes};
use lightfoot_symbolize::{Named, ObjectSource, Options};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Names of the functions by which interrupts enter the kernel begin so: arch/x86/include/asm/idtentry.h, arch/arm64/kernel/entry-common.c.
const INTERRUPT_ENTRIES: [&str; 4] =
    ["asm_sysvec_", "asm_common_interrupt", "el1_interrupt", "el0_interrupt"];

/// What a tracepoint puts on the stack to run our program begins so: include/trace/bpf_probe.h, kernel/trace/bpf_trace.c.
const OUR_OWN: [&str; 5] = ["bpf_prog_", "bpf_trace_run", "__bpf_trace_", "__traceiter_", "bpf_trampoline_"];

const OUR_OWN_MAX: usize = 6;

/// Names of everything that was seen.
#[derive(Debug)]
pub(crate) struct Names {
    pub strings: StringTable,
    pub frames: FrameTable,
    /// Frames of each place, outermost first.
    of_place: Vec<Vec<FrameId>>,
    /// What was left out: (remark, objects).
    pub notes: BTreeMap<&'static str, Vec<String>>,
}

impl Names {
    /// Names all places of `stacks`.
    pub fn find(stacks: &Stacks, processes: &mut Processes, options: &Options) -> Names {
        let mut names = Names {
            strings: StringTable::default(),
            frames: FrameTable::default(),
            of_place: vec![Vec::new(); stacks.places().len()],
            notes: BTreeMap::new(),
        };
        let mut kernel: BTreeMap<u64, usize> = BTreeMap::new();
        let mut vdso: BTreeMap<u64, usize> = BTreeMap::new();
        let mut files: BTreeMap<ObjectId, BTreeMap<u64, usize>> = BTreeMap::new();
        let mut jits: BTreeMap<JitId, BTreeMap<u64, usize>> = BTreeMap::new();
        for (index, place) in stacks.places().iter().enumerate() {
            match *place {
                Place::Kernel(address) => drop(kernel.insert(address, index)),
                Place::Vdso(offset) => drop(vdso.insert(offset, index)),
                Place::File(object, offset) => drop(files.entry(object).or_default().insert(offset, index)),
                Place::Jit(jit, address) => drop(jits.entry(jit).or_default().insert(address, index)),
                Place::Interpreted(frame) => {
                    names.interpreted(index, &stacks.all_interpreted()[frame as usize]);
                }
                Place::Special(name, offset) => names.unknown(index, name, name, offset, ""),
                Place::Unknown(address, reason) => names.unknown(index, "unknown", "", address, reason),
            }
        }
        let (addresses, places) = split(&kernel);
        if !addresses.is_empty() {
            let named = lightfoot_symbolize::kernel(&addresses);
            names.take("kernel", "[kernel]", FrameKind::Kernel, &addresses, &places, named);
        }
        let (offsets, places) = split(&vdso);
        if !offsets.is_empty() {
            let named = lightfoot_symbolize::vdso(&offsets);
            names.take("vdso", "[vdso]", FrameKind::Native, &offsets, &places, named);
        }
        for (object, offsets) in files {
            names.object(object, &offsets, processes, options);
        }
        for (jit, addresses) in jits {
            names.jit(jit, &addresses, processes);
        }
        names
    }

    /// Samples of all stacks, heaviest first. A stack without a sample (its count was not read) is left out.
    pub fn samples(&mut self, stacks: &Stacks, table: &mut StackTable) -> Vec<Sample> {
        let seen = Wait::ALL.map(|wait| stacks.iter().any(|stack| stack.wait == wait));
        let waiting = Wait::ALL.map(|wait| if seen[wait as usize] { self.waiting(wait) } else { None });
        let mut samples: Vec<Sample> = stacks
            .iter()
            .filter(|stack| stack.count > 0)
            .map(|stack| {
                let woken =
                    stacks.waker(stack).map_or(vec![], |(waker, name)| self.woken_by(stacks, waker, name));
                let (kernel, user) = stacks.frames(stack);
                let root_first = user.iter().rev().chain(kernel.iter().rev());
                let frames = root_first.flat_map(|place| self.of(*place)).copied();
                let id = table.intern(frames.chain(waiting[stack.wait as usize]).chain(woken));
                Sample {
                    stack: id,
                    thread: stack.thread,
                    outcome: stack.outcome,
                    count: stack.count,
                    weight_ns: stack.weight_ns,
                    wait: stack.wait,
                }
            })
            .collect();
        samples.sort_by(|a, b| b.weight_ns.cmp(&a.weight_ns).then(a.stack.cmp(&b.stack)));
        samples
    }

    /// The leaf of a stack that waits: why it does.
    fn waiting(&mut self, wait: Wait) -> Option<FrameId> {
        (!wait.is_none()).then(|| self.off_cpu(wait.frame()))
    }

    /// A frame that is no code.
    fn off_cpu(&mut self, name: &str) -> FrameId {
        self.frames.intern(Frame {
            name: self.strings.intern(name),
            file: StringId::EMPTY,
            line: 0,
            object: self.strings.intern("[off-CPU]"),
            address: 0,
            kind: FrameKind::Kernel,
            note: StringId::EMPTY,
        })
    }

    /// What stands behind a stack whose wait somebody ended: who, then his stack from the wake-up to the root. Of an interrupt only its own
    /// frames: the thread that it hit has nothing to do with it.
    fn woken_by(&mut self, stacks: &Stacks, waker: &Stack, thread: &str) -> Vec<FrameId> {
        let (kernel, user) = stacks.frames(waker);
        // Places have their frames outermost first.
        let leaf_first = |names: &Names, places: &[PlaceId]| -> Vec<FrameId> {
            places.iter().flat_map(|place| names.of(*place).iter().rev()).copied().collect()
        };
        let mut frames = leaf_first(self, kernel);
        let is = |names: &Names, frame: FrameId, starts: &[&str]| {
            let name = names.strings.get(names.frames.get(frame).name);
            starts.iter().any(|start| name.starts_with(start))
        };
        // The program itself has no name any more, or another one's.
        let own = frames.iter().take(OUR_OWN_MAX).rposition(|frame| is(self, *frame, &OUR_OWN));
        frames.drain(..own.map_or(0, |last| last + 1));
        let entry = frames.iter().position(|frame| is(self, *frame, &INTERRUPT_ENTRIES));
        let who = match entry {
            Some(entry) => {
                frames.truncate(entry + 1);
                self.off_cpu("[woken by an interrupt]")
            }
            None => {
                frames.extend(leaf_first(self, user));
                self.off_cpu(&format!("[woken by] {thread}"))
            }
        };
        std::iter::once(who).chain(frames).collect()
    }

    fn of(&self, place: PlaceId) -> &[FrameId] {
        &self.of_place[place.0 as usize]
    }

    fn object(
        &mut self,
        id: ObjectId,
        offsets: &BTreeMap<u64, usize>,
        processes: &mut Processes,
        options: &Options,
    ) {
        let path = processes.objects()[id.0 as usize].path().to_path_buf();
        let (offsets, places) = split(offsets);
        let mut function_starts = Vec::new();
        let named = match processes.open(id) {
            Ok(open) => {
                let source = ObjectSource { file: &open.file, display_path: &path };
                let batch = lightfoot_symbolize::object(&source, &offsets, options);
                if let Some(note) = batch.note {
                    self.notes.entry(note).or_default().push(short(&path));
                }
                function_starts = batch.function_starts;
                batch.named
            }
            Err(reason) => vec![Named::Unknown { reason }; offsets.len()],
        };
        // All addresses of a function without a name are one frame, as if it had one.
        let start_of =
            |(at, &offset): (usize, &u64)| function_starts.get(at).copied().flatten().unwrap_or(offset);
        let offsets: Vec<u64> = offsets.iter().enumerate().map(start_of).collect();
        self.take(&short(&path), &path.to_string_lossy(), FrameKind::Native, &offsets, &places, named);
    }

    fn jit(&mut self, id: JitId, addresses: &BTreeMap<u64, usize>, processes: &mut Processes) {
        let (addresses, places) = split(addresses);
        for ((name, &address), &place) in
            processes.jit_names(id, &addresses).into_iter().zip(&addresses).zip(&places)
        {
            match name {
                JitName::Known(entry) => {
                    let frame = Frame {
                        name: self.strings.intern(&entry.name),
                        file: StringId::EMPTY,
                        line: 0,
                        object: self.strings.intern("[jit]"),
                        address: entry.start,
                        kind: FrameKind::Jit,
                        note: StringId::EMPTY,
                    };
                    self.of_place[place] = vec![self.frames.intern(frame)];
                }
                JitName::Unknown { reason } => self.unknown(place, "jit", "[jit]", address, reason),
            }
        }
    }

    /// Frames for one batch of names; `file` and `object` are the short and the long name of what holds the code.
    fn take(
        &mut self,
        file: &str,
        object: &str,
        kind: FrameKind,
        addresses: &[u64],
        places: &[usize],
        named: Vec<Named>,
    ) {
        let object_id = self.strings.intern(object);
        for ((named, &address), &place) in named.into_iter().zip(addresses).zip(places) {
            match named {
                Named::Known { frames } => {
                    self.of_place[place] = frames
                        .into_iter()
                        .map(|frame| {
                            let frame = Frame {
                                name: self.strings.intern(&frame.name),
                                file: frame.file.map_or(StringId::EMPTY, |f| self.strings.intern(&f)),
                                line: frame.line,
                                object: object_id,
                                address: frame.address,
                                kind: if frame.inlined { FrameKind::Inlined } else { kind },
                                note: StringId::EMPTY,
                            };
                            self.frames.intern(frame)
                        })
                        .collect();
                }
                Named::Unknown { reason } => self.unknown(place, file, object, address, reason),
            }
        }
    }

    fn interpreted(&mut self, place: usize, frame: &Interpreted) {
        let (kind, object) = match frame.kind {
            Kind::Python => (FrameKind::Python, "[python]"),
            Kind::Ruby => (FrameKind::Ruby, "[ruby]"),
            Kind::Gc => (FrameKind::Native, ""),
        };
        // Functions of the same name in two files are two functions.
        let object = if frame.file.is_empty() { object } else { &frame.file };
        let frame = Frame {
            name: self.strings.intern(&frame.function),
            file: self.strings.intern(&frame.file),
            line: frame.line,
            object: self.strings.intern(object),
            address: 0,
            kind: if frame.reason.is_empty() { kind } else { FrameKind::Unknown },
            note: self.strings.intern(frame.reason),
        };
        self.of_place[place] = vec![self.frames.intern(frame)];
    }

    fn unknown(&mut self, place: usize, file: &str, object: &str, address: u64, reason: &str) {
        let file = file.trim_start_matches('[').trim_end_matches(']');
        let frame = Frame {
            name: self.strings.intern(&format!("[{file}+{address:#x}]")),
            file: StringId::EMPTY,
            line: 0,
            object: self.strings.intern(object),
            address,
            kind: FrameKind::Unknown,
            note: self.strings.intern(reason),
        };
        self.of_place[place] = vec![self.frames.intern(frame)];
    }
}

/// Remarks for people, one sentence each.
pub(crate) fn sentences(notes: &BTreeMap<&'static str, Vec<String>>) -> Vec<String> {
    const NAMED: usize = 4;
    notes
        .iter()
        .map(|(note, objects)| {
            let objects: BTreeSet<&str> = objects.iter().map(String::as_str).collect();
            let mut list = objects.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
            if objects.len() > NAMED {
                list += &format!(" and {} more", objects.len() - NAMED);
            }
            format!("{note}: {list}")
        })
        .collect()
}

fn split(of: &BTreeMap<u64, usize>) -> (Vec<u64>, Vec<usize>) {
    of.iter().map(|(&address, &place)| (address, place)).unzip()
}

fn short(path: &Path) -> String {
    path.file_name().map_or_else(|| path.to_string_lossy().into_owned(), |n| n.to_string_lossy().into_owned())
}
