//! Numbers for people: three significant digits, unit after a blank.

/// `1234567` as `1,234,567`.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun: `1 sample`, `1,234 samples`.
pub(crate) fn counted(value: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(value), if value == 1 { "" } else { "s" })
}

/// Three significant digits, at most two after the point: `9.99`, `10.0`, `100`, `1,000`.
fn three_digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        count(value.round() as u64)
    }
}

/// A time in ns, in the unit that fits: `950 ns`, `14.0 us`, `1.25 ms`, `10.0 s`.
pub(crate) fn time(ns: f64) -> String {
    if !ns.is_finite() {
        return "unknown".into();
    }
    let value = ns.max(0.0);
    if value < 999.5 {
        format!("{} ns", value.round())
    } else if value < 999.5e3 {
        format!("{} us", three_digits(value / 1e3))
    } else if value < 999.5e6 {
        format!("{} ms", three_digits(value / 1e6))
    } else {
        format!("{} s", three_digits(value / 1e9))
    }
}

/// As [`time`], of a whole number of ns.
pub(crate) fn time_ns(ns: u64) -> String {
    time(ns as f64)
}

/// A size: `512 B`, `18.2 MiB`.
pub(crate) fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if value < 1024 {
        return format!("{value} B");
    }
    let mut size = value as f64 / 1024.0;
    let mut unit = 0;
    while size >= 999.5 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{} {}", three_digits(size), UNITS[unit])
}

/// A small percentage with two to three significant digits: `0.24 %`, `0.0012 %`, `12.3 %`.
pub(crate) fn percent(value: f64) -> String {
    if !value.is_finite() {
        return "unknown".into();
    }
    if value <= 0.0 {
        "0 %".into()
    } else if value >= 0.0995 {
        format!("{} %", three_digits(value))
    } else {
        let decimals = (1.0 - value.log10().floor()).clamp(2.0, 9.0) as usize;
        format!("{value:.decimals$} %")
    }
}

/// `part` of `whole` in percent; 0 of nothing is 0.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// A share of a table: always one decimal, so that points stand in a column: `45.2 %`, `100 %`.
pub(crate) fn share_text(part: u64, whole: u64) -> String {
    let percent = share(part, whole);
    if percent >= 99.95 { "100 %".into() } else { format!("{percent:.1} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_units_and_rounding_at_the_edges() {
        assert_eq!([0, 999, 1000, 1234567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0, 999, 1000, 14_000, 999_600, 1_250_000, 10_000_000_000].map(time_ns),
            ["0 ns", "999 ns", "1.00 us", "14.0 us", "1.00 ms", "1.25 ms", "10.0 s"]
        );
        assert_eq!(time(f64::NAN), "unknown");
        assert_eq!(
            [0, 1023, 1024, 19_084_083, u64::MAX].map(bytes),
            ["0 B", "1023 B", "1.00 KiB", "18.2 MiB", "16,384 PiB"]
        );
        assert_eq!(
            [0.0, 0.00123, 0.0456, 0.2412, 12.34, 250.0].map(percent),
            ["0 %", "0.0012 %", "0.046 %", "0.24 %", "12.3 %", "250 %"]
        );
        assert_eq!(
            (share_text(1, 3), share_text(9999, 10_000), share_text(0, 0)),
            ("33.3 %".into(), "100 %".into(), "0.0 %".into())
        );
        assert_eq!((counted(1, "sample"), counted(0, "sample")), ("1 sample".into(), "0 samples".into()));
    }
}
