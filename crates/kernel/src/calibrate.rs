//! What a timer interrupt costs on this machine, while it runs.
//!
//! The kernel's BPF statistics leave it out: they start when the program starts. Here the same work is done without and with a
//! fast timer event that runs an empty program; what it takes longer, divided by the interrupts, is the price of one: the trap
//! (in a virtual machine the exit to the host that programs the timer), the timer code and the entry to the program.
//!
//! In a virtual machine the price changes by a factor of five or more within seconds, with what the host does to the CPU. So it is measured
//! in short pairs of blocks spread over the run, and their mean is what the run paid.

use crate::perf::{Attr, PerfEvent, Scope};
use crate::{Result, os};
use std::os::fd::BorrowedFd;

/// Period of the calibrating timer. 20 kHz is below the kernel's default limit of 100 kHz and dense enough that a short block of
/// work holds [`INTERRUPTS_PER_BLOCK`].
const PERIOD_NS: u64 = 50_000;
const INTERRUPTS_PER_BLOCK: u64 = 4;
/// Pairs kept, the latest.
const PAIRS_MAX: usize = 4_096;

/// Pairs of blocks of work without and with interrupts, measured so far.
#[derive(Debug)]
pub struct Calibration {
    event: PerfEvent,
    rounds: u64,
    /// Price of one interrupt as each pair says, in ns; below zero if the block without took longer.
    prices_ns: Vec<i64>,
    next: usize,
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
        Ok(Calibration { event, rounds, prices_ns: Vec::new(), next: 0 })
    }

    /// Measures so many pairs, each about 0.4 ms of CPU.
    ///
    /// # Errors
    /// As [`PerfEvent::enable`].
    pub fn measure(&mut self, pairs: usize) -> Result<()> {
        for _ in 0..pairs {
            let without = time_of(self.rounds);
            self.event.enable()?;
            let with = time_of(self.rounds);
            self.event.disable()?;
            // One interrupt each PERIOD_NS of `with`, its own time included.
            let interrupts = (with / PERIOD_NS).max(1) as i64;
            let price = (with as i64 - without as i64) / interrupts;
            if self.prices_ns.len() < PAIRS_MAX {
                self.prices_ns.push(price);
            } else {
                self.prices_ns[self.next] = price;
                self.next = (self.next + 1) % PAIRS_MAX;
            }
        }
        Ok(())
    }

    /// Pairs measured.
    pub fn pairs(&self) -> usize {
        self.prices_ns.len()
    }

    /// The price of one interrupt with an empty BPF program, in ns; `None` before anything was measured.
    pub fn interrupt_ns(&self) -> Option<u64> {
        trimmed_mean(&self.prices_ns).map(|mean| mean.max(0) as u64)
    }
}

/// The mean without the tenth at each end: pairs during which something else ran.
fn trimmed_mean(values: &[i64]) -> Option<i64> {
    let mut values = values.to_vec();
    values.sort_unstable();
    let cut = values.len().div_ceil(10).min(values.len().saturating_sub(1) / 2);
    let kept = &values[cut..values.len() - cut];
    (!kept.is_empty()).then(|| kept.iter().sum::<i64>() / kept.len() as i64)
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

    #[test]
    fn outliers_do_not_move_the_mean() {
        assert_eq!(trimmed_mean(&[]), None);
        assert_eq!(trimmed_mean(&[7]), Some(7));
        assert_eq!(trimmed_mean(&[4, 8]), Some(6));
        let mut values = vec![5; 18];
        values.extend([4_000_000, -3_000_000]);
        assert_eq!(trimmed_mean(&values), Some(5));
        // A price that is high for a third of the time counts for a third.
        let mut values = vec![3; 20];
        values.extend([33; 10]);
        assert_eq!(trimmed_mean(&values), Some((17 * 3 + 7 * 33) / 24));
    }

    #[test]
    fn the_work_takes_about_as_long_as_asked() {
        let rounds = rounds_for(200_000);
        assert!(rounds > 1_000, "{rounds}");
    }
}
