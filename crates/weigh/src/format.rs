//! The formats by name and by file name.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// A format that a result can be written in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Format {
    /// A table, for a terminal.
    Text,
    /// Everything, in lightfoot's own schema.
    Json,
    /// Tables in markdown.
    Markdown,
    /// A plot.
    Svg,
}

/// File name endings and the format that each one chooses.
const EXTENSIONS: [(&str, Format); 6] = [
    (".txt", Format::Text),
    (".text", Format::Text),
    (".json", Format::Json),
    (".md", Format::Markdown),
    (".markdown", Format::Markdown),
    (".svg", Format::Svg),
];

impl Format {
    /// Every format, in the order of the help text.
    pub const ALL: [Format; 4] = [Format::Text, Format::Json, Format::Markdown, Format::Svg];

    /// The name used on the command line, for example `markdown`.
    pub fn name(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Json => "json",
            Format::Markdown => "markdown",
            Format::Svg => "svg",
        }
    }

    /// The format that a file's name asks for by its ending (upper or lower case); `None` if it asks for none.
    pub fn from_path(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        EXTENSIONS.iter().find(|(ending, _)| name.ends_with(ending)).map(|&(_, format)| format)
    }

    /// The endings that [`Format::from_path`] knows, for people.
    pub fn endings() -> String {
        EXTENSIONS.map(|(ending, _)| ending).join(" ")
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        Format::ALL
            .into_iter()
            .find(|format| format.name() == text)
            .ok_or_else(|| format!("choose one of {}", Format::ALL.map(Format::name).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_choose_the_format() {
        for (name, format) in [
            ("a.txt", Some(Format::Text)),
            ("dir.svg/a.JSON", Some(Format::Json)),
            ("a.md", Some(Format::Markdown)),
            ("a.svg", Some(Format::Svg)),
            ("svg", None),
            ("a.svg.gz", None),
        ] {
            assert_eq!(Format::from_path(Path::new(name)), format, "{name}");
        }
    }

    #[test]
    fn names_are_read_back() {
        for format in Format::ALL {
            assert_eq!(format.name().parse(), Ok(format));
        }
        assert!("html".parse::<Format>().is_err_and(|said| said.contains("markdown")));
    }
}
