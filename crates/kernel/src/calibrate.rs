//! What a timer interrupt costs on this machine, while it runs.
//!
//! The kernel's BPF statistics leave it out: they start when the program starts. Here the same work is done without and with a
//! fast timer event that runs an empty program; what it takes longer, divided by the interrupts, is the price of one: the trap
//! (in a virtual machine the exit to the host that programs the timer), the timer code and the entry to the program.
//!
//! On a shared machine, and more so in a virtual one whose host has other work, blocks are disturbed, and those with interrupts more than those
//! without. So each block with interrupts stands between two without; only those count whose neighbours both were undisturbed, and of these the
//! median. They are measured in short bursts spread over the run.

use crate::perf::{Attr, PerfEvent, Scope};
use crate::{Result, os};
use std::os::fd::BorrowedFd;

/// Period of the calibrating timer. 20 kHz is below the kernel's default limit of 100 kHz and dense enough that a short block of
/// work holds [`INTERRUPTS_PER_BLOCK`].
const PERIOD_NS: u64 = 50_000;
const INTERRUPTS_PER_BLOCK: u64 = 4;
/// Sandwiches (a block without, one with, one without) in a burst.
const SANDWICHES: usize = 5;
/// Sandwiches kept, the latest.
const KEPT_MAX: usize = 4_096;
/// A block is undisturbed if it took no longer than this much of the fastest one, in percent.
const UNDISTURBED_PERCENT: u64 = 104;
/// With fewer undisturbed sandwiches all of them count.
const ENOUGH: usize = 3;

/// Bursts measured so far.
#[derive(Debug)]
pub struct Calibration {
    event: PerfEvent,
    rounds: u64,
    sandwiches: Vec<Sandwich>,
    next: usize,
}

/// Times of three blocks of the same work, in ns.
#[derive(Clone, Copy, Debug)]
struct Sandwich {
    before: u64,
    with: u64,
    after: u64,
}

impl Calibration {
    /// Opens the event on the calling thread, which must be the one that measures. Takes about 1 ms of CPU.
    ///
    /// # Errors
    /// As [`PerfEvent::open`] and [`PerfEvent::set_bpf`].
    pub fn new(empty_program: BorrowedFd<'_>) -> Result<Calibration> {
        let event = PerfEvent::open(Attr::sampling_period(PERIOD_NS), Scope::Caller)?;
        event.set_bpf(empty_program)?;
        let rounds = rounds_for(PERIOD_NS * INTERRUPTS_PER_BLOCK);
        Ok(Calibration { event, rounds, sandwiches: Vec::new(), next: 0 })
    }

    /// Measures one burst: about 2.5 ms of CPU.
    ///
    /// # Errors
    /// As [`PerfEvent::enable`].
    pub fn measure(&mut self) -> Result<()> {
        let mut before = time_of(self.rounds);
        for _ in 0..SANDWICHES {
            self.event.enable()?;
            let with = time_of(self.rounds);
            self.event.disable()?;
            let after = time_of(self.rounds);
            let sandwich = Sandwich { before, with, after };
            if self.sandwiches.len() < KEPT_MAX {
                self.sandwiches.push(sandwich);
            } else {
                self.sandwiches[self.next] = sandwich;
                self.next = (self.next + 1) % KEPT_MAX;
            }
            before = after;
        }
        Ok(())
    }

    /// Whether anything was measured.
    pub fn has_measured(&self) -> bool {
        !self.sandwiches.is_empty()
    }

    /// The price of one interrupt with an empty BPF program, in ns; `None` before anything was measured.
    pub fn interrupt_ns(&self) -> Option<u64> {
        price_ns(&self.sandwiches)
    }
}

/// The median price of an interrupt in undisturbed sandwiches.
fn price_ns(sandwiches: &[Sandwich]) -> Option<u64> {
    let fastest = sandwiches.iter().map(|s| s.before.min(s.after)).min()?;
    let limit = fastest * UNDISTURBED_PERCENT / 100;
    let prices = |all: bool| {
        let counting = sandwiches.iter().filter(|s| all || s.before.max(s.after) <= limit);
        let mut prices: Vec<i64> = counting.map(Sandwich::price_ns).collect();
        prices.sort_unstable();
        prices
    };
    let mut undisturbed = prices(false);
    if undisturbed.len() < ENOUGH {
        undisturbed = prices(true);
    }
    Some(undisturbed[undisturbed.len() / 2].max(0) as u64)
}

impl Sandwich {
    /// What one interrupt cost here; below zero if noise wins.
    fn price_ns(&self) -> i64 {
        // One interrupt each PERIOD_NS of the block, its own time included.
        let interrupts = (self.with / PERIOD_NS).max(1) as i64;
        (self.with as i64 - (self.before as i64 + self.after as i64) / 2) / interrupts
    }
}

/// Number of rounds of [`work`] that take about `wanted_ns`.
fn rounds_for(wanted_ns: u64) -> u64 {
    let mut rounds = 10_000;
    loop {
        let time = (0..3).map(|_| time_of(rounds)).min().unwrap_or(1).max(1);
        if time * 4 >= wanted_ns {
            return (rounds * wanted_ns / time).max(1);
        }
        rounds *= 4;
    }
}

/// Wall time, not CPU time: kernels with CONFIG_IRQ_TIME_ACCOUNTING keep interrupts out of a thread's CPU time.
fn time_of(rounds: u64) -> u64 {
    let start = os::monotonic_ns();
    work(rounds);
    os::monotonic_ns() - start
}

/// Work in registers only, so that nothing but the interrupts can slow it down.
fn work(rounds: u64) {
    let mut x = 1u64;
    for _ in 0..rounds {
        x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    std::hint::black_box(x);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandwich(before: u64, with: u64, after: u64) -> Sandwich {
        Sandwich { before, with, after }
    }

    #[test]
    fn a_longer_block_holds_more_interrupts() {
        assert_eq!(sandwich(200_000, 220_000, 200_000).price_ns(), 5_000);
        assert_eq!(sandwich(190_000, 360_000, 210_000).price_ns(), 22_857, "seven, not four");
        assert_eq!(sandwich(204_000, 200_000, 204_000).price_ns(), -1_000, "noise has two sides");
    }

    #[test]
    fn disturbed_sandwiches_do_not_count() {
        let good = sandwich(200_000, 220_000, 201_000);
        let disturbed = [sandwich(270_000, 420_000, 201_000), sandwich(200_000, 8_200_000, 4_200_000)];
        let mut all = vec![good; 4];
        all.extend(disturbed.repeat(20));
        assert_eq!(price_ns(&all), Some(4_875));
        assert_eq!(price_ns(&[]), None);
        assert_eq!(
            price_ns(&[sandwich(200_000, 240_000, 200_000)]),
            Some(10_000),
            "few are better than none"
        );
    }

    #[test]
    fn the_work_takes_about_as_long_as_asked() {
        let rounds = rounds_for(200_000);
        assert!(rounds > 1_000, "{rounds}");
    }
}
