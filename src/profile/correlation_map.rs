//! Values by correlation id or sequence number.
//!
//! CUPTI counts calls, so the numbers of a capture lie close together: one bit for each number in
//! between takes a fraction of the memory and time of a hash table. Only numbers far from the others
//! are hashed. (A list with a place for each number in between takes 30 MB more on a million kernels.)

use rustc_hash::FxHashMap;

use super::ids::{ProcessId, SerialNumber};

/// Most bits per number of the set: 32 bytes.
const BITS_PER_NUMBER: u64 = 256;

/// One value for each of a fixed set of serial numbers, process by process: the numbers of two
/// processes collide.
#[derive(Debug, Clone)]
pub(crate) struct CorrelationMap<V> {
    processes: Vec<NumberMap<V>>,
}

/// The numbers of one process.
#[derive(Debug, Clone)]
struct NumberMap<V> {
    /// The number of the first bit.
    first: u64,
    words: Vec<Word>,
    /// The values of the numbers whose bits are set, in order.
    near: Vec<Option<V>>,
    /// The values of numbers beyond the bits.
    far: FxHashMap<u64, Option<V>>,
}

/// The bits of 64 consecutive numbers.
#[derive(Debug, Clone, Copy, Default)]
struct Word {
    bits: u64,
    /// How many bits are set in earlier words.
    before: u32,
}

/// How many numbers a set has, and the smallest and the largest of those above 0: 0 often stands for
/// "none", far below the others.
#[derive(Debug, Clone, Copy, Default)]
struct Extent {
    bounds: Option<(u64, u64)>,
    count: u64,
}

impl Extent {
    fn add(&mut self, number: u64) {
        self.count += 1;
        if number > 0 {
            let (low, high) = self.bounds.unwrap_or((number, number));
            self.bounds = Some((low.min(number), high.max(number)));
        }
    }
}

impl<V: Copy> NumberMap<V> {
    fn new(extent: Extent) -> NumberMap<V> {
        let (first, last) = extent.bounds.unwrap_or_default();
        let bits = (last - first).min(extent.count.saturating_mul(BITS_PER_NUMBER));
        NumberMap {
            first,
            words: vec![Word::default(); usize::try_from(bits / 64 + 1).unwrap_or(0)],
            near: Vec::new(),
            far: FxHashMap::default(),
        }
    }

    /// The index of a number's word, and its bit there.
    fn bit(&self, number: u64) -> Option<(usize, u64)> {
        let at = number.checked_sub(self.first)?;
        let word = usize::try_from(at / 64).ok()?;
        (word < self.words.len()).then_some((word, 1 << (at % 64)))
    }

    fn add(&mut self, number: u64) {
        let bit = self.bit(number);
        match bit.and_then(|(word, bit)| Some((self.words.get_mut(word)?, bit))) {
            Some((word, bit)) => word.bits |= bit,
            None => {
                self.far.insert(number, None);
            }
        }
    }

    /// Makes room for the values, once all numbers are known.
    fn finish(&mut self) {
        let mut before = 0_u32;
        for word in &mut self.words {
            word.before = before;
            before = before.saturating_add(word.bits.count_ones());
        }
        self.near = vec![None; before as usize];
    }

    /// The index of a number's value.
    fn place(&self, number: u64) -> Option<usize> {
        let (word, bit) = self.bit(number)?;
        let word = self.words.get(word)?;
        let earlier = (word.bits & (bit - 1)).count_ones();
        (word.bits & bit != 0).then_some((word.before + earlier) as usize)
    }

    fn slot(&mut self, number: u64) -> Option<&mut Option<V>> {
        match self.place(number) {
            Some(place) => self.near.get_mut(place),
            None if self.far.is_empty() => None,
            None => self.far.get_mut(&number),
        }
    }

    fn get(&self, number: u64) -> Option<&Option<V>> {
        match self.place(number) {
            Some(place) => self.near.get(place),
            None if self.far.is_empty() => None,
            None => self.far.get(&number),
        }
    }
}

impl<V: Copy> CorrelationMap<V> {
    /// A map with room for these numbers, none of which has a value yet.
    pub(crate) fn for_numbers(
        numbers: impl Iterator<Item = (ProcessId, Option<SerialNumber>)> + Clone,
    ) -> CorrelationMap<V> {
        let numbers = numbers.filter_map(|(process, number)| Some((process, number?.get())));
        let mut extents: Vec<Extent> = Vec::new();
        for (process, number) in numbers.clone() {
            if extents.len() <= process.idx() {
                extents.resize(process.idx() + 1, Extent::default());
            }
            if let Some(extent) = extents.get_mut(process.idx()) {
                extent.add(number);
            }
        }
        let processes = extents.into_iter().map(NumberMap::new);
        let mut map = CorrelationMap {
            processes: processes.collect(),
        };
        for (process, number) in numbers {
            if let Some(numbers) = map.processes.get_mut(process.idx()) {
                numbers.add(number);
            }
        }
        map.processes.iter_mut().for_each(NumberMap::finish);
        map
    }

    /// A map of these values; of several with one number the last.
    pub(crate) fn of(
        rows: impl Iterator<Item = (ProcessId, Option<SerialNumber>, V)> + Clone,
    ) -> CorrelationMap<V> {
        let numbers = rows.clone().map(|(process, number, _)| (process, number));
        let mut map = CorrelationMap::for_numbers(numbers);
        for (process, number, value) in rows {
            if let Some(slot) = map.slot(process, number) {
                *slot = Some(value);
            }
        }
        map
    }

    /// Whether a number belongs to the set.
    pub(crate) fn contains(&self, process: ProcessId, number: Option<SerialNumber>) -> bool {
        let numbers = self.processes.get(process.idx()).zip(number);
        numbers.is_some_and(|(numbers, number)| numbers.get(number.get()).is_some())
    }

    /// The value of a number, to be set; `None` for a number outside the set.
    pub(crate) fn slot(
        &mut self,
        process: ProcessId,
        number: Option<SerialNumber>,
    ) -> Option<&mut Option<V>> {
        self.processes.get_mut(process.idx())?.slot(number?.get())
    }

    /// The value of a number, if it has one.
    pub(crate) fn get(&self, process: ProcessId, number: Option<SerialNumber>) -> Option<V> {
        *self.processes.get(process.idx())?.get(number?.get())?
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_of_the_set_have_values() {
        let process = ProcessId(0);
        let numbers: Vec<u64> = (500..900).step_by(2).chain([1 << 47, 0, 1 << 40]).collect();
        let keys = numbers.iter().map(|n| (process, SerialNumber::new(*n)));
        let mut map: CorrelationMap<u64> = CorrelationMap::for_numbers(keys);
        for &number in &numbers {
            let key = SerialNumber::new(number);
            assert_eq!(map.get(process, key), None);
            *map.slot(process, key).unwrap() = Some(number);
        }
        for &number in &numbers {
            assert_eq!(map.get(process, SerialNumber::new(number)), Some(number));
            assert_eq!(map.get(ProcessId(1), SerialNumber::new(number)), None);
        }
        for other in [501, 499, 1 << 41] {
            assert!(map.slot(process, SerialNumber::new(other)).is_none());
            assert!(!map.contains(process, SerialNumber::new(other)));
            assert_eq!(map.get(process, SerialNumber::new(other)), None);
        }
        assert!(map.slot(process, None).is_none());
    }
}
