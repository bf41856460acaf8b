//! (c) BPF run time of one sample of a known stack, by lightfoot's own count and by the kernel's.

use crate::Length;
use crate::table::{Table, within};
use crate::tool::{BpfStatistics, Tool, bpf_run_time, lightfoot, read_report, sleep};
use anyhow::{Context, Result};
use lightfoot_tests::Workload;

/// Prints one row per depth and transfer.
pub fn run(length: Length) -> Result<()> {
    let seconds = length.seconds(6.0).round().max(2.0);
    let mut table = Table::new(
        &format!(
            "bpf: run time of one sample, {seconds:.0} s at 999 Hz per row (reach: 3,000 ns with 30 frames)"
        ),
        &[
            "user frames",
            "transfer",
            "samples",
            "fired",
            "ns/sample (cost.bpf_ns / recorded)",
            "ns/run (kernel statistics)",
            "runs",
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
            let before = bpf_run_time(tool.pid()).context("fdinfo")?;
            sleep(seconds * 0.5);
            let after = bpf_run_time(tool.pid()).context("fdinfo")?;
            tool.wait()?;
            let report = read_report(&path)?;
            let own = report.cost("bpf_ns") as f64 / report.accounting.recorded.max(1) as f64;
            let runs = after.1 - before.1;
            let kernel = (after.0 - before.0) as f64 / runs.max(1) as f64;
            table.row(vec![
                (depth + 3).to_string(),
                transfer.to_string(),
                report.accounting.recorded.to_string(),
                report.accounting.fired.to_string(),
                within(format!("{own:.0}"), depth != 27 || own <= 3000.0),
                format!("{kernel:.0}"),
                runs.to_string(),
            ]);
        }
    }
    table.print();
    println!(
        "\nKernel statistics are a mean over every run of every program, filtered firings on other CPUs included."
    );
    Ok(())
}
