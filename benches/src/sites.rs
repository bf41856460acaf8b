//! (n) Where a uprobe stands: at the first byte of functions of libstdc++, and where lightfoot puts it.
//!
//! Each function is called in turns without a probe, with one at its first byte and with one at the chosen site; the program under test takes the
//! time itself (CPU time of its thread). A private copy of the library, a process of ours.

use crate::Length;
use crate::table::{Table, median, median_error, within};
use anyhow::{Context, Result, ensure};
use lightfoot_kernel::probes::{Group, Options, Point};
use lightfoot_model::{Body, Mechanism};
use lightfoot_sites::{Site, Spec};
use lightfoot_tests::program;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Those that tests/programs/libcalls.c calls, and what they are in C++.
const FUNCTIONS: [(&str, &str); 6] = [
    ("_ZNSt6localeC1Ev", "locale::locale()"),
    ("_ZNSt6locale7classicEv", "locale::classic()"),
    ("_ZSt19uncaught_exceptionsv", "uncaught_exceptions()"),
    ("__cxa_current_exception_type", "__cxa_current_exception_type"),
    ("_ZNSt8ios_base15sync_with_stdioEb", "ios_base::sync_with_stdio(bool)"),
    ("__cxa_demangle", "__cxa_demangle"),
];
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6";
const CALLS: u64 = 20_000;
const REACH: f64 = 15.0;

/// Prints one row per function.
pub fn run(length: Length) -> Result<()> {
    let rounds = length.rounds(15);
    let title = format!(
        "sites: a uprobe (empty program) on functions of libstdc++, {rounds} rounds of {CALLS} calls each (reach: {REACH:.0} times cheaper)"
    );
    let columns = [
        "function",
        "first byte",
        "chosen",
        "without, ns",
        "first byte adds",
        "+-",
        "chosen adds",
        "+-",
        "times cheaper",
    ];
    let mut table = Table::new(&title, &columns);
    let folder = tempfile::tempdir()?;
    let library = folder.path().join("libstdc++.so.6");
    std::fs::copy(LIBRARY, &library).with_context(|| format!("cannot copy {LIBRARY}"))?;
    for (function, name) in FUNCTIONS {
        let [first, chosen] = [true, false].map(|naive| site(&library, function, naive));
        let (first, chosen) = (first?, chosen?);
        let mut target = Target::start(&library, function)?;
        let mut columns: [Vec<f64>; 3] = Default::default();
        for _ in 0..rounds {
            for (site, column) in [None, Some(&first), Some(&chosen)].into_iter().zip(&mut columns) {
                let group = site.map(|site| target.attach(site)).transpose()?;
                column.push(target.ns_per_call()?);
                drop(group);
            }
        }
        let [base, at_first, at_chosen] = &columns;
        let added = |values: &[f64]| -> Vec<f64> {
            values.iter().zip(base).map(|(with, without)| with - without).collect()
        };
        let (at_first, at_chosen) = (added(at_first), added(at_chosen));
        let times = median(&at_first) / median(&at_chosen);
        table.row(vec![
            name.to_string(),
            describe(&first),
            describe(&chosen),
            format!("{:.0}", median(base)),
            format!("{:.0}", median(&at_first)),
            format!("{:.0}", median_error(&at_first)),
            format!("{:.0}", median(&at_chosen)),
            format!("{:.0}", median_error(&at_chosen)),
            within(format!("{times:.1}"), times >= REACH),
        ]);
    }
    table.print();
    Ok(())
}

/// The one site of a function.
fn site(library: &Path, function: &str, naive: bool) -> Result<Site> {
    let spec = Spec::parse(&format!("uprobe:{}:{function}", library.display()))?;
    let options = lightfoot_sites::Options {
        naive,
        ..lightfoot_sites::Options::new(lightfoot_kernel::probes::capabilities())
    };
    let sites = lightfoot_sites::resolve(&[spec], &options)?;
    ensure!(sites.len() == 1, "{function}: {} sites", sites.len());
    sites.into_iter().next().context("no site")
}

fn describe(site: &Site) -> String {
    let class = site.instruction.map_or("", |class| class.name());
    let offset = site.choices.iter().find_map(|choice| choice.split_once('+')).map_or("", |(_, rest)| rest);
    let offset: String = offset.chars().take_while(char::is_ascii_digit).collect();
    if offset.is_empty() { class.to_string() } else { format!("{class} at +{offset}") }
}

/// The process that calls the function.
struct Target {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Target {
    fn start(library: &Path, function: &str) -> Result<Target> {
        let mut child = Command::new(program("libcalls"))
            .arg(library)
            .arg(function)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start libcalls")?;
        let answers = BufReader::new(child.stdout.take().context("stdout")?);
        let mut target = Target { child, answers };
        target.answer()?;
        Ok(target)
    }

    fn answer(&mut self) -> Result<serde_json::Value> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("libcalls says {line:?}"))
    }

    fn attach(&self, site: &Site) -> Result<Group> {
        // The way of attaching is the same for both; what differs is the place.
        let options = Options {
            pid: Some(self.child.id()),
            bare: true,
            ..Options::new(Mechanism::UprobeMulti, Body::Empty)
        };
        let mut group = Group::load(&options)?;
        group.attach(&[Point { slot: 0, place: site.place.clone() }])?;
        Ok(group)
    }

    fn ns_per_call(&mut self) -> Result<f64> {
        let stdin = self.child.stdin.as_mut().context("stdin")?;
        writeln!(stdin, "{CALLS}")?;
        stdin.flush()?;
        let answer = self.answer()?;
        Ok(answer["ns"].as_f64().context("ns")? / CALLS as f64)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
