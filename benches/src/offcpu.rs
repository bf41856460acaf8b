//! (k) Time off the CPU: sums against the kernel's accounting, and what it costs at 50,000 switches a second.

use crate::Length;
use crate::table::{Table, median, median_error, within};
use crate::tool::{Tool, lightfoot, phase, profile, read_report, sleep};
use anyhow::{Context, Result, ensure};
use lightfoot_tests::{Report, Workload};

/// Prints the sums, then the cost.
pub fn run(length: Length) -> Result<()> {
    sums(length)?;
    println!();
    cost(length)
}

/// What the kernel has counted for all threads of a process. Source: `/proc/PID/task/TID/schedstat` and `status`.
#[derive(Clone, Copy, Default, Debug)]
struct Threads {
    threads: u64,
    cpu_ns: u64,
    delay_ns: u64,
    switches: u64,
}

fn threads(pid: u32) -> Result<Threads> {
    let mut sum = Threads::default();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = entry?.path();
        let schedstat = std::fs::read_to_string(path.join("schedstat"))?;
        let mut words = schedstat.split_whitespace().map(|word| word.parse().unwrap_or(0));
        sum.threads += 1;
        sum.cpu_ns += words.next().unwrap_or(0);
        sum.delay_ns += words.next().unwrap_or(0);
        let status = std::fs::read_to_string(path.join("status"))?;
        let counts = status.lines().filter(|line| line.contains("voluntary_ctxt_switches:"));
        sum.switches +=
            counts.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum::<u64>();
    }
    Ok(sum)
}

impl Threads {
    fn since(self, before: Threads) -> Threads {
        Threads {
            threads: self.threads,
            cpu_ns: self.cpu_ns - before.cpu_ns,
            delay_ns: self.delay_ns - before.delay_ns,
            switches: self.switches - before.switches,
        }
    }
}

/// The kernel's counts, and when they were read.
fn measured(pid: u32) -> Result<(std::time::Instant, Threads)> {
    Ok((std::time::Instant::now(), threads(pid)?))
}

/// A run of `--off-cpu` inside a stretch for which the kernel's counts are known; those are scaled to the run's length.
fn sums(length: Length) -> Result<()> {
    let seconds = length.seconds(20.0).round();
    let mut table = Table::new(
        &format!(
            "off-CPU: sum of all samples against the kernel's accounting, {seconds:.0} s at 499 Hz (reach: within 2 %)"
        ),
        &[
            "load",
            "part",
            "samples",
            "sum, s",
            "kernel, s",
            "difference, %",
            "all waits, not only samples, %",
        ],
    );
    let loads = [
        ("waits", format!("--seconds {}", seconds + 60.0)),
        ("switchstorm", format!("--rate 50000 --sleepers 20 --seconds {}", seconds + 60.0)),
    ];
    for (program, arguments) in loads {
        let load = Workload::start(program, &arguments);
        sleep(1.0);
        let before = measured(load.pid())?;
        let (report, _) = profile(&format!("profile --off-cpu -F 499 -d {seconds}s -p {}", load.pid()))?;
        let after = measured(load.pid())?;
        let seen = after.1.since(before.1);
        ensure!(seen.threads == before.1.threads, "{program}: threads have come or gone");
        let run_ns = report.json["meta"]["duration_ns"].as_f64().context("duration")?;
        let part = run_ns / (after.0 - before.0).as_nanos() as f64;
        let runnable = seen.delay_ns as f64 * part;
        let off = run_ns * seen.threads as f64 - seen.cpu_ns as f64 * part;
        for (name, is_runnable, kernel) in [("blocked", false, off - runnable), ("runnable", true, runnable)]
        {
            let (samples, sum) = sampled(&report, is_runnable);
            let differs = (sum / kernel - 1.0) * 100.0;
            table.row(vec![
                program.to_string(),
                name.to_string(),
                samples.to_string(),
                format!("{:.3}", sum / 1e9),
                format!("{:.3}", kernel / 1e9),
                within(format!("{differs:+.2}"), differs.abs() <= 2.0),
                format!("{:+.2}", (all(&report, is_runnable) / kernel - 1.0) * 100.0),
            ]);
        }
    }
    table.print();
    println!(
        "\nKernel, runnable: run delay of all threads. Blocked: their wall time less CPU time and run delay. Both from `schedstat` around the run, scaled to its length: \
         on few CPUs lightfoot's own start and end, outside of the run, push threads aside, and the kernel's run delay is then too high for the run."
    );
    Ok(())
}

/// Samples and their sum in ns.
fn sampled(report: &Report, runnable: bool) -> (u64, f64) {
    let stacks = report
        .stacks
        .iter()
        .filter(|stack| stack.frames.last().is_some_and(|leaf| (leaf == "[runnable]") == runnable));
    stacks.fold((0, 0.0), |(n, ns), stack| (n + stack.count, ns + stack.weight_ns as f64))
}

/// What all waits took by the run's own count at each switch, in ns.
fn all(report: &Report, runnable: bool) -> f64 {
    let by_reason = report.json["meta"]["off_cpu"]["blocked_ns"].as_array().map_or(&[][..], Vec::as_slice);
    by_reason
        .iter()
        .enumerate()
        .filter(|(reason, _)| (*reason == RUNNABLE) == runnable)
        .filter_map(|(_, ns)| ns.as_f64())
        .sum()
}

/// Place of `[runnable]` among the reasons (`model::Wait`).
const RUNNABLE: usize = 1;

/// CPU time per switch of pairs that hand a byte to and fro, in alternating blocks without and with lightfoot; and the ledger.
fn cost(length: Length) -> Result<()> {
    let (rounds, block_s) = (length.rounds(12), 4.0);
    let mut table = Table::new(
        &format!(
            "off-CPU: cost at 50,000 switches/s, {rounds} alternating blocks of {block_s:.0} s, in % of one CPU (reach: 1 %)"
        ),
        &[
            "Hz",
            "switches/s",
            "CPU ns per switch without",
            "added",
            "+-",
            "added at 50,000/s, %",
            "ledger: BPF at 50,000/s, %",
            "user space, collecting, %",
            "samples/s",
        ],
    );
    for rate in [19, 99] {
        let load = Workload::start("switchstorm", "--rate 50000 --sleepers 0 --seconds 600");
        sleep(1.0);
        let look = || -> Result<(f64, f64)> {
            let before = measured(load.pid())?;
            sleep(block_s - 1.0);
            let after = measured(load.pid())?;
            let seen = after.1.since(before.1);
            ensure!(seen.switches > 0, "switchstorm does nothing");
            let per_s = seen.switches as f64 / (after.0 - before.0).as_secs_f64();
            Ok((seen.cpu_ns as f64 / seen.switches as f64, per_s))
        };
        let mut columns: [Vec<f64>; 6] = Default::default();
        for _ in 0..rounds {
            let off = look()?.0;
            let dir = tempfile::tempdir()?;
            let path = dir.path().join("p.json");
            let arguments =
                format!("profile --off-cpu -F {rate} -d {}s -p {} -f json -o", block_s + 0.5, load.pid());
            let tool = Tool::start(lightfoot(&arguments).arg(&path))?;
            sleep(1.0);
            let (on, per_s) = look()?;
            let bill = tool.wait()?;
            ensure!(bill.code == 0 || bill.code == 3, "lightfoot {arguments}: exit code {}", bill.code);
            let report = read_report(&path)?;
            let run_s = report.json["meta"]["duration_ns"].as_f64().context("duration")? / 1e9;
            let values = [
                off,
                on - off,
                per_s,
                report.cost("bpf_ns") as f64 / run_s / per_s,
                phase(&report, "collect") as f64 / run_s / 1e7,
                report.accounting.recorded as f64 / run_s,
            ];
            for (column, value) in columns.iter_mut().zip(values) {
                column.push(value);
            }
        }
        let [off, added, per_s, ledger, user, samples] = columns.each_ref().map(|values| median(values));
        // ns a switch, 50,000 times a second, in percent of a second.
        let at_50k = |ns: f64| ns * 50_000.0 / 1e9 * 100.0;
        table.row(vec![
            rate.to_string(),
            format!("{per_s:.0}"),
            format!("{off:.0}"),
            format!("{added:.0}"),
            format!("{:.0}", median_error(&columns[1])),
            within(format!("{:.2}", at_50k(added)), at_50k(added) <= 1.0),
            format!("{:.2}", at_50k(ledger)),
            format!("{user:.2}"),
            format!("{samples:.0}"),
        ]);
    }
    table.print();
    println!(
        "\nAdded: CPU time that the kernel charges to the pairs, per switch; what the program on the tracepoint takes is charged to the thread that comes. \
         It includes the cold caches that a sample leaves behind, the ledger does not."
    );
    Ok(())
}
