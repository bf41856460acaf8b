//! From places to groups: one for each mechanism, each place with a slot of its own.

use crate::calibrate::Calibration;
use crate::error::{Error, Result};
use lightfoot_cost::probes::governor::Probe as Governed;
use lightfoot_cost::probes::{Around, Checks, Line, Predicted};
use lightfoot_kernel::probes::{Group, Options, Point};
use lightfoot_model::{Body, Mechanism};
use lightfoot_sites::{Place, Site};
use std::collections::BTreeMap;

/// Entries of hash maps: for each probe some, and never fewer or more than these.
const HASH_ENTRIES: (u32, u32) = (10_240, 1 << 20);
const HASH_ENTRIES_EACH: u32 = 64;
/// What a firing is taken to cost for the budget where it has no price, in ns.
const UNKNOWN_NS: f64 = 1_000.0;

/// A group with the sites of its slots.
pub(crate) struct Planned {
    pub group: Group,
    pub mechanism: Mechanism,
    /// Index of the site of each slot.
    pub sites: Vec<usize>,
    /// Whether a dispatcher of system calls sees calls that nobody asked for.
    pub dispatches: bool,
    pub attached: bool,
}

/// What is the same for all groups of a run.
#[derive(Clone, Copy)]
pub(crate) struct Common {
    pub body: Body,
    pub pid: Option<u32>,
    pub gate: bool,
}

/// What is known of the price of each site before it is attached.
pub(crate) struct Priced {
    /// `None`: it has no price, and why.
    pub predicted: Vec<std::result::Result<Predicted, String>>,
    pub lines: Vec<Line>,
}

/// The prices of these sites; what is missing is measured. Without statistics (not allowed, or not in this kernel) bodies keep their predicted price.
pub(crate) fn price(sites: &[Site], body: Body, checks: Checks, calibration: &mut Calibration) -> Priced {
    let mut priced = Priced { predicted: Vec::new(), lines: Vec::new() };
    for site in sites {
        let trigger = site.trigger();
        let known = !is_other_event(&site.place);
        let predicted = calibration.predict(trigger, Around::Counted, checks, body).filter(|_| known);
        let (bias_ns, statistics_ns) = match predicted {
            Some(_) => calibration.statistics(trigger).unwrap_or_default(),
            None => (0.0, 0.0),
        };
        let why = || match calibration.why(trigger) {
            _ if !known => "interrupts of timers are weighed, and this event is none".to_string(),
            Some(why) => why.to_string(),
            None => "it could not be measured".to_string(),
        };
        priced.lines.push(Line::new(predicted.unwrap_or_default(), bias_ns, statistics_ns));
        priced.predicted.push(predicted.ok_or_else(why));
    }
    calibration.save();
    priced
}

/// A software event that is no clock: it comes with whatever happens (a page fault, a switch), not with an interrupt of its own.
fn is_other_event(place: &Place) -> bool {
    const SOFTWARE: u32 = 1;
    const TASK_CLOCK: u64 = 1;
    matches!(place, Place::Perf { type_: SOFTWARE, config, .. } if *config > TASK_CLOCK)
}

/// Sites by mechanism, in the order in which they were asked for.
pub(crate) fn grouped(sites: &[Site]) -> Vec<(Mechanism, Vec<usize>)> {
    let mut groups: Vec<(Mechanism, Vec<usize>)> = Vec::new();
    for (index, site) in sites.iter().enumerate() {
        match groups.iter_mut().find(|(mechanism, _)| *mechanism == site.mechanism) {
            Some((_, members)) => members.push(index),
            None => groups.push((site.mechanism, vec![index])),
        }
    }
    groups
}

/// Loads the programs; nothing is attached yet.
pub(crate) fn load(sites: &[Site], common: &Common) -> Result<Vec<Planned>> {
    let load = |(mechanism, members): (Mechanism, Vec<usize>)| {
        let slots = u32::try_from(members.len()).unwrap_or(u32::MAX);
        let hash_entries = slots.saturating_mul(HASH_ENTRIES_EACH).clamp(HASH_ENTRIES.0, HASH_ENTRIES.1);
        let options = Options {
            pid: common.pid,
            slots,
            hash_entries,
            gate: common.gate,
            ..Options::new(mechanism, common.body)
        };
        let group = Group::load(&options).map_err(Error::from_set_up)?;
        let dispatches = members.iter().any(|&site| matches!(sites[site].place, Place::Syscall { .. }));
        Ok(Planned { group, mechanism, sites: members, dispatches, attached: false })
    };
    grouped(sites).into_iter().map(load).collect()
}

impl Planned {
    /// Attaches all of it.
    pub fn attach(&mut self, sites: &[Site]) -> Result<()> {
        let point =
            |(slot, &site): (usize, &usize)| Point { slot: slot as u32, place: sites[site].place.clone() };
        let points: Vec<Point> = self.sites.iter().enumerate().map(point).collect();
        self.group.attach(&points).map_err(Error::from_set_up)?;
        self.attached = true;
        Ok(())
    }
}

/// What the governor has to know: one entry for each site, and then one for each dispatcher, for the calls that nobody asked for.
pub(crate) fn governed(sites: &[Site], priced: &Priced, groups: &[Planned]) -> Vec<Governed> {
    let mut probes = vec![None; sites.len()];
    let mut passed = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let mut dispatchers: BTreeMap<bool, usize> = BTreeMap::new();
        for &site in &group.sites {
            let predicted = priced.predicted[site].as_ref().ok();
            let unit = match sites[site].place {
                // One program serves them all: none is cheaper without another.
                Place::Syscall { exit, .. } => *dispatchers.entry(exit).or_insert(site),
                _ => site,
            };
            probes[site] = Some(Governed {
                group: number,
                unit,
                floor_ns: predicted.map_or(UNKNOWN_NS, Predicted::floor_ns),
                body_ns: predicted.map_or(0.0, |p| p.body_ns),
                reaction_ns: reaction_ns(group.mechanism),
            });
        }
        if let Some((_, &site)) = dispatchers.first_key_value() {
            passed.extend(probes[site].map(|probe| Governed { body_ns: 0.0, ..probe }));
        }
    }
    probes.into_iter().flatten().chain(passed).collect()
}

/// From the decision to detach a probe until it costs nothing any more, in ns. The kernel takes a breakpoint away when it has waited for all CPUs
/// (a grace period of RCU, or several): 20 to 60 ms were measured, and up to 100 for single perf events.
fn reaction_ns(mechanism: Mechanism) -> u64 {
    use Mechanism::*;
    match mechanism {
        RawTracepoint | TpBtf | Fentry | Fexit | PerfEvent => 1_000_000,
        KprobeMulti | KretprobeMulti | KprobeSession => 10_000_000,
        UprobeMulti | UretprobeMulti | UprobeSession => 40_000_000,
        Kprobe | Kretprobe | Tracepoint | Uprobe | Uretprobe => 100_000_000,
    }
}
