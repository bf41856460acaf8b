//! The formats by name and by file name.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// A format that a profile can be written in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Format {
    /// Tables and the ledger, for a terminal.
    Text,
    /// One self-contained interactive page.
    Html,
    /// A static flame graph.
    Svg,
    /// One line per stack: `comm;root;...;leaf count`.
    Folded,
    /// pprof's protocol buffer, gzipped.
    Pprof,
    /// speedscope's file format.
    Speedscope,
    /// The Firefox Profiler's processed profile.
    Firefox,
    /// Everything, in lightfoot's own schema.
    Json,
}

/// File name endings and the format that each one chooses. Endings of two parts come before their last part alone, so the first that
/// fits is the right one.
pub const EXTENSIONS: [(&str, Format); 15] = [
    (".txt", Format::Text),
    (".text", Format::Text),
    (".html", Format::Html),
    (".htm", Format::Html),
    (".svg", Format::Svg),
    (".folded", Format::Folded),
    (".collapsed", Format::Folded),
    (".pb.gz", Format::Pprof),
    (".pprof", Format::Pprof),
    (".pb", Format::Pprof),
    (".speedscope.json", Format::Speedscope),
    (".speedscope", Format::Speedscope),
    (".firefox.json", Format::Firefox),
    (".firefox", Format::Firefox),
    (".json", Format::Json),
];

impl Format {
    /// Every format, in the order of the help text.
    pub const ALL: [Format; 8] = [
        Format::Text,
        Format::Html,
        Format::Svg,
        Format::Folded,
        Format::Pprof,
        Format::Speedscope,
        Format::Firefox,
        Format::Json,
    ];

    /// The name used on the command line, for example `folded`.
    pub fn name(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Html => "html",
            Format::Svg => "svg",
            Format::Folded => "folded",
            Format::Pprof => "pprof",
            Format::Speedscope => "speedscope",
            Format::Firefox => "firefox",
            Format::Json => "json",
        }
    }

    /// The format that a file's name asks for by its ending ([`EXTENSIONS`], upper or lower case); `None` if it asks for none.
    pub fn from_path(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        EXTENSIONS.iter().find(|(ending, _)| name.ends_with(ending)).map(|&(_, format)| format)
    }

    /// Whether the output is meant for programs only and would garble a terminal.
    pub fn is_binary(self) -> bool {
        self == Format::Pprof
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Format, UnknownFormat> {
        Format::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| UnknownFormat { name: name.to_owned() })
    }
}

/// A format name that is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown format '{name}': choose one of {}", Format::ALL.map(Format::name).join(", "))]
pub struct UnknownFormat {
    /// What was asked for.
    pub name: String,
}

/// The accepted file name endings in one line, for messages: `.txt, .text, .html, ...`.
pub fn extensions_for_people() -> String {
    EXTENSIONS.map(|(ending, _)| ending).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for format in Format::ALL {
            assert_eq!(format.name().parse(), Ok(format));
            assert!(EXTENSIONS.iter().any(|&(_, f)| f == format), "{format} has an extension");
        }
        let error = "flame".parse::<Format>().unwrap_err().to_string();
        assert!(error.contains("'flame'") && error.contains("speedscope"), "{error}");
    }

    #[test]
    fn file_names_choose_the_longest_ending() {
        let of = |name: &str| Format::from_path(Path::new(name));
        assert_eq!(of("a/b.json"), Some(Format::Json));
        assert_eq!(of("a.speedscope.json"), Some(Format::Speedscope));
        assert_eq!(of("a.firefox.json"), Some(Format::Firefox));
        assert_eq!(of("cpu.pb.gz"), Some(Format::Pprof));
        assert_eq!(of("CPU.SVG"), Some(Format::Svg));
        for name in ["", "/", "flame", "flame.gz", "a.html/b", "json"] {
            assert_eq!(of(name), None, "{name}");
        }
        for (ending, format) in EXTENSIONS {
            assert_eq!(of(&format!("x{ending}")), Some(format), "{ending}");
        }
    }
}
