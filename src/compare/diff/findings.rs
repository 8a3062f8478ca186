//! Compares findings: fixed, new, still there, or unclear.

use std::collections::BTreeMap;

use super::model::{FindingChange, FindingChanges};
use super::work::has_operators;
use crate::compare::lists::newly_skipped;
use crate::judge::SavingKind;
use crate::report::{FindingReport, Report};

/// A finding, and whether it is minor.
type Found<'a> = (&'a FindingReport, bool);
type ByKey<'a> = BTreeMap<(&'a str, &'a str), Found<'a>>;

/// Matches findings by rule and subject; of the others, those whose rule has one on each side,
/// because its layer may have been renamed, unless they are about different kernels. Where only one side
/// names operators (`by_kernel`), only its rules can tell why a GPU is idle, so idle time of one GPU is the
/// same finding under two names.
pub(super) fn compare<'a>(
    before: &'a Report,
    after: &'a Report,
    by_kernel: bool,
) -> FindingChanges {
    let (mut old, mut new) = (all(before), all(after));
    let mut both: Vec<(Found<'a>, Found<'a>)> = Vec::new();
    let keys: Vec<_> = old
        .keys()
        .filter(|k| new.contains_key(*k))
        .copied()
        .collect();
    for key in keys {
        both.extend(old.remove(&key).zip(new.remove(&key)));
    }
    for rule in only_one(&old) {
        let key = |list: &ByKey<'a>| list.keys().find(|k| k.0 == rule).copied();
        if only_one(&new).contains(&rule)
            && let (Some(a), Some(b)) = (key(&old), key(&new))
            && !(old.get(&a).zip(new.get(&b))).is_some_and(|(a, b)| of_other_kernels(a.0, b.0))
        {
            both.extend(old.remove(&a).zip(new.remove(&b)));
        }
    }
    let mut out = FindingChanges::default();
    if by_kernel {
        for key in idle(&new) {
            let place = new.get(&key).map(|(finding, _)| finding.place.as_str());
            let alike = |b: &(&str, &str)| old.get(b).map(|(b, _)| b.place.as_str()) == place;
            let same = idle(&old).into_iter().find(alike);
            if let Some(((b, _), (a, _))) = same.and_then(|b| old.remove(&b)).zip(new.remove(&key))
            {
                out.still.push(FindingChange {
                    title: format!("{} (before: {})", a.title, b.title),
                    ..change(Some(b), Some(a), false)
                });
            }
        }
    }
    for ((b, b_small), (a, a_small)) in both {
        // Minor before and after is not reported.
        if !(b_small && a_small) {
            out.still.push(change(Some(b), Some(a), a_small));
        }
    }
    // Without operators, hardly a rule can tell that its problem is absent.
    let (blind_before, blind_after) = match by_kernel {
        true => (!has_operators(before), !has_operators(after)),
        false => (false, false),
    };
    let blind = newly_skipped(before, after);
    for (b, _) in old.into_values().filter(|(_, small)| !small) {
        let list = match blind_after || blind.contains(&b.rule.as_str()) {
            true => &mut out.unclear,
            false => &mut out.fixed,
        };
        list.push(change(Some(b), None, false));
    }
    let blind = newly_skipped(after, before);
    for (a, _) in new.into_values().filter(|(_, small)| !small) {
        let list = match blind_before || blind.contains(&a.rule.as_str()) {
            true => &mut out.unclear,
            false => &mut out.new,
        };
        list.push(change(None, Some(a), false));
    }
    for list in [
        &mut out.fixed,
        &mut out.new,
        &mut out.still,
        &mut out.unclear,
    ] {
        let most = |f: &FindingChange| f.after_share.or(f.before_share).unwrap_or(-1.0);
        list.sort_by(|a, b| {
            let by_size = most(b).total_cmp(&most(a));
            by_size.then_with(|| (&a.rule, &a.place).cmp(&(&b.rule, &b.place)))
        });
    }
    out
}

/// Findings about the capture are not about the program.
fn all(report: &Report) -> ByKey<'_> {
    let minor = report.minor.iter().map(|f| (f, true));
    let major = report.findings.iter().map(|f| (f, false));
    minor
        .chain(major)
        .map(|(f, small)| ((f.rule.as_str(), f.subject.as_str()), (f, small)))
        .collect()
}

/// Findings about the idle time of a GPU, and not of a place in the program.
fn idle<'a>(list: &ByKey<'a>) -> Vec<(&'a str, &'a str)> {
    let idle = list.iter().filter(|(_, (finding, small))| {
        let is_idle = (finding.saving.as_ref()).is_some_and(|s| s.kind == SavingKind::Idle);
        is_idle && !small && finding.places.is_empty()
    });
    idle.map(|(key, _)| *key).collect()
}

/// Rules with a single finding in the list.
fn only_one<'a>(list: &ByKey<'a>) -> Vec<&'a str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (rule, _) in list.keys() {
        *counts.entry(rule).or_default() += 1;
    }
    let once = counts.into_iter().filter(|(_, n)| *n == 1);
    once.map(|(rule, _)| rule).collect()
}

/// Whether both findings are about kernels of one label each, and these differ by more than a number, which a compiler
/// may count anew.
fn of_other_kernels(before: &FindingReport, after: &FindingReport) -> bool {
    let label = |finding: &'_ FindingReport| {
        let mut kernels = finding.evidence.kernels.iter();
        let of_label = !finding.subject.is_empty()
            && kernels.any(|kernel| kernel.kernel.contains(&finding.subject));
        of_label.then(|| finding.subject.replace(|c: char| c.is_ascii_digit(), ""))
    };
    (label(before).zip(label(after))).is_some_and(|(before, after)| before != after)
}

fn change(
    before: Option<&FindingReport>,
    after: Option<&FindingReport>,
    below_floor: bool,
) -> FindingChange {
    let shown = after.or(before);
    let text = |part: fn(&FindingReport) -> &String| shown.map(part).cloned().unwrap_or_default();
    let share = |f: Option<&FindingReport>| Some(f?.saving.as_ref()?.counted_share);
    let outside = |f: Option<&FindingReport>| f?.outside_ns;
    FindingChange {
        rule: text(|f| &f.rule),
        title: text(|f| &f.title),
        place: text(|f| &f.place),
        before_share: share(before),
        after_share: share(after),
        before_outside_ns: outside(before),
        after_outside_ns: outside(after),
        below_floor,
    }
}
