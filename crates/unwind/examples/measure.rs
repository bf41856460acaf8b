//! What tables cost: `cargo run --release -p lightfoot-unwind --example measure -- FILE...`
//!
//! For each file: functions, rows, CPU time (of the thread, by the scheduler; minimum of several rounds), bytes in the kernel (4 for each
//! row of a page, 8 for each page, 16 for each rule), the same as a cached table, and what the process's memory grew by at its peak.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use lightfoot_unwind::{Options, ReadAt, Table};
use std::fs::File;
use std::os::unix::fs::FileExt;

struct Input(File, u64);

impl ReadAt for Input {
    fn len(&self) -> u64 {
        self.1
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        self.0.read_exact_at(into, offset).ok()
    }
}

fn main() {
    for path in std::env::args().skip(1) {
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) => {
                eprintln!("{path}: {error}");
                continue;
            }
        };
        let size = file.metadata().map_or(0, |metadata| metadata.len());
        let input = Input(file, size);
        let before = peak_kib();
        let (first, built) = timed(|| Table::build(&input, &Options::default()));
        let grown = peak_kib() - before;
        match built {
            Ok(table) => {
                let again = (0..4).map(|_| timed(|| Table::build(&input, &Options::default())).0);
                report(&path, &table, again.fold(first, f64::min), grown);
            }
            Err(error) => println!("{path}: {error}"),
        }
    }
}

/// Runs it, and the CPU time that this thread used for it, in seconds.
fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = cpu_ns();
    let result = work();
    ((cpu_ns() - start) / 1e9, result)
}

/// First number of `schedstat`: ns on the CPU. The scheduler counts when it is called, so it is.
fn cpu_ns() -> f64 {
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(f64::NAN)
}

/// `VmHWM` of the process. It never shrinks: name the smallest file first.
fn peak_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn report(path: &str, table: &Table, seconds: f64, grown_kib: i64) {
    let stats = &table.stats;
    let functions = stats.functions + stats.go_functions;
    let (mut pages, mut page_rows) = (0, 0);
    for page in table.pages() {
        pages += 1;
        page_rows += page.rows().len();
    }
    let bytes = page_rows * 4 + pages * 8 + table.rules.len() * 16;
    println!(
        "{path}: {functions} functions, {} -> {} rows, {} rules, {pages} pages, {:.2} ms, {:.0} ns/function, {:.3} bytes/row",
        stats.rows_before_merge,
        table.rows.len(),
        table.rules.len(),
        seconds * 1e3,
        seconds * 1e9 / functions.max(1) as f64,
        bytes as f64 / table.rows.len().max(1) as f64,
    );
    let encoded = table.encode(b"");
    let decoding =
        (0..5).map(|_| timed(|| Table::decode(&encoded, b"").is_ok()).0).fold(f64::INFINITY, f64::min);
    println!(
        "    cached: {:.2} bytes/row, {:.2} ms to read; peak of memory +{} KiB; {stats:?}",
        encoded.len() as f64 / table.rows.len().max(1) as f64,
        decoding * 1e3,
        grown_kib,
    );
}
