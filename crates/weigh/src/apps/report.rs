//! The result: rows, how far to trust them, and its formats.

use super::blocks::{Block, Way};
use super::row::{self, Row};
use super::wrk::Summary;
use super::{Error, Result, Settings, calls, plot, table};
use crate::Format;
use crate::noise::{Disturbance, Identity};
use crate::stats;
use serde::Serialize;
use std::io::{self, Write};

/// Name and version of the JSON document.
pub const SCHEMA: &str = "lightfoot.weigh-app/1";
/// Blocks without probes whose requests a second differ so much (interquartile range over median) say little.
const RATE_SPREAD: f64 = 0.15;
/// The same of CPU time for each request.
const CPU_SPREAD: f64 = 0.08;
/// With more of its time given to others by the hypervisor, in percent, the machine is not to be trusted.
const STEAL_PERCENT: f64 = 5.0;

/// One size: what its blocks were.
pub struct Case {
    /// Bytes of a response.
    pub size: u64,
    /// Blocks of each round.
    pub rounds: Vec<Vec<Block>>,
    /// What the load said.
    pub summary: Summary,
}

/// What a report is made of besides what was measured.
pub struct Circumstances<'a> {
    /// What was asked for.
    pub settings: &'a Settings,
    /// What it is, in one sentence.
    pub what: String,
    /// CPUs of server and load.
    pub cpus: Option<(u32, u32)>,
    /// The programs.
    pub versions: Vec<String>,
    /// What others took meanwhile.
    pub disturbance: Disturbance,
}

/// A way of watching, in words.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Variant {
    /// Name in rows.
    pub name: &'static str,
    /// What is attached, and where.
    pub what: String,
}

/// How the machine behaved.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Noise {
    /// Spread of requests a second between blocks without probes, the worst of the sizes: interquartile range over median.
    pub rate_spread: Option<f64>,
    /// The same of the server's CPU time for each request.
    pub cpu_spread: Option<f64>,
    /// What others took.
    #[serde(flatten)]
    pub disturbance: Disturbance,
    /// Whether drops in requests a second can be trusted.
    pub trustworthy: bool,
    /// Why not.
    pub why: Option<String>,
}

/// What was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Version of lightfoot.
    pub version: &'static str,
    /// `tls` or `syscount`.
    pub app: &'static str,
    /// What it is, in one sentence.
    pub what: String,
    /// Where it was measured.
    pub machine: Identity,
    /// The programs and their versions.
    pub programs: Vec<String>,
    /// Connections that the load kept open.
    pub connections: u32,
    /// CPUs of the server and of the load, if they had one each.
    pub cpus: Option<(u32, u32)>,
    /// Length of a block, in ms.
    pub block_ms: f64,
    /// How the machine behaved.
    pub noise: Noise,
    /// The ways of watching.
    pub variants: Vec<Variant>,
    /// For each size one for each way.
    pub rows: Vec<Row>,
    /// What counting adds to one cheap system call (`syscount` only).
    pub calls: Vec<calls::Row>,
    /// What users should know.
    pub notes: Vec<String>,
}

impl Report {
    /// Puts together what was measured.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if that is nothing; if requests failed.
    pub fn new(circumstances: Circumstances<'_>, ways: &[Way], cases: Vec<Case>) -> Result<Report> {
        let Circumstances { settings, what, cpus, versions, disturbance } = circumstances;
        let wanted = settings.sizes.len();
        let cases: Vec<Case> = cases.into_iter().filter(|case| !case.rounds.is_empty()).collect();
        if cases.is_empty() {
            return Err(Error::Interrupted);
        }
        if let Some(case) = cases.iter().find(|case| case.summary.bad_responses > 0) {
            let bad = case.summary.bad_responses;
            return Err(Error::Failed(format!(
                "at {} bytes {bad} responses of the server were errors",
                case.size
            )));
        }
        let rows: Vec<Row> = cases.iter().flat_map(|case| row::rows(case.size, ways, &case.rounds)).collect();
        let mut notes = Vec::new();
        if cases.len() < wanted {
            notes.push(format!("ended early: {} of {wanted} sizes", cases.len()));
        }
        let fewest = cases.iter().map(|case| case.rounds.len()).min().unwrap_or(0);
        if fewest < 6 {
            notes.push(format!("{fewest} rounds only: intervals are Student's for the mean, and wide; more time gives more rounds"));
        }
        for (what, count) in [
            ("connections failed", sum(&cases, |summary| summary.socket_errors)),
            ("responses took longer than two seconds", sum(&cases, |summary| summary.late)),
        ] {
            if count > 0 {
                notes.push(format!("{count} {what}: something kept server or load from running"));
            }
        }
        let lost: u64 = rows.iter().map(|row| row.seen.lost).sum();
        if lost > 0 {
            notes.push(format!("{lost} events were lost: the ring was full"));
        }
        Ok(Report {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            app: settings.app.name(),
            what,
            machine: Identity::here(),
            programs: versions,
            connections: settings.connections,
            cpus,
            block_ms: settings.block.as_secs_f64() * 1e3,
            noise: noise(&cases, disturbance),
            variants: ways.iter().map(|way| Variant { name: way.name, what: way.what.clone() }).collect(),
            rows,
            calls: Vec::new(),
            notes,
        })
    }

    /// Events that were lost: then the result is incomplete.
    pub fn lost(&self) -> u64 {
        self.rows.iter().map(|row| row.seen.lost).sum()
    }

    /// Writes it. `width`: columns of a table.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, format: Format, out: &mut dyn Write, width: usize) -> io::Result<()> {
        match format {
            Format::Text => table::text(self, out, width),
            Format::Markdown => table::markdown(self, out),
            Format::Svg => out.write_all(plot::drawn(self).as_bytes()),
            Format::Json => {
                serde_json::to_writer_pretty(&mut *out, self)?;
                writeln!(out)
            }
        }
    }
}

fn sum(cases: &[Case], what: impl Fn(&Summary) -> u64) -> u64 {
    cases.iter().map(|case| what(&case.summary)).sum()
}

fn noise(cases: &[Case], disturbance: Disturbance) -> Noise {
    let worst = |value: &dyn Fn(&Block) -> f64| {
        let spreads = cases.iter().filter_map(|case| {
            let values: Vec<f64> = case.rounds.iter().filter_map(|round| round.first()).map(value).collect();
            stats::spread(&values)
        });
        spreads.max_by(f64::total_cmp)
    };
    let (rate_spread, cpu_spread) = (worst(&Block::rate), worst(&Block::cpu_ns_per_request));
    let mut why = Vec::new();
    if let Some(spread) = rate_spread.filter(|spread| *spread > RATE_SPREAD) {
        why.push(format!(
            "without probes requests a second differ by {:.0} % from block to block",
            100.0 * spread
        ));
    }
    if let Some(spread) = cpu_spread.filter(|spread| *spread > CPU_SPREAD) {
        why.push(format!(
            "without probes the CPU time of a request differs by {:.0} % from block to block",
            100.0 * spread
        ));
    }
    if let Some(steal) = disturbance.steal_percent.filter(|steal| *steal > STEAL_PERCENT) {
        why.push(format!("the hypervisor gave {steal:.0} % of the machine's time to others"));
    }
    let trustworthy = why.is_empty();
    Noise { rate_spread, cpu_spread, disturbance, trustworthy, why: (!trustworthy).then(|| why.join("; ")) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::App;
    use super::super::blocks::Seen;
    use super::*;

    /// A report of two sizes with everything in it.
    pub fn sample(noisy: bool) -> Report {
        let way = |name, why: Option<&str>| Way {
            name,
            what: format!("{name} <in> words"),
            watcher: None,
            why: why.map(str::to_owned),
        };
        let ways = [
            way("none", None),
            way("naive", None),
            way("chosen", None),
            way("other", Some("this kernel has none")),
        ];
        let block = |requests, cpu_ns: u64, fired| {
            let seen =
                Seen { fired, counted: fired / 2, sent: fired / 2, received: fired / 2, ..Seen::default() };
            Block {
                seconds: 1.0,
                requests,
                cpu_ns,
                seen,
                seen_in_all: seen,
                attach_ms: 2.0,
                detach_ms: 30.0,
                ..Block::default()
            }
        };
        let round = |i: u64| {
            let none = if noisy && i.is_multiple_of(2) {
                block(5_000, 900_000_000, 0)
            } else {
                block(10_000 + i, 900_000_000, 0)
            };
            vec![
                none,
                block(6_000 + i, 900_000_000, 36_000),
                block(9_600 + i, 900_000_000, 57_600),
                Block::default(),
            ]
        };
        let case = |size| Case {
            size,
            rounds: (0..8).map(round).collect(),
            summary: Summary { requests: 80_000, ..Summary::default() },
        };
        let mut settings = Settings::new(App::Tls);
        settings.sizes = vec![1 << 10, 256 << 10, 4 << 10];
        let circumstances = Circumstances {
            settings: &settings,
            what: "a server".into(),
            cpus: Some((1, 0)),
            versions: vec!["nginx/1.22.1".into(), "wrk 4.1.0".into()],
            disturbance: Disturbance::default(),
        };
        Report::new(circumstances, &ways, vec![case(1 << 10), case(256 << 10)]).unwrap()
    }

    #[test]
    fn rows_come_by_size_and_way() {
        let report = sample(false);
        assert_eq!(report.rows.len(), 8);
        assert_eq!((report.rows[5].size_bytes, report.rows[5].variant), (256 << 10, "naive"));
        let drop = report.rows[1].drop_percent.unwrap();
        assert!((drop.value - 40.0).abs() < 0.1, "{drop:?}");
        assert!(
            report.noise.trustworthy && report.notes == ["ended early: 2 of 3 sizes"],
            "{:?}",
            report.notes
        );
        assert!(!sample(true).noise.trustworthy);
    }

    #[test]
    fn json_has_a_schema_and_the_names_that_are_documented() {
        let mut bytes = Vec::new();
        sample(false).write(Format::Json, &mut bytes, 80).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(json["schema"], SCHEMA);
        let row = &json["rows"][2];
        assert_eq!(row["variant"], "chosen");
        for name in
            ["requests_per_s", "drop_percent", "cpu_ns_per_request", "added_ns_per_request", "added_percent"]
        {
            assert!(row[name]["value"].is_number() && row[name]["ci95"].is_array(), "{name}: {row}");
        }
        assert_eq!(row["seen"]["sent"], 8 * 28_800);
        assert_eq!(json["rows"][3]["why"], "this kernel has none");
    }

    #[test]
    fn failed_requests_are_no_result() {
        let settings = Settings::new(App::Tls);
        let circumstances = || Circumstances {
            settings: &settings,
            what: String::new(),
            cpus: None,
            versions: Vec::new(),
            disturbance: Disturbance::default(),
        };
        let ways = [Way { name: "none", what: String::new(), watcher: None, why: None }];
        let case = |summary, rounds| Case { size: 1024, rounds, summary };
        let bad = Summary { requests: 10, bad_responses: 10, ..Summary::default() };
        let one = vec![vec![Block { seconds: 1.0, requests: 10, cpu_ns: 10, ..Block::default() }]];
        assert!(matches!(Report::new(circumstances(), &ways, vec![case(bad, one)]), Err(Error::Failed(_))));
        let nothing = vec![case(Summary::default(), Vec::new())];
        assert!(matches!(Report::new(circumstances(), &ways, nothing), Err(Error::Interrupted)));
    }
}
