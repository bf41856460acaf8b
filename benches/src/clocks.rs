//! (j) The scheduler's tick against the timer: shares of the same work, a program that marches in step with the tick, the price of a sample.

use crate::table::{Table, median, quantile, within};
use crate::tool::profile;
use crate::{Length, machine};
use anyhow::{Context, Result};
use lightfoot_tests::{Report, Workload};

const FUNCTIONS: [(&str, f64); 3] = [("work_70", 0.7), ("work_20", 0.2), ("work_10", 0.1)];
/// Each tick; the timer at a rate that gives more than as many samples in the same time and shares no rhythm with it.
const CLOCKS: [(&str, u64); 2] = [("timer", 499), ("tick", 10_000)];

/// Prints three tables: bias, adversary, price.
pub fn run(length: Length) -> Result<()> {
    bias(length)?;
    println!();
    adversary(length)?;
    println!();
    price(length)
}

/// Samples through each function, in one block and over all.
type Hits = [u64; FUNCTIONS.len()];

/// Blocks of both clocks in turn on one load, until both have 100,000 samples.
fn bias(length: Length) -> Result<()> {
    let wanted = if length.quick { 10_000 } else { 100_000 };
    let block_s = 10.0;
    let load = Workload::start("split", &format!("--threads {} --seconds 3600", machine::cpus()));
    let mut blocks: [Vec<Hits>; 2] = Default::default();
    // A busy machine gives the load less of its time; the end comes all the same.
    for _ in 0..(if length.quick { 8 } else { 120 }) {
        for ((clock, rate), blocks) in CLOCKS.iter().zip(&mut blocks) {
            let arguments = format!("profile --clock {clock} -F {rate} -d {block_s}s -p {}", load.pid());
            let (report, _) = profile(&arguments)?;
            blocks.push(FUNCTIONS.map(|(name, _)| report.through(name)));
        }
        if blocks.iter().all(|blocks| total(&sum(blocks)) >= wanted) {
            break;
        }
    }
    let [timer, tick] = blocks.each_ref().map(|blocks| sum(blocks));
    let mut table = Table::new(
        &format!(
            "clocks: `split`, {} alternating blocks of {block_s:.0} s for each clock; {} samples of the timer, {} ticks (reach: no share differs by more than 1 point \
             at 100,000 samples)",
            blocks[0].len(),
            total(&timer),
            total(&tick)
        ),
        &[
            "function",
            "true, %",
            "timer, %",
            "tick, %",
            "tick - timer, points",
            "standard error",
            "by blocks",
        ],
    );
    for (at, (name, truth)) in FUNCTIONS.iter().enumerate() {
        let (a, b) = (share(&timer, at), share(&tick, at));
        let by_chance = a * (1.0 - a) * (1.0 / total(&timer) as f64 + 1.0 / total(&tick) as f64);
        let pairs = blocks[0].iter().zip(&blocks[1]);
        let differences: Vec<f64> = pairs.map(|(timer, tick)| share(tick, at) - share(timer, at)).collect();
        table.row(vec![
            name.to_string(),
            format!("{:.2}", truth * 100.0),
            format!("{:.3}", a * 100.0),
            format!("{:.3}", b * 100.0),
            within(format!("{:+.3}", (b - a) * 100.0), (b - a).abs() <= 0.01),
            format!("{:.3}", by_chance.sqrt() * 100.0),
            format!("{:.3}", error_of_mean(&differences) * 100.0),
        ]);
    }
    table.print();
    println!(
        "\nStandard error: of the difference, were all samples independent. By blocks: the same from the spread of the differences of neighbouring blocks."
    );
    Ok(())
}

fn sum(blocks: &[Hits]) -> Hits {
    let mut sum = Hits::default();
    for block in blocks {
        for (sum, hits) in sum.iter_mut().zip(block) {
            *sum += hits;
        }
    }
    sum
}

fn total(hits: &Hits) -> u64 {
    hits.iter().sum()
}

/// NaN without samples.
fn share(hits: &Hits, at: usize) -> f64 {
    hits[at] as f64 / total(hits) as f64
}

fn error_of_mean(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0) / n).sqrt()
}

/// A program that is idle when the tick comes, but for one function: what each clock says. `auto` runs long enough for the comparison
/// of the clocks that each run at the tick makes after a minute.
fn adversary(length: Length) -> Result<()> {
    let mut table = Table::new(
        "clocks: `instep`, which sleeps between bursts in step with the tick (the tick cannot see the first, no reach)",
        &[
            "clock asked for",
            "clock taken",
            "s",
            "samples",
            "after_tick, %",
            "true",
            "time, % of true",
            "what the result says",
        ],
    );
    let short = length.seconds(30.0).round();
    for (clock, seconds) in [("timer", short), ("tick", short), ("auto", 66.0)] {
        let load = Workload::start("instep", &format!("--seconds {}", seconds + 2.0));
        let (report, _) =
            profile(&format!("profile --clock {clock} -F 199 -d {seconds}s -p {}", load.pid()))?;
        let truth = load.truth();
        let field = |name: &str| truth[name].as_f64().with_context(|| format!("instep: no {name}"));
        let (after, across) = (field("after_tick")?, field("across_tick")?);
        let notes = notes(&report);
        let of_clocks = notes.iter().filter(|note| note.contains("tick"));
        let weight_ns: u64 = report.stacks.iter().map(|stack| stack.weight_ns).sum();
        table.row(vec![
            clock.to_string(),
            report.json["meta"]["clock"].as_str().unwrap_or("?").to_string(),
            format!("{seconds:.0}"),
            report.accounting.recorded.to_string(),
            format!("{:.1}", report.share("after_tick", &["after_tick", "across_tick"]) * 100.0),
            format!("{:.1}", after / (after + across) * 100.0),
            format!("{:.0}", weight_ns as f64 / (after + across) * (seconds + 2.0) / seconds * 100.0),
            of_clocks.cloned().collect::<Vec<_>>().join("; "),
        ]);
    }
    table.print();
    Ok(())
}

fn notes(report: &Report) -> Vec<String> {
    let notes = report.json["meta"]["notes"].as_array().map_or(&[][..], Vec::as_slice);
    notes.iter().filter_map(|note| note.as_str().map(str::to_string)).collect()
}

/// What a sample costs beyond its stack, as each run with `--clock auto` measures it at its start.
fn price(length: Length) -> Result<()> {
    let runs = length.rounds(15);
    let _load = Workload::start("split", &format!("--threads {} --seconds 600", machine::cpus()));
    let (mut tick, mut timer) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let (report, _) = profile("profile -a --clock auto -F 99 -d 0.5s")?;
        for note in notes(&report) {
            if let Some((at_tick, by_timer)) = prices(&note) {
                tick.push(at_tick);
                timer.push(by_timer);
            }
        }
    }
    let mut table = Table::new(
        &format!(
            "clocks: price of a sample beyond its stack, {} starts of `--clock auto` under load (reach: 1 us)",
            tick.len()
        ),
        &["clock", "us, median", "smallest", "largest"],
    );
    for (name, values) in [("timer", &timer), ("tick", &tick)] {
        let text = format!("{:.1}", median(values));
        table.row(vec![
            name.to_string(),
            if name == "tick" { within(text, median(values) <= 1.0) } else { text },
            format!("{:.1}", quantile(values, 0.0)),
            format!("{:.1}", quantile(values, 1.0)),
        ]);
    }
    table.print();
    Ok(())
}

/// The prices in us of a sample at the tick and by the timer, from the sentence of `--clock auto`.
fn prices(note: &str) -> Option<(f64, f64)> {
    let (_, prices) = note.split_once("a sample costs ")?;
    let (tick, rest) = prices.split_once(" us at the scheduler's tick and ")?;
    let (timer, _) = rest.split_once(" us by a timer interrupt")?;
    Some((tick.parse().ok()?, timer.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read() {
        let note = "clock: tick; a sample costs 1.4 us at the scheduler's tick and 14.3 us by a timer interrupt, its stack not included";
        assert_eq!(prices(note), Some((1.4, 14.3)));
        assert_eq!(prices("clock: timer, because 5000 Hz was asked for"), None);
    }

    #[test]
    fn errors_follow_from_the_spread() {
        assert_eq!(error_of_mean(&[1.0, 3.0]), 1.0);
        assert!(error_of_mean(&[1.0]).is_nan(), "one block says nothing about the spread");
    }
}
