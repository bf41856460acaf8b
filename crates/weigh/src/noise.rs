//! How far the machine can be trusted: what others took of its time while it measured.

use lightfoot_kernel::os;
use serde::Serialize;
use std::fs;

/// Where the figures come from.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Identity {
    /// Release of the kernel, for example `6.12.0`.
    pub kernel: String,
    /// Architecture.
    pub arch: String,
    /// What the processor calls itself; empty where it does not say.
    pub cpu: String,
    /// CPUs online.
    pub cpus: usize,
    /// Whether a hypervisor says so: in a virtual machine single steps and interrupts are dear.
    #[serde(rename = "virtual")]
    pub is_virtual: bool,
}

impl Identity {
    /// Of this machine.
    pub fn here() -> Identity {
        let (kernel, arch) = os::uname();
        let (cpu, is_virtual) = processor(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
        Identity { kernel, arch, cpu, cpus: os::online_cpus().map_or(0, |cpus| cpus.len()), is_virtual }
    }

    /// In one line.
    pub fn line(&self) -> String {
        let cpus = if self.cpus == 1 { "1 CPU".to_string() } else { format!("{} CPUs", self.cpus) };
        let kind = if self.is_virtual { " of a virtual machine" } else { "" };
        let cpu = if self.cpu.is_empty() { String::new() } else { format!(", {}", self.cpu) };
        format!("Linux {} {}, {cpus}{kind}{cpu}", self.kernel, self.arch)
    }
}

/// Name and whether it is virtual, from `/proc/cpuinfo`.
fn processor(cpuinfo: &str) -> (String, bool) {
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim())
        })
    };
    let is_virtual = field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    (field("model name").unwrap_or_default().to_string(), is_virtual)
}

/// CPU time of the whole machine since it started, in ticks. Source: the first line of `/proc/stat`.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Ticks {
    all: u64,
    steal: u64,
}

impl Ticks {
    fn parse(stat: &str) -> Option<Ticks> {
        let mut words = stat.lines().next()?.split_ascii_whitespace();
        (words.next()? == "cpu").then_some(())?;
        // user nice system idle iowait irq softirq steal; guest time is part of user time.
        let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).take(8).collect();
        Some(Ticks { all: ticks.iter().sum(), steal: *ticks.get(7)? })
    }
}

/// Time that this thread ran and that it waited for a CPU, in ns. Source: `/proc/thread-self/schedstat`.
fn ran_and_waited(schedstat: &str) -> Option<(u64, u64)> {
    let mut words = schedstat.split_ascii_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// Watches from its making on; by the thread that measures.
#[derive(Debug)]
pub struct Watch {
    ticks: Option<Ticks>,
    waited: Option<(u64, u64)>,
    load: Option<f64>,
}

/// What others took.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub struct Disturbance {
    /// Share of the machine's time that its hypervisor gave to others, in percent; `None` if the kernel does not say.
    pub steal_percent: Option<f64>,
    /// Share of its time that the measuring thread waited for a CPU although it could have run, in percent; `None` if the kernel does not say.
    pub waited_percent: Option<f64>,
    /// Load average of the last minute when it began.
    pub load_before: Option<f64>,
    /// And when it ended; the measuring itself is about 1 of it.
    pub load_after: Option<f64>,
}

impl Watch {
    /// From now on.
    pub fn start() -> Watch {
        let read = |path: &str| fs::read_to_string(path).ok();
        Watch {
            ticks: read("/proc/stat").and_then(|stat| Ticks::parse(&stat)),
            waited: read("/proc/thread-self/schedstat").and_then(|text| ran_and_waited(&text)),
            load: read("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
        }
    }

    /// What happened since.
    pub fn end(&self) -> Disturbance {
        let now = Watch::start();
        let percent = |part: u64, whole: u64| (whole > 0).then(|| 100.0 * part as f64 / whole as f64);
        Disturbance {
            steal_percent: self.ticks.zip(now.ticks).and_then(|(before, after)| {
                percent(after.steal.saturating_sub(before.steal), after.all.saturating_sub(before.all))
            }),
            waited_percent: self.waited.zip(now.waited).and_then(|(before, after)| {
                let (ran, waited) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
                percent(waited, ran + waited)
            }),
            load_before: self.load,
            load_after: now.load,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_number() {
        let stat = "cpu  100 0 50 800 10 1 2 37 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(Ticks::parse(stat), Some(Ticks { all: 1_000, steal: 37 }));
        for wrong in ["", "cpu", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8"] {
            assert_eq!(Ticks::parse(wrong), None, "{wrong}");
        }
        assert_eq!(ran_and_waited("123 45 6\n"), Some((123, 45)));
        assert_eq!(ran_and_waited("x"), None);
    }

    #[test]
    fn processors_say_their_name_or_not() {
        let x86 = "processor\t: 0\nmodel name\t: A Processor\nflags\t\t: fpu hypervisor lahf_lm\n";
        assert_eq!(processor(x86), ("A Processor".to_string(), true));
        assert_eq!(processor("processor : 0\nFeatures : fp asimd\n"), (String::new(), false));
    }

    #[test]
    fn a_watch_sees_this_machine() {
        let disturbance = Watch::start().end();
        for percent in [disturbance.steal_percent, disturbance.waited_percent].into_iter().flatten() {
            assert!((0.0..=100.0).contains(&percent), "{disturbance:?}");
        }
        assert!(Identity::here().cpus > 0);
    }
}
