//! The syntax of probes, bpftrace's: `uprobe:/bin/x:main`, `t:syscalls:sys_enter_*`, several separated by commas.

use crate::error::{Error, Result};
use crate::glob::is_glob;
use crate::place::Every;
use std::fmt;

/// One probe as it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Spec {
    /// `kprobe:[MODULE:]FUNCTION[+OFFSET]`, `kretprobe:[MODULE:]FUNCTION`; the function may be a glob.
    Kprobe {
        /// The return, not the entry.
        returns: bool,
        /// Only functions of this module; `vmlinux` is the kernel itself.
        module: Option<String>,
        /// Name or glob.
        function: String,
        /// Bytes from the function's start.
        offset: u64,
    },
    /// `fentry:[MODULE:]FUNCTION`, `fexit:...`; the function may be a glob.
    Fentry {
        /// The return, not the entry.
        returns: bool,
        /// Only functions of this module; `vmlinux` is the kernel itself.
        module: Option<String>,
        /// Name or glob.
        function: String,
    },
    /// `tracepoint:CATEGORY:NAME`; both may be globs.
    Tracepoint {
        /// Folder in tracefs.
        category: String,
        /// Name of the event.
        name: String,
    },
    /// `rawtracepoint:[MODULE:]NAME`; the name may be a glob.
    RawTracepoint {
        /// Name or glob.
        name: String,
    },
    /// `uprobe:FILE:FUNCTION[+OFFSET]`, `uprobe:FILE:ADDRESS`, `uretprobe:FILE:FUNCTION`; file and function may be globs.
    Uprobe {
        /// The return, not the entry.
        returns: bool,
        /// Path, or a name that is looked up.
        file: String,
        /// Where in it.
        at: At,
    },
    /// `usdt:FILE:[PROVIDER:]NAME`; all may be globs.
    Usdt {
        /// Path, or a name that is looked up.
        file: String,
        /// Only this provider's.
        provider: Option<String>,
        /// Name or glob.
        name: String,
    },
    /// `software:EVENT[:COUNT]`, `hardware:EVENT[:COUNT]`.
    Perf {
        /// `PERF_TYPE_HARDWARE`, not `PERF_TYPE_SOFTWARE`.
        hardware: bool,
        /// Name of the event.
        event: String,
        /// Fires each so many events; without it the event's usual number.
        count: Option<u64>,
    },
    /// `profile:UNIT:COUNT` (each CPU), `interval:UNIT:COUNT` (one CPU).
    Timer {
        /// `interval`.
        one_cpu: bool,
        /// How often.
        every: Every,
    },
}

/// A place in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum At {
    /// A function by its symbol.
    Function {
        /// Symbol or glob; with `demangled`, a name as the source has it.
        name: String,
        /// Bytes from its start.
        offset: u64,
        /// `cpp:`: the name is compared with demangled names only.
        demangled: bool,
    },
    /// An address as symbol tables have it (`nm`).
    Address(u64),
}

/// The kinds with all their names; the first is the one we print.
const KINDS: [(&str, &[&str]); 15] = [
    ("kprobe", &["kprobe", "k"]),
    ("kretprobe", &["kretprobe", "kr"]),
    ("fentry", &["fentry", "kfunc", "f"]),
    ("fexit", &["fexit", "kretfunc", "fr"]),
    ("tracepoint", &["tracepoint", "t"]),
    ("rawtracepoint", &["rawtracepoint", "rt"]),
    ("uprobe", &["uprobe", "u"]),
    ("uretprobe", &["uretprobe", "ur"]),
    ("usdt", &["usdt", "U"]),
    ("software", &["software", "s"]),
    ("hardware", &["hardware", "h"]),
    ("profile", &["profile", "p"]),
    ("interval", &["interval", "i"]),
    ("kprobe", &["kprobe_multi"]),
    ("kretprobe", &["kretprobe_multi"]),
];

/// The full name of a kind by any of its names.
pub(crate) fn kind_named(name: &str) -> Option<&'static str> {
    KINDS.iter().find(|(_, names)| names.contains(&name)).map(|(full, _)| *full)
}

impl Spec {
    /// Reads a list of probes.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`], naming the part that makes no sense and what would.
    pub fn parse_list(text: &str) -> Result<Vec<Spec>> {
        let specs: Vec<Spec> = split(text).into_iter().map(Spec::parse).collect::<Result<_>>()?;
        if specs.is_empty() {
            Err(Error::usage("no probe given; for example tracepoint:syscalls:sys_enter_read"))
        } else {
            Ok(specs)
        }
    }

    /// Reads one probe.
    ///
    /// # Errors
    /// As [`Spec::parse_list`].
    pub fn parse(text: &str) -> Result<Spec> {
        let text = text.trim();
        if text.is_empty() {
            return Err(Error::usage("an empty probe; for example uprobe:/bin/bash:readline"));
        }
        let parts = fields(text)?;
        let Some((kind, rest)) = parts.split_first() else { return Err(unknown_kind(text, "")) };
        let full = kind_named(kind).ok_or_else(|| unknown_kind(text, kind))?;
        let wrong = |form: &str| Error::usage(format!("{text}: a {full} is written {form}"));
        if rest.is_empty() || rest.iter().any(|part| part.trim().is_empty() && !full.starts_with('u')) {
            return Err(wrong(form(full)));
        }
        let returns = matches!(full, "kretprobe" | "fexit" | "uretprobe");
        match (full, rest) {
            ("kprobe" | "kretprobe", [.., last]) if rest.len() <= 2 => {
                let (function, offset) = with_offset(last, text)?;
                kernel_name(&function, text, full)?;
                if returns && offset != 0 {
                    return Err(Error::usage(format!(
                        "{text}: the return of a function has no offset; leave out +{offset}"
                    )));
                }
                if is_glob(&function) && offset != 0 {
                    return Err(Error::usage(format!("{text}: an offset needs one function, not a glob")));
                }
                Ok(Spec::Kprobe { returns, module: module(rest), function, offset })
            }
            ("fentry" | "fexit", [.., last]) if rest.len() <= 2 => {
                kernel_name(last, text, full)?;
                Ok(Spec::Fentry { returns, module: module(rest), function: last.clone() })
            }
            ("tracepoint", [category, name]) => {
                Ok(Spec::Tracepoint { category: category.clone(), name: name.clone() })
            }
            ("rawtracepoint", [.., name]) if rest.len() <= 2 => {
                Ok(Spec::RawTracepoint { name: name.clone() })
            }
            ("uprobe" | "uretprobe", [file, place @ ..]) if !place.is_empty() && !file.is_empty() => {
                let at = place_in_file(place, text)?;
                match &at {
                    At::Address(_) if returns => {
                        return Err(Error::usage(format!(
                            "{text}: a uretprobe needs a function, not an address"
                        )));
                    }
                    At::Function { offset, .. } if returns && *offset != 0 => {
                        return Err(Error::usage(format!(
                            "{text}: the return of a function has no offset; leave out +{offset}"
                        )));
                    }
                    At::Function { name, offset, .. } if is_glob(name) && *offset != 0 => {
                        return Err(Error::usage(format!(
                            "{text}: an offset needs one function, not a glob"
                        )));
                    }
                    _ => {}
                }
                Ok(Spec::Uprobe { returns, file: file.clone(), at })
            }
            ("usdt", [file, name]) if !file.is_empty() && !name.is_empty() => {
                Ok(Spec::Usdt { file: file.clone(), provider: None, name: name.clone() })
            }
            ("usdt", [file, provider, name]) if !file.is_empty() && !name.is_empty() => {
                let provider = (!provider.is_empty()).then(|| provider.clone());
                Ok(Spec::Usdt { file: file.clone(), provider, name: name.clone() })
            }
            ("software" | "hardware", [event, count @ ..]) if count.len() <= 1 => {
                let count = count.first().map(|count| number(count, text)).transpose()?;
                if count == Some(0) {
                    return Err(Error::usage(format!("{text}: a count of 0 never fires; give 1 or more")));
                }
                let hardware = full == "hardware";
                crate::events::config(hardware, event)
                    .ok_or_else(|| crate::events::unknown(hardware, event, text))?;
                Ok(Spec::Perf { hardware, event: event.clone(), count })
            }
            ("profile" | "interval", rest) => {
                let every = every(rest, text).ok_or_else(|| wrong(form(full)))??;
                Ok(Spec::Timer { one_cpu: full == "interval", every })
            }
            _ => Err(wrong(form(full))),
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plus = |offset: u64| if offset == 0 { String::new() } else { format!("+{offset}") };
        let within =
            |module: &Option<String>| module.as_ref().map_or(String::new(), |module| format!("{module}:"));
        match self {
            Spec::Kprobe { returns, module, function, offset } => {
                let kind = if *returns { "kretprobe" } else { "kprobe" };
                write!(f, "{kind}:{}{function}{}", within(module), plus(*offset))
            }
            Spec::Fentry { returns, module, function } => {
                write!(f, "{}:{}{function}", if *returns { "fexit" } else { "fentry" }, within(module))
            }
            Spec::Tracepoint { category, name } => write!(f, "tracepoint:{category}:{name}"),
            Spec::RawTracepoint { name } => write!(f, "rawtracepoint:{name}"),
            Spec::Uprobe { returns, file, at } => {
                let kind = if *returns { "uretprobe" } else { "uprobe" };
                match at {
                    At::Function { name, offset, demangled } => {
                        write!(
                            f,
                            "{kind}:{file}:{}{name}{}",
                            if *demangled { "cpp:" } else { "" },
                            plus(*offset)
                        )
                    }
                    At::Address(address) => write!(f, "{kind}:{file}:{address:#x}"),
                }
            }
            Spec::Usdt { file, provider, name } => match provider {
                Some(provider) => write!(f, "usdt:{file}:{provider}:{name}"),
                None => write!(f, "usdt:{file}:{name}"),
            },
            Spec::Perf { hardware, event, count } => {
                let count = count.map_or(String::new(), |count| format!(":{count}"));
                write!(f, "{}:{event}{count}", if *hardware { "hardware" } else { "software" })
            }
            Spec::Timer { one_cpu, every } => {
                let kind = if *one_cpu { "interval" } else { "profile" };
                match every {
                    Every::Hertz(hz) => write!(f, "{kind}:hz:{hz}"),
                    Every::Period(ns) => match *ns {
                        ns if ns % 1_000_000_000 == 0 => write!(f, "{kind}:s:{}", ns / 1_000_000_000),
                        ns if ns % 1_000_000 == 0 => write!(f, "{kind}:ms:{}", ns / 1_000_000),
                        ns => write!(f, "{kind}:us:{}", ns / 1_000),
                    },
                }
            }
        }
    }
}

/// How a kind is written.
fn form(kind: &str) -> &'static str {
    match kind {
        "kprobe" => "kprobe:FUNCTION, kprobe:FUNCTION+OFFSET or kprobe:MODULE:FUNCTION",
        "kretprobe" => "kretprobe:FUNCTION or kretprobe:MODULE:FUNCTION",
        "fentry" => "fentry:FUNCTION or fentry:MODULE:FUNCTION",
        "fexit" => "fexit:FUNCTION or fexit:MODULE:FUNCTION",
        "tracepoint" => "tracepoint:CATEGORY:NAME, for example tracepoint:sched:sched_switch",
        "rawtracepoint" => "rawtracepoint:NAME, for example rawtracepoint:sched_switch",
        "uprobe" => "uprobe:FILE:FUNCTION, uprobe:FILE:FUNCTION+OFFSET or uprobe:FILE:0xADDRESS",
        "uretprobe" => "uretprobe:FILE:FUNCTION",
        "usdt" => "usdt:FILE:PROVIDER:NAME or usdt:FILE:NAME",
        "software" => "software:EVENT or software:EVENT:COUNT, for example software:faults:100",
        "hardware" => "hardware:EVENT or hardware:EVENT:COUNT, for example hardware:cache-misses:1000000",
        "profile" => "profile:hz:RATE or profile:s|ms|us:NUMBER, for example profile:hz:99",
        _ => "interval:s|ms|us:NUMBER or interval:hz:RATE, for example interval:s:1",
    }
}

fn unknown_kind(text: &str, kind: &str) -> Error {
    let names: Vec<&str> = KINDS.iter().map(|(full, _)| *full).take(13).collect();
    match crate::near::nearest(kind, names.iter().copied(), 1).first() {
        Some(near) => Error::usage(format!("{text}: unknown kind of probe \"{kind}\"; did you mean {near}?")),
        None => {
            Error::usage(format!("{text}: unknown kind of probe \"{kind}\"; known are {}", names.join(", ")))
        }
    }
}

fn module(rest: &[String]) -> Option<String> {
    (rest.len() == 2).then(|| rest[0].clone())
}

fn kernel_name(name: &str, text: &str, kind: &str) -> Result<()> {
    if name.contains([',', ' ', '\t']) {
        return Err(Error::usage(format!("{text}: each probe needs its kind: {kind}:FIRST,{kind}:SECOND")));
    }
    Ok(())
}

/// `FUNCTION+OFFSET`: the offset is what follows the last plus, if it is a number (C++ has `operator+`).
fn with_offset(name: &str, text: &str) -> Result<(String, u64)> {
    match name.rsplit_once('+') {
        Some((function, offset))
            if !function.is_empty() && offset.starts_with(|c: char| c.is_ascii_digit()) =>
        {
            Ok((function.to_owned(), number(offset, text)?))
        }
        _ => Ok((name.to_owned(), 0)),
    }
}

/// What follows the file of a uprobe. Colons belong to it: C++ and Rust names have them.
fn place_in_file(place: &[String], text: &str) -> Result<At> {
    let demangled = place.len() > 1 && place[0] == "cpp";
    let name = if demangled { place[1..].join(":") } else { place.join(":") };
    if name.is_empty() {
        return Err(Error::usage(format!("{text}: a function is missing; {}", form("uprobe"))));
    }
    if !demangled && name.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(At::Address(number(&name, text)?));
    }
    let (name, offset) = with_offset(&name, text)?;
    Ok(At::Function { name, offset, demangled })
}

/// A number: decimal or with `0x`; `_` may separate digits, `e` stands for zeros (`1e6`).
fn number(digits: &str, text: &str) -> Result<u64> {
    let plain = digits.replace('_', "");
    let parsed = match plain.strip_prefix("0x").or_else(|| plain.strip_prefix("0X")) {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok(),
        None => match plain.split_once('e') {
            Some((digits, zeros)) => zeros
                .parse::<u32>()
                .ok()
                .and_then(|zeros| 10_u64.checked_pow(zeros))
                .and_then(|factor| digits.parse::<u64>().ok()?.checked_mul(factor)),
            None => plain.parse().ok(),
        },
    };
    parsed.ok_or_else(|| {
        Error::usage(format!("{text}: \"{digits}\" is not a number (decimal, or hexadecimal with 0x)"))
    })
}

/// `hz:99`, `ms:10`, `10ms`, `99`. `None` if it has another form.
fn every(rest: &[String], text: &str) -> Option<Result<Every>> {
    let (unit, count) = match rest {
        [unit, count] => (unit.as_str(), count.as_str()),
        [both] => {
            let digits = both.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(both.len());
            (if digits == both.len() { "hz" } else { &both[digits..] }, &both[..digits])
        }
        _ => return None,
    };
    let factor = match unit {
        "hz" => 0,
        "s" => 1_000_000_000,
        "ms" => 1_000_000,
        "us" => 1_000,
        _ => {
            return Some(Err(Error::usage(format!(
                "{text}: unknown unit \"{unit}\"; known are hz, s, ms, us"
            ))));
        }
    };
    let count = match number(count, text) {
        Ok(count) => count,
        Err(error) => return Some(Err(error)),
    };
    let every = match (factor, count.checked_mul(factor)) {
        (_, _) if count == 0 => Err(Error::usage(format!("{text}: 0 never fires; give 1 or more"))),
        (0, _) => Ok(Every::Hertz(count)),
        (_, Some(period)) => Ok(Every::Period(period)),
        (_, None) => Err(Error::usage(format!("{text}: {count} {unit} is too long"))),
    };
    Some(every)
}

/// Splits at commas that another probe follows: names of C++ functions have commas, too.
fn split(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut quoted) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => {
                let next = text[at + 1..].trim_start();
                let word = next.split(':').next().unwrap_or_default();
                let ends = next.is_empty() || (next.contains(':') && kind_named(word.trim()).is_some());
                if ends {
                    pieces.push(&text[start..at]);
                    start = at + 1;
                }
            }
            _ => {}
        }
    }
    pieces.push(&text[start..]);
    pieces.retain(|piece| !piece.trim().is_empty());
    pieces
}

/// Splits at colons that are not in quotes; quotes are taken away.
fn fields(text: &str) -> Result<Vec<String>> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            ':' if !quoted => parts.push(String::new()),
            c => {
                if let Some(last) = parts.last_mut() {
                    last.push(c);
                }
            }
        }
    }
    if quoted {
        return Err(Error::usage(format!("{text}: a quote is not closed")));
    }
    Ok(parts)
}
