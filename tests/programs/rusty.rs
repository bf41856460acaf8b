//! rusty [SECONDS]: Rust names and inlining.
//!
//! Root first (below main): `rusty::run`, `rusty::mixer::Mixer<T>::mix`, and inlined into it `rusty::mixer::inlined_kernel`,
//! where all the time is spent.
use std::hint::black_box;
use std::time::{Duration, Instant};

mod mixer {
    use std::hint::black_box;

    pub struct Mixer<T> {
        pub state: T,
    }

    impl Mixer<u64> {
        #[inline(never)]
        pub fn mix(&mut self, x: u64) -> u64 {
            self.state = inlined_kernel(self.state.wrapping_add(x));
            black_box(&mut self.state);
            self.state
        }
    }

    #[inline(always)]
    fn inlined_kernel(mut x: u64) -> u64 {
        for _ in 0..100_000 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x = black_box(x);
        }
        x
    }
}

#[inline(never)]
fn run(seconds: f64) -> u64 {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut mixer = mixer::Mixer { state: 1u64 };
    let mut x = 0;
    while Instant::now() < end {
        x = mixer.mix(black_box(x));
    }
    x
}

fn main() {
    // Bounded: at most a minute, whatever is asked.
    let seconds = std::env::args().nth(1).and_then(|text| text.parse::<f64>().ok()).unwrap_or(5.0).clamp(0.0, 60.0);
    let x = run(seconds);
    println!("{{\"program\":\"rusty\",\"pid\":{},\"sink\":{x}}}", std::process::id());
}
