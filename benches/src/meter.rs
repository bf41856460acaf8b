//! One `meter` per CPU: loads whose speed per CPU second can be read while they run.

use crate::machine;
use crate::table::{median, quantile};
use anyhow::{Context, Result};
use lightfoot_tests::Workload;
use std::path::{Path, PathBuf};

/// A reading of all meters.
type Reading = Vec<Point>;

/// One meter at one moment.
#[derive(Clone, Copy, Debug)]
struct Point {
    iterations: u64,
    cpu_ns: u64,
    wall_ns: u64,
}

/// A meter on each CPU.
pub struct Meters {
    workloads: Vec<Workload>,
    paths: Vec<PathBuf>,
    _dir: tempfile::TempDir,
}

impl Meters {
    /// Starts a `meter` (or `gaps`) on each CPU, with stacks of `depth` frames and more, for at most `seconds`.
    pub fn start(program: &str, depth: usize, seconds: f64) -> Result<Meters> {
        let dir = tempfile::tempdir()?;
        let paths: Vec<PathBuf> =
            (0..machine::cpus()).map(|cpu| dir.path().join(format!("meter-{cpu}"))).collect();
        let workloads = paths.iter().enumerate().map(|(cpu, path)| {
            let arguments =
                format!("--file {} --cpu {cpu} --depth {depth} --seconds {seconds}", path.display());
            Workload::start(program, &arguments)
        });
        let meters = Meters { workloads: workloads.collect(), paths, _dir: dir };
        crate::tool::sleep(0.5);
        Ok(meters)
    }

    /// Process ids, separated by commas.
    pub fn pids(&self) -> String {
        self.workloads.iter().map(|workload| workload.pid().to_string()).collect::<Vec<_>>().join(",")
    }

    /// Where every meter is now.
    fn read(&self) -> Result<Reading> {
        self.paths.iter().map(|path| point(path)).collect()
    }
}

/// The four numbers of one meter, taken between two writes.
fn point(path: &Path) -> Result<Point> {
    for _ in 0..1000 {
        let before = std::fs::read(path)?;
        let after = std::fs::read(path)?;
        let word =
            |bytes: &[u8], n: usize| Some(u64::from_ne_bytes(bytes.get(n * 8..n * 8 + 8)?.try_into().ok()?));
        let (Some(first), Some(second)) = (word(&before, 0), word(&after, 0)) else { continue };
        if first % 2 == 0 && first == second && first > 0 {
            let value = |n| word(&before, n).context("a meter's file is too short");
            return Ok(Point { iterations: value(1)?, cpu_ns: value(2)?, wall_ns: value(3)? });
        }
    }
    anyhow::bail!("{}: the meter does not stand still", path.display())
}

/// What the meters did over a stretch of time.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Iterations per ns of CPU time, mean over the meters: of each meter the 90th percentile over windows of 200 ms. Interrupts slow every
    /// window alike; other work on the machine (caches, the host's other guests) slows some, and only ever slows.
    pub speed: f64,
    /// Iterations per ns of wall time, mean over the meters: what gets done, the tool's own CPU time included in the loss.
    pub throughput: f64,
}

const WINDOW_S: f64 = 0.2;

impl Meters {
    /// Reads the meters for some seconds.
    pub fn measure(&self, seconds: f64) -> Result<Pace> {
        let mut readings = vec![self.read()?];
        for _ in 0..(seconds / WINDOW_S).round().max(1.0) as usize {
            crate::tool::sleep(WINDOW_S);
            readings.push(self.read()?);
        }
        let meters = self.paths.len();
        let (mut speed, mut throughput) = (0.0, 0.0);
        for meter in 0..meters {
            let windows: Vec<f64> = readings
                .windows(2)
                .map(|pair| (pair[0][meter], pair[1][meter]))
                .filter(|(a, b)| b.cpu_ns > a.cpu_ns)
                .map(|(a, b)| (b.iterations - a.iterations) as f64 / (b.cpu_ns - a.cpu_ns) as f64)
                .collect();
            speed += quantile(&windows, 0.9);
            let (a, b) = (readings[0][meter], readings[readings.len() - 1][meter]);
            throughput += (b.iterations - a.iterations) as f64 / (b.wall_ns - a.wall_ns).max(1) as f64;
        }
        Ok(Pace { speed: speed / meters as f64, throughput: throughput / meters as f64 })
    }

    /// With `gaps`: time in gaps per time of CPU, mean over the meters of the median over windows.
    pub fn in_gaps(&self, seconds: f64) -> Result<f64> {
        let mut readings = vec![self.read()?];
        for _ in 0..(seconds / WINDOW_S).round().max(1.0) as usize {
            crate::tool::sleep(WINDOW_S);
            readings.push(self.read()?);
        }
        let of = |meter: usize| {
            let windows: Vec<f64> = readings
                .windows(2)
                .map(|pair| (pair[0][meter], pair[1][meter]))
                .filter(|(a, b)| b.cpu_ns > a.cpu_ns)
                .map(|(a, b)| (b.iterations - a.iterations) as f64 / (b.cpu_ns - a.cpu_ns) as f64)
                .collect();
            median(&windows)
        };
        Ok((0..self.paths.len()).map(of).sum::<f64>() / self.paths.len() as f64)
    }
}
