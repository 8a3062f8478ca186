//! Groups kernels into operator calls, and divides the cost of each call among its kernels.
//!
//! PyProf assigns the whole cost to every kernel, so that a product with a split-K reduction counts
//! twice, and a convolution during an algorithm search many times.

use std::sync::{Arc, OnceLock};

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::kernel_row::{KernelRow, Share};
use super::marker::Operator;
use super::record::{Dir, LaunchContext, Record};
use crate::correlate::{Direction, OpArgs, OpName};
use crate::cost::{Family, OpCost, Role, RoleCost, dtype_in_memory, ops};

/// Sets the share of every kernel in the cost of its call.
///
/// Records of traces have call numbers. In other records, consecutive kernels of one thread with the same
/// markers and source lines are one call, or several equal calls if the kernels repeat, as in a loop over
/// parameters. Backward kernels with the same sequence number are one call of an autograd node.
pub(super) fn share_costs(rows: &mut [KernelRow]) {
    let all = &*rows;
    let partners = OnceLock::new();
    let shares_of_run = |run: &Vec<usize>| -> Vec<Share> {
        let run: Vec<&KernelRow> = run.iter().filter_map(|at| all.get(*at)).collect();
        let calls = run.chunks(call_length(&run).max(1));
        calls
            .flat_map(|call| shares(call, cost(call, all, &partners).as_ref()))
            .collect()
    };
    let runs = runs(all);
    let shares: Vec<Vec<Share>> = runs.par_iter().map(shares_of_run).collect();
    for (at, share) in runs.iter().flatten().zip(shares.into_iter().flatten()) {
        if let Some(row) = rows.get_mut(*at) {
            row.share = share;
        }
    }
}

/// The rows of consecutive kernels that belong to one call or to several equal calls. Kernels of operators
/// without known arguments are in none.
fn runs(rows: &[KernelRow]) -> Vec<Vec<usize>> {
    let mut runs: Vec<Vec<usize>> = Vec::new();
    // By thread: the newest run and the one before it.
    let mut threads: FxHashMap<Option<u64>, [Option<usize>; 2]> = FxHashMap::default();
    for (at, row) in rows.iter().enumerate() {
        if row.choice.args().is_none() {
            continue;
        }
        let last = |run: usize| rows.get(*runs.get(run)?.last()?);
        let joins = |run: &usize| last(*run).is_some_and(|last| same_call(last, row));
        let latest = threads.entry(row.record.tid).or_default();
        let [newest, older] = *latest;
        // Kernels of two streams may start in another order than that of their launches.
        let overtaken = || {
            let newest = newest.and_then(last);
            newest.is_some_and(|newest| newest.record.stream != row.record.stream)
        };
        let run = newest
            .filter(joins)
            .or_else(|| older.filter(|older| overtaken() && joins(older)));
        let run = run.unwrap_or(runs.len());
        if newest != Some(run) {
            *latest = [Some(run), newest];
        }
        match runs.get_mut(run) {
            Some(run) => run.push(at),
            None => runs.push(vec![at]),
        }
    }
    runs
}

fn same_call(a: &KernelRow, b: &KernelRow) -> bool {
    if let Some((a, b)) = a.record.call.zip(b.record.call) {
        return a == b;
    }
    let (x, y) = (&a.choice, &b.choice);
    let dir = a.record.context.dir;
    if dir != b.record.context.dir || x.from_forward != y.from_forward {
        return false;
    }
    if dir == Dir::Bprop && x.from_forward {
        return a.record.seq == b.record.seq && x.op() == y.op();
    }
    let same_operator = match (&x.operator, &y.operator) {
        (Some(x), Some(y)) => Arc::ptr_eq(x, y),
        _ => false,
    };
    same_operator
        && (x.seq, x.op_id) == (y.seq, y.op_id)
        && alike(&a.record.context, &b.record.context)
}

/// Whether two contexts have the same markers, source lines and layers.
fn alike(a: &Arc<LaunchContext>, b: &Arc<LaunchContext>) -> bool {
    Arc::ptr_eq(a, b) || (a.markers == b.markers && a.trace == b.trace && a.layer == b.layer)
}

/// The number of kernels per call if the run repeats itself, otherwise the length of the run.
fn call_length(run: &[&KernelRow]) -> usize {
    let [first, _, ..] = run else {
        return run.len();
    };
    let node = first.record.context.dir == Dir::Bprop && first.choice.from_forward;
    let is_one_call = first.record.call.is_some() || node || first.choice.op_id.is_some();
    if is_one_call || !first.choice.op().is_some_and(launches_once) {
        return run.len();
    }
    let names_and_grids: Vec<(&str, [u32; 3])> = run
        .iter()
        .map(|row| (&*row.record.name.long, row.record.grid))
        .collect();
    period(&names_and_grids)
}

/// Families whose calls launch each of their kernels once. Calls of other families may repeat a kernel:
/// a convolution per group, a recurrent network per time step, a sort per digit.
const LAUNCHED_ONCE: [Family; 14] = [
    Family::Gemm,
    Family::Norm,
    Family::Softmax,
    Family::Loss,
    Family::Pointwise,
    Family::Dropout,
    Family::Reduce,
    Family::Copy,
    Family::Cast,
    Family::Fill,
    Family::Random,
    Family::Embedding,
    Family::Pool,
    Family::Interpolate,
];

/// Whether the calls of an operator launch each of their kernels once.
fn launches_once(op: &OpName) -> bool {
    let once = ops::family(op).is_some_and(|family| LAUNCHED_ONCE.contains(&family));
    once && !op.name.starts_with("_foreach")
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

/// The cost of a call; `None` if it is unknown.
fn cost(call: &[&KernelRow], rows: &[KernelRow], partners: &OnceLock<Partners>) -> Option<OpCost> {
    let first = call.first()?;
    let operator = first.choice.operator.as_ref()?;
    let (op, args) = (&operator.name, operator.args.as_ref()?);
    let is_backward = first.record.context.dir == Dir::Bprop;
    let direction = if is_backward {
        Direction::Bprop
    } else {
        Direction::Fprop
    };
    let from_forward = first.choice.from_forward;
    // For shapes without dtypes: that in the name of the kernel with the most time.
    let works = call.iter().filter(|row| !row.kernel.helper);
    let longest = works.max_by_key(|row| row.record.duration);
    let dtype = longest.and_then(|row| dtype_in_memory(&row.kernel));
    let partners = || {
        partners
            .get_or_init(|| Partners::of(rows))
            .of_record(&first.record)
    };
    let mut cost = ops::cost_of_call(op, args, direction, from_forward, dtype, partners).ok()?;
    let fills = call.iter().any(|row| row.kernel.family == Family::Fill);
    if fills && is_backward && cost.family == Family::Loss {
        ops::add_zero_fill(&mut cost, op, args, from_forward, dtype);
    }
    Some(cost)
}

/// Operators with recorded arguments, by device, sequence number and direction (`true` for backward):
/// one direction can have arguments that the other lacks.
#[derive(Debug, Default)]
struct Partners(FxHashMap<(u32, u64, bool), Vec<Arc<Operator>>>);

impl Partners {
    /// Maximum number of operators per sequence number.
    const MOST: usize = 16;

    fn of(rows: &[KernelRow]) -> Partners {
        let mut partners = Partners::default();
        for row in rows {
            let operator = row.choice.operator.as_ref();
            let own = operator.filter(|op| op.is_marker() && !row.choice.from_forward);
            let (Some(own), Some(seq)) = (own, row.record.seq.first()) else {
                continue;
            };
            let is_backward = row.record.context.dir == Dir::Bprop;
            let key = (row.record.device, *seq, is_backward);
            let known = partners.0.entry(key).or_default();
            if known.len() < Self::MOST && !known.iter().any(|op| Arc::ptr_eq(op, own)) {
                known.push(Arc::clone(own));
            }
        }
        partners
    }

    /// The operators of the other direction, with their arguments.
    fn of_record(&self, record: &Record) -> Vec<(&OpName, &OpArgs)> {
        let other = record.context.dir != Dir::Bprop;
        let key = record.seq.first().map(|seq| (record.device, *seq, other));
        let operators = key.and_then(|key| self.0.get(&key));
        operators
            .into_iter()
            .flatten()
            .filter_map(|op| Some((&op.name, op.args.as_ref()?)))
            .collect()
    }
}

/// Divides the cost of a call among its kernels: one share per member.
fn shares(call: &[&KernelRow], cost: Option<&OpCost>) -> Vec<Share> {
    let Some(cost) = cost else {
        return vec![Share::default(); call.len()];
    };
    let wants_math = cost.family.is_math();
    let is_main =
        |row: &KernelRow| !row.kernel.helper && (!wants_math || row.kernel.family.is_math());
    let mut mains: Vec<usize> = positions(call, is_main);
    if mains.is_empty() {
        mains = positions(call, |row| !row.kernel.helper);
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
    let others = positions(call, |row| !row.kernel.helper && !is_main(row));
    if wants_math && !others.is_empty() {
        give(call, &others, &bias, cost.bytes_known, &mut shares);
    }
    shares
}

fn positions(call: &[&KernelRow], wanted: impl Fn(&KernelRow) -> bool) -> Vec<usize> {
    (0..)
        .zip(call)
        .filter(|(_, row)| wanted(row))
        .map(|(at, _)| at)
        .collect()
}

/// Assigns kernels to parts of the work: by name if the names are distinctive; otherwise one part per
/// kernel if there are at least as many parts as kernels; otherwise all parts to all kernels.
fn assign(
    call: &[&KernelRow],
    mains: &[usize],
    roles: &[RoleCost],
) -> Vec<(Vec<usize>, Vec<RoleCost>)> {
    let named = |at: usize| call.get(at).and_then(|row| row.kernel.conv_role);
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
    call: &[&KernelRow],
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
        let ns = call.get(*at).map_or(0, |row| row.record.duration);
        u128::from(ns.max(1))
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
