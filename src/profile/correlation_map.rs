//! Values by correlation id or sequence number.
//!
//! CUPTI counts calls, so the numbers of a capture lie close together: a list with a place for each number in
//! between takes a quarter of the time of a hash table. Only numbers far from the others are hashed.

use rustc_hash::FxHashMap;

use super::{ApiCall, CallId, ProcessId, Profile, SerialNumber};

/// Most places in the list per number of the set.
const PLACES_PER_NUMBER: usize = 8;

/// One value for each of a fixed set of serial numbers, process by process: the numbers of two
/// processes collide.
#[derive(Debug, Clone)]
pub(crate) struct CorrelationMap<V> {
    processes: Vec<NumberMap<V>>,
}

/// The numbers of one process.
#[derive(Debug, Clone)]
struct NumberMap<V> {
    /// The number of the first place.
    first: u64,
    /// The values of consecutive numbers; `None` for a number outside of the set.
    near: Vec<Option<Option<V>>>,
    /// The values of numbers beyond them.
    far: FxHashMap<u64, Option<V>>,
}

impl<V: Copy> NumberMap<V> {
    fn of(numbers: &[u64]) -> NumberMap<V> {
        // 0 often stands for "none", far below the others.
        let counted = || numbers.iter().copied().filter(|number| *number > 0);
        let first = counted().min().unwrap_or(0);
        let span = counted().max().map_or(0, |last| last - first + 1);
        let most = numbers.len().saturating_mul(PLACES_PER_NUMBER);
        let mut map = NumberMap {
            first,
            near: vec![None; usize::try_from(span).unwrap_or(most).min(most)],
            far: FxHashMap::default(),
        };
        for number in numbers {
            let place = map.place(*number).and_then(|at| map.near.get_mut(at));
            match place {
                Some(place) => *place = Some(None),
                None => _ = map.far.insert(*number, None),
            }
        }
        map
    }

    fn place(&self, number: u64) -> Option<usize> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        (at < self.near.len()).then_some(at)
    }

    fn slot(&mut self, number: u64) -> Option<&mut Option<V>> {
        match self.place(number) {
            Some(at) => self.near.get_mut(at)?.as_mut(),
            None => self.far.get_mut(&number),
        }
    }

    fn get(&self, number: u64) -> Option<Option<V>> {
        match self.place(number) {
            Some(at) => *self.near.get(at)?,
            None => self.far.get(&number).copied(),
        }
    }
}

impl<V: Copy> CorrelationMap<V> {
    /// A map with room for these numbers, none of which has a value yet.
    pub(crate) fn for_numbers(
        numbers: impl Iterator<Item = (ProcessId, Option<SerialNumber>)>,
    ) -> CorrelationMap<V> {
        let mut processes: Vec<Vec<u64>> = Vec::new();
        for (process, number) in numbers {
            let Some(number) = number else { continue };
            if processes.len() <= process.idx() {
                processes.resize(process.idx() + 1, Vec::new());
            }
            if let Some(numbers) = processes.get_mut(process.idx()) {
                numbers.push(number.get());
            }
        }
        CorrelationMap {
            processes: processes.iter().map(|n| NumberMap::of(n)).collect(),
        }
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
        self.processes.get(process.idx())?.get(number?.get())?
    }

    /// The value of a call's correlation id, as [`CorrelationMap::slot`].
    pub(crate) fn slot_of_call(
        &mut self,
        profile: &Profile,
        call: &ApiCall,
    ) -> Option<&mut Option<V>> {
        self.slot(profile.process_of(call.thread)?, call.correlation)
    }
}

impl CorrelationMap<CallId> {
    /// For each number, the first call of its process that has it as correlation id.
    pub(crate) fn first_calls(
        profile: &Profile,
        numbers: impl Iterator<Item = (ProcessId, Option<SerialNumber>)>,
    ) -> CorrelationMap<CallId> {
        let mut calls = CorrelationMap::for_numbers(numbers);
        if !calls.processes.is_empty() {
            for (id, call) in (0..).map(CallId).zip(&profile.calls) {
                if let Some(slot) = calls.slot_of_call(profile, call) {
                    slot.get_or_insert(id);
                }
            }
        }
        calls
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_of_the_set_have_values() {
        let process = ProcessId(0);
        let numbers: Vec<u64> = (500..900)
            .step_by(2)
            .chain([u64::MAX - 1, 0, 1 << 40])
            .collect();
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
