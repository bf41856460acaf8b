//! Medians and intervals of few, noisy numbers.

/// The median; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The quantile `q` (0 to 1), linear between neighbours; `None` of nothing.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let sorted = sorted(values);
    let last = sorted.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(below + (above - below) * at.fract())
}

/// The smallest; `None` of nothing.
pub fn minimum(values: &[f64]) -> Option<f64> {
    values.iter().copied().min_by(f64::total_cmp)
}

/// The mean of the middle half; `None` of nothing.
pub fn midmean(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let outside = sorted.len() / 4;
    let middle = &sorted[outside..sorted.len() - outside];
    (!middle.is_empty()).then(|| middle.iter().sum::<f64>() / middle.len() as f64)
}

/// Interquartile range over the median: 0.1 says that the middle half of the values spans a tenth of the middle one.
/// `None` of nothing and around zero.
pub fn spread(values: &[f64]) -> Option<f64> {
    let middle = median(values).filter(|middle| *middle > 0.0)?;
    Some((quantile(values, 0.75)? - quantile(values, 0.25)?) / middle)
}

/// A 95 % confidence interval.
///
/// From six values on it is one of the median, without any assumption on how they are distributed: the order statistics between which the
/// median lies with a probability of at least 95 %, by the binomial distribution (Hahn and Meeker, Statistical Intervals, 5.2). Fewer cannot
/// say that much (five reach 93.8 %), so theirs is Student's for the mean, which is wide. `None` of fewer than two.
pub fn interval95(values: &[f64]) -> Option<[f64; 2]> {
    let sorted = sorted(values);
    let n = sorted.len();
    match ranks95(n) {
        Some((low, high)) => Some([sorted[low], sorted[high]]),
        None if n >= 2 => {
            let mean = values.iter().sum::<f64>() / n as f64;
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            let half = STUDENT_95[n - 2] * (squares / (n - 1) as f64 / n as f64).sqrt();
            Some([mean - half, mean + half])
        }
        None => None,
    }
}

/// Student's t for 95 %, two-sided, of 1, 2, 3 and 4 degrees of freedom.
const STUDENT_95: [f64; 4] = [12.706, 4.303, 3.182, 2.776];

/// Indices of the two order statistics of `n` values with the median between them in at least 95 % of the cases; `None` below six.
fn ranks95(n: usize) -> Option<(usize, usize)> {
    // P(fewer than k of n lie below the median) = sum over i < k of C(n, i) / 2^n, at most 2.5 % on each side.
    let mut term = 0.5f64.powi(i32::try_from(n).ok()?);
    if term == 0.0 {
        // More than a thousand values: the normal approximation is exact enough.
        let low = (n as f64 / 2.0 - 0.98 * (n as f64).sqrt()).floor() as usize;
        return Some((low, n - 1 - low));
    }
    let mut below = 0.0;
    let mut low = None;
    for k in 0..n / 2 {
        below += term;
        if below > 0.025 {
            break;
        }
        low = Some(k);
        term *= (n - k) as f64 / (k + 1) as f64;
    }
    low.map(|low| (low, n - 1 - low))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn order_statistics_by_the_binomial() {
        // Known from tables: 6 values need all, 9 leave out one on each side, 20 five.
        for (n, ranks) in
            [(5, None), (6, Some((0, 5))), (9, Some((1, 7))), (12, Some((2, 9))), (20, Some((5, 14)))]
        {
            assert_eq!(ranks95(n), ranks, "{n}");
        }
        let (low, high) = ranks95(5_000).unwrap();
        assert!((2_425..=2_432).contains(&low) && low + high == 4_999, "{low} {high}");
    }

    #[test]
    fn few_values_give_wide_intervals() {
        assert_eq!(interval95(&[1.0]), None);
        let [low, high] = interval95(&[9.0, 11.0]).unwrap();
        assert!((low + 2.7).abs() < 0.1 && (high - 22.7).abs() < 0.1, "{low} {high}");
        let [low, high] = interval95(&[10.0; 4]).unwrap();
        assert_eq!([low, high], [10.0, 10.0]);
    }

    /// The truth is in the interval as often as is said, whatever the noise looks like.
    #[test]
    fn intervals_cover_the_truth() {
        let mut random = Random::new(7);
        for (n, least) in [(6, 0.95), (9, 0.95), (30, 0.95), (4, 0.93), (1_500, 0.93)] {
            let trials = 2_000;
            let covered = (0..trials)
                .filter(|_| {
                    // Symmetric around 100 with heavy tails.
                    let values: Vec<f64> = (0..n)
                        .map(|_| {
                            let wide = if random.below(10) == 0 { 10.0 } else { 1.0 };
                            100.0 + wide * (random.unit() + random.unit() + random.unit() - 1.5)
                        })
                        .collect();
                    let [low, high] = interval95(&values).unwrap();
                    (low..=high).contains(&100.0)
                })
                .count();
            // Three standard deviations of 2,000 trials are 1.5 points.
            assert!(covered as f64 / f64::from(trials) >= least - 0.015, "{n}: {covered} of {trials}");
        }
    }

    #[test]
    fn quantiles_lie_between_neighbours() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(median(&values), Some(2.5));
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(quantile(&values, 1.0), Some(4.0));
        assert_eq!(minimum(&values), Some(1.0));
        assert_eq!(midmean(&[1.0, 2.0, 3.0, 1_000.0]), Some(2.5));
        assert_eq!(midmean(&[5.0]), Some(5.0));
        assert_eq!(midmean(&[]), None);
        assert_eq!(median(&[]), None);
        assert_eq!(spread(&[100.0; 5]), Some(0.0));
        assert_eq!(spread(&[]), None);
        assert!(spread(&[90.0, 95.0, 100.0, 105.0, 110.0]).is_some_and(|s| (s - 0.1).abs() < 1e-9));
    }
}
