//! `lightfoot system-info`: what works here and what does not.

use crate::args::SystemInfoArguments;
use crate::exit::{DONE, Failure};
use crate::output::Output;
use lightfoot_kernel::features::{self, Feature};
use lightfoot_kernel::os;
use serde_json::json;
use std::io::{self, Write};

/// Prints what was found by trying. Returns the exit code.
pub fn run(arguments: &SystemInfoArguments) -> Result<u8, Failure> {
    let features = features::probe();
    Output::Stdout.deliver(|out| match arguments.format.as_str() {
        "json" => json(&features, out),
        _ => text(&features, out),
    })?;
    Ok(DONE)
}

fn text(features: &[Feature], out: &mut dyn Write) -> io::Result<()> {
    let (kernel, machine) = os::uname();
    let cpus = os::online_cpus().map_or(0, |cpus| cpus.len());
    writeln!(
        out,
        "lightfoot {} on Linux {kernel} {machine}, {cpus} CPUs online\n",
        env!("CARGO_PKG_VERSION")
    )?;
    let width = features.iter().map(|f| f.name.len()).max().unwrap_or(0);
    for feature in features {
        match &feature.result {
            Ok(detail) => {
                writeln!(out, "{}", format!("  yes  {:width$}  {detail}", feature.name).trim_end())?
            }
            Err(why) => {
                writeln!(out, "  no   {:width$}  {why}", feature.name)?;
                writeln!(out, "       {:width$}  -> {}", "", feature.without)?;
            }
        }
    }
    let missing = features.iter().filter(|f| f.essential && f.result.is_err()).count();
    match missing {
        0 => writeln!(out, "\nlightfoot profile works here."),
        _ => writeln!(
            out,
            "\nlightfoot profile does not work here: {missing} of the things that it cannot do without are missing."
        ),
    }
}

fn json(features: &[Feature], out: &mut dyn Write) -> io::Result<()> {
    let (kernel, machine) = os::uname();
    let features: Vec<_> = features
        .iter()
        .map(|f| {
            json!({
                "name": f.name,
                "works": f.result.is_ok(),
                "essential": f.essential,
                "detail": f.result.as_ref().unwrap_or_else(|why| why),
                "without": f.without,
            })
        })
        .collect();
    let document = json!({
        "schema": "lightfoot.system-info/1",
        "version": env!("CARGO_PKG_VERSION"),
        "kernel": kernel,
        "machine": machine,
        "cpus": os::online_cpus().map_or(0, |cpus| cpus.len()),
        "missing_capabilities": os::missing_capabilities(),
        "max_sample_rate_hz": os::max_sample_rate_hz(),
        "features": features,
    });
    writeln!(out, "{document:#}")
}
