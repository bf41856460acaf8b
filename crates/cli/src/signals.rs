//! Ctrl-C and its relatives end a run early; the result is still delivered.

use crate::exit::{FAILED, Failure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether someone asked us to end.
#[derive(Clone, Debug)]
pub struct Ending(Arc<AtomicBool>);

impl Ending {
    /// From now on SIGINT, SIGTERM and SIGHUP are requests to end.
    pub fn listen() -> Result<Ending, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .map_err(|e| Failure::because(FAILED, "cannot listen to signals", e))?;
        }
        Ok(Ending(flag))
    }

    /// Whether a signal came.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
