//! From counts and prices to what is said of them.

use crate::outcome::{BudgetReport, Cost, Outcome, Prediction, Probe, Process, SCHEMA};
use crate::plan::{Planned, Priced};
use crate::run::Summary;
use lightfoot_cost::probes::{Account, Governor, Line, Verdict, WARN_NS_PER_S};
use lightfoot_kernel::os;
use lightfoot_kernel::probes::Hits;
use lightfoot_sites::{Place, Site};
use std::collections::BTreeMap;

/// Probes named in one warning; of more their number is said.
const NAMED_MAX: usize = 3;

/// All that is known at the end.
pub(crate) struct Ends<'a> {
    pub request: &'a Summary,
    pub pid: Option<u32>,
    pub sites: &'a [Site],
    pub groups: &'a [Planned],
    pub priced: &'a Priced,
    pub account: &'a Account,
    pub governor: Option<&'a Governor>,
    pub trial: &'a [Verdict],
    pub hits: Vec<Vec<Hits>>,
    pub passed: u64,
    pub missed: u64,
    pub cut: Vec<u64>,
    /// Why there were no statistics.
    pub statistics: Option<String>,
    pub duration_ns: u64,
    pub own_ns: u64,
    /// Traps while probes were detached, in ns.
    pub detaching_ns: f64,
    pub start_ns: u64,
    pub begun_ns: u64,
    pub notes: Vec<String>,
}

/// A place in words.
pub fn place(place: &Place) -> String {
    match place {
        Place::Kernel { function, offset: 0 } => function.clone(),
        Place::Kernel { function, offset } => format!("{function}+{offset}"),
        Place::Tracepoint { category, name } if category.is_empty() => name.clone(),
        Place::Tracepoint { category, name } => format!("{category}:{name}"),
        Place::Syscall { number, exit } => {
            format!("{} {number}", if *exit { "sys_exit" } else { "sys_enter" })
        }
        Place::User { file, offset, .. } => format!("{}@{offset:#x}", file.display()),
        Place::Perf { type_, config, .. } => format!("perf event {type_}:{config}"),
    }
}

/// What the trial says: one line for each probe that exceeds the limit, or one for all if they are many, and one if only all together do.
pub(crate) fn warnings(sites: &[Site], verdicts: &[Verdict], budget_ns_per_s: Option<u64>) -> Vec<String> {
    let limit = budget_ns_per_s.unwrap_or(WARN_NS_PER_S) as f64;
    let than = match budget_ns_per_s {
        Some(ns) => format!("the budget of {}", share(ns as f64)),
        None => format!("{} (--budget keeps it below what you choose)", share(limit)),
    };
    let mut exceeding: Vec<(&Site, &Verdict)> =
        sites.iter().zip(verdicts).filter(|(_, v)| v.exceeds).collect();
    exceeding.sort_by(|a, b| b.1.ns_per_s.unwrap_or(0.0).total_cmp(&a.1.ns_per_s.unwrap_or(0.0)));
    let line = |(site, verdict): &(&Site, &Verdict)| {
        format!(
            "{} fired {} times a second in the trial: that costs {} of one CPU, more than {than}",
            site.name,
            count(verdict.firings_per_s),
            share(verdict.ns_per_s.unwrap_or(0.0))
        )
    };
    let mut lines: Vec<String> = exceeding.iter().take(NAMED_MAX).map(line).collect();
    if exceeding.len() > NAMED_MAX {
        lines.push(format!("{} more probes exceed it each by itself", exceeding.len() - NAMED_MAX));
    }
    let total: f64 = verdicts.iter().filter_map(|v| v.ns_per_s).sum();
    let fired: f64 = verdicts.iter().map(|v| v.firings_per_s).sum();
    if lines.is_empty() && total > limit && fired >= 1_000.0 {
        lines.push(format!(
            "all probes together fired {} times a second in the trial: that costs {} of one CPU, more than {than}",
            count(fired),
            share(total)
        ));
    }
    lines
}

/// `ns` per second as a share, for example `0.52 %`.
fn share(ns_per_s: f64) -> String {
    let percent = ns_per_s / 1e7;
    if percent >= 10.0 { format!("{percent:.0} %") } else { format!("{percent:.2} %") }
}

/// A number with groups of three digits.
fn count(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(crate) fn outcome(ends: Ends<'_>) -> Outcome {
    let probes: Vec<Probe> = (0..ends.sites.len()).map(|site| probe(&ends, site)).collect();
    let cost = cost(&ends, &probes);
    let mut notes = notes(&ends, &probes);
    notes.splice(0..0, ends.notes.iter().cloned());
    let budget = ends.governor.zip(ends.request.budget_ns_per_s).map(|(governor, ns_per_s)| {
        let report = governor.report();
        BudgetReport {
            ns_per_s,
            dearest_window_ns: report.dearest_window_ns,
            dearest_ns: report.dearest_ns,
            throttled_ns: report.throttled_ns,
            detached: probes.iter().filter(|probe| probe.detached_ns.is_some()).count(),
            alarms: report.alarms,
            looks: report.looks,
        }
    });
    Outcome {
        schema: SCHEMA,
        version: ends.request.version,
        command_line: ends.request.command_line.clone(),
        kernel: os::uname().0,
        pid: ends.pid,
        body: ends.request.body,
        dry_run: ends.request.dry_run,
        begun_ns: ends.begun_ns,
        duration_ns: ends.duration_ns,
        processes: processes(&ends, &probes),
        probes,
        cost,
        budget,
        notes,
    }
}

fn probe(ends: &Ends<'_>, index: usize) -> Probe {
    let (site, line) = (&ends.sites[index], &ends.account.lines()[index]);
    let predicted = ends.priced.predicted[index].as_ref();
    let report = ends.governor.map(Governor::report);
    let counts = line.counts;
    let (estimate, estimate_error) = line.estimate();
    let priced = predicted.is_ok();
    let total_ns = priced.then(|| line.cost_ns());
    Probe {
        name: site.name.clone(),
        mechanism: site.mechanism,
        instruction: site.instruction,
        place: place(&site.place),
        choices: site.choices.clone(),
        warnings: site.warnings.clone(),
        fired: counts.fired,
        recorded: counts.recorded,
        filtered: counts.filtered,
        throttled: counts.throttled,
        cut: ends.cut[index],
        lost: counts.lost,
        estimate: estimate as u64,
        estimate_error,
        predicted: predicted.ok().map(|p| Prediction {
            trigger_ns: p.trigger_ns,
            checks_ns: p.checks_ns,
            body_ns: p.body_ns,
            total_ns: p.total_ns(),
        }),
        live_ns: line.live_ns().filter(|_| priced),
        live_body_ns: (line.bodies_measured() > 0).then(|| line.body_ns()),
        bodies_measured: line.bodies_measured(),
        total_ns,
        percent_of_one_cpu: total_ns.map(|ns| percent(ns, ends.duration_ns)),
        no_price: predicted.err().cloned(),
        trial_per_s: ends.trial.get(index).map_or(0.0, |verdict| verdict.firings_per_s),
        one_in_max: report.and_then(|r| r.one_in_max.get(index).copied()).unwrap_or(1),
        detached_ns: report.and_then(|r| r.detached_ns.get(index).copied()).flatten(),
    }
}

fn percent(ns: f64, duration_ns: u64) -> f64 {
    ns * 100.0 / duration_ns.max(1) as f64
}

fn cost(ends: &Ends<'_>, probes: &[Probe]) -> Cost {
    let probes_ns: f64 = probes.iter().filter_map(|probe| probe.total_ns).sum();
    // What nobody asked for runs the dispatcher all the same.
    let dispatched = ends.groups.iter().find(|group| group.dispatches);
    let each = dispatched.and_then(|group| ends.priced.predicted[*group.sites.first()?].as_ref().ok());
    let passed_ns = ends.passed as f64 * each.map_or(0.0, |predicted| predicted.trigger_ns);
    let total_ns = probes_ns + passed_ns + ends.detaching_ns + ends.own_ns as f64;
    Cost {
        probes_ns,
        detaching_ns: ends.detaching_ns,
        passed: ends.passed,
        passed_ns,
        own_ns: ends.own_ns,
        total_ns,
        percent_of_one_cpu: percent(total_ns, ends.duration_ns),
        start_ns: ends.start_ns,
    }
}

/// Firings by process, with what they cost: each its share of the probe's cost.
fn processes(ends: &Ends<'_>, probes: &[Probe]) -> Vec<Process> {
    let mut all: BTreeMap<u32, BTreeMap<usize, u64>> = BTreeMap::new();
    for (group, hits) in ends.groups.iter().zip(&ends.hits) {
        for hit in hits {
            if let Some(&site) = group.sites.get(hit.slot as usize) {
                *all.entry(hit.pid).or_default().entry(site).or_default() += hit.weighed;
            }
        }
    }
    let share = |&(site, weighed): &(usize, u64)| {
        let probe = &probes[site];
        let all = probe.estimate.max(1) as f64;
        probe.total_ns.unwrap_or(0.0) * (weighed as f64 / all).min(1.0)
    };
    let process = |(pid, firings): (u32, BTreeMap<usize, u64>)| {
        let firings: Vec<(usize, u64)> = firings.into_iter().collect();
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
        let total_ns = firings.iter().map(share).sum();
        Process { pid, name: name.map(|name| name.trim_end().to_string()), firings, total_ns }
    };
    let mut processes: Vec<Process> = all.into_iter().map(process).collect();
    let weight = |process: &Process| process.firings.iter().map(|(_, weighed)| weighed).sum::<u64>();
    processes.sort_by_key(|process| std::cmp::Reverse(weight(process)));
    processes
}

fn notes(ends: &Ends<'_>, probes: &[Probe]) -> Vec<String> {
    let mut notes = Vec::new();
    for (index, probe) in probes.iter().enumerate().filter(|(_, probe)| probe.detached_ns.is_some()) {
        let after = probe.detached_ns.unwrap_or(0) as f64 / 1e9;
        let floor = ends.priced.predicted[index].as_ref().map_or(0.0, |p| p.floor_ns());
        notes.push(format!(
            "{} was detached after {after:.3} s: its {} firings until then cost {floor:.0} ns each before any work is done, which the budget does not \
             allow; its counts end there",
            probe.name,
            count(probe.fired as f64),
        ));
    }
    if ends.detaching_ns > 0.0 {
        notes.push(format!(
            "while the kernel took breakpoints away they went on to trap, which no count shows: about {:.1} ms of CPU time, by the rate before",
            ends.detaching_ns / 1e6
        ));
    }
    let thinned = probes.iter().filter(|probe| probe.one_in_max > 1 && probe.detached_ns.is_none()).count();
    if thinned > 0 {
        let most = probes.iter().map(|probe| probe.one_in_max).max().unwrap_or(1);
        notes.push(format!(
            "for the budget {thinned} of {} probes did their work for one in N firings only (N up to {most}): what they recorded is \
             weighed by N, +- is its standard error; `fired` is exact",
            probes.len()
        ));
    }
    let cut: u64 = probes.iter().map(|probe| probe.cut).sum();
    if cut > 0 {
        notes.push(format!(
            "{} firings came faster than foreseen and were left out by the breaker: they are in `fired`, but no weight stands for them",
            count(cut as f64)
        ));
    }
    let lost: u64 = probes.iter().map(|probe| probe.lost).sum();
    if lost > 0 {
        notes.push(format!("{} firings were lost for lack of room", count(lost as f64)));
    }
    if ends.missed > 0 {
        notes.push(format!(
            "{} firings ran no program, since one was running on that CPU already: they are in no count",
            count(ends.missed as f64)
        ));
    }
    if ends.passed > 0 {
        notes.push(format!(
            "{} other system calls passed the tracepoint: they are part of the cost",
            count(ends.passed as f64)
        ));
    }
    let unpriced: Vec<&Probe> = probes.iter().filter(|probe| probe.no_price.is_some()).collect();
    if let Some(first) = unpriced.first() {
        notes.push(format!(
            "{} of {} probes have no price, and are not in the cost: {}: {}",
            unpriced.len(),
            probes.len(),
            first.name,
            first.no_price.as_deref().unwrap_or_default()
        ));
    }
    if let Some(why) = &ends.statistics {
        notes.push(format!("prices of bodies are predicted, not measured while they ran: {why}"));
    } else if ends.account.lines().iter().all(|line: &Line| line.bodies_measured() == 0) {
        notes.push(
            "prices of bodies are predicted: nothing fired in the moments in which they would have been measured"
                .into(),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightfoot_model::Mechanism;

    fn site(name: &str) -> Site {
        Site {
            name: name.into(),
            mechanism: Mechanism::TpBtf,
            place: Place::Syscall { number: 110, exit: false },
            instruction: None,
            choices: Vec::new(),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn a_warning_names_the_probe_its_rate_and_what_it_costs() {
        let sites = [site("a"), site("b")];
        let verdicts = [
            Verdict { firings_per_s: 1_234_567.0, ns_per_s: Some(123_456_700.0), exceeds: true },
            Verdict { firings_per_s: 10.0, ns_per_s: Some(1_000.0), exceeds: false },
        ];
        let said = warnings(&sites, &verdicts, Some(5_000_000));
        assert_eq!(said.len(), 1);
        for word in ["a fired 1,234,567 times a second", "12 % of one CPU", "budget of 0.50 %"] {
            assert!(said[0].contains(word), "{word}: {}", said[0]);
        }
        assert!(warnings(&sites, &verdicts[1..], None).is_empty());
    }

    #[test]
    fn many_that_exceed_are_counted_and_the_dearest_are_named() {
        let sites: Vec<Site> = (0..9).map(|i| site(&format!("p{i}"))).collect();
        let verdict =
            |i: usize| Verdict { firings_per_s: 1e6, ns_per_s: Some(1e8 + i as f64), exceeds: true };
        let verdicts: Vec<Verdict> = (0..9).map(verdict).collect();
        let said = warnings(&sites, &verdicts, None);
        assert_eq!(said.len(), NAMED_MAX + 1);
        assert!(said[0].starts_with("p8 "), "{}", said[0]);
        assert!(said[3].contains("6 more"), "{}", said[3]);
    }

    #[test]
    fn many_small_ones_may_be_too_much_together() {
        let sites: Vec<Site> = (0..9).map(|i| site(&format!("p{i}"))).collect();
        let verdict = Verdict { firings_per_s: 5_000.0, ns_per_s: Some(1e6), exceeds: false };
        let said = warnings(&sites, &[verdict; 9], Some(5_000_000));
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("all probes together"), "{}", said[0]);
    }
}
