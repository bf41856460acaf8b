//! (h) A compile farm: many short processes of large programs. Whole stacks, and what the looking costs.

use crate::Length;
use crate::corpus::{list, percent};
use crate::table::{Table, median, within};
use crate::tool::{Tool, lightfoot, read_report, running_cpu_ns, sleep};
use anyhow::{Context, Result, ensure};
use lightfoot_tests::{Report, children_reaped};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Programs that a build runs.
const PROGRAMS: [&str; 8] = ["gcc", "x86_64-linux-gnu", "cc1", "as", "collect2", "ld", "ld.bfd", "cc"];
/// Processes that one build creates: gcc, cc1, as, collect2, ld.
const FORKS_PER_BUILD: f64 = 5.0;

/// Prints whole stacks and cost at 75 forks a second and as fast as it goes, then the price of a build without and with.
pub fn run(length: Length) -> Result<()> {
    if Command::new("gcc").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("### farm\n\nLeft out: there is no gcc.");
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    write_sources(dir.path())?;
    whole_and_cost(length, dir.path())?;
    println!();
    price_of_a_build(length, dir.path())
}

/// A few functions of a few kinds: little work, as in the files of a large C project's tests: starting and ending is most of it.
fn write_sources(dir: &Path) -> Result<()> {
    for number in 0..8 {
        let mut text = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
        for function in 0..2 + number / 4 {
            text += &format!(
                "static int f{function}(int *v, int n) {{ int s = {number}; for (int i = 0; i < n; i++) {{ if (v[i] % {} == 0) s += v[i] * i; \
                 else s ^= (v[i] << {}) + (int)strlen(\"{function}\"); }} return s; }}\n",
                function + 2,
                function % 7
            );
        }
        text += "int main(int argc, char **argv) { int v[64] = { argc }; long s = 0;\n";
        for function in 0..2 + number / 4 {
            text += &format!("s += f{function}(v, 64);\n");
        }
        text += "printf(\"%ld %s\\n\", s, argv[0]); return 0; }\n";
        std::fs::write(dir.join(format!("{number}.c")), text)?;
    }
    Ok(())
}

/// Builds until it is dropped, on two threads.
struct Farm {
    stop: Arc<AtomicBool>,
    builds: Arc<AtomicU64>,
    workers: Vec<JoinHandle<()>>,
}

impl Farm {
    /// `rate`: builds a second in all; 0: as fast as they go.
    fn start(dir: &Path, rate: f64) -> Farm {
        let (stop, builds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let workers = (0..2u64).map(|worker| {
            let (stop, builds, dir) = (Arc::clone(&stop), Arc::clone(&builds), dir.to_path_buf());
            std::thread::spawn(move || {
                let began = Instant::now();
                let mut own = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    if rate > 0.0 && own as f64 > began.elapsed().as_secs_f64() * rate / 2.0 {
                        std::thread::sleep(Duration::from_millis(1));
                        continue;
                    }
                    let source = dir.join(format!("{}.c", (own * 2 + worker) % 8));
                    let out = dir.join(format!("out{worker}"));
                    let built = Command::new("gcc").arg("-O1").arg(source).arg("-o").arg(out).status();
                    if built.is_ok_and(|status| status.success()) {
                        builds.fetch_add(1, Ordering::Relaxed);
                    }
                    own += 1;
                }
            })
        });
        let workers = workers.collect();
        Farm { stop, builds, workers }
    }

    fn builds(&self) -> u64 {
        self.builds.load(Ordering::Relaxed)
    }
}

impl Drop for Farm {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for worker in self.workers.drain(..) {
            // A worker that panicked has built nothing more: seen in the count.
            let _ = worker.join();
        }
    }
}

/// Processes created since boot, of any owner. Source: `/proc/stat`.
fn forks() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let line = text.lines().find(|line| line.starts_with("processes ")).context("processes")?;
    Ok(line["processes ".len()..].trim().parse()?)
}

fn whole_and_cost(length: Length, dir: &Path) -> Result<()> {
    let seconds = length.seconds(30.0).round();
    let mut table = Table::new(
        &format!(
            "farm: whole machine, {seconds:.0} s (reach: 95 % whole; 1 % of one CPU at 70 forks/s and 99 Hz; 64 MB peak)"
        ),
        &[
            "builds/s wanted",
            "Hz",
            "forks/s of the machine",
            "builds/s",
            "samples of builds",
            "whole, %",
            "by program, %",
            "the others",
            "user space while collecting, % of one CPU",
            "interrupts + BPF, %",
            "in all, %",
            "BPF of a sample: half at most, us",
            "start and end, ms",
            "peak RSS, MB",
            "BPF maps, MB",
        ],
    );
    for (rate, hz) in [(75.0 / FORKS_PER_BUILD, 99), (75.0 / FORKS_PER_BUILD, 499), (0.0, 99)] {
        let farm = Farm::start(dir, rate);
        sleep(2.0);
        let out = tempfile::tempdir()?;
        let path = out.path().join("p.json");
        let mut command = lightfoot(&format!("profile -a -F {hz} -d {seconds}s -f json -o"));
        let tool = Tool::start(command.arg(&path).env("XDG_CACHE_HOME", out.path()))?;
        sleep(seconds * 0.15);
        let (cpu, forked, built, began) =
            (running_cpu_ns(tool.pid()).context("running")?, forks()?, farm.builds(), Instant::now());
        sleep(seconds * 0.75);
        let window = began.elapsed().as_secs_f64();
        let cpu = running_cpu_ns(tool.pid()).context("running")?.saturating_sub(cpu);
        let (forked, built) = (forks()? - forked, farm.builds() - built);
        let bill = tool.wait()?;
        drop(farm);
        ensure!(bill.code == 0 || bill.code == 3, "exit code {}", bill.code);
        let report = read_report(&path)?;
        let duration_ns = report.json["meta"]["duration_ns"].as_f64().unwrap_or(f64::NAN);
        let collecting = cpu as f64 / (window * 1e9) * 100.0;
        let kernel_side = (report.cost("interrupt_ns") + report.cost("bpf_ns")) as f64 / duration_ns * 100.0;
        let (samples, whole, reasons) = wholes(&report, &PROGRAMS);
        let by_program = ["cc1", "as", "ld", "collect2", "gcc"].map(|name| {
            let (samples, whole, _) = wholes(&report, &[name]);
            format!("{name} {}", percent(whole, samples))
        });
        let outside = bill.cpu_ns as f64 - cpu as f64 * duration_ns / (window * 1e9);
        let rss = bill.peak_rss_bytes as f64 / 1e6;
        let busy = hz == 99 && rate > 0.0;
        table.row(vec![
            if rate > 0.0 { format!("{rate:.0}") } else { "all".into() },
            hz.to_string(),
            format!("{:.0}", forked as f64 / window),
            format!("{:.1}", built as f64 / window),
            samples.to_string(),
            within(percent(whole, samples), whole * 100 >= samples * 95),
            by_program.join(", "),
            list(&reasons),
            format!("{collecting:.2}"),
            format!("{kernel_side:.2}"),
            within(format!("{:.2}", collecting + kernel_side), !busy || collecting + kernel_side <= 1.0),
            format!("{:.1}", report.cost("bpf_sample_p50_ns") as f64 / 1e3),
            format!("{:.0}", outside / 1e6),
            within(format!("{rss:.1}"), rss <= 64.0),
            format!("{:.1}", report.cost("bpf_map_bytes") as f64 / 1e6),
        ]);
    }
    table.print();
    println!(
        "\n\"Whole\" are stacks with the outcome `complete` among all samples of processes with the compiler's names; interrupts and \
         BPF are the ledger's, user space is the kernel's own account of lightfoot's threads over three quarters of the run."
    );
    Ok(())
}

/// Samples of processes with one of these names, those that are whole, and the others by outcome.
fn wholes(report: &Report, names: &[&str]) -> (u64, u64, BTreeMap<String, u64>) {
    let mut reasons = BTreeMap::new();
    let (mut samples, mut whole) = (0, 0);
    for stack in report.stacks.iter().filter(|stack| names.contains(&stack.comm.as_str())) {
        samples += stack.count;
        if stack.outcome == "complete" {
            whole += stack.count;
        } else {
            *reasons.entry(stack.outcome.clone()).or_insert(0) += stack.count;
        }
    }
    (samples, whole, reasons)
}

/// What a build costs its owner: CPU time per build in alternating blocks without and with lightfoot beside it.
fn price_of_a_build(length: Length, dir: &Path) -> Result<()> {
    let blocks = length.rounds(6).max(2);
    let seconds = length.seconds(6.0).max(3.0);
    let mut table = Table::new(
        &format!(
            "farm: CPU time of a build, {blocks} blocks of {seconds:.0} s each way, as fast as they go, whole machine at 99 Hz"
        ),
        &["", "builds", "CPU ms per build, median of blocks", "against without, %"],
    );
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let mut builds = [0; 2];
    for _ in 0..blocks {
        for (which, prices) in [&mut without, &mut with].into_iter().enumerate() {
            let tool = match which {
                0 => None,
                _ => {
                    let arguments = format!("profile -a -F 99 -d {}s -f json -o /dev/null", seconds + 60.0);
                    Some(Tool::start(&mut lightfoot(&arguments))?)
                }
            };
            if tool.is_some() {
                // Past its start.
                sleep(1.5);
            }
            // Killed by the drop below, not waited for here: children reaped are builds only.
            let before = children_reaped();
            let farm = Farm::start(dir, 0.0);
            sleep(seconds);
            let counted = Arc::clone(&farm.builds);
            drop(farm);
            let after = children_reaped();
            let done = counted.load(Ordering::Relaxed);
            builds[which] += done;
            prices.push((after.0 + after.1 - before.0 - before.1) as f64 / 1e6 / done.max(1) as f64);
            drop(tool);
        }
    }
    let change = median(&with.iter().zip(&without).map(|(w, o)| w / o).collect::<Vec<_>>());
    table.row(vec!["without".into(), builds[0].to_string(), format!("{:.2}", median(&without)), "-".into()]);
    table.row(vec![
        "with".into(),
        builds[1].to_string(),
        format!("{:.2}", median(&with)),
        format!("{:+.2}", (change - 1.0) * 100.0),
    ]);
    table.print();
    Ok(())
}
