//! Writes one of the small test profiles as one format: `cargo run -p lightfoot-export --example fixture -- varied FORMAT FILE`.

#[path = "../tests/common/mod.rs"]
mod common;

use lightfoot_export::{Format, TextOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let profile = match words.next().as_deref() {
        Some("varied") => common::varied(),
        Some("hostile") => common::hostile(),
        Some("no_samples") => common::no_samples(),
        _ => return Err("which profile: varied, hostile or no_samples?".into()),
    };
    let format: Format = words.next().ok_or("which format?")?.parse()?;
    let mut file = std::fs::File::create(words.next().ok_or("which file?")?)?;
    lightfoot_export::write(&profile, format, &mut file, &TextOptions::default())?;
    Ok(())
}
