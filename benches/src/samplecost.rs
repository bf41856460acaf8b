//! (c) BPF run time of one sample of a known stack, by lightfoot's own count and by the kernel's.

use crate::Length;
use crate::table::{Table, within};
use crate::tool::{BpfStatistics, Tool, bpf_run_time, lightfoot, read_report, sleep};
use anyhow::{Context, Result};
use lightfoot_tests::Workload;
use std::time::Instant;

/// Prints one row per depth and transfer.
pub fn run(length: Length) -> Result<()> {
    let seconds = length.seconds(6.0).round().max(2.0);
    let mut table = Table::new(
        &format!(
            "bpf: run time of one sample, {seconds:.0} s at 999 Hz per row (reach with 30 frames: half of the samples at most 3,000 ns with a warm cache)"
        ),
        &[
            "user frames",
            "transfer",
            "samples",
            "fired",
            "half at most, ns",
            "99 of 100 at most, ns",
            "ns/sample (cost.bpf_ns / recorded)",
            "ns/sample (kernel statistics)",
            "ns/run (kernel statistics)",
        ],
    );
    let _statistics = BpfStatistics::on()?;
    for depth in [7, 27, 97] {
        for transfer in ["counted", "ring"] {
            let target = Workload::start("deep", &format!("{depth} --seconds 600"));
            let dir = tempfile::tempdir()?;
            let path = dir.path().join("p.json");
            let arguments = format!(
                "profile --no-kernel -F 999 -d {seconds}s -p {} --transfer {transfer} -f json -o",
                target.pid()
            );
            let tool = Tool::start(lightfoot(&arguments).arg(&path))?;
            // The kernel's own count over a window inside the run.
            sleep(seconds * 0.3);
            let (before, from) = (bpf_run_time(tool.pid()).context("fdinfo")?, Instant::now());
            sleep(seconds * 0.5);
            let (after, window) = (bpf_run_time(tool.pid()).context("fdinfo")?, from.elapsed());
            tool.wait()?;
            let report = read_report(&path)?;
            let own = report.cost("bpf_ns") as f64 / report.accounting.recorded.max(1) as f64;
            let half = report.cost("bpf_sample_p50_ns");
            let runs = after.1 - before.1;
            let kernel_ns = (after.0 - before.0) as f64;
            let duration_ns = report.json["meta"]["duration_ns"].as_f64().unwrap_or(f64::NAN);
            let samples = report.accounting.recorded as f64 * window.as_nanos() as f64 / duration_ns;
            table.row(vec![
                (depth + 3).to_string(),
                transfer.to_string(),
                report.accounting.recorded.to_string(),
                report.accounting.fired.to_string(),
                within(half.to_string(), depth != 27 || half <= 3000),
                report.cost("bpf_sample_p99_ns").to_string(),
                format!("{own:.0}"),
                format!("{:.0}", kernel_ns / samples),
                format!("{:.0}", kernel_ns / runs.max(1) as f64),
            ]);
        }
    }
    table.print();
    println!(
        "\nThe two columns after those of single samples charge filtered firings (other CPUs, other processes) to them. Kernel statistics are of every program of lightfoot's, over a window inside \
         the run; their own clock reads are in them."
    );
    Ok(())
}
