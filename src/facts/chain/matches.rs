//! Collects the recognized sequences of a run: equal sequences become one chain, with the time of all
//! occurrences and that of one fused operator.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use indexmap::{Equivalent, IndexMap};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::model::{Chain, ChainLink, Hit, Kind};
use super::{patterns, rope};
use crate::base::DType;
use crate::correlate::{Direction, OpCallId, Run, SiteId, SiteKernel};
use crate::cost::{Costed, Dims, Family};
use crate::facts::affected::SitePart;
use crate::gpu::Gpu;
use crate::profile::Kernel;

/// The chains recognized so far.
pub(super) struct Matches<'r> {
    costed: &'r Costed,
    chains: Vec<Chain>,
    /// Rows of `chains` by kind, layer, operators and direction.
    by_name: FxHashMap<(Kind, String, String, Direction, Option<u64>), usize>,
    /// Repeated sequences of sites. Programs repeat themselves, so each sequence is analyzed once.
    by_sites: IndexMap<Sequence, Repeated, FxBuildHasher>,
    /// The chain of each call that is part of one, or stands between its parts; empty without backward calls.
    by_call: Vec<Option<(usize, Place)>>,
}

/// Whether a call is part of a sequence, or of a loop over experts without being one of its products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Inside,
    Between,
}

/// The kind and the sites of a sequence.
#[derive(PartialEq, Eq)]
struct Sequence {
    kind: Kind,
    sites: Vec<SiteId>,
}

/// A sequence with its calls, with which a [`Sequence`] is looked up.
struct Occurrence<'a, 's>(Kind, &'a [&'a ChainLink<'s>]);

fn hash_sequence<H: Hasher>(kind: Kind, sites: impl Iterator<Item = SiteId>, state: &mut H) {
    kind.hash(state);
    sites.for_each(|site| site.hash(state));
}

impl Hash for Sequence {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_sequence(self.kind, self.sites.iter().copied(), state);
    }
}

impl Hash for Occurrence<'_, '_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_sequence(self.0, self.1.iter().map(|link| link.site), state);
    }
}

impl Equivalent<Sequence> for Occurrence<'_, '_> {
    fn equivalent(&self, sequence: &Sequence) -> bool {
        let sites = sequence.sites.iter().copied();
        self.0 == sequence.kind && self.1.iter().map(|link| link.site).eq(sites)
    }
}

/// The data that the occurrences of a sequence of sites share.
struct Repeated {
    chain: usize,
    /// Time of one fused operator for one occurrence, if the costs are known.
    fused_ns: Option<f64>,
    /// Per site: the time, summed, with calls and kernels.
    parts: Vec<(i64, SitePart)>,
}

impl<'r> Matches<'r> {
    pub(super) fn of(costed: &'r Costed) -> Matches<'r> {
        let calls = &costed.run.op_calls;
        let trains = calls.iter().any(|call| call.forward.is_some());
        Matches {
            costed,
            chains: Vec::new(),
            by_name: FxHashMap::default(),
            by_sites: IndexMap::default(),
            by_call: vec![None; if trains { calls.len() } else { 0 }],
        }
    }

    /// Adds an occurrence; returns the row of its chain.
    pub(super) fn add(
        &mut self,
        hit: &Hit<'_>,
        adds_bias: &dyn Fn(&ChainLink<'_>) -> bool,
    ) -> Option<usize> {
        let kind = hit.kind;
        let members = patterns::kept(kind, hit.calls);
        let first = members.first()?;
        let known = self.by_sites.get_index_of(&Occurrence(kind, &members));
        let row = known.unwrap_or_else(|| {
            let repeated = Repeated {
                chain: self.chain(kind, first, &members),
                fused_ns: fused_ns(self.costed, kind, &members),
                parts: vec![Default::default(); members.len()],
            };
            let sites = members.iter().map(|link| link.site).collect();
            let sequence = Sequence { kind, sites };
            self.by_sites.insert_full(sequence, repeated).0
        });
        let (_, repeated) = self.by_sites.get_index_mut(row)?;
        let chain = self.chains.get_mut(repeated.chain)?;
        let longest = members.iter().map(|l| l.time_ns).max().unwrap_or(0) as f64;
        // Small products are latency-bound: merged, they take at least as long as one of them now.
        let merged = matches!(kind, Kind::SharedInput | Kind::ExpertLoop);
        // Without operators and their shapes only times are known: the longest kernel reads and writes each
        // element once, as a fused one does. What stands between the products of attention goes.
        let sites = &self.costed.sites;
        let has_cost = |l: &&ChainLink<'_>| sites.get(l.site.idx()).is_some_and(|s| s.cost.is_ok());
        let kept = if kind == Kind::Attention {
            let products = members.iter().filter(|l| l.family == Family::Gemm);
            products.map(|l| l.time_ns as f64).sum()
        } else {
            longest
        };
        let by_time = match kind {
            Kind::Rope => Some(rope::fused_by_time_ns(&members)),
            _ => (!members.iter().any(has_cost)).then_some(kept),
        };
        let least = if merged { longest } else { 0.0 };
        chain.count += 1;
        chain.proved &= hit.proved;
        chain.fused_ns = (chain.fused_ns.zip(repeated.fused_ns.or(by_time)))
            .map(|(sum, ns)| sum + ns.max(least));
        chain.longest_ns += longest;
        let occurrence: f64 = members.iter().map(|link| link.time_ns as f64).sum();
        chain.slowest_ns = chain.slowest_ns.max(occurrence);
        // The backward of a repeated log-softmax is part of its chain.
        let apart = members.iter().filter(|_| kind != Kind::DoubleLogSoftmax);
        for link in apart {
            if let Some(slot) = self.by_call.get_mut(link.call.idx()) {
                *slot = Some((repeated.chain, Place::Inside));
            }
        }
        if kind == Kind::ExpertLoop {
            let inside: FxHashSet<OpCallId> = members.iter().map(|l| l.call).collect();
            for link in hit.calls.iter().filter(|l| !inside.contains(&l.call)) {
                *chain.between.entry(link.site).or_default() += link.time_ns as f64;
                if let Some(slot) = self.by_call.get_mut(link.call.idx()) {
                    *slot = Some((repeated.chain, Place::Between));
                }
            }
        }
        for (at, (link, (sum, part))) in members.iter().zip(&mut repeated.parts).enumerate() {
            let ns = link.time_ns as f64;
            *sum = sum.saturating_add(link.time_ns);
            add_kernels(self.costed, link, part);
            chain.kernels += u64::from(link.kernels);
            chain.time_ns += ns;
            if at > 0 {
                chain.rest_ns += ns;
            }
            if kind == Kind::ConvNorm && link.name == "add" && adds_bias(link) {
                chain.bias_ns += ns;
            }
            if kind == Kind::ConvNorm
                && link.family == Family::Norm
                && chain.batch_statistics.is_none()
            {
                chain.batch_statistics = gathers_statistics(self.costed, link.site);
            }
        }
        Some(repeated.chain)
    }

    /// Adds the backward of forward calls to the chains of these rows.
    pub(super) fn add_backward(&mut self, forward: &FxHashMap<OpCallId, usize>) {
        if forward.is_empty() {
            return;
        }
        let run = &self.costed.run;
        let mut last = None;
        for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
            let call = link.op.and_then(|op| run.op_call(op));
            let row = call.and_then(|call| forward.get(&call.forward?));
            if let (Some(site), Some(row)) = (link.site, row)
                && let Some(chain) = self.chains.get_mut(*row)
            {
                let ns = kernel.span.ns() as f64;
                chain.kernels += 1;
                chain.time_ns += ns;
                *chain.sites.entry(site).or_default() += ns;
                let part = chain.parts.entry(site).or_default();
                if last.replace((site, link.op)) != Some((site, link.op)) {
                    part.calls += 1;
                }
                if let Some(row) = kernel_row(run, site, kernel) {
                    part.add_kernel(row, 1, ns);
                }
            }
        }
    }

    /// Whether most of a sequence is the backward pass of a GELU, with which it goes. The forward pass must
    /// have been added.
    pub(super) fn is_backward_of_gelu(&self, hit: &Hit<'_>) -> bool {
        let of_gelu = |link: &ChainLink<'_>| {
            let call = self.costed.run.op_call(link.call)?;
            let (row, _) = (*self.by_call.get(call.forward?.idx())?)?;
            let chain = self.chains.get(row)?;
            (chain.kind == Kind::Gelu).then_some(link.time_ns)
        };
        let part: i64 = hit.calls.iter().filter_map(of_gelu).sum();
        let whole: i64 = hit.calls.iter().map(|link| link.time_ns).sum();
        2 * part > whole
    }

    /// The row of the chain with these names, created if missing.
    fn chain(&mut self, kind: Kind, first: &ChainLink<'_>, members: &[&ChainLink<'_>]) -> usize {
        let layer = pattern_of(&self.costed.run, first.site).to_owned();
        let mut ops: Vec<&str> = members.iter().map(|l| l.name).collect();
        if kind == Kind::ExpertLoop {
            // There is one per expert, so the name is listed once.
            ops.truncate(1);
        }
        let (ops, direction) = (ops.join(", "), first.direction);
        let chains = &mut self.chains;
        // Names and grids tell how many scores there are, not how many per query.
        let by_name = kind == Kind::Attention && first.by_name.is_some();
        let width = width(kind, members).filter(|_| !by_name);
        // Fusing attention saves much over long sequences and nothing over short ones.
        let apart = width.filter(|_| kind == Kind::Attention);
        let name = (kind, layer.clone(), ops.clone(), direction, apart);
        *self.by_name.entry(name).or_insert_with(|| {
            chains.push(Chain {
                kind,
                layer,
                ops,
                direction,
                count: 0,
                length: members.len(),
                kernels: 0,
                time_ns: 0.0,
                rest_ns: 0.0,
                longest_ns: 0.0,
                slowest_ns: 0.0,
                fused_ns: Some(0.0),
                width,
                bias_ns: 0.0,
                batch_statistics: None,
                proved: true,
                sites: BTreeMap::new(),
                parts: BTreeMap::new(),
                backward: BTreeMap::new(),
                between: BTreeMap::new(),
            });
            chains.len() - 1
        })
    }

    /// All chains, in a fixed order.
    pub(super) fn chains(mut self) -> Vec<Chain> {
        for (sequence, repeated) in std::mem::take(&mut self.by_sites) {
            let Some(chain) = self.chains.get_mut(repeated.chain) else {
                continue;
            };
            for (site, (ns, part)) in sequence.sites.into_iter().zip(repeated.parts) {
                *chain.sites.entry(site).or_default() += ns as f64;
                chain.parts.entry(site).or_default().add(&part);
            }
        }
        self.add_backward_of_chains();
        let name = |c: &Chain| (c.kind, c.layer.clone(), c.ops.clone(), c.direction, c.width);
        self.chains.sort_by_cached_key(name);
        self.chains
    }
}

impl Matches<'_> {
    /// Adds the kernels of backward calls to the chains of their forward calls.
    fn add_backward_of_chains(&mut self) {
        let run = &self.costed.run;
        if self.by_call.iter().all(Option::is_none) {
            return;
        }
        for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
            let Some((site, call)) = link.site.zip(link.op) else {
                continue;
            };
            let forward = run.op_call(call).and_then(|call| call.forward);
            let chain = forward.and_then(|call| *self.by_call.get(call.idx())?);
            if let Some((row, place)) = chain
                && let Some(chain) = self.chains.get_mut(row)
            {
                let times = match place {
                    Place::Inside => &mut chain.backward,
                    Place::Between => &mut chain.between,
                };
                *times.entry(site).or_default() += kernel.span.ns() as f64;
            }
        }
    }
}

/// Adds a call and its kernels to the part of its site.
fn add_kernels(costed: &Costed, link: &ChainLink<'_>, part: &mut SitePart) {
    let run = &costed.run;
    part.calls += 1;
    let ids = link.first.idx()..=link.last.idx();
    let kernels = run.profile.kernels.get(ids.clone()).unwrap_or_default();
    let links = run.links.get(ids).unwrap_or_default();
    let of_call = links.first().and_then(|first| first.op);
    for (kernel, other) in kernels.iter().zip(links) {
        if other.op == of_call
            && other.site == Some(link.site)
            && let Some(row) = kernel_row(run, link.site, kernel)
        {
            part.add_kernel(row, 1, kernel.span.ns() as f64);
        }
    }
}

/// The row of a kernel in its site.
fn kernel_row(run: &Run, site: SiteId, kernel: &Kernel) -> Option<u32> {
    let same = |k: &SiteKernel| (k.name, k.config) == (kernel.name, kernel.config);
    let rows = &run.site(site)?.kernels;
    u32::try_from(rows.iter().position(same)?).ok()
}

/// Whether the kernels of a batch norm gather statistics, or use stored ones. The names are those of
/// PyTorch, cuDNN and MIOpen.
fn gathers_statistics(costed: &Costed, site: SiteId) -> Option<bool> {
    const GATHERS: [&str; 5] = ["collect_statistics", "fw_tr", "fwtr", "fwdtrain", "welford"];
    const USES: [&str; 4] = ["fw_inf", "fwinf", "fwdinfer", "transform_input"];
    let decoded = costed.kernels.get(site.idx())?;
    let named = |words: &[&str]| {
        decoded.iter().any(|d| {
            let base = d.base.to_ascii_lowercase();
            words.iter().any(|word| base.contains(word))
        })
    };
    // Where PyTorch gathers statistics, the normalization itself is a second kernel.
    match (named(&GATHERS), named(&USES)) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
    }
}

/// The layer pattern of a site; empty if its layer is unknown.
fn pattern_of(run: &Run, site: SiteId) -> &str {
    let layer = run.site(site).and_then(|s| s.layer);
    layer
        .and_then(|id| run.layer(id))
        .and_then(|l| run.pattern(l.pattern))
        .map_or("", |p| &p.name)
}

/// The length of the rows that a sequence works on, else its number of elements.
pub(super) fn width(kind: Kind, members: &[&ChainLink<'_>]) -> Option<u64> {
    members
        .iter()
        .find_map(|l| match l.dims {
            Dims::Rows { cols, .. } => Some(cols),
            _ => None,
        })
        .or_else(|| {
            // The first product of attention has a column per key.
            let scores = members.first().filter(|_| kind == Kind::Attention)?;
            scores.dims.gemm().map(|size| size.n)
        })
        .or_else(|| {
            members.iter().find_map(|l| match l.dims {
                Dims::Elements { numel } => Some(numel),
                _ => None,
            })
        })
}

/// FLOP/s of the products in a fused operator, which does not change their type.
fn fused_rate(gpu: &Gpu, kind: Kind, ran: Option<DType>, best: Option<DType>) -> Option<f64> {
    /// Fused attention in fp32 makes one product of three in TF32 (CUTLASS, `OpMultiplyAddFastF32`).
    const PRODUCTS: f64 = 3.0;
    let plain = |dtype: &DType| gpu.flops.get(dtype).copied();
    let tensor = |dtype: &DType| gpu.tensor_flops.get(dtype).copied();
    if kind == Kind::Attention && matches!(ran, Some(DType::Fp32 | DType::Tf32)) {
        let split = tensor(&DType::Tf32).map(|rate| rate / PRODUCTS);
        return split
            .or_else(|| tensor(&DType::Fp32))
            .or_else(|| plain(&DType::Fp32));
    }
    let dtype = best?;
    tensor(&dtype).or_else(|| plain(&dtype))
}

/// Time of one equivalent fused operator: the FLOPs are the same, intermediate tensors are neither
/// written nor read. `None` if the GPU or a cost is unknown. The same for all calls of these sites.
fn fused_ns(costed: &Costed, kind: Kind, members: &[&ChainLink<'_>]) -> Option<f64> {
    let gpu = &costed.gpu.as_ref()?.gpu;
    if matches!(kind, Kind::DoubleLogSoftmax | Kind::LogitsUpcast) {
        return Some(0.0);
    }
    let bytes_of = |link: &ChainLink<'_>| -> Option<u64> {
        let cost = costed.cost_of(link.site)?.cost.as_ref();
        Some(cost.ok()?.bytes())
    };
    if kind == Kind::Rope {
        let kept = rope::kept(members);
        let bytes: u64 = kept.into_iter().map(bytes_of).sum::<Option<u64>>()?;
        let ns = bytes as f64 / gpu.bandwidth * 1e9 / gpu.reachable.memory;
        return Some(ns.max(gpu.reachable.kernel_ns));
    }
    let mut flops_ns = 0.0;
    let mut bytes = 0.0;
    for link in members {
        let site = costed.cost_of(link.site)?;
        let cost = site.cost.as_ref().ok()?;
        bytes += cost.bytes() as f64;
        if site.family.is_math() {
            flops_ns += cost.flops() as f64
                / fused_rate(gpu, kind, site.math_dtype, site.best_dtype)?
                * 1e9;
        }
    }
    let read_again = || -> Option<f64> {
        let later = members.iter().skip(1);
        later.map(|l| intermediate_bytes(costed, l)).sum()
    };
    let least = bytes / members.len() as f64;
    let kept = match kind {
        // Q, K, V and O are read or written; scores and probabilities stay on chip.
        Kind::Attention => attention_bytes(costed, members)?,
        // Reads the scores and writes the probabilities, as the division at the end does.
        Kind::Softmax => bytes_of(members.last()?)? as f64,
        // Reads its input and writes its result. Under autocast some operators convert it to a wider type.
        Kind::Gelu => {
            let sizes = members.iter().map(|l| intermediate_bytes(costed, l));
            2.0 * sizes
                .collect::<Option<Vec<f64>>>()?
                .into_iter()
                .fold(f64::INFINITY, f64::min)
        }
        // One product instead of several reads the input once.
        Kind::SharedInput => (bytes - read_again()?).max(least),
        Kind::ExpertLoop => bytes,
        // Each intermediate is written once and read once; fusion keeps only the first input and the
        // last output.
        _ => (bytes - 2.0 * read_again()?).max(least),
    };
    let share = match kind {
        Kind::Attention => gpu.reachable.attention,
        _ => gpu.reachable.math,
    };
    let math = flops_ns / share;
    let memory = kept / gpu.bandwidth * 1e9 / gpu.reachable.memory;
    Some(math.max(memory).max(gpu.reachable.kernel_ns))
}

/// Bytes of the tensor that a call reads from the previous call.
fn intermediate_bytes(costed: &Costed, link: &ChainLink<'_>) -> Option<f64> {
    let site = costed.run.site(link.site)?;
    let args = costed.run.arguments(site.args?)?;
    let tensor = args.tensors().next()?;
    let numel = tensor.elements();
    let dtype = tensor.dtype.or(costed.cost_of(link.site)?.math_dtype)?;
    Some(numel as f64 * dtype.bytes() as f64)
}

fn attention_bytes(costed: &Costed, members: &[&ChainLink<'_>]) -> Option<f64> {
    let (first, last) = (members.first()?, members.last()?);
    let (scores, values) = (first.dims.gemm()?, last.dims.gemm()?);
    let sizes = [scores.batch, scores.m, scores.n, scores.k, values.n];
    let [b, m, n, k, v] = sizes.map(|size| size as f64);
    let dtype = costed.cost_of(first.site)?.math_dtype?;
    // Q [m, k], K [n, k], V [n, v], O [m, v].
    Some(b * (m * k + n * k + n * v + m * v) * dtype.bytes() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::select;

    #[test]
    fn fused_attention_in_fp32_takes_three_products() {
        let rate = |gpu: &str, kind, ran| {
            let gpu = select::find(gpu).unwrap().gpu;
            fused_rate(&gpu, kind, Some(ran), Some(DType::Bf16)).unwrap()
        };
        let a100 = |kind, ran| rate("a100-sxm4-40gb", kind, ran);
        assert_eq!(a100(Kind::Attention, DType::Bf16), 312e12);
        assert_eq!(a100(Kind::Attention, DType::Fp32), 52e12);
        assert_eq!(a100(Kind::SharedInput, DType::Fp32), 312e12);
        assert!(rate("v100-sxm2-16gb", Kind::Attention, DType::Fp32) < 16e12);
    }
}
