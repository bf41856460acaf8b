//! `cargo xtask interpreter-offsets LANGUAGE FILE...`: the layout of a version that does not describe itself, as the JSON that
//! `crates/interpreters/layouts/` and a user's folder of layouts have.
use std::io::Write;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    language: Language,
}

#[derive(clap::Subcommand)]
enum Language {
    /// CPython 3.8 to 3.12 (later versions describe themselves), from files with its debug information or from its headers.
    Python {
        /// Its version, such as 3.11.2.
        #[arg(long)]
        version: String,
        /// The folder that has Python.h, to be compiled by `cc`, instead of files.
        #[arg(long, conflicts_with = "files")]
        headers: Option<PathBuf>,
        /// Files with DWARF: libpython or python built with -g, or its separate debug file.
        #[arg(required_unless_present = "headers")]
        files: Vec<PathBuf>,
    },
    /// CRuby, from linked files with its debug information.
    Ruby {
        /// Its version, such as 3.1.2.
        #[arg(long)]
        version: String,
        /// How these files came to be, for the record.
        #[arg(long, default_value = "debug information")]
        source: String,
        /// Files with DWARF: libruby or ruby built with -g, or its separate debug file. What the first does not have is
        /// looked for in the next.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let layout = match args.language {
        Language::Python { version, headers, files } => {
            use crate::python_offsets::{Source, layout};
            layout(&headers.map_or(Source::Files(files), Source::Headers), &version)?
        }
        Language::Ruby { version, source, files } => crate::ruby_offsets::layout(&files, &version, &source)?,
    };
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &layout)?;
    writeln!(out)?;
    Ok(())
}
