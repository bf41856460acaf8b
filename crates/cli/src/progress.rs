//! The line that tells, on a terminal, how the run goes.

use lightfoot_kernel::os::terminal_columns;
use lightfoot_sampler::Progress;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How often the line changes.
const EVERY: Duration = Duration::from_millis(500);

/// The line on standard error; nothing where that is no terminal.
#[derive(Debug)]
pub struct Line {
    terminal: bool,
    last: Option<Instant>,
}

impl Line {
    pub fn new() -> Line {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Line { terminal: std::io::stderr().is_terminal() && !dumb, last: None }
    }

    /// Shows `progress` if the line is due.
    pub fn update(&mut self, progress: &Progress, duration: Option<Duration>) {
        if !self.terminal || self.last.is_some_and(|last| last.elapsed() < EVERY) {
            return;
        }
        self.last = Some(Instant::now());
        let of = duration.map_or(String::new(), |d| format!(" of {} s", d.as_secs_f64()));
        let line = format!(
            "{:.1} s{of}   {} samples   {} lost   cost {:.2} % of one CPU",
            progress.elapsed.as_secs_f64(),
            progress.recorded,
            progress.lost,
            progress.percent_of_one_cpu
        );
        let stderr = std::io::stderr();
        let columns = terminal_columns(stderr.as_fd()).unwrap_or(80);
        let line: String = line.chars().take(columns.saturating_sub(1)).collect();
        // Nobody is to be told if the terminal has gone away.
        write!(stderr.lock(), "\r{line}\x1b[K").ok();
    }

    /// Shows how far something has come, if the line is due.
    pub fn step(&mut self, what: &str) {
        if self.last.is_none_or(|last| last.elapsed() >= EVERY) {
            self.say(what);
        }
    }

    /// Shows a word about what goes on after sampling.
    pub fn say(&mut self, what: &str) {
        if self.terminal {
            write!(std::io::stderr(), "\r{what}\x1b[K").ok();
            self.last = Some(Instant::now());
        }
    }

    /// Takes the line away.
    pub fn clear(&mut self) {
        if self.last.take().is_some() {
            write!(std::io::stderr(), "\r\x1b[K").ok();
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.clear();
    }
}
