//! (g) Whole stacks: the share of the samples of each program of the corpus whose walk reached its root.

use crate::Length;
use crate::table::{Table, within};
use crate::tool::{Tool, lightfoot, read_report};
use anyhow::{Result, ensure};
use lightfoot_tests::corpus::{Verdict, corpus, judge};
use lightfoot_tests::program;
use std::collections::BTreeMap;
use std::process::Command;

/// Interpreters and what they run, some seconds each: their own code, that of their libraries, and C that calls back.
const INTERPRETERS: [(&str, &str); 3] = [
    ("/usr/bin/python3", PYTHON),
    ("python3", PYTHON),
    (
        "ruby",
        "require 'json'; t = Time.now; while Time.now - t < 2; JSON.generate((1..999).map { |i| [i, i.to_s] }.sort_by { |a| -a[0] }.to_h); \
         ('abc' * 99) =~ /c+d/; end",
    ),
];
const PYTHON: &str = "import json, re, time
t = time.time()
while time.time() - t < 2:
    json.dumps(sorted(range(999), key=lambda x: -x))
    re.sub('a+', lambda m: m.group(0), 'aaab' * 99)
";

/// Prints one row per program, and the sum.
pub fn run(length: Length) -> Result<()> {
    let rounds = length.rounds(3);
    let mut table = Table::new(
        &format!(
            "corpus: {rounds} runs of 2 s of CPU time per program at 499 Hz, from the command's first instruction (reach: 99 % each, \
             99.5 % in all)"
        ),
        &["program", "samples", "as its truth says, %", "known way whole, %", "wrong roots", "the others"],
    );
    let (mut samples, mut good, mut ways, mut whole) = (0, 0, 0, 0);
    let mut reasons = BTreeMap::new();
    for one in corpus() {
        let mut sum = Sum::default();
        for _ in 0..rounds {
            let dir = tempfile::tempdir()?;
            let path = dir.path().join("p.json");
            let bill = Tool::start(
                lightfoot("profile -F 499 --no-kernel -f json -o")
                    .arg(&path)
                    .env("XDG_CACHE_HOME", dir.path())
                    .arg("--")
                    .arg(program(one.name))
                    .args(one.arguments.split_whitespace()),
            )?
            .wait()?;
            ensure!(bill.code == 0 || bill.code == 3, "{}: exit code {}", one.name, bill.code);
            sum.add(&judge(&read_report(&path)?, &one), one.outcome);
        }
        let short = one.arguments.replace("--cpu-ms 2000", "").replace("2000", "");
        table.row(vec![
            format!("{} {short}", one.name).trim().to_string(),
            sum.samples.to_string(),
            within(percent(sum.good, sum.samples), sum.good * 100 >= sum.samples * 99),
            percent(sum.whole, sum.ways),
            within(sum.wrong_roots.to_string(), sum.wrong_roots == 0),
            list(&sum.reasons),
        ]);
        samples += sum.samples;
        good += sum.good;
        ways += sum.ways;
        whole += sum.whole;
        for (reason, count) in sum.reasons {
            *reasons.entry(reason).or_insert(0) += count;
        }
    }
    for (program, code) in INTERPRETERS {
        if Command::new(program).arg("--version").output().is_err() {
            continue;
        }
        let (mut of, mut complete, mut others) = (0, 0, BTreeMap::new());
        for _ in 0..rounds {
            let dir = tempfile::tempdir()?;
            let path = dir.path().join("p.json");
            let option = if program.ends_with("ruby") { "-e" } else { "-c" };
            let mut command = lightfoot("profile -F 499 --no-kernel -f json -o");
            command.arg(&path).env("XDG_CACHE_HOME", dir.path()).args(["--", program, option, code]);
            let bill = Tool::start(&mut command)?.wait()?;
            ensure!(bill.code == 0 || bill.code == 3, "{program}: exit code {}", bill.code);
            for stack in &read_report(&path)?.stacks {
                of += stack.count;
                if stack.outcome == "complete" {
                    complete += stack.count;
                } else {
                    *others.entry(stack.outcome.clone()).or_insert(0) += stack.count;
                }
            }
        }
        table.row(vec![
            program.to_string(),
            of.to_string(),
            within(percent(complete, of), complete * 100 >= of * 99),
            "-".into(),
            "-".into(),
            list(&others),
        ]);
        samples += of;
        good += complete;
        for (reason, count) in others {
            *reasons.entry(reason).or_insert(0) += count;
        }
    }
    table.row(vec![
        "all".into(),
        samples.to_string(),
        within(percent(good, samples), good * 1000 >= samples * 995),
        percent(whole, ways),
        String::new(),
        list(&reasons),
    ]);
    table.print();
    println!(
        "\nSamples that were lost or failed, or hit while tables were being prepared, count as not whole."
    );
    Ok(())
}

#[derive(Default)]
struct Sum {
    samples: u64,
    good: u64,
    wrong_roots: u64,
    /// Samples in the last function of a known way, and those that came that way.
    ways: u64,
    whole: u64,
    reasons: BTreeMap<String, u64>,
}

impl Sum {
    fn add(&mut self, verdict: &Verdict, expected: &str) {
        self.samples += verdict.samples;
        self.good += verdict.as_expected;
        self.wrong_roots += verdict.wrong_roots;
        self.ways += verdict.chains.iter().map(|chain| chain.through).sum::<u64>();
        self.whole += verdict.chains.iter().map(|chain| chain.whole).sum::<u64>();
        for (outcome, count) in &verdict.outcomes {
            if outcome != "complete" && outcome != expected {
                *self.reasons.entry(outcome.clone()).or_insert(0) += count;
            }
        }
    }
}

/// Two decimals, rounded down: 99.99 is never 100.
pub fn percent(part: u64, of: u64) -> String {
    let hundredths = (part * 10_000).checked_div(of).unwrap_or(0);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Reasons, most frequent first.
pub fn list(reasons: &BTreeMap<String, u64>) -> String {
    let mut reasons: Vec<(&String, &u64)> = reasons.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    reasons.iter().map(|(reason, count)| format!("{reason} {count}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_down() {
        assert_eq!(percent(99_999, 100_000), "99.99");
        assert_eq!(percent(3, 3), "100.00");
        assert_eq!(percent(0, 0), "0.00");
    }
}
