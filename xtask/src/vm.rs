//! `cargo xtask vm`: run the guest tests on another kernel, under QEMU without KVM, and collect one verdict.
//!
//! What happens: Debian's kernel package is downloaded and unpacked (never installed), an initramfs is written with
//! busybox, the binaries under test and the libraries they need, QEMU boots it, the init script in `tests/vm/init` runs
//! each script of `tests/vm/guest`, and what they leave comes back over the second serial port. Some results are then
//! checked here ([`checks`]). Scripts that say `# runs: vm, here` are run on the running kernel too, with the same binary.
//!
//! Exit codes: 0 passed, 1 failed, 2 wrong usage, 4 not possible here (says what is missing).
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

mod binaries;
mod checks;
mod guest_test;
mod here;
mod initramfs;
mod kernel;
mod qemu;
mod report;

use binaries::Programs;
use guest_test::GuestTest;
use initramfs::Initramfs;
use report::{Outcome, TestRun, Verdict};

/// Where guest tests, init and its helpers are.
const GUEST_FOLDER: &str = "tests/vm";

#[derive(clap::Args)]
pub struct Args {
    /// Debian cloud kernel: a series (6.12) or a full version (6.12.107+deb12)
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// Boot this kernel image instead of a Debian package
    #[arg(long, value_name = "FILE")]
    vmlinuz: Option<PathBuf>,
    /// Look for a newer package although a kernel was unpacked earlier
    #[arg(long)]
    refresh: bool,
    /// Keep the initramfs and print its path
    #[arg(long)]
    keep: bool,
    /// Stop the machine after this many seconds: a hang is a failure
    #[arg(long, value_name = "SECS", default_value_t = 300)]
    timeout: u64,
    /// Run only this guest test (may be given several times)
    #[arg(long = "test", value_name = "NAME")]
    tests: Vec<String>,
    /// List the guest tests and stop
    #[arg(long)]
    list: bool,
    /// Cargo profile of the binary under test; LIGHTFOOT_BIN names one that is built already
    #[arg(long, default_value = "dev")]
    profile: String,
    /// A skipped test is a failure (also with LIGHTFOOT_REQUIRE_ALL=1)
    #[arg(long)]
    require_all: bool,
    /// Copy this file into the guest, under the same path (may be given several times)
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// Run only this program in the guest, with the libraries it needs, and print its output
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "BINARY ARGS")]
    command: Vec<String>,
}

/// Something this machine lacks: not a failure of the project. Ends with exit code 4.
#[derive(Debug)]
pub struct NotHere(pub String);

impl std::fmt::Display for NotHere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for NotHere {}

pub fn run(args: Args) -> Result<()> {
    match layer(&args) {
        Ok(true) => Ok(()),
        Ok(false) => std::process::exit(1),
        Err(error) if error.is::<NotHere>() => {
            eprintln!("vm: {error}");
            std::process::exit(4);
        }
        Err(error) => {
            eprintln!("vm: {error:#}");
            std::process::exit(1);
        }
    }
}

/// The whole layer; whether everything passed.
fn layer(args: &Args) -> Result<bool> {
    let root = workspace_root();
    if args.list {
        for test in GuestTest::all(&root.join(GUEST_FOLDER).join("guest"))? {
            println!("{:<20} {}", test.name, test.proves);
        }
        return Ok(true);
    }
    if std::env::consts::ARCH != "x86_64" {
        return Err(NotHere(format!(
            "the guest is x86_64 only so far, this machine is {}",
            std::env::consts::ARCH
        ))
        .into());
    }
    qemu::require()?;
    let busybox = initramfs::busybox()?;
    let folder = target_dir(&root).join("vm");
    let kernel = match &args.vmlinuz {
        Some(path) => path.clone(),
        None => kernel::find(&folder.join("kernels"), &args.kernel, args.refresh)?,
    };
    let work = folder.join("run");
    std::fs::create_dir_all(&work).with_context(|| format!("cannot create {}", work.display()))?;

    let mut image = Initramfs::new(&busybox)?;
    image.file("init", &root.join(GUEST_FOLDER).join("init"), 0o755)?;
    for file in &args.with {
        image.same_path(file)?;
    }
    let (tests, programs) = if args.command.is_empty() {
        let mut tests = GuestTest::all(&root.join(GUEST_FOLDER).join("guest"))?;
        if let Some(unknown) = args.tests.iter().find(|name| tests.iter().all(|t| t.name != **name)) {
            bail!("no guest test is called {unknown}: see `cargo xtask vm --list`");
        }
        tests.retain(|test| args.tests.is_empty() || args.tests.contains(&test.name));
        let programs = Programs::build(&root, &args.profile, tests.iter().flat_map(|t| &t.needs))?;
        (tests, programs)
    } else {
        let (test, programs) = single_command(&work, &args.command, args.timeout)?;
        (vec![test], programs)
    };
    for test in &tests {
        image.file(&format!("lightfoot/guest/{}.sh", test.name), &test.script, 0o755)?;
    }
    image.text("lightfoot/order", &guest_test::order(&tests));
    programs.install(&mut image)?;
    let initrd = work.join("initramfs.cpio");
    image.write(&initrd)?;

    let started = Instant::now();
    let machine = qemu::Machine { kernel: &kernel, initrd: &initrd, folder: &work };
    let ended = machine.boot(Duration::from_secs(args.timeout))?;
    if args.keep {
        eprintln!("vm: initramfs kept: {}", initrd.display());
    } else {
        let _ = std::fs::remove_file(&initrd);
    }
    let report = report::parse(&ended.results);

    if !args.command.is_empty() {
        return Ok(print_single(&report, &ended));
    }
    let require_all = args.require_all || std::env::var_os("LIGHTFOOT_REQUIRE_ALL").is_some_and(|v| v == "1");
    let mut verdict = Verdict::new(require_all);
    let place = report.release.clone().unwrap_or_else(|| "guest".into());
    for test in &tests {
        let run = report.tests.get(&test.name).cloned().unwrap_or_else(TestRun::missing);
        verdict.add(&place, test, checks::judge(&test.name, run));
    }
    verdict.guest_health(&ended, &report, &programs);
    let boot = report.boot_s.map_or_else(|| "unknown".into(), |s| format!("{s:.1} s"));
    println!("guest: kernel {place}, boot {boot}, {:.1} s in all", started.elapsed().as_secs_f64());

    for test in tests.iter().filter(|test| test.here) {
        let run = here::run(test, &programs, &work.join("here"))?;
        verdict.add(&here::kernel_release(), test, checks::judge(&test.name, run));
    }
    Ok(verdict.print(&ended.console_path))
}

/// A guest test made of one command line, for `cargo xtask vm BINARY ARGS...`.
fn single_command(work: &Path, command: &[String], timeout_s: u64) -> Result<(GuestTest, Programs)> {
    let binary = which(&command[0]).with_context(|| format!("no such program: {}", command[0]))?;
    let name = binary.file_name().context("a program has a name")?.to_string_lossy().into_owned();
    let quoted: Vec<String> =
        command[1..].iter().map(|arg| format!("'{}'", arg.replace('\'', r"'\''"))).collect();
    let script = work.join("command.sh");
    std::fs::write(&script, format!("exec '{name}' {}\n", quoted.join(" ")))?;
    let mut programs = Programs::default();
    programs.insert(name, binary);
    let test = GuestTest { name: "command".into(), script, timeout_s, ..GuestTest::default() };
    Ok((test, programs))
}

/// Prints the output of a single command; whether it ended with 0.
fn print_single(report: &report::Report, ended: &qemu::Ended) -> bool {
    let Some(run) = report.tests.get("command") else {
        eprintln!("vm: {} before the program ended; the console:", ended.how);
        eprintln!("{}", report::tail(&ended.console, 60));
        return false;
    };
    print!("{}", run.log());
    if let Outcome::Failed(why) = &run.outcome {
        eprintln!("vm: {why}");
    }
    run.outcome == Outcome::Passed
}

/// The folder of the workspace's Cargo.toml.
fn workspace_root() -> PathBuf {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    folder.parent().map_or(folder.clone(), Path::to_path_buf)
}

/// Where cargo builds.
fn target_dir(root: &Path) -> PathBuf {
    root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Path of a program, looked up like a shell does.
fn which(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return std::fs::canonicalize(name).ok();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // QEMU and dpkg live in sbin on some machines, and ordinary users may not have it in PATH.
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder: PathBuf| folder.join(name))
        .find(|file| file.is_file())
}

/// Runs a command and returns its stdout; its stderr is part of the error.
fn output(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let out = command.output().with_context(|| format!("cannot run {shown}"))?;
    if !out.status.success() {
        bail!("{shown}: {}: {}", out.status, String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
