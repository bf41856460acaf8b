//! The gate, the filter, and what happens where there is no room.

use super::*;
use lightfoot_kernel::probes::targets;

const KIND: Mechanism = Mechanism::UprobeMulti;

/// A random one in N: each firing is recorded or throttled, and those recorded stand for all.
#[test]
fn one_in_n_is_unbiased() {
    let Some(_turn) = turn("one_in_n_is_unbiased", KIND) else { return };
    let target = &targets::all()[0];
    for n in [1u32, 2, 10, 101] {
        let gated = Options { gate: true, ..options(KIND, Body::Simple) };
        let mut group = attached(gated, target.place.clone());
        group.set_one_in(0, n).expect("gate");
        target.run(EVENTS);
        let counts = finished(&mut group);
        assert_eq!(counts.fired, EVENTS);
        assert_eq!(counts.recorded + counts.throttled, EVENTS, "{counts:?}");
        assert_eq!(counts.weighed, counts.recorded * u64::from(n));
        assert_eq!(group.body_total().expect("total"), counts.weighed, "the body counts weights");
        let (p, events) = (1.0 / f64::from(n), EVENTS as f64);
        // 4.5 standard deviations of a binomial.
        let allowed = 4.5 * (p * (1.0 - p) * events).sqrt();
        let off = counts.recorded as f64 - p * events;
        assert!(off.abs() <= allowed, "1 in {n}: {} recorded, {allowed:.0} allowed", counts.recorded);
    }
}

/// While it changes each firing weighs what holds for it.
#[test]
fn weights_are_those_in_force() {
    let Some(_turn) = turn("weights_are_those_in_force", KIND) else { return };
    let target = &targets::all()[0];
    let gated = Options { gate: true, ring_bytes: 2 << 20, ..options(KIND, Body::Event) };
    let mut group = attached(gated, target.place.clone());
    let mut expected = 0.0;
    for n in [1u32, 7, 3] {
        group.set_one_in(0, n).expect("gate");
        target.run(EVENTS);
        expected += EVENTS as f64 / f64::from(n);
    }
    let mut weights = 0;
    let mut kinds = std::collections::BTreeSet::new();
    group.events(|event| {
        weights += u64::from(event.weight);
        kinds.insert(event.weight);
    });
    let counts = finished(&mut group);
    assert_eq!((counts.lost, weights), (0, counts.weighed));
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), [1, 3, 7]);
    assert!((counts.recorded as f64 - expected).abs() < 0.1 * expected, "{counts:?}");
}

/// The breaker: no more than what was allowed, the rest is counted, user space is woken once.
#[test]
fn the_breaker_opens() {
    let Some(_turn) = turn("the_breaker_opens", KIND) else { return };
    let target = &targets::all()[0];
    let gated = Options { gate: true, ..options(KIND, Body::Empty) };
    let mut group = attached(gated, target.place.clone());
    let soon = std::time::Duration::from_millis(1);
    target.run(EVENTS);
    assert!(!group.alarm(soon).expect("alarm"), "there is no breaker yet");
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    group.set_tokens(100).expect("tokens");
    target.run(EVENTS);
    assert!(group.alarm(std::time::Duration::from_secs(10)).expect("alarm"), "it opened");
    assert!(!group.alarm(soon).expect("alarm"), "it is said once");
    let counts = group.counts().expect("counts")[0];
    assert!((EVENTS + 100..=EVENTS + 100 * cpus).contains(&counts.recorded), "{counts:?}");
    group.set_tokens(u32::MAX).expect("tokens");
    target.run(EVENTS);
    let counts = finished(&mut group);
    assert_eq!(counts.fired, 3 * EVENTS);
    assert_eq!(counts.throttled, counts.cut);
    assert_eq!(counts.recorded + counts.cut, 3 * EVENTS);
}

/// A ring that nobody reads: what it took can be read afterwards, the rest is counted.
#[test]
fn a_full_ring_loses_and_counts() {
    let Some(_turn) = turn("a_full_ring_loses_and_counts", KIND) else { return };
    let target = &targets::all()[0];
    let small = Options { ring_bytes: 4096, ..options(KIND, Body::Event) };
    let mut group = attached(small, target.place.clone());
    target.run(EVENTS);
    let mut events = Vec::new();
    group.events(|event| events.push(*event));
    let counts = finished(&mut group);
    assert_eq!(counts.recorded + counts.lost, EVENTS, "{counts:?}");
    assert_eq!(events.len() as u64, counts.recorded);
    assert!(counts.recorded > 0 && counts.lost > 0, "{counts:?}");
    assert!(events.iter().all(|event| event.pid == std::process::id() && event.slot == 0));
    assert!(events.windows(2).all(|two| two[0].time_ns <= two[1].time_ns), "in order of time");
}

/// A ring that is read now and then carries all of them, around its end many times.
#[test]
fn a_ring_that_is_read_loses_nothing() {
    let Some(_turn) = turn("a_ring_that_is_read_loses_nothing", KIND) else { return };
    let target = &targets::all()[0];
    let small = Options { ring_bytes: 4096, ..options(KIND, Body::Event) };
    let mut group = attached(small, target.place.clone());
    let mut events = 0;
    for done in 0..EVENTS {
        target.run(1);
        if done % 40 == 0 {
            group.events(|_| events += 1);
        }
    }
    group.events(|_| events += 1);
    let counts = finished(&mut group);
    assert_eq!((counts.recorded, counts.lost, events), (EVENTS, 0, EVENTS));
}

/// A hash map that is full: a second key is lost each time.
#[test]
fn a_full_map_loses_and_counts() {
    let Some(_turn) = turn("a_full_map_loses_and_counts", KIND) else { return };
    let all = targets::all();
    let small = Options { hash_entries: 1, slots: 2, ..options(KIND, Body::Simple) };
    let mut group = Group::load(&small).expect("load");
    let points: Vec<Point> =
        (0..2).zip(all).map(|(slot, target)| Point { slot, place: target.place.clone() }).collect();
    group.attach(&points).expect("attach");
    all[0].run(EVENTS);
    all[1].run(EVENTS);
    group.detach().expect("detach");
    let counts = group.counts().expect("counts");
    assert_eq!((counts[0].recorded, counts[0].lost), (EVENTS, 0));
    assert_eq!((counts[1].recorded, counts[1].lost), (0, EVENTS));
}

/// The program sees all processes and records one; the others are counted.
#[test]
fn others_are_filtered() {
    let Some(_turn) = turn("others_are_filtered", Mechanism::RawTracepoint) else { return };
    // A child that waits; this process is the one that is not asked for.
    let child = Talker::start(&mut Command::new("cat"));
    let other = Options { pid: Some(child.pid()), ..Options::new(Mechanism::RawTracepoint, Body::Simple) };
    let mut group = attached(other, getppid_entry());
    targets::getppid(EVENTS);
    let counts = finished(&mut group);
    assert_eq!(counts.recorded, 0, "{counts:?}");
    assert!(counts.filtered >= EVENTS, "{counts:?}");
    assert!(group.hits().expect("hits").is_empty());
}

/// User probes of one process do not fire in another that runs the same code.
#[test]
fn user_probes_stay_in_their_process() {
    let Some(_turn) = turn("user_probes_stay_in_their_process", KIND) else { return };
    let child = Talker::start(&mut Command::new("cat"));
    let target = &targets::all()[0];
    let other = Options { pid: Some(child.pid()), ..Options::new(KIND, Body::Empty) };
    let mut group = attached(other, target.place.clone());
    target.run(EVENTS);
    assert_eq!(finished(&mut group).recorded, 0);
}
