//! (i) The budget in storms: forks, mappings, context switches, a big binary. No ten seconds may cost more than the budget gives for them.

use crate::Length;
use crate::table::{Table, within};
use crate::tool::{Tool, lightfoot, read_report, running_cpu_ns, sleep};
use anyhow::{Context, Result, ensure};
use lightfoot_tests::{Report, Workload, lightfoot_binary, program, programs_dir, workspace};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Calm before the storm, the storm, calm after it, in s.
const BEFORE_S: f64 = 10.0;
const STORM_S: f64 = 15.0;
const AFTER_S: f64 = 10.0;
const WINDOW: usize = 10;
/// The rate before the storm is the mean over so long, in s; after it, it must hold for so long; it is looked at so often.
const MEAN_S: f64 = 5.0;
const HOLDS_S: f64 = 1.0;
const LOOK_S: f64 = 0.05;
const MAX_MAPS: &str = "/proc/sys/vm/max_map_count";

struct Storm {
    name: &'static str,
    /// `None`: no storm. What happens then is other people's doing.
    program: Option<&'static str>,
    arguments: String,
    /// Options of lightfoot beyond `-a`.
    options: &'static str,
    /// Ends by the clock and says what there was; otherwise it goes by CPU time and is ended.
    says: bool,
}

/// Prints, for each storm and budget, the ten-second windows, the dearest of them, recovery, and what was held back.
pub fn run(length: Length) -> Result<()> {
    let has = options()?;
    let budgets: &[Option<f64>] = match (has.budget, length.quick) {
        (false, _) => &[None],
        (true, true) => &[Some(1.0)],
        (true, false) => &[None, Some(1.0), Some(0.5)],
    };
    make_big()?;
    let _limit = MapLimit::raise(140_000);
    let mut table = Table::new(
        &format!(
            "storms: whole machine at 99 Hz for {:.0} s, the storm from {BEFORE_S:.0} to {:.0} s (reach: 99 % of windows, recovery within 2 s)",
            BEFORE_S + STORM_S + AFTER_S,
            BEFORE_S + STORM_S
        ),
        &[
            "storm",
            "events/s",
            "budget, % of one CPU",
            "windows",
            "under budget",
            "dearest, % of one CPU",
            "dearest from outside, user space only",
            "rate back after, s",
            "samples",
            "lost",
            "peak RSS, MB",
            "BPF maps, MB",
            "held back",
        ],
    );
    for storm in storms(has.off_cpu) {
        for &budget in budgets {
            table.row(measure(&storm, budget)?);
        }
    }
    table.print();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!(
        "\nLoad averages over 1, 5 and 15 minutes at the end: {}",
        load.split(' ').take(3).collect::<Vec<_>>().join(", ")
    );
    if !has.budget {
        println!("\nThis lightfoot has no `--budget`: what the storms cost without one.");
    }
    println!(
        "\nA window begins each second. Its cost is the ledger's where the profile holds windows; otherwise user space by the second from outside \
         (`/proc/PID/task/*/schedstat`) and interrupts and BPF of the whole run, spread evenly."
    );
    Ok(())
}

fn storms(off_cpu: bool) -> [Storm; 5] {
    let timed = |rest: &str| format!("--seconds {STORM_S} {rest}");
    [
        Storm { name: "none", program: None, arguments: String::new(), options: "", says: false },
        Storm {
            name: "1,000 forks/s",
            program: Some("forkstorm"),
            arguments: timed("--rate 1000"),
            options: "",
            says: true,
        },
        Storm {
            name: "100,000 mappings",
            program: Some("mapstorm"),
            arguments: timed("--maps 100000"),
            options: "",
            says: true,
        },
        Storm {
            name: if off_cpu { "200,000 switches/s, --off-cpu" } else { "200,000 switches/s" },
            program: Some("switchstorm"),
            arguments: timed("--rate 200000"),
            options: if off_cpu { "--off-cpu" } else { "" },
            says: true,
        },
        Storm {
            name: "a binary of 118 MB with 400,000 functions",
            program: Some("big"),
            arguments: format!("--cpu-ms {}", 3.0 * STORM_S * 1e3),
            options: "",
            says: false,
        },
    ]
}

struct Options {
    budget: bool,
    off_cpu: bool,
}

/// What this lightfoot can do.
fn options() -> Result<Options> {
    let help = Command::new(lightfoot_binary()).args(["profile", "--help"]).output()?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    Ok(Options { budget: help.contains("--budget"), off_cpu: help.contains("--off-cpu") })
}

/// 118 MB that are built only when somebody needs them.
fn make_big() -> Result<()> {
    let mut make = Command::new("make");
    make.args(["--silent", "big", "--directory"]).arg(workspace().join("tests/programs"));
    let status = make.arg(format!("OUT={}", programs_dir().display())).status().context("make")?;
    ensure!(status.success(), "make big: {status}");
    Ok(())
}

/// `vm.max_map_count`, put back when dropped. The default allows 65,530 mappings.
struct MapLimit(Option<String>);

impl MapLimit {
    fn raise(to: u64) -> MapLimit {
        let before = std::fs::read_to_string(MAX_MAPS).unwrap_or_default();
        let low = before.trim().parse::<u64>().is_ok_and(|now| now < to);
        MapLimit((low && std::fs::write(MAX_MAPS, to.to_string()).is_ok()).then_some(before))
    }
}

impl Drop for MapLimit {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = std::fs::write(MAX_MAPS, before.trim());
        }
    }
}

/// CPU time of lightfoot second by second while it samples, in ns, as the kernel accounts it.
fn watch(tool: &Tool, began: Instant, until_s: f64, seconds: &mut Vec<u64>) {
    while seconds.len() as f64 <= until_s {
        let due = Duration::from_secs(seconds.len() as u64);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        seconds.push(running_cpu_ns(tool.pid()).unwrap_or(seconds.last().copied().unwrap_or(0)));
    }
}

fn measure(storm: &Storm, budget: Option<f64>) -> Result<Vec<String>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("profile.json");
    let length = BEFORE_S + STORM_S + AFTER_S;
    let mut arguments = format!("profile -a -F 99 -d {length}s {} -f json", storm.options);
    if let Some(percent) = budget {
        arguments += &format!(" --budget {percent}%");
    }
    // Something to see in the calm, too.
    let _load = Workload::start("split", &format!("--threads 1 --seconds {}", length + 20.0));
    let tool = Tool::start(lightfoot(&arguments).arg("-o").arg(&path))?;
    // Sampling begins some 50 ms after the start, which belongs to no window.
    sleep(0.3);
    let (began, began_at) = (Instant::now(), SystemTime::now());
    let mut seconds = Vec::new();
    watch(&tool, began, BEFORE_S - 1.0, &mut seconds);
    let from = SystemTime::now();
    let workload = storm.program.map(|name| {
        let mut storming = Command::new(program(name));
        Workload::spawn(storming.args(storm.arguments.split_whitespace()))
    });
    watch(&tool, began, BEFORE_S + STORM_S - 1.0, &mut seconds);
    let per_s = workload.filter(|_| storm.says).and_then(|workload| workload.truth()["per_s"].as_f64());
    let to = SystemTime::now();
    watch(&tool, began, length - 1.0, &mut seconds);
    let bill = tool.wait()?;
    ensure!(bill.code == 0 || bill.code == 3, "lightfoot {arguments}: exit code {}", bill.code);
    let report = read_report(&path)?;

    // On a busy machine loading takes longer, and belongs to no window all the same.
    let started_unix = Duration::from_nanos(report.json["meta"]["started_unix_ns"].as_u64().unwrap_or(0));
    let late = (UNIX_EPOCH + started_unix).duration_since(began_at).map_or(0.0, |late| late.as_secs_f64());
    let seconds = &seconds[(late.ceil() as usize).min(seconds.len())..];
    let outside: Vec<f64> = seconds.windows(WINDOW + 1).map(|w| percent(w[WINDOW] - w[0])).collect();
    let windows = windows(&report).unwrap_or_else(|| {
        let run_s = report.json["meta"]["duration_ns"].as_f64().unwrap_or(f64::NAN) / 1e9;
        let rest = (report.cost("interrupt_ns") + report.cost("bpf_ns")) as f64 / run_s / 1e9 * 100.0;
        outside.iter().map(|user| user + rest).collect()
    });
    let under =
        |percent: f64| windows.iter().filter(|&&w| w <= percent).count() as f64 / windows.len() as f64;
    let dearest = windows.iter().copied().fold(0.0, f64::max);
    let held: Vec<String> = report.json["cost"]["budget"]["held_back"].as_array().map_or(vec![], |all| {
        all.iter().map(|h| h["sentence"].as_str().unwrap_or("?").to_string()).collect()
    });
    let mb = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    Ok(vec![
        storm.name.to_string(),
        per_s.map_or("-".into(), |per_s| format!("{per_s:.0}")),
        budget.map_or("none".into(), |percent| format!("{percent}")),
        windows.len().to_string(),
        budget.map_or("-".into(), |percent| {
            within(format!("{:.1} %", under(percent) * 100.0), under(percent) >= 0.99)
        }),
        budget.map_or(format!("{dearest:.2}"), |percent| within(format!("{dearest:.2}"), dearest <= percent)),
        format!("{:.2}", outside.iter().copied().fold(0.0, f64::max)),
        match (budget, recovery(&report, from, to)) {
            (None, _) => "-".into(),
            _ if !has_timer(&report) => "no timer".into(),
            (_, Some(s)) => within(format!("{s:.1}"), s <= 2.0),
            (_, None) => within("not in this run".into(), false),
        },
        report.accounting.recorded.to_string(),
        report.accounting.lost.to_string(),
        mb(report.cost("peak_rss_bytes")),
        mb(report.cost("bpf_map_bytes")),
        held.join("; "),
    ])
}

/// `--off-cpu` alone has none: its waits stand for more time, and then its programs are detached.
fn has_timer(report: &Report) -> bool {
    report.json["cost"]["budget"]["rates"].as_array().is_some_and(|rates| !rates.is_empty())
}

/// CPU time in ten seconds as a share of one CPU.
fn percent(ns: u64) -> f64 {
    ns as f64 / (WINDOW as f64 * 1e9) * 100.0
}

/// The windows of the ledger, in percent of one CPU.
fn windows(report: &Report) -> Option<Vec<f64>> {
    let windows = report.json["cost"]["windows"].as_array().filter(|windows| !windows.is_empty())?;
    windows
        .iter()
        .map(|w| Some(w["cost_ns"].as_f64()? / w["length_ns"].as_f64().filter(|&ns| ns > 0.0)? * 100.0))
        .collect()
}

/// Seconds from the end of the storm until the rate is back at 90 % of what it was before. 0 if it never was less.
fn recovery(report: &Report, from: SystemTime, to: SystemTime) -> Option<f64> {
    let started_ns = report.json["meta"]["started_unix_ns"].as_u64()?;
    let into_run = |at: SystemTime| {
        let unix_ns = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        unix_ns.saturating_sub(started_ns) as f64 / 1e9
    };
    let rates = report.json["cost"]["budget"]["rates"].as_array()?;
    let rates: Vec<(f64, f64)> =
        rates.iter().filter_map(|r| Some((r["at_ns"].as_f64()? / 1e9, r["rate_hz"].as_f64()?))).collect();
    back_after(&rates, into_run(from), into_run(to))
}

/// `rates`: time in s and rate from then on. What it was before is the mean of the last seconds before the storm; back is where it stays so high
/// for a second: on a machine where others work, too, it falls now and then for other reasons.
fn back_after(rates: &[(f64, f64)], from_s: f64, to_s: f64) -> Option<f64> {
    let rate_at = |s: f64| rates.iter().rfind(|(at, _)| *at <= s).map(|&(_, rate)| rate);
    let steps = (MEAN_S / LOOK_S) as usize;
    let before: f64 =
        (0..steps).map(|i| rate_at(from_s - i as f64 * LOOK_S)).sum::<Option<f64>>()? / steps as f64;
    let is_back = |s: f64| rate_at(s).is_some_and(|rate| rate >= 0.9 * before);
    let looks = |s: f64| (0..).map(move |i| s + f64::from(i) * LOOK_S);
    looks(to_s)
        .take_while(|s| s + HOLDS_S <= to_s + AFTER_S)
        .find(|&s| looks(s).take_while(|at| *at <= s + HOLDS_S).all(is_back))
        .map(|s| s - to_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_counts_from_the_end_of_the_storm() {
        let after = |rates: &[(f64, f64)]| back_after(rates, 10.0, 25.0).map(|s| (s * 100.0).round() / 100.0);
        let rates = [(0.0, 99.0), (10.5, 30.0), (26.0, 60.0), (26.5, 95.0)];
        assert_eq!(after(&rates), Some(1.5));
        assert_eq!(after(&rates[..3]), None, "never back");
        assert_eq!(after(&[(0.0, 99.0)]), Some(0.0), "never less");
        assert_eq!(after(&[(0.0, 99.0), (10.5, 30.0), (12.0, 99.0)]), Some(0.0), "back before the end");
        let dip = [(0.0, 99.0), (10.5, 30.0), (26.0, 99.0), (26.2, 30.0), (27.0, 99.0), (31.0, 20.0)];
        assert_eq!(
            after(&dip),
            Some(2.0),
            "a fifth of a second is not back, and what comes later is another matter"
        );
        let moving = [(0.0, 10.0), (7.5, 110.0), (10.5, 20.0), (26.0, 56.0)];
        assert_eq!(after(&moving), Some(1.0), "60 on average before");
        assert_eq!(back_after(&[], 10.0, 25.0), None);
    }
}
