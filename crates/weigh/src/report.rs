//! The ladder as a result: rows, and how far to trust them.

use crate::ladder::{Measured, Pace, Visit};
use crate::noise::{Disturbance, Identity};
use crate::rung::{Operation, Rung, Site};
use crate::stats;
use lightfoot_model::{Body, Mechanism, Trigger};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Name and version of the JSON document.
pub const SCHEMA: &str = "lightfoot.weigh/1";
/// An interval wider than this to each side, as a share of the overhead, makes a row doubtful ...
const WIDE: f64 = 0.15;
/// ... if it is more than this, in ns.
const WIDE_NS: f64 = 5.0;
/// Fewer visits than this give no interval that holds without assumptions.
const VISITS_ENOUGH: usize = 6;
/// A base that differs so much between its visits (interquartile range over median) is not one base.
const BASE_SPREAD: f64 = 0.25;
/// With more of its time given to others by the hypervisor, in percent, the machine is not to be trusted.
const STEAL_PERCENT: f64 = 5.0;
/// A probe that ran for fewer of its operations was not there all the time.
const RUNS_LEAST: f64 = 0.99;
/// A timer that fired less often was held back by the kernel (`kernel.perf_event_max_sample_rate`). A block has a dozen of its periods, one more or less.
const TIMER_RUNS_LEAST: f64 = 0.8;

/// One row: a kind of probe with a program.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// How the probe is attached.
    pub probe: Mechanism,
    /// Where ([`Site::name`]).
    pub site: &'static str,
    /// What is repeated ([`Operation::name`]).
    pub operation: &'static str,
    /// What the program does.
    pub program: Body,
    /// Threads that run into it at the same time.
    pub threads: u32,
    /// One operation without the probe, in ns of CPU time: median over the visits.
    pub base_ns: Option<f64>,
    /// One operation with it.
    pub probed_ns: Option<f64>,
    /// What one firing added, in ns of CPU time: median of the visits' differences, so not exactly the difference of the medians. A session's operation
    /// is an entry and a return.
    pub overhead_ns: Option<f64>,
    /// The same as a share of `base_ns`.
    pub overhead_percent: Option<f64>,
    /// 95 % confidence interval of `overhead_ns` ([`stats::interval95`]).
    pub ci95_ns: Option<[f64; 2]>,
    /// Difference of the fastest blocks of all.
    pub minimum_ns: Option<f64>,
    /// What the kernel's statistics claim for one operation.
    pub kernel_stats_ns: Option<f64>,
    /// What our model foretells.
    pub predicted_ns: Option<f64>,
    /// Whether this kernel has it.
    pub available: bool,
    /// Why it is not available, or was not measured.
    pub why: Option<String>,
    /// Visits that the figures rest on.
    pub visits: usize,
    /// Blocks timed in them.
    pub blocks: u32,
    /// Why the figures are not to be trusted, if they are not.
    pub doubt: Option<String>,
}

/// How the machine behaved.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Noise {
    /// Spread of the operations without probes over the whole time: interquartile range over median, the worst of the operations with enough
    /// visits; `None` if there are none.
    pub base_spread: Option<f64>,
    /// What others took.
    #[serde(flatten)]
    pub disturbance: Disturbance,
    /// Rows whose figures are doubtful.
    pub doubtful_rows: usize,
    /// Whether the figures can be trusted as a whole.
    pub trustworthy: bool,
    /// Why not.
    pub why: Option<String>,
}

/// The whole ladder.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of lightfoot.
    pub version: String,
    /// Where it was measured.
    pub machine: Identity,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Length of a block, in ns.
    pub block_ns: f64,
    /// Whether it was measured roughly.
    pub quick: bool,
    /// Why the kernel claims nothing, where it keeps no statistics.
    pub without_statistics: Option<String>,
    /// How the machine behaved.
    pub noise: Noise,
    /// One for each rung, in the order of [`crate::rung::ladder`].
    pub rows: Vec<Row>,
}

/// What a report is made of besides what was measured.
#[derive(Clone, Debug)]
pub struct Circumstances {
    /// Version of lightfoot.
    pub version: String,
    /// Where.
    pub machine: Identity,
    /// What others took meanwhile.
    pub disturbance: Disturbance,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// How it was measured.
    pub pace: Pace,
    /// Roughly.
    pub quick: bool,
    /// Why the kernel keeps no statistics.
    pub without_statistics: Option<String>,
}

impl Report {
    /// Makes rows. `predict` foretells what a run of the program costs with what makes it run, in ns, where it can.
    pub fn new(
        measured: &[Measured],
        circumstances: Circumstances,
        predict: impl Fn(Trigger, Body) -> Option<f64>,
    ) -> Report {
        let rows: Vec<Row> = measured.iter().map(|one| row(one, &predict)).collect();
        let Circumstances { version, machine, disturbance, seconds, pace, quick, without_statistics } =
            circumstances;
        let noise = noise(measured, &rows, disturbance);
        let block_ns = pace.block_ns;
        Report {
            schema: SCHEMA,
            version,
            machine,
            seconds: rounded(seconds),
            block_ns,
            quick,
            without_statistics,
            noise,
            rows,
        }
    }

    /// Writes the JSON document.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }

    /// Rows that were measured.
    pub fn measured(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.overhead_ns.is_some())
    }
}

/// What makes a rung's program run: the key of its price.
pub fn trigger(rung: &Rung) -> Trigger {
    let instruction = match rung.site {
        Site::Function(instruction) => Some(instruction),
        _ => None,
    };
    let syscall = matches!(rung.site, Site::SysEnter | Site::SysEnterGetppid);
    Trigger { mechanism: rung.mechanism, instruction, syscall }
}

/// Programs that run for one operation: a session's runs at the entry and at the return.
fn runs(mechanism: Mechanism) -> f64 {
    match mechanism {
        Mechanism::KprobeSession | Mechanism::UprobeSession => 2.0,
        _ => 1.0,
    }
}

fn row(measured: &Measured, predict: &impl Fn(Trigger, Body) -> Option<f64>) -> Row {
    let rung = measured.rung;
    let of = |value: fn(&Visit) -> f64| -> Vec<f64> { measured.visits.iter().map(value).collect() };
    let (base, probed, overheads) = (of(|v| v.base_ns), of(|v| v.probed_ns), of(|v| v.overhead_ns()));
    let base_ns = stats::median(&base);
    let overhead_ns = stats::median(&overheads);
    let interval = stats::interval95(&overheads);
    let claims: Vec<f64> = measured
        .claims
        .iter()
        .filter(|c| c.runs > 0.0)
        .map(|c| c.ns_per_run * runs(rung.mechanism))
        .collect();
    let why = measured.missing.clone().or_else(|| {
        overhead_ns.is_none().then(|| match measured.apart {
            0 => "it was not reached before the measuring ended".to_string(),
            _ => format!("its {} threads never ran at the same time", rung.threads),
        })
    });
    // What threads do to each other is not foretold.
    let foretold = measured.missing.is_none() && rung.threads == 1;
    let predicted = foretold.then(|| predict(trigger(&rung), rung.body)).flatten();
    let predicted = predicted.map(|ns_per_run| ns_per_run * runs(rung.mechanism));
    let kernel_stats_ns = stats::median(&claims).map(rounded);
    Row {
        probe: rung.mechanism,
        site: rung.site.name(),
        operation: rung.site.operation().name(),
        program: rung.body,
        threads: rung.threads,
        base_ns: base_ns.map(rounded),
        probed_ns: stats::median(&probed).map(rounded),
        overhead_ns: overhead_ns.map(rounded),
        overhead_percent: overhead_ns.zip(base_ns).map(|(added, base)| rounded(100.0 * added / base)),
        ci95_ns: interval.map(|interval| interval.map(rounded)),
        minimum_ns: stats::minimum(&probed)
            .zip(stats::minimum(&base))
            .map(|(with, without)| rounded(with - without)),
        kernel_stats_ns,
        predicted_ns: predicted.map(rounded),
        available: measured.missing.is_none(),
        why,
        visits: measured.visits.len(),
        blocks: measured.blocks,
        doubt: doubt(measured, &base, overhead_ns, interval),
    }
}

/// Hundredths are more than can be measured.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Why a row's figures are not to be trusted.
fn doubt(
    measured: &Measured,
    base: &[f64],
    overhead_ns: Option<f64>,
    interval: Option<[f64; 2]>,
) -> Option<String> {
    let overhead = overhead_ns?;
    let ran: Vec<f64> = measured.claims.iter().map(|claim| claim.runs).collect();
    let wanted = runs(measured.rung.mechanism);
    let least = if measured.rung.site == Site::Timer { TIMER_RUNS_LEAST } else { RUNS_LEAST };
    if let Some(ran) = stats::median(&ran).filter(|ran| *ran < wanted * least) {
        return Some(format!("its program ran {ran:.2} times for each operation, not {wanted} times"));
    }
    let Some([low, high]) = interval else { return Some("one visit only".into()) };
    let half = (high - low) / 2.0;
    if half > WIDE_NS && half > WIDE * overhead.abs() {
        return Some(format!(
            "the interval is {:.0} % wide to each side",
            100.0 * half / overhead.abs().max(1.0)
        ));
    }
    // A call is a thousandth of its probe; its own spread does not matter.
    if measured.rung.site.operation() == Operation::Getppid
        && base.len() >= VISITS_ENOUGH
        && stats::spread(base).is_some_and(|spread| spread > BASE_SPREAD)
    {
        return Some("the operation without a probe was not equally fast all the time".into());
    }
    None
}

fn noise(measured: &[Measured], rows: &[Row], disturbance: Disturbance) -> Noise {
    let mut bases: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    // Calls of 2 ns are too short to tell.
    for one in
        measured.iter().filter(|m| m.rung.threads == 1 && m.rung.site.operation() == Operation::Getppid)
    {
        bases
            .entry(one.rung.site.operation().name())
            .or_default()
            .extend(one.visits.iter().map(|v| v.base_ns));
    }
    let spreads = bases.values().filter(|base| base.len() >= VISITS_ENOUGH);
    let base_spread = spreads.filter_map(|base| stats::spread(base)).max_by(f64::total_cmp);
    let doubtful_rows = rows.iter().filter(|row| row.doubt.is_some()).count();
    let figures = rows.iter().filter(|row| row.overhead_ns.is_some()).count();
    let mut reasons = Vec::new();
    if let Some(spread) = base_spread.filter(|spread| *spread > BASE_SPREAD) {
        reasons.push(format!("the operation without probes itself varied by {:.0} %", 100.0 * spread));
    }
    if let Some(percent) = disturbance.steal_percent.filter(|percent| *percent > STEAL_PERCENT) {
        reasons.push(format!("the hypervisor gave {percent:.0} % of this machine's time to others"));
    }
    if doubtful_rows * 2 > figures {
        reasons.push(format!("{doubtful_rows} of {figures} rows are doubtful"));
    }
    let why = (!reasons.is_empty()).then(|| reasons.join("; "));
    Noise { base_spread, disturbance, doubtful_rows, trustworthy: why.is_none(), why }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ladder::Claim;
    use lightfoot_model::Instruction;
    use std::time::Duration;

    pub(crate) fn rung(mechanism: Mechanism, site: Site, body: Body) -> Rung {
        Rung { mechanism, site, body, threads: 1 }
    }

    /// Measured around known values.
    pub(crate) fn measured(rung: Rung, base_ns: f64, overhead_ns: f64, noise_ns: f64) -> Measured {
        let visits = (0..9)
            .map(|n| {
                let off = f64::from(n - 4) / 4.0 * noise_ns;
                Visit { base_ns, probed_ns: base_ns + overhead_ns + off }
            })
            .collect();
        let claim = Claim { ns_per_run: 55.0, runs: runs(rung.mechanism) };
        Measured { rung, missing: None, visits, blocks: 180, apart: 0, claims: vec![claim; 9] }
    }

    pub(crate) fn circumstances() -> Circumstances {
        let (kernel, arch, cpu) = ("6.12.0".into(), "x86_64".into(), "A Processor <&>".into());
        Circumstances {
            version: "0.1.0".into(),
            machine: Identity { kernel, arch, cpu, cpus: 2, is_virtual: true },
            disturbance: Disturbance { steal_percent: Some(0.5), ..Disturbance::default() },
            seconds: 90.0,
            pace: Pace::figures(Duration::from_secs(90)),
            quick: false,
            without_statistics: None,
        }
    }

    pub(crate) fn example() -> Report {
        let push = Site::Function(Instruction::Push);
        let mut missing = measured(rung(Mechanism::Kprobe, Site::SysGetppid, Body::Empty), 120.0, 1.0, 0.0);
        (missing.missing, missing.visits, missing.claims) =
            (Some("this kernel has no kprobes <at all>".into()), Vec::new(), Vec::new());
        let mut both =
            measured(rung(Mechanism::RawTracepoint, Site::SysEnter, Body::SharedCounter), 120.0, 150.0, 2.0);
        both.rung.threads = 2;
        let all = [
            missing,
            measured(rung(Mechanism::RawTracepoint, Site::SysEnter, Body::Empty), 120.0, 70.0, 4.0),
            measured(rung(Mechanism::RawTracepoint, Site::SysEnter, Body::Complex), 120.0, 187.0, 4.0),
            both,
            measured(rung(Mechanism::UprobeMulti, push, Body::Empty), 1.5, 520.0, 4.0),
            measured(rung(Mechanism::UprobeMulti, push, Body::Complex), 1.5, 645.0, 200.0),
            measured(
                rung(Mechanism::UprobeSession, Site::Function(Instruction::SingleStepped), Body::Empty),
                1.5,
                10_250.0,
                80.0,
            ),
        ];
        Report::new(&all, circumstances(), |trigger, body| {
            let known = [Mechanism::UprobeMulti, Mechanism::UprobeSession].contains(&trigger.mechanism);
            (known && body == Body::Empty).then_some(515.0)
        })
    }

    #[test]
    fn rows_say_what_was_measured() {
        let report = example();
        let row = &report.rows[1];
        assert_eq!((row.base_ns, row.probed_ns, row.overhead_ns), (Some(120.0), Some(190.0), Some(70.0)));
        assert_eq!(row.overhead_percent, Some(58.33));
        assert_eq!(row.ci95_ns, Some([67.0, 73.0]), "second and eighth of nine");
        assert_eq!(row.minimum_ns, Some(66.0));
        assert_eq!(row.doubt, None);
        assert_eq!((row.visits, row.kernel_stats_ns, row.predicted_ns), (9, Some(55.0), None));
        assert_eq!(report.rows[4].predicted_ns, Some(515.0));
        let session = &report.rows[6];
        assert_eq!(session.kernel_stats_ns, Some(110.0), "a session's program runs twice");
        assert_eq!(session.predicted_ns, Some(1_030.0), "and is paid for twice");
    }

    #[test]
    fn what_is_missing_says_why() {
        let row = &example().rows[0];
        assert!(!row.available && row.overhead_ns.is_none() && row.predicted_ns.is_none());
        assert_eq!(row.why.as_deref(), Some("this kernel has no kprobes <at all>"));

        let mut one = measured(rung(Mechanism::TpBtf, Site::SysEnter, Body::Empty), 120.0, 1.0, 0.0);
        one.visits.clear();
        let report = Report::new(std::slice::from_ref(&one), circumstances(), |_, _| None);
        assert!(
            report.rows[0].available
                && report.rows[0].why.as_deref().is_some_and(|w| w.contains("not reached"))
        );
        (one.apart, one.rung.threads) = (40, 2);
        let report = Report::new(&[one], circumstances(), |_, _| None);
        assert!(report.rows[0].why.as_deref().is_some_and(|w| w.contains("never ran at the same time")));
    }

    #[test]
    fn doubts_are_said() {
        let report = example();
        assert!(report.rows[5].doubt.as_deref().is_some_and(|d| d.contains("wide")), "{:?}", report.rows[5]);
        assert_eq!(report.noise.doubtful_rows, 1);
        assert!(report.noise.trustworthy);

        let mut never = measured(rung(Mechanism::TpBtf, Site::SysEnter, Body::Empty), 120.0, 1.0, 0.0);
        never.claims.iter_mut().for_each(|claim| claim.runs = 0.0);
        let report = Report::new(&[never], circumstances(), |_, _| None);
        assert!(report.rows[0].doubt.as_deref().is_some_and(|d| d.contains("ran 0.00 times")));
        assert_eq!(report.rows[0].kernel_stats_ns, None);

        let mut timer =
            measured(rung(Mechanism::PerfEvent, Site::Timer, Body::Empty), 85_000.0, 15_000.0, 100.0);
        for (runs, doubtful) in [(0.95, false), (0.4, true)] {
            timer.claims.iter_mut().for_each(|claim| claim.runs = runs);
            let report = Report::new(std::slice::from_ref(&timer), circumstances(), |_, _| None);
            assert_eq!(report.rows[0].doubt.is_some(), doubtful, "{runs}");
        }

        let mut stolen = circumstances();
        stolen.disturbance.steal_percent = Some(30.0);
        let quiet = measured(rung(Mechanism::TpBtf, Site::SysEnter, Body::Empty), 120.0, 80.0, 1.0);
        let report = Report::new(std::slice::from_ref(&quiet), stolen, |_, _| None);
        assert!(report.noise.why.as_deref().is_some_and(|why| why.contains("30 %")));

        let mut unsteady = quiet;
        for (n, visit) in unsteady.visits.iter_mut().enumerate() {
            let factor = if n % 2 == 0 { 1.0 } else { 1.6 };
            *visit = Visit { base_ns: visit.base_ns * factor, probed_ns: visit.probed_ns * factor };
        }
        let report = Report::new(&[unsteady], circumstances(), |_, _| None);
        assert!(
            !report.noise.trustworthy && report.noise.base_spread.is_some_and(|s| (s - 0.6).abs() < 1e-9),
            "{:?}",
            report.noise
        );
    }

    #[test]
    fn json_has_the_promised_fields() {
        let mut bytes = Vec::new();
        example().write_json(&mut bytes).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(json["schema"], "lightfoot.weigh/1");
        assert_eq!(json["machine"]["virtual"], true);
        assert_eq!(json["noise"]["steal_percent"], 0.5);
        for row in json["rows"].as_array().unwrap() {
            for field in [
                "probe",
                "site",
                "program",
                "threads",
                "base_ns",
                "probed_ns",
                "overhead_ns",
                "overhead_percent",
                "ci95_ns",
                "kernel_stats_ns",
                "predicted_ns",
                "available",
                "why",
            ] {
                assert!(row.get(field).is_some(), "{field}: {row}");
            }
        }
        assert_eq!(json["rows"][6]["probe"], "uprobe_session");
        assert_eq!(json["rows"][6]["site"], "single_stepped");
    }
}
