//! The corpus: programs whose stacks are known from root to leaf (`programs/corpus`), and the judgement of a profile of one of them.

use crate::{Report, Stack, program};
use std::collections::{BTreeMap, HashMap};
use std::process::Command;

/// One program as it is to be run, and its truth.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The binary's name.
    pub name: &'static str,
    /// Its arguments.
    pub arguments: &'static str,
    /// What samples can look like, by the function they are in.
    pub chains: &'static [Chain],
    /// Where a stack may begin: patterns of the first frames (see [`Chain::frames`]).
    pub roots: &'static [&'static str],
    /// How its stacks end: `complete`, but for those deeper than the limit.
    pub outcome: &'static str,
    /// The same program with symbols, if this one has none.
    pub symbols: Option<&'static str>,
}

/// A known way to a function.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// From the root, separated by `;`. `...` is one frame or more of any name, `@FILE` one frame in that object, `name*N` N frames of
    /// that name. Behind the last one anything may follow (what was inlined into it, what it calls).
    pub frames: &'static str,
    /// Share of the CPU time among all chains that have one, if it is known in advance.
    pub share: Option<f64>,
}

const fn chain(frames: &'static str, percent: u32) -> Chain {
    Chain { frames, share: Some(percent as f64 / 100.0) }
}

const fn some(frames: &'static str) -> Chain {
    Chain { frames, share: None }
}

/// A program, or the dynamic linker before it.
const STARTED: &[&str] = &["_start", "@ld-linux-x86-64.so.2", "@ld-linux-aarch64.so.1"];
/// A thread of libc's, besides. The second and third are for libc inside the program.
const THREADED: &[&str] = &[
    "_start",
    "@ld-linux-x86-64.so.2",
    "@ld-linux-aarch64.so.1",
    "@libc.so.6",
    "clone",
    "clone3",
    "__clone3",
];
/// Goroutines; threads of the runtime on their own stacks; the first moments.
const GO: &[&str] = &[
    "runtime.goexit",
    "runtime.mstart",
    "runtime.rt0_go",
    "_rt0_amd64_linux",
    "_rt0_amd64",
    "runtime.mcall",
    "runtime.morestack",
    "_start",
    "@libc.so.6",
    "@ld-linux-x86-64.so.2",
];

const CHAIN: &[Chain] = &[
    chain("_start;...;main;outer;middle;leaf_a", 50),
    chain("_start;...;main;outer;middle;leaf_b", 30),
    chain("_start;...;main;outer;leaf_c", 20),
];
const SIGNALS: &[Chain] = &[
    some("_start;...;main;work;work_leaf"),
    some("_start;...;main;...;on_signal;handle;handler_leaf"),
    some("_start;...;main;fault;faulting;...;on_fault;fault_leaf"),
];
const THROWS: &[Chain] = &[
    some("_start;...;main;run;catcher;...;landing_leaf"),
    some("_start;...;main;run;catcher;caught_leaf"),
    some("_start;...;main;run;catcher;dive*10;thrower"),
];
const CALLBACKS: &[Chain] = &[
    some("_start;...;main;by_qsort;...;compare_c;compare_leaf"),
    some("_start;...;main;by_std_sort;...;compare_cpp;compare_cpp_leaf"),
    some("_start;...;main;by_function;...;function_leaf"),
    some("_start;...;main;by_virtual;Derived::call;virtual_leaf"),
    some("_start;...;main;by_stream;...;Counting::overflow;stream_leaf"),
    some("_start;...;main;by_once;...;once_leaf"),
];
const RUSTY: &[Chain] = &[
    some("_start;...;main;...;outer;middle;leaf_a"),
    some("_start;...;main;...;outer;...;compare;leaf_b"),
    some("_start;...;main;...;caught;...;panics"),
    some("...;in_thread;leaf_c"),
];
const GOPHER: &[Chain] = &[
    some("runtime.goexit;runtime.main;main.main;main.outer;main.middle;main.leafA"),
    some("runtime.goexit;...;main.inGoroutine;main.leafC"),
    some("runtime.goexit;...;main.grow*101;main.leafB"),
];

const fn built(name: &'static str) -> Program {
    Program {
        name,
        arguments: "--cpu-ms 2000",
        chains: CHAIN,
        roots: STARTED,
        outcome: "complete",
        symbols: None,
    }
}

const fn of(name: &'static str, chains: &'static [Chain]) -> Program {
    Program { chains, ..built(name) }
}

/// Every program, without those that only a compiler makes that this machine does not have.
pub fn corpus() -> Vec<Program> {
    CORPUS.iter().copied().filter(|one| program(one.name).exists()).collect()
}

/// All that there may be.
pub const CORPUS: &[Program] = &[
    built("c_plain"),
    built("c_static"),
    built("c_static_pie"),
    Program { symbols: Some("c_plain"), ..built("c_stripped") },
    Program { symbols: Some("c_plain"), ..built("c_no_sections") },
    built("c_no_eh"),
    built("c_debug_frame"),
    built("c_debug_frame_z"),
    built("c_cet"),
    built("c_frame_pointers"),
    built("c_no_pie"),
    built("c_now"),
    built("c_gold"),
    built("c_clang"),
    of("throws", THROWS),
    of("throws_static", THROWS),
    Program { roots: THREADED, ..of("callbacks", CALLBACKS) },
    Program { roots: THREADED, ..of("callbacks_static", CALLBACKS) },
    of("signals", SIGNALS),
    Program { arguments: "--cpu-ms 2000 --altstack", ..of("signals", SIGNALS) },
    of(
        "jumps",
        &[
            chain("_start;...;main;turn;descend*20;jump_leaf", 50),
            chain("_start;...;main;turn;landed_leaf", 50),
        ],
    ),
    Program {
        roots: &[
            "_start",
            "@ld-linux-x86-64.so.2",
            "@ld-linux-aarch64.so.1",
            "@libc.so.6;fiber",
            "@libc.so.6;@libc.so.6",
        ],
        ..of(
            "contexts",
            &[
                chain("@libc.so.6;fiber;in_fiber;fiber_leaf", 75),
                chain("_start;...;main;schedule;schedule_leaf", 25),
            ],
        )
    },
    Program {
        roots: &["_start", "@ld-linux-x86-64.so.2", "green_marked", "green_bare"],
        ..of("green", &[some("...;green_body;green_leaf"), some("_start;...;main;rotate;rotate_leaf")])
    },
    Program {
        arguments: "900 --cpu-ms 2000",
        ..of("recursion", &[some("_start;...;main;descend*900;bottom_leaf")])
    },
    Program {
        arguments: "5000 --cpu-ms 2000",
        roots: &["descend", "_start", "@ld-linux-x86-64.so.2"],
        outcome: "truncated",
        ..of("recursion", &[some("descend*1000;...;bottom_leaf")])
    },
    of(
        "aligned",
        &[
            some("_start;...;main;aligned;aligned_leaf"),
            some("_start;...;main;variable;variable_leaf"),
            some("_start;...;main;both;both_leaf"),
            some("_start;...;main;spilled;spilled_leaf"),
        ],
    ),
    of(
        "tiny",
        &[
            some("_start;...;main;tree;fib"),
            some("_start;...;main;calls;push_pop"),
            some("_start;...;main;calls;bare"),
        ],
    ),
    of(
        "linkage",
        &[
            some("_start;...;main;bound;call_many"),
            some("_start;...;main;binding;call_many;@ld-linux-x86-64.so.2"),
        ],
    ),
    of(
        "libraries",
        &[
            some("_start;...;main;by_memory"),
            some("_start;...;main;by_text"),
            some("_start;...;main;by_math"),
            some("_start;...;main;by_heap"),
            some("_start;...;main;by_print"),
            some("_start;...;main;by_kernel"),
        ],
    ),
    Program {
        roots: THREADED,
        ..of(
            "pthreads",
            &[
                chain("@libc.so.6;@libc.so.6;body;in_thread;thread_leaf", 80),
                chain("@libc.so.6;...;at_exit;thread_exit_leaf", 20),
            ],
        )
    },
    of("clock", &[some("_start;...;main;read_clock"), some("_start;...;main;read_time")]),
    of(
        "reuse",
        &[
            chain("_start;...;main;call_library;reuse_a;reuse_a_leaf", 70),
            chain("_start;...;main;call_library;reuse_b;reuse_b_leaf", 30),
        ],
    ),
    of(
        "coroutines",
        &[chain("_start;...;main;drive;...;body_leaf", 60), chain("_start;...;main;drive;drive_leaf", 40)],
    ),
    Program { arguments: "2000", roots: THREADED, ..of("rusty_release", RUSTY) },
    Program {
        arguments: "2000",
        roots: THREADED,
        symbols: Some("rusty_release"),
        ..of("rusty_stripped", RUSTY)
    },
    Program { arguments: "2000", roots: GO, ..of("gopher", GOPHER) },
    Program { arguments: "2000", roots: GO, ..of("gopher_pie", GOPHER) },
    Program { arguments: "2000", roots: GO, symbols: Some("gopher"), ..of("gopher_stripped", GOPHER) },
    Program {
        arguments: "2000",
        roots: GO,
        ..of("gopher_c", &[some("runtime.goexit;runtime.main;main.main;main.callC;...;c_middle;c_leaf")])
    },
];

/// What a profile says about a program.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Samples that should have been whole: recorded, lost and failed.
    pub samples: u64,
    /// Those with the outcome that the program's truth says.
    pub as_expected: u64,
    /// Samples by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Complete stacks that begin where no stack of this program can begin.
    pub wrong_roots: u64,
    /// For each chain: samples in its last function, those that came the known way, and the share of the former.
    pub chains: Vec<Seen>,
    /// Stacks that are not as they should be, heaviest first, for messages.
    pub evidence: Vec<String>,
}

/// How a chain was seen.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The chain.
    pub frames: &'static str,
    /// Samples through its last function.
    pub through: u64,
    /// Those that came the known way.
    pub whole: u64,
    /// True share and measured one, if there is one.
    pub share: Option<(f64, f64)>,
}

impl Verdict {
    /// Share of the samples that ended as expected, 0 to 1.
    pub fn complete(&self) -> f64 {
        self.as_expected as f64 / self.samples.max(1) as f64
    }

    /// Everything that is wrong, one line each; empty if nothing is. `complete` is the share that has to end as expected.
    pub fn complaints(&self, complete: f64) -> Vec<String> {
        let mut said = Vec::new();
        if self.samples < 200 {
            said.push(format!("only {} samples", self.samples));
        }
        if self.complete() < complete {
            let percent = self.complete() * 100.0;
            said.push(format!("{percent:.2} % of {} stacks as expected: {:?}", self.samples, self.outcomes));
        }
        if self.wrong_roots > 0 {
            said.push(format!("{} complete stacks with a wrong root", self.wrong_roots));
        }
        for seen in &self.chains {
            let Seen { frames, through, whole, share } = seen;
            // What is not complete has been counted above.
            if *through < 2 || (*whole as f64) < *through as f64 * complete - 1.0 {
                said.push(format!("{frames}: {whole} of {through} came this way"));
            }
            if let Some((truth, measured)) = share
                && (truth - measured).abs() > crate::tolerance(*truth, self.samples)
            {
                said.push(format!("{frames}: {measured:.4} of the time, truly {truth:.4}"));
            }
        }
        if !said.is_empty() {
            said.extend(self.evidence.iter().cloned());
        }
        said
    }
}

/// Judges a profile of one run of `program` as a command.
pub fn judge(report: &Report, of: &Program) -> Verdict {
    let namer = Namer::new(of);
    let stacks: Vec<(&Stack, Vec<Frame>)> =
        report.stacks.iter().map(|stack| (stack, namer.frames(report, stack))).collect();
    let patterns: Vec<Vec<Token>> = of.chains.iter().map(|chain| tokens(chain.frames)).collect();
    let roots: Vec<Vec<Token>> = of.roots.iter().map(|root| tokens(root)).collect();
    let mut outcomes = BTreeMap::new();
    let (mut as_expected, mut wrong_roots) = (0, 0);
    let mut seen: Vec<(u64, u64)> = vec![(0, 0); patterns.len()];
    let mut bad: HashMap<String, u64> = HashMap::new();
    for (stack, frames) in &stacks {
        *outcomes.entry(stack.outcome.clone()).or_insert(0) += stack.count;
        // Deep programs are at the top of their stack for a moment.
        let expected = stack.outcome == of.outcome || stack.outcome == "complete";
        as_expected += if expected { stack.count } else { 0 };
        let rooted = frames.is_empty() || roots.iter().any(|root| matches(root, frames));
        if stack.outcome == "complete" && !rooted {
            wrong_roots += stack.count;
        }
        let mut lost_way = None;
        for (pattern, (through, whole)) in patterns.iter().zip(&mut seen) {
            if through_last(pattern, frames) {
                *through += stack.count;
                if matches(pattern, frames) {
                    *whole += stack.count;
                } else {
                    lost_way = pattern.last();
                }
            }
        }
        if !expected || (stack.outcome == "complete" && !rooted) || lost_way.is_some() {
            let shown = frames.len().saturating_sub(14);
            let names: Vec<&str> = frames[shown..].iter().map(|frame| &*frame.name).collect();
            let more = if shown > 0 { format!("({shown} more);") } else { String::new() };
            *bad.entry(format!("[{}] {more}{}", stack.outcome, names.join(";"))).or_default() += stack.count;
        }
    }
    let mut bad: Vec<(String, u64)> = bad.into_iter().collect();
    bad.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let all: u64 = of.chains.iter().zip(&seen).filter(|(c, _)| c.share.is_some()).map(|(_, s)| s.0).sum();
    let chains = of.chains.iter().zip(&seen).map(|(chain, &(through, whole))| Seen {
        frames: chain.frames,
        through,
        whole,
        share: chain.share.map(|truth| (truth, through as f64 / all.max(1) as f64)),
    });
    Verdict {
        samples: report.count(|_| true) + report.accounting.lost + report.accounting.failed,
        as_expected,
        outcomes,
        wrong_roots,
        chains: chains.collect(),
        evidence: bad.into_iter().take(6).map(|(text, count)| format!("{count} x {text}")).collect(),
    }
}

struct Frame {
    /// Without arguments and clones.
    name: String,
    /// File name of the object.
    object: String,
}

#[derive(Debug)]
enum Token {
    Name(String),
    Object(String),
    Any,
}

fn tokens(pattern: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for word in pattern.split(';') {
        match (word.split_once('*'), word.strip_prefix('@')) {
            (Some((name, count)), _) => {
                let count = count.parse().expect("a number behind *");
                tokens.extend((0..count).map(|_| Token::Name(name.to_string())));
            }
            (_, Some(object)) => tokens.push(Token::Object(object.to_string())),
            _ if word == "..." => tokens.push(Token::Any),
            _ => tokens.push(Token::Name(word.to_string())),
        }
    }
    tokens
}

impl Token {
    fn fits(&self, frame: &Frame) -> bool {
        match self {
            Token::Name(name) => {
                frame.name == *name
                    || frame.name.strip_suffix(".abi0").or(frame.name.strip_suffix(".0")) == Some(name)
            }
            Token::Object(object) => frame.object == *object,
            Token::Any => true,
        }
    }
}

/// Whether the stack begins as the pattern says.
fn matches(pattern: &[Token], frames: &[Frame]) -> bool {
    match (pattern, frames) {
        ([], _) => true,
        (_, []) => false,
        ([Token::Any, rest @ ..], [_, frames @ ..]) => {
            (0..=frames.len()).any(|skipped| matches(rest, &frames[skipped..]))
        }
        ([token, rest @ ..], [frame, frames @ ..]) => token.fits(frame) && matches(rest, frames),
    }
}

/// Whether the stack goes through what the pattern ends with: the last name, with the name before it where the last one is no name
/// of the program's own (an object) or not unique.
fn through_last(pattern: &[Token], frames: &[Frame]) -> bool {
    let Some(last) = pattern.last() else { return false };
    match (last, pattern.iter().rev().nth(1)) {
        (Token::Object(_), Some(before)) => {
            frames.windows(2).any(|pair| before.fits(&pair[0]) && last.fits(&pair[1]))
        }
        (Token::Name(name), Some(before)) if ["main.leafB", "call_many"].contains(&name.as_str()) => {
            frames.windows(2).any(|pair| before.fits(&pair[0]) && last.fits(&pair[1]))
        }
        _ => frames.iter().any(|frame| last.fits(frame)),
    }
}

/// Names of frames, those of a program without symbols from its twin with symbols.
struct Namer {
    prefix: String,
    /// By file offset: (end, name).
    symbols: BTreeMap<u64, (u64, String)>,
}

impl Namer {
    fn new(of: &Program) -> Namer {
        let prefix = format!("[{}+0x", of.name);
        let symbols = of.symbols.map(symbols).unwrap_or_default();
        Namer { prefix, symbols }
    }

    fn frames(&self, report: &Report, stack: &Stack) -> Vec<Frame> {
        let table = &report.json["frames"];
        let frame = |(name, &id): (&String, &usize)| Frame {
            name: self.name(name),
            object: table[id]["object"].as_str().unwrap_or("").rsplit('/').next().unwrap_or("").to_string(),
        };
        stack.frames.iter().zip(&stack.frame_ids).map(frame).collect()
    }

    fn name(&self, shown: &str) -> String {
        let offset = shown.strip_prefix(&self.prefix).and_then(|rest| rest.strip_suffix(']'));
        if let Some(offset) = offset.and_then(|digits| u64::from_str_radix(digits, 16).ok())
            && let Some((_, (end, name))) = self.symbols.range(..=offset).next_back()
            && offset < *end
        {
            return name.clone();
        }
        // Arguments, and the compiler's marks of parts and copies.
        let cut = shown.split(" [clone").next().unwrap_or(shown);
        let cut = cut.strip_suffix(".cold").unwrap_or(cut);
        let cut = if cut.starts_with(['[', '(', '<']) { cut } else { cut.split('(').next().unwrap_or(cut) };
        cut.to_string()
    }
}

/// Functions of a program by file offset, as `nm` and `readelf` know them.
fn symbols(name: &str) -> BTreeMap<u64, (u64, String)> {
    let path = program(name);
    let output = |command: &mut Command| {
        let output = command.arg(&path).output().expect("binutils");
        assert!(output.status.success(), "{command:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    // LOAD OFFSET VADDR PADDR FILESIZE MEMSIZE FLAGS ALIGN
    let segments: Vec<(u64, u64, u64)> = output(Command::new("readelf").arg("-lW"))
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.first() == Some(&"LOAD") && words[6..].contains(&"E"))
        .filter_map(|words| Some((hex(words[1])?, hex(words[2])?, hex(words[4])?)))
        .collect();
    let mut found: HashMap<u64, (u64, String)> = HashMap::new();
    for line in output(Command::new("nm").args(["-S", "--defined-only", "-C"])).lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let [start, size, kind, name] = words[..] else { continue };
        if let (Some(start), Some(size), "t" | "T" | "w" | "W") = (hex(start), hex(size), kind)
            && let Some((offset, vaddr, _)) = segments.iter().find(|(_, v, n)| (*v..v + n).contains(&start))
        {
            let at = start - vaddr + offset;
            let name = name.split("::h").next().unwrap_or(name).split('(').next().unwrap_or(name);
            found.insert(at, (at + size, name.to_string()));
        }
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, stack: &str) -> bool {
        let frames: Vec<Frame> = stack
            .split(';')
            .map(|word| match word.split_once('@') {
                Some((name, object)) => Frame { name: name.into(), object: object.into() },
                None => Frame { name: word.into(), object: String::new() },
            })
            .collect();
        matches(&tokens(pattern), &frames)
    }

    #[test]
    fn patterns_are_from_the_root() {
        assert!(fits("_start;...;main;a;b", "_start;x@libc.so.6;y;main;a;b"));
        assert!(fits("_start;...;main;a", "_start;x;main;a;inlined;more"));
        assert!(!fits("_start;...;main;a;b", "_start;x;main;b"));
        assert!(!fits("_start;...;main", "_start;main"), "... is one frame at least");
        assert!(!fits("main;a", "_start;main;a"));
        assert!(fits("a*3;b", "a;a;a;b") && !fits("a*3;b", "a;a;b") && !fits("a*3;b", "a;a;a;a;b"));
        assert!(fits("@libc.so.6;f", "?@libc.so.6;f") && !fits("@libc.so.6;f", "?@ld.so;f"));
    }

    #[test]
    fn every_pattern_can_be_read() {
        for program in CORPUS {
            assert!(!program.chains.is_empty() && !program.roots.is_empty(), "{}", program.name);
            program.chains.iter().for_each(|chain| drop(tokens(chain.frames)));
            let shares: f64 = program.chains.iter().filter_map(|chain| chain.share).sum();
            assert!(
                shares == 0.0 || (shares - 1.0).abs() < 1e-9,
                "{}: shares add up to {shares}",
                program.name
            );
        }
    }
}
