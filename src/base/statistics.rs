//! Statistics of a list of numbers.

/// The median, the upper of two middle values; reorders `values`. `None` if there are none.
pub(crate) fn median<T: Ord + Copy>(values: &mut [T]) -> Option<T> {
    let middle = values.len() / 2;
    (middle < values.len()).then(|| *values.select_nth_unstable(middle).1)
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
    }
}
