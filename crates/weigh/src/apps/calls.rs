//! What counting `syscalls:*` adds to one system call, in a loop of `getppid`: the dispatcher against perf's tracepoints.

use super::row::Interval;
use super::syscount::{probes, thread_ns, timed};
use super::{Result, failed};
use crate::random::Random;
use lightfoot_kernel::probes::{Group, Options, Point, support, targets};
use lightfoot_model::{Body, Mechanism};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Calls in a block: some two milliseconds.
const CALLS: u64 = 10_007;
/// Blocks of one visit; the fastest counts, since other work can only add time.
const BLOCKS: usize = 7;
/// Rounds that are made even if time is up, and most that are made.
const ROUNDS: (usize, usize) = (3, 200);

/// One way of counting.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub variant: &'static str,
    /// What is attached.
    pub what: String,
    /// Tracepoints of `syscalls:*` that it stands for.
    pub probes: usize,
    /// Whether it is possible here.
    pub available: bool,
    /// Why it is not.
    pub why: Option<String>,
    /// One call without, in ns of CPU time.
    pub base_ns: Option<Interval>,
    /// What counting adds to one call.
    pub added_ns: Option<Interval>,
    /// How much less that is than with perf's tracepoints, in percent; of the same round.
    pub cheaper_percent: Option<Interval>,
    /// Wall time of attaching, in ms.
    pub attach_ms: Option<Interval>,
    /// Wall time of detaching, in ms.
    pub detach_ms: Option<Interval>,
}

struct Way {
    variant: &'static str,
    what: &'static str,
    mechanism: Mechanism,
    specs: &'static [&'static str],
    /// The way with perf's tracepoints that sees the same.
    against: Option<usize>,
}

/// Entries only, then entries and exits. A system call whose own tracepoints are attached pays for these; what others have attached does not
/// matter to it, so perf's are those of `getppid` (361 pairs of them would take half a minute to detach).
const WAYS: [Way; 4] = [
    Way {
        variant: "perf_enter",
        what: "perf tracepoint of getppid's entry",
        mechanism: Mechanism::Tracepoint,
        specs: &["tracepoint:syscalls:sys_enter_getppid"],
        against: None,
    },
    Way {
        variant: "dispatcher_enter",
        what: "one raw tracepoint program for all entries",
        mechanism: Mechanism::RawTracepoint,
        specs: &["tracepoint:syscalls:sys_enter_*"],
        against: Some(0),
    },
    Way {
        variant: "perf_both",
        what: "perf tracepoints of getppid's entry and exit",
        mechanism: Mechanism::Tracepoint,
        specs: &["tracepoint:syscalls:sys_enter_getppid", "tracepoint:syscalls:sys_exit_getppid"],
        against: None,
    },
    Way {
        variant: "dispatcher_both",
        what: "one raw tracepoint program for all entries, one for all exits",
        mechanism: Mechanism::RawTracepoint,
        specs: &["tracepoint:syscalls:sys_enter_*", "tracepoint:syscalls:sys_exit_*"],
        against: Some(2),
    },
];

/// A group with its probes, or why there is none.
type Loaded = std::result::Result<(Group, Vec<Point>), String>;

struct Visit {
    base_ns: f64,
    added_ns: f64,
    attach_ms: f64,
    detach_ms: f64,
}

/// Measures for about so long.
///
/// # Errors
/// If a way that works does not count every call.
pub fn run(time: Duration, random: &mut Random, ending: &dyn Fn() -> bool) -> Result<Vec<Row>> {
    let mut groups: Vec<Loaded> =
        WAYS.iter().map(|way| load(way).map_err(|error| error.to_string())).collect();
    let started = Instant::now();
    let mut rounds: Vec<Vec<Option<Visit>>> = Vec::new();
    while rounds.len() < ROUNDS.0 || rounds.len() < ROUNDS.1 && started.elapsed() < time {
        let mut order: Vec<usize> = (0..WAYS.len()).collect();
        random.shuffle(&mut order);
        let mut round: Vec<Option<Visit>> = WAYS.iter().map(|_| None).collect();
        for index in order {
            if ending() {
                return Ok(rows(&groups, &rounds));
            }
            if let Ok((group, points)) = &mut groups[index] {
                round[index] = Some(visit(group, points, WAYS[index].specs.len() as u64)?);
            }
        }
        rounds.push(round);
    }
    Ok(rows(&groups, &rounds))
}

fn load(way: &Way) -> Result<(Group, Vec<Point>)> {
    support::check(way.mechanism)?;
    let mut points = Vec::new();
    for spec in way.specs {
        points.extend(probes(spec, way.mechanism)?.into_iter().map(|(_, point)| point));
    }
    for (slot, point) in points.iter_mut().enumerate() {
        point.slot = slot as u32;
    }
    // Of all processes: nothing is compared.
    let slots = points.len().max(1) as u32;
    let options = Options { slots, ..Options::new(way.mechanism, Body::Empty) };
    Ok((Group::load(&options)?, points))
}

fn visit(group: &mut Group, points: &[Point], firings: u64) -> Result<Visit> {
    let block = || thread_ns(|| targets::getppid(CALLS)) as f64 / CALLS as f64;
    let fastest = || (0..BLOCKS).map(|_| block()).min_by(f64::total_cmp).unwrap_or(0.0);
    let recorded =
        |group: &Group| -> Result<u64> { Ok(group.counts()?.iter().map(|counts| counts.recorded).sum()) };
    let before = fastest();
    let counted = recorded(group)?;
    let (attach_ms, attached) = timed(|| group.attach(points));
    attached?;
    let with = fastest();
    let (detach_ms, detached) = timed(|| group.detach());
    detached?;
    let counted = recorded(group)? - counted;
    let after = fastest();
    let least = CALLS * BLOCKS as u64 * firings;
    if counted < least {
        return Err(failed("not all calls were counted", format!("{counted} of {least}")));
    }
    let base_ns = before.min(after);
    Ok(Visit { base_ns, added_ns: with - base_ns, attach_ms, detach_ms })
}

fn rows(
    groups: &[std::result::Result<(Group, Vec<Point>), String>],
    rounds: &[Vec<Option<Visit>>],
) -> Vec<Row> {
    let column = |index: usize| rounds.iter().filter_map(move |round| round.get(index)?.as_ref());
    let each = |index: usize, value: &dyn Fn(&Visit) -> f64| {
        Interval::of(&column(index).map(value).collect::<Vec<_>>())
    };
    let row = |(index, (way, group)): (usize, (&Way, &Loaded))| {
        let cheaper = way.against.and_then(|against| {
            let pairs = column(index).zip(column(against));
            Interval::of(
                &pairs.map(|(own, perf)| 100.0 * (1.0 - own.added_ns / perf.added_ns)).collect::<Vec<_>>(),
            )
        });
        Row {
            variant: way.variant,
            what: way.what.into(),
            probes: group.as_ref().map_or(0, |(_, points)| points.len()),
            available: group.is_ok(),
            why: group.as_ref().err().cloned(),
            base_ns: each(index, &|visit| visit.base_ns),
            added_ns: each(index, &|visit| visit.added_ns),
            cheaper_percent: cheaper,
            attach_ms: each(index, &|visit| visit.attach_ms),
            detach_ms: each(index, &|visit| visit.detach_ms),
        }
    };
    WAYS.iter().zip(groups).enumerate().map(row).collect()
}
