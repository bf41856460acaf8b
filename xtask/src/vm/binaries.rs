//! The binaries under test: built here as always, copied into the guest with the libraries they need. That is cheaper
//! than a second, static build of every dependency, and it is literally the same binary.
use super::initramfs::Initramfs;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Programs by the name they have in the guest's PATH.
#[derive(Default)]
pub struct Programs {
    paths: BTreeMap<String, PathBuf>,
}

impl Programs {
    /// Builds what the tests need: see [`super::guest_test`] for the names.
    pub fn build<'a>(root: &Path, profile: &str, needs: impl Iterator<Item = &'a String>) -> Result<Self> {
        let mut programs = Programs::default();
        let needs: BTreeSet<&str> = needs.map(String::as_str).collect();
        for need in needs {
            if need == "lightfoot"
                && let Some(binary) = std::env::var_os("LIGHTFOOT_BIN")
            {
                programs.insert("lightfoot".into(), binary.into());
            } else if need == "lightfoot" {
                let built = cargo(root, &["build", "--package", "lightfoot", "--profile", profile])?;
                for (_, path) in built.into_iter().filter(|(target, _)| target == "lightfoot") {
                    programs.insert("lightfoot".into(), path);
                }
            } else if let Some(package) = need.strip_prefix("tests:") {
                // The default profile, so that `cargo test` has compiled it already.
                let (package, test) = package.split_once(':').unwrap_or((package, ""));
                let one = ["--test", test];
                let args = ["test", "--package", package, "--no-run"].into_iter();
                let args: Vec<&str> = args.chain(one.into_iter().filter(|_| !test.is_empty())).collect();
                for (target, path) in cargo(root, &args)? {
                    programs.insert(format!("{package}-{target}"), path);
                }
            } else {
                programs.insert(need.into(), program(root, need)?);
            }
        }
        Ok(programs)
    }

    pub fn insert(&mut self, name: String, path: PathBuf) {
        self.paths.insert(name, path);
    }

    pub fn path(&self, name: &str) -> Option<&Path> {
        self.paths.get(name).map(PathBuf::as_path)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.paths.iter().map(|(name, path)| (name.as_str(), path.as_path()))
    }

    /// Puts all of them into the guest's `/lightfoot/bin`.
    pub fn install(&self, image: &mut Initramfs) -> Result<()> {
        for (name, path) in self.iter() {
            image.program(&format!("lightfoot/bin/{name}"), path)?;
        }
        Ok(())
    }
}

/// Runs cargo and returns target name and path of each executable it made.
fn cargo(root: &Path, args: &[&str]) -> Result<Vec<(String, PathBuf)>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let out = Command::new(cargo)
        .args(args)
        .args(["--quiet", "--message-format=json-render-diagnostics"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !out.status.success() {
        bail!("cargo {} failed", args.join(" "));
    }
    let text = String::from_utf8_lossy(&out.stdout);
    Ok(text.lines().filter_map(executable).collect())
}

/// Target and executable in one line of cargo's JSON messages.
fn executable(line: &str) -> Option<(String, PathBuf)> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let path = message.get("executable")?.as_str()?;
    let target = message.get("target")?.get("name")?.as_str()?;
    Some((target.to_owned(), path.into()))
}

/// A program of `tests/programs`, built where its Makefile puts it.
fn program(root: &Path, name: &str) -> Result<PathBuf> {
    let path = super::target_dir(root).join("test-programs").join(name);
    let out = format!("OUT={}", path.parent().unwrap_or(root).display());
    let mut make = Command::new("make");
    make.arg("--silent").arg("-C").arg(root.join("tests/programs")).arg(out).arg(&path);
    super::output(&mut make).with_context(|| format!("cannot build {name} of tests/programs"))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_in_cargos_messages() {
        let line = r#"{"reason":"compiler-artifact","target":{"name":"lightfoot"},"executable":"/t/debug/lightfoot"}"#;
        assert_eq!(executable(line), Some(("lightfoot".into(), "/t/debug/lightfoot".into())));
        assert_eq!(
            executable(r#"{"reason":"compiler-artifact","target":{"name":"x"},"executable":null}"#),
            None
        );
        assert_eq!(executable("not JSON"), None);
    }
}
