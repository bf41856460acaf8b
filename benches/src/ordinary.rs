//! (l) A machine as it mostly is: idle, and with twenty ordinary programs from the distribution. Whole stacks, memory, cost.

use crate::Length;
use crate::corpus::{list, percent};
use crate::table::{Table, within};
use crate::tool::{Tool, lightfoot, read_report, running_cpu_ns, sleep};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// What runs without end, each under `sh -c`.
const PROGRAMS: [&str; 20] = [
    r#"exec python3 -c "while True: __import__('json').dumps(list(range(999)))""#,
    r#"exec python3 -c "while True: __import__('re').sub('a+', 'b', 'aaab' * 999)""#,
    r#"exec ruby -e 'loop { (1..999).map(&:to_s).join }'"#,
    r#"exec ruby -e 'loop { ("abc" * 99) =~ /c+d/ }'"#,
    r#"exec node -e 'for (;;) JSON.stringify(Array(999).fill(1))'"#,
    r#"exec perl -e 'while (1) { my %h; $h{$_}++ for 1 .. 999 }'"#,
    r#"exec bash -c 'while :; do ((i++)); done'"#,
    r#"exec awk 'BEGIN { while (1) for (i = 0; i < 999; i++) a[i] = i "" }'"#,
    "exec sha256sum /dev/zero",
    "exec md5sum /dev/zero",
    "exec openssl speed -seconds 600 sha256",
    "exec openssl speed -seconds 600 rsa2048",
    "exec xz -9 -c /dev/zero",
    "exec gzip -c /dev/zero",
    "exec bzip2 -c /dev/zero",
    "exec dd if=/dev/zero of=/dev/null bs=4k",
    "yes | sed s/y/n/",
    "while :; do find /usr/lib -name '*.so'; done",
    "while :; do echo 'int f(int *v) { return v[3]; }' | gcc -O2 -x c -c -o /dev/null -; done",
    "exec tail -c +0 -f /dev/null",
];

/// A group of processes, ended when it is dropped.
struct Group(Child);

impl Group {
    fn start(line: &str) -> Result<Group> {
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Group(command.process_group(0).spawn()?))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group's number is that of the process we started and have not waited for: nobody else can have it.
        let group = format!("-{}", self.0.id());
        // Fails if all of it has ended.
        Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status().ok();
        self.0.wait().ok();
    }
}

/// Prints one row for the idle machine and one for the busy one, each from a cold start.
pub fn run(length: Length) -> Result<()> {
    let seconds = length.seconds(30.0).round();
    let mut table = Table::new(
        &format!(
            "ordinary: whole machine, {seconds:.0} s at 99 Hz, no table kept from earlier (reach: 0.1 % of one CPU when idle; 64 MB peak, 40 MB \
             while sampling, 32 MB of BPF maps with twenty programs)"
        ),
        &[
            "machine",
            "--clock",
            "samples",
            "whole, %",
            "the others",
            "user space while collecting, % of one CPU",
            "interrupts + BPF, %",
            "in all, %",
            "BPF of a sample: half at most, us",
            "RSS while sampling, MB",
            "peak RSS, MB",
            "BPF maps, MB",
        ],
    );
    for (busy, clock) in [(false, "timer"), (false, "auto"), (true, "timer"), (true, "auto")] {
        let programs = if busy {
            PROGRAMS.iter().map(|line| Group::start(line)).collect::<Result<_>>()?
        } else {
            vec![]
        };
        if busy {
            sleep(2.0);
        }
        let out = tempfile::tempdir()?;
        let path = out.path().join("p.json");
        let mut command = lightfoot(&format!("profile -a -F 99 --clock {clock} -d {seconds}s -f json -o"));
        let tool = Tool::start(command.arg(&path).env("XDG_CACHE_HOME", out.path()))?;
        sleep(seconds * 0.3);
        let (cpu, began) = (running_cpu_ns(tool.pid()).context("running")?, Instant::now());
        sleep(seconds * 0.6);
        let cpu = running_cpu_ns(tool.pid()).context("running")?.saturating_sub(cpu);
        let collecting = cpu as f64 / began.elapsed().as_nanos() as f64 * 100.0;
        let resident = resident_bytes(tool.pid()).context("running")? as f64 / 1e6;
        let bill = tool.wait()?;
        let running = programs.len();
        drop(programs);
        ensure!(bill.code == 0 || bill.code == 3, "exit code {}", bill.code);
        let report = read_report(&path)?;
        let duration_ns = report.json["meta"]["duration_ns"].as_f64().unwrap_or(f64::NAN);
        let kernel_side = (report.cost("interrupt_ns") + report.cost("bpf_ns")) as f64 / duration_ns * 100.0;
        let mut reasons = BTreeMap::new();
        let (mut samples, mut whole) = (0, 0);
        for stack in &report.stacks {
            samples += stack.count;
            if stack.outcome == "complete" {
                whole += stack.count;
            } else {
                *reasons.entry(stack.outcome.clone()).or_insert(0) += stack.count;
            }
        }
        let (rss, maps) = (bill.peak_rss_bytes as f64 / 1e6, report.cost("bpf_map_bytes") as f64 / 1e6);
        let all = collecting + kernel_side;
        table.row(vec![
            if busy { format!("{running} programs") } else { "idle".into() },
            if clock == "timer" {
                clock.into()
            } else {
                format!("{clock}: {}", report.json["meta"]["clock"])
            },
            samples.to_string(),
            percent(whole, samples),
            list(&reasons),
            format!("{collecting:.3}"),
            format!("{kernel_side:.3}"),
            within(format!("{all:.3}"), busy || all <= 0.1),
            format!("{:.1}", report.cost("bpf_sample_p50_ns") as f64 / 1e3),
            within(format!("{resident:.1}"), resident <= 40.0),
            within(format!("{rss:.1}"), rss <= 64.0),
            within(format!("{maps:.1}"), maps <= 32.0),
        ]);
    }
    table.print();
    println!(
        "\nInterrupts and BPF are the ledger's, user space is the kernel's own account of lightfoot's threads over 60 % of the run; other work \
         on the machine counts as its programs, too."
    );
    Ok(())
}

/// Resident memory of a process, in bytes. Source: `VmRSS` of `/proc/PID/status`.
fn resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}
