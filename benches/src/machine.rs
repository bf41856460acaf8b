//! What a number depends on: named with every report.

/// Kernel, CPUs, load, versions: one line each.
pub fn describe(quick: bool) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map_or("unknown", |(_, value)| value.trim()).to_string()
    };
    let memory =
        read("/proc/meminfo").lines().next().unwrap_or_default().replace("MemTotal:", "").trim().to_string();
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let guest = if cpuinfo.contains(" hypervisor") { ", guest of a hypervisor" } else { "" };
    let governor = match read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").as_str() {
        "" => "not known".to_string(),
        governor => governor.to_string(),
    };
    let mut text = format!(
        "- kernel {}, {cpus} CPUs ({}){guest}, {memory}\n- frequency governor: {governor}; load average before: {}; build: {}",
        read("/proc/sys/kernel/osrelease"),
        field("model name"),
        load(),
        if cfg!(debug_assertions) { "debug (figures of user space mean nothing)" } else { "release" },
    );
    let busy: f64 = load().split(' ').next().and_then(|value| value.parse().ok()).unwrap_or(0.0);
    if busy > 0.3 * cpus as f64 {
        text.push_str("\n- **the machine is not quiet**: CPU times are valid, wall times and memory of the whole machine less so");
    }
    if quick {
        text.push_str("\n- `--quick`: a third of the time, figures are noisier");
    }
    text
}

/// The load averages of the last 1, 5 and 15 minutes.
pub fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// CPUs that are online.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether this process is root.
pub fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
}
