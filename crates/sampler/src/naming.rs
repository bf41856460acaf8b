//! From places to frames with names, when the run is over: object by object, so that the tables of one object only are in memory.

use crate::stacks::{Place, PlaceId, Stacks};
use lightfoot_model::{
    Frame, FrameId, FrameKind, FrameTable, Sample, StackOutcome, StackTable, StringId, StringTable,
};
use lightfoot_process::{JitId, JitName, ObjectId, Processes};
use lightfoot_symbolize::{Named, ObjectSource, Options};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Functions that call the first function of a thread or program: a stack that ends here has reached its root, whatever the frame
/// pointer says there (libc is built without them).
const ROOTS: [&str; 8] = [
    "_start",
    "__libc_start_main",
    "__libc_start_call_main",
    "__libc_start_main_impl",
    "start_thread",
    "clone",
    "clone3",
    "__clone3",
];

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
    pub fn samples(&self, stacks: &Stacks, period_ns: u64, table: &mut StackTable) -> Vec<Sample> {
        let mut samples: Vec<Sample> = stacks
            .iter()
            .filter(|stack| stack.count > 0)
            .map(|stack| {
                let (kernel, user) = stacks.frames(stack);
                let root_first = user.iter().rev().chain(kernel.iter().rev());
                let id = table.intern(root_first.flat_map(|place| self.of(*place)).copied());
                Sample {
                    stack: id,
                    thread: stack.thread,
                    outcome: self.outcome(stack.outcome, user),
                    count: stack.count,
                    weight_ns: stack.count * period_ns,
                }
            })
            .collect();
        samples.sort_by(|a, b| b.weight_ns.cmp(&a.weight_ns).then(a.stack.cmp(&b.stack)));
        samples
    }

    fn of(&self, place: PlaceId) -> &[FrameId] {
        &self.of_place[place.0 as usize]
    }

    /// How a stack really ended: one that reached `main`'s caller or a thread's start function is complete, although the frame pointer
    /// there is none.
    fn outcome(&self, outcome: StackOutcome, user: &[PlaceId]) -> StackOutcome {
        if !matches!(outcome, StackOutcome::FramePointerBroken | StackOutcome::Unreadable) {
            return outcome;
        }
        let name = |place: Option<&PlaceId>| {
            let frame = place.and_then(|p| self.of(*p).first())?;
            Some(self.strings.get(self.frames.get(*frame).name))
        };
        let mut from_root = user.iter().rev();
        let (root, next) = (name(from_root.next()), name(from_root.next()));
        // libc's caller of main is a static function, without a name where libc is stripped.
        let reached = root.is_some_and(|root| ROOTS.contains(&root)) || next == Some("main");
        if reached { StackOutcome::Complete } else { outcome }
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
