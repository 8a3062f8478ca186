//! Compares the ranks of a job: which one is late, how long the others wait, and whether it is more
//! than noise.
//!
//! Ranks meet in collectives. The rank that arrives last waits shortest, so the shortest duration
//! over ranks is the transfer, and what the others take longer is waiting. Only collectives are
//! compared that every rank has equally often in the same step.

use std::collections::{BTreeMap, BTreeSet};

use super::lists::some;
use crate::base::statistics::{mean_and_deviation, median};
use crate::base::text::capitalized;
use crate::base::units::{counted, ns, percent};
use crate::report::{
    CollectiveCall, CollectiveTimes, FirstCollective, Job, Rank, Report, RowKey, Waits, share,
};

/// Mean share of the window spent waiting from which it is worth reporting. The TensorBoard plugin of
/// the PyTorch profiler advises on communication from 10 % of the step:
/// <https://github.com/pytorch/kineto/tree/main/tb_plugin>.
const WORTH_IT: f64 = 0.10;
/// Share of all waiting that one rank must cause to be called the straggler. With two ranks each
/// causes half by chance.
const DOMINANT: f64 = 2.0 / 3.0;
/// How much longer a rank must compute than the mean of the others to be called slower: half of the
/// 20 % that the profiler `alloc` (PyPI, 0.0.16) requires of a straggler, because several measures
/// must agree here.
const SLOWER: f64 = 0.10;
/// How many more kernels than the others a rank must run to be said to have more work.
const MORE_WORK: f64 = 0.02;
/// Steps count as equal within this many standard errors of the mean.
const NOISE: f64 = 3.0;
/// Steps count as equal below this relative difference.
const SAME_STEP: f64 = 0.02;

/// Kinds of collectives with equal messages on all ranks, which end together: none has the result before the last
/// one has joined.
const ALL_RANKS_ALIKE: [&str; 3] = ["all_reduce", "all_gather", "reduce_scatter"];
/// Longest time from a launch to the start of its kernel on a GPU that has nothing else to do: about four times
/// what the CUDA driver usually needs.
const LAUNCH_NS: i64 = 20_000;

/// What to do about a host that launches late.
const LATE_HOST: &str = "Look for work that only this rank does (logging, checkpoints, evaluation), at its data \
                         loading, and at what shares its CPU.";

/// The transfers in matched collectives, by row of the table of collectives.
pub(super) type Transfers = BTreeMap<RowKey, Transfer>;

/// Time without waiting, summed over collectives and ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Transfer {
    pub(super) calls: u64,
    pub(super) ns: f64,
}

/// Fills in the waiting of each rank, and adds sentences about stragglers and imbalance.
///
/// Returns the transfers in the collectives that were matched.
pub(super) fn compare(ranks: &mut [Rank], comparable: bool, job: &mut Job) -> Transfers {
    if !comparable {
        if ranks.len() > 1 {
            job.comparison
                .push("The ranks are not compared, because they may not be of one job.".to_owned());
        }
        return Transfers::default();
    }
    job.comparison.extend(keep_common_steps(ranks));
    let steps = Steps::of(ranks);
    if let Some(steps) = &steps {
        job.fastest_step_ns = Some(steps.fastest.1);
        job.slowest_step_ns = Some(steps.slowest.1);
        job.comparison.push(steps.sentence());
    }
    let matched = Matched::of(ranks);
    for (at, rank) in ranks.iter_mut().enumerate() {
        if matched.waits.compared > 0 {
            rank.waited_ns = matched.waited.get(at).copied();
            rank.caused_wait_ns = matched.caused_wait.get(at).copied();
            rank.joined_last = matched.joined_last.get(at).copied();
            rank.launched_late = matched.launched_late.get(at).copied();
        }
    }
    if matched.waits.of > 0 {
        job.waits = Some(matched.waits);
        waiting(ranks, &matched, job);
    }
    // A rank that is not here may join later than all of these.
    let complete = job.world_size.unwrap_or(0) <= ranks.len() as u64;
    let transfers = match complete {
        true => matched.transfers,
        false => Transfers::default(),
    };
    if job.straggler.is_some() {
        return transfers;
    }
    if let Some(sentence) = computing(ranks).filter(|_| complete) {
        job.comparison.push(sentence);
    } else if steps.is_none() && matched.waits.of == 0 {
        job.comparison.push(
            "The ranks have neither numbered steps nor collectives in common, so their times are not compared: the \
             captures may hold different amounts of work."
                .to_owned(),
        );
    }
    transfers
}

/// Restricts the lengths of steps to those that all ranks have, and says so. Nothing changes where the
/// numbers of some rank's steps are not known, or where all ranks have the same.
fn keep_common_steps(ranks: &mut [Rank]) -> Option<String> {
    let known =
        |rank: &Rank| !rank.each_step.is_empty() && rank.each_step.len() as u64 == rank.steps;
    if !ranks.iter().all(known) {
        return None;
    }
    let numbers =
        |rank: &Rank| -> BTreeSet<u64> { rank.each_step.iter().map(|s| s.number).collect() };
    let common = ranks.iter().map(numbers).reduce(|a, b| &a & &b)?;
    if ranks.iter().all(|rank| numbers(rank) == common) {
        return None;
    }
    let (Some(from), Some(to)) = (common.first(), common.last()) else {
        return Some(
            "The ranks have no step in common: the lengths of their steps are those of different work. Profile the \
             same steps on every rank."
                .to_owned(),
        );
    };
    let sentence = format!(
        "Steps are compared where all ranks have them: {} from number {from} to {to}.",
        counted(common.len() as u64, "step"),
    );
    for rank in ranks {
        rank.each_step.retain(|step| common.contains(&step.number));
        let lengths: Vec<f64> = rank.each_step.iter().map(|step| step.ns as f64).collect();
        (rank.step_ns, rank.step_sd_ns) = mean_and_deviation(&lengths);
    }
    Some(sentence)
}

/// Transfer and waiting in the collectives of a report with several ranks: of a job, or of a capture with
/// several processes. `None` where none could be matched.
pub(super) fn waits(report: &Report) -> Option<Waits> {
    let known = report.job.as_ref().and_then(|job| job.waits);
    let several = || (report.ranks.len() > 1).then(|| Matched::of(&report.ranks).waits);
    let waits = known.or_else(several).filter(|waits| waits.compared > 0)?;
    // The wall time of a capture contains its first collective, whatever is waited for in it.
    let first = waits.first.unwrap_or_default();
    Some(Waits {
        transfer_ns: waits.transfer_ns + first.transfer_ns,
        mean_ns: waits.mean_ns + first.mean_ns,
        ..waits
    })
}

fn name(rank: &Rank) -> String {
    match rank.rank {
        Some(number) => format!("rank {number}"),
        None => rank.file.clone(),
    }
}

/// The mean steps of the fastest and the slowest rank.
struct Steps {
    fastest: (String, f64),
    slowest: (String, f64),
    /// Relative difference that noise explains; `None` with one step each.
    noise: Option<f64>,
}

impl Steps {
    fn of(ranks: &[Rank]) -> Option<Steps> {
        let means: Option<Vec<(&Rank, f64)>> =
            ranks.iter().map(|r| Some((r, r.step_ns?))).collect();
        let means = means?;
        let fastest = means.iter().reduce(|a, b| if b.1 < a.1 { b } else { a })?;
        let slowest = means.iter().reduce(|a, b| if b.1 > a.1 { b } else { a })?;
        Some(Steps {
            fastest: (name(fastest.0), fastest.1),
            slowest: (name(slowest.0), slowest.1),
            noise: noise(ranks),
        })
    }

    fn apart(&self) -> f64 {
        share(self.slowest.1 - self.fastest.1, self.fastest.1)
    }

    fn sentence(&self) -> String {
        let range = format!("{} to {}", ns(self.fastest.1), ns(self.slowest.1));
        let apart = self.apart();
        match self.noise {
            _ if apart <= SAME_STEP => {
                format!("Steps take equally long on all ranks: {range} on average.")
            }
            Some(noise) if apart <= noise => format!(
                "Steps take {range} on average, within the noise between the steps of one rank."
            ),
            Some(_) => format!(
                "Steps take {} on average on {} and {} on {}: {} longer, beyond the noise between the steps of one rank.",
                ns(self.fastest.1),
                self.fastest.0,
                ns(self.slowest.1),
                self.slowest.0,
                percent(apart)
            ),
            None => format!(
                "The one step of each rank takes {range}; one step cannot tell a slow rank from a slow step."
            ),
        }
    }
}

/// Relative difference of two ranks' mean steps that noise explains.
fn noise(ranks: &[Rank]) -> Option<f64> {
    let errors: Option<Vec<f64>> = ranks
        .iter()
        .map(|r| {
            let error = r.step_sd_ns? / (r.steps.max(1) as f64).sqrt();
            Some(share(error, r.step_ns?))
        })
        .collect();
    let worst = errors?.into_iter().reduce(f64::max)?;
    // The errors of both means add up.
    Some(NOISE * worst * std::f64::consts::SQRT_2)
}

/// Collectives matched over ranks; times in ns, one per rank.
#[derive(Debug, Default, PartialEq)]
struct Matched {
    waited: Vec<f64>,
    caused_wait: Vec<f64>,
    joined_last: Vec<u64>,
    launched_late: Vec<u64>,
    /// The ends of collectives in which all ranks end together, each on every rank.
    ends: Vec<Vec<i64>>,
    transfers: Transfers,
    waits: Waits,
    /// Collectives that could not be matched, by reason.
    of_smaller_groups: u64,
    uneven: u64,
    /// Whether there are several collectives, so that the first one can be left out.
    several: bool,
}

type Key<'a> = (Option<u64>, &'a str, Option<u64>);

impl Matched {
    fn of(ranks: &[Rank]) -> Matched {
        let mut series: BTreeMap<Key<'_>, Vec<(usize, &CollectiveTimes)>> = BTreeMap::new();
        for (at, rank) in ranks.iter().enumerate() {
            for times in &rank.collectives {
                let key = (times.step, times.kind.as_str(), times.group_size);
                series.entry(key).or_default().push((at, times));
            }
        }
        let most = |times: &Vec<(usize, &CollectiveTimes)>| {
            times.iter().map(|(_, t)| t.count).max().unwrap_or(0)
        };
        let mut matched = Matched {
            several: series.values().map(most).fold(0, u64::saturating_add) > 1,
            waited: vec![0.0; ranks.len()],
            caused_wait: vec![0.0; ranks.len()],
            joined_last: vec![0; ranks.len()],
            launched_late: vec![0; ranks.len()],
            ..Matched::default()
        };
        for (key, times) in series {
            matched.add(ranks, key, &times);
        }
        let waits = &mut matched.waits;
        waits.most_ns = matched.waited.iter().copied().fold(0.0, f64::max);
        waits.least_ns = matched
            .waited
            .iter()
            .copied()
            .reduce(f64::min)
            .unwrap_or(0.0);
        waits.mean_ns = share(matched.waited.iter().sum(), ranks.len() as f64);
        waits.ends_apart_ns = ends_apart(&matched.ends);
        matched
    }

    fn add(
        &mut self,
        ranks: &[Rank],
        (_, kind, group): Key<'_>,
        times: &[(usize, &CollectiveTimes)],
    ) {
        let most = times.iter().map(|(_, t)| t.count).max().unwrap_or(0);
        self.waits.of = self.waits.of.saturating_add(most);
        // Ranks of different groups do not wait for each other, and the profile does not say which
        // rank is in which group.
        let everyone = ranks.iter().filter_map(|r| r.world_size).max();
        let everyone = everyone.unwrap_or(0).max(ranks.len() as u64);
        if group.is_some_and(|size| size < everyone) {
            self.of_smaller_groups = self.of_smaller_groups.saturating_add(most);
            return;
        }
        let each_once = times.iter().map(|(at, _)| *at).eq(0..ranks.len());
        let alike = times.iter().all(|(_, t)| t.count == most);
        if !each_once || !alike {
            self.uneven = self.uneven.saturating_add(most);
            return;
        }
        let kept = times.iter().map(|(_, t)| t.calls.len()).min().unwrap_or(0);
        for nth in 0..kept {
            let calls: Vec<&CollectiveCall> =
                times.iter().filter_map(|(_, t)| t.calls.get(nth)).collect();
            if ALL_RANKS_ALIKE.contains(&kind) && !same_bytes(&calls) {
                self.uneven = self.uneven.saturating_add(1);
                continue;
            }
            // On ranks that began to record in the middle of a step, others are the first.
            let leads = nth == 0 && self.several && times.iter().all(|(_, t)| t.holds_first);
            self.transfer(times.first().map(|(_, t)| *t), &calls);
            if ALL_RANKS_ALIKE.contains(&kind) {
                let ends = calls.iter().map(|c| c.start_ns.saturating_add(c.ns));
                self.ends.push(ends.collect());
            }
            if leads {
                self.waits.first = first(&calls);
                continue;
            }
            self.meet(&calls);
        }
    }

    /// Adds the transfer of one collective, on all its ranks.
    fn transfer(&mut self, of: Option<&CollectiveTimes>, calls: &[&CollectiveCall]) {
        let fastest = calls.iter().map(|c| c.ns).min();
        if let (Some(times), Some(call), Some(ns)) = (of, calls.first(), fastest) {
            let transfer = self.transfers.entry(times.row_key(call)).or_default();
            transfer.calls += calls.len() as u64;
            transfer.ns += ns as f64 * calls.len() as f64;
        }
    }

    /// Adds one collective, with its call on each rank.
    fn meet(&mut self, calls: &[&CollectiveCall]) {
        let fastest = calls.iter().enumerate().min_by_key(|(_, call)| call.ns);
        let Some((last, &fastest)) = fastest else {
            return;
        };
        let mut all = 0.0;
        for (waited, call) in self.waited.iter_mut().zip(calls) {
            let wait = call.ns.saturating_sub(fastest.ns) as f64;
            *waited += wait;
            all += wait;
        }
        if let Some(caused_wait) = self.caused_wait.get_mut(last) {
            *caused_wait += all;
        }
        let late = fastest.queued_ns.is_some_and(|queued| queued <= LAUNCH_NS);
        for (counts, adds) in [
            (&mut self.joined_last, true),
            (&mut self.launched_late, late),
        ] {
            if let Some(count) = counts.get_mut(last) {
                *count += u64::from(adds);
            }
        }
        self.waits.compared += 1;
        self.waits.transfer_ns += fastest.ns as f64;
    }

    /// The rank that causes most waiting, if one stands out.
    fn straggler(&self) -> Option<usize> {
        let all: f64 = self.caused_wait.iter().sum();
        let most = self
            .caused_wait
            .iter()
            .enumerate()
            .max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)))?;
        (all > 0.0 && *most.1 >= DOMINANT * all).then_some(most.0)
    }
}

/// Whether the message is equally large on all ranks that know it.
fn same_bytes(calls: &[&CollectiveCall]) -> bool {
    let mut known = calls.iter().filter_map(|call| call.bytes);
    known
        .next()
        .is_none_or(|first| known.all(|bytes| bytes == first))
}

/// How far apart the ranks end the same collective: the median over collectives. The clocks of ranks differ by
/// a constant, which is the median distance of their ends.
fn ends_apart(ends: &[Vec<i64>]) -> Option<f64> {
    /// Fewer agree with any constants.
    const ENOUGH: usize = 3;
    let reference: Vec<i64> = ends.iter().filter_map(|of| of.first().copied()).collect();
    if reference.len() < ENOUGH {
        return None;
    }
    let ranks = ends.first()?.len();
    let offsets: Option<Vec<i64>> = (0..ranks)
        .map(|rank| {
            let apart = ends.iter().zip(&reference);
            let mut apart: Vec<i64> = apart
                .filter_map(|(of, start)| Some(of.get(rank)?.saturating_sub(*start)))
                .collect();
            median(&mut apart)
        })
        .collect();
    let offsets = offsets?;
    let spreads = ends.iter().filter_map(|of| {
        let aligned = of
            .iter()
            .zip(&offsets)
            .map(|(end, offset)| end.saturating_sub(*offset));
        let (least, most) =
            aligned.fold((i64::MAX, i64::MIN), |(a, b), end| (a.min(end), b.max(end)));
        most.checked_sub(least)
    });
    median(&mut spreads.collect::<Vec<i64>>()).map(|apart| apart as f64)
}

/// Transfer and waiting of the first collective of a capture, with its call on each rank.
fn first(calls: &[&CollectiveCall]) -> Option<FirstCollective> {
    let transfer = calls.iter().map(|call| call.ns).min()?;
    let waits = calls
        .iter()
        .map(|call| call.ns.saturating_sub(transfer) as f64);
    Some(FirstCollective {
        transfer_ns: transfer as f64,
        mean_ns: share(waits.sum(), calls.len() as f64),
    })
}

/// Sentences about waiting in collectives.
fn waiting(ranks: &[Rank], matched: &Matched, job: &mut Job) {
    let waits = &matched.waits;
    if waits.compared == 0 {
        job.comparison.push(unmatched(matched));
        return;
    }
    let mean_share = mean(ranks.iter().filter_map(|r| {
        let window = r.times?.window_ns as f64 / r.devices.max(1) as f64;
        Some(share(r.waited_ns?, window))
    }));
    job.comparison.push(format!(
        "{} of {} were matched across the ranks. In them, a rank waits {} to {} for the last one to join{}; the \
         transfers themselves take {}.",
        crate::base::units::count(waits.compared),
        counted(waits.of, "collective"),
        ns(waits.least_ns),
        ns(waits.most_ns),
        mean_share.map_or(String::new(), |s| format!(", {} of the window on average", percent(s))),
        ns(waits.transfer_ns)
    ));
    if let Some(apart) = waits.not_together_ns() {
        job.comparison.push(format!(
            "These collectives do not end together on all ranks ({} apart, with the clocks of the ranks aligned by \
             these ends): they may not be the same ones, and no rank is blamed. Profile the same steps on every rank.",
            ns(apart)
        ));
        return;
    }
    if let Some(first) = waits
        .first
        .filter(|first| first.mean_ns > WORTH_IT * waits.mean_ns)
    {
        job.comparison.push(format!(
            "The first collective of the capture is left out: its {} of waiting per rank are also due to what happened \
             before.",
            ns(first.mean_ns)
        ));
    }
    let absent = job.world_size.unwrap_or(0) > ranks.len() as u64;
    if absent {
        job.comparison.push(format!(
            "Only {} of the job's {} ranks are in this report: another rank may join later than all of these, and \
             waiting may be longer.",
            ranks.len(),
            job.world_size.unwrap_or(0)
        ));
    }
    if mean_share.is_none_or(|s| s < WORTH_IT) {
        return;
    }
    if ranks.iter().all(|rank| rank.steps == 1) {
        // The first collective of a capture also waits for ranks that were late before it began.
        job.comparison.push(
            "No rank is named as the late one: of the one step captured, the first collectives also wait for \
             what happened before it. Capture several steps."
                .to_owned(),
        );
        return;
    }
    match matched.straggler().and_then(|at| Some((at, ranks.get(at)?))) {
        Some((at, rank)) => {
            job.straggler = rank.rank;
            job.comparison.push(straggler(ranks, at, rank));
        }
        None => job.comparison.push(
            "No single rank is the straggler: the rank that joins last changes from one collective to the next. Look \
             for work that varies from batch to batch (sequence lengths, expert routing, embedding lookups) and for \
             hosts that pause at different times (data loading, garbage collection)."
                .to_owned(),
        ),
    }
}

fn unmatched(matched: &Matched) -> String {
    let all = counted(matched.waits.of, "collective");
    let why = if matched.of_smaller_groups >= matched.uneven {
        "they run in groups smaller than the job, and the profiles do not say which ranks form a group"
    } else {
        "the ranks do not have the same number of each kind in the same steps; profile the same steps on every rank"
    };
    format!("None of {all} could be matched across the ranks: {why}. Waiting is unknown.")
}

/// A sentence about the straggler and the likely reason.
fn straggler(ranks: &[Rank], at: usize, rank: &Rank) -> String {
    let others = || ranks.iter().enumerate().filter(move |(i, _)| *i != at);
    let caused_wait = rank.caused_wait_ns.unwrap_or(0.0);
    let all: f64 = ranks.iter().filter_map(|r| r.caused_wait_ns).sum();
    let lead = format!(
        "{} is the straggler: the other ranks wait {} in collectives that it joins last, {} of all waiting.",
        capitalized(&name(rank)),
        ns(caused_wait),
        percent(share(caused_wait, all))
    );
    let idle = |r: &Rank| per_unit(r, |t| t.window_ns.saturating_sub(t.busy_ns));
    let compute = |r: &Rank| per_unit(r, |t| t.compute_ns);
    let own = (compute(rank), idle(rank));
    let rest = (
        mean(others().filter_map(|(_, r)| compute(r))),
        mean(others().filter_map(|(_, r)| idle(r))),
    );
    let unit = if ranks.iter().all(|r| r.steps > 0) {
        " per step"
    } else {
        ""
    };
    let (Some(computes), Some(idles), Some(they_compute), Some(they_idle)) =
        (own.0, own.1, rest.0, rest.1)
    else {
        return lead;
    };
    if computes > they_compute * (1.0 + SLOWER) {
        let kernels = |r: &Rank| r.kernels as f64 / r.steps.max(1) as f64;
        let more = share(
            kernels(rank),
            mean(others().map(|(_, r)| kernels(r))).unwrap_or(0.0),
        ) - 1.0;
        let work = if more > MORE_WORK {
            format!(" and runs {} more kernels", percent(more))
        } else {
            " with as many kernels".to_owned()
        };
        return format!(
            "{lead} It computes {}{unit}{work}, the others {} on average. Give every rank the same number of tokens, \
             samples and parameters; if the work is equal, compare clocks, power limits and temperatures.",
            ns(computes),
            ns(they_compute)
        );
    }
    let (last, late) = (
        rank.joined_last.unwrap_or(0),
        rank.launched_late.unwrap_or(0),
    );
    let launches_late = last > 0 && share(late as f64, last as f64) >= DOMINANT;
    if idles > they_idle + SLOWER * they_compute {
        return format!(
            "{lead} It does not compute longer, but its GPU is idle {}{unit}, those of the others {} on average: its \
             host is late. {LATE_HOST}",
            ns(idles),
            ns(they_idle)
        );
    }
    if launches_late {
        return format!(
            "{lead} {} of the {} that it joins last start within {} of their launch: its GPU did not hold them up, \
             its host launched them late. {LATE_HOST}",
            crate::base::units::count(late),
            counted(last, "collective"),
            ns(LAUNCH_NS as f64)
        );
    }
    format!(
        "{lead} Neither its computing ({}{unit}, others {}) nor its idle time explains it: compare when the ranks \
         launch the collectives.",
        ns(computes),
        ns(they_compute)
    )
}

/// Time of a rank per GPU and step; of the window where a rank marks no steps.
fn per_unit(rank: &Rank, part: fn(&crate::report::RankTimes) -> i64) -> Option<f64> {
    let times = rank.times?;
    let units = rank.devices.max(1) as f64 * rank.steps.max(1) as f64;
    Some(part(&times) as f64 / units)
}

/// Compares computation where there are no collectives. Captures without steps may hold different
/// amounts of work.
fn computing(ranks: &[Rank]) -> Option<String> {
    if ranks.iter().any(|r| r.steps == 0) {
        return None;
    }
    let times: Option<Vec<(&Rank, f64)>> = ranks
        .iter()
        .map(|r| Some((r, per_unit(r, |t| t.compute_ns)?)))
        .collect();
    let times = times?;
    let mean = mean(times.iter().map(|(_, ns)| *ns))?;
    let above: Vec<String> = times
        .iter()
        .filter(|(_, ns)| share(*ns, mean) > 1.0 + f64::max(SLOWER, noise(ranks).unwrap_or(0.0)))
        .map(|(rank, ns_)| format!("{} ({})", name(rank), ns(*ns_)))
        .collect();
    (!above.is_empty()).then(|| {
        format!(
            "Computing takes {} per step on average over the ranks, longer on {}, for which the others wait: compare \
             their work and their clocks.",
            ns(mean),
            some(&above)
        )
    })
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), v| (sum + v, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}
