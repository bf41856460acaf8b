//! Time, size and memory of writing one format of a large profile with known shape, as one line of JSON.
//!
//! `cargo run --release -p lightfoot-export --example measure -- FORMAT STACKS [FILE]`; without `FILE` the bytes are counted and
//! dropped. Each run is one process, so that the peak of its memory is this format's.
#![allow(clippy::print_stdout, reason = "its output is its result")]

#[path = "../tests/common/mod.rs"]
mod common;

use lightfoot_export::{Format, TextOptions};
use std::io::{self, Write};

struct Counted(u64, Option<std::fs::File>);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        match &mut self.1 {
            Some(file) => file.write(bytes),
            None => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A field of `/proc/self/status`, in KiB.
fn status_kib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// CPU time of the main thread, in ns.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let format: Format = words.next().ok_or("which format?")?.parse()?;
    let stacks: u64 = words.next().ok_or("how many stacks?")?.parse()?;
    let file = words.next().map(std::fs::File::create).transpose()?;
    let profile = common::large(stacks);
    // Forget the peak of building the profile (proc_pid_clear_refs(5), value 5).
    std::fs::write("/proc/self/clear_refs", "5")?;
    let before_kib = status_kib("VmHWM:");
    let mut out = Counted(0, file);
    let start_ns = cpu_ns();
    lightfoot_export::write(&profile, format, &mut out, &TextOptions::default())?;
    let cpu_ms = (cpu_ns() - start_ns) as f64 / 1e6;
    println!(
        "{{\"format\":\"{format}\",\"stacks\":{stacks},\"rows\":{},\"cpu_ms\":{cpu_ms:.1},\"bytes\":{},\"profile_rss_kib\":{before_kib},\"extra_rss_kib\":{}}}",
        profile.stacks.len(),
        out.0,
        status_kib("VmHWM:").saturating_sub(before_kib),
    );
    Ok(())
}
