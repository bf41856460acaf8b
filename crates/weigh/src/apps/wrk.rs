//! The load: wrk, which keeps a number of connections busy until it is told to end.

use super::programs::Programs;
use super::{Error, Result, failed};
use lightfoot_kernel::{os, spawn};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SIGINT: i32 = 2;
/// Longer than any run.
const SECONDS: u32 = 24 * 3600;
/// Until it has told its result.
const PATIENCE: Duration = Duration::from_secs(10);

/// wrk under way. Dropped before its end it is killed.
#[derive(Debug)]
pub struct Load(Child);

/// What wrk said.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// Responses that it counted.
    pub requests: u64,
    /// Connections, reads and writes that failed.
    pub socket_errors: u64,
    /// Responses that took longer than two seconds.
    pub late: u64,
    /// Responses that were no success.
    pub bad_responses: u64,
}

impl Load {
    /// Starts it, on this CPU only if one is given.
    ///
    /// # Errors
    /// If it cannot be executed.
    pub fn start(programs: &Programs, url: &str, connections: u32, cpu: Option<u32>) -> Result<Load> {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(&programs.wrk);
        command.args(["-t1", &format!("-c{connections}"), &format!("-d{SECONDS}s"), url]);
        // Not in our process group: Ctrl-C is for us, and we end it.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        spawn::ends_with_us(&mut command);
        if let Some(cpu) = cpu {
            spawn::runs_on(&mut command, cpu);
        }
        command.spawn().map(Load).map_err(|e| failed(programs.wrk.display(), e))
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Ends it and reads what it says.
    ///
    /// # Errors
    /// If it ended before, or says nothing.
    pub fn stop(mut self) -> Result<Summary> {
        if !self.runs() {
            return Err(Error::Failed("the load (wrk) ended too early".into()));
        }
        os::signal(self.0.id(), SIGINT);
        let asked = Instant::now();
        while self.runs() {
            if asked.elapsed() > PATIENCE {
                return Err(Error::Failed("the load (wrk) does not end".into()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut text = String::new();
        if let Some(mut out) = self.0.stdout.take() {
            out.read_to_string(&mut text).map_err(|e| failed("wrk", e))?;
        }
        parse(&text).ok_or_else(|| Error::Failed("wrk's result cannot be understood".into()))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It may have ended; its id is ours until it is waited for.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// What wrk prints at its end; `None` if it is something else.
fn parse(text: &str) -> Option<Summary> {
    let mut summary = Summary::default();
    let mut requests = None;
    for line in text.lines().map(str::trim) {
        if let Some((number, _)) = line.split_once(" requests in ") {
            requests = number.parse().ok();
        } else if let Some(errors) = line.strip_prefix("Socket errors: ") {
            for each in errors.split(", ") {
                let (what, number) = each.rsplit_once(' ')?;
                let number: u64 = number.parse().ok()?;
                if what == "timeout" {
                    summary.late += number;
                } else {
                    summary.socket_errors += number;
                }
            }
        } else if let Some(number) = line.strip_prefix("Non-2xx or 3xx responses: ") {
            summary.bad_responses = number.parse().ok()?;
        }
    }
    summary.requests = requests?;
    Some(summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "Running 2s test @ http://127.0.0.1:8080/1024\n  1 threads and 20 connections\n\
        \x20 Thread Stats   Avg      Stdev     Max   +/- Stdev\n    Latency   512.11us  120.00us   4.11ms   88.12%\n\
        \x20   Req/Sec    38.11k     1.02k   40.00k    75.00%\n  75839 requests in 2.00s, 91.52MB read\n\
        Requests/sec:  37912.30\nTransfer/sec:     45.75MB\n";

    #[test]
    fn what_wrk_says() {
        assert_eq!(parse(GOOD), Some(Summary { requests: 75_839, ..Summary::default() }));
        let bad = GOOD.replace(
            "Requests/sec",
            "  Socket errors: connect 1, read 2, write 0, timeout 30\n  Non-2xx or 3xx responses: 7\nRequests/sec",
        );
        assert_eq!(
            parse(&bad),
            Some(Summary { requests: 75_839, socket_errors: 3, late: 30, bad_responses: 7 })
        );
        for wrong in ["", "unable to connect to 127.0.0.1:1 Connection refused", "many requests in 2.00s"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
