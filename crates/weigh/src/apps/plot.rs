//! The result as bars with whiskers: how many requests a second were lost, and what a request cost more.

use super::report::Report;
use super::row::{Interval, Row};
use super::table::{head, size};
use std::fmt::Write as _;

const WIDTH: f64 = 960.0;
/// Where bars begin and end.
const BARS: (f64, f64) = (230.0, 850.0);
const BAR: f64 = 18.0;
const GAP: f64 = 12.0;
const TOP: f64 = 96.0;
const TITLE: f64 = 30.0;
/// Space below a panel, for its axis.
const AXIS: f64 = 34.0;

const STYLE: &str = "
:root { --page: #ffffff; --ink: #1b1f24; --soft: #59636e; --grid: #d8dee4; --a: #c2410c; --b: #1d5fb4; --c: #3fa796; --d: #8b5fbf; --e: #9a7b16; }
@media (prefers-color-scheme: dark) { :root { --page: #0f1419; --ink: #e6edf3; --soft: #9aa5b1; --grid: #2d3640; --a: #ff9a62; --b: #6aa9f0; --c: #57c4b2; --d: #b795e0; --e: #d8b64a; } }
text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.head { font-size: 16px; font-weight: 600; }
.group { font-weight: 600; }
.soft { fill: var(--soft); }
.right { text-anchor: end; }
.middle { text-anchor: middle; }
.grid { stroke: var(--grid); stroke-width: 1; }
.whisker { stroke: var(--ink); stroke-width: 1.4; }
.page { fill: var(--page); }
";
const COLORS: [&str; 5] = ["--a", "--b", "--c", "--d", "--e"];

/// The picture.
pub fn drawn(report: &Report) -> String {
    let mut body = String::new();
    let mut y = TOP;
    let title = "requests/s lost, in percent, against blocks without probes (95 % intervals)";
    y = panel(&mut body, report, title, y, &|row| row.drop_percent);
    let title =
        "CPU time of the server for one request: added, in percent (95 % intervals of the added time)";
    y = panel(&mut body, report, title, y, &|row| {
        let (added, percent) = (row.added_ns_per_request?, row.added_percent?);
        // The interval of the added time, on the scale of the share.
        let scale = if added.value == 0.0 { 0.0 } else { percent.value / added.value };
        Some(Interval { value: percent.value, ci95: added.ci95.map(|ci| ci.map(|ns| ns * scale)) })
    });
    if let Some(why) = &report.noise.why {
        line(&mut body, 20.0, y, "soft", &format!("Too noisy a machine for these figures: {why}."));
        y += 20.0;
    }
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" width=\"{WIDTH}\" height=\"{y}\" role=\"img\" \
         aria-label=\"{}\">\n<style>{STYLE}</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n",
        escaped(&report.what)
    );
    for (index, text) in head(report).iter().enumerate() {
        let class = if index == 0 { "head" } else { "soft" };
        // What stands in brackets has no room in the title.
        let text = if index == 0 { text.split(" (").next().unwrap_or(text) } else { text };
        line(&mut svg, 20.0, 28.0 + 20.0 * index as f64, class, text);
    }
    svg + &body + "</svg>\n"
}

fn panel(
    out: &mut String,
    report: &Report,
    title: &str,
    top: f64,
    value: &dyn Fn(&Row) -> Option<Interval>,
) -> f64 {
    let shown = || report.rows.iter().filter_map(|row| Some((row, value(row)?)));
    let ends =
        || shown().flat_map(|(_, interval)| interval.ci95.into_iter().flatten().chain([interval.value]));
    let (low, high) = ends().fold((0.0f64, 5.0f64), |(low, high), end| (low.min(end), high.max(end)));
    let step = step(high - low);
    let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
    let x = |percent: f64| BARS.0 + (percent - low) / (high - low) * (BARS.1 - BARS.0);
    line(out, 20.0, top, "group", title);
    let mut y = top + TITLE - 14.0;
    let start = y;
    let mut bars = String::new();
    for case in report.rows.chunk_by(|a, b| a.size_bytes == b.size_bytes) {
        let mut first = true;
        for (row, interval) in case.iter().filter_map(|row| Some((row, value(row)?))) {
            let middle = y + BAR / 2.0;
            if std::mem::take(&mut first) {
                line(&mut bars, 20.0, middle + 4.0, "group", &size(row.size_bytes));
            }
            line(&mut bars, BARS.0 - 8.0, middle + 4.0, "right", row.variant);
            let color = report
                .variants
                .iter()
                .position(|variant| variant.name == row.variant)
                .unwrap_or(1)
                .saturating_sub(1);
            let (from, to) = (x(interval.value.min(0.0)), x(interval.value.max(0.0)));
            let _ = writeln!(
                bars,
                "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" style=\"fill: var({})\"/>",
                y + 2.0,
                (to - from).max(1.0),
                BAR - 4.0,
                COLORS[color % COLORS.len()]
            );
            let mut right = to;
            if let Some([low, high]) = interval.ci95 {
                let (low, high) = (x(low), x(high));
                right = right.max(high);
                let _ = writeln!(
                    bars,
                    "<path class=\"whisker\" d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {:.1}v6M{high:.1} {:.1}v6\"/>",
                    middle - 3.0,
                    middle - 3.0
                );
            }
            line(&mut bars, right + 6.0, middle + 4.0, "", &format!("{:.1} %", interval.value));
            y += BAR;
        }
        y += GAP;
    }
    let mut at = low;
    while at <= high + step / 2.0 {
        let _ = writeln!(out, "<path class=\"grid\" d=\"M{:.1} {start:.1}V{y:.1}\"/>", x(at));
        line(out, x(at), y + 14.0, "soft middle", &format!("{at:.0} %"));
        at += step;
    }
    out.push_str(&bars);
    y + AXIS + 10.0
}

/// A round step that gives four to ten of them.
fn step(range: f64) -> f64 {
    let power = 10f64.powf((range / 10.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| range / step <= 10.0)
        .unwrap_or(range)
        .max(1.0)
}

fn line(out: &mut String, x: f64, y: f64, class: &str, text: &str) {
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>", escaped(text));
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::sample;
    use super::*;

    #[test]
    fn each_row_with_figures_has_a_bar_in_each_panel() {
        let svg = drawn(&sample(false));
        let bars = svg.matches("<rect x=").count();
        assert_eq!(bars, 2 * 2 * 2, "two sizes, two ways with probes, two panels");
        assert_eq!(svg.matches("class=\"whisker\"").count(), bars);
        assert!(svg.contains("40.0 %") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }

    #[test]
    fn steps_are_round() {
        for (range, expected) in
            [(5.0, 1.0), (60.0, 10.0), (45.0, 5.0), (100.0, 10.0), (2_000.0, 200.0), (130.0, 20.0)]
        {
            assert!((step(range) - expected).abs() < 1e-9, "{range}: {}", step(range));
        }
    }
}
