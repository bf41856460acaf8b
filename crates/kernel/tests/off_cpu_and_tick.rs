//! Off-CPU time and the tick clock, as the kernel's side does them. Needs privileges: without them the tests say so and pass.
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use lightfoot_kernel::abi::{Live, MAX_USER_FRAMES, Record};
use lightfoot_kernel::offcpu::OffCpu;
use lightfoot_kernel::sampler::{Config, Sampler, Target, Transfer, Walk};
use lightfoot_kernel::tick::Tick;
use lightfoot_kernel::{os, remote};
use std::collections::HashMap;
use std::time::{Duration, Instant};

fn privileged() -> bool {
    let missing = os::missing_capabilities();
    if !missing.is_empty() {
        eprintln!("skipped: missing {missing:?}");
    }
    missing.is_empty()
}

fn config(target: Target) -> Config {
    Config {
        target,
        kernel_frames: true,
        transfer: Transfer::Counted,
        ring_bytes: 1 << 20,
        stack_slots: 16_384,
        object_slots: 4096,
        page_slots: 1,
        rule_slots: 1,
        save: Default::default(),
        walk: Walk::Auto,
        rate_moves: false,
        live: Live {
            period_ns: 1,
            block_ns: 1_000_000,
            user_frames_max: MAX_USER_FRAMES as u32,
            interpreters: 0,
            tick_keep: 0,
            waits_max: 0,
            step: 0,
            deferred: 0,
            prompt: 0,
        },
        tick: None,
        off_cpu: None,
    }
}

#[test]
fn the_linear_mapping_is_found_by_trying() {
    if !privileged() || cfg!(not(target_arch = "x86_64")) {
        return;
    }
    let paging = remote::find().unwrap();
    assert!(
        paging.page_offset >= 0xff00_0000_0000_0000 && paging.page_offset.trailing_zeros() >= 30,
        "{paging:x?}"
    );
    assert_eq!(remote::find().unwrap(), paging, "the same each time");
}

/// A thread that sleeps 200 times for a millisecond and burns between, and one that sleeps all the time.
#[test]
fn waits_add_up() {
    if !privileged() || cfg!(not(target_arch = "x86_64")) {
        return;
    }
    let pid = std::process::id();
    let mut config = config(Target::Processes { pids: vec![pid], room: 16 });
    config.off_cpu = Some(OffCpu::find(0).unwrap());
    let mut sampler = Sampler::load(&config).unwrap();
    let sleeper = std::thread::spawn(|| std::thread::sleep(Duration::from_secs(3)));
    std::thread::sleep(Duration::from_millis(100));
    sampler.start().unwrap();
    let napper = std::thread::spawn(|| {
        let mut asleep = Duration::ZERO;
        for _ in 0..200 {
            let start = Instant::now();
            std::thread::sleep(Duration::from_millis(1));
            asleep += start.elapsed();
        }
        asleep
    });
    let start = Instant::now();
    let asleep = napper.join().unwrap();
    let joined = start.elapsed();
    sampler.stop().unwrap();
    sampler.collect().unwrap();
    let sums = sampler.off_cpu_sums().unwrap();
    let counters = sampler.counters();
    let mut weights: HashMap<u32, u64> = HashMap::new();
    let counts = sampler.counts().unwrap();
    sampler.take(|bytes| {
        if let Some(record) = Record::parse(bytes) {
            let weight =
                record.header.weight_ns + counts.get(&record.header.stack).map_or(0, |c| c.weight_ns);
            *weights.entry(record.header.tid).or_default() += weight;
        }
    });
    sleeper.join().unwrap();
    // This thread waited for the napper, the sleeper slept, the napper napped.
    let truth = asleep + joined * 2;
    let measured = Duration::from_nanos(sums.blocked_ns.iter().sum());
    let sampled = Duration::from_nanos(weights.values().sum());
    let far = |a: Duration, b: Duration| (a.as_secs_f64() / b.as_secs_f64() - 1.0).abs();
    // The test harness's own thread may wait, too: it is there for the whole time or not at all.
    let near = far(measured, truth).min(far(measured, truth + joined));
    assert!(near < 0.05, "truth {truth:?} measured {measured:?} {sums:?}");
    assert!(far(sampled, measured) < 0.02, "measured {measured:?} sampled {sampled:?} {weights:?}");
    assert_eq!(counters.fired, counters.recorded + counters.lost + counters.no_frames + counters.no_scratch);
}

#[test]
fn ticks_are_samples() {
    if !privileged() {
        return;
    }
    let tick = match Tick::find() {
        Ok(tick) => tick,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let pid = std::process::id();
    let mut config = config(Target::Processes { pids: vec![pid], room: 16 });
    config.tick = Some(tick);
    config.live.period_ns = tick.period_ns;
    let mut sampler = Sampler::load(&config).unwrap();
    sampler.attach_tick().unwrap();
    let cpu = os::process_cpu_ns();
    let start = Instant::now();
    let mut x = 1u64;
    while start.elapsed() < Duration::from_secs(2) {
        x = std::hint::black_box(x.wrapping_mul(3));
    }
    sampler.stop().unwrap();
    let cpu = os::process_cpu_ns() - cpu;
    let counters = sampler.counters();
    sampler.collect().unwrap();
    let weight: u64 = sampler.counts().unwrap().values().map(|c| c.weight_ns).sum();
    assert!(
        (weight as f64 / cpu as f64 - 1.0).abs() < 0.3,
        "{tick:x?} {counters:?} weight {weight} cpu {cpu}"
    );
    assert_eq!(counters.fired, counters.recorded + counters.filtered + counters.lost + counters.no_frames);
}
