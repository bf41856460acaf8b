//! Tables and the ledger for people, at any width from 40 columns.
//!
//! Loses stacks: only what functions add up to is shown.

mod stacks;

use crate::names::{printable, short_object, shorten_middle, width};
use crate::stream::buffered;
use crate::units::{bytes, count, counted, percent, share, share_text, time, time_ns};
use lightfoot_model::{BudgetAccount, FrameKind, FunctionTotals, OffCpu, Profile, StringId, Wait};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// How text is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextOptions {
    /// Whether to use terminal colours. The caller knows about terminals and `NO_COLOR`.
    pub color: bool,
    /// Columns of a line; less than 40 counts as 40.
    pub width: usize,
    /// Functions in the first table; the second has half as many. 0: no tables.
    pub rows: usize,
}

impl Default for TextOptions {
    /// 100 columns, 20 rows, no colour.
    fn default() -> Self {
        TextOptions { color: false, width: 100, rows: 20 }
    }
}

/// The narrowest layout.
const MIN_WIDTH: usize = 40;
/// Lines of prose are not longer than this, however wide the terminal is.
const MAX_PROSE_WIDTH: usize = 110;
/// Blanks before everything below a heading.
const INDENT: usize = 2;

/// Writes header, tables, how whole the stacks are, notes, and the ledger.
///
/// # Errors
/// Those of the writer.
pub fn write(profile: &Profile, out: &mut dyn Write, options: &TextOptions) -> io::Result<()> {
    buffered(out, |writer| {
        let mut page = Page::new(writer, options);
        page.header(profile)?;
        page.tables(profile, options.rows)?;
        page.stacks(profile)?;
        page.notes(profile)?;
        page.ledger(profile)
    })
}

/// Writes the ledger alone: what became of each firing, and what the run cost.
///
/// # Errors
/// Those of the writer.
pub fn ledger(profile: &Profile, out: &mut dyn Write, options: &TextOptions) -> io::Result<()> {
    buffered(out, |writer| Page::new(writer, options).ledger(profile))
}

/// Writes how whole the stacks are, alone: nothing where there are no samples.
///
/// # Errors
/// Those of the writer.
pub(crate) fn stacks(profile: &Profile, out: &mut dyn Write, options: &TextOptions) -> io::Result<()> {
    buffered(out, |writer| Page::new(writer, options).stacks(profile))
}

/// All time off the CPU by reason, sampled or not.
fn blocked(off_cpu: &OffCpu) -> String {
    let reasons = Wait::ALL.into_iter().filter(|&wait| off_cpu.waits[wait as usize] > 0).map(|wait| {
        let (ns, waits) = (off_cpu.blocked_ns[wait as usize], off_cpu.waits[wait as usize]);
        format!("{} {} in {}", wait.frame(), time_ns(ns), counted(waits, "wait"))
    });
    let text = format!("Threads were off the CPU for {}", time_ns(off_cpu.total_ns()));
    reasons.fold(text, |text, reason| text + ", " + &reason)
}

/// `fired 1,012 = recorded 990 + filtered 12 + ...`, in one line, with the reasons of failures.
pub(crate) fn identity(profile: &Profile) -> String {
    let a = &profile.accounting;
    let mut text = format!(
        "fired {} = recorded {} + filtered {} + throttled {} + lost {} + failed {}",
        count(a.fired),
        count(a.recorded),
        count(a.filtered),
        count(a.throttled),
        count(a.lost),
        count(a.failed)
    );
    if !a.reasons.is_empty() {
        let reasons: Vec<String> =
            a.reasons.iter().map(|(reason, number)| format!("{reason} {}", count(*number))).collect();
        text.push_str(&format!(" ({})", reasons.join(", ")));
    }
    text
}

/// A colour with a meaning; never the only carrier of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Strong,
    Faint,
    Alarm,
    Kind(FrameKind),
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Style::Plain | Style::Kind(FrameKind::Native) => "",
            Style::Strong => "1",
            Style::Faint | Style::Kind(FrameKind::Unknown) => "2",
            Style::Alarm => "1;31",
            Style::Kind(FrameKind::Kernel) => "33",
            Style::Kind(FrameKind::Inlined) => "36",
            Style::Kind(FrameKind::Jit) => "32",
            Style::Kind(FrameKind::Python | FrameKind::Ruby) => "35",
        }
    }

    /// Hot functions stand out.
    fn of_share(percent: f64) -> Style {
        match percent {
            p if p >= 10.0 => Style::Alarm,
            p if p >= 1.0 => Style::Strong,
            _ => Style::Plain,
        }
    }
}

/// The mark after a name that says what kind of code it is; none for native code.
fn mark(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Native => "",
        FrameKind::Kernel => "[k]",
        FrameKind::Inlined => "[i]",
        FrameKind::Jit => "[j]",
        FrameKind::Python => "[py]",
        FrameKind::Ruby => "[rb]",
        FrameKind::Unknown => "[?]",
    }
}

/// By which of a function's two figures a table is sorted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    OwnTime,
    Total,
}

struct Page<'w> {
    out: &'w mut dyn Write,
    color: bool,
    width: usize,
    /// Whether nothing was written yet: the first heading has no empty line above it.
    empty: bool,
}

impl<'w> Page<'w> {
    fn new(out: &'w mut dyn Write, options: &TextOptions) -> Page<'w> {
        Page { out, color: options.color, width: options.width.max(MIN_WIDTH), empty: true }
    }

    fn styled(&mut self, style: Style, text: &str) -> io::Result<()> {
        match style.code() {
            "" => self.out.write_all(text.as_bytes()),
            _ if !self.color || text.is_empty() => self.out.write_all(text.as_bytes()),
            code => write!(self.out, "\x1b[{code}m{text}\x1b[0m"),
        }
    }

    fn heading(&mut self, text: &str) -> io::Result<()> {
        if !std::mem::take(&mut self.empty) {
            self.out.write_all(b"\n")?;
        }
        self.styled(Style::Strong, text)?;
        self.out.write_all(b"\n")
    }

    /// `text` broken at blanks; the first line starts in column `start` (already written), the others in column `indent`.
    fn prose(&mut self, style: Style, text: &str, start: usize, indent: usize) -> io::Result<()> {
        let limit = self.width.min(MAX_PROSE_WIDTH);
        let mut column = start;
        let mut line = String::new();
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            let word = shorten_middle(word, limit.saturating_sub(indent));
            let needed = width(&word) + usize::from(!line.is_empty());
            if column + needed > limit && column > indent {
                self.styled(style, &line)?;
                write!(self.out, "\n{:indent$}", "")?;
                line.clear();
                column = indent;
            }
            if !line.is_empty() {
                line.push(' ');
                column += 1;
            }
            column += width(&word);
            line.push_str(&word);
        }
        self.styled(style, &line)?;
        self.out.write_all(b"\n")
    }

    fn header(&mut self, profile: &Profile) -> io::Result<()> {
        let meta = &profile.meta;
        self.empty = false;
        self.prose(Style::Strong, &printable(&meta.target), 0, INDENT)?;
        let samples = profile.total_count();
        let weight = profile.total_weight_ns();
        let what = match &meta.off_cpu {
            None => format!(
                "{} of CPU time, {} of one CPU",
                time_ns(weight),
                percent(share(weight, meta.duration_ns))
            ),
            Some(_) => {
                let on = profile.samples.iter().filter(|s| s.wait.is_none()).map(|s| s.weight_ns).sum();
                let off = format!("{} off the CPU", time_ns(weight.saturating_sub(on)));
                if on > 0 { format!("{} of CPU time and {off}", time_ns(on)) } else { off }
            }
        };
        let text = format!(
            "{} in {} at {} Hz per CPU ({}, {}): {what}",
            counted(samples, "sample"),
            time_ns(meta.duration_ns),
            count(meta.rate_hz),
            meta.clock.name(),
            counted(meta.cpus.into(), "CPU"),
        );
        if let Some(off_cpu) = &meta.off_cpu {
            self.prose(Style::Plain, &text, 0, 0)?;
            return self.prose(Style::Plain, &blocked(off_cpu), 0, 0);
        }
        self.prose(Style::Plain, &text, 0, 0)
    }

    fn tables(&mut self, profile: &Profile, rows: usize) -> io::Result<()> {
        if rows == 0 {
            return Ok(());
        }
        if profile.samples.is_empty() {
            let a = &profile.accounting;
            let nothing = match a.fired == a.filtered {
                true => "No samples: nothing of the target ran on a CPU.",
                false => "No samples: the ledger says what became of them.",
            };
            self.out.write_all(b"\n")?;
            return self.prose(Style::Plain, nothing, 0, 0);
        }
        let mut functions = profile.functions();
        let own = functions.iter().take_while(|f| f.self_count > 0).count();
        self.table(profile, "Top functions by own time", &functions[..own.min(rows)], By::OwnTime)?;
        let rest = &functions[own.min(rows)..own];
        if !rest.is_empty() {
            let text = format!(
                "and {} with {} together",
                counted(rest.len() as u64, "more function"),
                share_text(rest.iter().map(|f| f.self_ns).sum(), profile.total_weight_ns())
            );
            write!(self.out, "{:INDENT$}", "")?;
            self.prose(Style::Faint, &text, INDENT, INDENT)?;
        }
        functions.sort_by(|a, b| {
            (b.total_ns, b.self_ns)
                .cmp(&(a.total_ns, a.self_ns))
                .then_with(|| profile.strings.get(a.name).cmp(profile.strings.get(b.name)))
        });
        functions.truncate(rows.div_ceil(2));
        let title = match self.width {
            ..60 => "Top functions by total time",
            _ => "Top functions by total time, with all that they called",
        };
        self.table(profile, title, &functions, By::Total)?;
        self.legend(profile)
    }

    fn table(
        &mut self,
        profile: &Profile,
        title: &str,
        functions: &[FunctionTotals],
        by: By,
    ) -> io::Result<()> {
        if functions.is_empty() {
            return Ok(());
        }
        self.heading(title)?;
        let whole = profile.total_weight_ns();
        let samples_of = |f: &FunctionTotals| if by == By::OwnTime { f.self_count } else { f.total_count };
        let columns = Columns::fit(self.width, profile, functions, samples_of);

        let mut head = String::new();
        let pair = if columns.times { 8 + 11 } else { 8 };
        let (first, second) = if by == By::OwnTime { ("own", "total") } else { ("total", "own") };
        head.push_str(&format!("{first:>pair$}{second:>pair$}"));
        if columns.samples > 0 {
            head.push_str(&format!("{:>1$}", "samples", columns.samples));
        }
        head.push_str(&format!("  {:1$}", "function", columns.name));
        if columns.object > 0 {
            head.push_str("  object");
        }
        self.styled(Style::Faint, head.trim_end())?;
        self.out.write_all(b"\n")?;

        for function in functions {
            let own = function.self_ns;
            let total = function.total_ns;
            let (first, second) = if by == By::OwnTime { (own, total) } else { (total, own) };
            for (ns, style) in [(first, Style::of_share(share(first, whole))), (second, Style::Plain)] {
                self.styled(style, &format!("{:>8}", share_text(ns, whole)))?;
                if columns.times {
                    self.styled(Style::Plain, &format!("{:>11}", time_ns(ns)))?;
                }
            }
            if columns.samples > 0 {
                write!(self.out, "{:>1$}", count(samples_of(function)), columns.samples)?;
            }
            self.out.write_all(b"  ")?;
            let printed = self.name(profile, function, columns.name)?;
            if columns.object > 0 && !function.object.is_empty() {
                let object = printable(short_object(profile.strings.get(function.object)));
                write!(self.out, "{:1$}  ", "", columns.name.saturating_sub(printed))?;
                self.styled(Style::Faint, &shorten_middle(&object, columns.object))?;
            }
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// The name with its mark in at most `columns` columns; returns how many it took.
    fn name(&mut self, profile: &Profile, function: &FunctionTotals, columns: usize) -> io::Result<usize> {
        let name = shown_name(profile, function);
        let mark = mark(function.kind);
        let room = if mark.is_empty() { columns } else { columns.saturating_sub(width(mark) + 1) };
        let name = shorten_middle(&name, room);
        let style = Style::Kind(function.kind);
        self.styled(style, &name)?;
        if mark.is_empty() {
            return Ok(width(&name));
        }
        self.out.write_all(b" ")?;
        self.styled(style, mark)?;
        Ok(width(&name) + 1 + width(mark))
    }

    /// What the marks mean (those that occur), why frames have no name, and how exact the shares are.
    fn legend(&mut self, profile: &Profile) -> io::Result<()> {
        let occurs = |kind| profile.frames.iter().any(|frame| frame.kind == kind);
        let mut parts: Vec<String> = [
            (FrameKind::Kernel, "kernel"),
            (FrameKind::Inlined, "inlined"),
            (FrameKind::Jit, "made at run time"),
            (FrameKind::Python, "Python"),
            (FrameKind::Ruby, "Ruby"),
            (FrameKind::Unknown, "no name found"),
        ]
        .into_iter()
        .filter(|&(kind, _)| occurs(kind))
        .map(|(kind, meaning)| format!("{} {meaning}", mark(kind)))
        .collect();
        let reasons = unnamed_reasons(profile);
        if !reasons.is_empty()
            && let Some(last) = parts.last_mut()
        {
            last.push_str(&format!(": {reasons}"));
        }
        self.out.write_all(b"\n")?;
        if !parts.is_empty() {
            self.prose(Style::Faint, &parts.join(", "), 0, 0)?;
        }
        // Normal approximation of a share p of n samples: +-1.96 sqrt(p (1 - p) / n).
        let samples = profile.total_count();
        let error = |p: f64| 196.0 * (p * (1.0 - p) / samples.max(1) as f64).sqrt();
        if samples >= 30 {
            let text = format!(
                "{}: a share of 50 % is exact to {:.1} points, one of 5 % to {:.1} (95 % confidence)",
                counted(samples, "sample"),
                error(0.5),
                error(0.05)
            );
            self.prose(Style::Faint, &text, 0, 0)?;
        }
        Ok(())
    }

    fn notes(&mut self, profile: &Profile) -> io::Result<()> {
        if profile.meta.notes.is_empty() {
            return Ok(());
        }
        self.heading("Notes")?;
        for note in &profile.meta.notes {
            self.out.write_all(b"  - ")?;
            self.prose(Style::Plain, &printable(note), INDENT + 2, INDENT + 2)?;
        }
        Ok(())
    }

    fn ledger(&mut self, profile: &Profile) -> io::Result<()> {
        let a = &profile.accounting;
        self.heading("Ledger")?;
        self.indented(Style::Plain, &identity(profile))?;
        if !a.balanced() {
            self.indented(Style::Alarm, "these figures do not add up: please report this")?;
        }
        let wanted = a.recorded.saturating_add(a.throttled).saturating_add(a.lost).saturating_add(a.failed);
        for (number, what) in [
            (a.lost, "lost because a buffer was full"),
            (a.throttled, "held back to keep the budget"),
            (a.failed, "failed"),
        ] {
            if number > 0 {
                let text = format!(
                    "{} {what}: {} of the {} wanted",
                    count(number),
                    percent(share(number, wanted)),
                    count(wanted)
                );
                self.indented(Style::Alarm, &text)?;
            }
        }
        self.cost(profile)
    }

    fn indented(&mut self, style: Style, text: &str) -> io::Result<()> {
        write!(self.out, "{:INDENT$}", "")?;
        self.prose(style, text, INDENT, INDENT + 2)
    }

    fn cost(&mut self, profile: &Profile) -> io::Result<()> {
        let cost = &profile.cost;
        let recorded = profile.accounting.recorded;
        let each = |ns: u64| match recorded {
            0 => String::new(),
            samples => format!("{} per sample", time(ns as f64 / samples as f64)),
        };
        let interrupts = if cost.interrupt_calibrated {
            format!(
                "{} x {}, measured on this machine",
                count(cost.interrupts),
                time_ns(cost.interrupt_each_ns)
            )
        } else {
            format!("{}, price not measured in this run: counted as 0", count(cost.interrupts))
        };
        let phases: Vec<String> =
            cost.phases.iter().map(|phase| format!("{} {}", phase.phase, time_ns(phase.cpu_ns))).collect();
        let mut total = each(cost.total_ns);
        if !total.is_empty() {
            total.push_str("; ");
        }
        total.push_str(&format!(
            "{} of one CPU over the run of {}, {} while sampling",
            percent(cost.percent_of_one_cpu),
            time_ns(profile.meta.duration_ns),
            percent(cost.running_percent_of_one_cpu)
        ));
        let interrupt_time =
            if cost.interrupt_calibrated { time_ns(cost.interrupt_ns) } else { "unknown".into() };
        let maps = format!("peak of this process, and {} of BPF maps", bytes(cost.bpf_map_bytes));
        let first = format!(
            "from launch to the first sample, and {} of CPU time until then",
            time_ns(cost.first_sample_cpu_ns)
        );
        let mut programs = each(cost.bpf_ns);
        if cost.bpf_sample_p50_ns > 0 {
            programs.push_str(&format!(
                "; half of the samples at most {}, 99 of 100 at most {}",
                time_ns(cost.bpf_sample_p50_ns),
                time_ns(cost.bpf_sample_p99_ns)
            ));
        }
        let rows = [
            ("interrupts", interrupt_time, interrupts),
            ("BPF programs", time_ns(cost.bpf_ns), programs),
            ("user space", time_ns(cost.user_ns), phases.join(", ")),
            ("total", time_ns(cost.total_ns), total),
            ("memory", bytes(cost.peak_rss_bytes), maps),
        ];
        self.heading("Cost of looking, in CPU time")?;
        let started = cost.first_sample_wall_ns > 0;
        let first = started.then(|| ("start", time_ns(cost.first_sample_wall_ns), first));
        let budget = cost.budget.as_ref().map(|b| ("budget", time_ns(b.ns_per_s), budget_in_words(b)));
        for (label, value, detail) in rows.into_iter().chain(first).chain(budget) {
            let figures = format!("  {label:12}  {value:>9}");
            let style = if label == "total" { Style::Strong } else { Style::Plain };
            self.styled(style, &figures)?;
            let column = width(&figures) + 2;
            if detail.is_empty() {
                self.out.write_all(b"\n")?;
            } else if self.width < column + 30 {
                // No room beside the figures: below them.
                write!(self.out, "\n    ")?;
                self.prose(Style::Faint, &detail, 4, 4)?;
            } else {
                self.out.write_all(b"  ")?;
                self.prose(Style::Faint, &detail, column, column)?;
            }
        }
        Ok(())
    }
}

/// How the budget was kept, and what was held back for it.
fn budget_in_words(budget: &BudgetAccount) -> String {
    let of_one_cpu = |ns: u64, per: f64| percent(ns as f64 / per * 100.0);
    let mut text = format!("per second, {} of one CPU", of_one_cpu(budget.ns_per_s, 1e9));
    match budget.windows {
        0 => text.push_str("; the run was too short for a window of ten seconds"),
        windows => text.push_str(&format!(
            "; {} of {} of ten seconds cost more, the dearest {}",
            count(budget.windows_over),
            counted(windows, "window"),
            of_one_cpu(budget.dearest_window_ns, 10e9)
        )),
    }
    if !budget.held_back.is_empty() {
        let sentences: Vec<Cow<str>> =
            budget.held_back.iter().map(|held| printable(&held.sentence)).collect();
        text.push_str(&format!("; held back: {}", sentences.join(", ")));
    }
    if budget.samples_not_taken > 0 {
        text.push_str(&format!("; {} not taken", counted(budget.samples_not_taken, "sample")));
    }
    text
}

/// Which columns a table has at a width, and how wide they are; 0: left out.
struct Columns {
    times: bool,
    samples: usize,
    name: usize,
    object: usize,
}

impl Columns {
    fn fit(
        page_width: usize,
        profile: &Profile,
        functions: &[FunctionTotals],
        samples_of: impl Fn(&FunctionTotals) -> u64,
    ) -> Columns {
        let widest = |of: &dyn Fn(&FunctionTotals) -> usize| functions.iter().map(of).max().unwrap_or(0);
        let times = page_width >= 76;
        let samples = match page_width {
            ..50 => 0,
            _ => widest(&|f| width(&count(samples_of(f)))).max("samples".len()) + 2,
        };
        let left = page_width - (if times { 38 } else { 16 }) - samples - 2;
        let longest_name = widest(&|f| {
            let mark = mark(f.kind);
            width(&printable(profile.strings.get(f.name))) + if mark.is_empty() { 0 } else { width(mark) + 1 }
        })
        .max("function".len());
        let longest_object =
            widest(&|f| width(&printable(short_object(profile.strings.get(f.object))))).max("object".len());
        // The object gets a third of what is left, and more if the names leave it.
        let object = match page_width {
            ..64 => 0,
            _ => longest_object.min((left / 3).max(left.saturating_sub(longest_name + 2))),
        };
        let gap = if object > 0 { object + 2 } else { 0 };
        Columns { times, samples, name: longest_name.min(left - gap), object }
    }
}

/// The function's name; never empty.
fn shown_name<'p>(profile: &'p Profile, function: &FunctionTotals) -> Cow<'p, str> {
    match profile.strings.get(function.name).trim() {
        "" => Cow::Borrowed("[no name]"),
        name => printable(name),
    }
}

/// Why frames have no name, the most frequent reason first, in samples whose own function it is: `no symbol table (12.3 %)`.
fn unnamed_reasons(profile: &Profile) -> String {
    let mut by_reason: BTreeMap<StringId, u64> = BTreeMap::new();
    for sample in &profile.samples {
        let Some(stack) = sample.stack else { continue };
        let frame = profile.frames.get(profile.stacks.get(stack).1);
        if frame.kind == FrameKind::Unknown && !frame.note.is_empty() {
            *by_reason.entry(frame.note).or_default() += sample.weight_ns;
        }
    }
    let mut reasons: Vec<(StringId, u64)> = by_reason.into_iter().collect();
    reasons.sort_by_key(|&(reason, weight)| (std::cmp::Reverse(weight), reason));
    let whole = profile.total_weight_ns();
    let texts: Vec<String> = reasons
        .iter()
        .take(3)
        .map(|&(reason, weight)| {
            format!(
                "{} ({} of own time)",
                printable(profile.strings.get(reason)),
                percent(share(weight, whole))
            )
        })
        .collect();
    texts.join(", ")
}
