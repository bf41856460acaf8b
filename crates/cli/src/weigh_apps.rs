//! `lightfoot weigh --app`: real servers under load, with and without probes.

use crate::args::WeighArguments;
use crate::exit::{DONE, FAILED, Failure, INCOMPLETE, NOT_POSSIBLE, USAGE};
use crate::output::Output;
use crate::progress::Line;
use crate::signals::Ending;
use crate::terminal::text_options;
use crate::weigh::privileged;
use clap::{Args, ValueEnum};
use lightfoot_kernel::Kind;
use lightfoot_weigh::Format;
use lightfoot_weigh::apps::{self, Error, Progress, Settings};
use std::io::stdout;
use std::time::Duration;

/// Bytes of the largest response: the server keeps each in a file.
const SIZE_MAX: u64 = 64 << 20;
/// Sizes that are measured in one run.
const SIZES_MAX: usize = 16;
/// Shortest and longest `--time`.
const TIMES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3_600));
/// Shortest and longest `--block`: shorter ones see the server's own counter take its turn.
const BLOCKS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// Which experiment.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum App {
    /// nginx with TLS under wrk, its calls of OpenSSL watched (lengths and times, never content).
    Tls,
    /// nginx under wrk while system calls are counted.
    Syscount,
}

/// Options that go with servers.
#[derive(Args)]
pub struct AppArguments {
    /// Weigh a real server, without probes and with them: needs the programs nginx, wrk and openssl.
    #[arg(long, value_name = "APP", conflicts_with = "probes")]
    pub app: Option<App>,
    /// With --app: sizes of the responses in bytes, or with K or M. Default: 1K,2K,4K,16K,128K,256K for tls, 1K for syscount.
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = size, requires = "app")]
    pub sizes: Vec<u64>,
    /// With --app: connections that the load keeps open, 1 to 1000.
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=1000), requires = "app")]
    pub connections: u32,
    /// With --app: length of one block, 100ms to 1m. Default: 600ms.
    #[arg(long, value_name = "TIME", value_parser = crate::args::duration, requires = "app", hide_short_help = true)]
    pub block: Option<Duration>,
    /// With --app tls: also the first bytes with multi links and with sessions, for comparison.
    #[arg(long, requires = "app", hide_short_help = true)]
    pub every_way: bool,
}

/// A number of bytes, with `K` or `M`.
fn size(text: &str) -> Result<u64, String> {
    let help = || format!("say it like 1024, 16K or 1M, at most {}M", SIZE_MAX >> 20);
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        _ => return Err(help()),
    };
    let number: u64 = number.parse().map_err(|_| help())?;
    number.checked_mul(1 << shift).filter(|bytes| (1..=SIZE_MAX).contains(bytes)).ok_or_else(help)
}

/// Runs the experiment and delivers. Returns the exit code.
pub fn run(arguments: &WeighArguments, _verbose: bool) -> Result<u8, Failure> {
    let app = match arguments.apps.app {
        Some(App::Tls) => apps::App::Tls,
        Some(App::Syscount) | None => apps::App::Syscount,
    };
    let settings = settings(arguments, app)?;
    let format = arguments.format()?;
    let output = Output::open(arguments.output.as_deref())?;
    privileged()?;
    let ending = Ending::listen()?;
    let mut line = Line::new();
    let result =
        apps::run(&settings, &|| ending.asked(), &mut |progress| line.step(&words(progress, &settings)));
    line.clear();
    let report = result.map_err(failure)?;
    let width = text_options(&stdout(), 0).width;
    let place = if output.is_stdout() { None } else { arguments.output.as_deref() };
    output.deliver(|out| report.write(format, out, width))?;
    if let Some(path) = place {
        say!("wrote {}", path.display());
    }
    if let Some(why) = report.noise.why.as_ref().filter(|_| format != Format::Text) {
        say!("lightfoot: this machine is too noisy for these figures: {why}");
    }
    if report.lost() > 0 {
        say!("lightfoot: {} events were lost", report.lost());
        return Ok(INCOMPLETE);
    }
    if ending.asked() {
        say!("lightfoot: ended early: figures rest on what was measured until then");
        return Ok(INCOMPLETE);
    }
    Ok(DONE)
}

fn settings(arguments: &WeighArguments, app: apps::App) -> Result<Settings, Failure> {
    let options = &arguments.apps;
    let mut settings = if arguments.ladder.quick { Settings::quick(app) } else { Settings::new(app) };
    let usage = |what: &str| Err(Failure::new(USAGE, what));
    if let Some(time) = arguments.ladder.time {
        if !(TIMES.0..=TIMES.1).contains(&time) {
            return usage("--time must be from 1s to 1h");
        }
        settings.time = time;
    }
    if let Some(block) = options.block {
        if !(BLOCKS.0..=BLOCKS.1).contains(&block) {
            return usage("--block must be from 100ms to 1m");
        }
        settings.block = block;
    }
    if !options.sizes.is_empty() {
        settings.sizes.clone_from(&options.sizes);
        let mut seen = std::collections::BTreeSet::new();
        settings.sizes.retain(|size| seen.insert(*size));
    }
    if settings.sizes.len() > SIZES_MAX {
        return usage("--sizes: at most 16 sizes");
    }
    settings.connections = options.connections;
    settings.every_way = options.every_way;
    settings.seed = u64::from(std::process::id());
    Ok(settings)
}

fn words(progress: Progress, settings: &Settings) -> String {
    let size = settings.sizes.get(progress.cases_done).copied().unwrap_or_default();
    format!(
        "size {} of {} ({size} bytes), {} rounds done",
        progress.cases_done + 1,
        progress.cases,
        progress.rounds
    )
}

fn failure(error: Error) -> Failure {
    let code = match &error {
        Error::NotPossible(_) => NOT_POSSIBLE,
        Error::Kernel(error) if matches!(error.kind(), Kind::Privilege | Kind::Unsupported) => NOT_POSSIBLE,
        Error::Kernel(_) | Error::Failed(_) | Error::Interrupted => FAILED,
    };
    Failure::because(code, error.to_string(), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(
            ["1", "1000", "16K", "2m", "64M"].map(size),
            [1, 1000, 16 << 10, 2 << 20, 64 << 20].map(Ok)
        );
        for wrong in ["", "0", "K", "-1", "1G", "65M", "1.5K", "18446744073709551615K", "x"] {
            assert!(size(wrong).is_err_and(|said| said.contains("16K")), "{wrong}");
        }
    }
}
