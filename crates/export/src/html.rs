//! One self-contained page: the viewer in `assets/page.html` with the profile inside as JSON (`lightfoot.page/1`).
//!
//! Loses addresses (the page has no use for them); keeps everything else.

use crate::stream::{Seq, buffered};
use lightfoot_model::{Accounting, Cost, Debt, Frame, FrameKind, Meta, Profile, StackOutcome, Thread};
use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;
use std::io::{self, Write};

/// Name and version of the schema of the data inside the page.
pub const SCHEMA: &str = "lightfoot.page/1";

/// The viewer, bundled from `ui/`.
const PAGE: &str = include_str!("../assets/page.html");
/// Where the profile goes.
const PROFILE_MARK: &str = "/*LIGHTFOOT_PROFILE*/";
/// Where the title goes.
const TITLE_MARK: &str = "<!--LIGHTFOOT_TITLE-->";

/// Writes `profile` as a page.
///
/// # Errors
/// Those of the writer.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let (before, after) = PAGE.split_once(PROFILE_MARK).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "the page has no place for the profile: rebuild it")
    })?;
    let title = escape_html(&format!("{} - lightfoot", profile.meta.target));
    buffered(out, |writer| {
        write_with_title(writer, before, &title)?;
        write_data(profile, writer)?;
        write_with_title(writer, after, &title)
    })
}

/// Writes the data of the page alone, as it stands inside the page.
///
/// # Errors
/// Those of the writer.
pub fn write_data(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(out, ScriptSafe);
    Page(profile).serialize(&mut serializer).map_err(io::Error::from)
}

fn write_with_title(out: &mut dyn Write, text: &str, title: &str) -> io::Result<()> {
    for (number, part) in text.split(TITLE_MARK).enumerate() {
        if number > 0 {
            out.write_all(title.as_bytes())?;
        }
        out.write_all(part.as_bytes())?;
    }
    Ok(())
}

fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if c.is_control() => escaped.push('\u{FFFD}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// JSON that can stand inside a `<script>` element: `</script>` and `<!--` in a name cannot end it, and the two line separators that
/// older script engines reject in strings are escaped.
struct ScriptSafe;

impl Formatter for ScriptSafe {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(['<', '\u{2028}', '\u{2029}']) {
            writer.write_all(&rest.as_bytes()[..at])?;
            let c = rest[at..].chars().next().unwrap_or('<');
            write!(writer, "\\u{:04x}", u32::from(c))?;
            rest = &rest[at + c.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

struct Page<'a>(&'a Profile);

impl Serialize for Page<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let profile = self.0;
        #[derive(Serialize)]
        struct Document<'a, T: Serialize, F: Serialize, K: Serialize, A: Serialize> {
            schema: &'static str,
            meta: &'a Meta,
            strings: T,
            frames: F,
            stacks: K,
            threads: &'a [Thread],
            samples: A,
            outcomes: [OutcomeRow; StackOutcome::ALL.len()],
            debt: &'a [Debt],
            accounting: &'a Accounting,
            cost: &'a Cost,
        }
        Document {
            schema: SCHEMA,
            meta: &profile.meta,
            strings: Seq(|| profile.strings.iter()),
            frames: Frames(profile),
            stacks: Stacks(profile),
            threads: &profile.threads,
            samples: Samples(profile),
            outcomes: StackOutcome::ALL
                .map(|outcome| OutcomeRow { name: outcome.name(), sentence: outcome.sentence() }),
            debt: &profile.debt,
            accounting: &profile.accounting,
            cost: &profile.cost,
        }
        .serialize(serializer)
    }
}

/// What the number of an outcome means; its position is its number.
#[derive(Serialize)]
struct OutcomeRow {
    name: &'static str,
    sentence: &'static str,
}

/// Columns of the frame table. Texts are indices into `strings`.
struct Frames<'a>(&'a Profile);

impl Serialize for Frames<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Columns<A: Serialize, B: Serialize, C: Serialize, D: Serialize, E: Serialize, F: Serialize> {
            name: A,
            file: B,
            line: C,
            object: D,
            kind: E,
            note: F,
        }
        let frames = &self.0.frames;
        Columns {
            name: Seq(|| frames.iter().map(|f| f.name)),
            file: Seq(|| frames.iter().map(|f| f.file)),
            line: Seq(|| frames.iter().map(|f| f.line)),
            object: Seq(|| frames.iter().map(|f| f.object)),
            kind: Seq(|| frames.iter().map(kind_number)),
            note: Seq(|| frames.iter().map(|f| f.note)),
        }
        .serialize(serializer)
    }
}

/// The number of a kind in the page's data: 0 native, 1 kernel, 2 inlined, 3 JIT, 4 unknown, 5 Python, 6 Ruby.
fn kind_number(frame: &Frame) -> u8 {
    match frame.kind {
        FrameKind::Native => 0,
        FrameKind::Kernel => 1,
        FrameKind::Inlined => 2,
        FrameKind::Jit => 3,
        FrameKind::Unknown => 4,
        FrameKind::Python => 5,
        FrameKind::Ruby => 6,
    }
}

/// Columns of the stack table: row of the parent (-1: none) and frame.
struct Stacks<'a>(&'a Profile);

impl Serialize for Stacks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Columns<A: Serialize, B: Serialize> {
            parent: A,
            frame: B,
        }
        let stacks = &self.0.stacks;
        Columns {
            parent: Seq(|| stacks.iter().map(|(parent, _)| parent.map_or(-1, |p| i64::from(p.0)))),
            frame: Seq(|| stacks.iter().map(|(_, frame)| frame)),
        }
        .serialize(serializer)
    }
}

/// Columns of the samples: row of the stack (-1: no frame known), thread, count, weight and number of the outcome.
struct Samples<'a>(&'a Profile);

impl Serialize for Samples<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Columns<A: Serialize, B: Serialize, C: Serialize, D: Serialize, E: Serialize> {
            stack: A,
            thread: B,
            count: C,
            weight_ns: D,
            outcome: E,
        }
        let samples = &self.0.samples;
        Columns {
            stack: Seq(|| samples.iter().map(|s| s.stack.map_or(-1, |stack| i64::from(stack.0)))),
            thread: Seq(|| samples.iter().map(|s| s.thread)),
            count: Seq(|| samples.iter().map(|s| s.count)),
            weight_ns: Seq(|| samples.iter().map(|s| s.weight_ns)),
            outcome: Seq(|| samples.iter().map(|s| s.outcome as u8)),
        }
        .serialize(serializer)
    }
}
