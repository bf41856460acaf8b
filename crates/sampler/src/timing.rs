//! What makes samples fire: the timer, the scheduler's tick, the end of a wait.

use crate::error::{Error, Result};
use crate::request::{ClockChoice, Kinds};
use lightfoot_cost::governor::Controls;
use lightfoot_kernel::abi::Live;
use lightfoot_kernel::calibrate::Calibration;
use lightfoot_kernel::offcpu::OffCpu;
use lightfoot_kernel::os;
use lightfoot_kernel::perf::{Attr, PerfEvent, Scope, Source};
use lightfoot_kernel::sampler::Sampler;
use lightfoot_kernel::tick::{Comparison, Tick};
use lightfoot_model::Clock;
use std::time::Duration;

/// In a run at the tick, both clocks run side by side for so long ...
const COMPARED: Duration = Duration::from_secs(2);
/// ... each so often, the first time after so long.
const COMPARED_EACH: Duration = Duration::from_secs(60);
/// Rate of the timer meanwhile, in Hz: no multiple of a tick's.
const COMPARED_RATE_HZ: u64 = 199;
/// Off-CPU samples per second that are not exceeded for long: each stands for more time then.
const WAITS_PER_S_MAX: u64 = 2_000;

/// The clocks of one run.
#[derive(Debug)]
pub(crate) struct Timing {
    /// What the timer counts.
    pub source: Source,
    /// The tick, if it may be used.
    pub tick: Option<Tick>,
    /// Off-CPU time, if it is wanted.
    pub off_cpu: Option<OffCpu>,
    choice: ClockChoice,
    kinds: Kinds,
    rate_hz: u64,
    /// The tick makes the samples.
    ticking: bool,
    notes: Vec<String>,
    compared: Duration,
    comparing: bool,
    block_ns_asked: u64,
    looked: (Duration, u64),
    /// A budget decides what a sample stands for.
    governed: bool,
    /// Period of the timers now, in ns.
    timer_ns: u64,
}

impl Timing {
    /// Finds out what there is.
    ///
    /// # Errors
    /// [`Error::NotPossible`] if what was asked for by name is not possible here.
    pub fn find(choice: ClockChoice, kinds: Kinds, rate_hz: u64, cgroup: u64) -> Result<Timing> {
        let mut notes = Vec::new();
        let tick = match choice {
            _ if kinds == Kinds::OffCpu => None,
            ClockChoice::Timer => None,
            ClockChoice::Tick => Some(Tick::find().map_err(Error::from_set_up)?),
            ClockChoice::Auto => match Tick::find() {
                Ok(tick) if rate_hz > tick.rate_hz_max() => {
                    notes.push(format!(
                        "clock: timer, because {rate_hz} Hz was asked for and the scheduler's tick comes {} times a second",
                        tick.rate_hz_max()
                    ));
                    None
                }
                Ok(tick) => Some(tick),
                Err(error) => {
                    notes.push(format!("clock: timer ({error})"));
                    None
                }
            },
        };
        let off_cpu = match kinds {
            Kinds::OnCpu => None,
            Kinds::OffCpu | Kinds::Wall => Some(OffCpu::find(cgroup).map_err(Error::from_set_up)?),
        };
        let block_ns_asked = 1_000_000_000 / rate_hz;
        Ok(Timing {
            source: best_source(rate_hz),
            tick,
            off_cpu,
            choice,
            kinds,
            rate_hz,
            ticking: false,
            notes,
            compared: Duration::ZERO,
            comparing: false,
            block_ns_asked,
            looked: (Duration::ZERO, 0),
            governed: false,
            timer_ns: 1_000_000_000 / rate_hz,
        })
    }

    /// What made the samples fire.
    pub fn clock(&self) -> Clock {
        match self.source {
            _ if self.ticking => Clock::Tick,
            Source::CpuClock => Clock::CpuClock,
            Source::Cycles => Clock::Cycles,
        }
    }

    /// What one sample of CPU time stands for, in ns.
    pub fn period_ns(&self) -> u64 {
        match self.tick {
            Some(tick) if self.ticking => tick.period_ns.max(1_000_000_000 / self.rate_hz),
            _ => 1_000_000_000 / self.rate_hz,
        }
    }

    /// Whether the scheduler's tick makes the samples of CPU time.
    pub fn is_ticking(&self) -> bool {
        self.ticking
    }

    /// Samples of CPU time per second and CPU, as many as the clock can deliver of those that were asked for; 0 if only waits are wanted.
    pub fn rate_hz(&self) -> u64 {
        match self.tick {
            _ if self.kinds == Kinds::OffCpu => 0,
            Some(tick) if self.ticking => self.rate_hz.min(tick.rate_hz_max()),
            _ => self.rate_hz,
        }
    }

    /// Does what a budget asks for.
    ///
    /// # Errors
    /// For every update of a map, and what could not be attached.
    pub fn obey(&mut self, controls: &Controls, sampler: &mut Sampler, live: &mut Live) -> Result<()> {
        let before = (*live, self.timer_ns);
        self.governed = true;
        live.user_frames_max = controls.max_user_frames;
        live.interpreters = controls.interpreters.into();
        if self.off_cpu.is_some() {
            live.block_ns = controls.off_cpu_interval_ns;
            live.waits_max = controls.off_cpu_samples_max;
            live.step += 1;
            sampler.watch_switches(controls.switch_attached)?;
        }
        match self.tick {
            Some(tick) if self.ticking => live.tick_keep = share(tick.period_ns, controls.period_ns),
            _ if self.kinds != Kinds::OffCpu => {
                live.period_ns = controls.period_ns;
                self.timer_ns = controls.period_ns;
            }
            _ => {}
        }
        if self.timer_ns != before.1 {
            sampler.set_period(self.timer_ns)?;
        }
        if *live != before.0 {
            sampler.set_live(live)?;
        }
        Ok(())
    }

    /// Remarks for people.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Attaches to the clock that is asked for, or the cheaper one, and completes `live`.
    ///
    /// # Errors
    /// What could not be attached.
    pub fn attach(&mut self, sampler: &mut Sampler, live: &mut Live) -> Result<()> {
        live.block_ns = self.block_ns_asked;
        live.period_ns = 1_000_000_000 / self.rate_hz;
        if self.kinds == Kinds::OffCpu {
            return Ok(sampler.set_live(live)?);
        }
        if let Some(tick) = self.tick
            && self.prefers_tick(sampler, &tick)?
        {
            self.ticking = true;
            live.period_ns = tick.period_ns;
            live.tick_keep = tick.keep(self.rate_hz);
            if self.rate_hz > tick.rate_hz_max() {
                self.notes.push(format!(
                    "the scheduler's tick comes {} times a second: no more samples than that",
                    tick.rate_hz_max()
                ));
            }
            return Ok(sampler.set_live(live)?);
        }
        sampler.set_live(live)?;
        for cpu in os::online_cpus()? {
            sampler.attach_cpu(cpu, self.source, self.rate_hz)?;
        }
        Ok(())
    }

    /// Whether the tick is to be used; measured where that is left open.
    fn prefers_tick(&mut self, sampler: &mut Sampler, tick: &Tick) -> Result<bool> {
        if self.choice == ClockChoice::Tick {
            return Ok(true);
        }
        let at_tick = sampler.tick_price_ns(tick)?;
        let mut calibration = Calibration::new(sampler.empty_program()?)?;
        calibration.measure()?;
        let by_timer = calibration.interrupt_ns();
        let us = |ns: u64| format!("{:.1} us", ns as f64 / 1e3);
        let (Some(at_tick), Some(by_timer)) = (at_tick, by_timer) else {
            self.notes.push("clock: timer, because no tick came while it was waited for".into());
            return Ok(false);
        };
        let prefers = at_tick < by_timer;
        self.notes.push(format!(
            "clock: {}; a sample costs {} at the scheduler's tick and {} by a timer interrupt, its stack not included",
            if prefers { "tick" } else { "timer" },
            us(at_tick),
            us(by_timer),
        ));
        Ok(prefers)
    }

    /// Starts what must start with the first sample.
    ///
    /// # Errors
    /// If the tick cannot be attached to.
    pub fn start(&self, sampler: &mut Sampler) -> Result<()> {
        if self.ticking { Ok(sampler.attach_tick()?) } else { Ok(()) }
    }

    /// Looks after the clocks while the run goes on: the comparison of tick and timer, and how much time an off-CPU sample stands for.
    ///
    /// # Errors
    /// For every update of a map.
    pub fn tend(&mut self, sampler: &mut Sampler, live: &mut Live, elapsed: Duration) -> Result<()> {
        if self.ticking && self.choice != ClockChoice::Timer {
            let since = elapsed.saturating_sub(self.compared);
            if self.comparing && since >= COMPARED {
                sampler.compare_clocks(&[], 0)?;
                self.comparing = false;
            } else if !self.comparing && since >= COMPARED_EACH {
                // Without a timer there is nothing to compare with; the run goes on.
                self.comparing = os::online_cpus()
                    .and_then(|cpus| sampler.compare_clocks(&cpus, COMPARED_RATE_HZ))
                    .is_ok();
                self.compared = elapsed;
            }
        }
        if self.off_cpu.is_some() && !self.governed && (elapsed - self.looked.0) >= Duration::from_secs(1) {
            let taken = sampler.counters().fired.saturating_sub(sampler.event_counters().fired);
            let per_s = taken.saturating_sub(self.looked.1) as f64 / (elapsed - self.looked.0).as_secs_f64();
            self.looked = (elapsed, taken);
            let block_ns = next_block_ns(live.block_ns, self.block_ns_asked, per_s);
            if block_ns != live.block_ns {
                live.block_ns = block_ns;
                sampler.set_live(live)?;
            }
        }
        Ok(())
    }

    /// What the comparison of tick and timer says, if there was one.
    pub fn comparison(&self, sampler: &Sampler) -> Option<String> {
        if !self.ticking {
            return None;
        }
        sampler
            .clock_check()
            .ok()
            .map(|check| check.compare())
            .filter(|c| c.ticks > 0 && c.timer > 0)
            .map(sentence)
    }
}

fn sentence(c: Comparison) -> String {
    let points = |share: f64| format!("{:.2} points", share * 100.0);
    let found = format!(
        "{} hits of the timer beside {} ticks: the share of no place differs by more than {} (chance: {})",
        c.timer,
        c.ticks,
        points(c.difference),
        points(c.by_chance)
    );
    if c.differs {
        format!(
            "something runs in step with the scheduler's tick: its share is wrong; use --clock timer ({found})"
        )
    } else {
        found
    }
}

/// [`Live::tick_keep`] for one of `period_ns` / `tick_ns` ticks.
fn share(tick_ns: u64, period_ns: u64) -> u32 {
    match (u128::from(tick_ns) << 32) / u128::from(period_ns.max(1)) {
        all if all > u128::from(u32::MAX) => 0,
        share => (share as u32).max(1),
    }
}

/// Twice as much if there are too many samples; back, step by step, if there are few.
fn next_block_ns(now: u64, asked: u64, per_s: f64) -> u64 {
    if per_s > WAITS_PER_S_MAX as f64 {
        now.saturating_mul(2).min(60_000_000_000)
    } else if per_s < WAITS_PER_S_MAX as f64 / 4.0 {
        (now / 2).max(asked)
    } else {
        now
    }
}

/// The cycle counter where there is one: it also fires where interrupts are masked.
fn best_source(rate_hz: u64) -> Source {
    let attr = Attr::sampling(Source::Cycles, rate_hz);
    match PerfEvent::open(attr, Scope::Caller) {
        Ok(_) => Source::Cycles,
        Err(_) => Source::CpuClock,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_waits_stand_for_more_time_each() {
        assert_eq!(next_block_ns(10, 10, 2_500.0), 20);
        assert_eq!(next_block_ns(20, 10, 1_500.0), 20);
        assert_eq!(next_block_ns(40, 10, 100.0), 20);
        assert_eq!(next_block_ns(10, 10, 100.0), 10, "never less than asked");
    }

    #[test]
    fn the_share_of_ticks_follows_the_period() {
        assert_eq!(share(4_000_000, 4_000_000), 0, "all");
        assert_eq!(share(4_000_000, 3_000_000), 0, "there are no more");
        assert_eq!(share(4_000_000, 8_000_000), 1 << 31);
        assert_eq!(share(1, u64::MAX), 1, "0 would be all");
    }

    #[test]
    fn a_difference_is_said_first() {
        let c = Comparison { ticks: 500, timer: 400, difference: 0.31, by_chance: 0.06, differs: true };
        assert!(sentence(c).starts_with("something runs in step"), "{}", sentence(c));
        assert!(sentence(Comparison { differs: false, ..c }).contains("31.00 points"));
    }
}
