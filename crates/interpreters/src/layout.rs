//! Where fields of an interpreter's structures lie, by version: files made by `cargo xtask interpreter-offsets`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// Layouts taken from debug information of the versions that do not describe themselves.
const BUILT_IN: &[&str] = &[
    include_str!("../layouts/python-3.8.json"),
    include_str!("../layouts/python-3.9.json"),
    include_str!("../layouts/python-3.10.json"),
    include_str!("../layouts/python-3.11.json"),
    include_str!("../layouts/python-3.12.json"),
    include_str!("../layouts/ruby-2.7.json"),
    include_str!("../layouts/ruby-3.1.json"),
    include_str!("../layouts/ruby-3.3.json"),
    include_str!("../layouts/ruby-3.4.json"),
];
/// The same, parsed when an interpreter needs one for the first time.
static PARSED: LazyLock<Vec<Layout>> =
    LazyLock::new(|| BUILT_IN.iter().filter_map(|text| serde_json::from_str(text).ok()).collect());
/// A larger file is no layout.
const MAX_BYTES: u64 = 64 << 10;
/// More files than anybody adds.
const MAX_FILES: usize = 256;

/// One version's layout.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Layout {
    /// `python` or `ruby`.
    pub language: String,
    /// The version it was taken from, and the first one it holds for: `3.11.2`.
    pub version: String,
    /// Last version of the same minor version that it is known to hold for; empty: all of them.
    #[serde(default)]
    pub up_to: String,
    /// CPU: `x86_64` or `aarch64`; empty: any (structures of pointers and integers are the same on both).
    #[serde(default)]
    pub machine: String,
    /// How it was found: `debug information` or `headers`.
    #[serde(default)]
    pub source: String,
    /// `struct.field` -> offset in bytes, or size, or value of a constant.
    pub offsets: BTreeMap<String, u32>,
}

/// Why a file is no layout.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// Reading it failed.
    #[error("cannot read {0}: {1}")]
    Read(String, #[source] std::io::Error),
    /// It is too large.
    #[error("{0}: larger than any layout")]
    TooLarge(String),
    /// It is not what `interpreter-offsets` writes.
    #[error("{0}: {1}")]
    Malformed(String, #[source] serde_json::Error),
    /// Its version is no version.
    #[error("{0}: '{1}' is no version such as 3.11.2")]
    Version(String, String),
}

/// All layouts that are known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Layouts {
    /// Whether those of [`BUILT_IN`] count, too.
    built_in: bool,
    /// Those that were added; they count more than the ones built in, and later ones more than earlier ones.
    added: Vec<Layout>,
}

impl Layouts {
    /// Those that lightfoot knows. They are parsed when [`Layouts::find`] is first asked: most runs meet no interpreter.
    pub fn built_in() -> Layouts {
        Layouts { built_in: true, added: Vec::new() }
    }

    /// Adds one from the text of its file; it counts more than those already there.
    ///
    /// # Errors
    /// The text is not what `cargo xtask interpreter-offsets` writes. `name` is for the message.
    pub fn add(&mut self, name: &str, text: &str) -> Result<(), LayoutError> {
        let layout: Layout =
            serde_json::from_str(text).map_err(|error| LayoutError::Malformed(name.to_owned(), error))?;
        if numbers(&layout.version).is_none() {
            return Err(LayoutError::Version(name.to_owned(), layout.version));
        }
        self.added.push(layout);
        Ok(())
    }

    /// Adds all `*.json` of a folder, in the order of their names.
    ///
    /// # Errors
    /// The folder or one of the files cannot be read, or a file is no layout.
    pub fn add_folder(&mut self, folder: &Path) -> Result<(), LayoutError> {
        let read = |error| LayoutError::Read(folder.display().to_string(), error);
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(read)? {
            let path = entry.map_err(read)?.path();
            if path.extension().is_some_and(|extension| extension == "json") && paths.len() < MAX_FILES {
                paths.push(path);
            }
        }
        paths.sort();
        for path in paths {
            let name = path.display().to_string();
            let read = |error| LayoutError::Read(name.clone(), error);
            if path.metadata().map_err(read)?.len() > MAX_BYTES {
                return Err(LayoutError::TooLarge(name));
            }
            let text = std::fs::read_to_string(&path).map_err(read)?;
            self.add(&name, &text)?;
        }
        Ok(())
    }

    /// The layout for a version: the one with the same major and minor version whose own version is nearest below it, or, if it is
    /// older than all of them, the oldest. None if its `up_to` is exceeded, or there is none of that minor version.
    pub fn find(&self, language: &str, version: crate::Version) -> Option<&Layout> {
        let wanted = [version.major, version.minor, version.patch];
        let mut fitting: Vec<(&Layout, [u8; 3])> = Vec::new();
        let built_in = if self.built_in { PARSED.as_slice() } else { &[] };
        let all = built_in.iter().chain(&self.added);
        for layout in all.filter(|layout| layout.language == language && layout.fits_machine()) {
            if let Some(own) = numbers(&layout.version)
                && own[..2] == wanted[..2]
                && numbers(&layout.up_to).is_none_or(|last| wanted <= last)
            {
                fitting.push((layout, own));
            }
        }
        let below = fitting.iter().filter(|(_, own)| *own <= wanted).max_by_key(|(_, own)| *own);
        let above = fitting.iter().min_by_key(|(_, own)| *own);
        below.or(above).map(|(layout, _)| *layout)
    }
}

impl Layout {
    fn fits_machine(&self) -> bool {
        self.machine.is_empty() || self.machine == std::env::consts::ARCH
    }

    /// One offset.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.offsets.get(name).copied()
    }
}

/// 3.11.2 -> [3, 11, 2]; a missing patch is 0.
fn numbers(version: &str) -> Option<[u8; 3]> {
    let mut parts = version.split('.');
    let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let patch = parts.next().map_or(Ok(0), str::parse).ok()?;
    parts.next().is_none().then_some([major, minor, patch])
}
