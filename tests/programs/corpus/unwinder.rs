//! `rusty_release CPU_MS`: a release build without frame pointers that unwinds on panic.
//! `main;...;outer;middle;leaf_a` 50 %, `main;...;outer;sorted;...;compare;leaf_b` (called by `sort_by` of the standard library),
//! `main;...;outer;caught;...;panics;...` (panics that are caught: time in the unwinder reaches main), and
//! `(thread's root);...;in_thread;leaf_c`.
use std::hint::black_box;
use std::time::{Duration, Instant};

#[inline(always)]
fn burn(iterations: u64, mut x: u64) -> u64 {
    for _ in 0..iterations {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x = black_box(x);
    }
    x
}

#[inline(never)]
#[unsafe(no_mangle)]
fn leaf_a(iterations: u64) -> u64 {
    burn(iterations, 1)
}

#[inline(never)]
#[unsafe(no_mangle)]
fn leaf_b(iterations: u64) -> u64 {
    burn(iterations, 2)
}

#[inline(never)]
#[unsafe(no_mangle)]
fn leaf_c(iterations: u64) -> u64 {
    burn(iterations, 3)
}

#[inline(never)]
#[unsafe(no_mangle)]
fn middle(unit: u64) -> u64 {
    black_box(leaf_a(black_box(50 * unit))) + 1
}

#[inline(never)]
#[unsafe(no_mangle)]
fn compare(a: &u64, b: &u64) -> std::cmp::Ordering {
    black_box(leaf_b(black_box(100)));
    a.cmp(b)
}

#[inline(never)]
#[unsafe(no_mangle)]
fn sorted(unit: u64) -> u64 {
    let mut values: Vec<u64> = (0..32).map(|i| (i * 7919 + unit) % 31).collect();
    values.sort_by(compare);
    black_box(values)[0]
}

#[inline(never)]
#[unsafe(no_mangle)]
fn panics(depth: u64) -> u64 {
    if depth == 0 {
        std::panic::panic_any(1u64);
    }
    let held = vec![depth];
    black_box(panics(black_box(depth - 1))) + black_box(held)[0]
}

#[inline(never)]
#[unsafe(no_mangle)]
fn caught() -> u64 {
    std::panic::catch_unwind(|| panics(10)).unwrap_or(7)
}

#[inline(never)]
#[unsafe(no_mangle)]
fn in_thread(unit: u64) -> u64 {
    black_box(leaf_c(black_box(400 * unit))) + 1
}

#[inline(never)]
#[unsafe(no_mangle)]
fn outer(unit: u64) -> u64 {
    let x = black_box(middle(unit)) + black_box(sorted(unit));
    if unit % 8 == 0 {
        let thread = std::thread::spawn(move || in_thread(unit));
        return x + thread.join().unwrap_or(0) + caught();
    }
    x
}

fn main() {
    // A quiet panic: the hook's output would be most of the time.
    std::panic::set_hook(Box::new(|_| {}));
    let ms: u64 = std::env::args().nth(1).and_then(|ms| ms.parse().ok()).unwrap_or(2000);
    let end = Instant::now() + Duration::from_millis(ms);
    let (mut random, mut turns) = (12345u64, 0u64);
    while Instant::now() < end {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        black_box(outer(150 + (random >> 33) % 251));
        turns += 1;
    }
    println!("{{\"program\":\"rusty_release\",\"pid\":{},\"turns\":{turns}}}", std::process::id());
}
