//! What there is to probe: `uprobe:/bin/bash:*`, `tracepoint:sched:*`, `*sleep*`.

use crate::demangle::demangle;
use crate::error::{Error, Result};
use crate::events::{HARDWARE_EVENTS, SOFTWARE_EVENTS};
use crate::files;
use crate::glob;
use crate::kernel;
use crate::place::Every;
use crate::resolve::Options;
use crate::spec::{At, Spec, kind_named};
use crate::syscalls;
use crate::system::System;
use crate::usdt::{self, Operand};
use crate::user::{Object, functions};
use std::collections::BTreeSet;

/// Kinds that a pattern without a kind is looked for in.
const KERNEL_KINDS: [&str; 8] =
    ["kprobe", "kretprobe", "fentry", "fexit", "tracepoint", "rawtracepoint", "software", "hardware"];

/// Calls `each` with the name of every probe that matches the pattern: kind by kind, sorted, each once. With `verbose` the arguments follow,
/// each on a line with four spaces before it. Ends early when `each` says false.
///
/// # Errors
/// As [`crate::resolve`]: a pattern that makes no sense, a file that cannot be read.
pub fn list(
    pattern: &str,
    verbose: bool,
    options: &Options,
    each: &mut dyn FnMut(&str) -> bool,
) -> Result<()> {
    list_on(&System::new(), pattern, verbose, options, each)
}

/// As [`list`], on a machine that may be a test's.
///
/// # Errors
/// As [`list`].
pub fn list_on(
    system: &System,
    pattern: &str,
    verbose: bool,
    options: &Options,
    each: &mut dyn FnMut(&str) -> bool,
) -> Result<()> {
    let mut output = Output { each, verbose, ended: false };
    let pattern = pattern.trim();
    let (kind, rest) = pattern.split_once(':').unwrap_or((pattern, ""));
    let full = kind_named(kind);
    let only_kind = !pattern.contains(':') && full.is_some();
    match full {
        Some("uprobe" | "uretprobe" | "usdt") => {
            let whole = match rest {
                "" => {
                    return Err(Error::usage(format!(
                        "{pattern}: which file? For example {kind}:/bin/bash:*"
                    )));
                }
                file if !file.contains(':') => format!("{pattern}:*"),
                _ => pattern.to_owned(),
            };
            user(system, &Spec::parse(&whole)?, options, &mut output)
        }
        Some("profile" | "interval") => {
            let every = [Every::Hertz(99), Every::Period(1_000_000_000)];
            every.into_iter().for_each(|every| {
                output.line(&Spec::Timer { one_cpu: full == Some("interval"), every }.to_string())
            });
            Ok(())
        }
        Some(full) => {
            let pattern =
                if only_kind || rest.is_empty() { format!("{full}:*") } else { format!("{full}:{rest}") };
            of_kind(system, full, &pattern, &mut output)
        }
        None => {
            let kinds: Vec<&str> = KERNEL_KINDS
                .into_iter()
                .filter(|full| !pattern.contains(':') || glob::matches(kind, full))
                .collect();
            if kinds.is_empty() {
                return Spec::parse_list(pattern).map(drop);
            }
            let pattern = if pattern.is_empty() { "*" } else { pattern };
            for full in kinds {
                of_kind(system, full, pattern, &mut output)?;
            }
            Ok(())
        }
    }
}

struct Output<'a> {
    each: &'a mut dyn FnMut(&str) -> bool,
    verbose: bool,
    ended: bool,
}

impl Output<'_> {
    fn line(&mut self, text: &str) {
        self.ended = self.ended || !(self.each)(text);
    }

    /// A probe, and its arguments if they are asked for.
    fn probe(&mut self, name: &str, arguments: impl FnOnce() -> Vec<String>) {
        self.line(name);
        if self.verbose && !self.ended {
            for argument in arguments() {
                self.line(&format!("    {argument}"));
            }
        }
    }
}

/// The kernel's probes of one kind whose full names match.
fn of_kind(system: &System, kind: &str, pattern: &str, output: &mut Output<'_>) -> Result<()> {
    match kind {
        "kprobe" | "kretprobe" | "fentry" | "fexit" => {
            let known: Option<BTreeSet<&str>> = matches!(kind, "fentry" | "fexit").then(|| {
                system.btf().map(|btf| btf.functions().map(|(_, name)| name).collect()).unwrap_or_default()
            });
            let mut names: BTreeSet<(String, Option<String>)> = BTreeSet::new();
            system.functions(|name, module| {
                let of = module.map_or(String::new(), |module| format!("{module}:"));
                if known.as_ref().is_none_or(|known| known.contains(name))
                    && (glob::matches(pattern, &format!("{kind}:{of}{name}"))
                        || glob::matches(pattern, &format!("{kind}:{name}")))
                {
                    names.insert((name.to_owned(), module.map(str::to_owned)));
                }
                true
            })?;
            let types = |name: &str| {
                system.btf().and_then(|btf| btf.functions_named(name).next().map(|id| (btf, id)))
            };
            for (name, module) in names {
                if output.ended {
                    break;
                }
                let of = module.map_or(String::new(), |module| format!("{module}:"));
                output.probe(&format!("{kind}:{of}{name}"), || {
                    let Some(prototype) = types(&name).and_then(|(btf, id)| btf.prototype(id)) else {
                        return Vec::new();
                    };
                    match kind {
                        "kretprobe" => vec![format!("{} retval", prototype.returns)],
                        "fexit" => declarations(prototype.arguments, Some(prototype.returns)),
                        _ => declarations(prototype.arguments, None),
                    }
                });
            }
            Ok(())
        }
        "tracepoint" => {
            tracepoints(system, pattern, output);
            Ok(())
        }
        "rawtracepoint" => {
            let Some(btf) = system.btf() else { return Ok(()) };
            let mut all: Vec<(&str, u32)> = btf.tracepoints().map(|(id, name)| (name, id)).collect();
            all.sort_unstable();
            all.dedup_by_key(|(name, _)| *name);
            for (name, id) in all {
                let full = format!("rawtracepoint:{name}");
                if !output.ended && glob::matches(pattern, &full) {
                    output.probe(&full, || {
                        declarations(btf.prototype(id).map(|p| p.arguments).unwrap_or_default(), None)
                    });
                }
            }
            Ok(())
        }
        _ => {
            let events = if kind == "hardware" { &HARDWARE_EVENTS[..] } else { &SOFTWARE_EVENTS[..] };
            for (name, other, ..) in events {
                let full = format!("{kind}:{name}");
                if !output.ended && glob::matches(pattern, &full) {
                    output.probe(&full, || {
                        if other.is_empty() { Vec::new() } else { vec![format!("also {kind}:{other}")] }
                    });
                }
            }
            Ok(())
        }
    }
}

fn declarations(arguments: Vec<(String, String)>, returns: Option<String>) -> Vec<String> {
    let returns = returns.map(|kind| format!("{kind} retval"));
    arguments
        .into_iter()
        .map(|(kind, name)| format!("{kind} {name}").trim_end().to_owned())
        .chain(returns)
        .collect()
}

fn tracepoints(system: &System, pattern: &str, output: &mut Output<'_>) {
    let mut names: BTreeSet<(String, String)> = BTreeSet::new();
    match system.events() {
        Some(folder) => names.extend(kernel::events(&folder, "*", "*")),
        // Without tracefs only the folder of system calls is known.
        None => {
            let known = syscalls::table(syscalls::own_arch())
                .iter()
                .filter(|(_, name)| system.syscalls().contains(name));
            for (_, name) in known {
                names.extend(
                    ["enter", "exit"].map(|side| ("syscalls".to_owned(), format!("sys_{side}_{name}"))),
                );
            }
        }
    }
    for (category, name) in names {
        let full = format!("tracepoint:{category}:{name}");
        if !output.ended && glob::matches(pattern, &full) {
            output.probe(&full, || system.fields(&category, &name));
        }
    }
}

/// The probes of programs and libraries.
fn user(system: &System, spec: &Spec, options: &Options, output: &mut Output<'_>) -> Result<()> {
    let (Spec::Uprobe { file, .. } | Spec::Usdt { file, .. }) = spec else { return Ok(()) };
    let files = files::find(system, file, options.pid)?;
    let one = files.len() == 1;
    for found in files {
        let object = match Object::open(system, &found) {
            Ok(object) => object,
            // Of many files those that are no programs are left out.
            Err(error) if one => return Err(error),
            Err(_) => continue,
        };
        match spec {
            Spec::Uprobe { returns, at: At::Function { name, demangled, .. }, .. } => {
                let kind = if *returns { "uretprobe" } else { "uprobe" };
                for (symbol, _) in functions(&object, name, *demangled) {
                    if output.ended {
                        return Ok(());
                    }
                    output.probe(&format!("{kind}:{}:{symbol}", found.shown), || {
                        demangle(&symbol).into_iter().collect()
                    });
                }
            }
            Spec::Usdt { provider, name, .. } => {
                let mut notes = usdt::notes(&object.elf, &object.data);
                notes.retain(|note| {
                    glob::matches(name, &note.name)
                        && provider.as_ref().is_none_or(|provider| glob::matches(provider, &note.provider))
                });
                notes.sort_by(|a, b| {
                    (&a.provider, &a.name, a.address).cmp(&(&b.provider, &b.name, b.address))
                });
                notes.dedup_by(|b, a| (&a.provider, &a.name) == (&b.provider, &b.name));
                for note in notes {
                    if output.ended {
                        return Ok(());
                    }
                    let full = format!("usdt:{}:{}:{}", found.shown, note.provider, note.name);
                    output.probe(&full, || {
                        note.arguments
                            .iter()
                            .enumerate()
                            .map(|(at, argument)| described(at, argument))
                            .collect()
                    });
                }
            }
            _ => output.line(&spec.to_string()),
        }
    }
    Ok(())
}

/// An argument of a USDT probe in words: `arg0: 4 bytes, signed, in edi`.
fn described(at: usize, argument: &std::result::Result<usdt::Argument, String>) -> String {
    let argument = match argument {
        Ok(argument) => argument,
        Err(text) => return format!("arg{at}: not understood ({text})"),
    };
    let place = match &argument.operand {
        Operand::Constant(value) => format!("always {value}"),
        Operand::Register(name) => format!("in {name}"),
        Operand::Memory { base, index, scale, displacement, symbol } => {
            let index = index.as_ref().map(|index| format!("{index}*{scale}"));
            let number = (*displacement != 0).then(|| displacement.to_string());
            let terms: Vec<String> =
                [symbol.clone(), base.clone(), index, number].into_iter().flatten().collect();
            format!("at {}", terms.join("+").replace("+-", "-"))
        }
    };
    let kind = match (argument.float, argument.signed) {
        (true, _) => ", floating point",
        (_, true) => ", signed",
        _ => "",
    };
    format!("arg{at}: {} bytes{kind}, {place}", argument.size)
}
