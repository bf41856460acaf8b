//! `shares FILE...`: of the functions of each file, how many have a cheap instruction at the first byte, and how many at the chosen place.
//! `shares -x SPEC`: the places of probes, with what was chosen.
#![allow(clippy::print_stdout)]

use lightfoot_model::Instruction;
use lightfoot_sites::{Capabilities, Options, Site, Spec, resolve};
use std::collections::BTreeMap;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, specs] = arguments.as_slice()
        && flag == "-x"
    {
        let start = Instant::now();
        for site in resolve(&Spec::parse_list(specs)?, &Options::new(Capabilities::all()))? {
            println!("{site:#?}");
        }
        println!("{} us", start.elapsed().as_micros());
        return Ok(());
    }
    println!(
        "| file | functions | cheap at the first byte | cheap at the chosen place | if no arguments are read | refused | ms |\n|---|--:|--:|--:|--:|--:|--:|"
    );
    for file in arguments {
        let spec = Spec::parse(&format!("uprobe:{file}:*"))?;
        let mut options = Options { limit: 1_000_000, naive: true, ..Options::new(Capabilities::all()) };
        let naive = resolve(std::slice::from_ref(&spec), &options)?;
        options.naive = false;
        let start = Instant::now();
        let chosen = resolve(std::slice::from_ref(&spec), &options)?;
        let ms = start.elapsed().as_millis();
        options.arguments = false;
        let counted = resolve(std::slice::from_ref(&spec), &options)?;
        let cheap = |sites: &[Site]| {
            sites.iter().filter(|site| site.instruction != Some(Instruction::SingleStepped)).count()
        };
        let all = chosen.len();
        let percent = |count: usize| 100.0 * count as f64 / all as f64;
        let left_out =
            chosen.iter().flat_map(|site| &site.warnings).filter(|text| text.contains("left out")).count();
        println!(
            "| {file} | {all} | {} ({:.1} %) | {} ({:.1} %) | {} ({:.1} %) | {left_out} | {ms} |",
            cheap(&naive),
            percent(cheap(&naive)),
            cheap(&chosen),
            percent(cheap(&chosen)),
            cheap(&counted),
            percent(cheap(&counted))
        );
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for site in chosen.iter().filter(|site| site.instruction == Some(Instruction::SingleStepped)) {
            let why = site.choices.last().cloned().unwrap_or_default();
            let why = why
                .replace("the first byte, though it is single-stepped: ", "")
                .replace(|c: char| c.is_ascii_digit(), "");
            *reasons.entry(why).or_default() += 1;
        }
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        for (why, count) in reasons.into_iter().take(if std::env::var_os("WHY").is_some() { 25 } else { 0 }) {
            println!("  {count:6} {why}");
        }
    }
    Ok(())
}
