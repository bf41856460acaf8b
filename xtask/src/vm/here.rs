//! The same script, the same binary, the same check, on the running kernel.
use super::binaries::Programs;
use super::guest_test::GuestTest;
use super::report::TestRun;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Runs one test with `folder` as its scratch space.
pub fn run(test: &GuestTest, programs: &Programs, folder: &Path) -> Result<TestRun> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    let (bin, out) = (folder.join("bin"), folder.join("out"));
    for new in [&bin, &out] {
        std::fs::create_dir_all(new).with_context(|| format!("cannot create {}", new.display()))?;
    }
    for (name, path) in programs.iter() {
        symlink(std::fs::canonicalize(path)?, bin.join(name))?;
    }
    let log = std::fs::File::create(out.join("log"))?;
    let path = std::env::var("PATH").unwrap_or_default();
    let started = Instant::now();
    let status = Command::new("timeout")
        .args(["--kill-after=5", &test.timeout_s.to_string(), "sh"])
        .arg(&test.script)
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("OUT", &out)
        .current_dir(&out)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()
        .context("cannot run timeout")?;
    let seconds = started.elapsed().as_secs_f64();
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(&out)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.insert(entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?);
        }
    }
    Ok(TestRun::from_exit(status.code().unwrap_or(1), seconds, files))
}

/// Release of the running kernel.
pub fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "here".into(), |text| text.trim().to_owned())
}
