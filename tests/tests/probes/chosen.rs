//! A chosen place sees what the first byte sees: real libraries, every function whose probe was moved, both places at once.

use super::*;
use lightfoot_kernel::probes::capabilities;
use lightfoot_sites::{Options as Choice, Site, Spec, resolve};
use std::collections::HashMap;
use std::path::Path;

/// Probes of one test; each function takes two.
const FUNCTIONS: usize = 2_000;

/// Puts probes on the first byte and on the chosen place of the functions of a private copy of `library`, runs the command with that copy, and
/// compares. `arguments`: whether the programs are said to read any.
fn compare(name: &str, library: &str, arguments: bool, command: &[&str]) {
    let Some(_turn) = turn(name, Mechanism::UprobeMulti) else { return };
    let library = Path::new(library);
    if !library.exists() || !Path::new(command[0]).exists() {
        eprintln!("{name}: no {}, or no {}", library.display(), command[0]);
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let copy = folder.path().join(library.file_name().expect("a file"));
    std::fs::copy(library, &copy).expect("copy");
    let spec = Spec::parse(&format!("uprobe:{}:*", copy.display())).expect("spec");
    let mut choice = Choice { limit: 100_000, arguments, ..Choice::new(capabilities()) };
    let chosen = resolve(std::slice::from_ref(&spec), &choice).expect("places");
    choice.naive = true;
    let first = resolve(std::slice::from_ref(&spec), &choice).expect("places");
    let offset = |site: &Site| match site.place {
        Place::User { offset, .. } => offset,
        _ => panic!("{site:?}"),
    };
    // By name; names that several functions have are left out.
    let mut firsts: HashMap<&str, Vec<&Site>> = HashMap::new();
    first.iter().for_each(|site| firsts.entry(&site.name).or_default().push(site));
    let pairs: Vec<(&Site, &Site)> = chosen
        .iter()
        .filter_map(|site| {
            Some((*firsts.get(site.name.as_str()).filter(|all| all.len() == 1)?.first()?, site))
        })
        .filter(|(first, chosen)| offset(first) != offset(chosen))
        .take(FUNCTIONS)
        .collect();
    assert!(pairs.len() > 100, "{} functions of {} are probed elsewhere", pairs.len(), copy.display());
    let options = |slots| Options { slots, ..Options::new(Mechanism::UprobeMulti, Body::Empty) };
    let mut group = Group::load(&options(2 * pairs.len() as u32)).expect("group");
    let places = pairs.iter().flat_map(|(first, chosen)| [&first.place, &chosen.place]);
    let points: Vec<Point> =
        places.enumerate().map(|(slot, place)| Point { slot: slot as u32, place: place.clone() }).collect();
    group.attach(&points).expect("attach");
    let output = Command::new(command[0])
        .args(&command[1..])
        .env("LD_LIBRARY_PATH", folder.path())
        .output()
        .expect("the command runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    group.detach().expect("detach");
    let counts = group.counts().expect("counts");
    let (mut called, mut calls) = (0, 0);
    for ((_, chosen), both) in pairs.iter().zip(counts.chunks_exact(2)) {
        assert_eq!(both[0].fired, both[1].fired, "{}: {:?}", chosen.name, chosen.choices);
        called += u32::from(both[0].fired > 0);
        calls += both[0].fired;
    }
    eprintln!("{name}: {calls} calls of {called} functions of {} that are probed elsewhere", pairs.len());
    assert!(called > 20, "{called} functions were called");
}

#[test]
fn libstdcxx() {
    compare(
        "libstdc++",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        true,
        &["/usr/bin/apt-cache", "--version"],
    );
}

#[test]
fn libc() {
    let command = ["/usr/bin/sort", "-n", "/proc/self/maps"];
    compare("libc", "/lib/x86_64-linux-gnu/libc.so.6", true, &command);
    compare("libc, no arguments read", "/lib/x86_64-linux-gnu/libc.so.6", false, &command);
}
