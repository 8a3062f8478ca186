//! What the launching thread did in the gaps of a group, where the profile says.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::correlate::{GARBAGE_COLLECTION, HostPart, HostParts, HostTime, PartSum, readable_name};
use crate::facts::fact::{Answer, FactEntry, facts};
use crate::facts::table::{GapScope, Gaps};
use crate::profile::{ClassId, OsCallClass, StrId};

fn parts<'a>(g: &GapScope<'a>) -> Option<&'a HostParts> {
    Some(&g.group.sums.host).filter(|parts| parts.gaps > 0)
}

/// Some parts of the time in calls of the operating system; `None` if these were not recorded.
fn of_os_calls(g: &GapScope<'_>, which: impl Fn(&HostPart) -> bool) -> Option<PartSum> {
    let parts = parts(g).filter(|_| g.table.costed.run.host.has_os_calls)?;
    Some(parts.sum(which))
}

/// Calls of the operating system of one class; `None` if they were not recorded.
fn os_calls(g: &GapScope<'_>, class: Option<OsCallClass>) -> Option<PartSum> {
    of_os_calls(g, |part| match part {
        HostPart::OsCall { class: of, .. } => class.is_none_or(|class| class == *of),
        _ => false,
    })
}

fn os_time(g: &GapScope<'_>, class: Option<OsCallClass>) -> Answer {
    Answer::from(os_calls(g, class).map(|sum| sum.ns as f64))
}

/// Most functions that are named, and the smallest share of the waiting time that is worth a name.
const MOST_NAMED: usize = 3;
const LEAST_NAMED: f64 = 0.1;

/// The functions of the program, recorded or sampled, that took most of the waiting time, longest first, and their
/// share of it.
fn functions(g: &GapScope<'_>) -> Option<(Vec<String>, f64)> {
    let run = &g.table.costed.run;
    let parts = parts(g)?;
    let has_samples = HostTime::has_enough_samples(parts);
    let mut times: BTreeMap<StrId, i64> = BTreeMap::new();
    for (part, sum) in &parts.parts {
        match *part {
            HostPart::Function { name, .. } => *times.entry(name).or_default() += sum.ns,
            HostPart::Sampled { place, .. } if has_samples => {
                *times.entry(place).or_default() += sum.ns;
            }
            _ => {}
        }
    }
    let text = |name: StrId| run.profile.text(name);
    let whole = parts.waiting_ns().max(1) as f64;
    let mut named: Vec<(StrId, f64)> = (times.into_iter())
        .map(|(name, ns)| (name, ns as f64 / whole))
        .filter(|(_, share)| *share >= LEAST_NAMED)
        .filter(|(name, _)| !text(*name).starts_with(GARBAGE_COLLECTION))
        .collect();
    named.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    named.truncate(MOST_NAMED);
    let share = named.iter().map(|(_, share)| share).sum();
    let names = named
        .iter()
        .map(|(name, _)| readable_name(text(*name)).into_owned());
    Some((names.collect(), share))
}

/// The class of functions in which the thread spent half of the waiting time or more, and that time in ns.
pub(super) fn main_class(host: &HostTime, parts: &HostParts) -> Option<(ClassId, f64)> {
    let mut classes: BTreeMap<ClassId, f64> = BTreeMap::new();
    for ((class, _), ns) in parts.of_classes(host) {
        *classes.entry(class).or_default() += ns;
    }
    let most = classes.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    most.filter(|(_, ns)| *ns >= 0.5 * parts.waiting_ns() as f64)
}

/// The class of a group, and the idle time in it that recording cannot explain.
fn class(g: &GapScope<'_>) -> Option<(ClassId, f64)> {
    let (class, ns) = main_class(&g.table.costed.run.host, parts(g)?)?;
    let sums = &g.group.sums;
    let reliable = sums.host_reliable as f64 / sums.host.ns.max(1) as f64;
    Some((class, ns * reliable))
}

/// The function in which most of the time of the main class was spent.
fn class_function(g: &GapScope<'_>) -> Option<String> {
    let run = &g.table.costed.run;
    let (main, _) = class(g)?;
    let times = parts(g)?.of_classes(&run.host).into_iter();
    let named = times.filter_map(|((class, name), ns)| Some((name?, ns)).filter(|_| class == main));
    let longest = named.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
    longest.map(|(name, _)| readable_name(run.profile.text(name)).into_owned())
}

/// Whether functions of the host were recorded or sampled at all.
fn has_functions(g: &GapScope<'_>) -> bool {
    let run = &g.table.costed.run;
    let host = &run.profile.host;
    run.host.has_functions || !host.samples.is_empty() || !host.timed.is_empty()
}

pub(super) const ENTRIES: &[FactEntry<Gaps>] = facts! {
    /// Time of its intervals of 100 us or more before the launch that ended each
    "gap.host_ns": DOUBLE needs HOST_ACTIVITY =>
        |g| parts(g).map(|parts| parts.waiting_ns() as f64),
    /// What the functions do that took half of `gap.host_ns` or more: `logging`, `saving a checkpoint`, ...
    /// (docs/host.md); silent where no class did
    "gap.class": STR needs HOST_FUNCTIONS => |g| {
        let name = || class(g).map(|(class, _)| g.table.costed.run.host.classes.name(class));
        has_functions(g).then(|| Answer::or_silent(name()))
    },
    /// Part of `gap.time_ns` in functions of that class; an estimate if they were sampled
    "gap.class_ns": DOUBLE needs HOST_FUNCTIONS =>
        |g| has_functions(g).then(|| Answer::or_silent(class(g).map(|(_, ns)| ns))),
    /// The function of the program in which most of the time of `gap.class` was spent; silent without one
    "gap.class_function": STR needs HOST_FUNCTIONS =>
        |g| has_functions(g).then(|| Answer::or_silent(class_function(g))),
    /// Part of `gap.host_ns` in calls of the operating system, on the thread that launches
    "gap.os_call_ns": DOUBLE needs OS_CALLS => |g| os_time(g, None),
    /// Part of `gap.host_ns` in calls that wait for another thread or process or for input: `futex`,
    /// `sem_wait`, `poll`
    "gap.os_wait_ns": DOUBLE needs OS_CALLS => |g| os_time(g, Some(OsCallClass::Wait)),
    /// Part of `gap.host_ns` in calls of the operating system whose names the file lacks
    "gap.unnamed_call_ns": DOUBLE needs OS_CALLS => |g| {
        let unnamed = of_os_calls(g, |part| matches!(part, HostPart::OsCall { name: None, .. }));
        Answer::from(unnamed.map(|sum| sum.ns as f64))
    },
    /// Part of `gap.host_ns` in calls to drivers: `ioctl`
    "gap.driver_call_ns": DOUBLE needs OS_CALLS => |g| os_time(g, Some(OsCallClass::Driver)),
    /// Part of `gap.host_ns` in calls that read files or pipes
    "gap.read_ns": DOUBLE needs OS_CALLS => |g| os_time(g, Some(OsCallClass::Read)),
    /// Calls that read files or pipes in `gap.read_ns`
    "gap.reads": INT needs OS_CALLS =>
        |g| os_calls(g, Some(OsCallClass::Read)).map(|sum| sum.count),
    /// Bytes that the calls of `gap.reads` read; silent where their sizes were not recorded
    "gap.read_bytes": DOUBLE needs OS_CALLS => |g| {
        let bytes = os_calls(g, Some(OsCallClass::Read)).map(|sum| sum.bytes);
        Answer::or_silent(bytes.filter(|n| *n > 0).map(|n| n as f64))
    },
    /// Part of `gap.host_ns` in which the thread was on no CPU, outside recorded calls
    "gap.off_cpu_ns": DOUBLE needs SCHEDULING => |g| {
        let off = parts(g).filter(|_| g.table.costed.run.host.has_scheduling);
        off.map(|parts| parts.sum(|part| matches!(part, HostPart::OffCpu(_))).ns as f64)
    },
    /// At most three Python functions of the program, recorded or sampled, in which the thread spent a tenth of
    /// `gap.host_ns` or more outside recorded calls, longest first: `name (folder/file.py:line)`
    "gap.functions": STRINGS needs HOST_FUNCTIONS => |g| {
        let names = functions(g).map(|(names, _)| names).unwrap_or_default();
        let names: Arc<[Arc<str>]> = names.into_iter().map(Arc::from).collect();
        has_functions(g).then_some(names)
    },
    /// Time in `gap.functions` as a share of `gap.host_ns`; an estimate if it was sampled
    "gap.functions_share": DOUBLE needs HOST_FUNCTIONS =>
        |g| has_functions(g).then(|| functions(g).map_or(0.0, |(_, share)| share)),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::facts::testing::answers;
    use crate::facts::{MemberKind, Value};
    use crate::profile::{OsCall, Span, ThreadId};

    #[test]
    fn calls_without_a_name_are_no_waits() {
        let mut b = ProfileBuilder::new();
        b.launch(0);
        b.launch(10_000_000);
        b.profile.host.has_os_calls = true;
        for (name, start, end) in [
            (Some("poll"), 1_000_000, 4_000_000),
            (None, 5_000_000, 7_000_000),
        ] {
            let name = name.map(|name| b.profile.strings.intern(name));
            let class = name.map_or("", |name| b.profile.strings.get(name));
            let class = OsCallClass::of(class);
            b.profile.host.os_calls.push(OsCall {
                thread: ThreadId(0),
                span: Span { start, end },
                name,
                class,
                bytes: 0,
                caller: None,
            });
        }
        let facts = ["gap.os_wait_ns", "gap.unnamed_call_ns"];
        let known = answers(b, MemberKind::Gap, facts);
        let ns = |ns: f64| Answer::Value(Value::Double(ns));
        assert_eq!(known, [[ns(3e6), ns(2e6)]]);
    }
}
