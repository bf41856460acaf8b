//! From rounds without and with a probe to its price.

use super::Price;

/// The times of rounds are compared at this quantile: what disturbs a round (other work, the host of a virtual machine) only ever adds time, and
/// the very fastest rounds are luck.
const QUANTILE: f64 = 0.2;
/// The range that tells how sure that is.
const AROUND: (f64, f64) = (0.05, 0.4);

/// The price of one firing from interleaved rounds of the same work, times in ns: `without` a probe and `with` one that fires `firings` times in each
/// round. `None` without rounds or firings. The error is half of what separates the 5 % from the 40 % quantile: a bound on what the choice of
/// the quantile could change, not a standard error.
pub fn price_of_rounds(without: &[f64], with: &[f64], firings: f64) -> Option<Price> {
    if without.is_empty() || with.is_empty() || firings <= 0.0 {
        return None;
    }
    let (without, with) = (sorted(without), sorted(with));
    let at = |q: f64| (quantile(&with, q), quantile(&without, q));
    let (with_ns, without_ns) = at(QUANTILE);
    let (high, low) = (at(AROUND.1), at(AROUND.0));
    let spread = ((high.0 - low.0).powi(2) + (high.1 - low.1).powi(2)).sqrt() / 2.0;
    Some(Price { ns: ((with_ns - without_ns) / firings).max(0.0), error_ns: spread / firings })
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

/// The value below which `q` of the sorted values lie, interpolated. There is at least one.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let position = q * (sorted.len() - 1) as f64;
    let (low, high) = (position.floor() as usize, position.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (position - low as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbed_rounds_do_not_change_the_price() {
        let mut without = vec![100_000.0; 20];
        let mut with = vec![150_000.0; 20];
        // Half of all rounds are disturbed, those with the probe more.
        without.extend([180_000.0; 20]);
        with.extend([1_900_000.0; 20]);
        let price = price_of_rounds(&without, &with, 100.0).unwrap();
        assert!((price.ns - 500.0).abs() < 1.0, "{price:?}");
    }

    #[test]
    fn noise_never_makes_a_price_negative_and_is_said() {
        let price = price_of_rounds(&[100.0, 140.0, 180.0], &[90.0, 130.0, 170.0], 1.0).unwrap();
        assert_eq!(price.ns, 0.0);
        assert!(price.error_ns > 10.0, "{price:?}");
        assert_eq!(price_of_rounds(&[], &[1.0], 1.0), None);
        assert_eq!(price_of_rounds(&[1.0], &[1.0], 0.0), None, "a probe that never fired has no price");
    }
}
