//! (a) Shares of CPU time against programs whose split is exact by construction, and samples per CPU second and Hz.

use crate::Length;
use crate::table::{Table, median, quantile, within};
use crate::tool::{Tool, lightfoot, read_report};
use anyhow::{Result, ensure};
use lightfoot_tests::program;
use serde_json::Value;
use std::process::Stdio;

const FUNCTIONS: [&str; 3] = ["work_70", "work_20", "work_10"];

/// Prints one row per split, threads and rate.
pub fn run(length: Length) -> Result<()> {
    let seconds = length.seconds(10.0);
    let runs = length.rounds(3);
    let mut table = Table::new(
        &format!(
            "accuracy: {runs} runs of {seconds:.0} s per row (reach: 3 points at 99 Hz, 1 point at 999 Hz; ratio 0.98 to 1.02)"
        ),
        &[
            "Hz",
            "threads",
            "true shares",
            "measured, last run",
            "worst error of a run, points: median",
            "largest",
            "one standard error",
            "samples",
            "samples/(CPU x Hz), median",
        ],
    );
    for rate in [99u64, 999] {
        for (shares, threads) in [("70,20,10", 1), ("70,20,10", 4), ("50,30,20", 2), ("5,90,5", 1)] {
            let results =
                (0..runs).map(|_| once(rate, shares, threads, seconds)).collect::<Result<Vec<_>>>()?;
            let Some(last) = results.last() else { continue };
            let worst: Vec<f64> = results.iter().map(|one| one.worst).collect();
            let ratio = median(&results.iter().map(|one| one.ratio).collect::<Vec<_>>());
            table.row(vec![
                rate.to_string(),
                threads.to_string(),
                shares.replace(',', " / "),
                last.measured.clone(),
                within(
                    format!("{:.2}", median(&worst)),
                    median(&worst) <= if rate == 99 { 3.0 } else { 1.0 },
                ),
                format!("{:.2}", quantile(&worst, 1.0)),
                format!("{:.2}", last.sigma),
                last.samples.to_string(),
                within(format!("{ratio:.4}"), (0.98..=1.02).contains(&ratio)),
            ]);
        }
    }
    table.print();
    println!(
        "\nOne standard error is that of the share nearest 50 %, sqrt(p (1 - p) / n): no sampling can do better at random instants."
    );
    Ok(())
}

/// What one run showed.
struct Once {
    measured: String,
    worst: f64,
    sigma: f64,
    samples: u64,
    ratio: f64,
}

fn once(rate: u64, shares: &str, threads: u32, seconds: f64) -> Result<Once> {
    let dir = tempfile::tempdir()?;
    let (path, truth_path) = (dir.path().join("p.json"), dir.path().join("truth"));
    let bill = Tool::start(
        lightfoot(&format!("profile -F {rate} -f json -o"))
            .arg(&path)
            .arg("--")
            .arg(program("split"))
            .args(["--shares", shares, "--threads", &threads.to_string(), "--seconds", &seconds.to_string()])
            .stdout(Stdio::from(std::fs::File::create(&truth_path)?)),
    )?
    .wait()?;
    ensure!(bill.code == 0 || bill.code == 3, "exit code {}", bill.code);
    let report = read_report(&path)?;
    let truth: Value = serde_json::from_slice(&std::fs::read(&truth_path)?)?;
    let samples = FUNCTIONS.iter().map(|name| report.through(name)).sum::<u64>();
    let (mut worst, mut sigma, mut measured) = (0f64, 0f64, Vec::new());
    for name in FUNCTIONS {
        let p = truth["functions"][name]["share"].as_f64().unwrap_or(f64::NAN);
        let share = report.share(name, &FUNCTIONS);
        worst = worst.max((share - p).abs() * 100.0);
        sigma = sigma.max((p * (1.0 - p) / samples as f64).sqrt() * 100.0);
        measured.push(format!("{:.2}", share * 100.0));
    }
    let cpu_s = truth["process_cpu_ns"].as_f64().unwrap_or(f64::NAN) / 1e9;
    let pid = truth["pid"].as_u64().unwrap_or(0) as u32;
    let ratio = report.count(|stack| stack.pid == pid) as f64 / (cpu_s * rate as f64);
    Ok(Once { measured: measured.join(" / "), worst, sigma, samples, ratio })
}
