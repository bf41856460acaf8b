//! What blocks say: one row for each size and way of watching.

use super::blocks::{Block, Seen, Way};
use crate::stats;
use serde::Serialize;

/// A value with its 95 % confidence interval ([`stats::interval95`]).
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Interval {
    /// The median over blocks, or over rounds.
    pub value: f64,
    /// The interval; `None` with fewer than two rounds.
    pub ci95: Option<[f64; 2]>,
}

impl Interval {
    /// Of nothing: `None`.
    pub fn of(values: &[f64]) -> Option<Interval> {
        Some(Interval { value: stats::median(values)?, ci95: stats::interval95(values) })
    }
}

/// One size, watched in one way.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Bytes of a response.
    pub size_bytes: u64,
    /// Name of the way.
    pub variant: &'static str,
    /// Whether it is possible here.
    pub available: bool,
    /// Why it is not.
    pub why: Option<String>,
    /// Blocks that the figures rest on.
    pub blocks: usize,
    /// Requests a second.
    pub requests_per_s: Option<Interval>,
    /// How many fewer requests a second than without, in percent, block against block of one round. Below zero: more.
    pub drop_percent: Option<Interval>,
    /// CPU time of the server's process for one request, in ns.
    pub cpu_ns_per_request: Option<Interval>,
    /// What watching added to it, in ns, block against block of one round.
    pub added_ns_per_request: Option<Interval>,
    /// The same as a share of the CPU time without, in percent.
    pub added_percent: Option<Interval>,
    /// Programs run for one request (in all processes that they ran for).
    pub fired_per_request: f64,
    /// CPU time of lightfoot itself in the blocks, in percent of one CPU.
    pub own_cpu_percent: f64,
    /// Requests in the blocks, by the server's own count.
    pub requests: u64,
    /// What was seen from attaching to detaching, before and behind the blocks, too.
    pub seen: Counts,
    /// Wall time that attaching took, in ms.
    pub attach_ms: Option<Interval>,
    /// Wall time that detaching took, in ms.
    pub detach_ms: Option<Interval>,
}

/// What was seen and what became of it, exact sums over all blocks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Counts {
    /// Programs run.
    pub fired: u64,
    /// Calls or system calls counted in the kernel.
    pub counted: u64,
    /// Left out in the kernel: of another process.
    pub filtered: u64,
    /// Events sent.
    pub sent: u64,
    /// Events that came.
    pub received: u64,
    /// Events lost: no room.
    pub lost: u64,
    /// Events that came and were dropped: of another process.
    pub dropped: u64,
    /// Calls that wrote.
    pub writes: u64,
    /// Bytes that they wrote.
    pub bytes_written: u64,
}

impl Counts {
    fn add(mut self, seen: &Seen) -> Counts {
        self.fired += seen.fired;
        self.counted += seen.counted;
        self.filtered += seen.filtered;
        self.sent += seen.sent;
        self.received += seen.received;
        self.lost += seen.lost;
        self.dropped += seen.dropped;
        self.writes += seen.writes;
        self.bytes_written += seen.bytes_written;
        self
    }
}

/// The rows of one size: one for each way, in order. The first way is the one without.
pub fn rows(size_bytes: u64, ways: &[Way], rounds: &[Vec<Block>]) -> Vec<Row> {
    let column = |index: usize| -> Vec<Block> {
        rounds.iter().filter_map(|round| round.get(index).copied()).collect()
    };
    let without = column(0);
    ways.iter()
        .enumerate()
        .map(|(index, way)| row(size_bytes, way, &without, &column(index), index == 0))
        .collect()
}

fn row(size_bytes: u64, way: &Way, without: &[Block], with: &[Block], is_base: bool) -> Row {
    let with: &[Block] = if way.why.is_some() { &[] } else { with };
    let each = |value: &dyn Fn(&Block) -> f64| Interval::of(&with.iter().map(value).collect::<Vec<_>>());
    let against = |value: &dyn Fn(&Block, &Block) -> f64| {
        let values: Vec<f64> = without.iter().zip(with).map(|(base, block)| value(base, block)).collect();
        if is_base { None } else { Interval::of(&values) }
    };
    let sum = |value: &dyn Fn(&Block) -> f64| with.iter().map(value).sum::<f64>();
    let per = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    Row {
        size_bytes,
        variant: way.name,
        available: way.why.is_none(),
        why: way.why.clone(),
        blocks: with.len(),
        requests_per_s: each(&Block::rate),
        drop_percent: against(&|base, block| 100.0 * (1.0 - block.rate() / base.rate().max(1e-9))),
        cpu_ns_per_request: each(&Block::cpu_ns_per_request),
        added_ns_per_request: against(&|base, block| block.cpu_ns_per_request() - base.cpu_ns_per_request()),
        added_percent: against(&|base, block| {
            100.0 * (block.cpu_ns_per_request() / base.cpu_ns_per_request().max(1e-9) - 1.0)
        }),
        fired_per_request: per(sum(&|block| block.seen.fired as f64), sum(&|block| block.requests as f64)),
        own_cpu_percent: 100.0
            * per(sum(&|block| block.own_cpu_ns as f64 / 1e9), sum(&|block| block.seconds)),
        requests: with.iter().map(|block| block.requests).sum(),
        seen: with.iter().fold(Counts::default(), |counts, block| counts.add(&block.seen_in_all)),
        attach_ms: if is_base { None } else { each(&|block| block.attach_ms) },
        detach_ms: if is_base { None } else { each(&|block| block.detach_ms) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(name: &'static str) -> Way {
        Way { name, what: String::new(), watcher: None, why: None }
    }

    fn block(requests: u64, cpu_us_each: u64, fired: u64) -> Block {
        let seen = Seen { fired, sent: fired, received: fired, ..Seen::default() };
        Block {
            seconds: 0.5,
            requests,
            cpu_ns: requests * cpu_us_each * 1000,
            seen,
            seen_in_all: seen,
            ..Block::default()
        }
    }

    #[test]
    fn blocks_of_one_round_are_compared() {
        // The machine is half as fast in every second round: it does not matter.
        let rounds: Vec<Vec<Block>> = (0..8)
            .map(|round| {
                let slow = 1 + round % 2;
                vec![block(10_000 / slow, 40 * slow, 0), block(5_000 / slow, 50 * slow, 20_000 / slow)]
            })
            .collect();
        let rows = rows(1024, &[way("none"), way("naive")], &rounds);
        assert_eq!((rows[0].drop_percent, rows[0].added_percent, rows[0].blocks), (None, None, 8));
        assert_eq!(rows[0].requests, 4 * (10_000 + 5_000));
        let drop = rows[1].drop_percent.unwrap();
        assert!((drop.value - 50.0).abs() < 1e-9 && drop.ci95 == Some([50.0, 50.0]), "{drop:?}");
        let added = rows[1].added_percent.unwrap();
        assert!((added.value - 25.0).abs() < 1e-9, "{added:?}");
        assert!((rows[1].added_ns_per_request.unwrap().value - 15_000.0).abs() < 1e-6);
        assert!((rows[1].fired_per_request - 4.0).abs() < 1e-9);
        assert_eq!(rows[1].seen.sent, 4 * (20_000 + 10_000));
    }

    #[test]
    fn what_is_not_possible_has_no_figures() {
        let missing = Way { why: Some("no such probes".into()), ..way("chosen") };
        let rows = rows(1024, &[way("none"), missing], &[vec![block(100, 40, 0), Block::default()]]);
        assert!(!rows[1].available && rows[1].blocks == 0 && rows[1].requests_per_s.is_none());
        assert_eq!(rows[1].drop_percent, None);
    }
}
