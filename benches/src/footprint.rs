//! (d) What a user pays besides the samples: CPU time of lightfoot itself, memory, time to the first sample.

use crate::Length;
use crate::table::{Table, median, within};
use crate::tool::{Bill, Tool, lightfoot, phase, profile, read_report, running_cpu_ns, sleep};
use anyhow::{Context, Result};
use lightfoot_tests::{Report, Workload};

/// Prints the whole-machine run, the run on one process, and the launches.
pub fn run(length: Length) -> Result<()> {
    let _load = [
        Workload::start("split", "--threads 1 --seconds 900"),
        Workload::start("syscalls", "--kernel-share 30 --seconds 900"),
        Workload::start("forker", "--rate 20 --burn-ms 2 --seconds 900"),
        Workload::start("pingpong", "--spin 20000 --seconds 900"),
    ];
    whole_machine(length)?;
    println!();
    one_process(length)?;
    println!();
    launches(length)
}

fn whole_machine(length: Length) -> Result<()> {
    let seconds = length.seconds(30.0).round();
    let mut table = Table::new(
        &format!(
            "footprint: whole machine, {seconds:.0} s at 99 Hz, to HTML (reach: 0.1 % while collecting, 0.5 s in all, 60 MB)"
        ),
        &COLUMNS,
    );
    for transfer in ["counted", "ring"] {
        let dir = tempfile::tempdir()?;
        // The ledger comes from the run itself; the file that a user would look at, from a second run of the same length.
        for (format, file) in [("json", "p.json"), ("html", "p.html")] {
            let path = dir.path().join(file);
            let tool = Tool::start(
                lightfoot(&format!("profile -a -F 99 -d {seconds}s --transfer {transfer} -f {format} -o"))
                    .arg(&path),
            )?;
            // A window well inside the run: neither start nor symbolization.
            let window = seconds * 0.7;
            sleep(seconds * 0.2);
            let before = running_cpu_ns(tool.pid()).context("running")?;
            sleep(window);
            let after = running_cpu_ns(tool.pid()).context("running")?;
            let bill = tool.wait()?;
            let collecting = (after - before) as f64 / (window * 1e9) * 100.0;
            let report = if format == "json" { Some(read_report(&path)?) } else { None };
            table.row(row(&format!("{transfer}, {format}"), report.as_ref(), &bill, Some(collecting), 60.0));
        }
    }
    table.print();
    Ok(())
}

fn one_process(length: Length) -> Result<()> {
    let seconds = length.seconds(10.0).round();
    let mut table =
        Table::new(&format!("footprint: one process, {seconds:.0} s at 99 Hz (reach: 30 MB)"), &COLUMNS);
    let target = Workload::start("split", "--seconds 600");
    for transfer in ["counted", "ring"] {
        let (report, bill) =
            profile(&format!("profile -F 99 -d {seconds}s -p {} --transfer {transfer}", target.pid()))?;
        table.row(row(&format!("{transfer}, json"), Some(&report), &bill, None, 30.0));
    }
    table.print();
    Ok(())
}

const COLUMNS: [&str; 9] = [
    "transfer, format",
    "samples",
    "% of one CPU while collecting",
    "CPU in all, ms",
    "start, ms",
    "collect, ms",
    "symbolize + write, ms",
    "peak RSS, MB",
    "BPF maps, MB",
];

fn row(
    name: &str,
    report: Option<&Report>,
    bill: &Bill,
    collecting: Option<f64>,
    rss_mb: f64,
) -> Vec<String> {
    let ms = |ns: u64| format!("{:.1}", ns as f64 / 1e6);
    let of = |value: &dyn Fn(&Report) -> String| report.map_or("-".to_string(), value);
    let rss = bill.peak_rss_bytes as f64 / 1e6;
    vec![
        name.to_string(),
        of(&|report| report.accounting.recorded.to_string()),
        collecting.map_or("-".into(), |percent| within(format!("{percent:.3}"), percent <= 0.1)),
        within(ms(bill.cpu_ns), bill.cpu_ns <= 500_000_000),
        of(&|report| ms(phase(report, "start"))),
        of(&|report| ms(phase(report, "collect"))),
        of(&|report| ms(phase(report, "symbolize") + phase(report, "write"))),
        within(format!("{rss:.1}"), rss <= rss_mb),
        of(&|report| format!("{:.1}", report.cost("bpf_map_bytes") as f64 / 1e6)),
    ]
}

fn launches(length: Length) -> Result<()> {
    let rounds = length.rounds(9);
    let target = Workload::start("split", "--seconds 600");
    let mut table = Table::new(
        &format!("footprint: launch, median of {rounds} (reach: 0.3 s, 0.1 s CPU)"),
        &["target", "first sample after, ms", "CPU until then, ms", "CPU of a whole 1 s run, ms"],
    );
    for (name, arguments) in
        [("one process", format!("-p {}", target.pid())), ("whole machine", "-a".to_string())]
    {
        let (mut wall, mut cpu, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (report, bill) = profile(&format!("profile -F 999 -d 1s {arguments}"))?;
            let field = |name: &str| report.json["cost"][name].as_f64().map_or(f64::NAN, |ns| ns / 1e6);
            wall.push(field("first_sample_wall_ns"));
            cpu.push(field("first_sample_cpu_ns"));
            all.push(bill.cpu_ns as f64 / 1e6);
        }
        table.row(vec![
            name.to_string(),
            within(format!("{:.0}", median(&wall)), median(&wall) <= 300.0),
            within(format!("{:.0}", median(&cpu)), median(&cpu) <= 100.0),
            format!("{:.0}", median(&all)),
        ]);
    }
    table.print();
    Ok(())
}
