//! Programs on tracepoints: each event costs its fixed price whether anything is kept or not, so that the only way to spend less is to
//! detach them.

use super::forecast::Level;

/// Not attached again sooner than this, in ns.
const REST_NS: u64 = 300_000_000;
/// Without another count of the events one must attach to find out: not sooner than this, in ns.
const PROBE_NS: u64 = 1_000_000_000;
/// A probe lasts one step, about so long, in seconds.
const PROBE_S: f64 = 0.1;

/// The programs on one kind of event.
#[derive(Clone, Debug)]
pub struct Tap {
    attached: bool,
    /// Attached just now: the old forecast does not hold, and there is no new one yet.
    fresh: bool,
    /// Price of one event without what is taken there, in ns.
    each_ns: Level,
    /// Events per second.
    per_s: Level,
    /// Events per event of the other count.
    share: f64,
    detached_ns: u64,
    probe_after_ns: u64,
    /// Price of a probe, in ns, and of probing, in ns per second.
    probe_ns: f64,
    probing: f64,
}

impl Tap {
    /// Attached; `each_ns` is a first guess of the price of one event.
    pub fn new(each_ns: f64) -> Tap {
        Tap {
            attached: true,
            fresh: true,
            each_ns: Level::guess(each_ns),
            per_s: Level::default(),
            share: 1.0,
            detached_ns: 0,
            probe_after_ns: 0,
            probe_ns: 0.0,
            probing: 0.0,
        }
    }

    /// Takes in `s` seconds with `events` at `ns` in all. `outside`: events by another count.
    pub fn observe(&mut self, s: f64, events: u64, ns: f64, outside: Option<u64>) {
        if self.attached {
            self.fresh = false;
            self.per_s.update(events as f64 / s, s);
            if events > 0 {
                self.each_ns.update_mean(ns / events as f64, events as f64, s);
            }
            if let Some(outside) = outside.filter(|&n| n > 100) {
                self.share = (events as f64 / outside as f64).clamp(0.01, 100.0);
            }
        } else if let Some(outside) = outside {
            self.per_s.update(outside as f64 * self.share / s, s);
        }
    }

    /// What the events will cost while attached, in ns per second: for plans over seconds, and the excess just now.
    pub fn forecast(&self) -> (f64, f64) {
        if !self.attached || self.fresh {
            return (0.0, 0.0);
        }
        let each = self.each_ns.slow();
        (self.per_s.slow() * each, self.per_s.excess() * each)
    }

    /// Whether the programs are attached.
    pub fn attached(&self) -> bool {
        self.attached
    }

    /// What probing will cost, in ns per second, until it is known again what the events cost.
    pub fn probing(&self) -> f64 {
        if self.attached { 0.0 } else { self.probing }
    }

    /// Detaches if the events cost more than `allowed` ns per second; attaches if they would cost clearly less.
    ///
    /// Without another count of the events (`probe` is given) one must attach for a step to find out: as often as half of what is
    /// allowed pays for, and when `probe.room_ns` holds it, of which `probe.extra_ns` are for what is taken there.
    pub fn decide(&mut self, now_ns: u64, allowed: f64, probe: Option<Probe>) {
        let price = self.per_s.high() * self.each_ns.slow();
        if self.attached {
            if !self.fresh && price > allowed {
                self.attached = false;
                self.detached_ns = now_ns;
                self.probe_ns = price * PROBE_S + probe.map_or(0.0, |probe| probe.extra_ns);
                let half = 0.5 * allowed.max(1.0);
                let pause_s = (self.probe_ns / half).clamp(PROBE_NS as f64 / 1e9, 3600.0);
                self.probe_after_ns = now_ns.saturating_add((pause_s * 1e9) as u64);
                self.probing = probe.map_or(0.0, |_| half.min(self.probe_ns / pause_s));
            }
            return;
        }
        let rested = now_ns.saturating_sub(self.detached_ns) >= REST_NS;
        let attach = match probe {
            None => self.per_s.fast() * self.each_ns.slow() <= 0.6 * allowed,
            Some(probe) => allowed > 0.0 && now_ns >= self.probe_after_ns && probe.room_ns >= self.probe_ns,
        };
        if rested && attach {
            self.attached = true;
            self.fresh = true;
            // The storm that was may be over: what is seen now counts in full.
            self.per_s = Level::default();
        }
    }
}

/// See [`Tap::decide`].
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// What may be spent at once, in ns.
    pub room_ns: f64,
    /// What a probe costs besides the events, in ns.
    pub extra_ns: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 100_000_000;

    #[test]
    fn a_storm_detaches_within_a_step_and_its_end_attaches() {
        let mut tap = Tap::new(150.0);
        let mut now = 0;
        let mut step = |tap: &mut Tap, per_s: u64| {
            now += STEP;
            let seen = if tap.attached() { per_s / 10 } else { 0 };
            tap.observe(0.1, seen, seen as f64 * 150.0, Some(per_s / 10));
            tap.decide(now, 2e6, None);
        };
        for _ in 0..20 {
            step(&mut tap, 2_000);
            assert!(tap.attached());
        }
        step(&mut tap, 200_000);
        assert!(!tap.attached(), "30 ms/s are more than 2");
        for _ in 0..50 {
            step(&mut tap, 200_000);
            assert!(!tap.attached());
        }
        let steps = (1..=20).find(|_| {
            step(&mut tap, 2_000);
            tap.attached()
        });
        assert!(steps.is_some());
    }

    #[test]
    fn probes_cost_at_most_half_of_what_is_allowed() {
        let mut tap = Tap::new(150.0);
        let (mut now, mut spent) = (0, 0.0);
        for _ in 0..600 {
            now += STEP;
            let seen = if tap.attached() { 20_000 } else { 0 };
            spent += seen as f64 * 150.0;
            tap.observe(0.1, seen, seen as f64 * 150.0, None);
            tap.decide(now, 2e6, Some(Probe { room_ns: 40e6, extra_ns: 0.0 }));
        }
        assert!(spent / 60.0 <= 1.1e6, "{spent}");
        assert!(spent / 60.0 >= 0.4e6, "and it does look: {spent}");
    }
}
