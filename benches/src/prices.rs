//! What a firing costs: predicted before, and live, against a loop in another process that times itself.

use crate::Length;
use crate::table::{Table, median, quantile, within};
use anyhow::{Context, Result, bail, ensure};
use lightfoot_model::Body;
use lightfoot_sites::Spec;
use lightfoot_tracer::{Outcome, Request, Run, Target, monotonic_ns};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Kinds: name in the table, what is called, the spec (`%` stands for the program), taken literally.
const KINDS: [(&str, &str, &str, bool); 8] = [
    ("raw tracepoint of a system call", "getppid", "tracepoint:syscalls:sys_enter_getppid", false),
    ("perf tracepoint of a system call", "getppid", "tracepoint:syscalls:sys_enter_getppid", true),
    ("raw tracepoint", "rename", "rawtracepoint:task_rename", false),
    ("uprobe on nop5", "nop5", "uprobe:%:caller_nop5", false),
    ("uprobe on push", "push", "uprobe:%:caller_push", false),
    ("uprobe on sub, single-stepped", "sub", "uprobe:%:caller_sub", true),
    ("uretprobe on push", "push", "uretprobe:%:caller_push", false),
    ("uretprobe on nop", "nop", "uretprobe:%:caller_nop", false),
];
const BODIES: [Body; 5] = [Body::Empty, Body::Simple, Body::Complex, Body::Event, Body::UserStack];

/// A caller that runs.
struct Caller {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Caller {
    fn start(what: &str, calls: u32, pause_us: u32, seconds: f64) -> Result<Caller> {
        let mut command = Command::new(lightfoot_tests::program("caller"));
        command.args(["--what", what, "--calls", &calls.to_string(), "--seconds", &seconds.to_string()]);
        command.args(["--pause-us", &pause_us.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("caller")?;
        let mut out = BufReader::new(child.stdout.take().context("stdout")?);
        let mut line = String::new();
        out.read_line(&mut line)?;
        ensure!(line == "ready\n", "caller says {line:?}");
        Ok(Caller { child, out })
    }

    /// Tells it to end; when each block ended and what it took, in ns.
    fn blocks(mut self) -> Result<Vec<(u64, u64)>> {
        drop(self.child.stdin.take());
        let mut bytes = Vec::new();
        self.out.read_to_end(&mut bytes)?;
        self.child.wait()?;
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        Ok(bytes.chunks_exact(16).map(|block| (word(&block[..8]), word(&block[8..]))).collect())
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// One kind with one body.
struct Row {
    truth_ns: f64,
    error_ns: f64,
    outcome: Outcome,
}

/// Prints one row for each kind and body.
pub fn run(length: Length) -> Result<()> {
    let rounds = length.rounds(6);
    let mut table = Table::new(
        &format!(
            "prices: ns for each firing, {rounds} rounds without and with the probe (reach: each within 15 % of the truth, half of them within 7 %)"
        ),
        &[
            "kind",
            "body",
            "truth",
            "+-",
            "predicted",
            "off, %",
            "live",
            "off, %",
            "the kernel's statistics alone",
        ],
    );
    let (mut predicted_off, mut live_off) = (Vec::new(), Vec::new());
    for (kind, what, spec, naive) in KINDS {
        for body in BODIES {
            let row = match measure(what, spec, naive, body, rounds) {
                Ok(row) => row,
                Err(error) => {
                    table.row(vec![kind.into(), body.name().into(), format!("not here: {error:#}")]);
                    continue;
                }
            };
            let probe = &row.outcome.probes[0];
            let predicted = probe.predicted.map_or(f64::NAN, |p| p.total_ns);
            let live = probe.live_ns.unwrap_or(f64::NAN);
            let off = |ns: f64| (ns / row.truth_ns - 1.0) * 100.0;
            predicted_off.push(off(predicted).abs());
            live_off.push(off(live).abs());
            table.row(vec![
                kind.into(),
                body.name().into(),
                format!("{:.0}", row.truth_ns),
                format!("{:.0}", row.error_ns),
                format!("{predicted:.0}"),
                within(format!("{:+.1}", off(predicted)), off(predicted).abs() <= 15.0),
                format!("{live:.0}"),
                within(format!("{:+.1}", off(live)), off(live).abs() <= 15.0),
                probe.live_body_ns.map_or("-".into(), |ns| format!("{ns:.0}")),
            ]);
        }
    }
    table.print();
    for (name, off) in [("predicted", &predicted_off), ("live", &live_off)] {
        let inside = off.iter().filter(|off| **off <= 15.0).count();
        println!(
            "\n{name}: {} of {} within 15 %, half of them within {}, the worst {}",
            inside,
            off.len(),
            within(format!("{:.1} %", median(off)), median(off) <= 7.0),
            within(format!("{:.1} %", quantile(off, 1.0)), quantile(off, 1.0) <= 15.0)
        );
    }
    Ok(())
}

/// Alternates without and with; the truth is the difference of the medians over all blocks of each kind.
fn measure(what: &str, spec: &str, naive: bool, body: Body, rounds: usize) -> Result<Row> {
    let path = lightfoot_tests::program("caller");
    let spec = spec.replace('%', &path.display().to_string());
    // A system call is dearer than an empty function, and events need a pause, or the ring is full.
    let pause_us = if body == Body::Event { 1_000 } else { 0 };
    let calls = 200;
    let caller = Caller::start(what, calls, pause_us, rounds as f64 * 3.0 + 10.0)?;
    let pid = caller.child.id();
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let mut outcomes: Vec<Outcome> = Vec::new();
    for _ in 0..rounds {
        without.push(interval(|| {
            std::thread::sleep(Duration::from_millis(200));
            Ok(())
        })?);
        let mut run = Run::start(request(&spec, naive, body, pid)?)?;
        with.push(interval(|| {
            let end = Instant::now() + Duration::from_millis(500);
            while Instant::now() < end {
                run.step(Duration::from_millis(50))?;
            }
            Ok(())
        })?);
        outcomes.push(run.finish()?);
    }
    let blocks = caller.blocks()?;
    let of = |times: &[(u64, u64)]| -> Vec<f64> {
        let inside = |end: u64, took: u64| times.iter().any(|&(from, to)| end > from + took && end < to);
        let each = blocks.iter().filter(|&&(end, took)| inside(end, took));
        each.map(|&(_, took)| took as f64 / f64::from(calls)).collect()
    };
    let (without, with) = (of(&without), of(&with));
    ensure!(without.len() > 50 && with.len() > 50, "{} and {} blocks", without.len(), with.len());
    let spread = |values: &[f64]| (quantile(values, 0.75) - quantile(values, 0.25)) / 2.0;
    let Some(outcome) = outcomes.pop() else { bail!("no round") };
    Ok(Row {
        truth_ns: median(&with) - median(&without),
        error_ns: spread(&with).hypot(spread(&without)),
        outcome: merged(outcome, &outcomes),
    })
}

/// When it began and ended on CLOCK_MONOTONIC, in ns.
fn interval(run: impl FnOnce() -> Result<()>) -> Result<(u64, u64)> {
    let from = monotonic_ns();
    run()?;
    Ok((from, monotonic_ns()))
}

fn request(spec: &str, naive: bool, body: Body, pid: u32) -> Result<Request> {
    Ok(Request {
        specs: Spec::parse_list(spec)?,
        target: Target::Process(pid),
        body,
        budget: None,
        limit: 10,
        naive,
        dry_run: false,
        command_line: String::new(),
        version: "",
    })
}

/// The last outcome with the medians of the live prices of all.
fn merged(mut last: Outcome, others: &[Outcome]) -> Outcome {
    let mut live: Vec<f64> = others.iter().filter_map(|outcome| outcome.probes[0].live_ns).collect();
    live.extend(last.probes[0].live_ns);
    last.probes[0].live_ns = Some(median(&live));
    last
}
