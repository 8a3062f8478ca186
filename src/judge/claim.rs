//! Who may count which nanosecond: findings claim savings from what better ones have left.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::evaluate::{Match, RuleInput};
use super::gather::FindingDraft;
use super::rule::Rule;
use super::{Confidence, Saving, SavingKind};
use crate::correlate::SiteId;
use crate::facts::{Member, Totals};

/// Saving times confidence, best first, then severity, covered time, id and place.
pub(super) fn by_expected_saving(
    rules: &[Rule],
    confidence: &[Confidence],
    a: &FindingDraft,
    b: &FindingDraft,
) -> Ordering {
    expected_saving(confidence, b)
        .total_cmp(&expected_saving(confidence, a))
        .then_with(|| otherwise(rules, a, b))
}

/// Severity, covered time, id, place: the order of findings whose savings do not tell them apart.
pub(super) fn otherwise(rules: &[Rule], a: &FindingDraft, b: &FindingDraft) -> Ordering {
    let id = |d: &FindingDraft| rules.get(d.rule).map(|r| r.id.as_str());
    b.severity
        .cmp(&a.severity)
        .then(b.time_ns.total_cmp(&a.time_ns))
        .then_with(|| id(a).cmp(&id(b)))
        .then_with(|| a.place.cmp(&b.place))
}

fn expected_saving(confidence: &[Confidence], draft: &FindingDraft) -> f64 {
    let weight = confidence.get(draft.rule).map_or(0.0, |c| c.weight());
    // Without an estimate, behind all that have one; other things tell those apart.
    draft.high.map_or(-1.0, |high| high * weight)
}

/// What has been claimed so far.
pub(super) struct Claims<'a> {
    input: &'a dyn RuleInput,
    totals: Totals,
    /// Claimed of each site, and the site's whole time.
    sites: BTreeMap<SiteId, (f64, f64)>,
    /// Claimed of single gaps and copies.
    members: BTreeMap<Member, f64>,
    gpu: f64,
    idle: f64,
    copy: f64,
}

impl<'a> Claims<'a> {
    pub(super) fn new(input: &'a dyn RuleInput) -> Claims<'a> {
        Claims {
            input,
            totals: input.totals(),
            sites: BTreeMap::new(),
            members: BTreeMap::new(),
            gpu: 0.0,
            idle: 0.0,
            copy: 0.0,
        }
    }

    /// Claims a finding's saving; better findings must have come before.
    pub(super) fn claim(&mut self, draft: &FindingDraft, sure: f64) -> Option<Saving> {
        let high_ns = draft.high?;
        let mut claimed_ns = 0.0;
        let mut exposed_ns = 0.0;
        for matched in &draft.matches {
            let taken = self.claim_match(matched, draft.kind);
            claimed_ns += taken.claimed;
            exposed_ns += taken.exposed;
        }
        let claimed_ns = f64::min(claimed_ns, high_ns);
        Some(Saving {
            high_ns,
            low_ns: high_ns * sure,
            claimed_ns,
            overlap_ns: high_ns - claimed_ns,
            step_ns: self.step_ns(exposed_ns, draft.kind),
            kind: draft.kind,
        })
    }

    fn claim_match(&mut self, matched: &Match, kind: SavingKind) -> Taken {
        let wanted = matched.saving.unwrap_or(0.0);
        match kind {
            SavingKind::Gpu if matched.affected.sites.is_empty() => {
                Taken::all(self.claim_busy(wanted))
            }
            SavingKind::Gpu => self.claim_sites(matched, wanted),
            SavingKind::Idle => {
                let left = self.totals.idle_ns - self.idle;
                let taken =
                    self.claim_member(matched.member, matched.affected.idle_ns, wanted, left);
                self.idle += taken;
                Taken::all(taken)
            }
            SavingKind::Copy => {
                let left = self.totals.copy_ns - self.copy;
                let taken =
                    self.claim_member(matched.member, matched.affected.copy_ns, wanted, left);
                self.copy += taken;
                Taken::all(taken)
            }
        }
    }

    /// From GPU time in general: a finding that names no site.
    fn claim_busy(&mut self, wanted: f64) -> f64 {
        let taken = wanted.min((self.totals.gpu_busy_ns - self.gpu).max(0.0));
        self.gpu += taken;
        taken
    }

    /// From each site in turn, never going below its floor.
    fn claim_sites(&mut self, matched: &Match, wanted: f64) -> Taken {
        let mut taken = Taken::default();
        for affected in &matched.affected.sites {
            let input = self.input;
            let (claimed, whole) = self.sites.entry(affected.site).or_insert_with(|| {
                let site = input.affected(Member::Site(affected.site));
                let own = site.sites.iter().find(|s| s.site == affected.site);
                (0.0, own.map_or(affected.time_ns, |s| s.time_ns))
            });
            let of_site = whole.max(affected.time_ns) - affected.floor_ns - *claimed;
            let of_stake = affected.time_ns - affected.floor_ns;
            let part = (wanted - taken.claimed).min(of_site).min(of_stake).max(0.0);
            *claimed += part;
            taken.claimed += part;
            taken.exposed += part * affected.exposed_share;
        }
        self.gpu += taken.claimed;
        taken
    }

    /// From one gap or copy, or from all of them where the member has none of its own.
    fn claim_member(&mut self, member: Member, own: f64, wanted: f64, left: f64) -> f64 {
        let claimed = self.members.entry(member).or_default();
        let own = if own > 0.0 { own - *claimed } else { left };
        let taken = wanted.min(own).min(left).max(0.0);
        *claimed += taken;
        taken
    }

    /// Kernel time only shortens a step as far as the GPU is what limits it, and as far as nothing
    /// else ran beside it.
    fn step_ns(&self, exposed: f64, kind: SavingKind) -> Option<f64> {
        let per_device = exposed / f64::from(self.totals.devices.max(1));
        match kind {
            SavingKind::Gpu => self.totals.step_weight.map(|weight| per_device * weight),
            SavingKind::Idle | SavingKind::Copy => Some(per_device),
        }
    }
}

/// What one member could claim.
#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    claimed: f64,
    /// The part during which nothing else ran on the device.
    exposed: f64,
}

impl Taken {
    fn all(ns: f64) -> Taken {
        Taken {
            claimed: ns,
            exposed: ns,
        }
    }
}
