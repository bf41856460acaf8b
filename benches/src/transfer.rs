//! (b) Counting equal stacks in the kernel and reading them in batches, against one record per sample through a ring buffer.

use crate::Length;
use crate::table::Table;
use crate::tool::{Tool, lightfoot, phase, profile, read_report};
use anyhow::{Result, ensure};
use lightfoot_tests::Workload;
use std::collections::BTreeMap;
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
        &format!("transfer: {seconds:.0} s per row, fixed costs of start and end taken out of the syscalls"),
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

/// Counts system calls with `strace -f -c`, in a short and a long run: the difference is what collecting takes. Tracing slows lightfoot
/// but does not change what it calls.
fn syscalls(arguments: &str, length: Length) -> Result<Calls> {
    let (short, long) = (1.0, length.seconds(6.0).max(3.0));
    let (calls_short, n_short) = strace(&format!("{arguments} -d {short}s"))?;
    let (calls_long, n_long) = strace(&format!("{arguments} -d {long}s"))?;
    let mut difference: Vec<(i64, String)> = calls_long
        .iter()
        .map(|(name, &count)| (count - calls_short.get(name).copied().unwrap_or(0), name.clone()))
        .filter(|(count, _)| *count > 0)
        .collect();
    difference.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let sum: i64 = difference.iter().map(|(count, _)| count).sum();
    let top = difference
        .iter()
        .take(4)
        .map(|(count, name)| format!("{name} {count}"))
        .collect::<Vec<_>>()
        .join(", ");
    Ok(Calls { per_sample: sum as f64 / (n_long.saturating_sub(n_short)).max(1) as f64, top })
}

/// Calls by name, and samples, of one run under strace.
fn strace(arguments: &str) -> Result<(BTreeMap<String, i64>, u64)> {
    let dir = tempfile::tempdir()?;
    let (counts, path) = (dir.path().join("counts"), dir.path().join("p.json"));
    let inner = lightfoot(arguments);
    let mut command = Command::new("strace");
    command.args(["-f", "-c", "-q", "-o"]).arg(&counts).arg(inner.get_program()).args(inner.get_args());
    command.args(["-f", "json", "-o"]).arg(&path).stdout(Stdio::null());
    let bill = Tool::start(&mut command)?.wait()?;
    ensure!(bill.code == 0 || bill.code == 3, "strace lightfoot {arguments}: exit code {}", bill.code);
    let mut calls = BTreeMap::new();
    // % time, seconds, usecs/call, calls, [errors,] name
    for line in std::fs::read_to_string(&counts)?.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let (Some(count), Some(name)) = (fields.get(3).and_then(|text| text.parse().ok()), fields.last())
            && *name != "total"
        {
            calls.insert(name.to_string(), count);
        }
    }
    Ok((calls, read_report(&path)?.accounting.recorded))
}
