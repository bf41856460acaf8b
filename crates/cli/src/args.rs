//! The command line. Help text states unit, range and default.

use clap::{ArgAction, Args, Parser, Subcommand};
use lightfoot_export::Format;
use lightfoot_sampler::Transfer;
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
    /// Where to write the result; the ending of the name chooses the format. Default: standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// text, html, svg, folded, pprof, speedscope, firefox or json. Default: by the name of the output, else text.
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Leave out kernel frames and kernel threads.
    #[arg(long)]
    pub no_kernel: bool,
    /// How samples leave the kernel: counted (equal stacks are counted there) or ring (one by one).
    #[arg(long, value_name = "WAY", value_parser = transfer, hide_short_help = true)]
    pub transfer: Option<Transfer>,
    /// Size of the buffer between kernel and lightfoot, in bytes: a power of two from 4096 to 1073741824.
    #[arg(long, value_name = "BYTES", default_value = "1048576", value_parser = ring_bytes, hide_short_help = true)]
    pub ring_bytes: u32,
    /// A command to start and profile.
    #[arg(last = true, value_name = "CMD", action = ArgAction::Append)]
    pub argv: Vec<OsString>,
}

#[derive(Args)]
pub struct SystemInfoArguments {
    /// text or json.
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub format: String,
}

/// A length of time: a number with `ms`, `s`, `m` or `h`; without a unit seconds.
fn duration(text: &str) -> Result<Duration, String> {
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
}
