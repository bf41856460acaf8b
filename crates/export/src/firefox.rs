//! The Firefox Profiler's processed profile, version 61. Source: firefox-devtools/profiler, `src/types/profile.ts` and
//! `src/profile-logic/processed-profile-versioning.ts`. Version 61 is the one in which all threads share one set of tables, as here;
//! newer profilers upgrade it when they load it.
//!
//! Samples are counted, not timed, so **the times in this format are made up**: each thread's samples stand in the order of a flame
//! graph, and fill the run in proportion to their counts. `threadCPUDelta` is true, so the height of a track is the share of a CPU
//! that the thread used. Loses each sample's outcome (the debt stands in the details) and why a frame has no name; addresses are those of
//! functions.

use crate::debts;
use crate::names::short_object;
use crate::stream::{Seq, buffered, json_object};
use lightfoot_model::{Frame, FrameKind, Profile, Sample, StackId, StackTable, StringId, Thread, ThreadId};
use serde::{Serialize, Serializer};
use serde_json::json;
use std::collections::HashMap;
use std::io::{self, Write};

/// Version of the processed profile format.
const PROCESSED_VERSION: u32 = 61;
/// Version of the format that Firefox itself writes; readers of processed profiles do not use it.
const GECKO_VERSION: u32 = 31;
/// `ResourceType.Library`.
const RESOURCE_LIBRARY: u32 = 1;
/// Threads shown when the profile is opened; the others are one click away.
const VISIBLE_THREADS: usize = 12;

/// Rows of unwind debt in the profile's details.
const MOST_DEBTS: usize = 20;

/// Writes `profile`, followed by a newline.
///
/// # Errors
/// Those of the writer.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let view = View::new(profile);
    buffered(out, |writer| {
        serde_json::to_writer(&mut *writer, &Document(&view))?;
        writer.write_all(b"\n")
    })
}

/// The category of a kind of frame; 0 is the default and must be grey.
fn category(kind: FrameKind) -> u32 {
    match kind {
        FrameKind::Unknown => 0,
        FrameKind::Native => 1,
        FrameKind::Kernel => 2,
        FrameKind::Inlined => 3,
        FrameKind::Jit => 4,
        FrameKind::Python => 5,
        FrameKind::Ruby => 6,
    }
}

/// Names and colours of [`category`]'s numbers.
const CATEGORIES: [(&str, &str); 7] = [
    ("Other", "grey"),
    ("Native", "blue"),
    ("Kernel", "orange"),
    ("Inlined", "lightblue"),
    ("JIT", "yellow"),
    ("Python", "green"),
    ("Ruby", "red"),
];

/// The profile as the Firefox Profiler sees it: small tables that the profile does not have.
struct View<'p> {
    profile: &'p Profile,
    /// Executables and libraries, as their paths; also the resources.
    objects: Vec<StringId>,
    object_index: HashMap<StringId, u32>,
    /// Source files.
    files: Vec<StringId>,
    file_index: HashMap<StringId, u32>,
    /// One frame of each function.
    functions: Vec<Frame>,
    /// Index into `functions`, for every frame.
    function_of_frame: Vec<u32>,
    /// One frame of each symbol: functions with machine code of their own.
    symbols: Vec<Frame>,
    symbol_index: HashMap<(StringId, u64), u32>,
    /// Numbers of the samples, those of a thread together, in the order of a flame graph.
    by_thread: Vec<u32>,
    /// Position of the main thread of each process that has one, by process id.
    main_threads: HashMap<u32, usize>,
}

impl<'p> View<'p> {
    fn new(profile: &'p Profile) -> View<'p> {
        let main_threads = profile.threads.iter().enumerate().filter(|(_, thread)| thread.pid == thread.tid);
        let main_threads = main_threads.map(|(position, thread)| (thread.pid, position));
        let mut view = View {
            profile,
            objects: Vec::new(),
            object_index: HashMap::new(),
            files: Vec::new(),
            file_index: HashMap::new(),
            functions: Vec::new(),
            function_of_frame: Vec::with_capacity(profile.frames.len()),
            symbols: Vec::new(),
            symbol_index: HashMap::new(),
            by_thread: samples_by_thread(profile),
            main_threads: main_threads.collect(),
        };
        let mut function_index: HashMap<(StringId, StringId, StringId, FrameKind), u32> = HashMap::new();
        for &frame in profile.frames.iter() {
            if !frame.object.is_empty() && !matches!(frame.kind, FrameKind::Python | FrameKind::Ruby) {
                intern(&mut view.objects, &mut view.object_index, frame.object, frame.object);
            }
            if !frame.file.is_empty() {
                intern(&mut view.files, &mut view.file_index, frame.file, frame.file);
            }
            let key = (frame.name, frame.file, frame.object, frame.kind);
            let function = intern(&mut view.functions, &mut function_index, key, frame);
            view.function_of_frame.push(function);
            if frame.kind == FrameKind::Native && address(&frame).is_some() {
                intern(&mut view.symbols, &mut view.symbol_index, (frame.object, frame.address), frame);
            }
        }
        view
    }

    fn object(&self, frame: &Frame) -> Option<u32> {
        self.object_index.get(&frame.object).copied()
    }

    /// The symbol that a frame's code is in: for an inlined function the symbol that it is inlined into.
    fn symbol(&self, frame: &Frame) -> Option<u32> {
        match frame.kind {
            FrameKind::Native | FrameKind::Inlined => {
                self.symbol_index.get(&(frame.object, frame.address)).copied()
            }
            _ => None,
        }
    }

    fn text(&self, id: StringId) -> &'p str {
        self.profile.strings.get(id)
    }

    /// Each thread that has samples. Readers want at least one: without samples it is an empty one.
    fn threads(&self) -> impl Iterator<Item = ThreadRow<'_>> {
        let thread_of = |number: u32| self.profile.samples[number as usize].thread;
        let with_samples = self.by_thread.chunk_by(move |&a, &b| thread_of(a) == thread_of(b));
        let nothing: &[u32] = &[];
        with_samples.chain(self.by_thread.is_empty().then_some(nothing)).map(move |samples| ThreadRow {
            view: self,
            thread: samples.first().map_or(ThreadId(0), |&number| thread_of(number)),
            samples,
        })
    }

    /// Threads by CPU time, as positions in the document, heaviest first.
    fn heaviest_threads(&self) -> Vec<usize> {
        let mut threads: Vec<(u64, usize)> = self
            .threads()
            .enumerate()
            .map(|(position, row)| (row.iter().map(|sample| sample.weight_ns).sum(), position))
            .collect();
        threads.sort_by_key(|&(weight, position)| (std::cmp::Reverse(weight), position));
        threads.into_iter().map(|(_, position)| position).collect()
    }

    /// The name of a process: that of its main thread, if it was seen.
    fn process_name<'a>(&'a self, thread: &'a Thread) -> &'a str {
        let main = self.main_threads.get(&thread.pid).map(|&position| &self.profile.threads[position]);
        &main.unwrap_or(thread).comm
    }

    fn duration_ms(&self) -> f64 {
        milliseconds(self.profile.meta.duration_ns)
    }
}

fn intern<K: std::hash::Hash + Eq, V>(
    values: &mut Vec<V>,
    index: &mut HashMap<K, u32>,
    key: K,
    value: V,
) -> u32 {
    *index.entry(key).or_insert_with(|| {
        values.push(value);
        values.len() as u32 - 1
    })
}

/// The frame's address, if it is one that counts from the start of an object; kernel and JIT code have absolute ones.
fn address(frame: &Frame) -> Option<u64> {
    let relative = matches!(frame.kind, FrameKind::Native | FrameKind::Inlined | FrameKind::Unknown);
    (relative && frame.address > 0 && frame.address <= i32::MAX as u64).then_some(frame.address)
}

fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// Numbers of the samples by thread, and within a thread in the order of a flame graph.
fn samples_by_thread(profile: &Profile) -> Vec<u32> {
    let positions = depth_first_positions(&profile.stacks);
    let mut numbers: Vec<u32> = (0..profile.samples.len() as u32).collect();
    numbers.sort_by_key(|&number| {
        let sample = &profile.samples[number as usize];
        (sample.thread, sample.stack.map(|stack| positions[stack.0 as usize]))
    });
    numbers
}

/// For each row of the table its position when each stack is followed by those that continue it.
fn depth_first_positions(stacks: &StackTable) -> Vec<u32> {
    // Parents come before children, so sizes add up from the end, and positions are given from the start.
    let rows = stacks.len();
    let mut sizes = vec![1u32; rows];
    for row in (0..rows).rev() {
        if let (Some(parent), _) = stacks.get(StackId(row as u32)) {
            sizes[parent.0 as usize] += sizes[row];
        }
    }
    let mut next_root = 0;
    let mut next_child = vec![0u32; rows];
    let mut positions = vec![0u32; rows];
    for (row, (parent, _)) in stacks.iter().enumerate() {
        let next = match parent {
            Some(parent) => &mut next_child[parent.0 as usize],
            None => &mut next_root,
        };
        positions[row] = *next;
        *next += sizes[row];
        next_child[row] = positions[row] + 1;
    }
    positions
}

json_object!(Document, view: View, {
    "meta": Meta(view),
    "libs": Seq(|| view.objects.iter().map(|&object| Library::new(view, object))),
    "pages": [(); 0],
    "shared": Shared(view),
    "threads": Seq(|| view.threads()),
});

/// The run. Times are ms after `startTime`, which is in ms since the Unix epoch.
struct Meta<'v>(&'v View<'v>);

impl Serialize for Meta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let meta = &self.0.profile.meta;
        let accounting = &self.0.profile.accounting;
        let cost = &self.0.profile.cost;
        let heaviest = self.0.heaviest_threads();
        let entry = |label: &str, format: &str, value: serde_json::Value| json!({"label": label, "format": format, "value": value});
        let categories =
            CATEGORIES.map(|(name, color)| json!({"name": name, "color": color, "subcategories": ["Other"]}));
        json!({
            "interval": milliseconds(meta.period_ns),
            "startTime": milliseconds(meta.started_unix_ns),
            "endTime": milliseconds(meta.started_unix_ns + meta.duration_ns),
            "profilingStartTime": 0,
            "profilingEndTime": milliseconds(meta.duration_ns),
            "processType": 0,
            "categories": categories,
            "product": format!("{} (times within the run are made up: samples are counted)", meta.target),
            "importedFrom": format!("lightfoot {}", meta.version),
            "arguments": meta.command_line,
            "stackwalk": 1,
            "debug": false,
            "version": GECKO_VERSION,
            "preprocessedProfileVersion": PROCESSED_VERSION,
            "abi": meta.machine,
            "oscpu": format!("Linux {} {}", meta.kernel, meta.machine),
            "platform": "Linux",
            "logicalCPUs": meta.cpus,
            "symbolicated": true,
            "symbolicationNotSupported": true,
            "markerSchema": [],
            "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
            "usesOnlyOneStackType": true,
            "sourceCodeIsNotOnSearchfox": true,
            "keepProfileThreadOrder": true,
            "initialVisibleThreads": heaviest.iter().take(VISIBLE_THREADS).collect::<Vec<_>>(),
            "initialSelectedThreads": heaviest.iter().take(1).collect::<Vec<_>>(),
            "extra": [
                {"label": "Ledger, in samples", "entries": [
                    entry("Fired", "integer", accounting.fired.into()),
                    entry("Recorded", "integer", accounting.recorded.into()),
                    entry("Filtered", "integer", accounting.filtered.into()),
                    entry("Throttled", "integer", accounting.throttled.into()),
                    entry("Lost", "integer", accounting.lost.into()),
                    entry("Failed", "integer", accounting.failed.into()),
                ]},
                {"label": "Cost of looking", "entries": [
                    entry("Interrupts", "nanoseconds", cost.interrupt_ns.into()),
                    entry("BPF programs", "nanoseconds", cost.bpf_ns.into()),
                    entry("User space", "nanoseconds", cost.user_ns.into()),
                    entry("Total", "nanoseconds", cost.total_ns.into()),
                    entry("Peak memory", "bytes", cost.peak_rss_bytes.into()),
                    entry("BPF maps", "bytes", cost.bpf_map_bytes.into()),
                ]},
                {"label": "Stacks that do not reach their root, in samples", "entries": debts::rows(self.0.profile)
                    .iter()
                    .take(MOST_DEBTS)
                    .map(|row| {
                        let object = match row.object {
                            "" => "[unknown]",
                            object => short_object(object),
                        };
                        let label = format!("{object}: {}", row.outcome.sentence());
                        entry(&label, "integer", row.count.into())
                    })
                    .collect::<Vec<_>>()},
                {"label": "Notes", "entries": meta
                    .notes
                    .iter()
                    .map(|note| entry("Note", "string", note.as_str().into()))
                    .collect::<Vec<_>>()},
            ],
        })
        .serialize(serializer)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Library<'p> {
    arch: &'p str,
    name: &'p str,
    path: &'p str,
    debug_name: &'p str,
    debug_path: &'p str,
    breakpad_id: &'static str,
    code_id: Option<&'static str>,
}

impl<'p> Library<'p> {
    fn new(view: &View<'p>, object: StringId) -> Library<'p> {
        let path = view.text(object);
        let name = short_object(path);
        Library {
            arch: &view.profile.meta.machine,
            name,
            path,
            debug_name: name,
            debug_path: path,
            breakpad_id: "",
            code_id: None,
        }
    }
}

json_object!(Shared, view: View, {
    "stackTable": Stacks(view),
    "frameTable": Frames(view),
    "funcTable": Functions(view),
    "resourceTable": Resources(view),
    "nativeSymbols": Symbols(view),
    "sources": Sources(view),
    // The profile's strings, then the short names of objects.
    "stringArray": Seq(|| {
        view.profile.strings.iter().chain(view.objects.iter().map(|&object| short_object(view.text(object))))
    }),
});

json_object!(Stacks, view: View, {
    "frame": Seq(|| view.profile.stacks.iter().map(|(_, frame)| frame)),
    "prefix": Seq(|| view.profile.stacks.iter().map(|(parent, _)| parent)),
    "length": view.profile.stacks.len(),
});

json_object!(Frames, view: View, {
    "address": Seq(|| view.profile.frames.iter().map(|f| address(f).map_or(-1, |address| address as i64))),
    "inlineDepth": Seq(|| view.profile.frames.iter().map(|f| u8::from(f.kind == FrameKind::Inlined))),
    "category": Seq(|| view.profile.frames.iter().map(|f| category(f.kind))),
    "subcategory": Seq(|| view.profile.frames.iter().map(|_| 0)),
    "func": view.function_of_frame,
    "nativeSymbol": Seq(|| view.profile.frames.iter().map(|f| view.symbol(f))),
    "innerWindowID": Seq(|| view.profile.frames.iter().map(|_| None::<u32>)),
    "line": Seq(|| view.profile.frames.iter().map(|f| (f.line > 0).then_some(f.line))),
    "column": Seq(|| view.profile.frames.iter().map(|_| None::<u32>)),
    "length": view.profile.frames.len(),
});

json_object!(Functions, view: View, {
    "name": Seq(|| view.functions.iter().map(|f| f.name)),
    "isJS": Seq(|| view.functions.iter().map(|_| false)),
    "relevantForJS": Seq(|| view.functions.iter().map(|_| false)),
    "resource": Seq(|| view.functions.iter().map(|f| view.object(f).map_or(-1, i64::from))),
    "source": Seq(|| view.functions.iter().map(|f| view.file_index.get(&f.file))),
    "lineNumber": Seq(|| view.functions.iter().map(|_| None::<u32>)),
    "columnNumber": Seq(|| view.functions.iter().map(|_| None::<u32>)),
    "length": view.functions.len(),
});

json_object!(Resources, view: View, {
    "type": Seq(|| view.objects.iter().map(|_| RESOURCE_LIBRARY)),
    "lib": Seq(|| 0..view.objects.len()),
    "name": Seq(|| (0..view.objects.len()).map(|object| view.profile.strings.len() + object)),
    "host": Seq(|| view.objects.iter().map(|_| None::<u32>)),
    "length": view.objects.len(),
});

json_object!(Symbols, view: View, {
    "libIndex": Seq(|| view.symbols.iter().map(|f| view.object(f).unwrap_or(0))),
    "address": Seq(|| view.symbols.iter().map(|f| f.address)),
    "name": Seq(|| view.symbols.iter().map(|f| f.name)),
    "functionSize": Seq(|| view.symbols.iter().map(|_| None::<u32>)),
    "length": view.symbols.len(),
});

json_object!(Sources, view: View, {
    "id": Seq(|| view.files.iter().map(|_| None::<u32>)),
    "filename": view.files,
    "startLine": Seq(|| view.files.iter().map(|_| 1)),
    "startColumn": Seq(|| view.files.iter().map(|_| 1)),
    "sourceMapURL": Seq(|| view.files.iter().map(|_| None::<u32>)),
    "length": view.files.len(),
});

/// One thread.
struct ThreadRow<'v> {
    view: &'v View<'v>,
    thread: ThreadId,
    /// Numbers of its samples.
    samples: &'v [u32],
}

impl ThreadRow<'_> {
    fn iter(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().map(|&number| &self.view.profile.samples[number as usize])
    }
}

impl Serialize for ThreadRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let unknown = Thread { pid: 0, tid: 0, comm: "no samples".into(), start_ns: 0 };
        let thread = self.view.profile.threads.get(self.thread.0 as usize).unwrap_or(&unknown);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("processType", "default")?;
        map.serialize_entry("processStartupTime", &0)?;
        map.serialize_entry("processShutdownTime", &None::<f64>)?;
        map.serialize_entry("registerTime", &0)?;
        map.serialize_entry("unregisterTime", &None::<f64>)?;
        map.serialize_entry("pausedRanges", &[(); 0])?;
        map.serialize_entry("name", &thread.comm)?;
        map.serialize_entry("isMainThread", &(thread.pid == thread.tid))?;
        map.serialize_entry("processName", self.view.process_name(thread))?;
        map.serialize_entry("pid", &thread.pid.to_string())?;
        map.serialize_entry("tid", &thread.tid)?;
        map.serialize_entry("samples", &ThreadSamples(self))?;
        map.serialize_entry(
            "markers",
            &json!({"data": [], "name": [], "startTime": [], "endTime": [], "phase": [], "category": [], "length": 0}),
        )?;
        map.end()
    }
}

/// How far before the end of the run the closing row stands, as a part of the run: views end before the end, not at it.
const BEFORE_THE_END: f64 = 1e-6;

json_object!(ThreadSamples, row: ThreadRow, {
    // One row per sample, and one that closes the last sample's part of the run: no stack, no weight.
    "stack": Seq(|| row.iter().map(|sample| sample.stack).chain([None])),
    // Each row at the start of its part of the run.
    "time": Seq(|| {
        let total: u64 = row.iter().map(|sample| sample.count).sum();
        let mut before = 0;
        let starts = row.iter().map(move |sample| {
            let start = before as f64 / total.max(1) as f64;
            before += sample.count;
            start
        });
        starts.chain([1.0]).map(|part| row.view.duration_ms() * part.min(1.0 - BEFORE_THE_END))
    }),
    "weight": Seq(|| row.iter().map(|sample| sample.count).chain([0])),
    "weightType": "samples",
    // CPU time between the row before and this one; readers ignore the first, but take 0 for an idle thread.
    "threadCPUDelta": Seq(|| {
        let first = row.iter().next().map_or(0, |sample| sample.weight_ns);
        std::iter::once(first).chain(row.iter().map(|sample| sample.weight_ns))
    }),
    "length": row.samples.len() + 1,
});

#[cfg(test)]
mod tests {
    use super::*;
    use lightfoot_model::FrameId;

    #[test]
    fn positions_follow_a_depth_first_walk() {
        let mut stacks = StackTable::default();
        let mut add =
            |frames: &[u32]| stacks.intern(frames.iter().map(|&f| FrameId(f))).unwrap_or(StackId(0));
        let (a, x, ac, ab, acd) = (add(&[1]), add(&[9]), add(&[1, 3]), add(&[1, 2]), add(&[1, 3, 4]));
        let positions = depth_first_positions(&stacks);
        let of = |stack: StackId| positions[stack.0 as usize];
        assert_eq!([of(a), of(ac), of(acd), of(ab), of(x)], [0, 1, 2, 3, 4]);
        assert!(depth_first_positions(&StackTable::default()).is_empty());
    }
}
