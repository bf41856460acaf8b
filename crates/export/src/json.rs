//! Everything that a profile knows, as JSON in lightfoot's own schema `lightfoot.profile/1`. Loses nothing.
//!
//! Fields and their units are described in `docs/formats.md`. Made for programs that read it field by field (`jq`), so each stack
//! carries its names; `frame_ids` lead to the rest.

use crate::stream::{Seq, buffered};
use lightfoot_model::{
    Accounting, Cost, Debt, FrameId, FrameKind, Meta, Profile, StackOutcome, Thread, Wait,
};
use serde::{Serialize, Serializer};
use std::io::{self, Write};

/// Name and version of the schema: the first field of the document.
pub const SCHEMA: &str = "lightfoot.profile/1";

/// Writes `profile`, followed by a newline.
///
/// # Errors
/// Those of the writer.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let frames = Seq(|| profile.frames.iter().map(|frame| FrameRow::new(profile, frame)));
    let stacks = Seq(|| profile.samples.iter().map(|sample| StackRow::new(profile, sample)));
    let document = Document {
        schema: SCHEMA,
        meta: &profile.meta,
        accounting: &profile.accounting,
        cost: &profile.cost,
        outcomes: outcomes(profile),
        debt: &profile.debt,
        threads: &profile.threads,
        frames,
        stacks,
    };
    buffered(out, |writer| {
        serde_json::to_writer(&mut *writer, &document)?;
        writer.write_all(b"\n")
    })
}

#[derive(Serialize)]
struct Document<'a, F: Serialize, S: Serialize> {
    schema: &'static str,
    meta: &'a Meta,
    accounting: &'a Accounting,
    cost: &'a Cost,
    outcomes: Vec<OutcomeRow>,
    debt: &'a [Debt],
    threads: &'a [Thread],
    frames: F,
    stacks: S,
}

/// How many stacks ended in one way.
#[derive(Serialize)]
struct OutcomeRow {
    outcome: StackOutcome,
    number: u8,
    sentence: &'static str,
    count: u64,
    weight_ns: u64,
}

/// The outcomes that occur, in numeric order.
fn outcomes(profile: &Profile) -> Vec<OutcomeRow> {
    let mut rows: Vec<OutcomeRow> = StackOutcome::ALL
        .into_iter()
        .map(|outcome| OutcomeRow {
            outcome,
            number: outcome as u8,
            sentence: outcome.sentence(),
            count: 0,
            weight_ns: 0,
        })
        .collect();
    for sample in &profile.samples {
        let row = &mut rows[sample.outcome as usize];
        row.count += sample.count;
        row.weight_ns += sample.weight_ns;
    }
    rows.retain(|row| row.count > 0);
    rows
}

#[derive(Serialize)]
struct FrameRow<'a> {
    name: &'a str,
    file: &'a str,
    line: u32,
    object: &'a str,
    address: Address,
    kind: FrameKind,
    note: &'a str,
}

impl<'a> FrameRow<'a> {
    fn new(profile: &'a Profile, frame: &lightfoot_model::Frame) -> FrameRow<'a> {
        FrameRow {
            name: profile.strings.get(frame.name),
            file: profile.strings.get(frame.file),
            line: frame.line,
            object: profile.strings.get(frame.object),
            address: Address(frame.address),
            kind: frame.kind,
            note: profile.strings.get(frame.note),
        }
    }
}

/// A hexadecimal string, because JSON readers lose digits of numbers above 2^53; empty if not known.
struct Address(u64);

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            0 => serializer.serialize_str(""),
            address => serializer.collect_str(&format_args!("{address:#x}")),
        }
    }
}

struct StackRow<'a> {
    profile: &'a Profile,
    sample: &'a lightfoot_model::Sample,
}

impl<'a> StackRow<'a> {
    fn new(profile: &'a Profile, sample: &'a lightfoot_model::Sample) -> StackRow<'a> {
        StackRow { profile, sample }
    }
}

impl Serialize for StackRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Row<'a, N: Serialize> {
            frames: N,
            frame_ids: &'a [FrameId],
            weight_ns: u64,
            count: u64,
            pid: u32,
            tid: u32,
            comm: &'a str,
            outcome: StackOutcome,
            #[serde(skip_serializing_if = "Wait::is_none")]
            wait: Wait,
        }
        let StackRow { profile, sample } = self;
        let frame_ids = sample.stack.map(|stack| profile.stacks.root_first(stack)).unwrap_or_default();
        let thread = profile.threads.get(sample.thread.0 as usize);
        Row {
            frames: Seq(|| frame_ids.iter().map(|&id| profile.frame_name(id))),
            frame_ids: &frame_ids,
            weight_ns: sample.weight_ns,
            count: sample.count,
            pid: thread.map_or(0, |t| t.pid),
            tid: thread.map_or(0, |t| t.tid),
            comm: thread.map_or("", |t| &t.comm),
            outcome: sample.outcome,
            wait: sample.wait,
        }
        .serialize(serializer)
    }
}
