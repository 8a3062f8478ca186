//! Which kernels are one operator call, and what share of its cost each gets.
//!
//! A cost belongs to the call. PyProf gives it to every kernel, so that a product with a split-K
//! reduction counts twice and a convolution whose algorithms were tried out many times over.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::choice::Choice;
use super::rows::Operator;
use super::{Dir, Record, Text};
use crate::correlate::{OpArgs, OpName};
use crate::cost::{Decoded, Family, OpCost, Role, RoleCost, Unknown, ops, stored};

/// A kernel with what has been found out about it.
#[derive(Debug, Clone)]
pub(super) struct Work<'r> {
    pub record: &'r Record,
    pub choice: Choice,
    pub decoded: Arc<Decoded>,
}

/// A kernel's share of its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Share {
    pub flops: Option<u64>,
    /// `None` where they are not known: also for the helpers of a call, whose traffic comes on top.
    pub bytes: Option<u64>,
}

/// Groups the kernels into calls: indices into `works`, each list in order.
///
/// Records do not number calls. Kernels of one thread that follow each other with the same markers
/// and source lines are one call, or several equal ones where the same kernels repeat, as in a loop
/// over parameters. Backward kernels of one sequence number are one call of an autograd node.
pub(super) fn group(works: &[Work<'_>]) -> Vec<Vec<usize>> {
    let mut runs: Vec<Vec<usize>> = Vec::new();
    let mut threads: FxHashMap<Option<u64>, [Option<usize>; 2]> = FxHashMap::default();
    for (at, work) in works.iter().enumerate() {
        if work.choice.args.is_none() {
            continue;
        }
        let latest = threads.entry(work.record.tid).or_default();
        let joins = |run: &Option<usize>| {
            let members = run.and_then(|run| runs.get(run))?;
            let last = works.get(*members.last()?)?;
            same_call(last, work).then_some((*run)?)
        };
        // Kernels of two streams may start in another order than they were launched in.
        let overtaken = latest[0]
            .and_then(|run| runs.get(run)?.last())
            .and_then(|&last| works.get(last))
            .is_some_and(|last| last.record.stream != work.record.stream);
        let run = joins(&latest[0]).or_else(|| joins(&latest[1]).filter(|_| overtaken));
        let run = run.unwrap_or_else(|| {
            runs.push(Vec::new());
            runs.len() - 1
        });
        if latest[0] != Some(run) {
            *latest = [Some(run), latest[0]];
        }
        if let Some(members) = runs.get_mut(run) {
            members.push(at);
        }
    }
    runs.into_iter().flat_map(|run| split(works, run)).collect()
}

fn same_call(a: &Work<'_>, b: &Work<'_>) -> bool {
    let (x, y) = (&a.choice, &b.choice);
    let (p, q) = (&a.record.place, &b.record.place);
    if p.dir != q.dir || x.from_forward != y.from_forward {
        return false;
    }
    if p.dir == Dir::Bprop && x.from_forward {
        return a.record.seq == b.record.seq && x.op == y.op;
    }
    x.text == y.text
        && (Arc::ptr_eq(p, q)
            || (p.markers == q.markers && p.trace == q.trace && p.layer == q.layer))
}

/// Families of which one call launches each of its kernels once. Others may repeat a kernel within
/// a call: a convolution per group, a recurrent network per time step, a sort per digit.
const REPEATING: [Family; 14] = [
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

/// Splits a run of kernels that repeats itself into equal calls.
fn split(works: &[Work<'_>], run: Vec<usize>) -> Vec<Vec<usize>> {
    let members: Vec<&Work<'_>> = run.iter().filter_map(|&at| works.get(at)).collect();
    let Some(first) = members.first() else {
        return Vec::new();
    };
    let node = first.record.place.dir == Dir::Bprop && first.choice.from_forward;
    let numbered = first
        .choice
        .text
        .as_deref()
        .is_some_and(|text| text.contains(", op_id = "));
    let family = ops::family(&first.choice.op);
    let repeats = family.is_some_and(|f| REPEATING.contains(&f));
    let fused = first.choice.op.name.starts_with("_foreach");
    if node || numbered || !repeats || fused {
        return vec![run];
    }
    let launches: Vec<(&Text, [u32; 3])> = members
        .iter()
        .map(|w| (&w.record.long_name, w.record.grid))
        .collect();
    run.chunks(period(&launches))
        .map(<[usize]>::to_vec)
        .collect()
}

/// The length of the shortest beginning that, repeated, makes up the whole list; at least 1. The
/// failure function of Knuth, Morris and Pratt: linear.
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

/// The cost of a call, shared over its kernels: one share per member.
pub(super) fn share(call: &[&Work<'_>], partners: &[Operator]) -> Vec<Share> {
    let Some(cost) = price(call, partners) else {
        return vec![Share::default(); call.len()];
    };
    let wants_math = cost.family.is_math();
    let is_main = |w: &&Work<'_>| !w.decoded.helper && (!wants_math || w.decoded.family.is_math());
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
    // The bias gradient is a sum of its own; without a kernel that could be it, another call did it.
    let others = positions(call, |w| !w.decoded.helper && !is_main(w));
    if wants_math && !others.is_empty() {
        give(call, &others, &bias, cost.bytes_known, &mut shares);
    }
    shares
}

fn positions<'w>(call: &[&'w Work<'w>], wanted: impl Fn(&&'w Work<'w>) -> bool) -> Vec<usize> {
    (0..)
        .zip(call)
        .filter(|(_, work)| wanted(work))
        .map(|(at, _)| at)
        .collect()
}

fn price(call: &[&Work<'_>], partners: &[Operator]) -> Option<OpCost> {
    let first = call.first()?;
    let args = first.choice.args.as_deref()?;
    let direction = match first.record.place.dir {
        Dir::Bprop => crate::correlate::Direction::Bprop,
        _ => crate::correlate::Direction::Fprop,
    };
    // The type that the kernel with most time proves, for shapes without types.
    let proven = call
        .iter()
        .filter(|w| !w.decoded.helper)
        .max_by_key(|w| w.record.duration)
        .and_then(|w| stored(&w.decoded));
    let op: &OpName = &first.choice.op;
    let own = !first.choice.from_forward;
    match ops::cost(op, args, direction, !own, proven) {
        Err(Unknown::NoScalars) if own && !partners.is_empty() => {
            let partners: Vec<(&OpName, &OpArgs)> =
                partners.iter().map(|(op, args)| (&**op, &**args)).collect();
            ops::cost_with_partners(op, args, &partners, proven).ok()
        }
        cost => cost.ok(),
    }
}

/// Which kernels did which piece of work: by name where names tell, one piece per kernel where there
/// are at least as many pieces, else all of it by all of them.
fn assign(
    call: &[&Work<'_>],
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
        // Of a single gradient it is the weight's: inputs need none as often as not.
        let skip = if mains.len() == 1 { roles.len() - 1 } else { 0 };
        return mains
            .iter()
            .zip(roles.iter().skip(skip))
            .map(|(&at, role)| (vec![at], vec![*role]))
            .collect();
    }
    vec![(mains.to_vec(), roles.to_vec())]
}

/// Shares pieces of work by time; the parts add up to the whole.
fn give(
    call: &[&Work<'_>],
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
        let ns = call.get(*at).map_or(0, |w| w.record.duration);
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
    fn repetitions_are_found() {
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
