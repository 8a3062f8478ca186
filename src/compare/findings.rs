//! Merges the same finding of several ranks into one.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use indexmap::IndexMap;

use crate::base::text::{capitalized, md};
use crate::judge::order::{FindingFigures, Place, SavingFigures, Standing};
use crate::judge::{SavingKind, is_above_floor};
use crate::report::{
    CallUnit, FindingPlace, FindingReport, OnRanks, Report, SavingReport, Summary, share,
    steps_in_window,
};

/// Most ranks named in a list.
const NAMED: usize = 8;

/// The merged findings of several reports.
#[derive(Debug, Default)]
pub(super) struct Folded {
    pub(super) findings: Vec<FindingReport>,
    pub(super) minor: Vec<FindingReport>,
    pub(super) capture: Vec<FindingReport>,
    /// Maps a report and the number of a finding in it to the number here.
    pub(super) numbers: BTreeMap<(usize, u64), u64>,
}

/// A finding with the report it comes from.
struct RankFinding<'a> {
    report: usize,
    finding: &'a FindingReport,
    /// Whether it is not a minor finding.
    major: bool,
}

/// Findings of different ranks with the same key are one.
type Key<'a> = (&'a str, &'a str);

/// Merges the findings of the reports. `names` has the name of each report and the unit it counts;
/// `transfer_ns` is what all collectives take without waiting, summed over the ranks, where that is known, and
/// `slack_ns` per report for how long a step it waits for other ranks.
pub(super) fn fold(
    reports: &[Report],
    summary: &Summary,
    names: &ReportNames,
    transfer_ns: Option<f64>,
    slack_ns: &[f64],
) -> Folded {
    let mut advice: IndexMap<Key<'_>, Vec<RankFinding<'_>>> = IndexMap::new();
    let mut capture: IndexMap<Key<'_>, Vec<RankFinding<'_>>> = IndexMap::new();
    for (report, r) in reports.iter().enumerate() {
        let lists = [(&r.findings, true), (&r.minor, false)];
        for (list, major) in lists {
            for finding in list {
                let found = RankFinding {
                    report,
                    finding,
                    major,
                };
                advice.entry(key(finding)).or_default().push(found);
            }
        }
        for finding in &r.capture {
            let found = RankFinding {
                report,
                finding,
                major: true,
            };
            capture.entry(key(finding)).or_default().push(found);
        }
    }
    let mut groups: Vec<(FindingReport, Vec<RankFinding<'_>>)> = advice
        .into_values()
        .filter_map(|group| Some((one(&group, summary, (names, slack_ns))?, group)))
        .collect();
    groups.sort_by(|(a, _), (b, _)| by_place(a, b, summary));
    if let Some(transfer_ns) = transfer_ns {
        let findings = groups.iter_mut().map(|(finding, _)| finding);
        let about = findings.filter(|finding| finding.category == "communication");
        let savings = about.filter_map(|finding| finding.saving.as_mut());
        limit_communication(savings, transfer_ns, summary.busy_ns);
        groups.sort_by(|(a, _), (b, _)| by_place(a, b, summary));
    }

    let mut folded = Folded {
        capture: capture
            .values()
            .filter_map(|group| one(group, summary, (names, slack_ns)))
            .map(with_ranks)
            .collect(),
        ..Folded::default()
    };
    for (mut finding, group) in groups {
        let major = group.iter().any(|found| found.major);
        if !major || !matters(&finding, summary, transfer_ns.is_some()) {
            folded.minor.push(finding);
            continue;
        }
        finding.number = folded.findings.len() as u64 + 1;
        for found in group.iter().filter(|found| found.finding.number > 0) {
            folded
                .numbers
                .insert((found.report, found.finding.number), finding.number);
        }
        folded.findings.push(finding);
    }
    folded
}

/// A remark about some captures says which.
fn with_ranks(mut remark: FindingReport) -> FindingReport {
    if let Some(ranks) = remark.on_ranks.as_ref().filter(|ranks| ranks.on < ranks.of) {
        let unit = match ranks.on {
            1 => capitalized(&ranks.unit),
            _ => format!("{}s", capitalized(&ranks.unit)),
        };
        remark.message = format!("{unit} {}: {}", md(&ranks.names), remark.message);
    }
    remark
}

/// Lets savings of communication be no more than its transfers take, all together: the rest is waiting,
/// which a rank's own profile cannot tell apart.
fn limit_communication<'a>(
    savings: impl Iterator<Item = &'a mut SavingReport>,
    mut transfer_ns: f64,
    busy_ns: i64,
) {
    for saving in savings.filter(|s| s.kind == SavingKind::Gpu) {
        let part = (transfer_ns / saving.counted_high_ns).clamp(0.0, 1.0);
        if part < 1.0 {
            saving.counted_high_ns *= part;
            saving.counted_low_ns = saving.counted_low_ns.min(saving.counted_high_ns);
            saving.counted_share = share(saving.counted_high_ns, busy_ns as f64);
            saving.step_high_ns = saving.step_high_ns.map(|ns| ns * part);
            saving.step_low_ns =
                (saving.step_low_ns.zip(saving.step_high_ns)).map(|(low, high)| low.min(high));
        }
        transfer_ns = (transfer_ns - saving.counted_high_ns).max(0.0);
    }
}

/// Whether a merged finding shortens the step enough: ranks run their steps together, so what one rank
/// gains may be lost in waiting for another. Waiting itself is what findings on communication are about,
/// unless the transfers are known.
fn matters(finding: &FindingReport, summary: &Summary, transfers_known: bool) -> bool {
    let Some(saving) = finding
        .saving
        .as_ref()
        .filter(|s| s.kind != SavingKind::Idle)
    else {
        return true;
    };
    let step = summary.step_ns.unwrap_or(summary.window_ns as f64);
    if finding.category == "communication" {
        let each = steps_in_window(summary) * summary.devices.max(1) as f64;
        let (low, high) = (saving.counted_low_ns / each, saving.counted_high_ns / each);
        return !transfers_known || is_above_floor(low, high, step);
    }
    let (Some(low), Some(high)) = (saving.step_low_ns, saving.step_high_ns) else {
        return true;
    };
    is_above_floor(low, high, step)
}

/// Names of the reports.
#[derive(Debug)]
pub(super) struct ReportNames {
    /// `rank` where every report is about one rank, else `file`.
    pub(super) unit: &'static str,
    /// One per report: `3`, or `net.sqlite`.
    pub(super) names: Vec<String>,
}

impl ReportNames {
    fn of(&self, report: usize) -> &str {
        self.names.get(report).map_or("", String::as_str)
    }
}

fn key(finding: &FindingReport) -> Key<'_> {
    (&finding.rule, &finding.subject)
}

/// The merged finding: texts from the rank where it costs most, times summed over all.
fn one(
    group: &[RankFinding<'_>],
    summary: &Summary,
    (names, slack_ns): (&ReportNames, &[f64]),
) -> Option<FindingReport> {
    let claims = |f: &FindingReport| f.saving.as_ref().map_or(-1.0, |s| s.counted_high_ns);
    let worst = group.iter().reduce(|best, next| {
        let by_claim = claims(next.finding).total_cmp(&claims(best.finding));
        let by_time = next.finding.time_ns.total_cmp(&best.finding.time_ns);
        if by_claim.then(by_time).is_gt() {
            next
        } else {
            best
        }
    })?;
    let all = || group.iter().map(|found| found.finding);
    let saving = saving(group, summary, slack_ns);
    let time_ns = all().map(|f| f.time_ns).sum();
    let idle = worst.finding.calls_unit == CallUnit::Gap;
    let whole = match idle {
        true => summary.device_window_ns,
        false => summary.busy_ns,
    };
    let elsewhere = all().any(|f| f.place != worst.finding.place);
    Some(FindingReport {
        number: 0,
        // Each rank has its own GPU, so the number of the GPU does not tell where the finding is.
        place: if idle && elsewhere {
            "idle GPUs".to_owned()
        } else {
            worst.finding.place.clone()
        },
        severity: all().map(|f| f.severity).max()?,
        places: places(group),
        places_omitted: all().map(|f| f.places_omitted).max()?,
        whole_run: all().all(|f| f.whole_run),
        calls: all().fold(0, |sum, f| sum.saturating_add(f.calls)),
        members: all().fold(0, |sum, f| sum.saturating_add(f.members)),
        time_ns,
        share: share(time_ns, whole as f64),
        saving,
        // Ranks wait at the same time.
        outside_ns: all().filter_map(|f| f.outside_ns).reduce(f64::max),
        on_ranks: Some(on_ranks(group, worst, names)),
        ..worst.finding.clone()
    })
}

/// The places of all, with their times summed.
fn places(group: &[RankFinding<'_>]) -> Vec<FindingPlace> {
    let mut time: BTreeMap<&str, f64> = BTreeMap::new();
    for place in group.iter().flat_map(|found| &found.finding.places) {
        *time.entry(&place.place).or_default() += place.time_ns;
    }
    let mut places: Vec<FindingPlace> = time
        .into_iter()
        .map(|(place, time_ns)| FindingPlace {
            place: place.to_owned(),
            time_ns,
        })
        .collect();
    places.sort_by(|a, b| b.time_ns.total_cmp(&a.time_ns));
    places
}

fn saving(group: &[RankFinding<'_>], summary: &Summary, slack_ns: &[f64]) -> Option<SavingReport> {
    let all: Vec<&SavingReport> = group
        .iter()
        .filter_map(|found| found.finding.saving.as_ref())
        .collect();
    // Time of the GPU and idle time do not add up: where ranks save both, what the GPU saves is shown, and the
    // gain of a step has all of it.
    let of_gpu = all.iter().find(|s| s.kind != SavingKind::Idle);
    let kind = of_gpu.or(all.first())?.kind;
    let total = |part: fn(&SavingReport) -> f64| -> f64 {
        let same = all.iter().filter(|s| s.kind == kind);
        same.map(|s| part(s)).sum()
    };
    let whole = match kind {
        SavingKind::Idle => summary.device_window_ns,
        SavingKind::Gpu | SavingKind::Copy => summary.busy_ns,
    };
    let counted_high_ns = total(|s| s.counted_high_ns);
    Some(SavingReport {
        kind,
        low_ns: total(|s| s.low_ns),
        high_ns: total(|s| s.high_ns),
        counted_low_ns: total(|s| s.counted_low_ns),
        counted_high_ns,
        counted_share: share(counted_high_ns, whole as f64),
        overlap_ns: total(|s| s.overlap_ns),
        step_low_ns: step(group, |s| s.step_low_ns).map(|by_report| {
            // What the others gain is lost in waiting for a rank without the finding, unless that one waited for
            // them.
            let without = (slack_ns.iter().enumerate())
                .filter(|(report, _)| !by_report.contains_key(report))
                .map(|(_, slack)| *slack);
            without.fold(least(&by_report), f64::min)
        }),
        step_high_ns: step(group, |s| s.step_high_ns).map(|by_report| least(&by_report)),
    })
}

/// The saving of a step of each rank that has the finding: ranks run their steps together, so that the job gains
/// the smallest. `None` without an estimate for each.
fn step(
    group: &[RankFinding<'_>],
    end: fn(&SavingReport) -> Option<f64>,
) -> Option<BTreeMap<usize, f64>> {
    let mut by_report: BTreeMap<usize, f64> = BTreeMap::new();
    for found in group {
        let gain = end(found.finding.saving.as_ref()?)?;
        *by_report.entry(found.report).or_default() += gain;
    }
    Some(by_report)
}

fn least(by_report: &BTreeMap<usize, f64>) -> f64 {
    by_report.values().copied().reduce(f64::min).unwrap_or(0.0)
}

fn on_ranks(group: &[RankFinding<'_>], worst: &RankFinding<'_>, names: &ReportNames) -> OnRanks {
    let mut claimed: BTreeMap<usize, Option<f64>> = BTreeMap::new();
    for found in group {
        let sum = claimed.entry(found.report).or_default();
        if let Some(saving) = &found.finding.saving {
            *sum = Some(sum.unwrap_or(0.0) + saving.counted_high_ns);
        }
    }
    let listed: Vec<&str> = claimed.keys().take(NAMED).map(|&r| names.of(r)).collect();
    let more = if claimed.len() > NAMED { ", ..." } else { "" };
    let estimates = || claimed.values().flatten().copied();
    OnRanks {
        unit: names.unit.to_owned(),
        on: claimed.len() as u64,
        of: names.names.len() as u64,
        names: format!("{}{more}", listed.join(", ")),
        shown: names.of(worst.report).to_owned(),
        least_ns: estimates().reduce(f64::min),
        most_ns: estimates().reduce(f64::max),
    }
}

/// The order of two findings in a report with this summary, as in the report of a single run.
pub(super) fn by_place(a: &FindingReport, b: &FindingReport, summary: &Summary) -> Ordering {
    let standing = Standing {
        step_weight: summary.step_weight,
        devices: summary.devices,
        window_ns: summary.device_window_ns as f64 / summary.devices.max(1) as f64,
    };
    let place = |finding: &FindingReport| Place::of(&counted(finding, summary), &standing);
    place(a)
        .compare(place(b))
        .then_with(|| b.severity.cmp(&a.severity))
        .then_with(|| b.time_ns.total_cmp(&a.time_ns))
        .then_with(|| a.rule.cmp(&b.rule))
        .then_with(|| a.subject.cmp(&b.subject))
}

/// What counts of a finding when findings are ordered.
fn counted(finding: &FindingReport, summary: &Summary) -> FindingFigures {
    let steps = steps_in_window(summary);
    FindingFigures {
        saving: finding.saving.as_ref().map(|s| SavingFigures {
            kind: s.kind,
            low_ns: s.counted_low_ns,
            high_ns: s.counted_high_ns,
            wall_low_ns: s.step_low_ns.map(|ns| ns * steps),
        }),
        confidence: finding.confidence,
        time_ns: finding.time_ns,
        is_about_work: !finding.evidence.kernels.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn communication_saves_no_more_than_its_transfers_take() {
        let saving = |low: f64, high: f64| SavingReport {
            kind: SavingKind::Gpu,
            low_ns: low,
            high_ns: high,
            counted_low_ns: low,
            counted_high_ns: high,
            counted_share: 0.0,
            overlap_ns: 0.0,
            step_low_ns: None,
            step_high_ns: None,
        };
        let mut savings = [saving(10.0, 60.0), saving(50.0, 80.0), saving(5.0, 9.0)];
        limit_communication(savings.iter_mut(), 100.0, 1_000);
        let counted = savings.map(|s| (s.counted_low_ns, s.counted_high_ns));
        assert_eq!(counted, [(10.0, 60.0), (40.0, 40.0), (0.0, 0.0)]);
    }
}
