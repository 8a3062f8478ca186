//! Times summed by what they belong to.

use std::cmp::Reverse;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Times in ns by key.
#[derive(Debug, Clone)]
pub(crate) struct TimeBy<K> {
    times: FxHashMap<K, i64>,
    /// The key added last, with time that is not in `times` yet: the next key is mostly the same.
    last: Option<(K, i64)>,
}

impl<K> Default for TimeBy<K> {
    fn default() -> TimeBy<K> {
        TimeBy {
            times: FxHashMap::default(),
            last: None,
        }
    }
}

impl<K: Copy + Eq + Hash + Ord> TimeBy<K> {
    pub(crate) fn add(&mut self, key: K, ns: i64) {
        if let Some((last, sum)) = &mut self.last
            && *last == key
        {
            *sum = sum.saturating_add(ns);
        } else if let Some((before, sum)) = self.last.replace((key, ns)) {
            let time = self.times.entry(before).or_default();
            *time = time.saturating_add(sum);
        }
    }

    pub(crate) fn append(&mut self, other: TimeBy<K>) {
        for (key, ns) in other.iter() {
            self.add(key, ns);
        }
    }

    /// The sum of all times.
    pub(crate) fn ns(&self) -> i64 {
        self.iter().fold(0, |sum, (_, ns)| sum.saturating_add(ns))
    }

    pub(crate) fn len(&self) -> usize {
        let new = |(key, _): (K, i64)| !self.times.contains_key(&key);
        self.times.len() + usize::from(self.last.is_some_and(new))
    }

    pub(crate) fn contains(&self, key: K) -> bool {
        self.times.contains_key(&key) || self.last.is_some_and(|(last, _)| last == key)
    }

    /// Keys and times, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, i64)> + '_ {
        let times = self.times.iter().map(|(key, ns)| match self.last {
            Some((last, more)) if last == *key => (*key, ns.saturating_add(more)),
            _ => (*key, *ns),
        });
        let new = self.last.filter(|(key, _)| !self.times.contains_key(key));
        times.chain(new)
    }

    /// Keys and times, longest first.
    pub(crate) fn sorted(&self) -> Vec<(K, i64)> {
        let mut times: Vec<(K, i64)> = self.iter().collect();
        times.sort_unstable_by_key(|(key, ns)| (Reverse(*ns), *key));
        times
    }

    /// The key with the longest time.
    pub(crate) fn longest(&self) -> Option<K> {
        let longest = self.iter().max_by_key(|(key, ns)| (*ns, Reverse(*key)));
        longest.map(|(key, _)| key)
    }

    /// The key with a time above `half`, half of some whole, so that there is at most one.
    pub(crate) fn above(&self, half: i64) -> Option<K> {
        let mut above = self.iter().filter(|(_, ns)| *ns > half);
        above.next().map(|(key, _)| key)
    }

    /// The key with more than half of the time.
    pub(crate) fn most(&self) -> Option<K> {
        self.above(self.ns() / 2)
    }
}

impl<K: Copy + Eq + Hash + Ord> FromIterator<(K, i64)> for TimeBy<K> {
    fn from_iter<I: IntoIterator<Item = (K, i64)>>(times: I) -> TimeBy<K> {
        let mut sums = TimeBy::default();
        times.into_iter().for_each(|(key, ns)| sums.add(key, ns));
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_by_key() {
        let mut times: TimeBy<u8> = [(1, 20), (2, 30), (1, 10)].into_iter().collect();
        assert_eq!((times.ns(), times.len()), (60, 2));
        assert_eq!(
            TimeBy::from_iter([(1, 20)]).len(),
            1,
            "not in the table yet"
        );
        assert_eq!(times.longest(), Some(1), "of equal times, the first key");
        assert_eq!(times.most(), None);
        times.append([(2, 1)].into_iter().collect());
        assert_eq!((times.longest(), times.most()), (Some(2), Some(2)));
        assert_eq!(times.sorted(), [(2, 31), (1, 30)]);
    }

    #[test]
    fn times_of_a_key_add_up_in_any_order() {
        let times: TimeBy<char> = [('a', 1), ('a', 2), ('b', 4), ('a', 8), ('b', 16)]
            .into_iter()
            .collect();
        assert_eq!(times.sorted(), [('b', 20), ('a', 11)]);
        assert_eq!((times.len(), times.ns()), (2, 31));
        assert!(times.contains('b') && !times.contains('c'));
        assert_eq!((times.longest(), times.most()), (Some('b'), Some('b')));
        let mut both = times.clone();
        both.append(times);
        assert_eq!(both.sorted(), [('b', 40), ('a', 22)]);
    }
}
