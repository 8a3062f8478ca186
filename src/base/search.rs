//! Search in sorted slices.

/// As `partition_point` of a slice, for an answer that is probably close to `near`: looks in growing steps away
/// from it, until the answer lies between two of them.
pub(crate) fn partition_point_near<T>(
    sorted: &[T],
    near: usize,
    is_before: impl Fn(&T) -> bool,
) -> usize {
    let before = |at: usize| sorted.get(at).is_some_and(&is_before);
    let (mut low, mut high) = (near.min(sorted.len()), near.min(sorted.len()));
    let mut step = 1;
    while low > 0 && !before(low - 1) {
        high = low - 1;
        low = low.saturating_sub(step);
        step *= 2;
    }
    step = 1;
    while before(high) {
        low = high + 1;
        high = (high + step).min(sorted.len());
        step *= 2;
    }
    let between = sorted.get(low..high).unwrap_or_default();
    low + between.partition_point(is_before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_leads_to_the_same_answer() {
        let sorted: Vec<u32> = (0..40).map(|n| n / 3 * 2).collect();
        for limit in 0..30 {
            let answer = sorted.partition_point(|n| *n < limit);
            for near in 0..50 {
                assert_eq!(partition_point_near(&sorted, near, |n| *n < limit), answer);
            }
        }
        assert_eq!(partition_point_near(&[], 3, |_: &u32| true), 0);
    }
}
