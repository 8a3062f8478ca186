//! Sequences that spell one known operation: rotary embeddings, GELU, a gated activation, the
//! logarithm of a softmax, logits converted for a loss, products that share an input, experts run
//! one after the other.
//!
//! Each recognizer looks at the calls from one position on and answers how many of them it takes.
//! Names, families and dimensions decide; where they do not prove the data flow, the sequence is not
//! recognized.

use super::{Kind, Link};
use crate::correlate::Direction;
use crate::cost::{Dims, Family};

/// What a recognizer finds: the kind, and how many calls it takes.
type Hit = Option<(Kind, usize)>;

/// In this order; the first that recognizes the calls decides.
pub(super) fn recognize(run: &[Link<'_>]) -> Hit {
    logits_upcast(run)
        .or_else(|| log_of_softmax(run))
        .or_else(|| rope(run))
        .or_else(|| gelu(run))
        .or_else(|| gated(run))
        .or_else(|| shared_input(run))
}

/// The calls of a sequence that the advice is about; the others only prove what it is.
pub(super) fn kept<'r, 'a>(kind: Kind, members: &'r [Link<'a>]) -> Vec<&'r Link<'a>> {
    match kind {
        // Only the second one is superfluous.
        Kind::DoubleLogSoftmax => members.last().into_iter().collect(),
        Kind::LogitsUpcast => members.first().into_iter().collect(),
        Kind::GatedActivation => members.first().into_iter().chain(members.last()).collect(),
        Kind::ExpertLoop => {
            let first = members.first().map(|l| l.dims);
            let same = |l: &&Link<'_>| first.is_some_and(|f| same_weights(f, l.dims));
            members.iter().filter(same).collect()
        }
        _ => members.iter().collect(),
    }
}

fn numel(dims: Dims) -> Option<u64> {
    match dims {
        Dims::Elements { numel } => Some(numel),
        Dims::Rows { rows, cols } => rows.checked_mul(cols),
        _ => None,
    }
}

fn same_size(a: &Link<'_>, b: &Link<'_>) -> bool {
    numel(a.dims).is_some_and(|n| numel(b.dims) == Some(n))
}

fn moves(link: &Link<'_>) -> bool {
    matches!(link.family, Family::Cast | Family::Copy)
}

/// A conversion right before the log-softmax or loss of the same elements.
fn logits_upcast(run: &[Link<'_>]) -> Hit {
    let (first, next) = (run.first()?, run.get(1)?);
    let loss = next.family == Family::Softmax && next.name.contains("log_softmax")
        || next.family == Family::Loss && next.name.contains("cross_entropy");
    let both_forward = first.direction == Direction::Fprop && next.direction == Direction::Fprop;
    let fits = first.family == Family::Cast && loss && both_forward && same_size(first, next);
    fits.then_some((Kind::LogitsUpcast, 1))
}

/// `softmax(x).log()`.
fn log_of_softmax(run: &[Link<'_>]) -> Hit {
    let first = run.first()?;
    if first.family != Family::Softmax
        || first.name.contains("log")
        || first.direction != Direction::Fprop
    {
        return None;
    }
    let next = 1 + run.iter().skip(1).take(3).position(|l| !moves(l))?;
    let log = run.get(next)?;
    let fits = log.name == "log" && log.direction == Direction::Fprop && same_size(first, log);
    fits.then_some((Kind::LogOfSoftmax, next + 1))
}

/// `x * cos + cat(-x2, x1) * sin`, as most transformer code spells rotary embeddings.
fn rope(run: &[Link<'_>]) -> Hit {
    const SPELLING: [&str; 5] = ["mul", "neg", "cat", "mul", "add"];
    let first = run.first()?;
    let mut wanted = SPELLING.iter().peekable();
    for (at, link) in run.iter().enumerate().take(10) {
        if link.direction != first.direction || link.direction == Direction::Update {
            return None;
        }
        match wanted.peek() {
            Some(name) if link.name == **name => {
                wanted.next();
                if wanted.peek().is_none() {
                    return Some((Kind::Rope, at + 1));
                }
            }
            Some(_) if at > 0 && moves(link) => {}
            _ => return None,
        }
    }
    None
}

/// GELU in primitives: arithmetic around one `tanh` or `erf`, all over the same elements.
fn gelu(run: &[Link<'_>]) -> Hit {
    const ARITHMETIC: [&str; 6] = ["pow", "mul", "add", "div", "tanh", "erf"];
    let first = run.first()?;
    if first.direction == Direction::Update || moves(first) {
        return None;
    }
    let body: Vec<&Link<'_>> = run
        .iter()
        .take(12)
        .take_while(|l| {
            l.direction == first.direction
                && (ARITHMETIC.contains(&l.name) || l.family == Family::Cast)
                && same_size(first, l)
        })
        .collect();
    let curve = body.iter().position(|l| matches!(l.name, "tanh" | "erf"))?;
    // 1 + curve, times x, times one half: of these the halving may come first.
    let tail = body
        .iter()
        .skip(curve + 1)
        .take(3)
        .take_while(|l| matches!(l.name, "add" | "mul"))
        .count();
    let adds = body.get(curve + 1).is_some_and(|l| l.name == "add");
    let before = body.iter().take(curve).filter(|l| !moves(l)).count();
    (adds && tail >= 2 && before >= 1 && curve + 1 + tail >= 4)
        .then_some((Kind::Gelu, curve + 1 + tail))
}

/// `silu(gate) * up`, with the product that makes `up` allowed between the two.
fn gated(run: &[Link<'_>]) -> Hit {
    let first = run.first()?;
    if !matches!(first.name, "silu" | "gelu") || first.direction != Direction::Fprop {
        return None;
    }
    let next = 1 + run
        .iter()
        .skip(1)
        .take(2)
        .position(|l| l.family != Family::Gemm)?;
    let mul = run.get(next)?;
    let fits = mul.name == "mul" && mul.direction == Direction::Fprop && same_size(first, mul);
    fits.then_some((Kind::GatedActivation, next + 1))
}

/// Products in a row with the same number of rows and the same inner dimension. The second can not
/// have the first one's result for input where that is of another width; three in a row of equal
/// width without anything between them would be one product too many.
fn shared_input(run: &[Link<'_>]) -> Hit {
    let first = run.first()?;
    let Dims::Gemm {
        batch: 1, m, n, k, ..
    } = first.dims
    else {
        return None;
    };
    if first.direction != Direction::Fprop || m <= 1 {
        return None;
    }
    let fits = |l: &&Link<'_>| {
        l.direction == Direction::Fprop
            && matches!(l.dims, Dims::Gemm { batch: 1, m: rows, k: inner, .. } if rows == m && inner == k)
    };
    let length = run.iter().take(8).take_while(fits).count();
    (length >= 3 || length == 2 && n != k).then_some((Kind::SharedInput, length))
}

/// Products with the same weights' shape, whatever their number of rows.
fn same_weights(a: Dims, b: Dims) -> bool {
    match (a, b) {
        (
            Dims::Gemm { batch, n, k, .. },
            Dims::Gemm {
                batch: other,
                n: width,
                k: inner,
                ..
            },
        ) => batch == 1 && other == 1 && n == width && k == inner,
        _ => false,
    }
}

/// Calls between two experts' products of one kind, at most.
const EXPERT: usize = 24;
/// Products from which a loop over experts is recognized.
const EXPERTS: usize = 8;
/// Longest loop looked at, in calls.
const LOOP: usize = 4096;

/// Products with weights of one shape and changing numbers of rows, with indexing between them:
/// tokens are picked for each expert in turn. Answers how many calls the loop takes.
pub(super) fn expert_loop(rest: &[Link<'_>]) -> Option<usize> {
    let first = rest.first()?;
    let is_first = matches!(first.dims, Dims::Gemm { batch: 1, .. });
    if !is_first || first.direction != Direction::Fprop {
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
        if !same_weights(first.dims, link.dims) || link.direction != Direction::Fprop {
            continue;
        }
        count += 1;
        if indexed + 1 < count || (count > EXPERTS && rows.len() < 2) {
            // The blocks of a network, one after the other.
            return None;
        }
        length = at + 1;
        since = 0;
        if let Dims::Gemm { m, .. } = link.dims
            && !rows.contains(&m)
            && rows.len() < 4
        {
            rows.push(m);
        }
    }
    (count >= EXPERTS && rows.len() >= 3).then_some(length)
}
