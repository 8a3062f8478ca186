//! Rotary embeddings: pairs of numbers turned by an angle that depends on the position.
//!
//! Sums of two products are common. A rotation is recognized only if its calls show which numbers form a
//! pair: one half is negated and joined with the other, or the numbers are complex, or two sums of
//! products of halves are joined, twice in a row and followed by attention, as queries and keys are.

use std::ops::Range;

use super::model::{ChainLink, Kind, may_be_forward, moves, numel, same_size};
use crate::correlate::Direction;
use crate::cost::Family;

/// The first form that accepts the calls decides.
pub(super) fn recognize(run: &[ChainLink<'_>]) -> Option<(Kind, usize)> {
    let length = negated(run).or_else(|| complex(run))?;
    Some((Kind::Rope, length))
}

/// Maximum number of calls from the first operator of a rotation to its sum.
const ROTATION: usize = 12;

/// `x * cos + cat(-x2, x1) * sin`, the usual form in transformer code, in any order in which its parts
/// can be computed, with the conversions of `x` and of the result.
pub(super) fn negated(run: &[ChainLink<'_>]) -> Option<usize> {
    let first = run.first()?;
    if first.direction == Direction::Update {
        return None;
    }
    let lead = run
        .iter()
        .take(2)
        .take_while(|l| l.family == Family::Cast)
        .count();
    let (mut half, mut joined) = (None, None);
    let mut products: Vec<&ChainLink<'_>> = Vec::new();
    for (at, link) in run.iter().enumerate().take(lead + ROTATION) {
        if link.direction != first.direction {
            return None;
        }
        match link.name {
            "neg" if half.is_none() => half = Some(link),
            // A half is negated and joined before it is multiplied.
            _ if is_join(link) && joined.is_none() && half.is_some() && products.len() < 2 => {
                joined = Some(link);
            }
            "mul" if products.len() < 2 => products.push(link),
            "add" => {
                let fits = products.len() == 2
                    && is_half(half?, link)
                    && [joined?].iter().chain(&products).all(|l| fits(l, link));
                return (fits && leads(run.get(..lead)?, link))
                    .then(|| at + 1 + converts_back(run.get(at + 1), link));
            }
            _ if at < lead || at > 0 && moves(link) => {}
            _ => return None,
        }
    }
    None
}

fn is_join(link: &ChainLink<'_>) -> bool {
    matches!(link.name, "cat" | "stack" | "concat")
}

/// Whether two calls handle as many elements, as far as that is known. Without shapes, the grid gives a bound
/// only.
fn fits(link: &ChainLink<'_>, other: &ChainLink<'_>) -> bool {
    let sizes = numel(link.dims).zip(numel(other.dims));
    link.rounded || other.rounded || sizes.is_none_or(|(a, b)| a == b)
}

/// Whether a call handles half of the elements of another, as far as that is known.
fn is_half(part: &ChainLink<'_>, whole: &ChainLink<'_>) -> bool {
    let sizes = numel(part.dims).zip(numel(whole.dims));
    sizes.is_none_or(|(half, all)| match part.rounded || whole.rounded {
        true => half <= all,
        false => half * 2 == all,
    })
}

/// Whether the conversions before a rotation can be those of its input. Without sizes, only one is taken
/// for that.
fn leads(casts: &[ChainLink<'_>], sum: &ChainLink<'_>) -> bool {
    let same = |l: &ChainLink<'_>| same_size(l, sum);
    casts.iter().all(|l| fits(l, sum)) && (casts.len() < 2 || casts.iter().all(same))
}

/// The number of calls, 0 or 1, that convert the result.
fn converts_back(next: Option<&ChainLink<'_>>, sum: &ChainLink<'_>) -> usize {
    let back = |l: &ChainLink<'_>| {
        l.family == Family::Cast && l.direction == sum.direction && fits(l, sum)
    };
    usize::from(next.is_some_and(back))
}

/// Complex rotary embeddings, as in the reference code of Llama: queries and keys are converted to fp32,
/// multiplied by complex numbers (half as many elements), and converted back.
fn complex(run: &[ChainLink<'_>]) -> Option<usize> {
    let first = run.first()?;
    if first.family != Family::Cast || first.direction == Direction::Update {
        return None;
    }
    let same_way = |l: &ChainLink<'_>| l.direction == first.direction;
    let casts = |from: usize| {
        let rest = run.iter().skip(from).take(2);
        rest.take_while(|l| moves(l) && same_way(l)).count()
    };
    let before = casts(0);
    let turned = |l: &&ChainLink<'_>| {
        let halves = |cast: &ChainLink<'_>| {
            numel(cast.dims).is_some_and(|n| numel(l.dims).is_some_and(|half| half * 2 == n))
        };
        l.name == "mul" && l.complex && same_way(l) && run.iter().take(before).any(halves)
    };
    let products = run
        .iter()
        .skip(before)
        .take(before)
        .take_while(turned)
        .count();
    let after = casts(before + products);
    (products > 0 && after > 0).then_some(before + products + after)
}

/// Maximum number of calls between the rotations of queries and keys (the positions of the keys are
/// computed there), and between that of the keys and attention.
const BETWEEN: usize = 12;

/// The rotations of queries and keys as sums of products of their halves, with attention behind them.
///
/// The product of complex numbers has the same form: therefore both, and attention, must be there.
pub(super) fn queries_and_keys(rest: &[ChainLink<'_>]) -> Option<[Range<usize>; 2]> {
    let queries = halves(rest)?;
    let near = queries..queries + BETWEEN;
    let (from, keys) = near.into_iter().find_map(|from| {
        let length = halves(rest.get(from..)?)?;
        Some((from, length))
    })?;
    let end = from + keys;
    let attends = |l: &ChainLink<'_>| {
        let batched = l.dims.gemm().is_some_and(|size| size.batch > 1);
        l.family == Family::Attention
            || l.family == Family::Gemm && (batched || matches!(l.name, "bmm" | "baddbmm"))
    };
    let mut behind = rest.iter().skip(end).take(BETWEEN);
    behind.any(attends).then_some([0..queries, from..end])
}

/// `x1 * cos - x2 * sin` and `x1 * sin + x2 * cos`, joined by one operator or copied into the result one
/// by one, with the rows of the tables that are selected for it. Returns the number of calls.
fn halves(run: &[ChainLink<'_>]) -> Option<usize> {
    let first = run.first()?;
    if !may_be_forward(first) {
        return None;
    }
    let count = |from: usize, most: usize, family: Family| {
        let next = run.iter().skip(from).take(most);
        next.take_while(|l| l.family == family).count()
    };
    let selected = count(0, 2, Family::Index);
    let lead = count(selected, 2, Family::Cast);
    let mut at = selected + lead;
    let (mut products, mut sums) = (Vec::new(), Vec::new());
    while let Some(link) = run.get(at).filter(|_| sums.len() < 2) {
        match link.name {
            "mul" if products.len() < 4 => products.push(link),
            "add" | "sub" if products.len() >= 2 * (sums.len() + 1) => sums.push(link),
            _ => return None,
        }
        at += 1;
    }
    let ([a, b, c, d], [sum, other]) = (products.as_slice(), sums.as_slice()) else {
        return None;
    };
    // A kernel does not tell a difference from a sum; the operators do.
    let differ = sum.name != other.name || sum.by_name.is_some();
    let sized = numel(sum.dims).is_none_or(|n| n > 0) && same(sum, other);
    let equal = [b, c, d].iter().all(|l| same(a, l)) && fits(a, sum);
    let direction = run
        .get(..at)?
        .iter()
        .all(|l| l.direction == first.direction);
    if !(differ && sized && equal && direction) {
        return None;
    }
    let copies = run
        .get(at..at + 2)
        .filter(|two| two.iter().all(|l| moves(l)));
    let joined = match (run.get(at)?, copies) {
        (join, _) if is_join(join) && is_half(sum, join) => 1,
        (_, Some([one, two])) if same(one, two) && fits(one, sum) => 2,
        _ => return None,
    };
    let casts = run.get(selected..selected + lead)?;
    let converts = |l: &ChainLink<'_>| fits(l, sum) || is_half(sum, l);
    let join = run.get(at)?;
    casts
        .iter()
        .all(converts)
        .then(|| at + joined + converts_back(run.get(at + joined), join))
}

/// Whether two calls of one kind handle as many elements, as far as that is known.
fn same(link: &ChainLink<'_>, other: &ChainLink<'_>) -> bool {
    let sizes = numel(link.dims).zip(numel(other.dims));
    sizes.is_none_or(|(a, b)| a == b)
}

/// The calls whose traffic a fused rotation keeps: it reads each number once and writes it once. With
/// conversions before it, they are those; else `x * cos` or, of halves, the first product of each.
pub(super) fn kept<'r, 'a>(members: &'r [&'r ChainLink<'a>]) -> Vec<&'r ChainLink<'a>> {
    let cast = |l: &&&ChainLink<'a>| l.family == Family::Cast;
    let casts: Vec<&ChainLink<'a>> = members.iter().take_while(cast).copied().collect();
    if !casts.is_empty() {
        return casts;
    }
    let products = members.iter().copied().filter(|l| l.name == "mul");
    products
        .take(if of_halves(members) { 2 } else { 1 })
        .collect()
}

/// An upper bound of the time of a fused rotation, from that of its calls: a product reads and writes each
/// number once. A sum of halves reads two of them and writes one, and the rotation has two of each.
pub(super) fn fused_by_time_ns(members: &[&ChainLink<'_>]) -> f64 {
    let longest = |names: &[&str]| {
        let named = members.iter().filter(|l| names.contains(&l.name));
        named.map(|l| l.time_ns).max().unwrap_or(0) as f64
    };
    if of_halves(members) {
        longest(&["add", "sub"]) * 4.0 / 3.0
    } else {
        longest(&["mul"])
    }
}

fn of_halves(members: &[&ChainLink<'_>]) -> bool {
    let products = members.iter().filter(|l| l.name == "mul");
    products.count() == 4
}
