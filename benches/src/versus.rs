//! (e) Against `perf record -g`, `perf script` and a folding of its output, on the same load, in alternating blocks.

use crate::meter::{Meters, Pace};
use crate::table::{Table, median, median_error, within};
use crate::tool::{Bill, Tool, lightfoot, sleep};
use crate::{Length, machine};
use anyhow::{Context, Result, ensure};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// What one block of one tool showed.
#[derive(Default)]
struct Blocks {
    /// Speed of the target per CPU second, relative to the pause before.
    speed: Vec<f64>,
    /// What the target got done per wall second, relative to the pause before.
    throughput: Vec<f64>,
    cpu_ms: Vec<f64>,
    recorded_bytes: Vec<f64>,
    folded_bytes: Vec<f64>,
    samples: Vec<f64>,
    rss_mb: Vec<f64>,
}

/// Prints one row per rate and tool.
pub fn run(length: Length) -> Result<()> {
    if !Command::new("perf").arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("perf: not installed (Debian: apt-get install linux-perf)");
        return Ok(());
    }
    let version = Command::new("perf").arg("--version").output()?;
    let (seconds, rounds) = (length.seconds(6.0).round().max(3.0), length.rounds(9));
    let mut table = Table::new(
        &format!(
            "perf: {} meters of 31 frames, blocks of {seconds:.0} s, {rounds} rounds of (pause, perf, pause, lightfoot); {}",
            machine::cpus(),
            String::from_utf8_lossy(&version.stdout).trim()
        ),
        &[
            "Hz",
            "tool",
            "slowdown, % of target's CPU",
            "+-",
            "slowdown, % of wall work",
            "samples",
            "tool's CPU to a folded file, ms",
            "of that after recording, ms",
            "recorded file, kB",
            "folded file, kB",
            "peak RSS, MB",
        ],
    );
    for rate in [99, 999] {
        let meters = Meters::start("meter", 28, 1000.0)?;
        let mut perf = Blocks::default();
        let mut ours = Blocks::default();
        let mut script_ms = Vec::new();
        for _ in 0..rounds {
            let dir = tempfile::tempdir()?;
            let pause = block(&meters, seconds * 0.5, || Ok(None))?;
            let data = dir.path().join("perf.data");
            let mut record = Command::new("perf");
            record
                .args(["record", "-q", "-g", "-F", &rate.to_string(), "-p", &meters.pids(), "-o"])
                .arg(&data)
                .args(["--", "sleep", &seconds.to_string()])
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let with = block(&meters, seconds, || Ok(Some(Tool::start(&mut record)?)))?;
            let folded = dir.path().join("perf.folded");
            let (script, samples) = fold_perf_script(&data, &folded)?;
            let bill = with.bill.context("perf record")?;
            ensure!(samples > 0, "perf script shows no samples");
            perf.add(
                &pause,
                &with,
                bill.cpu_ns + script.cpu_ns,
                bill.peak_rss_bytes.max(script.peak_rss_bytes),
            );
            script_ms.push(script.cpu_ns as f64 / 1e6);
            perf.recorded_bytes.push(std::fs::metadata(&data)?.len() as f64);
            perf.folded_bytes.push(std::fs::metadata(&folded)?.len() as f64);
            perf.samples.push(samples as f64);

            let pause = block(&meters, seconds * 0.5, || Ok(None))?;
            let folded = dir.path().join("ours.folded");
            let mut command =
                lightfoot(&format!("profile -F {rate} -d {seconds}s -p {} -f folded -o", meters.pids()));
            command.arg(&folded).stderr(Stdio::null());
            let with = block(&meters, seconds, || Ok(Some(Tool::start(&mut command)?)))?;
            let bill = with.bill.context("lightfoot")?;
            ensure!(bill.code == 0 || bill.code == 3, "lightfoot: exit code {}", bill.code);
            ours.add(&pause, &with, bill.cpu_ns, bill.peak_rss_bytes);
            let text = std::fs::read_to_string(&folded)?;
            ours.folded_bytes.push(text.len() as f64);
            ours.recorded_bytes.push(text.len() as f64);
            let count = |line: &str| line.rsplit_once(' ').and_then(|(_, count)| count.parse::<f64>().ok());
            ours.samples.push(text.lines().filter_map(count).sum());
        }
        let better = |ours: &[f64], theirs: &[f64]| median(ours) <= median(theirs);
        for (name, blocks, after) in [("perf", &perf, median(&script_ms)), ("lightfoot", &ours, f64::NAN)] {
            let mine = name == "lightfoot";
            let slowdown = |values: &[f64]| (1.0 - median(values)) * 100.0;
            table.row(vec![
                rate.to_string(),
                name.to_string(),
                within(format!("{:.3}", slowdown(&blocks.speed)), !mine || better(&perf.speed, &ours.speed)),
                format!("{:.3}", median_error(&blocks.speed) * 100.0),
                format!("{:.3}", slowdown(&blocks.throughput)),
                format!("{:.0}", median(&blocks.samples)),
                within(format!("{:.1}", median(&blocks.cpu_ms)), !mine || better(&ours.cpu_ms, &perf.cpu_ms)),
                if mine { "-".into() } else { format!("{after:.1}") },
                within(
                    format!("{:.1}", median(&blocks.recorded_bytes) / 1000.0),
                    !mine || better(&ours.recorded_bytes, &perf.recorded_bytes),
                ),
                format!("{:.1}", median(&blocks.folded_bytes) / 1000.0),
                format!("{:.1}", median(&blocks.rss_mb)),
            ]);
        }
    }
    table.print();
    println!(
        "\nlightfoot writes no intermediate file: its folded file is what it recorded. Slowdowns are medians of block / pause before it."
    );
    Ok(())
}

impl Blocks {
    fn add(&mut self, pause: &Block, with: &Block, cpu_ns: u64, rss: u64) {
        self.speed.push(with.pace.speed / pause.pace.speed);
        self.throughput.push(with.pace.throughput / pause.pace.throughput);
        self.cpu_ms.push(cpu_ns as f64 / 1e6);
        self.rss_mb.push(rss as f64 / 1e6);
    }
}

/// A stretch of time with or without a tool.
struct Block {
    pace: Pace,
    bill: Option<Bill>,
}

/// Measures the meters over the middle of a block, while the tool surely samples; waits for the tool's end.
fn block(meters: &Meters, seconds: f64, start: impl FnOnce() -> Result<Option<Tool>>) -> Result<Block> {
    let tool = start()?;
    if tool.is_some() {
        sleep(0.7);
    }
    let pace = meters.measure(if tool.is_some() { seconds - 1.2 } else { seconds })?;
    let bill = tool.map(Tool::wait).transpose()?;
    sleep(0.1);
    Ok(Block { pace, bill })
}

/// `perf script`, folded: `comm;root;...;leaf count`. The folding's own time is not charged to perf. Returns the bill of perf
/// script and the number of samples.
fn fold_perf_script(data: &Path, folded: &Path) -> Result<(Bill, u64)> {
    let dir = tempfile::tempdir()?;
    let text = dir.path().join("script.txt");
    let mut command = Command::new("perf");
    command.args(["script", "-F", "comm,pid,tid,time,event,ip,sym,dso", "-i"]).arg(data);
    command.stdout(Stdio::from(std::fs::File::create(&text)?)).stderr(Stdio::null());
    let bill = Tool::start(&mut command)?.wait()?;
    let mut stacks: HashMap<String, u64> = HashMap::new();
    let (mut comm, mut frames, mut samples) = (String::new(), Vec::<String>::new(), 0);
    for line in BufReader::new(std::fs::File::open(&text)?).lines().chain([Ok(String::new())]) {
        let line = line?;
        if line.trim().is_empty() {
            if !comm.is_empty() {
                let mut stack = std::mem::take(&mut comm);
                for frame in frames.drain(..).rev() {
                    stack.push(';');
                    stack.push_str(&frame);
                }
                *stacks.entry(stack).or_default() += 1;
                samples += 1;
            }
        } else if line.starts_with(char::is_whitespace) && !comm.is_empty() {
            // "  address symbol (object)"
            let rest = line.trim().split_once(' ').map_or("", |(_, rest)| rest);
            frames.push(rest.rsplit_once(" (").map_or(rest, |(name, _)| name).to_string());
        } else {
            comm = line.split_whitespace().next().unwrap_or("?").to_string();
        }
    }
    let mut file = std::fs::File::create(folded)?;
    for (stack, count) in stacks {
        writeln!(file, "{stack} {count}")?;
    }
    Ok((bill, samples))
}
