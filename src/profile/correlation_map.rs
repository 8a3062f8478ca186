//! Values by correlation id or sequence number.

use rustc_hash::{FxBuildHasher, FxHashMap};

use super::{ApiCall, CallId, ProcessId, Profile, SerialNumber};

/// One value for each of a fixed set of serial numbers, process by process: the numbers of two
/// processes collide.
#[derive(Debug, Clone)]
pub(crate) struct CorrelationMap<V>(FxHashMap<(ProcessId, SerialNumber), Option<V>>);

impl<V: Copy> CorrelationMap<V> {
    /// A map with room for these numbers, none of which has a value yet.
    pub(crate) fn for_numbers(
        numbers: impl Iterator<Item = (ProcessId, Option<SerialNumber>)>,
    ) -> CorrelationMap<V> {
        let most = numbers.size_hint().1.unwrap_or(0);
        let mut map = FxHashMap::with_capacity_and_hasher(most, FxBuildHasher);
        map.extend(numbers.filter_map(|(process, number)| Some(((process, number?), None))));
        CorrelationMap(map)
    }

    /// The value of a number, to be set; `None` for a number outside the set.
    pub(crate) fn slot(
        &mut self,
        process: ProcessId,
        number: Option<SerialNumber>,
    ) -> Option<&mut Option<V>> {
        self.0.get_mut(&(process, number?))
    }

    /// The value of a number, if it has one.
    pub(crate) fn get(&self, process: ProcessId, number: Option<SerialNumber>) -> Option<V> {
        self.0.get(&(process, number?)).copied().flatten()
    }

    /// The value of a call's correlation id, as [`CorrelationMap::slot`].
    pub(crate) fn slot_of_call(
        &mut self,
        profile: &Profile,
        call: &ApiCall,
    ) -> Option<&mut Option<V>> {
        let process = profile.threads.get(call.thread.idx())?.process;
        self.slot(process, call.correlation)
    }
}

impl CorrelationMap<CallId> {
    /// For each number, the first call of its process that has it as correlation id.
    pub(crate) fn first_calls(
        profile: &Profile,
        numbers: impl Iterator<Item = (ProcessId, Option<SerialNumber>)>,
    ) -> CorrelationMap<CallId> {
        let mut calls = CorrelationMap::for_numbers(numbers);
        if !calls.0.is_empty() {
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
            assert_eq!(map.get(process, SerialNumber::new(other)), None);
        }
        assert!(map.slot(process, None).is_none());
    }
}
