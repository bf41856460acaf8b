//! `cargo xtask COMMAND`: what developers run.
use clap::{Parser, Subcommand};

mod ui;
mod vm;

#[derive(Parser)]
#[command(about = "What developers run")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Bundle the page (ui/) into crates/export/assets, or check that the committed bundle is up to date.
    Ui(ui::Args),
    /// Boot a Debian kernel under QEMU and run test binaries there.
    Vm(vm::Args),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Ui(args) => ui::run(args),
        Command::Vm(args) => vm::run(args),
    }
}
