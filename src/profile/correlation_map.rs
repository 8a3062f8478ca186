//! What belongs to the correlation ids of each process.
//!
//! CUPTI counts calls, so the ids of a capture lie close together, some ten or twenty apart: a bit for
//! each number between them takes less memory than a hash table, and mostly stays in the cache. Only
//! what lies far off is hashed.

use rustc_hash::FxHashMap;

use super::{ApiCall, CallId, ProcessId, Profile, SerialNumber};

/// Bits there may be per number that is asked for: with these, 32 bytes.
const BITS_PER_ID: u64 = 256;
const MORE_BITS: u64 = 1024;

/// One value each for a set of numbers given beforehand.
#[derive(Debug, Clone)]
pub(crate) struct IdMap<V> {
    /// The number of the first bit.
    low: u64,
    words: Vec<Word>,
    /// Of the numbers whose bits are set, in order.
    near: Vec<Option<V>>,
    far: FxHashMap<u64, Option<V>>,
}

/// 64 neighbouring numbers.
#[derive(Debug, Clone, Copy, Default)]
struct Word {
    bits: u64,
    /// Bits set in the words before.
    before: u32,
}

/// Which numbers there are, roughly.
#[derive(Debug, Clone, Copy, Default)]
struct Extent {
    bounds: Option<(u64, u64)>,
    count: u64,
}

impl Extent {
    fn add(&mut self, id: u64) {
        self.count += 1;
        // 0 often stands for "none", far below the others.
        if id > 0 {
            let (low, high) = self.bounds.unwrap_or((id, id));
            self.bounds = Some((low.min(id), high.max(id)));
        }
    }
}

impl<V: Copy> IdMap<V> {
    /// Room for numbers; which ones is still to be said.
    fn within(extent: Extent) -> IdMap<V> {
        let (low, high) = extent.bounds.unwrap_or_default();
        let most = extent.count.saturating_mul(BITS_PER_ID) + MORE_BITS;
        let words = (high - low).min(most) / 64 + 1;
        IdMap {
            low,
            words: vec![Word::default(); usize::try_from(words).unwrap_or(0)],
            near: Vec::new(),
            far: FxHashMap::default(),
        }
    }

    /// Room for these numbers.
    pub(crate) fn of(ids: impl Iterator<Item = u64> + Clone) -> IdMap<V> {
        let mut extent = Extent::default();
        ids.clone().for_each(|id| extent.add(id));
        let mut map = IdMap::within(extent);
        ids.for_each(|id| map.ask(id));
        map.count();
        map
    }

    /// The word of a number and its bit there.
    fn bit(&self, id: u64) -> Option<(usize, u64)> {
        let at = id.checked_sub(self.low)?;
        let word = usize::try_from(at / 64).ok()?;
        (word < self.words.len()).then_some((word, 1 << (at % 64)))
    }

    fn ask(&mut self, id: u64) {
        let bit = self.bit(id);
        match bit.and_then(|(word, bit)| Some((self.words.get_mut(word)?, bit))) {
            Some((word, bit)) => word.bits |= bit,
            None => {
                self.far.entry(id).or_insert(None);
            }
        }
    }

    /// To be called once all numbers have been asked for.
    fn count(&mut self) {
        let mut before = 0;
        for word in &mut self.words {
            word.before = before;
            before = before.saturating_add(word.bits.count_ones());
        }
        self.near = vec![None; before as usize];
    }

    fn place(&self, id: u64) -> Option<usize> {
        let (word, bit) = self.bit(id)?;
        let word = self.words.get(word)?;
        let earlier = (word.bits & (bit - 1)).count_ones();
        (word.bits & bit != 0).then_some((word.before + earlier) as usize)
    }

    /// Whether it was asked for.
    pub(crate) fn asks(&self, id: u64) -> bool {
        self.place(id).is_some() || (!self.far.is_empty() && self.far.contains_key(&id))
    }

    /// The value of a number, to be set; `None` for one that was not asked for.
    pub(crate) fn slot(&mut self, id: u64) -> Option<&mut Option<V>> {
        match self.place(id) {
            Some(place) => self.near.get_mut(place),
            None if self.far.is_empty() => None,
            None => self.far.get_mut(&id),
        }
    }

    pub(crate) fn get(&self, id: u64) -> Option<V> {
        match self.place(id) {
            Some(place) => self.near.get(place).copied().flatten(),
            None if self.far.is_empty() => None,
            None => self.far.get(&id).copied().flatten(),
        }
    }
}

/// One value each for the correlation ids, or sequence numbers, that are asked for, process by process:
/// the ids of two processes collide.
#[derive(Debug, Clone)]
pub(crate) struct CorrelationMap<V> {
    processes: Vec<IdMap<V>>,
}

impl<V: Copy> CorrelationMap<V> {
    /// Room for these ids of the processes of `profile`.
    pub(crate) fn of(
        profile: &Profile,
        asked: impl Iterator<Item = (ProcessId, Option<SerialNumber>)> + Clone,
    ) -> CorrelationMap<V> {
        let asked = asked.filter_map(|(process, id)| Some((process, id?.get())));
        let mut extents = vec![Extent::default(); profile.processes.len()];
        for (process, id) in asked.clone() {
            if let Some(extent) = extents.get_mut(process.idx()) {
                extent.add(id);
            }
        }
        let mut all = CorrelationMap {
            processes: extents.into_iter().map(IdMap::within).collect(),
        };
        for (process, id) in asked {
            if let Some(map) = all.processes.get_mut(process.idx()) {
                map.ask(id);
            }
        }
        all.processes.iter_mut().for_each(IdMap::count);
        all
    }

    /// Whether an id was asked for.
    pub(crate) fn asks(&self, process: ProcessId, id: SerialNumber) -> bool {
        let map = self.processes.get(process.idx());
        map.is_some_and(|map| map.asks(id.get()))
    }

    /// As [`IdMap::slot`].
    pub(crate) fn slot(
        &mut self,
        process: ProcessId,
        id: Option<SerialNumber>,
    ) -> Option<&mut Option<V>> {
        self.processes.get_mut(process.idx())?.slot(id?.get())
    }

    pub(crate) fn get(&self, process: ProcessId, id: Option<SerialNumber>) -> Option<V> {
        self.processes.get(process.idx())?.get(id?.get())
    }

    /// The value of a call's id, as [`IdMap::slot`].
    pub(crate) fn slot_of(&mut self, profile: &Profile, call: &ApiCall) -> Option<&mut Option<V>> {
        let process = profile.threads.get(call.thread.idx())?.process;
        self.slot(process, call.correlation)
    }
}

impl CorrelationMap<CallId> {
    /// The call behind each id: the first one of its process that has it.
    pub(crate) fn first_calls(
        profile: &Profile,
        asked: impl Iterator<Item = (ProcessId, Option<SerialNumber>)> + Clone,
    ) -> CorrelationMap<CallId> {
        let mut calls = CorrelationMap::of(profile, asked.clone());
        if asked.clone().next().is_some() {
            for (id, call) in (0..).map(CallId).zip(&profile.calls) {
                if let Some(slot) = calls.slot_of(profile, call) {
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
    fn near_and_far_numbers_have_values_and_others_none() {
        let far = [u64::MAX, 0, 1 << 40];
        let ids: Vec<u64> = (500..900).step_by(2).chain(far).collect();
        let mut map: IdMap<u64> = IdMap::of(ids.iter().copied());
        for &id in &ids {
            assert_eq!(map.get(id), None);
            *map.slot(id).unwrap() = Some(id);
        }
        for &id in &ids {
            assert_eq!(map.get(id), Some(id));
            assert!(map.asks(id) && !map.asks(id ^ 1), "{id}");
        }
        assert!(map.slot(1 << 41).is_none());
        assert!(map.slot(501).is_none());
        assert_eq!(map.get(499), None);
        assert_eq!(IdMap::<u8>::of(std::iter::empty()).get(0), None);
    }

    #[test]
    fn a_table_is_not_out_of_proportion() {
        let map: IdMap<u8> = IdMap::of([1, 1 << 60].into_iter());
        assert!(map.words.len() < 100);
        assert_eq!((map.near.len(), map.far.len()), (1, 1));
    }
}
