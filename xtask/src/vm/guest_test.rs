//! Guest tests: one shell script each in `tests/vm/guest`, described by the comments at its top.
//!
//! ```sh
//! # The same binary profiles a program whose split is known      <- what it proves: the first comment line
//! # runs: vm, here      default vm; `here` runs it on the running kernel too
//! # needs: lightfoot, split      binaries put in PATH: `lightfoot`, or a program of tests/programs,
//! #                              or `tests:PACKAGE` for the test binaries of a package, named PACKAGE-TARGET, or
//! #                              `tests:PACKAGE:TARGET` for one of them
//! # timeout: 60      seconds, default 60
//! ```
//! Exit code 0 passes, 77 skips with the last line printed as the reason, all else fails. Files left in `$OUT` come
//! back to the host, where `checks.rs` may look at them.
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestTest {
    /// File name without `.sh`.
    pub name: String,
    pub script: PathBuf,
    /// One line: what a pass proves.
    pub proves: String,
    /// Whether it runs on the running kernel too.
    pub here: bool,
    pub needs: Vec<String>,
    pub timeout_s: u64,
}

impl Default for GuestTest {
    fn default() -> Self {
        GuestTest {
            name: String::new(),
            script: PathBuf::new(),
            proves: String::new(),
            here: false,
            needs: Vec::new(),
            timeout_s: 60,
        }
    }
}

impl GuestTest {
    /// All tests of a folder, by name.
    pub fn all(folder: &Path) -> Result<Vec<GuestTest>> {
        let mut scripts: Vec<PathBuf> = std::fs::read_dir(folder)
            .with_context(|| format!("cannot read {}", folder.display()))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|e| e == "sh"))
            .collect();
        scripts.sort();
        scripts
            .into_iter()
            .map(|script| {
                let text = std::fs::read_to_string(&script)?;
                let name = script.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let test = parse(&text).with_context(|| format!("{}", script.display()))?;
                Ok(GuestTest { name, script, ..test })
            })
            .collect()
    }
}

fn parse(text: &str) -> Result<GuestTest> {
    let mut test = GuestTest::default();
    let comments =
        text.lines().take_while(|line| line.starts_with('#')).filter(|line| !line.starts_with("#!"));
    for line in comments {
        let line = line.trim_start_matches('#').trim();
        let list = |value: &str| value.split(',').map(|v| v.trim().to_owned()).collect::<Vec<_>>();
        match line.split_once(':') {
            Some(("runs", value)) => {
                let places = list(value);
                if let Some(unknown) = places.iter().find(|place| !["vm", "here"].contains(&place.as_str())) {
                    bail!("`runs:` knows vm and here, not {unknown}");
                }
                test.here = places.iter().any(|place| place == "here");
            }
            Some(("needs", value)) => test.needs = list(value),
            Some(("timeout", value)) => {
                test.timeout_s = value.trim().parse().context("`timeout:` is a number of seconds")?;
            }
            _ if test.proves.is_empty() => test.proves = line.to_owned(),
            _ => {}
        }
    }
    Ok(test)
}

/// What init reads: one line per test, `NAME SECONDS`.
pub fn order(tests: &[GuestTest]) -> String {
    tests.iter().map(|test| format!("{} {}\n", test.name, test.timeout_s)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_up_to_the_first_command() {
        let text = "#!/bin/sh\n# Proves a thing\n# runs: vm, here\n# needs: lightfoot, split\n# timeout: 9\nset -e\n# runs: nonsense\n";
        let test = parse(text).unwrap();
        assert_eq!(test.proves, "Proves a thing");
        assert_eq!(test.needs, ["lightfoot", "split"]);
        assert!(test.here);
        assert_eq!(test.timeout_s, 9);
        assert!(parse("# runs: moon\n").is_err());
    }
}
