//! Probes of the kernel: functions, tracepoints, system calls.

use crate::error::{Error, Kind, Result};
use crate::glob;
use crate::near::{did_you_mean, nearest};
use crate::place::{Place, Site};
use crate::resolve::{Options, plain, too_many, unsupported};
use crate::spec::Spec;
use crate::syscalls;
use crate::system::System;
use lightfoot_model::Mechanism;
use std::collections::BTreeSet;

/// The sites of one probe of the kernel.
pub(crate) fn resolve(system: &System, spec: &Spec, options: &Options, room: usize) -> Result<Vec<Site>> {
    let sites = match spec {
        Spec::Kprobe { returns, module, function, offset } => functions(
            system,
            spec,
            options,
            Wanted { returns: *returns, module, function, offset: *offset, kprobe: true },
        )?,
        Spec::Fentry { returns, module, function } => functions(
            system,
            spec,
            options,
            Wanted { returns: *returns, module, function, offset: 0, kprobe: false },
        )?,
        Spec::Tracepoint { category, name } => tracepoints(system, spec, category, name, options)?,
        Spec::RawTracepoint { name } => raw_tracepoints(system, spec, name, options)?,
        _ => Vec::new(),
    };
    if sites.len() > room { Err(too_many(&spec.to_string(), sites.len(), options)) } else { Ok(sites) }
}

struct Wanted<'a> {
    returns: bool,
    module: &'a Option<String>,
    function: &'a str,
    offset: u64,
    kprobe: bool,
}

fn functions(system: &System, spec: &Spec, options: &Options, wanted: Wanted<'_>) -> Result<Vec<Site>> {
    let module = wanted.module.as_deref().filter(|module| *module != "vmlinux");
    let many = glob::is_glob(wanted.function);
    let mut names = BTreeSet::new();
    let mut times = 0;
    system.functions(|name, of| {
        let fits = if many { glob::matches(wanted.function, name) } else { name == wanted.function };
        let here = match (wanted.module.as_deref(), module) {
            (Some(_), None) => of.is_none(),
            (_, Some(module)) => of.is_some_and(|of| glob::matches(module, of)),
            _ => true,
        };
        if fits && here {
            times += 1;
            names.insert(name.to_owned());
        }
        true
    })?;
    if names.is_empty() {
        let mut all = Vec::new();
        system.functions(|name, _| {
            all.push(name.to_owned());
            true
        })?;
        let near = nearest(wanted.function, all.iter().map(String::as_str), 3);
        let what = if many { "no kernel function matches it" } else { "the kernel has no such function" };
        return Err(Error::not_found(format!("{spec}: {what}{}", did_you_mean(&near))));
    }
    if wanted.offset > 0
        && let Some(size) = system.function_size(wanted.function).filter(|&size| wanted.offset >= size)
    {
        let message =
            format!("{spec}: {} has {size} bytes, +{} lies behind its end", wanted.function, wanted.offset);
        return Err(Error::new(Kind::Offset, message));
    }
    let (mechanism, why) = function_mechanism(system, spec, options, &wanted, names.len(), times)?;
    let trampoline = matches!(mechanism, Mechanism::Fentry | Mechanism::Fexit);
    let known_to_btf: Option<BTreeSet<&str>> = trampoline.then(|| {
        let described = system.btf().into_iter().flat_map(|btf| btf.functions().map(|(_, name)| name));
        described.filter(|name| names.contains(*name)).collect()
    });
    let mut left_out = 0;
    let mut sites = Vec::new();
    for name in &names {
        if known_to_btf.as_ref().is_some_and(|known| !known.contains(name.as_str())) {
            left_out += 1;
            continue;
        }
        let kind = match (wanted.kprobe, wanted.returns) {
            (true, false) => "kprobe",
            (true, true) => "kretprobe",
            (false, false) => "fentry",
            (false, true) => "fexit",
        };
        let plus = if wanted.offset == 0 { String::new() } else { format!("+{}", wanted.offset) };
        let place = Place::Kernel { function: name.clone(), offset: wanted.offset };
        let mut site = plain(format!("{kind}:{name}{plus}"), mechanism, place);
        site.choices.extend(why.clone());
        sites.push(site);
    }
    if sites.is_empty() {
        return Err(unsupported(spec, mechanism, ": BTF does not describe the function"));
    }
    if left_out > 0 {
        sites[0]
            .warnings
            .push(format!("{spec}: {left_out} functions are left out, BTF does not describe them"));
    }
    Ok(sites)
}

/// How functions of the kernel are attached to, and why so.
fn function_mechanism(
    system: &System,
    spec: &Spec,
    options: &Options,
    wanted: &Wanted<'_>,
    count: usize,
    times: usize,
) -> Result<(Mechanism, Option<String>)> {
    use Mechanism::*;
    let has = |mechanism| options.capabilities.has(mechanism);
    let (single, multi, trampoline) = match wanted.returns {
        false => (Kprobe, KprobeMulti, Fentry),
        true => (Kretprobe, KretprobeMulti, Fexit),
    };
    let asked = if wanted.kprobe { single } else { trampoline };
    if options.naive {
        return if has(asked) { Ok((asked, None)) } else { Err(unsupported(spec, asked, "")) };
    }
    if wanted.offset > 0 {
        return if has(Kprobe) { Ok((Kprobe, None)) } else { Err(unsupported(spec, Kprobe, "")) };
    }
    // A name that two functions have cannot be given to a trampoline.
    let described =
        || system.btf().is_some_and(|btf| btf.functions_named(wanted.function).count() == 1) && times == 1;
    if count > 1 && has(multi) {
        let why = format!("{count} functions in one link of {}", multi.name());
        return Ok((multi, Some(why)));
    }
    if count == 1 && has(trampoline) && (!wanted.kprobe || described()) {
        let why = wanted.kprobe.then(|| {
            format!(
                "{} instead of {}: the same arguments, without a breakpoint",
                trampoline.name(),
                single.name()
            )
        });
        return Ok((trampoline, why));
    }
    let fallback = [asked, multi, single, trampoline].into_iter().find(|&mechanism| has(mechanism));
    match fallback {
        Some(mechanism) if mechanism == asked => Ok((asked, None)),
        Some(mechanism) => Ok((
            mechanism,
            Some(format!("{}: {} does not work on this kernel", mechanism.name(), asked.name())),
        )),
        None => Err(unsupported(
            spec,
            asked,
            &format!(", nor does {}", if wanted.kprobe { trampoline } else { single }.name()),
        )),
    }
}

/// How a tracepoint is attached to, and why so.
fn tracepoint_mechanism(spec: &Spec, options: &Options, typed: bool) -> Result<(Mechanism, Option<String>)> {
    use Mechanism::*;
    let has = |mechanism| options.capabilities.has(mechanism);
    let direct = [RawTracepoint, TpBtf].into_iter().find(|&mechanism| has(mechanism));
    if let Some(mechanism) = direct.filter(|_| !options.naive && typed) {
        let why = format!("{} instead of the perf event: its arguments are known from BTF", mechanism.name());
        return Ok((mechanism, Some(why)));
    }
    if has(Tracepoint) { Ok((Tracepoint, None)) } else { Err(unsupported(spec, Tracepoint, "")) }
}

fn tracepoints(
    system: &System,
    spec: &Spec,
    category: &str,
    name: &str,
    options: &Options,
) -> Result<Vec<Site>> {
    let mut sites = Vec::new();
    if glob::matches(category, "syscalls") {
        sites.extend(syscall_sites(system, spec, name, options)?);
    }
    let typed: BTreeSet<&str> =
        system.btf().map(|btf| btf.tracepoints().map(|(_, name)| name).collect()).unwrap_or_default();
    match system.events() {
        Some(folder) => {
            for (category, name) in events(&folder, category, name) {
                if category == "syscalls" {
                    continue;
                }
                let (mechanism, why) = tracepoint_mechanism(spec, options, typed.contains(name.as_str()))?;
                let full = format!("tracepoint:{category}:{name}");
                let mut site = plain(full, mechanism, Place::Tracepoint { category, name });
                site.choices.extend(why);
                sites.push(site);
            }
        }
        // Without tracefs nobody says which folder an event is in.
        None if category != "syscalls" => {
            for name in typed.iter().filter(|other| glob::matches(name, other)) {
                if !options.capabilities.has(Mechanism::RawTracepoint)
                    && !options.capabilities.has(Mechanism::TpBtf)
                {
                    return Err(unsupported(spec, Mechanism::RawTracepoint, ", and tracefs is not mounted"));
                }
                if options.naive {
                    return Err(Error::new(
                        Kind::Unsupported,
                        format!(
                            "{spec}: tracefs is not mounted; mount -t tracefs tracefs /sys/kernel/tracing"
                        ),
                    ));
                }
                let (mechanism, why) = tracepoint_mechanism(spec, options, true)?;
                let folder = if glob::is_glob(category) { "" } else { category };
                let place = Place::Tracepoint { category: folder.to_owned(), name: (*name).to_owned() };
                let shown = if folder.is_empty() {
                    format!("rawtracepoint:{name}")
                } else {
                    format!("tracepoint:{folder}:{name}")
                };
                let mut site = plain(shown, mechanism, place);
                site.choices.extend(why);
                site.choices.push("found by its name in BTF: tracefs is not mounted, so the category is taken as it was given".to_owned());
                sites.push(site);
            }
        }
        None => {}
    }
    if sites.is_empty() {
        return Err(no_tracepoint(system, spec, category, name, &typed));
    }
    sites.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(sites)
}

fn no_tracepoint(system: &System, spec: &Spec, category: &str, name: &str, typed: &BTreeSet<&str>) -> Error {
    let mut all: Vec<String> = Vec::new();
    if let Some(folder) = system.events() {
        let names = events(&folder, if category == "syscalls" { "syscalls" } else { "*" }, "*");
        all.extend(names.into_iter().map(|(category, name)| format!("{category}:{name}")));
    } else {
        if category != "syscalls" {
            all.extend(typed.iter().map(|name| format!("{category}:{name}")));
        }
        if category == "syscalls" || all.is_empty() {
            all.extend(
                system
                    .syscalls()
                    .iter()
                    .flat_map(|name| ["enter", "exit"].map(|side| format!("syscalls:sys_{side}_{name}"))),
            );
        }
    }
    let wanted = format!("{category}:{name}");
    let mut near = nearest(&wanted, all.iter().map(String::as_str), 3);
    if near.is_empty() {
        // Perhaps only the category is wrong.
        near = all.iter().filter(|full| full.split(':').nth(1) == Some(name)).take(3).cloned().collect();
    }
    let near: Vec<String> = near.into_iter().map(|name| format!("tracepoint:{name}")).collect();
    let what =
        if glob::is_glob(&wanted) { "no tracepoint matches it" } else { "the kernel has no such tracepoint" };
    Error::not_found(format!("{spec}: {what}{}", did_you_mean(&near)))
}

/// Category and name of the events in a folder of tracefs, sorted.
pub(crate) fn events(folder: &std::path::Path, category: &str, name: &str) -> Vec<(String, String)> {
    let below = |folder: &std::path::Path| -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let folders =
            entries.flatten().take(100_000).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let mut names: Vec<String> =
            folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    };
    let mut all = Vec::new();
    for found in below(folder).into_iter().filter(|found| glob::matches(category, found)) {
        let names = below(&folder.join(&found)).into_iter().filter(|event| glob::matches(name, event));
        all.extend(names.map(|event| (found.clone(), event)));
    }
    all
}

fn syscall_sites(system: &System, spec: &Spec, name: &str, options: &Options) -> Result<Vec<Site>> {
    let mut sites = Vec::new();
    for exit in [false, true] {
        let prefix = if exit { "sys_exit_" } else { "sys_enter_" };
        // People know system calls by the names of libc.
        let asked =
            name.strip_prefix(prefix).map(|asked| format!("{prefix}{}", syscalls::kernel_name(asked)));
        let wanted = asked.as_deref().filter(|_| !glob::is_glob(name)).unwrap_or(name);
        for (number, call) in syscalls::table(syscalls::own_arch()) {
            let event = format!("{prefix}{call}");
            if !glob::matches(wanted, &event) || !system.syscalls().contains(call) {
                continue;
            }
            let full = format!("tracepoint:syscalls:{event}");
            let raw = options.capabilities.has(Mechanism::RawTracepoint);
            let mut site = if options.naive || !raw {
                if !options.capabilities.has(Mechanism::Tracepoint) {
                    return Err(unsupported(spec, Mechanism::Tracepoint, ""));
                }
                plain(
                    full,
                    Mechanism::Tracepoint,
                    Place::Tracepoint { category: "syscalls".to_owned(), name: event },
                )
            } else {
                let mut site =
                    plain(full, Mechanism::RawTracepoint, Place::Syscall { number: *number, exit });
                let side = if exit { "sys_exit" } else { "sys_enter" };
                site.choices.push(format!("one program on the raw tracepoint {side} serves all system calls by number, instead of a perf event each"));
                site
            };
            if wanted != name {
                site.choices.push(format!("the kernel's name of it is {wanted}"));
            }
            sites.push(site);
        }
    }
    Ok(sites)
}

fn raw_tracepoints(system: &System, spec: &Spec, name: &str, options: &Options) -> Result<Vec<Site>> {
    let Some(mechanism) = [Mechanism::RawTracepoint, Mechanism::TpBtf]
        .into_iter()
        .find(|&mechanism| options.capabilities.has(mechanism))
    else {
        return Err(unsupported(spec, Mechanism::RawTracepoint, ""));
    };
    let Some(btf) = system.btf() else {
        // Without types the kernel is asked when the probe is attached.
        let place = Place::Tracepoint { category: String::new(), name: name.to_owned() };
        return Ok(vec![plain(spec.to_string(), Mechanism::RawTracepoint, place)]);
    };
    let names: BTreeSet<&str> = btf.tracepoints().map(|(_, name)| name).collect();
    let fits = names.iter().filter(|other| glob::matches(name, other));
    let sites: Vec<Site> = fits
        .map(|name| {
            plain(
                format!("rawtracepoint:{name}"),
                mechanism,
                Place::Tracepoint { category: String::new(), name: (*name).to_owned() },
            )
        })
        .collect();
    if sites.is_empty() {
        let near: Vec<String> = nearest(name, names.iter().copied(), 3)
            .into_iter()
            .map(|name| format!("rawtracepoint:{name}"))
            .collect();
        return Err(Error::not_found(format!(
            "{spec}: the kernel has no such tracepoint{}",
            did_you_mean(&near)
        )));
    }
    Ok(sites)
}
