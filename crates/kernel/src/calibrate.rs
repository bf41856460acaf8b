//! What a timer interrupt costs on this machine.
//!
//! The kernel's BPF statistics leave it out: they start when the program starts. Here the same work is done with and without a
//! fast timer event that runs an empty program; what it takes longer, divided by the interrupts, is the price of one: the trap
//! (in a virtual machine the exit to the host that programs the timer), the timer code and the entry to the program.

use crate::perf::{Attr, PerfEvent, Scope};
use crate::{Result, os};
use std::os::fd::BorrowedFd;

/// Period of the calibrating timer. 20 kHz is below the kernel's default limit of 100 kHz and dense enough that one block of
/// work holds [`INTERRUPTS_PER_BLOCK`].
const PERIOD_NS: u64 = 50_000;
const INTERRUPTS_PER_BLOCK: u64 = 5;
/// Pairs of blocks for a first idea, and for the ledger.
pub const QUICK: usize = 7;
/// See [`QUICK`].
pub const THOROUGH: usize = 33;

/// The price of one timer interrupt with an empty BPF program, in ns: the median over so many pairs of blocks of work (without and
/// with the timer; about 1 ms of CPU a pair). The median, not the minimum: in a virtual machine the price changes with what the
/// host does, and a run pays what it is most of the time.
///
/// # Errors
/// As [`PerfEvent::open`] and [`PerfEvent::set_bpf`].
pub fn interrupt_ns(empty_program: BorrowedFd<'_>, pairs: usize) -> Result<u64> {
    let event = PerfEvent::open(Attr::sampling_period(PERIOD_NS), Scope::Caller)?;
    event.set_bpf(empty_program)?;
    let rounds = rounds_for(PERIOD_NS * INTERRUPTS_PER_BLOCK);
    let mut prices = Vec::with_capacity(pairs);
    for _ in 0..pairs {
        let without = time_of(rounds);
        event.enable()?;
        let with = time_of(rounds);
        event.disable()?;
        // The event counts CPU time that includes its own interrupts: one fires each PERIOD_NS of `with`.
        let interrupts = (with / PERIOD_NS).max(1);
        prices.push(with.saturating_sub(without) / interrupts);
    }
    prices.sort_unstable();
    Ok(prices.get(prices.len() / 2).copied().unwrap_or(0))
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

/// Wall time, not CPU time: kernels with CONFIG_IRQ_TIME_ACCOUNTING keep interrupts out of a thread's CPU time. Blocks during which something
/// else ran are outliers, which the median does not see.
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
