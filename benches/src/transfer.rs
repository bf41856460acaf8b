//! (b) Counting equal stacks in the kernel and reading them in batches, against one record per sample through a ring buffer.

use crate::Length;
use crate::table::Table;
use crate::tool::{Tool, lightfoot, phase, profile, read_report, sleep};
use anyhow::{Result, ensure};
use lightfoot_tests::Workload;
use std::process::{Command, Stdio};

/// Loads: few distinct stacks, and nearly as many as samples.
const LOADS: [(&str, &str, &str); 2] = [
    ("few stacks", "split", "--threads 2 --seconds 600"),
    ("many stacks", "manystacks", "--bits 24 --seconds 600"),
];

/// Prints one row per load, rate and transfer; the two transfers of a row pair run one after the other on the same load.
pub fn run(length: Length) -> Result<()> {
    let seconds = length.seconds(9.0).round();
    let mut table = Table::new(
        &format!("transfer: {seconds:.0} s per row; syscalls while collecting only"),
        &[
            "load",
            "Hz",
            "transfer",
            "samples",
            "lost",
            "BPF ns/sample",
            "user ns/sample, collecting",
            "user ns/sample, all",
            "syscalls/sample",
            "bytes/sample",
            "map bytes",
            "syscalls",
        ],
    );
    for (load, program, arguments) in LOADS {
        let target = Workload::start(program, arguments);
        for rate in [100, 4999] {
            for transfer in ["counted", "ring"] {
                let arguments = format!("profile -p {} -F {rate} --transfer {transfer}", target.pid());
                let (report, bill) = profile(&format!("{arguments} -d {seconds}s"))?;
                let calls = syscalls(&arguments, length)?;
                let n = report.accounting.recorded.max(1) as f64;
                table.row(vec![
                    load.to_string(),
                    rate.to_string(),
                    transfer.to_string(),
                    report.accounting.recorded.to_string(),
                    report.accounting.lost.to_string(),
                    format!("{:.0}", report.cost("bpf_ns") as f64 / n),
                    format!("{:.0}", phase(&report, "collect") as f64 / n),
                    format!("{:.0}", bill.cpu_ns as f64 / n),
                    format!("{:.4}", calls.per_sample),
                    match report.json["cost"]["transfer_bytes"].as_u64() {
                        Some(bytes) => format!("{:.0}", bytes as f64 / n),
                        None => "not reported".into(),
                    },
                    report.cost("bpf_map_bytes").to_string(),
                    calls.top,
                ]);
            }
        }
    }
    table.print();
    Ok(())
}

/// System calls while collecting.
struct Calls {
    per_sample: f64,
    /// The most frequent ones, with their number.
    top: String,
}

/// Counts system calls with `strace -c`, attached to a running lightfoot for a window well inside the run: neither start nor
/// symbolization. Tracing slows lightfoot but does not change what it calls.
fn syscalls(arguments: &str, length: Length) -> Result<Calls> {
    let window_s = length.seconds(6.0);
    let run_s = window_s + 3.0;
    let dir = tempfile::tempdir()?;
    let (counts, path) = (dir.path().join("counts"), dir.path().join("p.json"));
    let tool = Tool::start(
        lightfoot(&format!("{arguments} -d {run_s}s -f json -o")).arg(&path).stderr(Stdio::null()),
    )?;
    sleep(1.5);
    let mut command = Command::new("strace");
    command.args(["-f", "-c", "-q", "-o"]).arg(&counts).args(["-p", &tool.pid().to_string()]);
    let strace = Tool::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    sleep(window_s);
    ensure!(lightfoot_tests::signal(strace.pid(), 2), "strace has ended early");
    strace.wait()?;
    let bill = tool.wait()?;
    ensure!(bill.code == 0 || bill.code == 3, "lightfoot {arguments}: exit code {}", bill.code);
    let report = read_report(&path)?;
    let duration_s = report.json["meta"]["duration_ns"].as_f64().unwrap_or(f64::NAN) / 1e9;
    let samples = report.accounting.recorded as f64 * window_s / duration_s;
    let mut calls: Vec<(u64, String)> = Vec::new();
    // % time, seconds, usecs/call, calls, [errors,] name
    for line in std::fs::read_to_string(&counts)?.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let (Some(count), Some(name)) = (fields.get(3).and_then(|text| text.parse().ok()), fields.last())
            && *name != "total"
        {
            calls.push((count, name.to_string()));
        }
    }
    calls.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let sum: u64 = calls.iter().map(|(count, _)| count).sum();
    let top =
        calls.iter().take(4).map(|(count, name)| format!("{name} {count}")).collect::<Vec<_>>().join(", ");
    Ok(Calls { per_sample: sum as f64 / samples.max(1.0), top })
}
