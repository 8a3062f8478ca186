//! What belongs to the correlation ids of each process.
//!
//! CUPTI counts launches, so the ids of a capture lie close together: they are places in a table, and
//! only what lies far off is hashed.

use rustc_hash::FxHashMap;

use super::{ApiCall, CallId, ProcessId, Profile};

/// Places a table may have per id that is asked for, and some more.
const PLACES_PER_ID: u64 = 8;
const MORE_PLACES: u64 = 1024;

/// One value each for a set of numbers given beforehand.
#[derive(Debug, Clone)]
pub(crate) struct IdMap<V> {
    low: u64,
    near: Vec<Option<V>>,
    far: FxHashMap<u64, Option<V>>,
}

/// Which numbers there are, roughly.
#[derive(Debug, Clone, Copy, Default)]
struct Extent {
    bounds: Option<(u64, u64)>,
    count: u64,
    zero: bool,
}

impl Extent {
    fn add(&mut self, id: u64) {
        self.count += 1;
        // 0 often stands for "none", far below the others.
        if id == 0 {
            self.zero = true;
        } else {
            let (low, high) = self.bounds.unwrap_or((id, id));
            self.bounds = Some((low.min(id), high.max(id)));
        }
    }
}

impl Extent {
    /// The first number of a table, its places, and whether all numbers have one.
    fn table(self) -> (u64, usize, bool) {
        let (low, high) = self.bounds.unwrap_or_default();
        let most = self.count.saturating_mul(PLACES_PER_ID) + MORE_PLACES;
        let span = (high - low).saturating_add(1);
        let places = usize::try_from(span.min(most)).unwrap_or(0);
        (low, places, span <= most && !self.zero)
    }
}

impl<V: Copy> IdMap<V> {
    fn within(extent: Extent) -> IdMap<V> {
        let (low, places, _) = extent.table();
        IdMap {
            low,
            near: vec![None; places],
            far: FxHashMap::default(),
        }
    }

    /// Room for these numbers.
    pub(crate) fn of(ids: impl Iterator<Item = u64> + Clone) -> IdMap<V> {
        let mut extent = Extent::default();
        ids.clone().for_each(|id| extent.add(id));
        let mut map = IdMap::within(extent);
        if !extent.table().2 {
            ids.for_each(|id| map.make_room(id));
        }
        map
    }

    /// The same value for each of these numbers.
    pub(crate) fn all(ids: impl Iterator<Item = u64> + Clone, value: V) -> IdMap<V> {
        let mut map = IdMap::of(ids.clone());
        for id in ids {
            if let Some(slot) = map.slot(id) {
                *slot = Some(value);
            }
        }
        map
    }

    fn place(&self, id: u64) -> Option<usize> {
        let place = usize::try_from(id.checked_sub(self.low)?).ok()?;
        (place < self.near.len()).then_some(place)
    }

    fn make_room(&mut self, id: u64) {
        if self.place(id).is_none() {
            self.far.entry(id).or_insert(None);
        }
    }

    /// The value of a number, to be set; `None` for most numbers that there is no room for: what lies
    /// between those that were given has room too.
    pub(crate) fn slot(&mut self, id: u64) -> Option<&mut Option<V>> {
        match self.place(id) {
            Some(place) => self.near.get_mut(place),
            None => self.far.get_mut(&id),
        }
    }

    pub(crate) fn get(&self, id: u64) -> Option<V> {
        match self.place(id) {
            Some(place) => self.near.get(place).copied().flatten(),
            None => self.far.get(&id).copied().flatten(),
        }
    }
}

/// One value each for the correlation ids that are asked for, process by process: the ids of two
/// processes collide.
#[derive(Debug, Clone)]
pub(crate) struct Correlated<V> {
    processes: Vec<IdMap<V>>,
}

impl<V: Copy> Correlated<V> {
    /// Room for these ids of the processes of `profile`.
    pub(crate) fn of(
        profile: &Profile,
        asked: impl Iterator<Item = (ProcessId, u64)> + Clone,
    ) -> Correlated<V> {
        let mut extents = vec![Extent::default(); profile.processes.len()];
        for (process, id) in asked.clone() {
            if let Some(extent) = extents.get_mut(process.idx()) {
                extent.add(id);
            }
        }
        let mut all = Correlated {
            processes: extents.iter().copied().map(IdMap::within).collect(),
        };
        if extents.iter().all(|extent| extent.table().2) {
            return all;
        }
        for (process, id) in asked {
            if let Some(map) = all.processes.get_mut(process.idx()) {
                map.make_room(id);
            }
        }
        all
    }

    /// As [`IdMap::slot`].
    pub(crate) fn slot(&mut self, process: ProcessId, id: u64) -> Option<&mut Option<V>> {
        self.processes.get_mut(process.idx())?.slot(id)
    }

    pub(crate) fn get(&self, process: ProcessId, id: u64) -> Option<V> {
        self.processes.get(process.idx())?.get(id)
    }
}

impl Correlated<CallId> {
    /// The call behind each id: the first one of its process that has it.
    pub(crate) fn first_calls(
        profile: &Profile,
        asked: impl Iterator<Item = (ProcessId, u64)> + Clone,
    ) -> Correlated<CallId> {
        let mut calls = Correlated::of(profile, asked.clone());
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

impl<V: Copy> Correlated<V> {
    /// The value of a call's id, as [`IdMap::slot`].
    pub(crate) fn slot_of(&mut self, profile: &Profile, call: &ApiCall) -> Option<&mut Option<V>> {
        let process = profile.threads.get(call.thread.idx())?.process;
        self.slot(process, call.correlation)
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
        }
        assert!(map.slot(1 << 41).is_none());
        assert_eq!(map.get(499), None);
        assert_eq!(IdMap::<u8>::of(std::iter::empty()).get(0), None);
    }

    #[test]
    fn a_table_is_not_out_of_proportion() {
        let map: IdMap<u8> = IdMap::of([1, 1 << 60].into_iter());
        assert!(map.near.len() < 2000);
        assert_eq!(map.far.len(), 1);
    }
}
