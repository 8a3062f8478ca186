//! The middle one of many lengths, without keeping them all.

/// Lengths of intervals, of which the middle one is asked for. Short ones, of which there are millions,
/// are counted instead of kept.
#[derive(Debug, Default)]
pub(super) struct Lengths {
    /// By ns, as soon as there is one.
    short: Vec<u32>,
    shorts: usize,
    long: Vec<i64>,
}

impl Lengths {
    /// The ns from which on a length is kept: what a table that fits into a cache has room for.
    const LONG: usize = 1 << 15;

    pub(super) fn add(&mut self, ns: i64) {
        if self.short.is_empty() {
            self.short = vec![0; Self::LONG];
        }
        let slot = usize::try_from(ns)
            .ok()
            .and_then(|ns| self.short.get_mut(ns));
        match slot {
            Some(count) => {
                *count = count.saturating_add(1);
                self.shorts += 1;
            }
            None => self.long.push(ns),
        }
    }

    /// The upper one of two in the middle.
    pub(super) fn median(mut self) -> Option<i64> {
        let middle = (self.shorts + self.long.len()) / 2;
        if let Some(middle) = middle.checked_sub(self.shorts) {
            let within = middle < self.long.len();
            return within.then(|| *self.long.select_nth_unstable(middle).1);
        }
        let mut before = 0_usize;
        let found = self.short.iter().position(|&count| {
            before += count as usize;
            before > middle
        });
        found.and_then(|ns| i64::try_from(ns).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn median(lengths: impl IntoIterator<Item = i64>) -> Option<i64> {
        let mut all = Lengths::default();
        for ns in lengths {
            all.add(ns);
        }
        all.median()
    }

    #[test]
    fn the_middle_of_a_sorted_list() {
        assert_eq!(median([]), None);
        assert_eq!(median([7]), Some(7));
        assert_eq!(median([0, 7]), Some(7));
        let long = Lengths::LONG as i64;
        let mut all = vec![long + 5, 3, long - 1, 3, long, i64::MAX, 0, -4, 3, 9];
        for count in (1..=all.len()).rev() {
            all.truncate(count);
            let mut sorted: Vec<i64> = all.iter().map(|ns| (*ns).max(0)).collect();
            sorted.sort_unstable();
            assert_eq!(
                median(sorted.clone()),
                Some(sorted[count / 2]),
                "{sorted:?}"
            );
        }
    }
}
