//! Sequences that implement one known operation: GELU, a gated activation, the
//! logarithm of a softmax, logits converted for a loss, products that share an input, experts run one
//! after the other.
//!
//! Each recognizer examines the calls from one position on and returns the number of calls that belong
//! to the sequence. It uses names, families and dimensions; if these leave the data flow uncertain, the
//! sequence is not recognized.

use super::model::{ChainLink, Kind, may_be_forward, moves, numel, same_size};
use super::rope;
use crate::correlate::Direction;
use crate::cost::{Dims, Family, GemmSize};

/// The result of a recognizer: the kind and the number of calls.
type Hit = Option<(Kind, usize)>;

/// The first recognizer that accepts the calls, in this order, decides.
pub(super) fn recognize(run: &[ChainLink<'_>]) -> Hit {
    logits_upcast(run)
        .or_else(|| log_of_softmax(run))
        .or_else(|| softmax(run))
        .or_else(|| rope::recognize(run))
        .or_else(|| gelu(run))
        .or_else(|| gated(run))
        .or_else(|| silu(run))
        .or_else(|| lora(run))
        .or_else(|| shared_input(run))
}

/// The calls of a sequence that the advice refers to; the others only identify the sequence.
pub(super) fn kept<'r, 'a>(kind: Kind, members: &'r [ChainLink<'a>]) -> Vec<&'r ChainLink<'a>> {
    match kind {
        // Only the second one is superfluous.
        Kind::DoubleLogSoftmax => members.last().into_iter().collect(),
        Kind::LogitsUpcast => members.first().into_iter().collect(),
        Kind::GatedActivation => members.first().into_iter().chain(members.last()).collect(),
        Kind::ExpertLoop => {
            // Each expert has the same matrices: a weight that recurs with them belongs to the loop.
            let recurs = |l: &&ChainLink<'_>| {
                let same = members.iter().filter(|m| same_weights(l.dims, m.dims));
                same.count() >= EXPERTS
            };
            members.iter().filter(recurs).collect()
        }
        // Without the product that they are added to, and without the casts between products.
        Kind::Lora => members.iter().skip(1).collect(),
        Kind::SharedInput => {
            let product = |l: &&ChainLink<'_>| l.family == Family::Gemm;
            members.iter().filter(product).collect()
        }
        // What its products would take in a fused kernel is not known where only names are.
        Kind::Attention if members.first().is_some_and(|l| l.by_name.is_some()) => {
            let product = |l: &&ChainLink<'_>| l.family == Family::Gemm;
            members.iter().filter(|l| !product(l)).collect()
        }
        _ => members.iter().collect(),
    }
}

/// A conversion directly before the log-softmax or loss of the same elements.
fn logits_upcast(run: &[ChainLink<'_>]) -> Hit {
    let (first, next) = (run.first()?, run.get(1)?);
    let loss = next.family == Family::Softmax && next.name.contains("log_softmax")
        || next.family == Family::Loss && next.name.contains("cross_entropy");
    let both_forward = may_be_forward(first) && may_be_forward(next);
    let fits = first.family == Family::Cast && loss && both_forward && same_size(first, next);
    fits.then_some((Kind::LogitsUpcast, 1))
}

/// Maximum number of calls between a loss and its backward pass.
const BEFORE_BACKWARD: usize = 64;

/// Whether the calls after two log-softmaxes are a loss and a backward pass that begins with that loss
/// and both log-softmaxes. Then the gradient of the first can only come from the second: no other
/// backward call has run that could have made it.
pub(super) fn backward_repeats(after: &[ChainLink<'_>]) -> bool {
    if after.first().is_none_or(|l| l.family != Family::Loss) {
        return false;
    }
    let makes_no_gradient = |l: &&ChainLink<'_>| {
        matches!(l.family, Family::Loss | Family::Fill) || l.direction == Direction::Fprop
    };
    let near = after.iter().take(BEFORE_BACKWARD);
    let mut rest = near.skip_while(makes_no_gradient);
    let mut backward = || {
        let is = |l: &ChainLink<'_>| {
            l.family == Family::Softmax
                && l.name.contains("log_softmax")
                && l.direction == Direction::Bprop
        };
        rest.next().is_some_and(is)
    };
    backward() && backward()
}

/// `softmax(x).log()`.
fn log_of_softmax(run: &[ChainLink<'_>]) -> Hit {
    let first = run.first()?;
    if first.family != Family::Softmax || first.name.contains("log") || !may_be_forward(first) {
        return None;
    }
    let next = 1 + run.iter().skip(1).take(3).position(|l| !moves(l))?;
    let log = run.get(next)?;
    let fits = log.name == "log" && may_be_forward(log) && same_size(first, log);
    fits.then_some((Kind::LogOfSoftmax, next + 1))
}

/// `e = exp(x - max(x)); e / sum(e)`. A difference is an addition of the negative, and so its kernel
/// may be called.
pub(super) fn softmax(run: &[ChainLink<'_>]) -> Hit {
    const SPELLING: [&[&str]; 5] = [
        &["max", "amax"],
        &["sub", "add"],
        &["exp"],
        &["sum"],
        &["div"],
    ];
    let first = run.first()?;
    if first.direction == Direction::Update {
        return None;
    }
    let body = run.get(..SPELLING.len())?;
    let mut named = body.iter().zip(SPELLING);
    let fits =
        named.all(|(link, names)| names.contains(&link.name) && link.direction == first.direction);
    let [_, difference, exp, _, quotient] = body else {
        return None;
    };
    let sized = same_size(difference, exp) && same_size(exp, quotient);
    (fits && sized).then_some((Kind::Softmax, SPELLING.len()))
}

/// `x * sigmoid(x)`, unless more pointwise work on the same elements follows.
fn silu(run: &[ChainLink<'_>]) -> Hit {
    let (first, next) = (run.first()?, run.get(1)?);
    let fits = first.name == "sigmoid"
        && next.name == "mul"
        && may_be_forward(first)
        && next.direction == first.direction
        && same_size(first, next);
    let longer = run
        .get(2)
        .is_some_and(|l| l.family == Family::Pointwise && same_size(first, l));
    (fits && !longer).then_some((Kind::Silu, 2))
}

/// Largest inner size of an adapter.
const RANK: u64 = 128;

/// A product, and the two thin ones of an adapter (LoRA) whose result is added to it; if the sum is converted, with that.
fn lora(run: &[ChainLink<'_>]) -> Hit {
    let first = run.first()?;
    let sizes = |l: &ChainLink<'_>| {
        let size = l.dims.gemm().filter(|size| size.batch == 1)?;
        Some((size.m, size.n, size.k))
    };
    let (m, n, k) = sizes(first)?;
    if !may_be_forward(first) {
        return None;
    }
    let mut at = 1;
    let mut next = |wanted: &dyn Fn(&ChainLink<'_>) -> bool, skipped: &[Family]| {
        let rest = run.get(at..)?.iter().take(4);
        let steps = rest
            .take_while(|l| skipped.contains(&l.family) && !wanted(l))
            .count();
        let link = run.get(at + steps).filter(|l| wanted(l))?;
        at += steps + 1;
        Some(link)
    };
    let between = [Family::Cast, Family::Dropout, Family::Copy];
    let down = next(
        &|l| sizes(l).is_some_and(|(rows, r, inner)| rows == m && inner == k && r <= RANK),
        &between,
    )?;
    let (_, rank, _) = sizes(down)?;
    if rank * 4 > n.min(k) {
        return None;
    }
    next(&|l| sizes(l) == Some((m, n, rank)), &between)?;
    // Scaled, then added to the result of the first product.
    let sum = next(
        &|l| l.name == "add" && numel(l.dims) == m.checked_mul(n),
        &[Family::Cast, Family::Copy, Family::Pointwise],
    )?;
    let back = run.get(at);
    let converted = back.is_some_and(|l| l.family == Family::Cast && same_size(sum, l));
    may_be_forward(sum).then_some((Kind::Lora, at + usize::from(converted)))
}

/// GELU from primitives: arithmetic around one `tanh` or `erf`, all over the same elements.
fn gelu(run: &[ChainLink<'_>]) -> Hit {
    const ARITHMETIC: [&str; 6] = ["pow", "mul", "add", "div", "tanh", "erf"];
    let first = run.first()?;
    if first.direction == Direction::Update || moves(first) {
        return None;
    }
    let body: Vec<&ChainLink<'_>> = run
        .iter()
        .take(12)
        .take_while(|l| {
            l.direction == first.direction
                && (ARITHMETIC.contains(&l.name) || l.family == Family::Cast)
                && same_size(first, l)
        })
        .collect();
    let curve = body.iter().position(|l| matches!(l.name, "tanh" | "erf"))?;
    // 1 + curve, times x, times one half; the halving may come first.
    let tail = body
        .iter()
        .skip(curve + 1)
        .take(3)
        .take_while(|l| matches!(l.name, "add" | "mul"))
        .count();
    let adds = body.get(curve + 1).is_some_and(|l| l.name == "add");
    let before = body.iter().take(curve).filter(|l| !moves(l)).count();
    // The normal CDF, `0.5 * (1 + erf(x / sqrt(2)))`, has one product less.
    (adds && tail >= 2 && before >= 1 && before + tail >= 4)
        .then_some((Kind::Gelu, curve + 1 + tail))
}

/// `silu(gate) * up`; the product that computes `up` may be between the two.
fn gated(run: &[ChainLink<'_>]) -> Hit {
    let first = run.first()?;
    if !matches!(first.name, "silu" | "gelu") || !may_be_forward(first) {
        return None;
    }
    let next = 1 + run
        .iter()
        .skip(1)
        .take(2)
        .position(|l| l.family != Family::Gemm)?;
    let mul = run.get(next)?;
    let fits = mul.name == "mul" && may_be_forward(mul) && same_size(first, mul);
    fits.then_some((Kind::GatedActivation, next + 1))
}

/// Consecutive products with the same number of rows and the same inner dimension. If the widths
/// differ, the second cannot read the result of the first. Three consecutive products of equal width
/// are too many to depend on each other without anything between them.
fn shared_input(run: &[ChainLink<'_>]) -> Hit {
    let first = run.first()?;
    let whole = |l: &ChainLink<'_>| l.dims.gemm().filter(|size| size.batch == 1);
    let GemmSize { m, n, k, .. } = whole(first)?;
    if !may_be_forward(first) || m <= 1 {
        return None;
    }
    let fits = |l: &&ChainLink<'_>| {
        may_be_forward(l) && whole(l).is_some_and(|size| size.m == m && size.k == k)
    };
    // Under autocast, each product is preceded by the conversion of its weight.
    let weight = |cast: &ChainLink<'_>, product: &ChainLink<'_>| {
        let sizes = numel(cast.dims).zip(product.dims.gemm());
        cast.family == Family::Cast
            && sizes.is_some_and(|(size, w)| w.n.checked_mul(w.k) == Some(size) || size == w.n)
    };
    let (mut products, mut length, mut at) = (0, 0, 0);
    while let Some(link) = run.get(at).filter(|_| products < 8) {
        if fits(&link) {
            products += 1;
            length = at + 1;
        } else {
            let next = run.iter().skip(at + 1).take(2);
            let mut following = next.filter(|l| l.family == Family::Gemm);
            if !following.any(|l| fits(&l) && weight(link, l)) {
                break;
            }
        }
        at += 1;
    }
    (products >= 3 || products == 2 && n != k).then_some((Kind::SharedInput, length))
}

/// Whether pointwise work updates parameters by Adam or a relative of it: squares of gradients are added
/// up (`addcmul`), and their root divides.
pub(super) fn updates(run: &[ChainLink<'_>]) -> bool {
    let at = |names: &[&str], from: usize| {
        let rest = run.iter().skip(from);
        let mut found = rest.enumerate().filter(|(_, l)| names.contains(&l.name));
        found.next().map(|(steps, _)| from + steps)
    };
    // The second name of each is that of PyTorch before 1.0.
    at(&["addcmul", "add_c_mul"], 0)
        .and_then(|squares| at(&["sqrt", "sqrt_float"], squares))
        .and_then(|root| at(&["div", "addcdiv", "add_c_div"], root))
        .is_some()
}

/// Whether two products have weights of the same shape, with any number of rows.
fn same_weights(a: Dims, b: Dims) -> bool {
    let both = a.gemm().zip(b.gemm());
    both.is_some_and(|(a, b)| (a.batch, b.batch) == (1, 1) && (a.n, a.k) == (b.n, b.k))
}

/// Maximum number of calls between products of the same kind for two experts.
const EXPERT: usize = 24;
/// Minimum number of products in a loop over experts.
const EXPERTS: usize = 8;
/// Maximum length of a loop, in calls.
const LOOP: usize = 4096;

/// Products with weights of one shape and varying numbers of rows, with indexing between them: a loop
/// that selects the tokens of each expert. Returns the number of calls in the loop.
pub(super) fn expert_loop(rest: &[ChainLink<'_>]) -> Option<usize> {
    let first = rest.first()?;
    let is_first = first.dims.gemm().is_some_and(|size| size.batch == 1);
    if !is_first || !may_be_forward(first) {
        return None;
    }
    let mut rows: Vec<u64> = Vec::new();
    let (mut count, mut length, mut indexed, mut since) = (0, 0, 0, 0);
    for (at, link) in rest.iter().enumerate().take(LOOP) {
        if since > EXPERT {
            break;
        }
        since += 1;
        if matches!(link.family, Family::Index | Family::Embedding) {
            indexed += 1;
        }
        if !same_weights(first.dims, link.dims) || !may_be_forward(link) {
            continue;
        }
        count += 1;
        if indexed + 1 < count || (count > EXPERTS && rows.len() < 2) {
            // Consecutive blocks of a network.
            return None;
        }
        length = at + 1;
        since = 0;
        if let Some(GemmSize { m, .. }) = link.dims.gemm()
            && !rows.contains(&m)
            && rows.len() < 4
        {
            rows.push(m);
        }
    }
    // The other products of the last expert.
    let known = rest.get(..length).unwrap_or_default();
    let more = rest.iter().skip(length).take(EXPERT).enumerate();
    let last = more.filter(|(_, l)| {
        let same = known.iter().filter(|k| same_weights(k.dims, l.dims));
        same.count() + 1 >= EXPERTS
    });
    length += last.map(|(at, _)| at + 1).max().unwrap_or(0);
    (count >= EXPERTS && rows.len() >= 3).then_some(length)
}
