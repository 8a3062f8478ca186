//! Assigns each nanosecond of saving to one finding: findings claim from what better ones left.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::evaluate::{Match, Range, RuleInput};
use super::finding::{Confidence, Saving, SavingKind};
use super::grouping::FindingDraft;
use super::order::MinSaving;
use super::rule::Rule;
use crate::correlate::SiteId;
use crate::facts::{AffectedSite, Member, MemberKind, StepWeight, Totals, UNRECORDED_WORK};

/// The order in which findings claim: by the lower end of the saving, largest first, then severity, covered time, id and
/// place. Findings about late launches of any kind, which may be right, come last: those about some launches, which name
/// what makes them, leave them the rest.
pub(super) fn by_min_saving(
    rules: &[Rule],
    confidence: &[Confidence],
    totals: &Totals,
    a: &FindingDraft,
    b: &FindingDraft,
) -> Ordering {
    let saving = |draft: &FindingDraft| min_saving(confidence, totals, draft);
    let id = |d: &FindingDraft| rules.get(d.rule).map(|r| r.id.as_str());
    let of_any_launches = |draft: &FindingDraft| {
        let rule = rules.get(draft.rule);
        rule.is_some_and(|rule| rule.for_each == MemberKind::Gap && rule.shortens_host())
            && confidence.get(draft.rule) != Some(&Confidence::High)
    };
    of_any_launches(a)
        .cmp(&of_any_launches(b))
        .then(saving(a).compare(saving(b)))
        .then(b.severity.cmp(&a.severity))
        .then(b.time_ns.total_cmp(&a.time_ns))
        .then_with(|| id(a).cmp(&id(b)))
        .then_with(|| a.place.cmp(&b.place))
}

fn min_saving(confidence: &[Confidence], totals: &Totals, draft: &FindingDraft) -> MinSaving {
    // Without an estimate, after all that have one.
    let Some(saving) = draft.saving else {
        return MinSaving {
            wall: -1.0,
            own: -1.0,
        };
    };
    let own = saving.low * confidence.get(draft.rule).map_or(0.0, |c| c.weight());
    let weight = match draft.kind {
        SavingKind::Gpu => {
            let weight = min_weight(totals, draft).unwrap_or(1.0);
            let savings = draft.matches.iter().filter_map(|m| Some((m, m.saving?)));
            let with_host = savings
                .filter(|(_, saving)| saving.high > 0.0)
                .map(|(m, saving)| m.host_ns.min(saving.high) * saving.low / saving.high);
            weight.max(with_host.sum::<f64>() / saving.low.max(1.0))
        }
        SavingKind::Copy => {
            let weights = draft.matches.iter().filter_map(|m| m.affected.copy_weight);
            weights.map(|weight| weight.low).fold(1.0, f64::min)
        }
        SavingKind::Idle => 1.0,
    };
    MinSaving {
        wall: own * weight,
        own,
    }
}

/// The share of a draft's saving by which steps become shorter at least: the mean of its sites.
fn min_weight(totals: &Totals, draft: &FindingDraft) -> Option<f64> {
    let (mut time, mut counts) = (0.0, 0.0);
    for matched in &draft.matches {
        let hidden = is_hidden(matched, totals);
        for affected in matched.all_sites() {
            time += affected.time_ns;
            let weight = affected.step_weight?.low;
            counts += if hidden {
                0.0
            } else {
                affected.time_ns * weight
            };
        }
    }
    if time > 0.0 {
        Some(counts / time)
    } else {
        totals.step_weight
    }
}

/// Share of the window in which the GPU waits for late launches from which more of them may take what less work saves: a
/// mixture of experts at 0.43 became slower by a quarter under autocast, and a detector at 0.36 faster by a tenth (H100).
const WAITS: f64 = 0.25;

/// Whether longer work of the host may hide what is saved: the fix adds launches, and the GPU waits for them.
fn is_hidden(matched: &Match, totals: &Totals) -> bool {
    matched.adds_launches && totals.late_launch_ns >= WAITS * totals.window_ns
}

/// What has been claimed so far.
pub(super) struct Claims<'a> {
    input: &'a dyn RuleInput,
    totals: Totals,
    sites: BTreeMap<SiteId, SiteClaims>,
    /// Claimed of parts of sites; `None` for all parts of the kind together.
    parts: BTreeMap<(SiteId, PartKind, Option<u32>), Claimed>,
    /// Claimed of single gaps and copies.
    members: BTreeMap<Member, f64>,
    gpu: f64,
    idle: f64,
    /// Of the idle time before late launches: by shorter gaps, and by launches that go away.
    late_gaps: f64,
    fewer_launches: f64,
    /// The part of `fewer_launches` of savings whose lower end is 0.
    perhaps_fewer_launches: f64,
    copy: f64,
    /// By how much steps become shorter by work of which some runs beside communication, and by that part of it.
    computing: f64,
    beside_comm: f64,
    /// By how much the steps of a device become shorter while the host works as long as before: at most, and at
    /// least.
    beside_host: f64,
    beside_host_low: f64,
}

/// Share of the time in which the host may wait for the GPU that it waits for certain.
const SURELY_WAITS: f64 = 0.8;

/// What has been claimed of one site, ns.
#[derive(Debug, Clone, Copy, Default)]
struct SiteClaims {
    /// The site's whole time.
    whole: f64,
    claimed: Claimed,
    /// Index of the rule that replaces it.
    by: usize,
}

/// What has been claimed of some work, ns.
#[derive(Debug, Clone, Copy, Default)]
struct Claimed {
    /// Claimed, or not there to be claimed because the work is replaced.
    taken: f64,
    /// Time of work that a finding removes or replaces.
    replaced: f64,
}

impl Claimed {
    fn replace(&mut self, ns: f64, most: f64) {
        self.replaced = (self.replaced + ns).min(most);
        self.taken = self.taken.max(self.replaced);
    }
}

/// The kinds of parts of a site. Two parts of one kind have no work in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PartKind {
    /// The executions of a kernel, by its row, as far as findings about kernels claim them ...
    Kernel,
    /// ... and as far as chains do.
    KernelInChains,
    /// The calls of a chain, by its number: a call belongs to one chain at most.
    Chain,
    /// The backward calls of the calls of a chain, by its number. They may be calls of another chain.
    Backward,
}

impl<'a> Claims<'a> {
    pub(super) fn new(input: &'a dyn RuleInput) -> Claims<'a> {
        Claims {
            input,
            totals: input.totals(),
            sites: BTreeMap::new(),
            parts: BTreeMap::new(),
            members: BTreeMap::new(),
            gpu: 0.0,
            idle: 0.0,
            late_gaps: 0.0,
            fewer_launches: 0.0,
            perhaps_fewer_launches: 0.0,
            copy: 0.0,
            computing: 0.0,
            beside_comm: 0.0,
            beside_host: 0.0,
            beside_host_low: 0.0,
        }
    }

    /// Claims the savings of the matches whose lower end is above 0; better findings must have claimed before.
    /// Work that the rule replaces or removes goes away, so its reachable time is no lower bound.
    pub(super) fn claim(&mut self, draft: &FindingDraft, rule: &Rule) -> Option<Saving> {
        let saving = draft.saving?;
        let gone = self.gone(draft, rule);
        let mut all = Taken::default();
        let mut low = Taken::default();
        for (matched, range) in with_savings(draft).filter(|(_, s)| s.low > 0.0) {
            let mut taken = self.claim_match(matched, draft.kind, &gone);
            if draft.kind == SavingKind::Gpu && !self.totals.paced_by_workers {
                taken.with_host(matched.host_ns);
            }
            all.add(taken, 1.0);
            low.add(taken, range.low / range.high);
        }
        let wanted = self.step_ns(draft.kind, all).map(|step| step.high);
        let step_ns = wanted.map(|wanted| self.beside_host(draft, rule, wanted, false));
        // The part of idle time that is left is a part of it, whatever the fix saves of it.
        let left = match (draft.kind, wanted.zip(step_ns)) {
            (SavingKind::Idle, Some((wanted, step_ns))) if wanted > 0.0 => step_ns / wanted,
            _ => 1.0,
        };
        let claimed_ns = all.claimed.min(saving.high) * left;
        let step_low_ns = self.step_ns(draft.kind, low).map(|step| step.low * left);
        let step_low_ns = step_low_ns.map(|low| self.beside_host(draft, rule, low, true));
        // What better findings may save, they may also not save.
        let step_ns = step_ns.map(|high| high.max(step_low_ns.unwrap_or(0.0)));
        Some(Saving {
            high_ns: saving.high,
            low_ns: saving.low,
            claimed_ns,
            claimed_low_ns: (low.claimed * left).min(claimed_ns),
            overlap_ns: saving.high - claimed_ns,
            step_ns,
            step_low_ns,
            kind: draft.kind,
        })
    }

    /// The part of `wanted` by which the steps of a device become shorter, at most or for `certain`: not more than the
    /// host waits, where it works as long as before.
    fn beside_host(
        &mut self,
        draft: &FindingDraft,
        rule: &Rule,
        wanted: f64,
        certain: bool,
    ) -> f64 {
        let Some(slack) = self.totals.host_slack_ns else {
            return wanted;
        };
        let limited = match draft.kind {
            SavingKind::Gpu | SavingKind::Copy if rule.shortens_host() => 0.0,
            SavingKind::Gpu | SavingKind::Copy => wanted,
            SavingKind::Idle => {
                let sum = |part: fn(&Match) -> f64| draft.matches.iter().map(part).sum::<f64>();
                let idle = sum(|m| m.affected.idle_ns);
                wanted * (sum(|m| m.affected.catch_up_ns) / idle.max(1.0)).min(1.0)
            }
        };
        let devices = self.totals.device_count();
        let works = (self.totals.window_ns - slack).max(0.0);
        let (before, most) = match certain {
            true => (&mut self.beside_host_low, slack * SURELY_WAITS),
            false => (
                &mut self.beside_host,
                slack + works * (1.0 - UNRECORDED_WORK),
            ),
        };
        let left = most / devices - *before;
        let taken = limited.min(left).max(0.0);
        *before += taken;
        wanted - limited + taken
    }

    /// Claims the savings of the matches whose lower end is 0; all findings must have claimed the others
    /// before.
    pub(super) fn claim_uncertain(
        &mut self,
        draft: &FindingDraft,
        rule: &Rule,
        saving: &mut Saving,
    ) {
        let gone = self.gone(draft, rule);
        let mut all = Taken::default();
        let fewer = self.fewer_launches;
        for (matched, _) in with_savings(draft).filter(|(_, s)| s.low <= 0.0) {
            all.add(self.claim_match(matched, draft.kind, &gone), 1.0);
        }
        self.perhaps_fewer_launches += self.fewer_launches - fewer;
        saving.claimed_ns = (saving.claimed_ns + all.claimed).min(saving.high_ns);
        let step = self.step_ns(draft.kind, all).map(|step| step.high);
        let step = step.map(|wanted| self.beside_host(draft, rule, wanted, false));
        saving.step_ns = saving.step_ns.zip(step).map(|(sum, step)| sum + step);
        if let Some(step_ns) = saving.step_ns.filter(|_| draft.kind == SavingKind::Idle) {
            saving.claimed_ns = saving.claimed_ns.min(step_ns * self.totals.device_count());
        }
        saving.overlap_ns = saving.high_ns - saving.claimed_ns;
    }

    /// Takes from a finding that makes launches faster what others save of the same gaps with fewer launches;
    /// all findings must have claimed.
    pub(super) fn leave_to_fewer_launches(&self, draft: &FindingDraft, saving: &mut Saving) {
        let twice = self.claimed_twice();
        let late = |m: &Match| matches!(m.member, Member::Gap(_)) && m.affected.launch_ns > 0.0;
        if twice <= 0.0 || !draft.matches.iter().any(late) {
            return;
        }
        let share = |twice: f64| (1.0 - twice / self.late_gaps).max(0.0);
        let rest = share(twice);
        // What others may save or not leaves the lower end as it is.
        let sure = share((twice - self.perhaps_fewer_launches).max(0.0));
        saving.claimed_ns *= rest;
        saving.claimed_low_ns = (saving.claimed_low_ns * sure).min(saving.claimed_ns);
        saving.overlap_ns = saving.high_ns - saving.claimed_ns;
        saving.step_ns = saving.step_ns.map(|ns| ns * rest);
        let most = saving.step_ns.unwrap_or(f64::INFINITY);
        saving.step_low_ns = saving.step_low_ns.map(|ns| (ns * sure).min(most));
    }

    /// ns of late gaps that both faster and fewer launches have claimed.
    fn claimed_twice(&self) -> f64 {
        (self.late_gaps + self.fewer_launches - self.totals.late_launch_ns).max(0.0)
    }

    /// Marks the work that a finding covers as removed or replaced: nothing more can be saved on it.
    pub(super) fn replace(&mut self, draft: &FindingDraft) {
        for matched in &draft.matches {
            for (affected, is_backward) in sites_of(matched) {
                let ns = affected.time_ns;
                let site = self.site(affected.site, ns);
                site.claimed.replace(ns, site.whole);
                site.by = draft.rule;
                self.add_to_parts(matched, affected, is_backward, |part, share| {
                    part.replace(ns * share, f64::INFINITY);
                });
            }
        }
    }

    /// The index of the rule whose finding replaces most of the work that a match covers.
    pub(super) fn replaced_by(&self, matched: &Match) -> Option<usize> {
        let (mut time, mut replaced) = (0.0, 0.0);
        let mut by: Option<(f64, usize)> = None;
        for affected in &matched.affected.sites {
            time += affected.time_ns;
            let Some(site) = self.sites.get(&affected.site) else {
                continue;
            };
            let part = self.claimed_of(matched, affected, false, |claimed| claimed.replaced);
            replaced += part;
            if part > by.map_or(0.0, |(most, _)| most) {
                by = Some((part, site.by));
            }
        }
        by.filter(|_| replaced > 0.5 * time).map(|(_, rule)| rule)
    }

    /// The work of each match of a draft that goes away.
    fn gone(&self, draft: &FindingDraft, rule: &Rule) -> BTreeMap<Member, Gone> {
        let goes = rule.replaces_work || rule.removes_work;
        let matches = draft.matches.iter().filter(|_| goes);
        let of_match = |matched: &Match| {
            let sites = sites_of(matched);
            let taken = sites.map(|(affected, is_backward)| {
                self.claimed_of(matched, affected, is_backward, |claimed| claimed.taken)
            });
            let time: f64 = matched.all_sites().map(|site| site.time_ns).sum();
            let share = match matched.work {
                Some(work) if rule.removes_work => (work.high / time.max(1.0)).min(1.0),
                _ => 1.0,
            };
            let before_ns = share * taken.sum::<f64>();
            (matched.member, Gone { share, before_ns })
        };
        matches.map(of_match).collect()
    }

    /// What has been claimed of the work that a match covers of a site, in ns: of the same kernels where they are
    /// known, of others in proportion.
    fn claimed_of(
        &self,
        matched: &Match,
        affected: &AffectedSite,
        is_backward: bool,
        of: fn(&Claimed) -> f64,
    ) -> f64 {
        use PartKind::{Backward, Chain, Kernel, KernelInChains};
        let id = affected.site;
        let Some(site) = self.sites.get(&id).filter(|site| site.whole > 0.0) else {
            return 0.0;
        };
        let part = |kind, at| self.parts.get(&(id, kind, at)).map_or(0.0, of);
        // Claimed of parts of which it is known what they have in common with this one, and how much that is.
        let (known, common) = match matched.member {
            Member::Kernel(_, row) => {
                let sum = |at| part(Kernel, at) + part(KernelInChains, at);
                (sum(None), sum(Some(row)))
            }
            Member::Chain(chain) if is_backward => {
                (part(Backward, None), part(Backward, Some(chain)))
            }
            Member::Chain(chain) => {
                let kernels = matched.affected.parts.get(&id).map(|part| &part.kernels);
                let of_kernels = part(Kernel, None);
                match kernels.filter(|kernels| of_kernels > 0.0 && !kernels.is_empty()) {
                    Some(kernels) => (
                        part(Chain, None) + of_kernels,
                        part(Chain, Some(chain))
                            + self.of_executions(id, kernels, |row| part(Kernel, Some(row))),
                    ),
                    None => (part(Chain, None), part(Chain, Some(chain))),
                }
            }
            _ => (0.0, 0.0),
        };
        let rest = (of(&site.claimed) - known).max(0.0);
        rest * (affected.time_ns / site.whole) + common
    }

    /// What has been claimed of some executions of kernels, by what has been claimed of each kernel.
    fn of_executions(
        &self,
        site: SiteId,
        kernels: &BTreeMap<u32, (u64, f64)>,
        claimed: impl Fn(u32) -> f64,
    ) -> f64 {
        let of_kernel = |(&row, &(_, ns)): (&u32, &(u64, f64))| {
            let kernel = Member::Kernel(site, row);
            let whole = self.input.affected_without_place(kernel).time_ns;
            claimed(row) * (ns / whole.max(1.0)).min(1.0)
        };
        kernels.iter().map(of_kernel).sum()
    }

    /// Adds to the parts of a site that a match covers, each with its share of that.
    fn add_to_parts(
        &mut self,
        matched: &Match,
        affected: &AffectedSite,
        is_backward: bool,
        add: impl Fn(&mut Claimed, f64),
    ) {
        let mut to = |kind, number, share| {
            for at in [Some(number), None] {
                add(
                    self.parts.entry((affected.site, kind, at)).or_default(),
                    share,
                );
            }
        };
        match matched.member {
            Member::Kernel(_, row) => to(PartKind::Kernel, row, 1.0),
            Member::Chain(chain) if is_backward => to(PartKind::Backward, chain, 1.0),
            Member::Chain(chain) => {
                to(PartKind::Chain, chain, 1.0);
                let part = matched.affected.parts.get(&affected.site);
                let kernels = part.into_iter().flat_map(|part| &part.kernels);
                for (&row, (_, ns)) in kernels {
                    to(
                        PartKind::KernelInChains,
                        row,
                        ns / affected.time_ns.max(1.0),
                    );
                }
            }
            _ => {}
        }
    }

    fn site(&mut self, id: SiteId, at_least: f64) -> &mut SiteClaims {
        let input = self.input;
        let claims = self.sites.entry(id).or_insert_with(|| {
            let site = input.affected_without_place(Member::Site(id));
            let own = site.sites.iter().find(|s| s.site == id);
            SiteClaims {
                whole: own.map_or(0.0, |s| s.time_ns),
                ..SiteClaims::default()
            }
        });
        claims.whole = claims.whole.max(at_least);
        claims
    }

    fn claim_match(
        &mut self,
        matched: &Match,
        kind: SavingKind,
        gone: &BTreeMap<Member, Gone>,
    ) -> Taken {
        let mut taken = self.claim_of_kind(matched, kind, gone);
        let uncertain = self.totals.paced_by_workers || is_hidden(matched, &self.totals);
        if let Some(step) = taken.step.as_mut().filter(|_| uncertain) {
            step.low = 0.0;
        }
        taken
    }

    fn claim_of_kind(
        &mut self,
        matched: &Match,
        kind: SavingKind,
        gone: &BTreeMap<Member, Gone>,
    ) -> Taken {
        let wanted = matched.saving.map_or(0.0, |s| s.high);
        match kind {
            SavingKind::Gpu if matched.affected.sites.is_empty() => {
                let taken = wanted.min(self.gpu_left());
                self.gpu += taken;
                Taken::of(taken, self.totals.step_weight.map(StepWeight::exactly))
            }
            SavingKind::Gpu => self.claim_sites(matched, wanted, gone),
            SavingKind::Idle => {
                // What exceeds the time before launches is that of the work, which goes away with them.
                let launches = matched.launches.map_or(wanted, |launches| launches.high);
                let work = self.claim_sites(matched, (wanted - launches).max(0.0), gone);
                let wanted = wanted.min(launches);
                let left = self.totals.reliable_idle_ns - self.idle + self.claimed_twice();
                // Launches that go away also shorten the idle time before others.
                let own = match matched.launches {
                    Some(launches) => launches.high.max(matched.affected.idle_ns),
                    None => matched.affected.idle_ns,
                };
                let taken = self.claim_member(matched.member, own, wanted, left);
                self.idle += taken;
                if matched.affected.launch_ns > 0.0 {
                    *(match matched.member {
                        Member::Gap(_) => &mut self.late_gaps,
                        _ => &mut self.fewer_launches,
                    }) += taken;
                }
                // What exceeds the idle time is that of the copies behind it, which go away as well.
                let copies = (wanted - matched.affected.idle_ns).min(matched.affected.copy_ns);
                let copies = copies.min(self.totals.copy_ns - self.copy).max(0.0);
                self.copy += copies;
                let all = taken + copies + work.claimed;
                Taken::of(all, Some(StepWeight::exactly(1.0)))
            }
            SavingKind::Copy => {
                let left = self.totals.copy_ns - self.copy;
                let taken =
                    self.claim_member(matched.member, matched.affected.copy_ns, wanted, left);
                self.copy += taken;
                let weight = (matched.affected.copy_weight).unwrap_or(StepWeight::exactly(1.0));
                Taken::of(taken, Some(weight))
            }
        }
    }

    /// The time in which kernels ran, as far as nothing has claimed it. Kernels that run side by side
    /// add up to more than that.
    fn gpu_left(&self) -> f64 {
        (self.totals.gpu_busy_ns - self.totals.copy_ns - self.gpu).max(0.0)
    }

    /// From each site in turn, never going below the reachable time of the work that stays. Of work that is `gone`, the
    /// saving is the whole, and what was claimed of it before is a part of it.
    fn claim_sites(
        &mut self,
        matched: &Match,
        wanted: f64,
        gone: &BTreeMap<Member, Gone>,
    ) -> Taken {
        let gone = gone.get(&matched.member).copied().unwrap_or_default();
        let wanted = wanted.min(self.gpu_left()) - gone.before_ns;
        let mut taken = Taken::default();
        for (affected, is_backward) in sites_of(matched) {
            let floor_ns = affected.floor_ns * (1.0 - gone.share);
            let site = self.site(affected.site, affected.time_ns);
            let of_site = site.whole - floor_ns - site.claimed.taken;
            let of_member = affected.time_ns - floor_ns;
            let part = (wanted - taken.claimed)
                .min(of_site)
                .min(of_member)
                .max(0.0);
            site.claimed.taken += part;
            self.add_to_parts(matched, affected, is_backward, |claimed, share| {
                claimed.taken += part * share;
            });
            let weight = affected.step_weight.map(|weight| StepWeight {
                low: weight.low * affected.exposed_share,
                high: weight.high * affected.exposed_share,
            });
            let mut of_part = Taken::of(part, weight);
            of_part.alone *= affected.exposed_share;
            if let Some((step, weight)) = of_part.step.as_mut().zip(affected.step_weight) {
                let beside = part * weight.high * affected.beside_comm_share;
                step.high += self.claim_beside_communication(beside, step.high);
            }
            taken.add(of_part, 1.0);
        }
        self.gpu += taken.claimed;
        taken
    }

    /// The part of what work saves `beside` communication that shortens steps at most: they do not become shorter than
    /// the communication. `alone` is what the same work saves without any beside it.
    fn claim_beside_communication(&mut self, beside: f64, alone: f64) -> f64 {
        if beside <= 0.0 {
            return 0.0;
        }
        self.computing += alone;
        let totals = &self.totals;
        let taken = beside
            .min(totals.comm_slack_ns - self.beside_comm)
            .min(totals.window_ns - totals.comm_ns - self.computing)
            .max(0.0);
        self.computing += taken;
        self.beside_comm += taken;
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

    /// Wall time: idle time per device, other time per device that works at the same time.
    fn step_ns(&self, kind: SavingKind, taken: Taken) -> Option<Range> {
        let devices = match kind {
            SavingKind::Idle => self.totals.device_count(),
            SavingKind::Gpu | SavingKind::Copy => self.totals.devices_at_once.max(1.0),
        };
        taken.step.map(|step| Range {
            low: step.low / devices,
            high: step.high / devices,
        })
    }
}

/// The sites of a match, with whether they are the backward calls of a chain.
fn sites_of(matched: &Match) -> impl Iterator<Item = (&AffectedSite, bool)> {
    let own = matched.affected.sites.iter().map(|site| (site, false));
    let backward = matched.affected.backward.iter();
    own.chain(backward.map(|site| (site, true)))
}

/// The matches of a draft that save something, with how much.
fn with_savings(draft: &FindingDraft) -> impl Iterator<Item = (&Match, Range)> {
    let known = draft.matches.iter().filter_map(|m| Some((m, m.saving?)));
    known.filter(|(_, saving)| saving.high > 0.0)
}

/// The work of a match that a finding replaces or removes.
#[derive(Debug, Clone, Copy, Default)]
struct Gone {
    share: f64,
    /// What better findings claimed of it.
    before_ns: f64,
}

/// What one member could claim, in ns.
#[derive(Debug, Clone, Copy)]
struct Taken {
    claimed: f64,
    /// The part during which nothing else ran.
    alone: f64,
    /// The part by which steps become shorter: kernel time only as far as the GPU limits them there, and
    /// as far as nothing else ran beside it, at most also beside communication. `None` where that is unknown.
    step: Option<Range>,
}

impl Default for Taken {
    fn default() -> Taken {
        Taken::of(0.0, Some(StepWeight::exactly(1.0)))
    }
}

impl Taken {
    fn of(ns: f64, weight: Option<StepWeight>) -> Taken {
        Taken {
            claimed: ns,
            alone: ns,
            step: weight.map(|weight| Range {
                low: ns * weight.low,
                high: ns * weight.high,
            }),
        }
    }

    /// Host and GPU both need less time, by `host_ns` and by what is claimed. Whichever of the two the step waits for
    /// when it comes to this work, it becomes shorter by the smaller of both at least.
    fn with_host(&mut self, host_ns: f64) {
        let least = host_ns.min(self.alone);
        if let Some(step) = &mut self.step {
            step.low = step.low.max(least);
            step.high = step.high.max(least);
        }
    }

    fn add(&mut self, other: Taken, part: f64) {
        self.claimed += other.claimed * part;
        self.alone += other.alone * part;
        let both = self.step.zip(other.step);
        self.step = both.map(|(sum, step)| Range {
            low: sum.low + step.low * part,
            high: sum.high + step.high * part,
        });
    }
}
