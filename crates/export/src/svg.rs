//! A static flame graph, drawn by inferno.
//!
//! Weights are samples; the hue says the kind of code, as on the page. Frames too narrow to be seen are not drawn; their samples stay in their callers. Loses what folded stacks lose.

use crate::colors;
use crate::folded::write_line;
use crate::names::{printable, shorten_middle};
use crate::paths::Paths;
use crate::stream::buffered;
use crate::text::identity;
use inferno::flamegraph::color::PaletteMap;
use inferno::flamegraph::{Options, from_lines};
use lightfoot_model::Profile;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Width of the picture, in pixels.
const WIDTH_PIXELS: usize = 1200;
/// Frames narrower than a tenth of a pixel are not drawn.
const FRAMES_PER_PICTURE_WIDTH: u64 = WIDTH_PIXELS as u64 * 10;
/// Most frames that are drawn; about 400 bytes each. With more, the narrowest are left out.
const MAX_FRAMES: usize = 12_000;
/// Columns of the title; longer targets are shortened.
const TITLE_COLUMNS: usize = 90;

/// Writes `profile` as a picture.
///
/// # Errors
/// Those of the writer.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut paths = Paths::new(profile);
    let total = paths.total_count();
    if total == 0 {
        return buffered(out, |writer| write_empty(profile, writer));
    }
    let mut min_count = total.div_ceil(FRAMES_PER_PICTURE_WIDTH);
    paths.cut_below(min_count);
    while paths.frame_count() > MAX_FRAMES && min_count < total {
        min_count = (min_count * 2).min(total);
        paths.cut_below(min_count);
    }
    let lines = cut_lines(&paths)?;
    let mut palette = PaletteMap::default();
    palette.insert("all", colors::of(None, ""));
    for (label, kind) in paths.labels() {
        palette.insert(label, colors::of(kind, label));
    }
    drop(paths);

    let mut options = Options::default();
    // inferno's palettes guess the kind of code from names: `main.main` would be Java. We know it.
    options.palette_map = Some(&mut palette);
    options.title = title(profile);
    options.subtitle = Some(match min_count {
        0..=1 => identity(profile),
        _ => format!("{}; frames of fewer than {min_count} samples are not drawn", identity(profile)),
    });
    options.image_width = Some(WIDTH_PIXELS);
    options.min_width = 0.0;
    options.count_name = "samples".into();
    options.deterministic = true;
    // The lines are in order already; inferno's own order of whole lines stumbles over names that contain blanks.
    options.no_sort = true;
    buffered(out, |writer| from_lines(&mut options, lines.iter().map(String::as_str), writer))
}

/// The lines of folded stacks, equal ones together, in the order of the stacks as bytes.
fn cut_lines(paths: &Paths) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    paths.for_each(|labels, count| {
        let mut line = Vec::new();
        write_line(&mut line, labels, count)?;
        lines.push(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
        io::Result::Ok(())
    })?;
    Ok(lines)
}

fn title(profile: &Profile) -> String {
    shorten_middle(&printable(&profile.meta.target), TITLE_COLUMNS).into_owned()
}

/// A picture that says that there is nothing to see.
fn write_empty(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let entities = BTreeMap::from([('<', "&lt;"), ('>', "&gt;"), ('&', "&amp;")]);
    let mut lines = vec![title(profile), "No samples".into(), identity(profile)];
    for line in &mut lines {
        *line = line.chars().fold(String::new(), |mut text, c| {
            match entities.get(&c) {
                Some(entity) => text.push_str(entity),
                None if matches!(c, '\u{FFFE}' | '\u{FFFF}') => text.push('\u{FFFD}'),
                None => text.push(c),
            }
            text
        });
    }
    writeln!(
        out,
        concat!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="120" viewBox="0 0 {0} 120">"#,
            r##"<rect width="100%" height="100%" fill="#f8f8f8"/>"##,
            r#"<g font-family="monospace" text-anchor="middle">"#,
            r#"<text x="50%" y="36" font-size="17">{1}</text>"#,
            r#"<text x="50%" y="66" font-size="14">{2}</text>"#,
            r#"<text x="50%" y="92" font-size="12">{3}</text></g></svg>"#
        ),
        WIDTH_PIXELS, lines[0], lines[1], lines[2]
    )
}
