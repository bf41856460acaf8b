//! Blocks of time with each way of watching in turn, under a load that does not stop.

use super::nginx::Server;
use super::wrk::Load;
use super::{Error, Result};
use crate::random::Random;
use lightfoot_kernel::os;
use std::time::{Duration, Instant};

/// Probes come, and then it takes so long until the block begins: first hits find cold caches.
const SETTLE: Duration = Duration::from_millis(50);
/// Rings are read so often.
const READ_EVERY: Duration = Duration::from_millis(10);
/// Rounds of each case that are made even if time is up: fewer have no interval.
pub const ROUNDS_MIN: usize = 3;

/// How a server is watched in a block.
pub trait Watcher {
    /// Attaches everything. If that fails nothing is attached.
    ///
    /// # Errors
    /// Why not.
    fn attach(&mut self, server: &Server) -> Result<()>;

    /// Detaches everything and takes what still waits.
    ///
    /// # Errors
    /// If what came is not what was sent.
    fn detach(&mut self) -> Result<()>;

    /// Takes what waits in rings; called every ten milliseconds.
    ///
    /// # Errors
    /// As reading a ring.
    fn take(&mut self) -> Result<()>;

    /// What has been seen since the start.
    ///
    /// # Errors
    /// As reading counters.
    fn seen(&self) -> Result<Seen>;
}

/// What watching saw, and what became of it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Seen {
    /// Programs run.
    pub fired: u64,
    /// Calls or system calls counted in the kernel.
    pub counted: u64,
    /// Left out in the kernel: of another process.
    pub filtered: u64,
    /// Events sent to user space.
    pub sent: u64,
    /// Events lost: no room.
    pub lost: u64,
    /// Events that user space got.
    pub received: u64,
    /// Of these, dropped there: of another process.
    pub dropped: u64,
    /// Calls that wrote.
    pub writes: u64,
    /// Bytes that they wrote.
    pub bytes_written: u64,
}

impl Seen {
    /// What was seen since `earlier`.
    pub fn since(&self, earlier: &Seen) -> Seen {
        Seen {
            fired: self.fired - earlier.fired,
            counted: self.counted - earlier.counted,
            filtered: self.filtered - earlier.filtered,
            sent: self.sent - earlier.sent,
            lost: self.lost - earlier.lost,
            received: self.received - earlier.received,
            dropped: self.dropped - earlier.dropped,
            writes: self.writes - earlier.writes,
            bytes_written: self.bytes_written - earlier.bytes_written,
        }
    }
}

/// A way of watching, with its name.
pub struct Way {
    /// Name in every format.
    pub name: &'static str,
    /// One line for people.
    pub what: String,
    /// `None`: nothing is attached.
    pub watcher: Option<Box<dyn Watcher>>,
    /// Why it is not possible here.
    pub why: Option<String>,
}

/// One block.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Block {
    /// Length, in seconds.
    pub seconds: f64,
    /// Requests begun in it, by the server's own count.
    pub requests: u64,
    /// CPU time of the server, in ns.
    pub cpu_ns: u64,
    /// CPU time of this process, in ns: reading rings.
    pub own_cpu_ns: u64,
    /// Seen in the block.
    pub seen: Seen,
    /// Seen from attaching until all was detached.
    pub seen_in_all: Seen,
    /// Wall time that attaching took, in ms.
    pub attach_ms: f64,
    /// Wall time that detaching took, in ms.
    pub detach_ms: f64,
}

impl Block {
    /// Requests a second.
    pub fn rate(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// CPU time of the server for each request, in ns.
    pub fn cpu_ns_per_request(&self) -> f64 {
        self.cpu_ns as f64 / self.requests.max(1) as f64
    }
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Sizes that are done.
    pub cases_done: usize,
    /// Sizes in all.
    pub cases: usize,
    /// Rounds done of this one.
    pub rounds: usize,
}

/// Time and order.
pub struct Pace<'a> {
    /// Length of a block.
    pub block: Duration,
    /// For all rounds of one case.
    pub time: Duration,
    /// The order of blocks.
    pub random: &'a mut Random,
    /// Whether someone asked to end.
    pub ending: &'a dyn Fn() -> bool,
}

/// Rounds of one block of each way, in another order each, until time is up. Each round has as many blocks as there are ways; those of ways
/// that are not possible stay empty (no requests).
///
/// # Errors
/// If the server or the load ends, or a way that worked does not any more.
pub fn rounds(
    server: &mut Server,
    load: &mut Load,
    ways: &mut [Way],
    pace: &mut Pace<'_>,
    tell: &mut dyn FnMut(usize),
) -> Result<Vec<Vec<Block>>> {
    let started = Instant::now();
    let mut rounds = Vec::new();
    while rounds.len() < ROUNDS_MIN || started.elapsed() < pace.time {
        let mut order: Vec<usize> = (0..ways.len()).collect();
        pace.random.shuffle(&mut order);
        let mut round = vec![Block::default(); ways.len()];
        for index in order {
            if (pace.ending)() {
                return Ok(rounds);
            }
            let way = &mut ways[index];
            if way.why.is_none() {
                round[index] = block(server, way.watcher.as_deref_mut(), pace)?;
            }
            if !load.runs() {
                return Err(Error::Failed("the load (wrk) ended too early".into()));
            }
        }
        rounds.push(round);
        tell(rounds.len());
    }
    Ok(rounds)
}

fn block(
    server: &mut Server,
    watcher: Option<&mut (dyn Watcher + 'static)>,
    pace: &Pace<'_>,
) -> Result<Block> {
    let Some(watcher) = watcher else {
        std::thread::sleep(SETTLE);
        let (begin, own) = (server.reading()?, os::process_cpu_ns());
        let until = Instant::now() + pace.block;
        while Instant::now() < until && !(pace.ending)() {
            std::thread::sleep(READ_EVERY.min(until - Instant::now().min(until)));
        }
        let end = server.reading()?;
        return Ok(between(&begin, &end, os::process_cpu_ns() - own));
    };
    let before = watcher.seen()?;
    let attaching = Instant::now();
    watcher.attach(server)?;
    let attach_ms = attaching.elapsed().as_secs_f64() * 1e3;
    let measured = watched(server, watcher, pace);
    // Whatever came in between, nothing stays attached.
    let detaching = Instant::now();
    let detached = watcher.detach();
    let detach_ms = detaching.elapsed().as_secs_f64() * 1e3;
    let block = measured?;
    detached?;
    Ok(Block { attach_ms, detach_ms, seen_in_all: watcher.seen()?.since(&before), ..block })
}

fn watched(server: &mut Server, watcher: &mut dyn Watcher, pace: &Pace<'_>) -> Result<Block> {
    take_for(watcher, SETTLE, pace)?;
    let (begin, seen, own) = (server.reading()?, watcher.seen()?, os::process_cpu_ns());
    take_for(watcher, pace.block, pace)?;
    let end = server.reading()?;
    let seen = watcher.seen()?.since(&seen);
    Ok(Block { seen, ..between(&begin, &end, os::process_cpu_ns() - own) })
}

fn take_for(watcher: &mut dyn Watcher, time: Duration, pace: &Pace<'_>) -> Result<()> {
    let until = Instant::now() + time;
    loop {
        watcher.take()?;
        let now = Instant::now();
        if now >= until || (pace.ending)() {
            return Ok(());
        }
        std::thread::sleep(READ_EVERY.min(until - now));
    }
}

fn between(begin: &super::nginx::Reading, end: &super::nginx::Reading, own_cpu_ns: u64) -> Block {
    Block {
        seconds: (end.at - begin.at).as_secs_f64(),
        // Each reading is a request itself.
        requests: (end.requests - begin.requests).saturating_sub(1),
        cpu_ns: end.cpu_ns - begin.cpu_ns,
        own_cpu_ns,
        ..Block::default()
    }
}
