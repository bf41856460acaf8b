//! The ladder as bars.
//!
//! The axis is logarithmic: what one firing costs goes from tens of nanoseconds to ten microseconds. Colours follow the reader's light or dark
//! scheme; nothing is said by colour alone.

use crate::report::{Report, Row};
use crate::text::{all_missing, circumstances, groups, number, program, title, wrapped};
use lightfoot_model::Body;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Width of the picture, in pixels; height follows from the rows.
const WIDTH: f64 = 960.0;
/// Where bars begin and end.
const BARS: (f64, f64) = (270.0, 880.0);
const ROW: f64 = 17.0;
const GROUP_GAP: f64 = 9.0;
const TOP: f64 = 140.0;
/// Characters of a line of notes.
const NOTE_CHARACTERS: usize = 120;

const STYLE: &str = "
:root { --page: #ffffff; --ink: #1b1f24; --soft: #59636e; --grid: #d8dee4; --empty: #9ec5f4; --simple: #4a8fe0; --complex: #1d5fb4; --further: #3fa796; --mark: #c2410c; }
@media (prefers-color-scheme: dark) { :root { --page: #0f1419; --ink: #e6edf3; --soft: #9aa5b1; --grid: #2d3640; --empty: #9ec5f4; --simple: #4a8fe0; --complex: #2f6fc4; --further: #3fa796; --mark: #ff9a62; } }
text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.head { font-size: 16px; font-weight: 600; }
.group { font-weight: 600; }
.soft { fill: var(--soft); }
.right { text-anchor: end; }
.middle { text-anchor: middle; }
.grid { stroke: var(--grid); stroke-width: 1; }
.whisker { stroke: var(--ink); stroke-width: 1.2; }
.halo { fill: none; stroke: var(--page); stroke-width: 4; }
.model { fill: none; stroke: var(--mark); stroke-width: 1.8; }
.kernel { fill: var(--page); stroke: var(--mark); stroke-width: 1.6; }
.page { fill: var(--page); }
";

/// Writes the picture.
///
/// # Errors
/// Those of the writer.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(drawn(report).as_bytes())
}

/// The logarithmic axis.
struct Axis {
    /// Power of ten at its beginning.
    low: i32,
    /// Logarithm of its end.
    high: f64,
}

impl Axis {
    fn of(report: &Report) -> Axis {
        let values = || report.measured().filter_map(|row| row.overhead_ns).filter(|ns| *ns > 0.0);
        let highest = values().max_by(f64::total_cmp).unwrap_or(1_000.0);
        // Claims and models have marks of their own.
        let marks = || report.measured().flat_map(|row| [row.kernel_stats_ns, row.predicted_ns]).flatten();
        let lowest = values().chain(marks().filter(|ns| *ns > 0.0)).min_by(f64::total_cmp).unwrap_or(10.0);
        let low = (lowest.log10().floor() as i32).clamp(0, 6);
        // Bars need a length: the lowest value is not at the very beginning.
        let low = if lowest.log10() - f64::from(low) < 0.15 { (low - 1).max(0) } else { low };
        Axis { low, high: (highest.log10() + 0.05).max(f64::from(low) + 1.0) }
    }

    /// Where a value lies; what is too small at the beginning.
    fn x(&self, ns: f64) -> f64 {
        let share = (ns.max(1e-3).log10() - f64::from(self.low)) / (self.high - f64::from(self.low));
        BARS.0 + (BARS.1 - BARS.0) * share.clamp(0.0, 1.0)
    }
}

fn drawn(report: &Report) -> String {
    let axis = Axis::of(report);
    let mut body = String::new();
    let mut y = TOP;
    let mut missing: Vec<(&str, Vec<String>)> = Vec::new();
    for group in groups(&report.rows) {
        if let (Some(first), Some(why)) = (group.first(), all_missing(group)) {
            match missing.iter_mut().find(|(known, _)| *known == why) {
                Some((_, titles)) => titles.push(title(first)),
                None => missing.push((why, vec![title(first)])),
            }
            continue;
        }
        let rows: Vec<&Row> = group.iter().filter(|row| row.overhead_ns.is_some()).collect();
        for (n, row) in rows.iter().enumerate() {
            if n == 0 {
                element(&mut body, 12.0, y + 12.0, "group", row.probe.name());
            } else if n == 1 {
                element(&mut body, 12.0, y + 12.0, "soft", row.site);
            }
            bar(&mut body, &axis, row, y, rows.len() == 1);
            y += ROW;
        }
        if !rows.is_empty() {
            y += GROUP_GAP;
        }
    }
    let bottom = y;
    y += 30.0;
    for (why, titles) in missing {
        for line in wrapped(&format!("Not here: {}: {why}", titles.join(", ")), NOTE_CHARACTERS) {
            element(&mut body, 12.0, y, "soft", &line);
            y += ROW;
        }
    }
    let height = y + 8.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n\
         <title>What probes cost</title>\n<style>{STYLE}</style>\n<rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n"
    );
    head(&mut svg, report);
    grid(&mut svg, &axis, bottom);
    svg.push_str(&body);
    svg.push_str("</svg>\n");
    svg
}

/// Title, machine, circumstances, legend.
fn head(svg: &mut String, report: &Report) {
    element(svg, 12.0, 24.0, "head", "What one firing of a probe costs, in ns of CPU time");
    element(svg, 12.0, 43.0, "soft", &report.machine.line());
    let said = match &report.noise.why {
        Some(why) => format!("Too noisy to be trusted: {why}"),
        None => circumstances(report),
    };
    for (n, line) in wrapped(&said, NOTE_CHARACTERS).iter().take(2).enumerate() {
        element(svg, 12.0, 60.0 + n as f64 * ROW, "soft", line.trim());
    }
    let y = 97.0;
    svg_rect(svg, 12.0, y - 10.0, 18.0, Body::Simple);
    element(svg, 36.0, y, "soft", "measured, median");
    whisker(svg, 165.0, 185.0, y - 4.0);
    element(svg, 192.0, y, "soft", "95 % interval");
    kernel_mark(svg, 300.0, y - 4.0);
    element(svg, 310.0, y, "soft", "what the kernel's statistics claim");
    model_mark(svg, 545.0, y - 4.0);
    element(svg, 556.0, y, "soft", "what lightfoot foretells");
}

fn grid(svg: &mut String, axis: &Axis, bottom: f64) {
    for power in axis.low..=axis.high as i32 {
        let ns = 10f64.powi(power);
        let x = axis.x(ns);
        // Writing to a string does not fail.
        writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/>",
            TOP - 6.0
        )
        .ok();
        let label = match power {
            0..=2 => format!("{ns:.0} ns"),
            3..=5 => format!("{:.0} us", ns / 1e3),
            _ => format!("{:.0} ms", ns / 1e6),
        };
        element(svg, x, TOP - 11.0, "soft middle", &label);
        element(svg, x, bottom + 12.0, "soft middle", &label);
    }
}

fn bar(svg: &mut String, axis: &Axis, row: &Row, y: f64, alone: bool) {
    let Some(overhead) = row.overhead_ns else { return };
    let name = if alone { format!("{}: {}", row.site, program(row)) } else { program(row) };
    element(svg, BARS.0 - 8.0, y + 12.0, "soft right", &name);
    let end = axis.x(overhead);
    svg_rect(svg, BARS.0, y + 2.0, end - BARS.0, row.program);
    let mut right = end;
    if let Some([low, high]) = row.ci95_ns {
        whisker(svg, axis.x(low), axis.x(high), y + 8.5);
        right = right.max(axis.x(high));
    }
    for (value, mark) in
        [(row.kernel_stats_ns, kernel_mark as fn(&mut String, f64, f64)), (row.predicted_ns, model_mark)]
    {
        if let Some(value) = value {
            mark(svg, axis.x(value), y + 8.5);
            right = right.max(axis.x(value) + 4.0);
        }
    }
    let doubt = if row.doubt.is_some() { " ?" } else { "" };
    element(svg, right + 7.0, y + 12.0, "", &format!("{}{doubt}", number(overhead)));
}

fn svg_rect(svg: &mut String, x: f64, y: f64, width: f64, program: Body) {
    let color = match program {
        Body::Empty => "empty",
        Body::Simple => "simple",
        Body::Complex => "complex",
        _ => "further",
    };
    writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"13\" rx=\"2\" style=\"fill:var(--{color})\"/>",
        width.max(0.5)
    )
    .ok();
}

fn whisker(svg: &mut String, from: f64, to: f64, y: f64) {
    let (top, bottom) = (y - 3.0, y + 3.0);
    writeln!(
        svg,
        "<path class=\"whisker\" d=\"M{from:.1} {top:.1}V{bottom:.1}M{from:.1} {y:.1}H{to:.1}M{to:.1} {top:.1}V{bottom:.1}\"/>"
    )
    .ok();
}

fn kernel_mark(svg: &mut String, x: f64, y: f64) {
    writeln!(svg, "<circle class=\"kernel\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>").ok();
}

fn model_mark(svg: &mut String, x: f64, y: f64) {
    let (left, right, top, bottom) = (x - 4.0, x + 4.0, y - 4.0, y + 4.0);
    let cross =
        format!("M{left:.1} {top:.1}L{right:.1} {bottom:.1}M{left:.1} {bottom:.1}L{right:.1} {top:.1}");
    writeln!(svg, "<path class=\"halo\" d=\"{cross}\"/><path class=\"model\" d=\"{cross}\"/>").ok();
}

fn element(svg: &mut String, x: f64, y: f64, class: &str, text: &str) {
    writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>", escaped(text)).ok();
}

/// Text of others as text: neither markup nor control characters, which XML does not know.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{circumstances, example};

    /// Tags are closed in the order in which they were opened, and there is no markup of others.
    fn check_well_formed(svg: &str) {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = svg;
        while let Some(at) = rest.find('<') {
            let (text, tag) = rest.split_at(at);
            assert!(!text.contains('&') || text.contains(';'), "{text}");
            let end = tag.find('>').expect("a tag ends");
            let inside = &tag[1..end];
            assert_eq!(inside.matches('"').count() % 2, 0, "{inside}");
            let name = inside.trim_start_matches('/').split([' ', '/']).next().unwrap_or("");
            if inside.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "{inside}");
            } else if !inside.ends_with('/') {
                open.push(name);
            }
            rest = &tag[end + 1..];
        }
        assert_eq!(open, [""; 0]);
    }

    #[test]
    fn it_is_well_formed_whatever_names_say() {
        let mut report = example();
        report.rows[0].why = Some("</svg><script>\u{1}\"&".into());
        let svg = drawn(&report);
        check_well_formed(&svg);
        assert!(!svg.contains("<script") && !svg.contains('\u{1}'), "{svg}");
        assert!(svg.contains("A Processor &lt;&amp;&gt;"));
        for said in ["raw_tracepoint", "shared_counter x2", "10,250", "645 ?", "Not here: kprobe sys_getppid"]
        {
            assert!(svg.contains(said), "{said}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn nothing_measured_is_a_picture_too() {
        let report = Report::new(&[], circumstances(), |_, _| None);
        check_well_formed(&drawn(&report));
    }

    #[test]
    fn bars_grow_with_values_and_stay_inside() {
        let axis = Axis { low: 1, high: 4.0 };
        assert_eq!(axis.x(10.0), BARS.0);
        assert_eq!(axis.x(10_000.0), BARS.1);
        assert_eq!(axis.x(-5.0), BARS.0, "noise below zero");
        assert_eq!(axis.x(1e9), BARS.1);
        assert!(axis.x(100.0) < axis.x(200.0));
    }
}
