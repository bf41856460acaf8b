//! What the guest sends over the second serial port, and the verdict.
//!
//! ```text
//! @hello 6.12.117+deb12-cloud-amd64 2.31      kernel release, seconds since boot
//! @sha256 lightfoot 9f86d081...
//! @start profile
//! @file profile.json.gz      then base64 lines, then
//! @endfile
//! @end 0 8.2      exit code, seconds
//! @done
//! ```
//! Everything is text, so a broken guest leaves a readable file. A missing `@end` or `@done` is a failure.
use super::binaries::Programs;
use super::guest_test::GuestTest;
use super::initramfs::sha256;
use super::qemu::{Ended, How};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Passed,
    /// With the reason.
    Skipped(String),
    /// With the reason.
    Failed(String),
}

/// One run of one test, in the guest or here.
#[derive(Clone, Debug)]
pub struct TestRun {
    pub outcome: Outcome,
    pub seconds: f64,
    /// What it left in `$OUT`, and `log` (its stdout and stderr).
    pub files: BTreeMap<String, Vec<u8>>,
    /// What a check on the host measured, in a line; empty without one.
    pub found: String,
}

impl TestRun {
    /// The run of a test of which nothing came back.
    pub fn missing() -> Self {
        TestRun {
            outcome: Outcome::Failed("it did not run to its end".into()),
            seconds: 0.0,
            files: BTreeMap::new(),
            found: String::new(),
        }
    }

    /// From an exit code: 0 passed, 77 skipped with the last line as the reason.
    pub fn from_exit(code: i32, seconds: f64, files: BTreeMap<String, Vec<u8>>) -> Self {
        let mut run = TestRun { outcome: Outcome::Passed, seconds, files, found: String::new() };
        let last = run.log().lines().last().unwrap_or("no reason was printed").to_owned();
        run.outcome = match code {
            0 => Outcome::Passed,
            77 => Outcome::Skipped(last),
            124 | 137 | 143 => Outcome::Failed(format!("it ran out of time (exit code {code}): {last}")),
            code => Outcome::Failed(format!("exit code {code}: {last}")),
        };
        run
    }

    pub fn log(&self) -> String {
        self.files.get("log").map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
    }
}

#[derive(Default, Debug)]
pub struct Report {
    pub release: Option<String>,
    pub boot_s: Option<f64>,
    pub tests: BTreeMap<String, TestRun>,
    pub sha256: BTreeMap<String, String>,
    pub done: bool,
}

/// Reads what came over the serial port. Never fails: what cannot be understood is missing from the report.
pub fn parse(text: &str) -> Report {
    let mut report = Report::default();
    let mut test: Option<(String, BTreeMap<String, Vec<u8>>)> = None;
    let mut file: Option<(String, String)> = None;
    for line in text.lines().map(str::trim) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (words.as_slice(), &mut file, &mut test) {
            (["@hello", release, boot], ..) => {
                report.release = Some((*release).to_owned());
                report.boot_s = boot.parse().ok();
            }
            (["@sha256", name, hash], ..) => {
                report.sha256.insert((*name).to_owned(), (*hash).to_owned());
            }
            (["@start", name], ..) => test = Some(((*name).to_owned(), BTreeMap::new())),
            (["@file", name], ..) => file = Some(((*name).to_owned(), String::new())),
            (["@endfile"], ..) => {
                if let (Some((name, content)), Some((_, files))) = (file.take(), &mut test)
                    && let Some(bytes) = base64(&content).and_then(|bytes| gunzip(&bytes))
                {
                    files.insert(name, bytes);
                }
            }
            (["@end", code, seconds], ..) => {
                if let (Some((name, files)), Ok(code)) = (test.take(), code.parse()) {
                    report
                        .tests
                        .insert(name, TestRun::from_exit(code, seconds.parse().unwrap_or(0.0), files));
                }
            }
            (["@done"], ..) => report.done = true,
            (_, Some((_, content)), _) => content.push_str(line),
            _ => {}
        }
    }
    report
}

/// Decodes base64; nothing if a character does not belong.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for c in text.bytes().take_while(|&c| c != b'=') {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

fn gunzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes), &mut out).ok()?;
    Some(out)
}

/// The last lines of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// The count over all tests; prints one line each as they come.
pub struct Verdict {
    require_all: bool,
    passed: u32,
    failed: u32,
    skipped: u32,
    guest_failed: bool,
}

impl Verdict {
    /// With `require_all` a skip counts as a failure.
    pub fn new(require_all: bool) -> Self {
        Verdict { require_all, passed: 0, failed: 0, skipped: 0, guest_failed: false }
    }

    pub fn add(&mut self, place: &str, test: &GuestTest, run: TestRun) {
        let head = |word: &str| format!("{word:<7} {} on {place} ({:.1} s)", test.name, run.seconds);
        match &run.outcome {
            Outcome::Passed => {
                self.passed += 1;
                println!("{}: {}", head("passed"), test.proves);
                if !run.found.is_empty() {
                    println!("        {}", run.found);
                }
            }
            Outcome::Skipped(why) if !self.require_all => {
                self.skipped += 1;
                println!("{}: {why}", head("skipped"));
            }
            Outcome::Skipped(why) | Outcome::Failed(why) => {
                self.failed += 1;
                println!("{}: {why}", head("FAILED"));
                for line in tail(&run.log(), 40).lines() {
                    println!("        | {line}");
                }
            }
        }
    }

    /// Failures that belong to no single test: panic, hang, missing verdict, other binaries than ours.
    pub fn guest_health(&mut self, ended: &Ended, report: &Report, programs: &Programs) {
        let mut wrong = Vec::new();
        if ended.how != How::SwitchedOff || !report.done {
            let verdict = if report.done { "" } else { ", without a verdict" };
            wrong.push(format!("{}{verdict}", ended.how));
        }
        if let Some(line) =
            ended.console.lines().find(|line| line.contains("BUG:") || line.contains("WARNING: CPU"))
        {
            wrong.push(format!("the guest's kernel complained: {}", line.trim()));
        }
        for (name, hash) in &report.sha256 {
            if programs.path(name).is_some_and(|path| sha256(path).ok().as_ref() != Some(hash)) {
                wrong.push(format!("the guest ran another {name} than the one built here"));
            }
        }
        self.guest_failed = !wrong.is_empty();
        for why in wrong {
            self.failed += 1;
            println!("FAILED  guest: {why}");
        }
    }

    /// Prints the last line, and the console if the guest itself was the trouble; whether all passed.
    pub fn print(&self, console: &Path) -> bool {
        if self.guest_failed {
            let text =
                std::fs::read(console).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
            println!("the guest's console ({}), last lines:", console.display());
            for line in tail(&text, 60).lines() {
                println!("        | {line}");
            }
        }
        println!("vm: {} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        self.failed == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_with_each_padding() {
        let cases: [(&str, &[u8]); 4] = [("", b""), ("TQ==", b"M"), ("TWE=", b"Ma"), ("TWFu", b"Man")];
        for (text, bytes) in cases {
            assert_eq!(base64(text).as_deref(), Some(bytes));
        }
        assert_eq!(base64("T!Fu"), None);
    }

    #[test]
    fn a_report_with_a_pass_a_skip_and_a_test_that_never_ended() {
        // printf 'no such probe' | gzip -n | base64
        let log = "H4sIAAAAAAAAA8vLVyguTc5QKCjKT0oFABhsnHANAAAA";
        let text = format!(
            "noise\r\n@hello 6.12.1 2.5\r\n@start a\n@end 0 1.5\n@start b\n@file log\n{log}\n@endfile\n@end 77 0.1\n@start c\n"
        );
        let report = parse(&text);
        assert_eq!(report.release.as_deref(), Some("6.12.1"));
        assert_eq!(report.boot_s, Some(2.5));
        assert_eq!(report.tests["a"].outcome, Outcome::Passed);
        assert_eq!(report.tests["b"].outcome, Outcome::Skipped("no such probe".into()));
        assert!(!report.tests.contains_key("c"));
        assert!(!report.done);
    }
}
