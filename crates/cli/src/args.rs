//! The command line. Help text states unit, range and default.

use crate::exit::{Failure, USAGE};
use crate::weigh::LadderArguments;
use crate::weigh_apps::AppArguments;
use crate::weigh_probes::ProbingArguments;
use clap::{ArgAction, Args, Parser, Subcommand};
use lightfoot_cost::{Base, Budget};
use lightfoot_export::Format;
use lightfoot_sampler::{ClockChoice, Transfer};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Highest rate that makes sense: each sample costs an interrupt.
pub const MAX_RATE_HZ: u64 = 10_000;

#[derive(Parser)]
#[command(
    name = "lightfoot",
    version,
    about = "Profiles Linux programs with eBPF and says what the looking cost",
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done but incomplete (samples were lost), 4 not possible here \
                  (a privilege or kernel feature is missing). With a command, its own exit code is passed on."
)]
pub struct Arguments {
    /// Say more: the chain of causes of an error, times of the run.
    #[arg(short, long, global = true)]
    pub verbose: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Show where CPU time goes: flame graph or tables of a process, a command, a cgroup or the whole machine.
    Profile(ProfileArguments),
    /// Say what probes cost: all kinds on this machine, those that you name on what runs, or servers under load with and without them.
    Weigh(WeighArguments),
    /// Say what works on this machine and what does not, each found by trying.
    SystemInfo(SystemInfoArguments),
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  lightfoot profile -p 1234                       ten seconds of a process, as tables\n  \
                  lightfoot profile -o flame.html -- xz -k file   a command, as an interactive page\n  \
                  lightfoot profile -a -d 30s -o all.pb.gz        the whole machine, for pprof\n  \
                  lightfoot profile --cgroup system.slice -f folded"
)]
#[command(group = clap::ArgGroup::new("target").required(true).args(["pids", "all", "cgroup", "argv"]))]
pub struct ProfileArguments {
    /// Processes to profile, with their threads and the children that they create meanwhile.
    #[arg(short, long = "pid", value_name = "PID,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub pids: Vec<u32>,
    /// Profile the whole machine.
    #[arg(short, long)]
    pub all: bool,
    /// Profile what runs below a cgroup (version 2): a path, or a name below the cgroup mount.
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,
    /// How long, for example 500ms, 10s, 2m. Default: 10s; a command is profiled until it ends (if it has not ended after the
    /// given time, it is terminated).
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Samples per second of CPU time, 1 to 10000. The default avoids marching in step with timers of 100 Hz.
    #[arg(short = 'F', long = "frequency", value_name = "HZ", default_value = "99", value_parser = rate)]
    pub frequency: u64,
    /// What makes samples of CPU time fire: timer (an interrupt each), tick (the scheduler's own: no interrupt, and no more samples than
    /// ticks) or auto (the cheaper one that can deliver the rate, measured at the start). Default: timer.
    #[arg(long, value_name = "CLOCK", value_parser = clock)]
    pub clock: Option<ClockChoice>,
    /// Show where threads wait instead of where CPU time goes: blocked time by stack and reason.
    #[arg(long, conflicts_with = "clock")]
    pub off_cpu: bool,
    /// Show both: CPU time and blocked time in one profile (wall-clock time of all threads).
    #[arg(long)]
    pub wall: bool,
    /// With --off-cpu or --wall: who ended a wait, its stack behind that of the thread that waited.
    #[arg(long)]
    pub wakers: bool,
    /// The most that lightfoot may cost in any ten seconds of sampling, interrupts and BPF programs included: 0.5% (of one CPU) or
    /// 0.1%machine (of all CPUs together). To keep it the rate is lowered and other work put off, which the result tells. Default: no limit.
    #[arg(long, value_name = "SHARE", value_parser = budget)]
    pub budget: Option<Budget>,
    /// The most memory that lightfoot and its BPF maps may take together, for example 64M. Default: 32 MB of maps at most, and no limit
    /// for the process.
    #[arg(long, value_name = "BYTES", value_parser = memory)]
    pub mem: Option<u64>,
    /// Where to write the result; the ending of the name chooses the format. Default: standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// text, html, svg, folded, pprof, speedscope, firefox or json. Default: by the name of the output, else text.
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Leave out kernel frames and kernel threads.
    #[arg(long)]
    pub no_kernel: bool,
    /// Do not ask running Java virtual machines for the names of their code (what jcmd PID Compiler.perfmap does).
    #[arg(long)]
    pub no_jvm_attach: bool,
    /// Save stacks that did not reach their root into this folder, to be replayed: at most 100 small files, one for each place and reason.
    /// They hold registers and up to 16 KiB of stack memory each, so they may hold secrets.
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub save_failed: Option<PathBuf>,
    /// Save all stacks, whole ones, too.
    #[arg(long, hide = true, requires = "save_failed")]
    pub save_all: bool,
    /// Walk stacks without bpf_loop, as on kernels before 5.17.
    #[arg(long, hide = true)]
    pub plain_loops: bool,
    /// How samples leave the kernel: counted (equal stacks are counted there) or ring (one by one).
    #[arg(long, value_name = "WAY", value_parser = transfer, hide_short_help = true)]
    pub transfer: Option<Transfer>,
    /// Size of the buffer between kernel and lightfoot, in bytes: a power of two from 4096 to 1073741824.
    /// Default: 1048576, or what --mem leaves.
    #[arg(long, value_name = "BYTES", value_parser = ring_bytes, hide_short_help = true)]
    pub ring_bytes: Option<u32>,
    /// A command to start and profile.
    #[arg(last = true, value_name = "CMD", action = ArgAction::Append)]
    pub argv: Vec<OsString>,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  lightfoot weigh                            what each kind of probe costs on this machine, in two minutes\n  \
                  lightfoot weigh --quick -o prices.svg      roughly, in seconds, as a plot\n  \
                  lightfoot weigh --probe uprobe,tp_btf --program empty,simple --threads 1,2\n  \
                  lightfoot weigh --app tls                  a web server with and without probes"
)]
pub struct WeighArguments {
    /// Probes to attach and weigh while they count, for example uprobe:/bin/x:func. Default: none, and the ladder of all kinds is measured.
    #[arg(value_name = "PROBE")]
    pub probes: Vec<String>,
    #[command(flatten)]
    pub probing: ProbingArguments,
    #[command(flatten)]
    pub ladder: LadderArguments,
    #[command(flatten)]
    pub apps: AppArguments,
    /// Where to write the result; the ending of the name chooses the format. Default: standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// text, json, markdown or svg. Default: by the name of the output, else text.
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Option<lightfoot_weigh::Format>,
}

impl WeighArguments {
    /// The format asked for: by name, by the ending of the output, or text.
    pub fn format(&self) -> Result<lightfoot_weigh::Format, Failure> {
        use lightfoot_weigh::Format;
        match (self.format, &self.output) {
            (Some(format), _) => Ok(format),
            (None, Some(path)) if path.as_os_str() != "-" => Format::from_path(path).ok_or_else(|| {
                let endings = Format::endings();
                let path = path.display();
                Failure::new(
                    USAGE,
                    format!("{path} does not say the format: use -f, or one of the endings {endings}"),
                )
            }),
            (None, _) => Ok(Format::Text),
        }
    }
}

#[derive(Args)]
pub struct SystemInfoArguments {
    /// text or json.
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub format: String,
}

/// A length of time: a number with `ms`, `s`, `m` or `h`; without a unit seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_s = match unit.trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("say it like 500ms, 10s, 2m or 1h".into()),
    };
    let number: f64 = number.parse().map_err(|_| "say it like 500ms, 10s, 2m or 1h".to_string())?;
    let seconds = number * unit_s;
    if !(0.001..=31_536_000.0).contains(&seconds) {
        return Err("it must be from 1ms to a year".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn rate(text: &str) -> Result<u64, String> {
    let limit = lightfoot_kernel::os::max_sample_rate_hz().unwrap_or(MAX_RATE_HZ);
    let highest = limit.min(MAX_RATE_HZ);
    match text.parse::<u64>() {
        Ok(hz) if (1..=highest).contains(&hz) => Ok(hz),
        _ => Err(format!(
            "the rate must be from 1 to {highest} Hz (lightfoot's limit is {MAX_RATE_HZ}, the kernel's is {limit}: sysctl kernel.perf_event_max_sample_rate)"
        )),
    }
}

fn clock(text: &str) -> Result<ClockChoice, String> {
    match text {
        "timer" => Ok(ClockChoice::Timer),
        "tick" => Ok(ClockChoice::Tick),
        "auto" => Ok(ClockChoice::Auto),
        _ => Err("choose timer, tick or auto".into()),
    }
}

fn transfer(text: &str) -> Result<Transfer, String> {
    match text {
        "counted" => Ok(Transfer::Counted),
        "ring" => Ok(Transfer::Ring),
        _ => Err("choose counted or ring".into()),
    }
}

fn ring_bytes(text: &str) -> Result<u32, String> {
    let page = lightfoot_kernel::os::page_bytes() as u32;
    match text.parse::<u32>() {
        Ok(bytes) if bytes.is_power_of_two() && (page..=1 << 30).contains(&bytes) => Ok(bytes),
        _ => Err(format!("it must be a power of two from {page} to {}", 1 << 30)),
    }
}

const BUDGET_HELP: &str = "say it like 0.5% (of one CPU) or 0.1%machine (of all CPUs together)";

/// A share of CPU time: a number with `%` (of one CPU) or `%machine` (of all CPUs together).
pub fn budget(text: &str) -> Result<Budget, String> {
    let Some((number, unit)) = text.split_once('%') else { return Err(BUDGET_HELP.into()) };
    let base = match unit.trim() {
        "" => Base::OneCpu,
        "machine" => Base::Machine,
        _ => return Err(BUDGET_HELP.into()),
    };
    let number = number.trim();
    if !number.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(BUDGET_HELP.into());
    }
    let percent: f64 = number.parse().map_err(|_| BUDGET_HELP.to_string())?;
    Budget::new(percent, base)
        .ok_or_else(|| "it must be above 0% and at most 100%; 0.5% is a good start".into())
}

const MEMORY_HELP: &str = "say it like 64M; K, M and G are powers of 1024";

/// An amount of memory in bytes: a whole number with `K`, `M` or `G`.
fn memory(text: &str) -> Result<u64, String> {
    let unit = text.char_indices().next_back().map_or(0, |(at, _)| at);
    let (number, unit) = text.split_at(unit);
    let factor: u64 = match unit {
        "K" | "k" => 1 << 10,
        "M" | "m" => 1 << 20,
        "G" | "g" => 1 << 30,
        _ => return Err(MEMORY_HELP.into()),
    };
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(MEMORY_HELP.into());
    }
    let number: u64 = number.parse().map_err(|_| MEMORY_HELP.to_string())?;
    match number.checked_mul(factor) {
        Some(0) => Err(MEMORY_HELP.into()),
        Some(bytes) => Ok(bytes),
        None => Err("that is more than any machine has".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("3"), Ok(Duration::from_secs(3)));
        for wrong in ["", "s", "0s", "-1s", "1d", "1e9s", "9999999h", "nan", "inf"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn absurd_rates_name_the_limit_and_the_sysctl() {
        for wrong in ["0", "-1", "10001", "18446744073709551616", "fast"] {
            let said = rate(wrong).unwrap_err();
            assert!(said.contains("perf_event_max_sample_rate"), "{wrong}: {said}");
        }
        assert_eq!(rate("99"), Ok(99));
    }

    #[test]
    fn rings_are_powers_of_two() {
        assert_eq!(ring_bytes("65536"), Ok(65536));
        for wrong in ["0", "1000", "65537", "4294967296", "x"] {
            assert!(ring_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn budgets_are_percentages() {
        assert_eq!(budget("0.5%").map(|b| b.ns_per_s(8)), Ok(5_000_000));
        assert_eq!(budget("2 %").map(|b| b.ns_per_s(8)), Ok(20_000_000));
        assert_eq!(budget("100%").map(|b| b.ns_per_s(8)), Ok(1_000_000_000));
        assert_eq!(budget("0.1%machine").map(|b| b.ns_per_s(8)), Ok(8_000_000));
        for wrong in
            ["", "%", "0.5", "5ms", "half%", "0.5%%", "0.5%cpu", "-1%", "+1%", "inf%", "nan%", "1e3x%"]
        {
            assert_eq!(budget(wrong), Err(BUDGET_HELP.into()), "{wrong}");
        }
        for wrong in ["0%", "0.0%", "100.1%", "1e9%"] {
            assert!(budget(wrong).is_err_and(|said| said.contains("0.5%")), "{wrong}");
        }
    }

    #[test]
    fn memory_has_a_unit() {
        assert_eq!(memory("64M"), Ok(64 << 20));
        assert_eq!(memory("65536k"), Ok(64 << 20));
        assert_eq!(memory("1G"), Ok(1 << 30));
        for wrong in ["", "M", "64", "0M", "-1M", "+1M", "1.5G", "64MB", "M64", "6\u{e9}", "64T"] {
            assert_eq!(memory(wrong), Err(MEMORY_HELP.into()), "{wrong}");
        }
        assert!(memory("18446744073709551615G").is_err());
    }
}
