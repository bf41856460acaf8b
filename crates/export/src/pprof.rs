//! pprof's protocol buffer, gzipped. Source of the messages: google/pprof, `proto/profile.proto`.
//!
//! Sample types `samples/count` and `cpu/nanoseconds`, and `off-cpu/nanoseconds` where time off the CPU was asked for; labels `thread` (the thread's name), `pid`, `tid`, and `outcome` where a stack is
//! not complete; unwind debt and ledger stand in the comments (`pprof -comments`). Inlined functions are lines of their caller's location,
//! as pprof has it. Frames of an interpreter belong to the mapping `[python]` or `[ruby]`, because no object holds their code. Loses the
//! other kinds of frames and why a frame has no name.
//!
//! Mappings have the range 0 to 0: then pprof takes addresses as those of the object's symbol table, which they are. Source:
//! google/pprof, `internal/elfexec/elfexec.go` (`GetBase`).
//!
//! A protocol buffer's repeated fields may come in any order and one by one, so the message is written piece by piece.

use crate::stream::buffered;
use crate::text::{self, TextOptions};
use flate2::Compression;
use flate2::write::GzEncoder;
use lightfoot_model::{Frame, FrameId, FrameKind, Profile, StackOutcome, StringId};
use prost::Message;
use std::collections::HashMap;
use std::io::{self, Write};

/// The messages of `profile.proto`, as far as they are written. Numbers of strings are indices into the string table.
mod proto {
    /// What a value means.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct ValueType {
        #[prost(int64, tag = "1")]
        pub r#type: i64,
        #[prost(int64, tag = "2")]
        pub unit: i64,
    }

    /// A stack, leaf first, with its values.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub value: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub label: Vec<Label>,
    }

    /// A string or a number that describes a sample.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct Label {
        #[prost(int64, tag = "1")]
        pub key: i64,
        #[prost(int64, tag = "2")]
        pub str: i64,
        #[prost(int64, tag = "3")]
        pub num: i64,
    }

    /// An executable or library.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct Mapping {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(int64, tag = "5")]
        pub filename: i64,
        #[prost(bool, tag = "7")]
        pub has_functions: bool,
        #[prost(bool, tag = "8")]
        pub has_filenames: bool,
        #[prost(bool, tag = "9")]
        pub has_line_numbers: bool,
        #[prost(bool, tag = "10")]
        pub has_inline_frames: bool,
    }

    /// An address, with the functions inlined there, innermost first.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct Location {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub mapping_id: u64,
        #[prost(uint64, tag = "3")]
        pub address: u64,
        #[prost(message, repeated, tag = "4")]
        pub line: Vec<Line>,
    }

    /// A line of a function.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct Line {
        #[prost(uint64, tag = "1")]
        pub function_id: u64,
        #[prost(int64, tag = "2")]
        pub line: i64,
    }

    /// A function.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct Function {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(int64, tag = "2")]
        pub name: i64,
        #[prost(int64, tag = "3")]
        pub system_name: i64,
        #[prost(int64, tag = "4")]
        pub filename: i64,
    }

    /// Any part of the whole: written many times, it adds up.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub sample: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub mapping: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub string_table: Vec<String>,
        #[prost(int64, tag = "9")]
        pub time_nanos: i64,
        #[prost(int64, tag = "10")]
        pub duration_nanos: i64,
        #[prost(message, optional, tag = "11")]
        pub period_type: Option<ValueType>,
        #[prost(int64, tag = "12")]
        pub period: i64,
        #[prost(int64, repeated, tag = "13")]
        pub comment: Vec<i64>,
        #[prost(int64, tag = "14")]
        pub default_sample_type: i64,
    }
}

/// Field numbers of `proto::Profile` for the parts that are written one by one.
mod field {
    pub const SAMPLE: u32 = 2;
    pub const LOCATION: u32 = 4;
    pub const FUNCTION: u32 = 5;
    pub const STRING_TABLE: u32 = 6;
}

/// Writes `profile`, gzipped.
///
/// # Errors
/// Those of the writer.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    buffered(out, |writer| {
        // Level 1 takes half the time of level 2 and a tenth more room.
        let mut gzip = GzEncoder::new(writer, Compression::fast());
        write_message(profile, &mut gzip)?;
        gzip.finish().map(|_| ())
    })
}

/// Writes the message itself, without gzip.
///
/// # Errors
/// Those of the writer.
pub fn write_message(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = Writer::new(profile, out);
    writer.run()?;
    writer.mappings()?;
    for sample in &profile.samples {
        writer.sample(sample)?;
    }
    writer.strings()
}

struct Writer<'p, 'w> {
    profile: &'p Profile,
    out: &'w mut dyn Write,
    buffer: Vec<u8>,
    /// Strings that the profile does not have; they follow its own in the table, whose entry 0 is the empty one in both.
    more_strings: Vec<String>,
    more_strings_index: HashMap<String, i64>,
    /// Mapping by the number of its name.
    mapping_of_name: HashMap<i64, u64>,
    function_of: HashMap<(StringId, StringId), u64>,
    /// Locations written.
    locations: u64,
    /// Location of each frame that has no inlined callee there; 0: not written yet.
    location_of_frame: Vec<u64>,
    /// Location by its frames, innermost first: inlined ones and the function that they are inlined into.
    location_of_group: HashMap<Box<[FrameId]>, u64>,
}

impl<'p, 'w> Writer<'p, 'w> {
    fn new(profile: &'p Profile, out: &'w mut dyn Write) -> Writer<'p, 'w> {
        Writer {
            profile,
            out,
            buffer: Vec::new(),
            more_strings: Vec::new(),
            more_strings_index: HashMap::new(),
            mapping_of_name: HashMap::new(),
            function_of: HashMap::new(),
            locations: 0,
            location_of_frame: vec![0; profile.frames.len()],
            location_of_group: HashMap::new(),
        }
    }

    fn string(&mut self, text: &str) -> i64 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&number) = self.more_strings_index.get(text) {
            return number;
        }
        let number = (self.profile.strings.len() + self.more_strings.len()) as i64;
        self.more_strings.push(text.to_owned());
        self.more_strings_index.insert(text.to_owned(), number);
        number
    }

    /// Writes one element of a repeated field of the whole.
    fn put(&mut self, field: u32, message: &impl Message) -> io::Result<()> {
        self.buffer.clear();
        prost::encoding::message::encode(field, message, &mut self.buffer);
        self.out.write_all(&self.buffer)
    }

    fn put_part(&mut self, part: proto::Profile) -> io::Result<()> {
        self.out.write_all(&part.encode_to_vec())
    }

    /// Everything that is there once: types, times, comments.
    fn run(&mut self) -> io::Result<()> {
        let meta = &self.profile.meta;
        let samples = proto::ValueType { r#type: self.string("samples"), unit: self.string("count") };
        let cpu = proto::ValueType { r#type: self.string("cpu"), unit: self.string("nanoseconds") };
        let off_cpu = meta
            .off_cpu
            .map(|_| proto::ValueType { r#type: self.string("off-cpu"), unit: self.string("nanoseconds") });
        let profile_has_cpu = self.profile.has_on_cpu();
        let mut comments = vec![meta.target.clone(), meta.command_line.clone()];
        comments.extend(meta.notes.iter().cloned());
        let mut paragraphs = Vec::new();
        text::stacks(self.profile, &mut paragraphs, &TextOptions::default())?;
        text::ledger(self.profile, &mut paragraphs, &TextOptions::default())?;
        comments.extend(String::from_utf8_lossy(&paragraphs).lines().map(str::to_owned));
        let comment = comments.iter().filter(|text| !text.is_empty()).map(|text| self.string(text)).collect();
        self.put_part(proto::Profile {
            // Of a run without samples of CPU time the first thing to see is the other.
            default_sample_type: off_cpu
                .as_ref()
                .filter(|_| !profile_has_cpu)
                .map_or(cpu.r#type, |off| off.r#type),
            sample_type: [samples, cpu.clone()].into_iter().chain(off_cpu).collect(),
            time_nanos: signed(meta.started_unix_ns),
            duration_nanos: signed(meta.duration_ns),
            period_type: Some(cpu),
            period: signed(meta.period_ns),
            comment,
            ..Default::default()
        })
    }

    /// One mapping per object and language; the first is the one that pprof shows as the main program.
    fn mappings(&mut self) -> io::Result<()> {
        let profile = self.profile;
        let mut names: Vec<(bool, i64)> = Vec::new();
        for frame in profile.frames.iter() {
            let name = self.mapping_name(frame);
            if name > 0 && !self.mapping_of_name.contains_key(&name) {
                self.mapping_of_name.insert(name, 0);
                let path = profile.strings.get(frame.object);
                let later = interpreted(frame.kind)
                    || path.starts_with('[')
                    || path.contains(".so")
                    || path.ends_with(".map");
                names.push((later, name));
            }
        }
        names.sort_by_key(|&(later, _)| later);
        for (number, (_, name)) in names.into_iter().enumerate() {
            let id = number as u64 + 1;
            self.mapping_of_name.insert(name, id);
            let mapping = proto::Mapping {
                id,
                filename: name,
                has_functions: true,
                has_filenames: true,
                has_line_numbers: true,
                has_inline_frames: true,
            };
            self.put_part(proto::Profile { mapping: vec![mapping], ..Default::default() })?;
        }
        Ok(())
    }

    /// Number of the name of the mapping that a frame belongs to; 0: none.
    fn mapping_name(&mut self, frame: &Frame) -> i64 {
        match frame.kind {
            FrameKind::Python => self.string("[python]"),
            FrameKind::Ruby => self.string("[ruby]"),
            _ => i64::from(frame.object.0),
        }
    }

    fn sample(&mut self, sample: &lightfoot_model::Sample) -> io::Result<()> {
        let profile = self.profile;
        let mut location_id = Vec::new();
        let mut group: Vec<FrameId> = Vec::new();
        let mut frames =
            sample.stack.into_iter().flat_map(|stack| profile.stacks.leaf_first(stack)).peekable();
        while let Some(id) = frames.next() {
            group.push(id);
            if profile.frames.get(id).kind != FrameKind::Inlined || frames.peek().is_none() {
                location_id.push(self.location(&group)?);
                group.clear();
            }
        }
        let mut label = Vec::new();
        if let Some(thread) = profile.threads.get(sample.thread.0 as usize) {
            if !thread.comm.is_empty() {
                label.push(proto::Label {
                    key: self.string("thread"),
                    str: self.string(&thread.comm),
                    num: 0,
                });
            }
            label.push(proto::Label { key: self.string("pid"), str: 0, num: thread.pid.into() });
            label.push(proto::Label { key: self.string("tid"), str: 0, num: thread.tid.into() });
        }
        if sample.outcome != StackOutcome::Complete {
            label.push(proto::Label {
                key: self.string("outcome"),
                str: self.string(sample.outcome.name()),
                num: 0,
            });
        }
        let weight = signed(sample.weight_ns);
        let value = match (profile.meta.off_cpu, sample.wait.is_none()) {
            (None, _) => vec![signed(sample.count), weight],
            (Some(_), true) => vec![signed(sample.count), weight, 0],
            (Some(_), false) => vec![signed(sample.count), 0, weight],
        };
        self.put(field::SAMPLE, &proto::Sample { location_id, value, label })
    }

    /// The number of the location of `group` (frames innermost first), written when it is new.
    fn location(&mut self, group: &[FrameId]) -> io::Result<u64> {
        let known = match group {
            [frame] => self.location_of_frame[frame.0 as usize],
            _ => self.location_of_group.get(group).copied().unwrap_or(0),
        };
        if known > 0 {
            return Ok(known);
        }
        self.locations += 1;
        let id = self.locations;
        match group {
            [frame] => self.location_of_frame[frame.0 as usize] = id,
            _ => _ = self.location_of_group.insert(group.into(), id),
        }
        let mut line = Vec::with_capacity(group.len());
        let (mut mapping_id, mut address) = (0, 0);
        for &frame in group {
            let frame = *self.profile.frames.get(frame);
            let name = self.mapping_name(&frame);
            mapping_id = self.mapping_of_name.get(&name).copied().unwrap_or(0);
            address = frame.address;
            line.push(proto::Line { function_id: self.function(&frame)?, line: frame.line.into() });
        }
        self.put(field::LOCATION, &proto::Location { id, mapping_id, address, line })?;
        Ok(id)
    }

    fn function(&mut self, frame: &Frame) -> io::Result<u64> {
        let (name, file) = (frame.name, frame.file);
        if let Some(&id) = self.function_of.get(&(name, file)) {
            return Ok(id);
        }
        let id = self.function_of.len() as u64 + 1;
        self.function_of.insert((name, file), id);
        let name = i64::from(name.0);
        // pprof takes what stands in angle brackets out of names that equal their system name, as it would for C++. Python's `<module>`
        // would be nothing. Source: google/pprof, `internal/symbolizer/symbolizer.go` (`demangleSingleFunction`).
        let system_name = if interpreted(frame.kind) { 0 } else { name };
        let function = proto::Function { id, name, system_name, filename: i64::from(file.0) };
        self.put(field::FUNCTION, &function)?;
        Ok(id)
    }

    fn strings(&mut self) -> io::Result<()> {
        let more = std::mem::take(&mut self.more_strings);
        for text in self.profile.strings.iter().chain(more.iter().map(String::as_str)) {
            self.buffer.clear();
            prost::encoding::encode_key(
                field::STRING_TABLE,
                prost::encoding::WireType::LengthDelimited,
                &mut self.buffer,
            );
            prost::encoding::encode_varint(text.len() as u64, &mut self.buffer);
            self.out.write_all(&self.buffer)?;
            self.out.write_all(text.as_bytes())?;
        }
        Ok(())
    }
}

/// Whether frames of this kind have no machine code of their own.
fn interpreted(kind: FrameKind) -> bool {
    matches!(kind, FrameKind::Python | FrameKind::Ruby)
}

/// pprof counts in signed numbers.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common;
    use std::collections::BTreeMap;
    use std::io::Read;

    fn read_back(profile: &Profile) -> proto::Profile {
        let mut out = Vec::new();
        write(profile, &mut out).unwrap();
        let mut message = Vec::new();
        flate2::read::GzDecoder::new(&out[..]).read_to_end(&mut message).unwrap();
        proto::Profile::decode(&message[..]).unwrap()
    }

    /// Names of a sample's lines, leaf first, `|` between locations.
    fn names(read: &proto::Profile, sample: &proto::Sample) -> String {
        let function_of = |id: u64| read.function.iter().find(|f| f.id == id).unwrap();
        let locations = sample.location_id.iter().map(|&id| {
            let location = read.location.iter().find(|location| location.id == id).unwrap();
            let names = location
                .line
                .iter()
                .map(|line| read.string_table[function_of(line.function_id).name as usize].as_str());
            names.collect::<Vec<_>>().join(" in ")
        });
        locations.collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn inlined_functions_are_lines_of_their_callers_location() {
        let read = read_back(&common::varied());
        let of = |number: usize| names(&read, &read.sample[number]);
        assert_eq!(of(0), "read64ne in lzma_memcmplen in lzma_mf_bt4_find | lzma_encode | main | _start");
        assert_eq!(of(2), "lzma_memcmplen in lzma_mf_bt4_find | lzma_encode | main | _start");
        assert_eq!(
            of(4),
            "fib(unsigned long) | fib(unsigned long) | fib(unsigned long) | fib(unsigned long) | main | _start"
        );
        let (native_in_python, ruby) = (of(6), of(9));
        assert_eq!(
            native_in_python,
            "scanstring | Handler.handle | <module> | _PyEval_EvalFrameDefault | _start"
        );
        assert_eq!(ruby, "Array#each | block in Report#rows | vm_exec_core | _start");
        assert_eq!(of(read.sample.len() - 1), "");
    }

    #[test]
    fn every_number_leads_somewhere_and_nothing_is_lost() {
        for profile in [common::no_samples(), common::varied(), common::hostile(), common::large(500)] {
            let read = read_back(&profile);
            let strings = &read.string_table;
            assert_eq!(strings[0], "");
            let text = |number: i64| strings[usize::try_from(number).unwrap()].as_str();
            let types: Vec<_> = read.sample_type.iter().map(|t| (text(t.r#type), text(t.unit))).collect();
            assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds")]);
            assert_eq!(text(read.default_sample_type), "cpu");
            assert_eq!(text(read.period_type.as_ref().unwrap().r#type), "cpu");
            assert_eq!(read.period, common::PERIOD_NS as i64);
            assert!(read.comment.iter().any(|&number| text(number).contains("fired")));
            assert_eq!(read.sample.len(), profile.samples.len());
            for (ids, what) in [
                (read.mapping.iter().map(|m| m.id).collect::<Vec<_>>(), "mapping"),
                (read.location.iter().map(|l| l.id).collect(), "location"),
                (read.function.iter().map(|f| f.id).collect(), "function"),
            ] {
                let mut ids = ids;
                ids.sort_unstable();
                assert!(ids.iter().copied().eq(1..=ids.len() as u64), "{what}");
            }
            let functions: BTreeMap<u64, &proto::Function> =
                read.function.iter().map(|f| (f.id, f)).collect();
            for location in &read.location {
                assert!(location.mapping_id as usize <= read.mapping.len());
                assert!(!location.line.is_empty());
                for line in &location.line {
                    let function = functions[&line.function_id];
                    let _ = (text(function.name), text(function.system_name), text(function.filename));
                }
            }
            for (read_sample, sample) in read.sample.iter().zip(&profile.samples) {
                assert_eq!(read_sample.value, [sample.count as i64, sample.weight_ns as i64]);
                assert!(read_sample.location_id.iter().all(|&id| id as usize <= read.location.len()));
                let thread = &profile.threads[sample.thread.0 as usize];
                let label = |key: &str| read_sample.label.iter().find(|label| text(label.key) == key);
                assert_eq!(label("tid").unwrap().num, i64::from(thread.tid));
                assert_eq!(label("pid").unwrap().num, i64::from(thread.pid));
                assert_eq!(label("thread").map_or("", |label| text(label.str)), thread.comm);
            }
        }
        let read = read_back(&common::varied());
        let mapping_of = |name: &str| {
            let function = read.function.iter().find(|f| read.string_table[f.name as usize] == name).unwrap();
            let location = read.location.iter().find(|l| l.line[0].function_id == function.id).unwrap();
            read.string_table[read.mapping[location.mapping_id as usize - 1].filename as usize].as_str()
        };
        assert_eq!((mapping_of("Handler.handle"), mapping_of("Array#each")), ("[python]", "[ruby]"));
        assert!(read.comment.iter().any(|&number| {
            let text = &read.string_table[number as usize];
            text.contains("libplugin.so") && text.contains("without unwind information")
        }));
        assert_eq!(
            read.string_table[read.mapping[0].filename as usize], "/usr/bin/xz",
            "the program comes first"
        );
    }
}
