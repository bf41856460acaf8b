// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask ui`: the page of a profile, from `ui/` to `crates/export/assets/page.html`.
//!
//! The bundle is committed, so that `cargo build` needs no Node; `--check` rebuilds it and compares. The same sources
//! and the pinned bundler give the same bytes.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of `cargo xtask ui`.
#[derive(clap::Args)]
pub struct Args {
    /// Write nothing; fail if the committed page is not what the sources give.
    #[arg(long)]
    check: bool,
    /// Also check types and run the unit tests and the browser tests (needs Chromium: `CHROMIUM` or /usr/bin/chromium).
    #[arg(long)]
    test: bool,
}

/// Where the export crate embeds the page from, below the root of the workspace.
const PAGE: &str = "crates/export/assets/page.html";

/// Bundles the page, or checks or tests it.
///
/// # Errors
/// Node or npm is missing, a step fails, or the committed page is out of date.
pub fn run(args: Args) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?;
    let ui = root.join("ui");
    let page = root.join(PAGE);
    install(&ui)?;
    if args.check {
        compare(&ui, &page)?;
    } else if !args.test {
        npm(&ui, &["run", "--silent", "build", "--", &page.to_string_lossy()])?;
    }
    if args.test {
        for script in ["check", "test", "test:browser"] {
            npm(&ui, &["run", "--silent", script])?;
        }
    }
    Ok(())
}

/// `npm ci`, unless exactly what the lockfile says is installed already.
fn install(ui: &Path) -> Result<()> {
    let lock = ui.join("package-lock.json");
    let stamp = ui.join("node_modules/.lightfoot-installed");
    let wanted = std::fs::read(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
    if std::fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    npm(ui, &["ci", "--no-audit", "--no-fund"])?;
    std::fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))
}

/// Builds beside the target folder and compares with what is committed.
fn compare(ui: &Path, page: &Path) -> Result<()> {
    let fresh = Scratch(std::env::temp_dir().join(format!("lightfoot-page-{}.html", std::process::id())));
    npm(ui, &["run", "--silent", "build", "--", &fresh.0.to_string_lossy()])?;
    let built =
        std::fs::read(&fresh.0).with_context(|| format!("cannot read the page at {}", fresh.0.display()))?;
    let committed = std::fs::read(page).with_context(|| format!("cannot read {}", page.display()))?;
    if built != committed {
        bail!("{PAGE} is not what ui/ gives: run `cargo xtask ui` and commit the result");
    }
    Ok(())
}

/// A file that is removed however the check ends.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may never have been written.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn npm(ui: &Path, args: &[&str]) -> Result<()> {
    let status = Command::new("npm")
        .args(args)
        .current_dir(ui)
        .status()
        .context("cannot run npm: install Node.js 20 or newer with npm")?;
    if !status.success() {
        bail!("`npm {}` in ui/ ended with {status}", args.join(" "));
    }
    Ok(())
}
