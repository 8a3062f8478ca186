//! Recognized sequences of operator calls: unfused attention, unfused norms, sequences of pointwise
//! operators, convolution + norm, a log-softmax of a log-softmax, and those of [`patterns`].
//!
//! Calls are processed in the order in which their kernels ran on one stream. Recognition uses
//! families, names and shapes, but not the GPU. The cost of a sequence as one fused operator is a fact;
//! advice and thresholds are in the rules.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::enclosing_ops::{EnclosingOps, plain_name};
use super::fact::{FactEntry, Subject, facts};
use super::table::FactTable;
use crate::base::DType;
use crate::correlate::{Direction, OpCallId, SiteId};
use crate::cost::{Costed, Dims, Family};
use crate::profile::{ConfigId, DeviceId, Kernel, KernelId, ProcessId, StrId};
use matches::Matches;
pub(super) use model::{Chain, Kind};
use model::{ChainLink, Hit, LinkWork, may_be_forward};

mod elements;
mod matches;
mod model;
mod patterns;
mod rope;
#[cfg(test)]
mod tests;

/// A chain with its fact table.
pub(super) struct ChainScope<'a> {
    pub(super) table: &'a FactTable<'a>,
    pub(super) chain: &'a Chain,
}

impl ChainScope<'_> {
    fn dtype(&self) -> Option<DType> {
        let costs = &self.table.costed.sites;
        let is_product = |id: &SiteId| {
            costs
                .get(id.idx())
                .is_some_and(|s| s.family == Family::Gemm)
        };
        // What an adapter multiplies, and not the 16-bit tensor that its result is added to.
        let any = self.chain.kind != Kind::Lora;
        let sites = self
            .chain
            .sites
            .iter()
            .filter(|(id, _)| any || is_product(id));
        let (costliest, _) = sites.max_by(|a, b| a.1.total_cmp(b.1))?;
        let run = &self.table.costed.run;
        let args = run.site(*costliest)?.args?;
        run.arguments(args)?.tensors().next()?.dtype
    }
}

/// The subject type of chain facts.
pub(super) struct Chains;
impl Subject for Chains {
    type Of<'a> = ChainScope<'a>;
}

/// Every chain of the run, by kind, layer and operators. `around` is called only if it is needed to
/// distinguish a bias from a residual.
pub(super) fn recognize<'r>(
    costed: &'r Costed,
    around: &(dyn Fn() -> &'r EnclosingOps + Sync),
) -> Vec<Chain> {
    let adds_bias = |link: &ChainLink<'_>| {
        let words = around().site(link.site);
        words.iter().any(|w| CONVOLUTIONS.contains(&&**w))
    };
    let works = Works::of(costed);
    let streams = streams(costed, &works);
    let hits: Vec<Vec<Hit<'_>>> = streams
        .par_iter()
        .map(|stream| {
            let mut hits = Vec::new();
            for run in stream {
                scan(run, &adds_bias, &mut hits);
            }
            hits
        })
        .collect();
    let mut found = Matches::of(costed);
    // A log-softmax that is removed takes its backward along.
    let mut removed: FxHashMap<OpCallId, usize> = FxHashMap::default();
    let backward = |hit: &Hit<'_>| {
        let first = hit.calls.first();
        hit.kind == Kind::Pointwise && first.is_some_and(|l| l.direction == Direction::Bprop)
    };
    let (backward, others): (Vec<_>, Vec<_>) = hits.into_iter().flatten().partition(backward);
    for hit in others {
        let chain = found.add(&hit, &adds_bias);
        if hit.kind == Kind::DoubleLogSoftmax {
            let call = hit.calls.last().map(|second| second.call);
            removed.extend(call.zip(chain));
        }
    }
    for hit in backward {
        if !found.is_backward_of_gelu(&hit) {
            found.add(&hit, &adds_bias);
        }
    }
    found.add_backward(&removed);
    found.chains()
}

/// PyTorch operators that run a library's convolution and then add the bias to its result.
const CONVOLUTIONS: [&str; 2] = ["convolution", "convolution_overrideable"];

/// The work of all sites.
struct Works<'a> {
    /// `None` where neither an operator nor the kernel's name tells it.
    of_sites: Vec<Option<LinkWork<'a>>>,
    /// The work of kernels that tell more than an operator without recorded shapes: of one site, each call may
    /// have another size, and some copies convert.
    of_kernels: FxHashMap<(SiteId, StrId, ConfigId), LinkWork<'a>>,
}

impl<'a> Works<'a> {
    fn of(costed: &'a Costed) -> Works<'a> {
        let once = OnceCell::new();
        let vectorized = || *once.get_or_init(|| elements::vectorized(costed));
        let of_sites = works(costed, &vectorized);
        let mut of_kernels = FxHashMap::default();
        let with_operator = of_sites.iter().flatten().filter(|w| w.by_name.is_none());
        for work in with_operator {
            let at = work.site.idx();
            if costed.sites.get(at).is_none_or(|site| site.cost.is_ok()) {
                continue;
            }
            let kernels = costed.run.sites.get(at).map(|site| &site.kernels);
            let decoded = costed.kernels.get(at).into_iter().flatten();
            for (kernel, decoded) in kernels.into_iter().flatten().zip(decoded) {
                let converts = work.family == Family::Copy && decoded.family == Family::Cast;
                let config = costed.run.profile.configs.get(kernel.config.idx());
                let numel = config.filter(|_| work.dims == Dims::None);
                let numel = numel.and_then(|c| elements::covered(decoded, c, &vectorized));
                if !converts && numel.is_none() {
                    continue;
                }
                let own = LinkWork {
                    family: if converts { Family::Cast } else { work.family },
                    dims: numel.map_or(work.dims, |numel| Dims::Elements { numel }),
                    rounded: numel.is_some(),
                    ..*work
                };
                of_kernels.insert((work.site, kernel.name, kernel.config), own);
            }
        }
        Works {
            of_sites,
            of_kernels,
        }
    }

    /// The work of a kernel of a site.
    fn get(&self, site: SiteId, kernel: &Kernel) -> Option<&LinkWork<'a>> {
        let work = self.of_sites.get(site.idx())?.as_ref();
        let key = (site, kernel.name, kernel.config);
        self.of_kernels.get(&key).or(work)
    }
}

/// The work per site; `None` where neither an operator nor the kernel's name tells it.
fn works<'a>(costed: &'a Costed, vectorized: &dyn Fn() -> u64) -> Vec<Option<LinkWork<'a>>> {
    let by_name = mostly_without_operators(costed);
    let sites = (0..).map(SiteId).zip(&costed.run.sites);
    sites
        .zip(&costed.sites)
        .map(|((id, site), cost)| {
            let Some(op) = &site.op else {
                return if by_name {
                    named(costed, id, vectorized)
                } else {
                    None
                };
            };
            let roles = cost.cost.as_ref().ok().map(|c| c.roles.first());
            Some(LinkWork {
                site: id,
                name: plain_name(&op.name),
                family: cost.family,
                direction: site.direction,
                dims: roles.flatten().map_or(Dims::None, |r| r.dims),
                rounded: false,
                complex: matches!(cost.math_dtype, Some(DType::Complex64 | DType::Complex128)),
                by_name: None,
            })
        })
        .collect()
}

/// Whether most of the kernel time has no operator. Otherwise such kernels are exceptions among known
/// operators, and end a sequence.
fn mostly_without_operators(costed: &Costed) -> bool {
    let time = |known: bool| -> i64 {
        let sites = costed.run.sites.iter();
        let sites = sites.filter(|site| site.op.is_some() == known);
        sites.map(|site| site.time_ns).fold(0, i64::saturating_add)
    };
    time(true) < time(false)
}

/// The work of a kernel of PyTorch by its name, such as `elementwise: mul`. The number of elements
/// follows from the grid, rounded up: it is compared, never used to compute a cost.
fn named<'a>(costed: &'a Costed, id: SiteId, vectorized: &dyn Fn() -> u64) -> Option<LinkWork<'a>> {
    let site = costed.run.site(id)?;
    let (kernel, decoded) = (
        site.kernels.first()?,
        costed.kernels.get(id.idx())?.first()?,
    );
    let config = costed.run.profile.configs.get(kernel.config.idx())?;
    let [_, _, products] = config.grid;
    let (name, dims) = match decoded.family {
        // Only many products at once are of interest: those of attention.
        Family::Gemm if products > 1 && !decoded.helper => ("bmm", Dims::None),
        Family::Softmax => (decoded.label.strip_suffix(" forward")?, Dims::None),
        Family::Cat => ("cat", Dims::None),
        Family::Index => ("index", Dims::None),
        Family::Attention => ("attention", Dims::None),
        _ => match decoded.label.split_once(": ")? {
            ("reduce", name) => (name, Dims::None),
            ("elementwise", name) => {
                let numel = elements::covered(decoded, config, vectorized)?;
                (name, Dims::Elements { numel })
            }
            _ => return None,
        },
    };
    Some(LinkWork {
        site: id,
        name,
        family: decoded.family,
        direction: site.direction,
        dims,
        rounded: true,
        complex: false,
        by_name: Some(products),
    })
}

/// Consecutive calls on one stream, without other kernels between them.
type Unbroken<'a> = Vec<ChainLink<'a>>;

/// Op calls per (process, device, stream), in execution order. A kernel of unknown work breaks the
/// sequence. (Helpers always have the operator of their call.) A kernel that is known by its name only
/// is a call of its own.
fn streams<'a>(costed: &Costed, works: &'a Works<'a>) -> Vec<Vec<Unbroken<'a>>> {
    let run = &costed.run;
    let mut streams: BTreeMap<(ProcessId, DeviceId, u32), Vec<Unbroken<'a>>> = BTreeMap::new();
    let ids = (0..u32::MAX).rev().map(OpCallId);
    let kernels = (0..).map(KernelId).zip(&run.profile.kernels);
    for (((id, kernel), link), unique) in kernels.zip(&run.links).zip(ids) {
        let stream = streams
            .entry((kernel.process, kernel.device, kernel.stream))
            .or_insert_with(|| vec![Vec::new()]);
        let described = link.site.and_then(|site| {
            let work = works.get(site, kernel)?;
            Some((work, link.op.unwrap_or(unique)))
        });
        let Some((work, call)) = described else {
            // A fill computes nothing from what ran before it: such as the gradient of the loss, 1.
            let family = link.site.and_then(|site| costed.cost_of(site));
            if family.is_some_and(|cost| cost.family == Family::Fill) {
                continue;
            }
            if stream.last().is_some_and(|calls| !calls.is_empty()) {
                stream.push(Vec::new());
            }
            continue;
        };
        let Some(calls) = stream.last_mut() else {
            continue;
        };
        if let Some(last) = calls.last_mut()
            && last.call == call
        {
            last.time_ns = last.time_ns.saturating_add(kernel.span.ns());
            last.kernels = last.kernels.saturating_add(1);
            last.last = id;
            continue;
        }
        calls.push(ChainLink {
            work,
            call,
            first: id,
            last: id,
            kernels: 1,
            time_ns: kernel.span.ns(),
        });
    }
    streams.into_values().collect()
}

/// Adds the sequences in consecutive calls to `hits`.
fn scan<'s>(
    calls: &'s [ChainLink<'s>],
    adds_bias: &dyn Fn(&ChainLink<'_>) -> bool,
    hits: &mut Vec<Hit<'s>>,
) {
    let mut rest = calls;
    while !rest.is_empty() {
        if let Some([queries, keys]) = rope::queries_and_keys(rest) {
            let end = keys.end;
            let found = [queries, keys]
                .into_iter()
                .filter_map(|range| rest.get(range));
            hits.extend(found.map(|calls| Hit {
                kind: Kind::Rope,
                calls,
                proved: false,
            }));
            rest = rest.get(end..).unwrap_or_default();
            continue;
        }
        let hit = match patterns::expert_loop(rest) {
            Some(length) => Some((Kind::ExpertLoop, length)),
            None => recognize_at(rest.get(..LONGEST).unwrap_or(rest), adds_bias),
        };
        let length = match hit {
            Some((kind, length)) => {
                let calls = rest.get(..length).unwrap_or(rest);
                let after = rest.get(length..).unwrap_or_default();
                let proved = kind == Kind::DoubleLogSoftmax && patterns::backward_repeats(after);
                hits.push(Hit {
                    kind,
                    calls,
                    proved,
                });
                length
            }
            None => 1,
        };
        rest = rest.get(length.max(1)..).unwrap_or_default();
    }
}

/// Maximum length of a sequence, in calls.
const LONGEST: usize = 24;

fn recognize_at(
    run: &[ChainLink<'_>],
    adds_bias: &dyn Fn(&ChainLink<'_>) -> bool,
) -> Option<(Kind, usize)> {
    attention(run)
        .or_else(|| norm(run))
        .or_else(|| double_log_softmax(run))
        .or_else(|| conv_norm(run, adds_bias))
        .or_else(|| patterns::recognize(run))
        .or_else(|| pointwise(run))
}

fn glue(link: &ChainLink<'_>) -> bool {
    matches!(
        link.family,
        Family::Pointwise | Family::Cast | Family::Copy | Family::Dropout | Family::Fill
    ) || link.name == "masked_fill"
}

/// Whether a call may stand between the softmax and the second product of attention: also what
/// `_safe_softmax` of PyTorch 2.5 and later adds, which sets rows that are masked completely to zero.
fn after_softmax(link: &ChainLink<'_>) -> bool {
    const SAFE: [&str; 9] = [
        "eq",
        "ne",
        "isinf",
        "all",
        "any",
        "logical_not",
        "where",
        "scalar_tensor",
        "zeros_like",
    ];
    glue(link) || SAFE.contains(&link.name)
}

/// Product, (scale, mask)*, softmax, (dropout, cast)*, product, on matching dimensions.
fn attention(run: &[ChainLink<'_>]) -> Option<(Kind, usize)> {
    let first = run.first()?;
    if first.family != Family::Gemm || first.direction == Direction::Bprop {
        return None;
    }
    let batched = |l: &ChainLink<'_>| {
        // With one head and one image, as in the decoder of a diffusion model, only the name tells.
        l.dims.gemm().is_some_and(|size| size.batch > 1) || matches!(l.name, "bmm" | "baddbmm")
    };
    if !batched(first) {
        return None;
    }
    let softmax = 1 + run.iter().skip(1).take(6).position(|l| !glue(l))?;
    let middle = run.get(softmax)?;
    let behind = match middle.family {
        Family::Softmax if !middle.name.contains("log") => softmax + 1,
        _ => softmax + patterns::softmax(run.get(softmax..)?)?.1,
    };
    let second = behind
        + run
            .iter()
            .skip(behind)
            .take(10)
            .position(|l| !after_softmax(l))?;
    let last = run.get(second)?;
    if last.family != Family::Gemm || !batched(last) || last.direction != first.direction {
        return None;
    }
    let found = Some((Kind::Attention, second + 1));
    // Scores [.., m, n], softmax over n, then a product whose inner dimension is n.
    match (first.dims, middle.dims, last.dims) {
        (Dims::Gemm(scores), Dims::Rows { cols, .. }, Dims::Gemm(values)) => {
            found.filter(|_| scores.n == cols && cols == values.k)
        }
        // The softmax begins with its maximum.
        (Dims::Gemm(scores), _, Dims::Gemm(values)) => found.filter(|_| scores.n == values.k),
        _ if first.by_name.is_some() => found.filter(|_| first.by_name == last.by_name),
        (Dims::None, _, _) | (_, _, Dims::None) => found,
        _ => None,
    }
}

/// `pow, mean, add, rsqrt, mul, ...`: a mean or variance and an rsqrt (or sqrt and div) among pointwise
/// operators, none of which is a norm.
fn norm(run: &[ChainLink<'_>]) -> Option<(Kind, usize)> {
    let starts = ["pow", "square", "mean", "var", "var_mean", "mul"];
    let first = run.first()?;
    // Statistics are often computed in fp32: a fused norm also removes the conversion before them.
    let begins = starts.contains(&first.name) || first.family == Family::Cast;
    if !begins || first.direction == Direction::Update {
        return None;
    }
    let part = |l: &&ChainLink<'_>| {
        matches!(l.family, Family::Pointwise | Family::Reduce | Family::Cast)
            && l.direction == first.direction
    };
    let body = run.get(..run.iter().take(12).take_while(part).count())?;
    let has = |name: &str| body.iter().position(|l| l.name == name);
    let root = has("rsqrt").or_else(|| has("sqrt").filter(|_| has("div").is_some()))?;
    let is_statistic = |l: &ChainLink<'_>| matches!(l.name, "mean" | "var" | "var_mean");
    let before = body.get(..root)?;
    let variance = before.iter().rposition(is_statistic)?;
    // A mean that is subtracted comes before a variance that is written out.
    let most = match before.iter().position(is_statistic) {
        Some(mean) if mean < variance => 4,
        _ => 3,
    };
    if variance > most || root > variance + 4 {
        return None;
    }
    // The scaling that follows: x * rsqrt, then the weight.
    let tail = body.iter().skip(root + 1).take(4).take_while(|l| {
        matches!(
            l.name,
            "mul" | "div" | "add" | "to" | "to_copy" | "copy" | "type_as"
        )
    });
    let length = root + 1 + tail.count();
    (length >= 4).then_some((Kind::Norm, length))
}

/// A log-softmax whose input is already one: the second has no effect on the values.
fn double_log_softmax(run: &[ChainLink<'_>]) -> Option<(Kind, usize)> {
    let first = run.first()?;
    let is = |l: &ChainLink<'_>| {
        l.family == Family::Softmax && l.name.contains("log_softmax") && may_be_forward(l)
    };
    if !is(first) {
        return None;
    }
    // Only views, casts and copies may occur between the two; anything else changes the input.
    let next = 1 + run
        .iter()
        .skip(1)
        .take(3)
        .position(|l| !matches!(l.family, Family::Cast | Family::Copy))?;
    let second = run.get(next)?;
    let same = match (first.dims, second.dims) {
        (Dims::Rows { rows: a, cols: b }, Dims::Rows { rows: c, cols: d }) => a == c && b == d,
        _ => false,
    };
    (is(second) && same && first.call != second.call).then_some((Kind::DoubleLogSoftmax, next + 1))
}

/// A convolution, its bias if added separately, a batch norm and, if it follows, the activation.
fn conv_norm(
    run: &[ChainLink<'_>],
    adds_bias: &dyn Fn(&ChainLink<'_>) -> bool,
) -> Option<(Kind, usize)> {
    let first = run.first()?;
    if first.family != Family::Conv || first.direction == Direction::Bprop {
        return None;
    }
    let bias = usize::from(run.get(1).is_some_and(|l| l.name == "add" && adds_bias(l)));
    let second = run.get(1 + bias)?;
    if second.family != Family::Norm || !second.name.contains("batch_norm") {
        return None;
    }
    let act = run.get(2 + bias).is_some_and(|l| {
        l.family == Family::Pointwise
            && matches!(
                l.name,
                "relu"
                    | "relu6"
                    | "clamp_min"
                    | "silu"
                    | "hardswish"
                    | "hardtanh"
                    | "leaky_relu"
                    | "threshold"
            )
    });
    Some((Kind::ConvNorm, 2 + bias + usize::from(act)))
}

/// At least three consecutive pointwise calls over the same number of elements, excluding calls that
/// belong to a following norm or rotation.
fn pointwise(run: &[ChainLink<'_>]) -> Option<(Kind, usize)> {
    let first = run.first()?;
    let Dims::Elements { numel } = first.dims else {
        return None;
    };
    let fits = |l: &&ChainLink<'_>| {
        matches!(l.family, Family::Pointwise | Family::Cast | Family::Dropout)
            && l.direction == first.direction
            && l.dims == (Dims::Elements { numel })
    };
    let longest = run.iter().take_while(fits).count();
    let other = |rest: &[ChainLink<'_>]| norm(rest).is_some() || rope::negated(rest).is_some();
    let other_at = |&at: &usize| run.get(at..).is_some_and(other);
    let length = (1..longest).find(other_at).unwrap_or(longest);
    let kind = if first.by_name.is_some() && patterns::updates(run.get(..length).unwrap_or(run)) {
        Kind::Adam
    } else {
        Kind::Pointwise
    };
    (length >= 3).then_some((kind, length))
}

pub(super) const ENTRIES: &[FactEntry<Chains>] = facts! {
    /// `attention`, `norm`, `double_log_softmax`, `conv_norm`, `logits_upcast`, `log_of_softmax`,
    /// `softmax`, `rope`, `gelu`, `gated_activation`, `silu`, `lora`, `shared_input`, `expert_loop`, `adam`
    /// (without operators) or `pointwise`
    "chain.kind": STR => |c| c.chain.kind.name(),
    /// The operators in order, comma separated
    "chain.ops": STR => |c| c.chain.ops.as_str(),
    /// Layer pattern it stands in
    "chain.layer": STR needs LAYERS =>
        |c| Some(c.chain.layer.as_str()).filter(|layer| !layer.is_empty()),
    /// `fprop`, `bprop`, `update` or `unknown`
    "chain.direction": STR => |c| c.chain.direction.name(),
    /// Occurrences
    "chain.count": INT => |c| c.chain.count,
    /// Operator calls in one occurrence
    "chain.length": INT => |c| c.chain.length as u64,
    /// Kernel executions, over all occurrences
    "chain.kernels": INT => |c| c.chain.kernels,
    /// GPU time, over all occurrences
    "chain.time_ns": DOUBLE => |c| c.chain.time_ns,
    /// GPU time of the backward calls of its operators, over all occurrences; 0 where none is known
    "chain.backward_ns": DOUBLE => |c| c.chain.backward.values().sum::<f64>(),
    /// GPU time of its operators but the first, over all occurrences
    "chain.after_first_ns": DOUBLE => |c| c.chain.rest_ns,
    /// GPU time of the occurrence that takes longest
    "chain.slowest_ns": DOUBLE => |c| c.chain.slowest_ns,
    /// GPU time of the longest operator of each occurrence, summed: a fused one that reads and writes each
    /// element once takes no longer
    "chain.longest_ns": DOUBLE => |c| c.chain.longest_ns,
    /// Its share of GPU busy time
    "chain.gpu_share": DOUBLE => |c| (c.chain.time_ns / c.table.totals.gpu_busy_ns).min(1.0),
    /// What one fused operator would take, over all occurrences
    "chain.fused_ns": DOUBLE needs GPU_AND_SHAPES => |c| c.chain.fused_ns,
    /// GPU time of adding a convolution's bias in a kernel of its own, over all occurrences
    "chain.bias_ns": DOUBLE => |c| c.chain.bias_ns,
    /// For `conv_norm`: the norm takes its statistics from the batch, as in training, and not from stored
    /// ones
    "chain.batch_statistics": BOOL needs KERNEL_NAME => |c| c.chain.batch_statistics,
    /// For `double_log_softmax`: the backward pass runs both one after the other right after that of the
    /// loss, so the second reads the result of the first
    "chain.proved": BOOL => |c| c.chain.proved,
    /// Operators around nine tenths of the time of each of its calls, plainly spelled:
    /// `scaled_dot_product_attention`
    "chain.enclosing_ops": STRINGS => |c| {
        let sites = c.chain.sites.keys().copied();
        c.table.enclosing_ops.sites(sites)
    },
    /// Element type of the first tensor argument of its costliest operator; for `lora`, of its costliest product
    "chain.dtype": STR needs SHAPES => |c| c.dtype().map(DType::name),
    /// Columns of its softmax or norm, else elements
    "chain.width": INT needs SHAPES => |c| c.chain.width,
};
