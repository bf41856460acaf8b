//! (k) Time off the CPU: sums against the kernel's accounting, and what it costs at 50,000 switches a second.

use crate::Length;
use crate::table::{Table, median, median_error, within};
use crate::tool::{Tool, lightfoot, phase, profile, read_report, sleep};
use anyhow::{Context, Result, ensure};
use lightfoot_tests::{Lightfoot, Report, Workload};
use std::time::Duration;

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
    switches: u64,
}

fn threads(pid: u32) -> Result<Threads> {
    let mut sum = Threads::default();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = entry?.path();
        let schedstat = std::fs::read_to_string(path.join("schedstat"))?;
        let mut words = schedstat.split_whitespace();
        sum.threads += 1;
        sum.cpu_ns += words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
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
            switches: self.switches - before.switches,
        }
    }
}

/// The kernel's counts, and when they were read.
fn measured(pid: u32) -> Result<(std::time::Instant, Threads)> {
    Ok((std::time::Instant::now(), threads(pid)?))
}

/// Programs watched from their beginning to their end, which tell what the kernel says that their threads have waited for a CPU; and
/// a run inside a program's life against the wall time of its threads.
fn sums(length: Length) -> Result<()> {
    let seconds = length.seconds(20.0).round();
    let mut table = Table::new(
        &format!(
            "off-CPU: sums against the kernel's accounting, {seconds:.0} s at 499 Hz (reach: within 2 %)"
        ),
        &["load", "part", "samples", "sum of the samples, s", "kernel, s", "samples, %", "all waits, %"],
    );
    let loads = [("waits", ""), ("switchstorm", "--rate 50000 --sleepers 20")];
    let mut row = |program: &str, part: &str, report: &Report, kernel: f64| {
        let runnable = part == "runnable";
        let (samples, sum) = sampled(report, runnable);
        let differs = (all(report, runnable) / kernel - 1.0) * 100.0;
        table.row(vec![
            program.to_string(),
            part.to_string(),
            samples.to_string(),
            format!("{:.3}", sum / 1e9),
            format!("{:.3}", kernel / 1e9),
            format!("{:+.2}", (sum / kernel - 1.0) * 100.0),
            within(format!("{differs:+.2}"), differs.abs() <= 2.0),
        ]);
    };
    for (program, arguments) in loads {
        let (report, run) = Lightfoot::new("profile --off-cpu -F 499")
            .command(program, &format!("{arguments} --seconds {seconds}"))
            .limit(Duration::from_secs_f64(seconds + 60.0))
            .report_and_run(0);
        let kernel = run.truth()["run_delay"].as_f64().context("run_delay")?;
        row(program, "runnable", &report, kernel);
    }
    for (program, arguments) in loads {
        let load = Workload::start(program, &format!("{arguments} --seconds {}", seconds + 60.0));
        sleep(1.0);
        let before = measured(load.pid())?;
        let (report, _) = profile(&format!("profile --off-cpu -F 499 -d {seconds}s -p {}", load.pid()))?;
        let after = measured(load.pid())?;
        let seen = after.1.since(before.1);
        ensure!(seen.threads == before.1.threads, "{program}: threads have come or gone");
        let run_ns = report.json["meta"]["duration_ns"].as_f64().context("duration")?;
        // CPU time, unlike run delay, is spread evenly: what it was in the run may be taken from the time around it.
        let cpu_ns = seen.cpu_ns as f64 * run_ns / (after.0 - before.0).as_nanos() as f64;
        let off_ns = run_ns * seen.threads as f64 - cpu_ns;
        row(program, "blocked", &report, off_ns - all(&report, true));
    }
    table.print();
    println!(
        "\nRunnable: the program is watched from its beginning to its end, and each of its threads has read its run delay (`schedstat`) as its last deed. What a thread waits \
         before the run begins and behind that deed is in one of the two only: some ms. (The run delay of a longer time cannot be scaled to a run inside of it: \
         on few CPUs lightfoot's own start and end push threads aside.) Blocked: wall time of all threads in the run, less their CPU time (scaled from the time around the run), less \
         runnable time. How many of the samples are runnable is chance; the sum of both kinds is not."
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
            "options",
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
    // As fast as they can, the pairs never wait for the machine to wake up: there the price of a switch stands out.
    for (options, speed) in
        [("-F 19", 50_000), ("-F 99", 50_000), ("-F 99 --wakers", 50_000), ("-F 19", 100_000_000)]
    {
        let load = Workload::start("switchstorm", &format!("--rate {speed} --sleepers 0 --seconds 600"));
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
                format!("profile --off-cpu {options} -d {}s -p {} -f json -o", block_s + 0.5, load.pid());
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
            options.to_string(),
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
         It includes the kernel's way to the program and the cold caches that a sample leaves behind, the ledger does not. Last row: the pairs at full speed."
    );
    Ok(())
}
