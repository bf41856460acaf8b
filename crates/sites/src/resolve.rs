//! From what was asked for to places.

use crate::capabilities::Capabilities;
use crate::error::{Error, Kind, Result};
use crate::events;
use crate::place::{Place, Site};
use crate::spec::Spec;
use crate::system::System;
use crate::{kernel, user};
use lightfoot_model::Mechanism;

/// How places are chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Most places that are taken. Above it nothing is resolved.
    pub limit: usize,
    /// The process that is traced: files are those that it sees.
    pub pid: Option<u32>,
    /// What the kernel can do.
    pub capabilities: Capabilities,
    /// Whether the programs read arguments. If not, a uprobe may move past instructions that change them.
    pub arguments: bool,
    /// Takes each spec literally: the first byte, the mechanism that it names, one link each.
    pub naive: bool,
}

impl Options {
    /// At most 10,000 places, any process, programs that read arguments.
    pub fn new(capabilities: Capabilities) -> Options {
        Options { limit: 10_000, pid: None, capabilities, arguments: true, naive: false }
    }
}

/// The places of these probes on this machine, in the order asked for; of a glob, in the order of names. Each place comes once.
///
/// # Errors
/// The first probe that has no place, and why ([`Error::kind`]).
pub fn resolve(specs: &[Spec], options: &Options) -> Result<Vec<Site>> {
    resolve_on(&System::new(), specs, options)
}

/// As [`resolve`], on a machine that may be a test's.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_on(system: &System, specs: &[Spec], options: &Options) -> Result<Vec<Site>> {
    // Each with the number of its spec. All of one file are resolved together: the file is read once.
    let mut sites: Vec<(usize, Site)> = user::resolve(system, specs, options)?;
    for (number, spec) in specs.iter().enumerate() {
        let room = options.limit.saturating_sub(sites.len());
        let more = match spec {
            Spec::Uprobe { .. } | Spec::Usdt { .. } => continue,
            Spec::Perf { hardware, event, count } => vec![perf(spec, *hardware, event, *count, options)?],
            Spec::Timer { one_cpu, every } => {
                need(options, Mechanism::PerfEvent, spec)?;
                let (type_, config) = (events::SOFTWARE, events::CPU_CLOCK);
                let place = Place::Perf { type_, config, every: *every, one_cpu: *one_cpu };
                vec![plain(spec.to_string(), Mechanism::PerfEvent, place)]
            }
            _ => kernel::resolve(system, spec, options, room)?,
        };
        sites.extend(more.into_iter().map(|site| (number, site)));
    }
    sites.sort_by_key(|(number, _)| *number);
    let mut seen = std::collections::HashSet::new();
    let sites: Vec<Site> = sites.into_iter().map(|(_, site)| site).collect();
    let sites: Vec<Site> =
        sites.into_iter().filter(|site| seen.insert((site.mechanism, site.place.clone()))).collect();
    if sites.len() > options.limit {
        return Err(too_many("these probes", sites.len(), options));
    }
    Ok(sites)
}

fn perf(spec: &Spec, hardware: bool, event: &str, count: Option<u64>, options: &Options) -> Result<Site> {
    need(options, Mechanism::PerfEvent, spec)?;
    let (config, usual) =
        events::config(hardware, event).ok_or_else(|| events::unknown(hardware, event, &spec.to_string()))?;
    let type_ = if hardware { events::HARDWARE } else { events::SOFTWARE };
    let every = crate::place::Every::Period(count.unwrap_or(usual));
    let mut site =
        plain(spec.to_string(), Mechanism::PerfEvent, Place::Perf { type_, config, every, one_cpu: false });
    if count.is_none() {
        site.choices.push(format!("fires each {usual} events, as none was given"));
    }
    Ok(site)
}

/// A site without anything to say about it.
pub(crate) fn plain(name: String, mechanism: Mechanism, place: Place) -> Site {
    Site { name, mechanism, place, instruction: None, choices: Vec::new(), warnings: Vec::new() }
}

/// An error unless the kernel has the mechanism.
pub(crate) fn need(options: &Options, mechanism: Mechanism, spec: &Spec) -> Result<()> {
    if options.capabilities.has(mechanism) {
        return Ok(());
    }
    Err(unsupported(spec, mechanism, ""))
}

pub(crate) fn unsupported(spec: &Spec, mechanism: Mechanism, more: &str) -> Error {
    let message = format!(
        "{spec}: {} does not work on this kernel{more}; lightfoot system-info shows what does",
        mechanism.name()
    );
    Error::new(Kind::Unsupported, message)
}

pub(crate) fn too_many(what: &str, count: usize, options: &Options) -> Error {
    let message = format!(
        "{what}: {count} places, the limit is {}; make it narrower or raise it with --max-probes {count}",
        options.limit
    );
    Error::new(Kind::TooMany, message)
}
