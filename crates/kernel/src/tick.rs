//! The tick clock: samples taken when the scheduler's tick fires anyway (`bpf/tick.h`).

use crate::sampler::{map, put};
use crate::{Error, Kind, Result, os};
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{DataSec, Var};
use libbpf_rs::{MapCore, MapFlags, Object};
use std::fs::File;
use std::io::{BufRead, BufReader};

/// Names of the function that the tick's timer calls, newest first: `tick_nohz_handler` since Linux 6.8.
const HANDLERS: [&str; 2] = ["tick_nohz_handler", "tick_sched_timer"];
/// Programs of `bpf/tick.h`.
pub(crate) const PROGRAMS: [&str; 2] = ["on_tick", "on_check"];
/// Maps of `bpf/tick.h`.
pub(crate) const MAPS: [&str; 2] = ["clock_checks", "tick_settings"];
/// Buckets of the cross-check: `CHECK_BUCKETS`.
const BUCKETS: usize = 256;

/// What the programs must know to ride the tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tick {
    /// Address of the function that the tick's timer calls.
    pub function: u64,
    /// Distance of `__irq_regs` from `runqueues` among each CPU's variables, in bytes.
    pub irq_regs: i64,
    /// Between two ticks of a busy CPU, in ns: 4,000,000 with `CONFIG_HZ=250`.
    pub period_ns: u64,
}

impl Tick {
    /// Finds the tick. Takes some 30 ms of CPU: the kernel's symbols and types are searched.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] with what is missing.
    pub fn find() -> Result<Tick> {
        let function = handler()?.ok_or_else(|| {
            Error::new(Kind::Unsupported, "the scheduler's tick has no known function in /proc/kallsyms")
        })?;
        let irq_regs = irq_regs().ok_or_else(|| {
            Error::new(
                Kind::Unsupported,
                "the kernel's types do not say where an interrupt keeps its registers",
            )
        })?;
        Ok(Tick { function, irq_regs, period_ns: os::tick_ns() })
    }

    /// [`Live::tick_keep`](crate::abi::Live::tick_keep) for a rate: the share of ticks that are kept, of 2^32. 0 keeps all.
    pub fn keep(&self, rate_hz: u64) -> u32 {
        let share = (rate_hz * self.period_ns) as f64 / 1e9;
        if share >= 1.0 { 0 } else { ((share * 4_294_967_296.0) as u32).max(1) }
    }

    /// Highest rate: each tick a sample.
    pub fn rate_hz_max(&self) -> u64 {
        1_000_000_000 / self.period_ns.max(1)
    }
}

fn handler() -> Result<Option<u64>> {
    let path = "/proc/kallsyms";
    let failed = |e| Error::io(format!("cannot read {path}"), e);
    let mut lines = BufReader::with_capacity(1 << 16, File::open(path).map_err(failed)?);
    let (mut line, mut found) = (Vec::new(), None);
    while lines.read_until(b'\n', &mut line).map_err(failed)? > 0 {
        found = found.or(handler_in(&line));
        // A kernel has one of them, and a module's symbols come last.
        if found.is_some() {
            break;
        }
        line.clear();
    }
    Ok(found)
}

/// The address if the line of `/proc/kallsyms` is a handler's; `None` also where addresses are hidden.
fn handler_in(line: &[u8]) -> Option<u64> {
    let mut words = line.split(|byte| byte.is_ascii_whitespace());
    let (address, _, name) = (words.next()?, words.next()?, words.next()?);
    if !HANDLERS.iter().any(|handler| handler.as_bytes() == name) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(address).ok()?, 16).ok().filter(|&address| address != 0)
}

/// Where `__irq_regs` lies, seen from `runqueues`: both are variables of each CPU, in one section.
fn irq_regs() -> Option<i64> {
    let btf = Btf::from_vmlinux().ok()?;
    let id = |name: &str| btf.type_by_name::<Var<'_>>(name).map(|var| var.type_id());
    let (regs, queue) = (id("__irq_regs")?, id("runqueues")?);
    btf.type_by_kind::<DataSec<'_>>().find_map(|section| {
        let offset = |wanted| section.iter().find(|var| var.ty == wanted).map(|var| i64::from(var.offset));
        Some(offset(regs)? - offset(queue)?)
    })
}

/// Hits of both clocks while they ran side by side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockCheck {
    ticks: Vec<u64>,
    timer: Vec<u64>,
}

/// What the comparison of both clocks says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Comparison {
    /// Ticks that hit a process.
    pub ticks: u64,
    /// Hits of the timer.
    pub timer: u64,
    /// Largest difference of a place's share between the clocks, 0 to 1.
    pub difference: f64,
    /// What chance alone stays below in 999 of 1,000 comparisons, for the place that stands out most.
    pub by_chance: f64,
    /// Whether a place stands out more than chance explains.
    pub differs: bool,
}

impl ClockCheck {
    pub(crate) fn read(object: &Object) -> Result<ClockCheck> {
        let rows = map(object, "clock_checks")?
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| Error::libbpf("cannot read the clocks' comparison", e, String::new()))?
            .unwrap_or_default();
        let mut words = vec![0u64; 2 * BUCKETS];
        for row in rows {
            for (sum, bytes) in words.iter_mut().zip(row.as_chunks::<8>().0) {
                *sum += u64::from_ne_bytes(*bytes);
            }
        }
        let timer = words.split_off(BUCKETS);
        Ok(ClockCheck { ticks: words, timer })
    }

    /// Compares the shares of places (a process's 256 bytes of code, by hash in 256 buckets).
    pub fn compare(&self) -> Comparison {
        let (ticks, timer) = (self.ticks.iter().sum::<u64>(), self.timer.iter().sum::<u64>());
        let mut comparison = Comparison { ticks, timer, difference: 0.0, by_chance: 0.0, differs: false };
        if ticks == 0 || timer == 0 {
            return comparison;
        }
        let (a, b) = (ticks as f64, timer as f64);
        for (&in_ticks, &in_timer) in self.ticks.iter().zip(&self.timer) {
            let share = (in_ticks + in_timer) as f64 / (a + b);
            let difference = (in_ticks as f64 / a - in_timer as f64 / b).abs();
            // Two samples of one share; 4.6 standard deviations: 1 in 1,000 for the largest of 256.
            let by_chance = 4.6 * (share * (1.0 - share) * (1.0 / a + 1.0 / b)).sqrt();
            comparison.differs |= difference > by_chance;
            if difference > comparison.difference {
                (comparison.difference, comparison.by_chance) = (difference, by_chance);
            }
        }
        comparison
    }
}

/// `struct lf_tick_settings`.
pub(crate) fn set(object: &Object, checking: bool, counting: bool) -> Result<()> {
    let mut value = [0u8; 24];
    value[..4].copy_from_slice(&u32::from(checking).to_ne_bytes());
    value[4..8].copy_from_slice(&u32::from(counting).to_ne_bytes());
    put(object, "tick_settings", &0u32.to_ne_bytes(), &value)
}

/// Ticks counted since [`set`], and what they took together in ns.
pub(crate) fn counted(object: &Object) -> Result<(u64, u64)> {
    let value = map(object, "tick_settings")?
        .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(|e| Error::libbpf("cannot read the ticks counted", e, String::new()))?
        .unwrap_or_default();
    let word =
        |at: usize| value.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
    Ok((word(8), word(16)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_are_found_by_their_whole_name() {
        assert_eq!(handler_in(b"ffffffff814352e0 t tick_nohz_handler\n"), Some(0xffff_ffff_8143_52e0));
        assert_eq!(handler_in(b"ffffffff814352e0 t tick_nohz_handler_x\n"), None);
        assert_eq!(handler_in(b"0000000000000000 t tick_sched_timer\n"), None, "hidden");
        assert_eq!(handler_in(b"\n"), None);
    }

    #[test]
    fn the_share_kept_makes_the_rate() {
        let tick = Tick { function: 1, irq_regs: 0, period_ns: 4_000_000 };
        assert_eq!(tick.keep(250), 0, "all");
        assert_eq!(tick.keep(1000), 0, "no more than all");
        assert_eq!(tick.keep(125), 1 << 31);
        assert_eq!(tick.rate_hz_max(), 250);
    }

    #[test]
    fn chance_is_told_from_a_difference() {
        let even = ClockCheck { ticks: vec![400; 10], timer: vec![390; 10] };
        assert!(!even.compare().differs);
        let mut ticks = vec![400; 10];
        (ticks[0], ticks[1]) = (100, 700);
        let odd = ClockCheck { ticks, timer: vec![400; 10] }.compare();
        assert!(odd.differs && (odd.difference - 0.075).abs() < 1e-9, "{odd:?}");
        assert!(!ClockCheck { ticks: vec![0; 10], timer: vec![4; 10] }.compare().differs);
    }
}
