//! The result as a table: for a terminal, and as markdown.

use super::report::Report;
use super::row::{Interval, Row};
use crate::text::{number, wrapped};
use std::io::{self, Write};

/// Columns of the names of ways.
const NAMES: usize = 14;

/// For a terminal of so many columns.
pub fn text(report: &Report, out: &mut dyn Write, width: usize) -> io::Result<()> {
    let width = width.max(60);
    for line in head(report) {
        lines(out, &line, width)?;
    }
    writeln!(
        out,
        "\n{:NAMES$}{:>10}{:>9}{:>16}{:>10}{:>10}{:>16}{:>8}{:>7}",
        "", "requests/s", "drop %", "95 %", "CPU us", "added us", "95 %", "added %", "hits"
    )?;
    for case in report.rows.chunk_by(|a, b| a.size_bytes == b.size_bytes) {
        writeln!(out, "{}", case.first().map(|row| size(row.size_bytes)).unwrap_or_default())?;
        for row in case {
            if let Some(why) = &row.why {
                lines(out, &format!("  {:12}not possible here: {why}", row.variant), width)?;
                continue;
            }
            let (cpu, added) = (us(row.cpu_ns_per_request), us(row.added_ns_per_request));
            let line = format!(
                "  {:12}{:>10}{:>9}{:>16}{:>10}{:>10}{:>16}{:>8}{:>7}",
                row.variant,
                value(row.requests_per_s),
                value(row.drop_percent),
                interval(row.drop_percent),
                value(cpu),
                value(added),
                interval(added),
                value(row.added_percent),
                hits(row),
            );
            writeln!(out, "{}", line.trim_end())?;
        }
    }
    for line in tail(report) {
        lines(out, &line, width)?;
    }
    Ok(())
}

fn lines(out: &mut dyn Write, line: &str, width: usize) -> io::Result<()> {
    if line.is_empty() {
        return writeln!(out);
    }
    wrapped(line, width).iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// As tables in markdown.
pub fn markdown(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for line in head(report) {
        writeln!(out, "{line}  ")?;
    }
    writeln!(
        out,
        "\n| size | way | requests/s | drop, % | 95 % | CPU of a request, us | added, us | 95 % | added, % | hits of a request |"
    )?;
    writeln!(out, "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    for row in &report.rows {
        if let Some(why) = &row.why {
            writeln!(
                out,
                "| {} | {} | {} | | | | | | | |",
                size(row.size_bytes),
                row.variant,
                why.replace('|', "\\|")
            )?;
            continue;
        }
        let (cpu, added) = (us(row.cpu_ns_per_request), us(row.added_ns_per_request));
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            size(row.size_bytes),
            row.variant,
            value(row.requests_per_s),
            value(row.drop_percent),
            interval(row.drop_percent),
            value(cpu),
            value(added),
            interval(added),
            value(row.added_percent),
            hits(row),
        )?;
    }
    for line in tail(report) {
        writeln!(out, "{line}{}", if line.is_empty() { "" } else { "  " })?;
    }
    Ok(())
}

/// What it is and where.
pub(super) fn head(report: &Report) -> Vec<String> {
    let cpus = match report.cpus {
        Some((server, load)) => format!("server on CPU {server}, load on CPU {load}"),
        None => "server and load on one CPU".into(),
    };
    vec![
        format!("{}: {}", report.app, report.what),
        report.machine.line(),
        format!(
            "{}; {} connections, {cpus}; blocks of {:.0} ms in turn",
            report.programs.join(", "),
            report.connections,
            report.block_ms
        ),
    ]
}

/// What stands below the table.
fn tail(report: &Report) -> Vec<String> {
    let mut lines = vec![String::new()];
    for variant in &report.variants {
        lines.push(format!("{}: {}", variant.name, variant.what));
    }
    for row in report.rows.iter().filter(|row| row.seen.fired > 0) {
        let seen = &row.seen;
        lines.push(format!(
            "{} {}: {} blocks, {} requests in them; fired {}, counted {}, filtered {}, sent {}, received {}, lost {}, dropped {}; attaching {} ms, detaching {} ms; lightfoot itself {:.1} % of a CPU",
            size(row.size_bytes),
            row.variant,
            row.blocks,
            row.requests,
            seen.fired,
            seen.counted,
            seen.filtered,
            seen.sent,
            seen.received,
            seen.lost,
            seen.dropped,
            value(row.attach_ms),
            value(row.detach_ms),
            row.own_cpu_percent,
        ));
    }
    if !report.calls.is_empty() {
        lines.push(String::new());
        lines.push("What counting adds to one getppid(), ns of CPU time:".into());
    }
    for row in &report.calls {
        lines.push(match &row.why {
            Some(why) => format!("{}: not possible here: {why}", row.variant),
            None => {
                let cheaper = row.cheaper_percent.map(|cheaper| {
                    format!(
                        ", {} % (95 %: {}) less than with perf's tracepoints",
                        value(Some(cheaper)),
                        interval(Some(cheaper))
                    )
                });
                format!(
                    "{}: {} (95 %: {}) over {}{}; {}; {} probes attached in {} ms, detached in {} ms",
                    row.variant,
                    value(row.added_ns),
                    interval(row.added_ns),
                    value(row.base_ns),
                    cheaper.unwrap_or_default(),
                    row.what,
                    row.probes,
                    value(row.attach_ms),
                    value(row.detach_ms),
                )
            }
        });
    }
    lines.push(String::new());
    let noise = &report.noise;
    let percent =
        |spread: Option<f64>| spread.map_or("unknown".into(), |spread| format!("{:.1} %", 100.0 * spread));
    lines.push(format!(
        "Without probes blocks differ by {} in requests/s and by {} in CPU time of a request (interquartile range, worst size).",
        percent(noise.rate_spread),
        percent(noise.cpu_spread)
    ));
    if let Some((before, after)) = noise.disturbance.load_before.zip(noise.disturbance.load_after) {
        let steal = noise
            .disturbance
            .steal_percent
            .map(|steal| format!(", {steal:.1} % of the machine's time stolen"));
        lines.push(format!("Load {before} before, {after} after{}.", steal.unwrap_or_default()));
    }
    if let Some(why) = &noise.why {
        lines.push(format!("This machine is too noisy for these figures: {why}."));
    }
    lines.extend(report.notes.iter().map(|note| format!("{note}.")));
    lines
}

pub(super) fn size(bytes: u64) -> String {
    if bytes >= 1024 && bytes.is_multiple_of(1024) {
        format!("{} KB", bytes >> 10)
    } else {
        format!("{bytes} B")
    }
}

fn value(interval: Option<Interval>) -> String {
    interval.map_or(String::new(), |interval| number(interval.value))
}

fn interval(interval: Option<Interval>) -> String {
    interval
        .and_then(|interval| interval.ci95)
        .map_or(String::new(), |[low, high]| format!("{} to {}", number(low), number(high)))
}

/// ns in us.
fn us(interval: Option<Interval>) -> Option<Interval> {
    interval.map(|i| Interval { value: i.value / 1e3, ci95: i.ci95.map(|c| c.map(|v| v / 1e3)) })
}

fn hits(row: &Row) -> String {
    if row.seen.fired == 0 { String::new() } else { format!("{:.1}", row.fired_per_request) }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::sample;
    use super::*;

    #[test]
    fn a_table_has_each_row_and_says_what_is_missing() {
        let mut bytes = Vec::new();
        text(&sample(false), &mut bytes, 120).unwrap();
        let said = String::from_utf8(bytes).unwrap();
        assert!(said.contains("1 KB\n") && said.contains("256 KB\n"), "{said}");
        assert_eq!(said.matches("not possible here: this kernel has none").count(), 2, "{said}");
        let naive = said.lines().find(|line| line.starts_with("  naive")).unwrap();
        assert!(naive.contains(" 40 ") && naive.ends_with(" 6.0"), "{naive}");
        assert!(!said.contains("too noisy"), "{said}");
    }

    #[test]
    fn noise_is_said() {
        let mut bytes = Vec::new();
        text(&sample(true), &mut bytes, 300).unwrap();
        let said = String::from_utf8(bytes).unwrap();
        assert!(
            said.contains("too noisy for these figures: without probes requests a second differ"),
            "{said}"
        );
    }

    #[test]
    fn markdown_has_as_many_cells_in_each_row() {
        let mut bytes = Vec::new();
        markdown(&sample(false), &mut bytes).unwrap();
        let said = String::from_utf8(bytes).unwrap();
        let rows: Vec<&str> = said.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(rows.len(), 10, "{said}");
        assert!(rows.iter().all(|row| row.matches('|').count() == 11), "{said}");
    }

    #[test]
    fn sizes_for_people() {
        assert_eq!([1024, 1000, 262_144].map(size), ["1 KB", "1000 B", "256 KB"]);
    }
}
