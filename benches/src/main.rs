//! `cargo run --release -p lightfoot-benches -- NAME`: see `benches/README.md` for what each bench proves.
//!
//! A bench prints the machine, then a table in markdown. It never asserts: a number outside its reach is marked, not an error.

mod accuracy;
mod attach;
mod clocks;
mod corpus;
mod farm;
mod floods;
mod footprint;
mod ledger;
mod machine;
mod meter;
mod offcpu;
mod ordinary;
mod prices;
mod samplecost;
mod sites;
mod storms;
mod table;
mod tool;
mod transfer;
mod versus;

use anyhow::Result;
use clap::{Parser, ValueEnum};

#[derive(Parser)]
#[command(about = "What lightfoot promises, measured side by side")]
struct Args {
    /// Which bench.
    #[arg(required = true)]
    names: Vec<Name>,
    /// A third of the time: for a look, not for the record.
    #[arg(long)]
    quick: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Shares of CPU time against programs that know; samples per CPU second and Hz.
    Accuracy,
    /// Counting in the kernel against a ring buffer.
    Transfer,
    /// BPF run time of one sample with a 30-frame stack.
    Bpf,
    /// A 30 s whole-machine run, the first sample, memory.
    Footprint,
    /// Against `perf record -g` and `perf script`.
    Perf,
    /// The ledger against the truth from outside.
    Ledger,
    /// Whole stacks of programs whose stacks are known.
    Corpus,
    /// A compile farm: whole stacks, and the cost.
    Farm,
    /// An idle machine, and one with twenty ordinary programs.
    Ordinary,
    /// The budget in storms of forks, mappings and context switches.
    Storms,
    /// The scheduler's tick against the timer.
    Clocks,
    /// Time off the CPU: sums and cost.
    Offcpu,
    /// Attaching and detaching 1,000 probes of each kind.
    Attach,
    /// A uprobe at the first byte against lightfoot's site.
    Sites,
    /// What probes cost, predicted and live, against loops that know.
    Prices,
    /// The budget of a run of probes in floods of events.
    Floods,
    /// All of them.
    All,
}

/// How long to measure: `seconds(30.0)` is 30 s, or 10 s with `--quick`.
#[derive(Clone, Copy)]
struct Length {
    quick: bool,
}

impl Length {
    fn seconds(self, full: f64) -> f64 {
        if self.quick { (full / 3.0).max(1.0) } else { full }
    }

    fn rounds(self, full: usize) -> usize {
        if self.quick { full.div_ceil(3) } else { full }
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    anyhow::ensure!(machine::is_root(), "the benches load BPF programs: run as root");
    let length = Length { quick: args.quick };
    let wanted = |name: Name| args.names.contains(&name) || args.names.contains(&Name::All);
    println!("{}\n", machine::describe(length.quick));
    type Bench = fn(Length) -> Result<()>;
    let benches: [(Name, Bench); 16] = [
        (Name::Accuracy, accuracy::run),
        (Name::Transfer, transfer::run),
        (Name::Bpf, samplecost::run),
        (Name::Footprint, footprint::run),
        (Name::Perf, versus::run),
        (Name::Ledger, ledger::run),
        (Name::Corpus, corpus::run),
        (Name::Farm, farm::run),
        (Name::Ordinary, ordinary::run),
        (Name::Storms, storms::run),
        (Name::Clocks, clocks::run),
        (Name::Offcpu, offcpu::run),
        (Name::Prices, prices::run),
        (Name::Floods, floods::run),
        (Name::Attach, attach::run),
        (Name::Sites, sites::run),
    ];
    for (name, bench) in benches {
        if wanted(name) {
            bench(length)?;
            println!("\nload average after: {}\n", machine::load());
        }
    }
    Ok(())
}
