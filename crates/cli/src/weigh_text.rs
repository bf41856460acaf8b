//! The text of `lightfoot weigh PROBE...`.

use lightfoot_sites::Site;
use lightfoot_tracer::Outcome;
use lightfoot_tracer::outcome::Probe;
use lightfoot_weigh::Format;
use std::io::{Result, Write};

/// Probes and processes in the tables; the rest is summed up.
const ROWS: usize = 40;
const PROCESS_ROWS: usize = 12;
/// Longest name in a table.
const NAME_MAX: usize = 60;

/// The places, one line each; with `explain` what was chosen below it.
pub fn list(sites: &[Site], format: Format, explain: bool, out: &mut dyn Write) -> Result<()> {
    if format == Format::Json {
        let entry = |site: &Site| {
            serde_json::json!({
                "name": site.name,
                "mechanism": site.mechanism,
                "instruction": site.instruction,
                "place": lightfoot_tracer::place(&site.place),
                "choices": site.choices,
                "warnings": site.warnings,
            })
        };
        let all: Vec<_> = sites.iter().map(entry).collect();
        serde_json::to_writer_pretty(&mut *out, &all)?;
        return writeln!(out);
    }
    if explain {
        return explanations(sites).iter().try_for_each(|line| writeln!(out, "{line}"));
    }
    sites.iter().try_for_each(|site| writeln!(out, "{}", site.name))
}

/// Says on standard error where each probe is and why.
pub fn explain(sites: &[Site]) {
    for line in explanations(sites) {
        say!("{line}");
    }
}

/// Where each probe is, and below it why there; what holds for neighbours alike is said once.
fn explanations(sites: &[Site]) -> Vec<String> {
    let mut lines = Vec::new();
    for alike in sites.chunk_by(|a, b| a.choices == b.choices && a.warnings == b.warnings) {
        let Some(first) = alike.first() else { continue };
        for site in alike {
            let under = site.instruction.map_or(String::new(), |class| format!(", on {}", class.name()));
            let place = lightfoot_tracer::place(&site.place);
            lines.push(format!("{}: {} at {place}{under}", site.name, site.mechanism.name()));
        }
        let all = if alike.len() > 1 { format!("these {}: ", alike.len()) } else { String::new() };
        lines.extend(first.choices.iter().map(|choice| format!("    {all}{choice}")));
        lines.extend(first.warnings.iter().map(|warning| format!("    {all}warning: {warning}")));
    }
    lines
}

/// The result as tables.
pub fn write(outcome: &Outcome, out: &mut dyn Write) -> Result<()> {
    let whose = outcome.pid.map_or("the machine".to_string(), |pid| format!("process {pid}"));
    let seconds = outcome.duration_ns as f64 / 1e9;
    let trial = if outcome.dry_run { "trial of " } else { "" };
    writeln!(
        out,
        "{} probes on {whose}, {trial}{seconds:.3} s, each firing: {}\n",
        outcome.probes.len(),
        outcome.body.name()
    )?;
    probes(outcome, out)?;
    processes(outcome, out)?;
    writeln!(out, "\n{}", cost_line(outcome))?;
    if let Some(budget) = &outcome.budget {
        let share = |ns: u64| percent(ns as f64 / 1e7);
        let after = match budget.dearest_window_ns {
            Some(ns) => format!("; after the first second at most {}", share(ns)),
            None => String::new(),
        };
        writeln!(
            out,
            "budget {} of one CPU: the dearest second took {}{after}; {} of {} probes detached, bodies held back for {:.1} s",
            share(budget.ns_per_s),
            share(budget.dearest_ns),
            budget.detached,
            outcome.probes.len(),
            budget.throttled_ns as f64 / 1e9
        )?;
    }
    for note in &outcome.notes {
        writeln!(out, "note: {note}")?;
    }
    for probe in outcome.probes.iter().take(ROWS) {
        for warning in &probe.warnings {
            writeln!(out, "note: {}: {warning}", probe.name)?;
        }
    }
    Ok(())
}

/// What all of it cost, in one line.
pub fn cost_line(outcome: &Outcome) -> String {
    let cost = &outcome.cost;
    let passed = if cost.passed == 0 {
        String::new()
    } else {
        format!(" + other system calls {}", time(cost.passed_ns))
    };
    format!(
        "cost {} of one CPU: probes {}{passed} + lightfoot {}; before that {} to choose places, find prices and attach",
        percent(cost.percent_of_one_cpu),
        time(cost.probes_ns),
        time(cost.own_ns as f64),
        time(cost.start_ns as f64)
    )
}

fn probes(outcome: &Outcome, out: &mut dyn Write) -> Result<()> {
    let mut order: Vec<&Probe> = outcome.probes.iter().collect();
    order.sort_by(|a, b| b.total_ns.unwrap_or(0.0).total_cmp(&a.total_ns.unwrap_or(0.0)));
    let thinned = order.iter().any(|probe| probe.throttled > 0);
    let filtered = order.iter().any(|probe| probe.filtered > 0);
    let lost = order.iter().any(|probe| probe.lost > 0);
    let mut rows = Vec::new();
    let mut head = vec!["probe", "kind", "fired", "recorded"];
    head.extend(filtered.then_some("filtered"));
    head.extend(thinned.then_some("throttled"));
    head.extend(thinned.then_some("estimate"));
    head.extend(lost.then_some("lost"));
    head.extend(["predicted ns", "live ns", "total", "% of a CPU"]);
    rows.push(head.into_iter().map(str::to_string).collect::<Vec<_>>());
    for probe in order.iter().take(ROWS) {
        let under = probe.instruction.map_or(String::new(), |class| format!(" ({})", class.name()));
        let mut row = vec![
            short(&probe.name),
            format!("{}{under}", probe.mechanism.name()),
            count(probe.fired),
            count(probe.recorded),
        ];
        row.extend(filtered.then(|| count(probe.filtered)));
        row.extend(thinned.then(|| count(probe.throttled)));
        row.extend(thinned.then(|| format!("{} +- {:.0}", count(probe.estimate), probe.estimate_error)));
        row.extend(lost.then(|| count(probe.lost)));
        let ns = |ns: Option<f64>| ns.map_or("-".to_string(), |ns| format!("{ns:.0}"));
        row.push(ns(probe.predicted.map(|predicted| predicted.total_ns)));
        row.push(ns(probe.live_ns));
        row.push(probe.total_ns.map_or("-".into(), time));
        row.push(probe.percent_of_one_cpu.map_or("-".into(), |share| format!("{share:.3}")));
        rows.push(row);
    }
    columns(&rows, 2, out)?;
    if let Some(more) = order.get(ROWS..).filter(|more| !more.is_empty()) {
        let fired: u64 = more.iter().map(|probe| probe.fired).sum();
        let total: f64 = more.iter().filter_map(|probe| probe.total_ns).sum();
        writeln!(out, "... and {} more probes: {} firings, {}", more.len(), count(fired), time(total))?;
    }
    Ok(())
}

fn processes(outcome: &Outcome, out: &mut dyn Write) -> Result<()> {
    if outcome.processes.is_empty() || outcome.pid.is_some() {
        return Ok(());
    }
    let mut rows = vec![vec!["process".to_string(), "firings".into(), "cost".into()]];
    let firings = |process: &lightfoot_tracer::outcome::Process| {
        process.firings.iter().map(|(_, weighed)| weighed).sum::<u64>()
    };
    for process in outcome.processes.iter().take(PROCESS_ROWS) {
        let name = process.name.as_deref().unwrap_or("(gone)");
        rows.push(vec![format!("{} {name}", process.pid), count(firings(process)), time(process.total_ns)]);
    }
    writeln!(out)?;
    columns(&rows, 1, out)?;
    if let Some(more) = outcome.processes.get(PROCESS_ROWS..).filter(|more| !more.is_empty()) {
        writeln!(out, "... and {} more processes: {}", more.len(), count(more.iter().map(firings).sum()))?;
    }
    Ok(())
}

/// Rows with columns of equal width: the first `left` ones begin at the left, numbers end at the right.
fn columns(rows: &[Vec<String>], left: usize, out: &mut dyn Write) -> Result<()> {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column < left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// The end of a long name says more than its middle.
fn short(name: &str) -> String {
    let length = name.chars().count();
    if length <= NAME_MAX {
        return name.to_string();
    }
    let head: String = name.chars().take(NAME_MAX / 3).collect();
    let tail: String = name.chars().skip(length - (NAME_MAX - NAME_MAX / 3 - 3)).collect();
    format!("{head}...{tail}")
}

fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

fn percent(share: f64) -> String {
    if share >= 10.0 { format!("{share:.0} %") } else { format!("{share:.3} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_end() {
        let long = format!("uprobe:/{}/libc.so.6:malloc", "x".repeat(100));
        assert_eq!(short(&long).chars().count(), NAME_MAX);
        assert!(short(&long).ends_with("libc.so.6:malloc") && short(&long).starts_with("uprobe:/"));
        assert_eq!(short("uprobe:/bin/x:main"), "uprobe:/bin/x:main");
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!((count(1_234_567), count(12)), ("1,234,567".into(), "12".into()));
        assert_eq!(
            (time(12.0), time(1_500.0), time(2.5e6), time(3e9)),
            ("12 ns".into(), "1.5 us".into(), "2.5 ms".into(), "3.00 s".into())
        );
    }
}
