//! `cargo xtask COMMAND`: what developers run.
use clap::{Parser, Subcommand};

mod interpreter_offsets;
mod python_offsets;
mod replay;
mod ruby_offsets;
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
    /// Print where an interpreter's fields lie, from its debug information.
    InterpreterOffsets(interpreter_offsets::Args),
    /// Walk stacks again that `lightfoot profile --save-failed` saved, step by step.
    Replay(replay::Args),
    /// Bundle the page (ui/) into crates/export/assets, or check that the committed bundle is up to date.
    Ui(ui::Args),
    /// Boot a Debian kernel under QEMU and run test binaries there.
    Vm(vm::Args),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::InterpreterOffsets(args) => interpreter_offsets::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Ui(args) => ui::run(args),
        Command::Vm(args) => vm::run(args),
    }
}
