//! Probes of every kind: exactly as many firings as there were events, each with one outcome, and nothing left behind.
//!
//! These tests use the crate that attaches them, without a command line in between. Events come in prime numbers.

mod chosen;
mod counts;
mod gate;
mod harmless;
mod leftovers;
mod refused;

use lightfoot_kernel::probes::{Counts, Group, Options, Point, support};
use lightfoot_model::{Body, Mechanism};
use lightfoot_sites::Place;
use lightfoot_tests::{BpfKind, BpfObject, Privileged, privileged};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Events of each test.
const EVENTS: u64 = 10_007;

/// The turn of a test that needs this mechanism; `None`, and a word on it, where the kernel has it not.
#[track_caller]
fn turn(name: &str, mechanism: Mechanism) -> Option<Privileged> {
    let turn = privileged(name)?;
    match support::check(mechanism) {
        Ok(()) => Some(turn),
        // Not `out_of_reach`: no kernel has all kinds, and refused.rs tests that a missing one is told as such.
        Err(error) => {
            eprintln!("{name}: {error}");
            None
        }
    }
}

/// A group of one probe for this process alone, attached.
#[track_caller]
fn attached(options: Options, place: Place) -> Group {
    let what = format!("{} {}", options.mechanism.name(), options.body.name());
    let mut group = Group::load(&options).unwrap_or_else(|e| panic!("{what}: {}", chain(&e)));
    group.attach(&[Point { slot: 0, place }]).unwrap_or_else(|e| panic!("{what}: {}", chain(&e)));
    group
}

fn options(mechanism: Mechanism, body: Body) -> Options {
    // Room for the events of sessions, which fire twice.
    Options { pid: Some(std::process::id()), ring_bytes: 2 << 20, ..Options::new(mechanism, body) }
}

/// Detaches and reads the only slot; the identity must hold.
#[track_caller]
fn finished(group: &mut Group) -> Counts {
    group.detach().expect("detach");
    let counts = group.counts().expect("counts")[0];
    assert_eq!(
        counts.fired,
        counts.recorded + counts.filtered + counts.throttled + counts.lost,
        "the identity: {counts:?}"
    );
    assert!(counts.cut <= counts.throttled, "{counts:?}");
    counts
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Number of getppid on this architecture.
const GETPPID: u32 = if cfg!(target_arch = "x86_64") { 110 } else { 173 };

fn getppid_entry() -> Place {
    Place::Syscall { number: GETPPID, exit: false }
}

/// The function of the kernel that is getppid.
fn getppid_function() -> Place {
    let function = if cfg!(target_arch = "x86_64") { "__x64_sys_getppid" } else { "__arm64_sys_getppid" };
    Place::Kernel { function: function.into(), offset: 0 }
}

/// Ids of the BPF objects behind a process's descriptors.
fn objects(pid: u32) -> Vec<BpfObject> {
    let folder = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("fdinfo");
    let texts = folder.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let of = |text: &str| {
        let id = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u32>().ok());
        // A link also says which program it runs.
        match (id("link_id:"), id("prog_id:"), id("map_id:")) {
            (Some(id), ..) => Some(BpfObject { kind: BpfKind::Link, id }),
            (_, Some(id), _) => Some(BpfObject { kind: BpfKind::Program, id }),
            (_, _, Some(id)) => Some(BpfObject { kind: BpfKind::Map, id }),
            _ => None,
        }
    };
    texts.filter_map(|text| of(&text)).collect()
}

/// A child that talks through stdin and stdout; killed and waited for when dropped.
struct Talker {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Talker {
    fn start(command: &mut Command) -> Talker {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("child");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("stdout is piped"));
        Talker { child, stdin, stdout: BufReader::new(stdout) }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("child's stdout");
        line
    }

    fn json(&mut self) -> serde_json::Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("the child printed {line:?}: {e}"))
    }

    fn go(&mut self) {
        self.stdin.as_mut().expect("not closed").write_all(b"!").expect("child's stdin");
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
