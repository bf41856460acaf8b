//! speedscope's file format. Source: jlfwong/speedscope, `src/lib/file-format-spec.ts`; its schema is part of the npm package.
//!
//! The first profile is everything, then comes one per thread; weights are ns of CPU time. A frame is a function: its line is kept only
//! if all its samples agree on it. Where no source file is known the object stands for it. Loses counts, outcomes, the ledger, and the
//! kind of a frame.

use crate::stream::{Seq, buffered, json_object};
use lightfoot_model::{FrameKind, Profile, Sample, StringId};
use serde::{Serialize, Serializer};
use std::collections::HashMap;
use std::io::{self, Write};

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

/// The profile as speedscope sees it.
struct View<'p> {
    profile: &'p Profile,
    functions: Vec<Function>,
    /// Index into `functions`, for every frame.
    function_of_frame: Vec<u32>,
    /// Samples by thread: numbers of samples, those of one thread together.
    by_thread: Vec<u32>,
}

/// A frame of speedscope.
#[derive(Clone, Copy)]
struct Function {
    name: StringId,
    /// Source file or object.
    file: StringId,
    /// Line, if there is one and all agree.
    line: Option<u32>,
}

impl<'p> View<'p> {
    fn new(profile: &'p Profile) -> View<'p> {
        let mut functions: Vec<Function> = Vec::new();
        let mut index: HashMap<(StringId, StringId, StringId, FrameKind), u32> = HashMap::new();
        let function_of_frame = profile
            .frames
            .iter()
            .map(|frame| {
                let line = (frame.line > 0 && !frame.file.is_empty()).then_some(frame.line);
                let number =
                    *index.entry((frame.name, frame.file, frame.object, frame.kind)).or_insert_with(|| {
                        let file = if frame.file.is_empty() { frame.object } else { frame.file };
                        functions.push(Function { name: frame.name, file, line });
                        functions.len() as u32 - 1
                    });
                let function = &mut functions[number as usize];
                if function.line != line {
                    function.line = None;
                }
                number
            })
            .collect();
        let mut by_thread: Vec<u32> = (0..profile.samples.len() as u32).collect();
        by_thread.sort_by_key(|&sample| profile.samples[sample as usize].thread);
        View { profile, functions, function_of_frame, by_thread }
    }

    fn sample(&self, number: u32) -> &'p Sample {
        &self.profile.samples[number as usize]
    }

    fn all_samples(&self) -> Samples<'_> {
        Samples { view: self, numbers: None, name: "all threads".into() }
    }

    fn samples_by_thread(&self) -> impl Iterator<Item = Samples<'_>> {
        let same_thread = |&a: &u32, &b: &u32| self.sample(a).thread == self.sample(b).thread;
        self.by_thread.chunk_by(same_thread).map(|numbers| {
            let thread =
                numbers.first().and_then(|&n| self.profile.threads.get(self.sample(n).thread.0 as usize));
            let name = match thread {
                Some(t) if t.pid == t.tid => format!("{} (process {})", t.comm, t.pid),
                Some(t) => format!("{} (process {}, thread {})", t.comm, t.pid, t.tid),
                None => "unknown thread".into(),
            };
            Samples { view: self, numbers: Some(numbers), name }
        })
    }
}

json_object!(Document, view: View, {
    "$schema": "https://www.speedscope.app/file-format-schema.json",
    "exporter": format!("lightfoot {}", view.profile.meta.version),
    "name": view.profile.meta.target,
    "activeProfileIndex": 0,
    "shared": Shared(view),
    "profiles": Seq(|| std::iter::once(view.all_samples()).chain(view.samples_by_thread())),
});

json_object!(Shared, view: View, {
    "frames": Seq(|| view.functions.iter().map(|function| FunctionRow::new(view, function))),
});

#[derive(Serialize)]
struct FunctionRow<'p> {
    name: &'p str,
    #[serde(skip_serializing_if = "str::is_empty")]
    file: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

impl<'p> FunctionRow<'p> {
    fn new(view: &View<'p>, function: &Function) -> FunctionRow<'p> {
        let strings = &view.profile.strings;
        FunctionRow {
            name: strings.get(function.name),
            file: strings.get(function.file),
            line: function.line,
        }
    }
}

/// One profile: all samples, or those of one thread.
struct Samples<'v> {
    view: &'v View<'v>,
    /// `None`: all.
    numbers: Option<&'v [u32]>,
    name: String,
}

impl Samples<'_> {
    fn iter(&self) -> impl Iterator<Item = &Sample> {
        let all = self.numbers.is_none().then_some(&self.view.profile.samples);
        let some = self.numbers.unwrap_or_default().iter().map(|&number| self.view.sample(number));
        all.into_iter().flatten().chain(some)
    }
}

impl Serialize for Samples<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let profile = self.view.profile;
        let of_frame = &self.view.function_of_frame;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "sampled")?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("unit", "nanoseconds")?;
        map.serialize_entry("startValue", &0)?;
        map.serialize_entry("endValue", &self.iter().map(|sample| sample.weight_ns).sum::<u64>())?;
        map.serialize_entry(
            "samples",
            &Seq(|| {
                self.iter().map(|sample| {
                    let frames = sample.stack.map(|stack| profile.stacks.root_first(stack));
                    let frames = frames.unwrap_or_default().into_iter();
                    frames.map(|frame| of_frame[frame.0 as usize]).collect::<Vec<u32>>()
                })
            }),
        )?;
        map.serialize_entry("weights", &Seq(|| self.iter().map(|sample| sample.weight_ns)))?;
        map.end()
    }
}
