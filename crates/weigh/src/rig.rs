//! The machine under the ladder: real probes, real operations, real clocks.

use crate::crew::Crew;
use crate::ladder::{Block, Claim, Rig, TIMER_PERIOD_NS};
use crate::rung::{Operation, Rung, Site};
use lightfoot_kernel::os;
use lightfoot_kernel::probes::{Group, Options, Point, Statistics, support, targets};
use lightfoot_model::{Body, Mechanism};
use lightfoot_sites::{Every, Place};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::error::Error as _;
use std::time::{Duration, Instant};

/// `PERF_TYPE_SOFTWARE` and `PERF_COUNT_SW_CPU_CLOCK`, include/uapi/linux/perf_event.h.
const CPU_CLOCK: (u32, u64) = (1, 0);
/// Room for the events of a visit, and for those of other processes that run into the same tracepoint meanwhile.
const RING_BYTES: u32 = 4 << 20;
/// Keys of sixteen processes in the complex program's map.
const HASH_ENTRIES: u32 = 16 << 10;

/// Least operations while the kernel keeps statistics: programs that run once in 10 us find cold caches, and it takes some runs to see that.
const CLAIM_TIMES: u64 = 1_000;

/// This machine. Programs stay loaded from their first visit on, so that their maps are as full as they get; only attaching is repeated.
#[derive(Debug)]
pub struct Machine {
    start: Instant,
    crew: Crew,
    groups: HashMap<Rung, Group>,
    /// Why the kernel keeps no statistics, if it does not.
    statistics: Result<(), String>,
}

impl Default for Machine {
    fn default() -> Machine {
        let statistics = Statistics::on().map(drop).map_err(|error| why(&error));
        Machine { start: Instant::now(), crew: Crew::default(), groups: HashMap::new(), statistics }
    }
}

impl Machine {
    /// Why the kernel keeps no statistics, if it does not.
    pub fn without_statistics(&self) -> Option<&str> {
        self.statistics.as_ref().err().map(String::as_str)
    }
}

impl Rig for Machine {
    type Probe = Rung;

    fn missing(&mut self, rung: &Rung) -> Option<String> {
        if let Err(error) = support::check(rung.mechanism) {
            // It begins with the mechanism's name, which the row says already.
            let text = why(&error);
            let name = format!("{}: ", rung.mechanism.name());
            return Some(text.strip_prefix(&name).unwrap_or(&text).to_string());
        }
        if place(rung).is_none() {
            return Some(match rung.site {
                Site::Function(instruction) => {
                    format!(
                        "no function of ours begins with this on {}: {}",
                        std::env::consts::ARCH,
                        instruction.name()
                    )
                }
                _ => format!("the function has no known name on {}", std::env::consts::ARCH),
            });
        }
        None
    }

    fn attach(&mut self, rung: &Rung) -> Result<Rung, String> {
        let place = place(rung).ok_or("there is no such place")?;
        let group = match self.groups.entry(*rung) {
            Entry::Occupied(group) => group.into_mut(),
            Entry::Vacant(entry) => entry.insert(load(rung).map_err(|error| why(&error))?),
        };
        // What the last visit left in the ring.
        group.events(|_| {});
        group.attach(&[Point { slot: 0, place }]).map_err(|error| why(&error))?;
        Ok(*rung)
    }

    fn detach(&mut self, probe: Rung) {
        if let Some(group) = self.groups.get_mut(&probe) {
            // A group that does not let go is dropped.
            if group.detach().is_err() {
                self.groups.remove(&probe);
            }
        }
    }

    fn block(&mut self, operation: Operation, threads: u32, times: u64) -> Block {
        self.crew.block(operation, threads, times)
    }

    fn claim(&mut self, probe: &Rung, times: u64) -> Option<Claim> {
        self.statistics.as_ref().ok()?;
        let group = self.groups.get(probe)?;
        let times = times.max(CLAIM_TIMES);
        let on = Statistics::on().ok()?;
        let (time_before_ns, runs_before) = group.statistics().ok()?;
        let block = self.crew.block(probe.site.operation(), 1, times);
        let (time_ns, runs) = group.statistics().ok()?;
        drop(on);
        let (time_ns, runs) = (time_ns - time_before_ns, runs - runs_before);
        let wanted = match probe.site {
            // A timer fires by the clock, not by operations: here at least, and on other CPUs as far as they are not idle.
            Site::Timer => block.ns * times as f64 / TIMER_PERIOD_NS as f64,
            _ => times as f64,
        };
        let ns_per_run = if runs == 0 { 0.0 } else { time_ns as f64 / runs as f64 };
        Some(Claim { ns_per_run, runs: runs as f64 / wanted })
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

/// The program alone, so that the figures are what the names say. User probes are this process's own, but for the filter, whose program is to find
/// that it is another process.
fn load(rung: &Rung) -> lightfoot_kernel::Result<Group> {
    let own = rung.mechanism.is_user() && rung.body != Body::Filter;
    Group::load(&Options {
        pid: own.then(std::process::id),
        ring_bytes: RING_BYTES,
        hash_entries: HASH_ENTRIES,
        bare: true,
        ..Options::new(rung.mechanism, rung.body)
    })
}

/// An error with its causes, in one line.
fn why(error: &lightfoot_kernel::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.downcast_ref().map_or_else(|| error.to_string(), os::plain);
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text.lines().collect::<Vec<_>>().join("; ")
}

/// Where a rung's probe stands on this machine.
fn place(rung: &Rung) -> Option<Place> {
    let tracepoint =
        |category: &str, name: &str| Some(Place::Tracepoint { category: category.into(), name: name.into() });
    match rung.site {
        Site::SysGetppid => {
            let by_type = matches!(rung.mechanism, Mechanism::Fentry | Mechanism::Fexit);
            let function = match std::env::consts::ARCH {
                // Two names of one function: symbols know both, types the one that it was defined with (__SYS_STUB0,
                // arch/x86/include/asm/syscall_wrapper.h).
                "x86_64" if by_type => "__do_sys_getppid",
                "x86_64" => "__x64_sys_getppid",
                "aarch64" => "__arm64_sys_getppid",
                _ => return None,
            };
            Some(Place::Kernel { function: function.into(), offset: 0 })
        }
        Site::SysEnterGetppid => tracepoint("syscalls", "sys_enter_getppid"),
        Site::SysEnter => tracepoint("raw_syscalls", "sys_enter"),
        Site::Function(instruction) => targets::of(instruction).map(|target| target.place.clone()),
        Site::Timer => Some(Place::Perf {
            type_: CPU_CLOCK.0,
            config: CPU_CLOCK.1,
            every: Every::Period(TIMER_PERIOD_NS),
            one_cpu: false,
        }),
    }
}
