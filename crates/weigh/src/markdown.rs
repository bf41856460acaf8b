//! The ladder as tables in markdown.

use crate::report::{Report, Row};
use crate::text::{all_missing, circumstances, groups, number, program, title};
use std::io::{self, Write};

/// Writes the tables: what was measured, what is not here, what is doubtful.
///
/// # Errors
/// Those of the writer.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}; {}.\n", escaped(&report.machine.line()), circumstances(report))?;
    if let Some(why) = &report.noise.why {
        writeln!(out, "**This machine was too noisy for these figures to be trusted**: {}.\n", escaped(why))?;
    }
    writeln!(
        out,
        "| probe | site | program | threads | base ns | + ns | 95 % | + % | kernel's statistics | model |\n\
         |---|---|---|--:|--:|--:|--:|--:|--:|--:|"
    )?;
    for row in report.measured() {
        write_row(row, out)?;
    }
    let mut missing = Vec::new();
    for group in groups(&report.rows) {
        match (group.first(), all_missing(group)) {
            (Some(first), Some(why)) => missing.push((title(first), why.to_string())),
            _ => missing.extend(
                group
                    .iter()
                    .filter_map(|row| Some((format!("{} {}", title(row), program(row)), row.why.clone()?))),
            ),
        }
    }
    if !missing.is_empty() {
        writeln!(out, "\n| not measured | why |\n|---|---|")?;
        for (what, why) in missing {
            writeln!(out, "| {} | {} |", escaped(&what), escaped(&why))?;
        }
    }
    if report.noise.doubtful_rows > 0 {
        writeln!(out, "\n| doubtful | why |\n|---|---|")?;
        for row in &report.rows {
            if let Some(doubt) = &row.doubt {
                writeln!(out, "| {} {} | {} |", escaped(&title(row)), program(row), escaped(doubt))?;
            }
        }
    }
    Ok(())
}

fn write_row(row: &Row, out: &mut dyn Write) -> io::Result<()> {
    let optional = |value: Option<f64>| value.map_or(String::new(), number);
    let interval =
        row.ci95_ns.map_or(String::new(), |[low, high]| format!("{} to {}", number(low), number(high)));
    writeln!(
        out,
        "| {} | {} | {} | {} | {} | {}{} | {interval} | {} | {} | {} |",
        row.probe.name(),
        row.site,
        row.program.name(),
        row.threads,
        optional(row.base_ns),
        optional(row.overhead_ns),
        if row.doubt.is_some() { " ?" } else { "" },
        optional(row.overhead_percent),
        optional(row.kernel_stats_ns),
        optional(row.predicted_ns)
    )
}

/// What would be markup.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::example;

    #[test]
    fn tables_have_a_row_for_each_and_no_markup_of_others() {
        let mut bytes = Vec::new();
        let mut report = example();
        report.rows[0].why = Some("a|b <script>".into());
        write(&report, &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert!(
            text.contains("| raw_tracepoint | sys_enter | empty | 1 | 120 | 70 | 67 to 73 | 58 | 55 |  |"),
            "{text}"
        );
        assert!(text.contains("| kprobe sys_getppid | a\\|b &lt;script> |"), "{text}");
        assert!(text.contains("| uprobe_multi push complex | the interval is"), "{text}");
        let columns: Vec<usize> = text
            .lines()
            .filter(|line| line.starts_with("| "))
            .map(|line| line.replace("\\|", "").matches('|').count())
            .collect();
        assert_eq!(columns, [11, 11, 11, 11, 11, 11, 11, 3, 3, 3, 3], "{text}");
    }
}
