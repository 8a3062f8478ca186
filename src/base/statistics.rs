//! Statistics of a list of numbers.

use std::cmp::Ordering;

/// The share of something from which on it counts as nearly all of it.
pub(crate) const NEARLY_ALL: f64 = 0.9;

/// The median, the upper of two middle values; reorders `values`, none of which is NaN. `None` if there are
/// none.
pub(crate) fn median<T: PartialOrd + Copy>(values: &mut [T]) -> Option<T> {
    let middle = values.len() / 2;
    let order = |a: &T, b: &T| a.partial_cmp(b).unwrap_or(Ordering::Equal);
    (middle < values.len()).then(|| *values.select_nth_unstable_by(middle, order).1)
}

/// Mean and sample standard deviation.
pub(crate) fn mean_and_deviation(values: &[f64]) -> (Option<f64>, Option<f64>) {
    let count = values.len() as f64;
    if values.is_empty() {
        return (None, None);
    }
    let mean = values.iter().sum::<f64>() / count;
    if values.len() < 2 {
        return (Some(mean), None);
    }
    let squares = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
    (Some(mean), Some((squares / (count - 1.0)).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_upper_middle_value() {
        assert_eq!(median::<i64>(&mut []), None);
        assert_eq!(median(&mut [7]), Some(7));
        assert_eq!(median(&mut [7, 0]), Some(7));
        assert_eq!(median(&mut [9, 3, 0, 4, 3]), Some(3));
        assert_eq!(median(&mut [2.5, 0.5]), Some(2.5));
    }

    #[test]
    fn one_step_has_no_deviation() {
        assert_eq!(mean_and_deviation(&[]), (None, None));
        assert_eq!(mean_and_deviation(&[4.0]), (Some(4.0), None));
        assert_eq!(
            mean_and_deviation(&[2.0, 4.0]),
            (Some(3.0), Some(2.0_f64.sqrt()))
        );
    }
}
