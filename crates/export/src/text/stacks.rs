//! How many stacks are whole, and for the others which object ended them, why, and what would help.

use super::{INDENT, Page, Style};
use crate::debts::{self, Row};
use crate::names::{printable, short_object, shorten_middle, width};
use crate::units::{count, counted, share_text};
use lightfoot_model::Profile;
use std::io;

/// Rows of the table; what they leave out is said in a line.
const MAX_ROWS: usize = 6;
/// The narrowest page with reasons beside the figures; on a narrower one they stand below.
const WIDE: usize = 76;
/// Columns of an object's name at most.
const MAX_OBJECT: usize = 28;
/// Before what would help. Its meaning stands in the table's head.
const REMEDY_MARK: &str = "-> ";

impl Page<'_> {
    /// The paragraph "Stacks"; nothing where there are no samples.
    pub(super) fn stacks(&mut self, profile: &Profile) -> io::Result<()> {
        let samples = profile.total_count();
        if samples == 0 {
            return Ok(());
        }
        self.heading("Stacks")?;
        let rows = debts::rows(profile);
        let owed: u64 = rows.iter().map(|row| row.count).sum();
        let whole = samples.saturating_sub(owed);
        let share = match share_text(whole, samples) {
            // Not all, however close.
            text if text == "100 %" && owed > 0 => "over 99.9 %".into(),
            text => text,
        };
        let mut text = format!("{share} complete: {} of {} reach", count(whole), counted(samples, "sample"));
        text.push_str(if owed == 0 { " the root" } else { " the root, the others end before it:" });
        self.indented(Style::Plain, &text)?;
        self.debt(&rows, samples)?;
        let no_stack: u64 = profile.samples.iter().filter(|s| s.stack.is_none()).map(|s| s.count).sum();
        if no_stack > 0 {
            let text = format!("{} with no known frame: in no function above", counted(no_stack, "sample"));
            self.indented(Style::Plain, &text)?;
        }
        Ok(())
    }

    fn debt(&mut self, rows: &[Row], samples: u64) -> io::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let shown = &rows[..rows.len().min(MAX_ROWS)];
        let objects: Vec<String> = shown.iter().map(|row| object_of(row).into_owned()).collect();
        let beside = self.width >= WIDE;
        let number = shown.iter().map(|row| width(&count(row.count))).max().unwrap_or(0).max("samples".len());
        let object = objects.iter().map(|text| width(text)).max().unwrap_or(0).max("object".len());
        let object = object.min(if beside { MAX_OBJECT } else { self.width - number - 12 });

        let mut head = format!("{:>8}  {:>number$}  {:object$}", "", "samples", "object");
        if beside {
            head.push_str("  why, -> what would help");
        }
        self.styled(Style::Faint, head.trim_end())?;
        self.out.write_all(b"\n")?;
        for (row, name) in shown.iter().zip(&objects) {
            let name = shorten_middle(name, object);
            let figures =
                format!("{:>8}  {:>number$}  {name}", share_text(row.count, samples), count(row.count));
            self.out.write_all(figures.as_bytes())?;
            let mut reason = row.outcome.sentence().to_owned();
            if !row.detail.is_empty() {
                reason.push_str(&format!(" ({})", printable(row.detail)));
            }
            let indent = if beside { 8 + 2 + number + 2 + object + 2 } else { INDENT + 2 };
            if beside {
                write!(self.out, "{:1$}", "", indent - width(&figures))?;
            } else {
                write!(self.out, "\n{:indent$}", "")?;
            }
            self.prose(Style::Plain, &reason, indent, indent)?;
            if !row.remedy.is_empty() {
                write!(self.out, "{:indent$}", "")?;
                let hanging = indent + width(REMEDY_MARK);
                self.prose(Style::Faint, &format!("{REMEDY_MARK}{}", row.remedy), indent, hanging)?;
            }
        }
        let rest = &rows[shown.len()..];
        if !rest.is_empty() {
            let text = format!(
                "and {} with {} together",
                counted(rest.len() as u64, "more row"),
                counted(rest.iter().map(|row| row.count).sum(), "sample")
            );
            self.indented(Style::Faint, &text)?;
        }
        Ok(())
    }
}

fn object_of<'r>(row: &Row<'r>) -> std::borrow::Cow<'r, str> {
    match row.object {
        "" => "[unknown]".into(),
        object => printable(short_object(object)),
    }
}
