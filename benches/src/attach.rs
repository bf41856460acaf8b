//! (m) 1,000 probes of each kind: how long until they are attached, and until they are gone.
//!
//! Wall time, since that is what people wait for; the least of several rounds, since the kernel waits for other work to pass (RCU). User probes
//! go into a private copy of a library and into a program of ours, and only into processes started here.

use crate::Length;
use crate::table::{Table, within};
use anyhow::{Context, Result, bail};
use lightfoot_kernel::probes::{Group, Options, Point, support, tracefs::Tracefs};
use lightfoot_model::{Body, Mechanism};
use lightfoot_sites::elf::Elf;
use lightfoot_sites::{Every, Place, usdt};
use lightfoot_tests::{Workload, program};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const PROBES: usize = 1000;
const REACH_MS: f64 = 100.0;
/// Single perf events: the kernel takes up to 100 ms for each, so fewer of them.
const EVENTS: usize = 10;

/// One row: what is attached where.
struct Row {
    what: &'static str,
    mechanism: Mechanism,
    pid: Option<u32>,
    places: Vec<Place>,
}

/// Prints one row per kind.
pub fn run(length: Length) -> Result<()> {
    let rounds = length.rounds(9);
    let title = format!("attach: ms of wall time, the least and the median of {rounds} rounds");
    // `stop`: until no program runs any more, of `detach`: until the kernel has taken everything back.
    let columns =
        ["kind", "places", "probes", "load", "attach", "stop", "detach", "median attach", "median detach"];
    let mut table = Table::new(&title, &columns);
    let folder = tempfile::tempdir()?;
    let library = private_library(folder.path())?;
    let mut preloaded = Command::new("sleep");
    preloaded.env("LD_PRELOAD", &library).arg("600");
    let user = Workload::spawn(&mut preloaded);
    let mut many = Workload::start("manyusdt", "--seconds 600");
    many.next_line();
    for row in rows(&library, user.pid(), many.pid())? {
        let cells = match support::check(row.mechanism) {
            Ok(()) => measure(&row, rounds)?,
            Err(why) => vec![why.to_string()],
        };
        let name = vec![row.mechanism.name().to_string(), row.what.to_string()];
        table.row(name.into_iter().chain(cells).chain(std::iter::repeat(String::new())).take(9).collect());
    }
    table.print();
    Ok(())
}

fn rows(library: &Path, user: u32, many: u32) -> Result<Vec<Row>> {
    use Mechanism::*;
    let functions = functions(library)?;
    let notes = notes(&program("manyusdt"))?;
    let mut rows = Vec::new();
    for mechanism in [UprobeMulti, UretprobeMulti, UprobeSession] {
        let (what, places) = ("functions of a library", functions.clone());
        rows.push(Row { what, mechanism, pid: Some(user), places });
    }
    let what = "USDT probes with semaphores";
    rows.push(Row { what, mechanism: UprobeMulti, pid: Some(many), places: notes });
    for mechanism in [KprobeMulti, KretprobeMulti, KprobeSession, Fentry, Fexit] {
        rows.push(Row { what: "kernel functions", mechanism, pid: None, places: kernel_functions() });
    }
    let calls = (0..500).flat_map(|number| [false, true].map(|exit| Place::Syscall { number, exit }));
    let what = "system calls, entries and exits";
    rows.push(Row { what, mechanism: RawTracepoint, pid: None, places: calls.collect() });
    for mechanism in [RawTracepoint, TpBtf] {
        rows.push(Row {
            what: "tracepoints, a program each",
            mechanism,
            pid: None,
            places: tracepoints(mechanism)?,
        });
    }
    let perf: Vec<Place> = tracepoints(TpBtf)?.into_iter().take(EVENTS).collect();
    rows.push(Row { what: "tracepoints", mechanism: Tracepoint, pid: None, places: perf });
    for mechanism in [Uprobe, Uretprobe] {
        let places = functions.iter().take(EVENTS).cloned().collect();
        rows.push(Row { what: "functions of a library", mechanism, pid: Some(user), places });
    }
    for mechanism in [Kprobe, Kretprobe] {
        let places = kernel_functions().into_iter().take(EVENTS).collect();
        rows.push(Row { what: "kernel functions", mechanism, pid: None, places });
    }
    let timer = Place::Perf { type_: 1, config: 0, every: Every::Hertz(1), one_cpu: false };
    rows.push(Row {
        what: "timers, on each CPU",
        mechanism: PerfEvent,
        pid: None,
        places: vec![timer; PROBES],
    });
    Ok(rows)
}

fn measure(row: &Row, rounds: usize) -> Result<Vec<String>> {
    let probes = row.places.len();
    let points: Vec<Point> =
        (0..).zip(&row.places).map(|(slot, place)| Point { slot, place: place.clone() }).collect();
    let options = Options { pid: row.pid, slots: probes as u32, ..Options::new(row.mechanism, Body::Empty) };
    let (mut load, mut attach, mut stop, mut detach) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let timed = |times: &mut Vec<f64>, start: Instant| times.push(start.elapsed().as_secs_f64() * 1e3);
        let start = Instant::now();
        let mut group = Group::load(&options)?;
        timed(&mut load, start);
        let start = Instant::now();
        if let Err(error) = group.attach(&points) {
            let why = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            return Ok(vec![probes.to_string(), format!("{error}{why}")]);
        }
        timed(&mut attach, start);
        let start = Instant::now();
        group.stop();
        timed(&mut stop, start);
        group.detach()?;
        timed(&mut detach, start);
    }
    let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    let reached = |ms: f64| within(format!("{ms:.1}"), ms <= REACH_MS);
    let median = |times: &[f64]| format!("{:.1}", crate::table::median(times));
    Ok(vec![
        probes.to_string(),
        format!("{:.1}", least(&load)),
        reached(least(&attach)),
        reached(least(&stop)),
        reached(least(&detach)),
        median(&attach),
        median(&detach),
    ])
}

/// A copy with an inode of its own: nobody else runs it.
fn private_library(folder: &Path) -> Result<PathBuf> {
    let original = ["libcrypto.so.3", "libstdc++.so.6", "libruby-3.1.so.3.1"]
        .iter()
        .flat_map(|name| {
            ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"]
                .map(|at| Path::new(at).join(name))
        })
        .find(|path| path.exists());
    let original = original.context("no library with 1,000 functions found")?;
    let copy = folder.join("library.so");
    std::fs::copy(&original, &copy)?;
    Ok(copy)
}

fn functions(library: &Path) -> Result<Vec<Place>> {
    let data = std::fs::read(library)?;
    let elf = Elf::parse(&data.as_slice(), None).map_err(anyhow::Error::msg)?;
    let mut offsets: Vec<u64> =
        elf.functions().iter().filter_map(|function| elf.offset_of(function.address)).collect();
    offsets.dedup();
    if offsets.len() < PROBES {
        bail!("{}: {} functions", library.display(), offsets.len());
    }
    let place = |offset| Place::User { file: library.into(), offset, semaphore: None };
    Ok(offsets.into_iter().take(PROBES).map(place).collect())
}

fn notes(file: &Path) -> Result<Vec<Place>> {
    let data = std::fs::read(file)?;
    let elf = Elf::parse(&data.as_slice(), None).map_err(anyhow::Error::msg)?;
    let place = |note: usdt::Note| {
        let semaphore = note.semaphore.and_then(|address| elf.data_offset_of(address));
        Some(Place::User { file: file.into(), offset: elf.offset_of(note.address)?, semaphore })
    };
    Ok(usdt::notes(&elf, &data.as_slice()).into_iter().filter_map(place).collect())
}

/// Functions that the kernel says it can trace.
fn kernel_functions() -> Vec<Place> {
    let text = Tracefs::open()
        .ok()
        .and_then(|root| root.read("available_filter_functions").ok())
        .unwrap_or_default();
    let mut seen = std::collections::HashSet::new();
    let usual = |name: &&str| {
        name.starts_with("ext4_")
            || name.starts_with("tcp_")
            || name.starts_with("btrfs_")
            || name.starts_with("vfs_")
            || name.starts_with("nfs_")
            || name.starts_with("inet")
    };
    text.lines()
        .filter(|line| !line.contains(' '))
        .filter(usual)
        .filter(|name| seen.insert(*name))
        .take(PROBES)
        .map(|function| Place::Kernel { function: function.into(), offset: 0 })
        .collect()
}

/// Tracepoints that can be attached to, as many as there are: each is tried alone.
fn tracepoints(mechanism: Mechanism) -> Result<Vec<Place>> {
    let root = Tracefs::open()?;
    let mut group = Group::load(&Options::new(mechanism, Body::Empty))?;
    let mut places = Vec::new();
    for line in root.read("available_events")?.lines() {
        let Some((category, name)) = line.split_once(':') else { continue };
        let place = Place::Tracepoint { category: category.into(), name: name.into() };
        if category != "syscalls" && group.attach(&[Point { slot: 0, place: place.clone() }]).is_ok() {
            group.detach()?;
            places.push(place);
        }
        if places.len() == PROBES {
            break;
        }
    }
    Ok(places)
}
