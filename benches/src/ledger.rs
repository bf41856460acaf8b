//! (f) The ledger against the truth from outside: what the target loses, and what the kernel charges to lightfoot.

use crate::meter::Meters;
use crate::table::{Table, median, median_error, quantile, within};
use crate::tool::{Bill, Tool, lightfoot, read_report, sleep};
use crate::{Length, machine};
use anyhow::Result;
use lightfoot_tests::Report;

/// Prints one row per way of measuring and rate: loss of the target in percent of its CPU time, measured and by the ledger; and user space.
pub fn run(length: Length) -> Result<()> {
    let rounds = length.rounds(12);
    let seconds = 4.0;
    let mut loss = Table::new(
        &format!(
            "ledger: a load of 31 frames on each of {} CPUs, {rounds} alternating blocks of {seconds:.0} s off and on (reach: within 10 % or 0.02 points)",
            machine::cpus()
        ),
        &[
            "measured by",
            "Hz",
            "loss measured, % of CPU",
            "+-",
            "ledger: interrupts + BPF, % of CPU",
            "interrupts",
            "price of one over the blocks, ns",
            "BPF",
            "difference, points",
            "ledger / measured",
        ],
    );
    let mut bills = Vec::new();
    for (program, rate) in [("gaps", 999), ("gaps", 4999), ("meter", 999), ("meter", 4999)] {
        let meters = Meters::start(program, 28, 1000.0)?;
        let mut prices = Vec::new();
        let (mut measured, mut ledger, mut interrupts, mut bpf) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let look = || {
                if program == "gaps" {
                    meters.in_gaps(seconds - 1.5)
                } else {
                    Ok(meters.measure(seconds - 1.5)?.speed)
                }
            };
            let off = look()?;
            let dir = tempfile::tempdir()?;
            let path = dir.path().join("p.json");
            let arguments =
                format!("profile --no-kernel -F {rate} -d {seconds}s -p {} -f json -o", meters.pids());
            let tool = Tool::start(lightfoot(&arguments).arg(&path))?;
            sleep(1.0);
            let on = look()?;
            let bill = tool.wait()?;
            sleep(0.2);
            let report = read_report(&path)?;
            measured.push(if program == "gaps" { (on - off) * 100.0 } else { (1.0 - on / off) * 100.0 });
            let base = report.json["meta"]["duration_ns"].as_f64().unwrap_or(f64::NAN)
                * machine::cpus() as f64
                / 100.0;
            prices.push(report.cost("interrupt_each_ns") as f64);
            interrupts.push(report.cost("interrupt_ns") as f64 / base);
            bpf.push(report.cost("bpf_ns") as f64 / base);
            ledger.push((report.cost("interrupt_ns") + report.cost("bpf_ns")) as f64 / base);
            bills.push((rate, report, bill));
        }
        let price = |q| quantile(&prices, q);
        let (said, lost) = (median(&ledger), median(&measured));
        let fits = (said - lost).abs() <= 0.02 || (said / lost - 1.0).abs() <= 0.1;
        loss.row(vec![
            program.to_string(),
            rate.to_string(),
            format!("{lost:.3}"),
            format!("{:.3}", median_error(&measured)),
            within(format!("{said:.3}"), fits),
            format!("{:.3}", median(&interrupts)),
            format!("{:.0} ({:.0} to {:.0})", price(0.5), price(0.0), price(1.0)),
            format!("{:.3}", median(&bpf)),
            format!("{:+.3}", said - lost),
            format!("{:.3}", said / lost),
        ]);
    }
    loss.print();
    println!(
        "\n`gaps` watches the clock: exact on a busy machine, without what an interrupt costs the code after it. `meter` counts work done per CPU second: all of \
         it, but only on a quiet machine.\n"
    );
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
