//! (f) The ledger against the truth from outside: what the target loses, and what the kernel charges to lightfoot.

use crate::meter::Meters;
use crate::table::{Table, median, median_error, within};
use crate::tool::{Bill, Tool, lightfoot, read_report, sleep};
use crate::{Length, machine};
use anyhow::Result;
use lightfoot_tests::Report;

/// Prints one row per rate: loss of the target in percent of its CPU time, measured and by the ledger; and user space.
pub fn run(length: Length) -> Result<()> {
    let rounds = length.rounds(12);
    let seconds = 4.0;
    let mut loss = Table::new(
        &format!(
            "ledger: {} meters of 31 frames, {rounds} alternating blocks of {seconds:.0} s off and on (reach: within 10 % or 0.02 points)",
            machine::cpus()
        ),
        &[
            "Hz",
            "loss measured, % of CPU",
            "+-",
            "ledger: interrupts + BPF, % of CPU",
            "interrupts",
            "BPF",
            "difference, points",
            "ledger / measured",
        ],
    );
    let mut bills = Vec::new();
    for rate in [999, 4999] {
        let meters = Meters::start(28, 1000.0)?;
        let (mut ratios, mut ledger, mut interrupts, mut bpf) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let off = meters.measure(seconds - 1.5)?.speed;
            let dir = tempfile::tempdir()?;
            let path = dir.path().join("p.json");
            let arguments =
                format!("profile --no-kernel -F {rate} -d {seconds}s -p {} -f json -o", meters.pids());
            let tool = Tool::start(lightfoot(&arguments).arg(&path))?;
            sleep(1.0);
            let on = meters.measure(seconds - 1.5)?.speed;
            let bill = tool.wait()?;
            sleep(0.2);
            let report = read_report(&path)?;
            ratios.push(on / off);
            let base = report.json["meta"]["duration_ns"].as_f64().unwrap_or(f64::NAN)
                * machine::cpus() as f64
                / 100.0;
            interrupts.push(report.cost("interrupt_ns") as f64 / base);
            bpf.push(report.cost("bpf_ns") as f64 / base);
            ledger.push((report.cost("interrupt_ns") + report.cost("bpf_ns")) as f64 / base);
            bills.push((rate, report, bill));
        }
        let measured = (1.0 - median(&ratios)) * 100.0;
        let said = median(&ledger);
        let fits = (said - measured).abs() <= 0.02 || (said / measured - 1.0).abs() <= 0.1;
        loss.row(vec![
            rate.to_string(),
            format!("{measured:.3}"),
            format!("{:.3}", median_error(&ratios) * 100.0),
            within(format!("{said:.3}"), fits),
            format!("{:.3}", median(&interrupts)),
            format!("{:.3}", median(&bpf)),
            format!("{:+.3}", said - measured),
            format!("{:.3}", said / measured),
        ]);
    }
    loss.print();
    println!();
    user_space(&bills);
    Ok(())
}

/// `cost.user_ns` against the CPU time that the kernel charges to the process, over the same runs.
fn user_space(bills: &[(u64, Report, Bill)]) {
    let mut table = Table::new(
        "ledger: user space",
        &["Hz", "cost.user_ns, ms", "wait4, ms", "difference, points of one CPU", "ratio"],
    );
    for rate in [999, 4999] {
        let of = |value: &dyn Fn(&Report, &Bill) -> f64| {
            let values: Vec<f64> = bills
                .iter()
                .filter(|(r, ..)| *r == rate)
                .map(|(_, report, bill)| value(report, bill))
                .collect();
            median(&values)
        };
        let said = of(&|report, _| report.cost("user_ns") as f64);
        let charged = of(&|_, bill| bill.cpu_ns as f64);
        let points = of(&|report, bill| {
            let duration = report.json["meta"]["duration_ns"].as_f64().unwrap_or(f64::NAN);
            (report.cost("user_ns") as f64 - bill.cpu_ns as f64) / duration * 100.0
        });
        table.row(vec![
            rate.to_string(),
            format!("{:.2}", said / 1e6),
            format!("{:.2}", charged / 1e6),
            within(format!("{points:+.3}"), points.abs() <= 0.02 || (said / charged - 1.0).abs() <= 0.1),
            format!("{:.3}", said / charged),
        ]);
    }
    table.print();
}
