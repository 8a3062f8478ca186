//! Kernels to the calls that launched them.

use crate::profile::{ApiCall, ApiClass, CallId, Profile};

/// The launch of every kernel: same correlation id **and** same process, for the ids of two ranks
/// collide.
pub(crate) fn launches(profile: &Profile) -> Vec<Option<CallId>> {
    let mut calls = by_process(
        profile,
        profile.calls.iter().map(|c| process_of(profile, c)),
    );
    let mut kernels = by_process(profile, profile.kernels.iter().map(|k| k.process.idx()));
    let mut launches = vec![None; profile.kernels.len()];
    for (calls, kernels) in calls.iter_mut().zip(&mut kernels) {
        let correlation = |c: &u32| profile.calls.get(*c as usize).map(|c| c.correlation);
        // The best row of an id first: a launch before anything else, the runtime's row before the
        // driver's row of the same launch, then file order.
        calls.sort_by_key(|c| {
            let call = profile.calls.get(*c as usize);
            (correlation(c), call.map(|c| rank(profile, c)), *c)
        });
        let started = |k: &u32| profile.kernels.get(*k as usize).map(|k| k.correlation);
        kernels.sort_by_key(|k| (started(k), *k));
        let mut candidates = calls.iter().peekable();
        for kernel in kernels.iter() {
            let wanted = started(kernel);
            while candidates.next_if(|c| correlation(c) < wanted).is_some() {}
            if let Some(call) = candidates.peek().filter(|c| correlation(c) == wanted)
                && let Some(slot) = launches.get_mut(*kernel as usize)
            {
                *slot = Some(CallId(**call));
            }
        }
    }
    launches
}

fn process_of(profile: &Profile, call: &ApiCall) -> usize {
    profile
        .threads
        .get(call.thread.idx())
        .map_or(usize::MAX, |t| t.process.idx())
}

/// Row numbers split by process; rows of no process are left out.
fn by_process(profile: &Profile, processes: impl Iterator<Item = usize>) -> Vec<Vec<u32>> {
    let mut rows = vec![Vec::new(); profile.processes.len()];
    for (row, process) in (0u32..).zip(processes) {
        if let Some(list) = rows.get_mut(process) {
            list.push(row);
        }
    }
    rows
}

fn rank(profile: &Profile, call: &ApiCall) -> (bool, bool) {
    let launches = matches!(call.class, ApiClass::Launch | ApiClass::GraphLaunch);
    let name = profile.text(call.name);
    let runtime = name.starts_with("cuda") || name.starts_with("hip");
    (!launches, !runtime)
}
