//! Groups kernels into operator calls, and divides the cost of each call among its kernels.
//!
//! PyProf assigns the whole cost to every kernel, so that a product with a split-K reduction counts
//! twice, and a convolution during an algorithm search many times.

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::op_choice::{OpChoice, OpChoices};
use super::{ChoiceId, ContextId, Dir, OpId, Record, Records, ShapesId};
use crate::base::DType;
use crate::correlate::{Direction, OpArgs, OpName};
use crate::cost::{DecodedName, Family, OpCost, Role, RoleCost, UnknownCost, dtype_in_memory, ops};

/// All kernels with their operators and decoded names.
#[derive(Debug)]
pub(super) struct KernelTable<'r> {
    pub records: &'r Records,
    pub choices: OpChoices,
    /// The choice of each record.
    pub chosen: Vec<ChoiceId>,
    /// The decoded name of each name.
    pub decoded: Vec<DecodedName>,
    /// A number per name, equal for equal long names.
    pub long_names: Vec<u32>,
    /// A number per context, equal for equal markers, source lines and layers.
    pub alike: Vec<u32>,
}

/// A kernel with its operator and decoded name.
#[derive(Debug, Clone, Copy)]
struct KernelInfo<'w> {
    record: Record<'w>,
    choice: &'w OpChoice,
    decoded: &'w DecodedName,
}

impl<'w> KernelInfo<'w> {
    /// The range that names its operator, for comparisons.
    fn range(&self) -> Option<(u32, &'w [u64])> {
        let range = self.choice.range?;
        Some(range.of(self.record))
    }
}

impl KernelTable<'_> {
    fn get(&self, at: usize) -> Option<KernelInfo<'_>> {
        let record = self.records.get(at)?;
        Some(KernelInfo {
            record,
            choice: self.choices.get(*self.chosen.get(at)?)?,
            decoded: self.decoded.get(record.own.name.idx())?,
        })
    }

    /// A kernel's long name and grid.
    fn launch(&self, at: usize) -> Option<(u32, [u32; 3])> {
        let record = self.records.get(at)?;
        let name = self.long_names.get(record.own.name.idx())?;
        Some((*name, record.grid()))
    }
}

/// A kernel's share of its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Share {
    pub flops: Option<u64>,
    /// `None` if unknown, and for helper kernels, whose traffic is not part of the cost.
    pub bytes: Option<u64>,
}

/// The kernels of every call, in order.
#[derive(Debug)]
struct Calls {
    /// Indices of records, call by call.
    members: Vec<u32>,
    /// The end of each call in `members`.
    ends: Vec<usize>,
}

impl Calls {
    fn iter(&self) -> impl Iterator<Item = &[u32]> {
        let mut from = 0;
        self.ends.iter().map(move |&end| {
            let call = self.members.get(from..end).unwrap_or_default();
            from = end;
            call
        })
    }
}

/// The share of every kernel in the cost of its call, in the same order.
pub(super) fn shares(table: &KernelTable<'_>) -> Vec<Share> {
    let calls = group(table);
    let mut costs = CallCosts::new(table);
    let mut shares = vec![Share::default(); table.records.len()];
    let mut several = Vec::new();
    for call in calls.iter() {
        let cost = costs.of(call);
        match call {
            [only] => {
                if let Some(slot) = shares.get_mut(*only as usize) {
                    *slot = costs.alone(*only, cost);
                }
            }
            _ => several.push((call, cost)),
        }
    }
    let shared: Vec<Vec<Share>> = several
        .par_iter()
        .with_min_len(64)
        .map(|(call, cost)| {
            let members: Vec<KernelInfo<'_>> = call
                .iter()
                .filter_map(|&at| table.get(at as usize))
                .collect();
            share(&members, costs.get(*cost))
        })
        .collect();
    for ((call, _), own) in several.iter().zip(shared) {
        for (at, share) in call.iter().zip(own) {
            if let Some(slot) = shares.get_mut(*at as usize) {
                *slot = share;
            }
        }
    }
    shares
}

/// Groups the kernels into calls.
///
/// Records of traces have call numbers. In other records, consecutive kernels of one thread with the same
/// markers and source lines are one call, or several equal calls if the kernels repeat, as in a loop over
/// parameters. Backward kernels with the same sequence number are one call of an autograd node.
fn group(table: &KernelTable<'_>) -> Calls {
    let runs = runs(table);
    let mut ends: Vec<usize> = Vec::with_capacity(runs.ends.len());
    for run in runs.iter() {
        let length = match run {
            [_] => 1,
            _ => call_length(table, run).max(1),
        };
        let start = ends.last().copied().unwrap_or(0);
        let calls = (1..=run.len() / length).map(|call| start + call * length);
        ends.extend(calls);
    }
    Calls {
        members: runs.members,
        ends,
    }
}

/// Consecutive kernels that belong to one call or to several equal calls.
fn runs(table: &KernelTable<'_>) -> Calls {
    /// Stands for missing arguments.
    const NONE: u32 = u32::MAX;
    let mut run_of: Vec<u32> = Vec::with_capacity(table.records.len());
    // By run: its last kernel and its number of kernels.
    let mut lasts: Vec<(usize, usize)> = Vec::new();
    let mut threads: Vec<[Option<u32>; 2]> = vec![[None; 2]; table.records.tids.len()];
    for (at, record) in table.records.iter().enumerate() {
        let work = table.get(at).filter(|work| work.choice.args.is_some());
        let (Some(work), Some(latest)) = (work, threads.get_mut(record.own.tid.idx())) else {
            run_of.push(NONE);
            continue;
        };
        let last = |run: u32| table.get(lasts.get(run as usize)?.0);
        let joins = |run: Option<u32>| {
            run.filter(|r| last(*r).is_some_and(|l| same_call(table, &l, &work)))
        };
        let [newest, older] = *latest;
        // Kernels of two streams may start in another order than that of their launches.
        let overtaken = || {
            let stream = newest.and_then(last).map(|l| l.record.stream());
            stream.is_some_and(|stream| stream != record.stream())
        };
        let run = joins(newest).or_else(|| joins(older).filter(|_| overtaken()));
        let run = run.unwrap_or_else(|| {
            lasts.push((at, 0));
            u32::try_from(lasts.len() - 1).unwrap_or(NONE)
        });
        if newest != Some(run) {
            *latest = [Some(run), newest];
        }
        if let Some((last, count)) = lasts.get_mut(run as usize) {
            *last = at;
            *count += 1;
        }
        run_of.push(run);
    }
    in_runs(&run_of, lasts.iter().map(|(_, count)| *count))
}

/// Indices of records by run, in order within each run.
fn in_runs(run_of: &[u32], counts: impl Iterator<Item = usize>) -> Calls {
    let mut next: Vec<usize> = Vec::new();
    let mut end = 0;
    let ends: Vec<usize> = counts
        .map(|count| {
            next.push(end);
            end += count;
            end
        })
        .collect();
    let mut members = vec![0; end];
    for (row, run) in (0_u32..).zip(run_of) {
        if let Some(context) = next.get_mut(*run as usize)
            && let Some(slot) = members.get_mut(*context)
        {
            *slot = row;
            *context += 1;
        }
    }
    Calls { members, ends }
}

fn same_call(table: &KernelTable<'_>, a: &KernelInfo<'_>, b: &KernelInfo<'_>) -> bool {
    if let Some((a, b)) = a.record.call().zip(b.record.call()) {
        return a == b;
    }
    let (x, y) = (a.choice, b.choice);
    let (p, q) = (a.record.own.context, b.record.own.context);
    let dir = a.record.context().dir;
    if dir != b.record.context().dir || x.from_forward != y.from_forward {
        return false;
    }
    if dir == Dir::Bprop && x.from_forward {
        return a.record.seq() == b.record.seq() && x.op == y.op;
    }
    let alike = |context: ContextId| table.alike.get(context.idx());
    a.range() == b.range() && (p == q || alike(p) == alike(q))
}

/// The number of kernels per call if the run repeats itself, otherwise the length of the run.
fn call_length(table: &KernelTable<'_>, run: &[u32]) -> usize {
    let Some(first) = run.first().and_then(|&at| table.get(at as usize)) else {
        return run.len();
    };
    let choice = first.choice;
    let node = first.record.context().dir == Dir::Bprop && choice.from_forward;
    let numbered = choice.range.is_some_and(|range| range.numbered);
    if first.record.call().is_some() || node || numbered || !table.choices.launches_once(choice.op)
    {
        return run.len();
    }
    let launch = |&at: &u32| table.launch(at as usize);
    let launches: Vec<(u32, [u32; 3])> = run.iter().filter_map(launch).collect();
    period(&launches)
}

/// The length of the shortest prefix that, repeated, forms the whole list; at least 1. Linear, by the
/// failure function of Knuth, Morris and Pratt.
fn period<T: PartialEq>(list: &[T]) -> usize {
    let mut borders = vec![0_usize; list.len()];
    let mut border = 0;
    for at in 1..list.len() {
        while border > 0 && list.get(at) != list.get(border) {
            border = borders.get(border - 1).copied().unwrap_or(0);
        }
        if list.get(at) == list.get(border) {
            border += 1;
        }
        if let Some(slot) = borders.get_mut(at) {
            *slot = border;
        }
    }
    let shortest = list.len() - borders.last().copied().unwrap_or(0);
    if shortest > 0 && list.len().is_multiple_of(shortest) {
        shortest
    } else {
        list.len().max(1)
    }
}

/// Index in [`CallCosts`]; `None` if the cost is unknown.
type CostId = Option<u32>;

/// The key of a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct CostKey {
    op: OpId,
    args: ShapesId,
    backward: bool,
    own: bool,
    /// The dtype in the kernel name, for shapes without dtypes.
    proven: Option<DType>,
    /// Whether one of its kernels fills memory.
    fills: bool,
}

/// The costs of calls. Each is computed once.
struct CallCosts<'w> {
    table: &'w KernelTable<'w>,
    list: Vec<OpCost>,
    /// The index of a known cost; otherwise whether the operators of the other direction could make it
    /// known.
    known: FxHashMap<CostKey, Result<u32, bool>>,
    /// The share of a kernel that is the only one of its call, by cost and kernel name.
    alone: FxHashMap<(u32, u32), Share>,
    partners: Option<Partners>,
}

impl<'w> CallCosts<'w> {
    fn new(table: &'w KernelTable<'w>) -> CallCosts<'w> {
        CallCosts {
            table,
            list: Vec::new(),
            known: FxHashMap::default(),
            alone: FxHashMap::default(),
            partners: None,
        }
    }

    fn get(&self, cost: CostId) -> Option<&OpCost> {
        self.list.get(cost? as usize)
    }

    fn of(&mut self, call: &[u32]) -> CostId {
        let table = self.table;
        let first = table.get(*call.first()? as usize)?;
        let proven = match call {
            [_] => Some(first).filter(|w| !w.decoded.helper),
            // The kernel with the most time.
            _ => (call.iter().filter_map(|&at| table.get(at as usize)))
                .filter(|w| !w.decoded.helper)
                .max_by_key(|w| w.record.duration()),
        };
        let key = CostKey {
            op: first.choice.op,
            args: first.choice.args?,
            backward: first.record.context().dir == Dir::Bprop,
            own: !first.choice.from_forward,
            proven: proven.and_then(|w| dtype_in_memory(w.decoded)),
            fills: (call.iter().filter_map(|&at| table.get(at as usize)))
                .any(|w| w.decoded.family == Family::Fill),
        };
        let known = match self.known.get(&key) {
            Some(known) => *known,
            None => {
                let new = match cost(&table.choices, &key) {
                    Ok(cost) => Ok(self.add(cost)),
                    Err(problem) => Err(key.own && problem == UnknownCost::NoScalars),
                };
                self.known.insert(key, new);
                new
            }
        };
        match known {
            Ok(cost) => Some(cost),
            Err(true) => self.with_partners(&key, first.record),
            Err(false) => None,
        }
    }

    fn add(&mut self, cost: OpCost) -> u32 {
        self.list.push(cost);
        u32::try_from(self.list.len() - 1).unwrap_or(u32::MAX)
    }

    fn with_partners(&mut self, key: &CostKey, record: Record<'_>) -> CostId {
        let table = self.table;
        let partners = self.partners.get_or_insert_with(|| Partners::of(table));
        let named: Vec<(&OpName, &OpArgs)> = partners
            .of_record(record)
            .iter()
            .filter_map(|(op, args)| Some((table.choices.op(*op)?, table.choices.shapes(*args)?)))
            .collect();
        if named.is_empty() {
            return None;
        }
        let op = table.choices.op(key.op)?;
        let args = table.choices.shapes(key.args)?;
        let cost = ops::cost_with_partners(op, args, &named, key.proven).ok()?;
        Some(self.add(cost))
    }

    /// The share of a kernel that is the only one of its call. It depends only on the cost and the
    /// kernel's name.
    fn alone(&mut self, at: u32, cost: CostId) -> Share {
        let (Some(number), Some(work)) = (cost, self.table.get(at as usize)) else {
            return Share::default();
        };
        let key = (number, work.record.own.name.row());
        if let Some(known) = self.alone.get(&key) {
            return *known;
        }
        let new = share(&[work], self.get(cost)).first().copied();
        let new = new.unwrap_or_default();
        self.alone.insert(key, new);
        new
    }
}

fn cost(choices: &OpChoices, key: &CostKey) -> Result<OpCost, UnknownCost> {
    let op = choices.op(key.op).ok_or(UnknownCost::UnknownOp)?;
    let args = choices.shapes(key.args).ok_or(UnknownCost::NoShapes)?;
    let direction = match key.backward {
        true => Direction::Bprop,
        false => Direction::Fprop,
    };
    let mut cost = ops::cost(op, args, direction, !key.own, key.proven)?;
    if key.fills && key.backward && cost.family == Family::Loss {
        ops::add_zero_fill(&mut cost, op, args, !key.own, key.proven);
    }
    Ok(cost)
}

/// Operators with recorded arguments, by device, sequence number and direction (`true` for backward):
/// one direction can have arguments that the other lacks.
#[derive(Debug, Default)]
struct Partners(FxHashMap<(u32, u64, bool), Vec<(OpId, ShapesId)>>);

impl Partners {
    /// Maximum number of operators per sequence number.
    const MOST: usize = 16;

    fn of(table: &KernelTable<'_>) -> Partners {
        let mut partners = Partners::default();
        for (record, chosen) in table.records.iter().zip(&table.chosen) {
            let own = table.choices.get(*chosen);
            let Some(own) = own.filter(|c| c.marker.is_some() && !c.from_forward) else {
                continue;
            };
            let (Some(args), Some(seq)) = (own.args, record.seq().first()) else {
                continue;
            };
            let key = (record.device(), *seq, record.context().dir == Dir::Bprop);
            let known = partners.0.entry(key).or_default();
            let operator = (own.op, args);
            if known.len() < Self::MOST && !known.contains(&operator) {
                known.push(operator);
            }
        }
        partners
    }

    /// The operators of the other direction.
    fn of_record(&self, record: Record<'_>) -> &[(OpId, ShapesId)] {
        let other = record.context().dir != Dir::Bprop;
        let key = (record.seq().first()).map(|seq| (record.device(), *seq, other));
        key.and_then(|key| self.0.get(&key))
            .map_or(&[], Vec::as_slice)
    }
}

/// Divides the cost of a call among its kernels: one share per member.
fn share(call: &[KernelInfo<'_>], cost: Option<&OpCost>) -> Vec<Share> {
    let Some(cost) = cost else {
        return vec![Share::default(); call.len()];
    };
    let wants_math = cost.family.is_math();
    let is_main =
        |w: &KernelInfo<'_>| !w.decoded.helper && (!wants_math || w.decoded.family.is_math());
    let mut mains: Vec<usize> = positions(call, is_main);
    if mains.is_empty() {
        mains = positions(call, |w| !w.decoded.helper);
    }
    if mains.is_empty() {
        mains = (0..call.len()).collect();
    }
    let nothing = Share {
        flops: Some(0),
        bytes: None,
    };
    let mut shares = vec![nothing; call.len()];
    let (bias, products): (Vec<RoleCost>, Vec<RoleCost>) = cost
        .roles
        .iter()
        .partition(|role| role.role == Role::BiasGrad && cost.roles.len() > 1);
    for (members, roles) in assign(call, &mains, &products) {
        give(call, &members, &roles, cost.bytes_known, &mut shares);
    }
    // The bias gradient is a separate sum; without a kernel for it, another call computed it.
    let others = positions(call, |w| !w.decoded.helper && !is_main(w));
    if wants_math && !others.is_empty() {
        give(call, &others, &bias, cost.bytes_known, &mut shares);
    }
    shares
}

fn positions(call: &[KernelInfo<'_>], wanted: impl Fn(&KernelInfo<'_>) -> bool) -> Vec<usize> {
    (0..)
        .zip(call)
        .filter(|(_, work)| wanted(work))
        .map(|(at, _)| at)
        .collect()
}

/// Assigns kernels to parts of the work: by name if the names are distinctive; otherwise one part per
/// kernel if there are at least as many parts as kernels; otherwise all parts to all kernels.
fn assign(
    call: &[KernelInfo<'_>],
    mains: &[usize],
    roles: &[RoleCost],
) -> Vec<(Vec<usize>, Vec<RoleCost>)> {
    let named = |at: usize| call.get(at).and_then(|w| w.decoded.conv_role);
    let of = |role: Role| roles.iter().find(|r| r.role == role);
    let all_named = mains.iter().all(|&at| named(at).and_then(of).is_some());
    if roles.len() > 1 && all_named {
        return roles
            .iter()
            .map(|role| {
                let members = mains.iter().copied();
                let own = members.filter(|&at| named(at) == Some(role.role)).collect();
                (own, vec![*role])
            })
            .collect();
    }
    if roles.len() > 1 && mains.len() <= roles.len() {
        // A single gradient is that of the weight: inputs often need none.
        let skip = if mains.len() == 1 { roles.len() - 1 } else { 0 };
        return mains
            .iter()
            .zip(roles.iter().skip(skip))
            .map(|(&at, role)| (vec![at], vec![*role]))
            .collect();
    }
    vec![(mains.to_vec(), roles.to_vec())]
}

/// Divides parts of the work in proportion to time; the shares add up to the whole.
fn give(
    call: &[KernelInfo<'_>],
    members: &[usize],
    roles: &[RoleCost],
    bytes_known: bool,
    shares: &mut [Share],
) {
    if roles.is_empty() {
        return;
    }
    let sum = |of: fn(&RoleCost) -> u64| roles.iter().fold(0_u64, |s, r| s.saturating_add(of(r)));
    let (flops, bytes) = (sum(|r| r.flops), sum(|r| r.bytes));
    let time = |at: &usize| {
        let ns = call.get(*at).map_or(0, |w| w.record.duration());
        u128::from(ns.max(1).unsigned_abs())
    };
    let all: u128 = members.iter().map(time).sum();
    let mut before = 0_u128;
    for at in members {
        let after = before + time(at);
        let part = |whole: u64| {
            let up_to = |time: u128| u128::from(whole).saturating_mul(time) / all.max(1);
            u64::try_from(up_to(after) - up_to(before)).unwrap_or(u64::MAX)
        };
        if let Some(share) = shares.get_mut(*at) {
            *share = Share {
                flops: Some(part(flops)),
                bytes: bytes_known.then(|| part(bytes)),
            };
        }
        before = after;
    }
}

#[cfg(test)]
mod tests {
    use super::period;

    #[test]
    fn period_is_the_shortest_repeated_prefix() {
        for (list, want) in [
            ("a", 1),
            ("aaa", 1),
            ("abab", 2),
            ("abcabc", 3),
            ("aba", 3),
            ("ababa", 5),
            ("", 1),
        ] {
            assert_eq!(period(list.as_bytes()), want, "{list}");
        }
    }
}
