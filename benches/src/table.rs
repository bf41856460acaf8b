//! Markdown tables and the few statistics that they need.

/// A table in markdown, printed when complete.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a title above and these columns.
    pub fn new(title: &str, columns: &[&str]) -> Table {
        println!("### {title}\n");
        Table { rows: vec![columns.iter().map(|c| c.to_string()).collect()] }
    }

    /// One row; also shown on stderr at once, since a bench takes minutes.
    pub fn row(&mut self, cells: Vec<String>) {
        eprintln!("  {}", cells.join(" | "));
        self.rows.push(cells);
    }

    /// Prints the table.
    pub fn print(self) {
        for (number, row) in self.rows.iter().enumerate() {
            println!("| {} |", row.join(" | "));
            if number == 0 {
                println!("|{}", "---|".repeat(row.len()));
            }
        }
    }
}

/// `value`, with a mark if it is outside of what was promised.
pub fn within(text: String, reached: bool) -> String {
    if reached { text } else { format!("**{text}** (!)") }
}

/// The middle value; NaN for none.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value below which `q` of the values lie, interpolated; NaN for none.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let position = q * (sorted.len() - 1) as f64;
    let (low, high) = (position.floor() as usize, position.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (position - low as f64)
}

/// Standard error of the median, from the quartiles: 1.2533 x IQR / 1.349 / sqrt(n).
pub fn median_error(values: &[f64]) -> f64 {
    1.2533 * (quantile(values, 0.75) - quantile(values, 0.25)) / 1.349 / (values.len() as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0]), 1.5);
        assert_eq!(quantile(&[0.0, 10.0], 0.25), 2.5);
        assert!(median(&[]).is_nan());
    }
}
