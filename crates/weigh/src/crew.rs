//! Threads that repeat an operation at the same time.

use crate::ladder::Block;
use crate::rung::Operation;
use lightfoot_kernel::os;
use lightfoot_kernel::probes::targets;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// All threads of a block must have been running for so much of the longest one's time.
const TOGETHER: f64 = 0.9;
/// Steps of [`work`] in one operation: about a microsecond.
const WORK_STEPS: u32 = 1_000;
/// Turns of waiting before the CPU is left to others.
const SPINS: u32 = 10_000;

/// The calling thread and helpers, which are started when they are needed first and end with this.
#[derive(Debug, Default)]
pub struct Crew {
    helpers: Vec<Helper>,
}

#[derive(Debug)]
struct Helper {
    jobs: SyncSender<Job>,
    times: Receiver<Timing>,
}

#[derive(Clone, Debug)]
struct Job {
    operation: Operation,
    times: u64,
    line: Arc<Line>,
}

/// Where threads wait for each other.
#[derive(Debug)]
struct Line {
    missing: AtomicU32,
}

/// When a thread ran: CLOCK_MONOTONIC, and its own CPU time, in ns.
#[derive(Clone, Copy, Debug)]
struct Timing {
    start_ns: u64,
    end_ns: u64,
    cpu_ns: u64,
    /// The time is not CPU time, and others ran in it.
    interrupted: bool,
}

impl Crew {
    /// Repeats the operation so many times on each of so many threads, all beginning together.
    pub fn block(&mut self, operation: Operation, threads: u32, times: u64) -> Block {
        let helpers = threads.saturating_sub(1) as usize;
        while self.helpers.len() < helpers {
            self.helpers.push(Helper::start());
        }
        let line = Arc::new(Line { missing: AtomicU32::new(threads.max(1)) });
        let job = Job { operation, times, line };
        let at_work: Vec<&Helper> =
            self.helpers[..helpers].iter().filter(|helper| helper.jobs.send(job.clone()).is_ok()).collect();
        let mut timings = vec![job.perform()];
        timings.extend(at_work.iter().filter_map(|helper| helper.times.recv().ok()));
        let whole = timings.len() == threads.max(1) as usize;
        let ns = timings.iter().map(|t| t.cpu_ns as f64).sum::<f64>() / timings.len() as f64 / times as f64;
        Block { ns, together: whole && together(&timings) }
    }
}

impl Helper {
    fn start() -> Helper {
        let (jobs, to_do) = sync_channel::<Job>(1);
        let (done, times) = sync_channel(1);
        // It ends when its sender is dropped.
        std::thread::spawn(move || {
            while let Ok(job) = to_do.recv() {
                if done.send(job.perform()).is_err() {
                    break;
                }
            }
        });
        Helper { jobs, times }
    }
}

impl Job {
    fn perform(&self) -> Timing {
        // Some kernels keep interrupts out of a thread's CPU time (CONFIG_IRQ_TIME_ACCOUNTING), so interrupts are timed by the clock on the wall.
        let by_the_wall = self.operation == Operation::Work;
        let turns_before = if by_the_wall { turns() } else { None };
        self.line.wait();
        let start_ns = os::monotonic_ns();
        let cpu_before_ns = os::thread_cpu_ns();
        match self.operation {
            Operation::Getppid => targets::getppid(self.times),
            Operation::Call(instruction) => {
                if let Some(target) = targets::of(instruction) {
                    target.run(self.times);
                }
            }
            Operation::Work => (0..self.times).for_each(|_| work()),
        }
        let cpu_ns = os::thread_cpu_ns().saturating_sub(cpu_before_ns);
        let end_ns = os::monotonic_ns();
        if by_the_wall {
            let interrupted = turns_before != turns();
            return Timing { start_ns, end_ns, cpu_ns: end_ns - start_ns, interrupted };
        }
        Timing { start_ns, end_ns, cpu_ns, interrupted: false }
    }
}

/// How often this thread has been given a CPU. Source: the third number of `/proc/thread-self/schedstat`; `None` if the kernel does not count.
fn turns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_ascii_whitespace().nth(2)?.parse().ok()
}

impl Line {
    /// Returns when all are here. They do not sleep, so that they begin together; whose turn on a CPU does not come soon lets others run.
    fn wait(&self) {
        self.missing.fetch_sub(1, Ordering::AcqRel);
        let mut turns = 0u32;
        while self.missing.load(Ordering::Acquire) > 0 {
            turns += 1;
            if turns.is_multiple_of(SPINS) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// Whether all ran at the same time nearly all the time. One thread is together with itself: its CPU time tells nothing of pauses.
fn together(timings: &[Timing]) -> bool {
    if timings.iter().any(|timing| timing.interrupted) {
        return false;
    }
    let [_, _, ..] = timings else { return true };
    let (Some(last_start), Some(first_end)) =
        (timings.iter().map(|t| t.start_ns).max(), timings.iter().map(|t| t.end_ns).min())
    else {
        return false;
    };
    let longest = timings.iter().map(|t| t.end_ns - t.start_ns).max().unwrap_or(0) as f64;
    let running = timings.iter().map(|t| t.cpu_ns).min().unwrap_or(0) as f64;
    first_end.saturating_sub(last_start) as f64 >= TOGETHER * longest && running >= TOGETHER * longest
}

/// Work in registers, so that nothing but interrupts can slow it down.
fn work() {
    let mut x = 1u64;
    for _ in 0..WORK_STEPS {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    black_box(x);
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightfoot_model::Instruction;

    #[test]
    fn blocks_take_time_on_any_number_of_threads() {
        let mut crew = Crew::default();
        for operation in [Operation::Getppid, Operation::Call(Instruction::Nop), Operation::Work] {
            for threads in [1, 3, 2] {
                let block = crew.block(operation, threads, 20_000);
                assert!(block.ns > 0.0, "{operation:?} on {threads}: {block:?}");
            }
        }
        assert_eq!(crew.helpers.len(), 2, "they are kept");
    }

    #[test]
    fn together_is_all_of_the_time() {
        let ran = |start_ns, end_ns, cpu_ns| Timing { start_ns, end_ns, cpu_ns, interrupted: false };
        assert!(together(&[ran(0, 100, 100), ran(5, 103, 97)]));
        assert!(!together(&[ran(0, 100, 100), ran(20, 120, 100)]), "began too late");
        assert!(!together(&[ran(0, 100, 100), ran(0, 100, 60)]), "waited in between");
        assert!(!together(&[ran(0, 100, 100), ran(100, 200, 100)]), "one after the other");
        assert!(together(&[ran(0, 100, 1)]), "alone");
        assert!(!together(&[Timing { interrupted: true, ..ran(0, 100, 100) }]));
    }
}
