//! Compiles bpf/*.bpf.c with clang. Needs neither bpftool nor libbpf-dev nor kernel headers: libbpf's BPF-side headers come
//! from libbpf-sys's build output.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let env = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is set by cargo"));
    let source = Path::new(&env("CARGO_MANIFEST_DIR")).join("../../bpf");
    let out = PathBuf::from(env("OUT_DIR"));
    let arch = match env("CARGO_CFG_TARGET_ARCH").as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => panic!("lightfoot runs on x86_64 and aarch64, not on {other}"),
    };
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = clang();
    // Source, object, definitions.
    let objects = [
        ("sampler", "sampler", &[][..]),
        ("remote", "remote", &[]),
        ("probes", "probes", &[]),
        ("probes", "probes_types", &["-DLF_TYPES"]),
        ("probes", "probes_nested", &["-DLF_TYPES", "-DLF_NESTED"]),
        ("tls", "tls", &[]),
    ];
    for (name, to, definitions) in objects {
        let status = Command::new(&clang)
            .args(["-O2", "-g", "--target=bpf", "-mcpu=v3", "-nostdinc", "-Wall", "-Wextra", "-Werror"])
            .arg(format!("-D__TARGET_ARCH_{arch}"))
            // The object must not depend on where it was built.
            .arg(format!("-fdebug-prefix-map={}=bpf", source.display()))
            .arg("-I")
            .arg(&source)
            .arg("-I")
            .arg(env("DEP_BPF_INCLUDE"))
            .arg("-c")
            .args(definitions)
            .arg(source.join(format!("{name}.bpf.c")))
            .arg("-o")
            .arg(out.join(format!("{to}.bpf.o")))
            .status()
            .unwrap_or_else(|e| panic!("{clang}: {e}"));
        assert!(status.success(), "{clang} could not compile bpf/{name}.bpf.c");
    }
}

/// The first clang that has the BPF target: `$CLANG`, `clang`, `clang-14` and later.
fn clang() -> String {
    let works = |clang: &String| {
        Command::new(clang)
            .args(["--target=bpf", "-x", "c", "-c", "/dev/null", "-o", "/dev/null"])
            .output()
            .is_ok_and(|out| out.status.success())
    };
    std::env::var("CLANG")
        .into_iter()
        .chain(["clang".to_string()])
        .chain((14..=24).rev().map(|version| format!("clang-{version}")))
        .find(works)
        .expect("clang >= 14 with the BPF target is needed: install the package clang, or set CLANG")
}
