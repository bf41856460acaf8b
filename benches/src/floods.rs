//! The budget of a run of probes when events come in floods, seen by the account and by the flooding program itself.

use crate::Length;
use crate::table::{Table, median, within};
use crate::tool::{Tool, lightfoot};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

/// What floods, from where on (0: before the probes come), budget in percent of one CPU, body.
const CASES: [(&str, u32, f64, &str); 8] = [
    ("getppid", 0, 0.5, "simple"),
    ("getppid", 0, 5.0, "simple"),
    ("getppid", 0, 5.0, "kernel_stack"),
    ("getppid", 4_000, 0.5, "simple"),
    ("getppid", 4_000, 5.0, "simple"),
    ("push", 0, 0.5, "simple"),
    ("push", 0, 5.0, "simple"),
    ("push", 4_000, 5.0, "simple"),
];
/// A millisecond in which a call takes so much more than usual is one in which a probe was there.
const PROBED: f64 = 1.3;
/// Around the time in which there was a probe, by lightfoot's own account.
const MARGIN_NS: u64 = 20_000_000;
/// The kernel takes its time to take a breakpoint away.
const GOING_NS: u64 = 100_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// A look at the flood: CLOCK_MONOTONIC, calls so far, CPU time so far, in ns.
type Line = [u64; 3];

/// Prints one row for each case.
pub fn run(length: Length) -> Result<()> {
    let rounds = length.rounds(3);
    let mut table = Table::new(
        &format!(
            "floods: one thread on each CPU that does nothing but fire; the worst of {rounds} rounds (reach: at most 1.2 times the budget in any second \
             that begins after the first, over within 1 s)"
        ),
        &[
            "what",
            "begins",
            "budget, %",
            "body",
            "calls/s without",
            "fired",
            "detached after, s",
            "dearest second after the first, times the budget: account",
            "the flood itself and lightfoot's CPU time",
            "from the first to the last probed ms, s",
            "a call afterwards, times one without",
        ],
    );
    for (what, after_ms, budget, body) in CASES {
        let mut worst: Option<Round> = None;
        for _ in 0..rounds {
            let round = match once(what, after_ms, budget, body) {
                Ok(round) => round,
                Err(error) => {
                    eprintln!("  {what}, {budget} %: {error:#}");
                    continue;
                }
            };
            if worst.as_ref().is_none_or(|worst| round.truth > worst.truth) {
                worst = Some(round);
            }
        }
        let Some(round) = worst else { continue };
        table.row(vec![
            what.to_string(),
            if after_ms == 0 { "before".into() } else { "after 2 s or more".into() },
            format!("{budget}"),
            body.to_string(),
            format!("{:.1} M", round.rate / 1e6),
            round.fired.to_string(),
            round.detached_s.map_or("never".into(), |s| format!("{s:.4}")),
            within(format!("{:.2}", round.account), round.account <= 1.2),
            within(format!("{:.2}", round.truth), round.truth <= 1.2),
            within(format!("{:.4}", round.lasted_s), round.lasted_s <= 1.0),
            within(format!("{:.3}", round.afterwards), round.afterwards < 1.1),
        ]);
    }
    table.print();
    println!(
        "\nA detached probe costs nothing more. What a flood has cost until then depends on how soon lightfoot gets a CPU; a millisecond in which the host \
         took the CPU away counts as probed."
    );
    thinned(length)
}

struct Round {
    rate: f64,
    fired: u64,
    detached_s: Option<f64>,
    account: f64,
    truth: f64,
    lasted_s: f64,
    /// A call after the probe was gone, times the usual price.
    afterwards: f64,
}

fn once(what: &str, after_ms: u32, budget: f64, body: &str) -> Result<Round> {
    let mut command = Command::new(lightfoot_tests::program("caller"));
    command.args(["--flood", "--what", what, "--seconds", "12", "--after-ms", &after_ms.to_string()]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("caller")?;
    let mut out = BufReader::new(child.stdout.take().context("stdout")?);
    let mut line = String::new();
    out.read_line(&mut line)?;
    ensure!(line == "ready\n", "caller says {line:?}");
    crate::tool::sleep(if after_ms == 0 { 1.0 } else { 0.2 });
    let place = match what {
        "getppid" => "tracepoint:syscalls:sys_enter_getppid".to_string(),
        function => format!("uprobe:{}:caller_{function}", lightfoot_tests::program("caller").display()),
    };
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("weigh.json");
    let arguments = format!("weigh {place} --body {body} --budget {budget}% -p {} -d 6s", child.id());
    let tool = Tool::start(lightfoot(&arguments).args(["-f", "json", "-o"]).arg(&path))?;
    let bill = tool.wait()?;
    ensure!(bill.code == 0 || bill.code == 3, "lightfoot {arguments}: exit code {}", bill.code);
    crate::tool::sleep(1.5);
    drop(child.stdin.take());
    let mut text = String::new();
    out.read_to_string(&mut text)?;
    child.wait()?;
    let report: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    let lines: Vec<Line> = text.lines().filter_map(parse).collect();
    judge(&lines, &report, budget * 1e7, after_ms == 0)
}

fn parse(line: &str) -> Option<Line> {
    let mut words = line.split(' ').map(|word| word.parse().ok());
    Some([words.next()??, words.next()??, words.next()??])
}

fn judge(lines: &[Line], report: &Value, budget_ns: f64, from_start: bool) -> Result<Round> {
    // Each look with the one before: (end, calls, CPU time).
    let steps: Vec<Line> =
        lines.windows(2).map(|pair| [pair[1][0], pair[1][1] - pair[0][1], pair[1][2] - pair[0][2]]).collect();
    let price = |step: &Line| step[2] as f64 / step[1].max(1) as f64;
    let busy: Vec<&Line> = steps.iter().filter(|step| step[1] > 0).collect();
    ensure!(busy.len() > 1_000, "the flood was looked at {} times only", busy.len());
    let usual = median(&busy.iter().map(|step| price(step)).collect::<Vec<_>>());
    // Host and other work slow single milliseconds down at any time: only those count in which there was a probe, and a little more.
    let begun = report["begun_ns"].as_u64().context("begun_ns")?;
    let detached_ns = report["probes"][0]["detached_ns"].as_u64();
    let gone = begun + detached_ns.unwrap_or(report["duration_ns"].as_u64().unwrap_or(0));
    let probed: Vec<(u64, f64)> = busy
        .iter()
        .filter(|step| {
            (begun - MARGIN_NS..gone + GOING_NS).contains(&step[0]) && price(step) > PROBED * usual
        })
        .map(|step| (step[0], step[2] as f64 - step[1] as f64 * usual))
        .collect();
    let (first, last) = (probed.first().map_or(0, |p| p.0), probed.last().map_or(0, |p| p.0));
    let afterwards: Vec<f64> =
        busy.iter().filter(|step| step[0] > gone + GOING_NS).map(|step| price(step)).collect();
    let begin = if from_start { first + SECOND_NS } else { 0 };
    let dearest = probed
        .iter()
        .filter(|(at, _)| *at >= begin)
        .map(|&(at, _)| {
            let inside = |other: u64| (at..at + SECOND_NS).contains(&other);
            probed.iter().filter(|(other, _)| inside(*other)).map(|(_, ns)| ns).sum::<f64>()
        })
        .fold(0.0, f64::max);
    let own_ns = report["cost"]["own_ns"].as_f64().unwrap_or(0.0);
    let seconds = report["duration_ns"].as_f64().unwrap_or(1.0) / 1e9;
    let account = &report["budget"];
    // A run that ended within two seconds has spent nothing in any second that begins after the first, but for itself.
    let soon = if from_start { 0.0 } else { account["dearest_ns"].as_f64().unwrap_or(f64::NAN) };
    let dearest_account = account["dearest_window_ns"].as_f64().unwrap_or(soon);
    Ok(Round {
        rate: 1e9 / usual * crate::machine::cpus() as f64,
        fired: report["probes"][0]["fired"].as_u64().unwrap_or(0),
        detached_s: detached_ns.map(|ns| ns as f64 / 1e9),
        account: dearest_account / budget_ns,
        truth: (dearest + own_ns / seconds.max(1.0)) / budget_ns,
        lasted_s: last.saturating_sub(first) as f64 / 1e9,
        afterwards: median(&afterwards) / usual,
    })
}

/// Where holding bodies back is enough, nothing is detached, and the estimate fits.
fn thinned(length: Length) -> Result<()> {
    let mut table = Table::new(
        "floods that 1-in-N keeps within the budget (reach: at most 1.2 times the budget; estimates within 4 standard errors)",
        &[
            "what",
            "budget, %",
            "body",
            "fired",
            "recorded",
            "estimate off by, standard errors",
            "N up to",
            "dearest second, times the budget",
        ],
    );
    for (what, calls, budget, body) in [
        ("getppid", 100, 2.0, "kernel_stack"),
        ("getppid", 100, 2.0, "user_stack"),
        ("push", 40, 3.0, "user_stack"),
    ] {
        let mut command = Command::new(lightfoot_tests::program("caller"));
        command.args([
            "--what",
            what,
            "--calls",
            &calls.to_string(),
            "--pause-us",
            "2000",
            "--seconds",
            "20",
        ]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("caller")?;
        let place = match what {
            "getppid" => "tracepoint:syscalls:sys_enter_getppid".to_string(),
            function => format!("uprobe:{}:caller_{function}", lightfoot_tests::program("caller").display()),
        };
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("weigh.json");
        let seconds = length.seconds(9.0);
        let arguments =
            format!("weigh {place} --body {body} --budget {budget}% -p {} -d {seconds}s", child.id());
        let bill = Tool::start(lightfoot(&arguments).args(["-f", "json", "-o"]).arg(&path))?.wait()?;
        child.kill()?;
        child.wait()?;
        ensure!(bill.code == 0 || bill.code == 3, "lightfoot {arguments}: exit code {}", bill.code);
        let report: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        let probe = &report["probes"][0];
        let number = |name: &str| probe[name].as_f64().unwrap_or(f64::NAN);
        let whole = number("fired") - number("filtered") - number("cut");
        let off = (number("estimate") - whole) / number("estimate_error").max(1.0);
        let budget_ns = budget * 1e7;
        let dearest = report["budget"]["dearest_window_ns"].as_f64().unwrap_or(f64::NAN) / budget_ns;
        table.row(vec![
            what.into(),
            format!("{budget}"),
            body.into(),
            format!("{:.0}", number("fired")),
            format!("{:.0}", number("recorded")),
            within(format!("{off:+.1}"), off.abs() <= 4.0),
            format!("{:.0}", number("one_in_max")),
            within(format!("{dearest:.2}"), dearest <= 1.2),
        ]);
    }
    table.print();
    Ok(())
}
