//! Real servers of the distribution under load, with probes and without: `lightfoot weigh --app`.
//!
//! - [`nginx`](self): the server, in a temporary folder, on loopback, with libraries of its own; [`wrk`](self): its load
//! - blocks of time without and with probes in turn, in another order each round; what is compared are blocks of one round
//! - [`tls`](self): a watcher of lengths on OpenSSL; [`syscount`](self): a counter of system calls
//! - [`Report`]: the result, as table, JSON, markdown or plot
//!
//! Everything that is started is a child of this process, ends with it, and is ended by its process id.

mod blocks;
mod calls;
mod nginx;
mod places;
mod plot;
mod programs;
mod report;
mod row;
mod syscount;
mod table;
mod tls;
mod wrk;

pub use blocks::Progress;
pub use report::Report;
pub use row::{Interval, Row};

use std::time::Duration;

/// Which server and what is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum App {
    /// nginx with TLS, its calls of OpenSSL watched.
    Tls,
    /// nginx without, its system calls counted.
    Syscount,
}

impl App {
    /// The name in every format.
    pub fn name(self) -> &'static str {
        match self {
            App::Tls => "tls",
            App::Syscount => "syscount",
        }
    }
}

/// What to measure, and for how long.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Which.
    pub app: App,
    /// Bytes of the responses, each measured by itself.
    pub sizes: Vec<u64>,
    /// For all of it; at least three rounds are made of each size.
    pub time: Duration,
    /// Length of one block.
    pub block: Duration,
    /// Connections that the load keeps open.
    pub connections: u32,
    /// `tls`: also the ways that nobody would choose here, for comparison.
    pub every_way: bool,
    /// Decides the order of the blocks.
    pub seed: u64,
}

/// Response sizes of the published measurement, in bytes.
pub const SIZES: [u64; 6] = [1 << 10, 2 << 10, 4 << 10, 16 << 10, 128 << 10, 256 << 10];

impl Settings {
    /// Some minutes.
    pub fn new(app: App) -> Settings {
        let (sizes, seconds) = match app {
            App::Tls => (SIZES.to_vec(), 240),
            App::Syscount => (vec![1 << 10], 90),
        };
        let (time, block) = (Duration::from_secs(seconds), Duration::from_millis(600));
        Settings { app, sizes, time, block, connections: 20, every_way: false, seed: 1 }
    }

    /// Some seconds for each size, roughly.
    pub fn quick(app: App) -> Settings {
        let settings = Settings::new(app);
        let sizes = if app == App::Tls { vec![1 << 10, 16 << 10, 256 << 10] } else { settings.sizes.clone() };
        Settings { sizes, time: Duration::from_secs(1), block: Duration::from_millis(200), ..settings }
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be measured here.
    #[error("{0}")]
    NotPossible(String),
    /// Something did not work.
    #[error("{0}")]
    Failed(String),
    /// Something of the kernel did not work.
    #[error("{0}")]
    Kernel(#[from] lightfoot_kernel::Error),
    /// It was asked to end before anything was measured.
    #[error("ended before anything was measured")]
    Interrupted,
}

/// Results of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Runs the experiment. `ending` says whether someone asked to end: what was measured until then is the result. `tell` hears how far it is.
///
/// # Errors
/// [`Error::NotPossible`] with names of packages if a program is missing, or what the kernel lacks.
pub fn run(settings: &Settings, ending: &dyn Fn() -> bool, tell: &mut dyn FnMut(Progress)) -> Result<Report> {
    match settings.app {
        App::Tls => tls::run(settings, ending, tell),
        App::Syscount => syscount::run(settings, ending, tell),
    }
}

fn failed(what: impl std::fmt::Display, error: impl std::fmt::Display) -> Error {
    Error::Failed(format!("{what}: {error}"))
}
