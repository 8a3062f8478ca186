//! Maps kernels to the calls that launched them.

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use crate::profile::{ApiCall, ApiClass, CallId, CorrelationMap, Kernel, Profile};

/// The launch of every kernel: the call with its correlation id **and** its process, because two ranks
/// can use the same ids.
pub(crate) fn launches(profile: &Profile) -> Vec<Option<CallId>> {
    let started = profile.kernels.iter().map(|k| (k.process, k.correlation));
    let mut best: CorrelationMap<CallId> = CorrelationMap::for_numbers(started);
    for (id, call) in (0..).map(CallId).zip(&profile.calls) {
        let Some(slot) = profile.slot_of_call(call, &mut best) else {
            continue;
        };
        let known = slot.and_then(|known| profile.call(known));
        if known.is_none_or(|known| rank(profile, call) < rank(profile, known)) {
            *slot = Some(id);
        }
    }
    let launch = |k: &Kernel| best.get(k.process, k.correlation);
    profile.kernels.par_iter().map(launch).collect()
}

/// The calls of all GPU work except kernels, and those of synchronizations: of each number the first call of its
/// process.
pub(crate) fn work_calls(profile: &Profile) -> CorrelationMap<CallId> {
    let copies = profile.copies.iter().map(|c| (c.process, c.correlation));
    let sets = profile.sets.iter().map(|s| (s.process, s.correlation));
    let graphs = profile.graphs.iter().map(|g| (g.process, g.correlation));
    let syncs = profile.syncs.iter().map(|s| (s.process, s.correlation));
    let mut first = CorrelationMap::for_numbers(copies.chain(sets).chain(graphs).chain(syncs));
    for (id, call) in (0..).map(CallId).zip(&profile.calls) {
        if let Some(slot) = profile.slot_of_call(call, &mut first) {
            slot.get_or_insert(id);
        }
    }
    first
}

/// Sort key of the rows of one id; the smallest row is used. Launches precede other calls, a runtime
/// row precedes the driver row of the same launch, and otherwise file order decides.
fn rank(profile: &Profile, call: &ApiCall) -> (bool, bool) {
    let launches = matches!(call.class, ApiClass::Launch | ApiClass::GraphLaunch);
    let name = profile.text(call.name);
    let runtime = name.starts_with("cuda") || name.starts_with("hip");
    (!launches, !runtime)
}
