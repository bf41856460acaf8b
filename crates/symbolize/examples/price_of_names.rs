//! The price of names: `price_of_names FILE[,FILE...] [COUNT] [no-debug-info | kernel | LIMIT_BYTES]` names COUNT addresses spread
//! over the executable part of each FILE and prints how many got a name, CPU time, and peak memory (`VmHWM`) of this process.
#![allow(clippy::print_stdout)]

use lightfoot_symbolize::{Named, ObjectSource, Options, kernel, object};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

fn status(key: &str) -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(key)).unwrap_or_default();
    line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
}

/// CPU time of this process in ms, user and system. Source: `se.sum_exec_runtime` through `/proc/self/schedstat`.
fn cpu_ms() -> f64 {
    // The kernel brings the figure up to date when the thread gives way.
    std::thread::yield_now();
    let schedstat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    schedstat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e6
}

/// File offset and length of the largest executable segment of a 64-bit little-endian ELF file.
fn code(file: &File) -> (u64, u64) {
    let number = |at: u64, bytes: usize| {
        let mut field = [0; 8];
        file.read_exact_at(&mut field[..bytes], at).expect("cannot read");
        u64::from_le_bytes(field)
    };
    let header = number(32, 8);
    (0..number(56, 2))
        .map(|i| header + i * 56)
        .filter(|&at| number(at, 4) == 1 && number(at + 4, 4) & 1 == 1)
        .map(|at| (number(at + 8, 8), number(at + 32, 8)))
        .max_by_key(|(_, size)| *size)
        .expect("no code")
}

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or_else(|| "/proc/self/exe".into());
    let count: u64 = args.next().and_then(|count| count.parse().ok()).unwrap_or(200);
    let mode = args.next().unwrap_or_default();
    let before = (cpu_ms(), status("VmHWM"));
    let (named, note) = if mode == "kernel" {
        let kallsyms = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let text: Vec<u64> = kallsyms
            .lines()
            .filter(|line| line.contains(" T "))
            .filter_map(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok())
            .collect();
        let step = (text.len() / count as usize).max(1);
        let addresses: Vec<u64> = text.iter().step_by(step).map(|address| address + 1).collect();
        drop((kallsyms, text));
        let start = cpu_ms();
        let named = kernel(&addresses);
        println!("kernel alone {:.1} ms", cpu_ms() - start);
        (named, None)
    } else {
        let (mut named, mut note) = (vec![], None);
        for path in path.split(',') {
            let file = File::open(path).expect("cannot open");
            let (start, size) = code(&file);
            let offsets: Vec<u64> = (0..count).map(|i| start + i * size / count).collect();
            let mut options = Options { debug_info: mode != "no-debug-info", ..Options::default() };
            if let Ok(limit) = mode.parse() {
                options.debug_info_limit_bytes = limit;
            }
            let source = ObjectSource { file: &file, display_path: Path::new(path) };
            let batch = object(&source, &offsets, &options);
            named.extend(batch.named);
            note = note.or(batch.note);
        }
        (named, note)
    };
    let known: Vec<_> = named
        .iter()
        .filter_map(|named| match named {
            Named::Known { frames } => Some(frames),
            Named::Unknown { .. } => None,
        })
        .collect();
    println!(
        "{path}: {} of {} named, {} with lines, {} inlined; {:.1} ms CPU; VmHWM {} before, {} after; {:?}",
        known.len(),
        named.len(),
        known.iter().filter(|frames| frames[0].line > 0).count(),
        known.iter().map(|frames| frames.len() - 1).sum::<usize>(),
        cpu_ms() - before.0,
        before.1,
        status("VmHWM"),
        note,
    );
    if std::env::var_os("SHOW").is_some() {
        for named in &named {
            println!("{named:?}");
        }
    }
}
