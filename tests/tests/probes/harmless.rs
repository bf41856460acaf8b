//! A probe on any instruction that is not refused leaves the program as it was: a real program, with probes on the instructions of all
//! functions of its C library that it calls.

use super::*;
use lightfoot_kernel::probes::capabilities;
use lightfoot_sites::elf::Elf;
use lightfoot_sites::{Options as Choice, Spec, instruction, resolve};
use lightfoot_unwind::Arch;
use std::path::Path;
use std::process::Output;

/// Instructions of each function, from its start.
const INSTRUCTIONS: usize = 48;
const LIBRARY: &str = "/lib/x86_64-linux-gnu/libc.so.6";
const COMMAND: [&str; 4] = ["/usr/bin/sort", "-n", "-k2", "/proc/cpuinfo"];

fn run(folder: &Path) -> Output {
    Command::new(COMMAND[0])
        .args(&COMMAND[1..])
        .env("LD_LIBRARY_PATH", folder)
        .output()
        .expect("the command runs")
}

fn group(places: &[Place]) -> Group {
    let options = Options { slots: places.len() as u32, ..Options::new(Mechanism::UprobeMulti, Body::Empty) };
    let mut group = Group::load(&options).unwrap_or_else(|e| panic!("{}", chain(&e)));
    let point = |(slot, place): (usize, &Place)| Point { slot: slot as u32, place: place.clone() };
    let points: Vec<Point> = places.iter().enumerate().map(point).collect();
    group.attach(&points).unwrap_or_else(|e| panic!("{}", chain(&e)));
    group
}

#[test]
fn probes_on_every_instruction() {
    let Some(_turn) = turn("probes_on_every_instruction", Mechanism::UprobeMulti) else { return };
    if !Path::new(LIBRARY).exists() || !Path::new(COMMAND[0]).exists() {
        eprintln!("probes_on_every_instruction: no {LIBRARY}, or no {}", COMMAND[0]);
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let copy = folder.path().join("libc.so.6");
    std::fs::copy(LIBRARY, &copy).expect("copy");
    let spec = Spec::parse(&format!("uprobe:{}:*", copy.display())).expect("spec");
    // Which functions does it call?
    let choice = Choice { limit: 100_000, arguments: false, ..Choice::new(capabilities()) };
    let all: Vec<Place> =
        resolve(&[spec], &choice).expect("places").into_iter().map(|site| site.place).collect();
    let mut entries = group(&all);
    let expected = run(folder.path());
    assert!(expected.status.success());
    entries.detach().expect("detach");
    let counts = entries.counts().expect("counts");
    let bytes = std::fs::read(&copy).expect("library");
    let data = bytes.as_slice();
    let elf = Elf::parse(&data, None).expect("ELF");
    let (mut places, mut refused) = (Vec::new(), 0);
    for (place, _) in all.iter().zip(&counts).filter(|(_, counts)| counts.fired > 0) {
        let Place::User { file, offset, .. } = place else { panic!("{place:?}") };
        let function = elf.address_of(*offset).and_then(|address| elf.holding(address));
        let Some((function, code)) =
            function.and_then(|function| Some((function, elf.bytes(&data, function)?)))
        else {
            continue;
        };
        let start = elf.offset_of(function.address).expect("it is in the file");
        for into in instruction::starts(Arch::X86_64, &code).into_iter().take(INSTRUCTIONS) {
            let offset = start + into;
            match instruction::classify(
                Arch::X86_64,
                &code[into as usize..],
                offset,
                choice.capabilities.nop5,
            ) {
                Ok(_) => places.push(Place::User { file: file.clone(), offset, semaphore: None }),
                Err(_) => refused += 1,
            }
        }
    }
    let mut probes = group(&places);
    let probed = run(folder.path());
    probes.detach().expect("detach");
    let hit = probes.counts().expect("counts").iter().filter(|counts| counts.fired > 0).count();
    eprintln!("{} instructions probed, {hit} of them executed, {refused} refused", places.len());
    assert!(hit > 500, "{hit} instructions were executed");
    assert!(probed.status.success(), "{:?}", probed.status);
    assert!(probed.stdout == expected.stdout, "the program says something else");
}
