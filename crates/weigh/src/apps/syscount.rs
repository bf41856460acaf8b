//! nginx under load while system calls are counted: its own, those of another process told apart in the kernel or in user space, and each
//! way with perf's tracepoints instead of the dispatcher.

use super::blocks::{self, Pace, Progress, Seen, Watcher, Way};
use super::nginx::{self, Server};
use super::programs::Programs;
use super::report::{Case, Circumstances, Report};
use super::wrk::Load;
use super::{Error, Result, Settings, calls, failed, tls};
use crate::noise::Watch;
use crate::random::Random;
use lightfoot_kernel::probes::{Group, Options, Point, support};
use lightfoot_kernel::spawn;
use lightfoot_model::{Body, Mechanism};
use lightfoot_sites::{Capabilities, Nop5, Spec};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Room for some hundred thousand events between two reads.
const RING_BYTES: u32 = 32 << 20;
/// How long it is looked which system calls the server makes.
const LOOK: Duration = Duration::from_millis(300);
/// Of the time, for the loop of one system call.
const LOOP_SHARE: f64 = 0.2;

/// Runs it.
pub fn run(settings: &Settings, ending: &dyn Fn() -> bool, tell: &mut dyn FnMut(Progress)) -> Result<Report> {
    let programs = Programs::find()?;
    support::check(Mechanism::RawTracepoint)
        .map_err(|error| Error::NotPossible(format!("system calls cannot be counted: {error}")))?;
    let watch = Watch::start();
    let cpus = nginx::two_cpus();
    let mut server = Server::start(&programs, &settings.sizes, false, cpus.map(|(server, _)| server))?;
    let other = Other::start()?;
    let all = probes("tracepoint:syscalls:sys_enter_*", Mechanism::RawTracepoint)?;
    let mut random = Random::new(settings.seed);
    let mut cases = Vec::new();
    let mut ways: Vec<Way> = Vec::new();
    for (done, &size) in settings.sizes.iter().enumerate() {
        if ending() {
            break;
        }
        let mut load =
            Load::start(&programs, &server.url(size), settings.connections, cpus.map(|(_, load)| load))?;
        tls::warm_up(&mut server, &mut load, ending)?;
        if ways.is_empty() {
            let made = made_by(server.pid(), &all)?;
            ways = all_ways(server.pid(), other.0.id(), &all, &made)?;
        }
        let time = settings.time.mul_f64(1.0 - LOOP_SHARE) / settings.sizes.len().max(1) as u32;
        let mut pace = Pace { block: settings.block, time, random: &mut random, ending };
        let mut progress = |rounds| tell(Progress { cases_done: done, cases: settings.sizes.len(), rounds });
        progress(0);
        let rounds = blocks::rounds(&mut server, &mut load, &mut ways, &mut pace, &mut progress)?;
        cases.push(Case { size, rounds, summary: load.stop()? });
    }
    drop((server, other));
    let what =
        "nginx under wrk while system calls are counted where they begin (sys_enter), all of them by number"
            .into();
    let calls = calls::run(settings.time.mul_f64(LOOP_SHARE), &mut random, ending)?;
    let circumstances =
        Circumstances { settings, what, cpus, versions: programs.versions(), disturbance: watch.end() };
    Ok(Report { calls, ..Report::new(circumstances, &ways, cases)? })
}

/// A process that does nothing: the one that is wanted when the server is not. Killed when dropped.
struct Other(Child);

impl Other {
    fn start() -> Result<Other> {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("sleep");
        command
            .arg("86400")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        spawn::ends_with_us(&mut command);
        command.spawn().map(Other).map_err(|e| failed("sleep", e))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // Its id is ours until it is waited for.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Probes with the names of the system calls that they count.
pub type Probes = Vec<(String, Point)>;

/// Resolves a spec of tracepoints for one mechanism, numbered.
pub fn probes(spec: &str, mechanism: Mechanism) -> Result<Probes> {
    let spec = Spec::parse(spec).map_err(|e| failed(spec, e))?;
    let naive = mechanism == Mechanism::Tracepoint;
    let capabilities = Capabilities::new([Mechanism::RawTracepoint, Mechanism::Tracepoint], Nop5::Trap);
    let options = lightfoot_sites::Options { naive, ..lightfoot_sites::Options::new(capabilities) };
    let sites = lightfoot_sites::resolve(&[spec], &options).map_err(|e| failed("system calls", e))?;
    let sites = sites.into_iter().filter(|site| site.mechanism == mechanism).enumerate();
    Ok(sites.map(|(slot, site)| (site.name, Point { slot: slot as u32, place: site.place })).collect())
}

/// Names of the probes that the server runs into, those of a moment.
fn made_by(pid: u32, all: &Probes) -> Result<Vec<String>> {
    let mut group =
        Group::load(&Options { pid: Some(pid), ..options(Mechanism::RawTracepoint, Body::Empty, all) })?;
    group.attach(&points(all))?;
    std::thread::sleep(LOOK);
    group.detach()?;
    let counts = group.counts()?;
    let made = all
        .iter()
        .filter(|(_, point)| counts.get(point.slot as usize).is_some_and(|counts| counts.recorded > 0));
    let made: Vec<String> = made.map(|(name, _)| name.clone()).collect();
    if made.is_empty() { Err(Error::Failed("the server makes no system calls".into())) } else { Ok(made) }
}

fn options(mechanism: Mechanism, body: Body, probes: &Probes) -> Options {
    Options { slots: probes.len().max(1) as u32, ring_bytes: RING_BYTES, ..Options::new(mechanism, body) }
}

fn points(probes: &Probes) -> Vec<Point> {
    probes.iter().map(|(_, point)| point.clone()).collect()
}

fn all_ways(server: u32, other: u32, all: &Probes, made: &[String]) -> Result<Vec<Way>> {
    let dispatcher =
        format!("one program on the raw tracepoint sys_enter for all {} system calls", all.len());
    let in_kernel = |name, what: String, pid, mechanism, probes: &Probes| {
        let options = Options { pid: Some(pid), ..options(mechanism, Body::Empty, probes) };
        way(name, what, &options, probes, None)
    };
    let raw = Mechanism::RawTracepoint;
    let mut ways = vec![
        Way { name: "none", what: "nothing is counted".into(), watcher: None, why: None },
        in_kernel("traced", format!("the server's are counted; {dispatcher}"), server, raw, all)?,
        in_kernel(
            "other_kernel",
            format!("another process's are counted; {dispatcher} compares the process"),
            other,
            raw,
            all,
        )?,
        way(
            "other_user",
            format!("another process's are counted in user space; {dispatcher} sends each to it"),
            &options(raw, Body::Event, all),
            all,
            Some(other),
        )?,
    ];
    let each = format!(
        "a perf event and a tracepoint syscalls:sys_enter_* for each of the {} that the server makes",
        made.len()
    );
    let names: Vec<String> =
        made.iter().map(|name| name.rsplit(':').next().unwrap_or(name).to_owned()).collect();
    let each = format!("{each} ({})", names.join(", "));
    let perf = support::check(Mechanism::Tracepoint).map_err(Error::from).and_then(|()| {
        let mut perf = Probes::new();
        for name in made {
            perf.extend(probes(name, Mechanism::Tracepoint)?);
        }
        for (slot, (_, point)) in perf.iter_mut().enumerate() {
            point.slot = slot as u32;
        }
        Ok(perf)
    });
    for (name, pid, whose) in [
        ("traced_perf", server, "the server's are counted"),
        ("other_perf", other, "another process's are counted"),
    ] {
        let what = format!("{whose}; {each}");
        ways.push(match &perf {
            Ok(perf) => in_kernel(name, what, pid, Mechanism::Tracepoint, perf)?,
            Err(error) => Way { name, what, watcher: None, why: Some(error.to_string()) },
        });
    }
    Ok(ways)
}

fn way(
    name: &'static str,
    what: String,
    options: &Options,
    probes: &Probes,
    wanted: Option<u32>,
) -> Result<Way> {
    match Group::load(options) {
        Ok(group) => {
            let counting = Counting {
                group,
                points: points(probes),
                body: options.body,
                wanted,
                received: 0,
                dropped: 0,
            };
            Ok(Way { name, what, watcher: Some(Box::new(counting)), why: None })
        }
        Err(error) if error.kind() == lightfoot_kernel::Kind::Unsupported => {
            Ok(Way { name, what, watcher: None, why: Some(error.to_string()) })
        }
        Err(error) => Err(error.into()),
    }
}

struct Counting {
    group: Group,
    points: Vec<Point>,
    body: Body,
    /// With events: the process that user space keeps.
    wanted: Option<u32>,
    received: u64,
    dropped: u64,
}

impl Watcher for Counting {
    fn attach(&mut self, _server: &Server) -> Result<()> {
        Ok(self.group.attach(&self.points)?)
    }

    fn detach(&mut self) -> Result<()> {
        self.group.detach()?;
        self.take()?;
        let seen = self.seen()?;
        if seen.sent != seen.received || seen.fired != seen.counted + seen.filtered + seen.sent + seen.lost {
            return Err(failed("events do not add up", format!("{seen:?}")));
        }
        Ok(())
    }

    fn take(&mut self) -> Result<()> {
        let (wanted, dropped) = (self.wanted, &mut self.dropped);
        let taken = self.group.events(|event| {
            if wanted.is_some_and(|wanted| event.pid != wanted) {
                *dropped += 1;
            }
        });
        self.received += taken as u64;
        Ok(())
    }

    fn seen(&self) -> Result<Seen> {
        let mut seen = Seen { received: self.received, dropped: self.dropped, ..Seen::default() };
        for counts in self.group.counts()? {
            seen.fired += counts.fired;
            seen.filtered += counts.filtered;
            seen.lost += counts.lost;
            if self.body == Body::Event {
                seen.sent += counts.recorded;
            } else {
                seen.counted += counts.recorded;
            }
        }
        Ok(seen)
    }
}

/// Time of one call of `work` on this thread's CPU clock, in ns.
pub fn thread_ns(work: impl FnOnce()) -> u64 {
    let start = lightfoot_kernel::os::thread_cpu_ns();
    work();
    lightfoot_kernel::os::thread_cpu_ns() - start
}

/// Wall time of `work`, in ms, and what it gives.
pub fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let value = work();
    (start.elapsed().as_secs_f64() * 1e3, value)
}
