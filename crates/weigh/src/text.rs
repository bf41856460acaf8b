//! The ladder as a table for a terminal.

use crate::report::{Report, Row};
use std::io::{self, Write};

/// Below so many columns the share of the base is left out.
const NARROW: usize = 73;
/// Columns of the names.
const NAMES: usize = 22;

/// Writes the table, for a terminal of `width` columns.
///
/// # Errors
/// Those of the writer.
pub fn write(report: &Report, out: &mut dyn Write, width: usize) -> io::Result<()> {
    let width = width.max(40);
    let percent = width >= NARROW;
    for line in wrapped(&report.machine.line(), width) {
        writeln!(out, "{line}")?;
    }
    for line in wrapped(&circumstances(report), width) {
        writeln!(out, "{line}")?;
    }
    let share = if percent { format!("{:>11}", "+ %") } else { String::new() };
    writeln!(out, "\n{:NAMES$}{:>8}{:>16}{share}{:>8}{:>8}", "", "+ ns", "95 %", "kernel", "model")?;
    for group in groups(&report.rows) {
        write_group(group, out, width, percent)?;
    }
    notes(report, out, width)
}

/// Rows of one kind of probe at one site.
pub(crate) fn groups(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    rows.chunk_by(|a, b| (a.probe, a.site) == (b.probe, b.site))
}

/// How it was measured, and how quiet the machine was.
pub(crate) fn circumstances(report: &Report) -> String {
    let mut text = format!("measured for {} s", number(report.seconds));
    if report.quick {
        text.push_str(", roughly");
    }
    if let Some(spread) = report.noise.base_spread {
        text += &format!("; without probes a system call varied by {:.1} %", 100.0 * spread);
    }
    let disturbance = &report.noise.disturbance;
    if let Some(percent) = disturbance.waited_percent {
        text += &format!("; waited for a CPU {percent:.1} % of the time");
    }
    if let Some(percent) = disturbance.steal_percent {
        text += &format!("; {percent:.1} % stolen");
    }
    if let Some((before, after)) = disturbance.load_before.zip(disturbance.load_after) {
        text += &format!("; load {before} before, {after} after");
    }
    text
}

fn write_group(group: &[Row], out: &mut dyn Write, width: usize, percent: bool) -> io::Result<()> {
    let Some(first) = group.first() else { return Ok(()) };
    let title = title(first);
    if let Some(why) = all_missing(group) {
        for line in wrapped(&format!("{title}: not here: {why}"), width) {
            writeln!(out, "{line}")?;
        }
        return Ok(());
    }
    match first.base_ns {
        Some(base) => writeln!(out, "{title} ({} {} ns)", operation(first), number(base))?,
        None => writeln!(out, "{title}")?,
    }
    for row in group {
        let name = format!("  {}", program(row));
        let Some(overhead) = row.overhead_ns else {
            let why = row.why.as_deref().unwrap_or("not measured");
            for line in wrapped(&format!("{name}: {why}"), width) {
                writeln!(out, "{line}")?;
            }
            continue;
        };
        let share = match row.overhead_percent {
            Some(share) if percent => format!("{:>11}", number(share)),
            _ if percent => " ".repeat(11),
            _ => String::new(),
        };
        let doubt = if row.doubt.is_some() { "?" } else { "" };
        let interval = row
            .ci95_ns
            .map_or(String::new(), |[low, high]| format!("{}..{}{doubt}", number(low), number(high)));
        let optional = |value: Option<f64>| value.map_or("-".to_string(), number);
        let line = format!(
            "{name:NAMES$}{:>8}{interval:>16}{share}{:>8}{:>8}",
            number(overhead),
            optional(row.kernel_stats_ns),
            optional(row.predicted_ns)
        );
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Doubts, and what the columns mean.
fn notes(report: &Report, out: &mut dyn Write, width: usize) -> io::Result<()> {
    let mut notes = vec![
        "+ ns: CPU time that one firing adds, median; kernel: what the kernel's BPF statistics claim; model: what lightfoot foretells.".to_string(),
    ];
    if report.measured().any(|row| row.threads > 1) {
        notes.push("xN: N threads run into it at the same time; the time is one thread's.".to_string());
    }
    if let Some(why) = &report.without_statistics {
        notes.push(format!("The kernel keeps no statistics: {why}"));
    }
    for row in &report.rows {
        if let Some(doubt) = &row.doubt {
            notes.push(format!("? {} {}: {doubt}", title(row), program(row)));
        }
    }
    match &report.noise.why {
        Some(why) => {
            notes.push(format!("This machine was too noisy for these figures to be trusted: {why}."))
        }
        None if report.noise.doubtful_rows > 0 => {
            notes.push("More time (--time) gives narrower intervals.".to_string());
        }
        None => {}
    }
    writeln!(out)?;
    for line in notes.iter().flat_map(|note| wrapped(note, width)) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Why none of a group is here, if it is one reason.
pub(crate) fn all_missing(group: &[Row]) -> Option<&str> {
    let why = group.first().filter(|row| !row.available)?.why.as_deref()?;
    group.iter().all(|row| row.why.as_deref() == Some(why)).then_some(why)
}

/// The kind of probe and where it stands.
pub(crate) fn title(row: &Row) -> String {
    format!("{} {}", row.probe.name(), row.site)
}

/// The program, and how many threads run into it.
pub(crate) fn program(row: &Row) -> String {
    match row.threads {
        1 => row.program.name().to_string(),
        threads => format!("{} x{threads}", row.program.name()),
    }
}

fn operation(row: &Row) -> &str {
    match row.operation {
        "work" => "between two interrupts",
        operation => operation,
    }
}

/// With one digit after the point below 10, with thousands from 1,000 on.
pub(crate) fn number(value: f64) -> String {
    if value.abs() < 9.95 {
        return format!("{value:.1}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::from(if value < 0.0 { "-" } else { "" });
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Lines of at most `width` characters, broken at blanks; a longer word has a line of its own.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let indent = "  ";
    let mut lines = Vec::new();
    let leading: String = text.chars().take_while(|c| *c == ' ').collect();
    let mut line = leading;
    let mut words = 0;
    for word in text.split_whitespace() {
        if words > 0 && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, indent.to_string()));
            words = 0;
        }
        if words > 0 {
            line.push(' ');
        }
        line.push_str(word);
        words += 1;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::example;

    fn text(width: usize) -> String {
        let mut bytes = Vec::new();
        write(&example(), &mut bytes, width).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// What people see, to the character.
    #[test]
    fn a_table() {
        let golden = include_str!("../tests/ladder.txt");
        assert_eq!(text(80), golden, "if this is better, write it to crates/weigh/tests/ladder.txt");
    }

    #[test]
    fn it_fits_narrow_terminals() {
        for width in [62, 72, 73, 80, 120] {
            for line in text(width).lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn numbers_for_people() {
        for (value, said) in [
            (0.0, "0.0"),
            (1.54, "1.5"),
            (9.96, "10"),
            (118.4, "118"),
            (-3.2, "-3.2"),
            (-1234.0, "-1,234"),
            (1e6, "1,000,000"),
        ] {
            assert_eq!(number(value), said);
        }
    }

    #[test]
    fn long_lines_are_broken_at_blanks() {
        assert_eq!(wrapped("one two three", 8), ["one two", "  three"]);
        assert_eq!(wrapped("unbreakable", 4), ["unbreakable"]);
        assert_eq!(wrapped("", 4), [""]);
    }
}
