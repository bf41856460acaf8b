//! nginx with TLS while its calls of OpenSSL are watched: not at all, at the first bytes, at the places that lightfoot chooses.

use super::blocks::{self, Pace, Progress, Seen, Watcher, Way};
use super::nginx::{self, Server};
use super::places::{self, Places};
use super::programs::Programs;
use super::report::{Case, Circumstances, Report};
use super::wrk::Load;
use super::{Error, Result, Settings, failed};
use crate::noise::Watch;
use crate::random::Random;
use lightfoot_kernel::probes::tls::{Manner, Tls};
use std::time::Duration;

/// Room for a hundred thousand calls between two reads of the ring.
const RING_BYTES: u32 = 8 << 20;

/// How often it is looked, ten milliseconds apart, whether all that was detached has ended.
const LAST_PROGRAMS: u32 = 500;

/// Runs it.
pub fn run(settings: &Settings, ending: &dyn Fn() -> bool, tell: &mut dyn FnMut(Progress)) -> Result<Report> {
    let programs = Programs::find()?;
    let watch = Watch::start();
    let cpus = nginx::two_cpus();
    let mut server = Server::start(&programs, &settings.sizes, true, cpus.map(|(server, _)| server))?;
    let library = server.libssl().ok_or_else(|| Error::Failed("the server has no libssl".into()))?.to_owned();
    let (naive, chosen) = (places::naive(&library)?, places::chosen(&library)?);
    let mut ways = vec![Way { name: "none", what: "not watched".into(), watcher: None, why: None }];
    if settings.every_way {
        ways.push(way("multi", Places { manner: Manner::Multi, ..naive.clone() })?);
        ways.push(way("session", Places { manner: Manner::Session, ..naive.clone() })?);
    }
    ways.push(way("naive", naive)?);
    ways.push(way("chosen", chosen)?);
    let mut random = Random::new(settings.seed);
    let mut cases = Vec::new();
    for (done, &size) in settings.sizes.iter().enumerate() {
        if ending() {
            break;
        }
        let mut load =
            Load::start(&programs, &server.url(size), settings.connections, cpus.map(|(_, load)| load))?;
        let time = settings.time / settings.sizes.len().max(1) as u32;
        let mut pace = Pace { block: settings.block, time, random: &mut random, ending };
        let mut progress = |rounds| tell(Progress { cases_done: done, cases: settings.sizes.len(), rounds });
        progress(0);
        warm_up(&mut server, &mut load, ending)?;
        let rounds = blocks::rounds(&mut server, &mut load, &mut ways, &mut pace, &mut progress)?;
        let summary = load.stop()?;
        cases.push(Case { size, rounds, summary });
    }
    let what = "nginx with TLS under wrk, its calls of SSL_read and SSL_write watched (lengths and times, never content)".into();
    Report::new(
        Circumstances { settings, what, cpus, versions: programs.versions(), disturbance: watch.end() },
        &ways,
        cases,
    )
}

/// Connections are made, files are opened, caches are filled: a fifth of a second of it.
pub(super) fn warm_up(server: &mut Server, load: &mut Load, ending: &dyn Fn() -> bool) -> Result<()> {
    const STEPS: u32 = 20;
    let before = server.reading()?.requests;
    for _ in 0..STEPS {
        std::thread::sleep(Duration::from_millis(10));
        if ending() {
            return Ok(());
        }
    }
    // Connections of TLS take the server's CPU, one after the other.
    let mut steps = STEPS;
    while server.reading()?.requests - before < u64::from(steps) + 100 {
        if !load.runs() || ending() || steps > 1_000 {
            return Err(Error::Failed(
                "the server is not asked for anything: the load (wrk) does not work".into(),
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
        steps += 1;
    }
    Ok(())
}

fn way(name: &'static str, places: Places) -> Result<Way> {
    let manner = match places.manner {
        Manner::One => "a perf event each",
        Manner::Multi => "multi links",
        Manner::Session => "a session",
    };
    let what = format!("{manner}; {}", places.words.join("; "));
    let (watcher, why): (Option<Box<dyn Watcher>>, _) = match Tls::load(places.manner, RING_BYTES) {
        Ok(tls) => (Some(Box::new(Watching { tls, places })), None),
        Err(error) if error.kind() == lightfoot_kernel::Kind::Unsupported => (None, Some(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    Ok(Way { name, what, watcher, why })
}

struct Watching {
    tls: Tls,
    places: Places,
}

impl Watcher for Watching {
    fn attach(&mut self, server: &Server) -> Result<()> {
        let library = server.libssl().ok_or_else(|| Error::Failed("the server has no libssl".into()))?;
        Ok(self.tls.attach(server.pid(), library, &self.places.functions)?)
    }

    fn detach(&mut self) -> Result<()> {
        self.tls.detach();
        // A program that was interrupted in its middle may still have to end.
        for _ in 0..LAST_PROGRAMS {
            self.tls.take()?;
            let (counts, received) = (self.tls.counts()?, self.tls.received());
            if counts.sent == received.events && counts.left == counts.sent + counts.lost {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(failed("events do not add up", format!("{:?}, {:?}", self.tls.counts()?, self.tls.received())))
    }

    fn take(&mut self) -> Result<()> {
        Ok(self.tls.take()?)
    }

    fn seen(&self) -> Result<Seen> {
        let (counts, received) = (self.tls.counts()?, self.tls.received());
        Ok(Seen {
            fired: counts.entered + counts.left + counts.stray,
            counted: counts.left,
            filtered: 0,
            sent: counts.sent,
            lost: counts.lost,
            received: received.events,
            dropped: 0,
            writes: received.writes,
            bytes_written: received.bytes_written,
        })
    }
}
